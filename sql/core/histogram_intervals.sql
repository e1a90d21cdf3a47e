-- Histogram buckets turned into what happened between two scrapes, safe against resets. Counts stay cumulative over `le`.
--
-- grain: engine, name, labels, le, interval_end
-- column: engine         | Engine the series belongs to.
-- column: signal         | Our word for it (sql/lib/signals.sql).
-- column: name           | Exposed name without `_bucket`.
-- column: labels         | Remaining labels.
-- column: le             | Upper bound of the bucket in our unit.
-- column: interval_start | Scrape before.
-- column: interval_end   | Scrape that first showed the new value.
-- column: delta          | Observations at or below `le` in the interval.
-- check:  delta >= 0 | A bucket that falls is a restart.
with buckets as (
    select concat(name, '_bucket') as bucket_name, name, signal, factor from signals() where kind = 'histogram'
),

samples as (
    select
        metric_samples.engine,
        buckets.signal,
        buckets.name,
        metric_samples.labels,
        metric_samples.le * buckets.factor as le,
        metric_samples.sampled_at,
        metric_samples.value,
    from staging.metric_samples
    inner join buckets on buckets.bucket_name = metric_samples.name
    where metric_samples.le is not null
),

scrapes as (
    select engine, sampled_at, lag(sampled_at) over (partition by engine order by sampled_at) as scrape_before
    from (select distinct engine, sampled_at from samples)
),

steps as (
    select
        *,
        lag(sampled_at) over series as sampled_before,
        lag(value) over series as value_before,
    from samples
    window series as (partition by engine, name, labels, le order by sampled_at)
)

select
    steps.engine,
    steps.signal,
    steps.name,
    steps.labels,
    steps.le,
    coalesce(steps.sampled_before, scrapes.scrape_before) as interval_start,
    steps.sampled_at as interval_end,
    case when steps.value < steps.value_before then steps.value else steps.value - coalesce(steps.value_before, 0) end as delta,
from steps
inner join scrapes using (engine, sampled_at)
where coalesce(steps.sampled_before, scrapes.scrape_before) is not null and within_window(steps.sampled_at)
order by engine, name, labels, le, interval_end
