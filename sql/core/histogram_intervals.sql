-- Histogram buckets turned into what happened between two scrapes, safe against resets: how many observations fell into each.
--
-- Nine samples of ten are buckets, and few buckets count anything between two scrapes: only those are here. The samples are sorted
-- once, by the number of their series and time, and each `over ()` then looks at the row before in that order; the same bucket in
-- two inputs is kept once.
--
-- grain: engine, name, labels, le, interval_end
-- needs: staging.metric_series
-- column: engine         VARCHAR     | Engine the series belongs to.
-- column: signal         VARCHAR     | Our word for it (sql/lib/signals.sql).
-- column: name           VARCHAR     | Exposed name without `_bucket`.
-- column: labels         VARCHAR     | Remaining labels.
-- column: above          DOUBLE      | Lower bound of the bucket in our unit: the next lower one's `le`, 0 for the first.
-- column: le             DOUBLE      | Upper bound.
-- column: interval_start TIMESTAMPTZ | Scrape before.
-- column: interval_end   TIMESTAMPTZ | Scrape that first showed the new value.
-- column: delta          DOUBLE      | Observations above `above`, up to `le`, in the interval. Below 0 only where the exposed buckets, which are cumulative, contradict each other.
with buckets as (
    select
        series.*,
        signals.signal,
        signals.name as histogram,
        dense_rank() over (order by series.engine, series.name, series.labels) as family,
        coalesce(lag(series.le) over family, 0) * signals.factor as above,
        series.le * signals.factor as bound,
    from staging.metric_series as series
    inner join signals() as signals on series.name = concat(signals.name, '_bucket') and signals.kind = 'histogram'
    -- those whose quantiles or lengths are asked for; of the others the sums and counts say all that is
    where series.le is not null
        and signals.signal in ('ttft_s', 'itl_s', 'e2e_s', 'queue_s', 'request_prompt_tokens', 'request_generation_tokens')
    window family as (
        partition by series.engine, series.name, series.labels, series.source, series.instance, series.label, series.model order by series.le
    )
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
),

steps as (
    select
        *,
        if(lag(series) over () is not distinct from series, lag(sampled_at) over (), null) as sampled_before,
        if(lag(series) over () is not distinct from series, lag(value) over (), null) as value_before,
    from (
        select *, lag(series) over () is not distinct from series and lag(sampled_at) over () is not distinct from sampled_at as is_copy
        from (from samples order by series, sampled_at, part)
    )
    where not is_copy
),

-- where nothing was at or below a bound, nothing was below it
counted as (
    select
        begun.part,
        begun.series,
        begun.family,
        coalesce(steps.sampled_before, begun.scrape_before) as interval_start,
        steps.sampled_at as interval_end,
        case when steps.value < steps.value_before then steps.value else steps.value - coalesce(steps.value_before, 0) end as at_or_below,
    from steps
    inner join begun using (part)
    where coalesce(steps.sampled_before, begun.scrape_before) is not null and within_window(steps.sampled_at) and at_or_below > 0
),

apart as (
    select
        part,
        interval_start,
        interval_end,
        at_or_below - if(
            lag(family) over () is not distinct from family and lag(interval_end) over () is not distinct from interval_end,
            lag(at_or_below) over (),
            0
        ) as delta,
    from (from counted order by family, interval_end, series)
)

select
    buckets.engine,
    buckets.signal,
    buckets.histogram as name,
    buckets.labels,
    buckets.above,
    buckets.bound as le,
    apart.interval_start,
    apart.interval_end,
    apart.delta,
from apart
inner join buckets using (part)
where apart.delta <> 0
order by buckets.family, apart.interval_end, buckets.series
