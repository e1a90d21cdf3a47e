-- The measures of an analysis that come with a range of their own or with none, one row each.
with counted as (
    select
        'preemptions' as measure,
        sum(count_low) as low,
        sum(count_best) as best,
        sum(count_high) as high,
    from preemptions
    having count(count_best) = count(*)
),

repeated as (
    select
        'recomputed_tokens' as measure,
        sum(tokens_low) as low,
        sum(tokens_best) as best,
        sum(tokens_high) as high,
    from waste
    where kind = 'preemption_recompute'
    having count(tokens_best) = count(*)
),

-- 0 only where the queue was seen at all, and for longer than an instant
queued as (
    select
        concat('queue_', causes.cause, '_s') as measure,
        coalesce(sum(queue_time.seconds), 0) as low,
        low as best,
        low as high,
    from (values ('kv_capacity'), ('max_num_seqs')) as causes(cause)
    left join queue_time using (cause)
    where exists (from core.engine_states where waiting is not null and scrape_s > 0)
    group by causes.cause
),

pools as (
    select engine from core.engine_states group by engine having max(kv_usage_ratio) = 0 and max(running) > 0
),

usage as (
    select
        'kv_usage_mean' as measure,
        ratio(sum(kv_usage_ratio * scrape_s), sum(scrape_s)) as best,
    from core.engine_states
    where running > 0 and kv_usage_ratio is not null and engine not in (from pools)
    having count(*) > 0
),

running as (
    select 'running_mean' as measure, ratio(sum(running * scrape_s), sum(scrape_s)) as best
    from core.engine_states
    where running > 0
    having count(*) > 0
),

fits as (
    select 'fits_95' as measure, sum(fits_95)::double as best
    from core.pool_demand
    where scope = 'run'
    having count(fits_95) = count(*) and count(*) > 0
),

-- quantiles over all scrapes, for what no request record tells
buckets as (
    select
        signal,
        above,
        le,
        sum(sum(delta)) over (partition by signal order by le) as at_or_below,
        at_or_below - sum(delta) as below,
        sum(sum(delta)) over (partition by signal) as observations,
    from core.histogram_intervals
    where signal in ('ttft_s', 'itl_s', 'e2e_s', 'queue_s')
    group by signal, above, le
),

quantiles as (
    select
        concat(signal, if(q = 0.5, '_p50', '_p99')) as measure,
        min(within_bucket(q, observations, below, at_or_below, above, le)) as best,
    from buckets
    cross join (values (0.5), (0.99)) as asked(q)
    group by signal, q
)

select measure, low::double as low, best::double as best, high::double as high
from (
    from counted
    union all by name
    from repeated
    union all by name
    from queued
    union all by name
    from usage
    union all by name
    from running
    union all by name
    from fits
    union all by name
    from quantiles
)
where best is not null
order by measure
