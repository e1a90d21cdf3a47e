-- The time axis of the timeline: equal buckets from an engine's first observation to its last.
--
-- As fine as an engine's own observations allow, never finer than a second, and at most about 2,000 buckets an engine: what lies beside it
-- among the inputs changes nothing of it. Where a log is silent for more than a day, or until its engine starts again, there are none: what
-- was before is another stretch, and weeks between two logs make neither coarser.
--
-- grain: engine, bucket_at
-- needs: core.engine_states
-- column: engine    VARCHAR     | Engine.
-- column: bucket_at TIMESTAMPTZ | Start of the bucket.
-- column: bucket_s  DOUBLE      | Its length, the same for all of an engine's.
with followed as (
    select
        states.engine,
        states.sampled_at,
        -- counters go on over a hole between scrapes, and what they counted in it is shared out over it
        states.origin = 'log' and (
            lives.life is distinct from lag(lives.life) over in_order
            or states.sampled_at - lag(states.sampled_at) over in_order > interval 1 day
        ) as is_apart,
    from core.engine_states as states
    asof left join core.engine_lives as lives on lives.engine = states.engine and lives.life_start <= states.sampled_at
    window in_order as (partition by states.engine order by states.sampled_at)
),

stretches as (
    select engine, stretch, min(sampled_at) as first_at, max(sampled_at) as last_at
    from (select *, count_if(is_apart) over (partition by engine order by sampled_at) as stretch from followed)
    group by engine, stretch
),

observed as (
    select engine, sum(seconds_between(first_at, last_at)) as seconds from stretches group by engine
),

sized as (
    select observed.engine, min(sizes.bucket_s) as bucket_s
    from observed
    inner join (select engine, median(scrape_s) as step_s from core.engine_states group by engine) as usual using (engine)
    inner join (
        values (1), (2), (5), (10), (15), (30), (60), (120), (300), (600), (1800), (3600), (7200), (21600), (86400), (604800)
    ) as sizes(bucket_s)
        on sizes.bucket_s >= 0.8 * usual.step_s and sizes.bucket_s >= observed.seconds / 2000
    group by observed.engine
),

starts as (
    select distinct
        engine,
        unnest(generate_series(
            (floor(epoch(first_at) / bucket_s) * bucket_s)::bigint,
            (floor(epoch(last_at) / bucket_s) * bucket_s)::bigint,
            bucket_s::bigint
        )) as start_epoch_s,
        bucket_s,
    from stretches
    inner join sized using (engine)
)

select
    engine,
    make_timestamptz(start_epoch_s * 1000000) as bucket_at,
    bucket_s::double as bucket_s,
from starts
order by engine, bucket_at
