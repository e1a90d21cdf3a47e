-- The time axis of the timeline: equal buckets from an engine's first observation to its last.
--
-- As fine as the observations allow, never finer than a second, and at most 2,000 buckets a run.
--
-- grain: engine, bucket_at
-- column: engine    | Engine.
-- column: bucket_at | Start of the bucket.
-- column: bucket_s  | Its length, the same for the whole run.
with spans_of_time as (
    select engine, min(sampled_at) as first_at, max(sampled_at) as last_at, median(scrape_s) as step_s
    from core.engine_states
    group by engine
),

sized as (
    select min(bucket_s) as bucket_s
    from (values (1), (2), (5), (10), (15), (30), (60), (120), (300), (600), (1800), (3600), (7200), (21600), (86400), (604800)) as sizes(bucket_s)
    where bucket_s >= (select 0.8 * max(step_s) from spans_of_time)
        and bucket_s >= (select max(seconds_between(first_at, last_at)) / 2000 from spans_of_time)
),

starts as (
    select
        engine,
        unnest(generate_series(
            (floor(epoch(first_at) / bucket_s) * bucket_s)::bigint,
            (floor(epoch(last_at) / bucket_s) * bucket_s)::bigint,
            bucket_s::bigint
        )) as start_epoch_s,
        bucket_s,
    from spans_of_time
    cross join sized
)

select
    engine,
    make_timestamptz(start_epoch_s * 1000000) as bucket_at,
    bucket_s::double as bucket_s,
from starts
order by engine, bucket_at
