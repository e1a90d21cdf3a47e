-- Histogram buckets turned into what happened between two scrapes, safe against resets. Counts stay cumulative over `le`.
--
-- The largest table by far: nine samples of ten are buckets. The samples are sorted once, by the number of their series and time,
-- and each `over ()` then looks at the row before in that order; the same bucket in two inputs is kept once.
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
    select series.*, signals.signal, signals.name as histogram, series.le * signals.factor as bound,
    from staging.metric_series as series
    inner join signals() as signals on series.name = concat(signals.name, '_bucket') and signals.kind = 'histogram'
    where series.le is not null
),

samples as (
    select buckets.series, buckets.part, coalesce(samples.at_utc, buckets.placed_at) as sampled_at, samples.value,
    from raw.metric_samples as samples
    inner join buckets
        on buckets.source = samples.source
        and buckets.name = samples.name
        and buckets.le = samples.le
        and buckets.labels is not distinct from samples.labels
        and buckets.instance is not distinct from samples.instance
        and buckets.label is not distinct from samples.engine
        and buckets.model is not distinct from samples.model
    where is_plausible(samples.value) and sampled_at is not null and within_reach(sampled_at)
),

scrapes as (
    select engine, sampled_at, lag(sampled_at) over (partition by engine order by sampled_at) as scrape_before
    from (select distinct buckets.engine, samples.sampled_at from samples inner join buckets using (part))
),

-- a bucket that appears in mid-recording had counted nothing at the scrape before
begun as (
    select buckets.*, scrapes.scrape_before
    from buckets
    inner join (select series, min(sampled_at) as sampled_at from samples group by series) as firsts using (series)
    left join scrapes on scrapes.engine = buckets.engine and scrapes.sampled_at = firsts.sampled_at
)

select
    begun.engine,
    begun.signal,
    begun.histogram as name,
    begun.labels,
    begun.bound as le,
    coalesce(steps.sampled_before, begun.scrape_before) as interval_start,
    steps.sampled_at as interval_end,
    case when steps.value < steps.value_before then steps.value else steps.value - coalesce(steps.value_before, 0) end as delta,
from (
    select
        *,
        if(lag(series) over () is not distinct from series, lag(sampled_at) over (), null) as sampled_before,
        if(lag(series) over () is not distinct from series, lag(value) over (), null) as value_before,
    from (
        select *, lag(series) over () is not distinct from series and lag(sampled_at) over () is not distinct from sampled_at as is_copy
        from (from samples order by series, sampled_at, part)
    )
    where not is_copy
) as steps
inner join begun using (part)
where coalesce(steps.sampled_before, begun.scrape_before) is not null and within_window(steps.sampled_at)
