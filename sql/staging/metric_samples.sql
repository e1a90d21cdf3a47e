-- Metric samples of the names this product reads, one per series and instant, on absolute time. Buckets of histograms are not here:
-- they are most of a page, and core.histogram_intervals takes them from the inputs in one go.
--
-- A scrape without a time of its own is placed by its counters (staging.clocks) only where no timed scrape was recorded;
-- the same sample from two files (a scrape and a range query) is kept once. A value below 0, not finite, or too large for anything
-- an engine counts is as good as not scraped. Where a window was asked for, the scrapes shortly before it are here too: counters
-- begin with them.
--
-- grain: engine, name, labels, sampled_at
-- needs: staging.metric_series
-- column: engine     VARCHAR     | Engine the series belongs to; `*` for one of the server as a whole.
-- column: sampled_at TIMESTAMPTZ | Instant of the scrape.
-- column: source     VARCHAR     | Input it was read from.
-- column: model      VARCHAR     | Served model name.
-- column: name       VARCHAR     | Exposed sample name, such as `vllm:num_preemptions_total`.
-- column: labels     VARCHAR     | Remaining labels.
-- column: value      DOUBLE      | Sample value.
with timed as (
    select series.series, series.part, coalesce(samples.at_utc, series.placed_at) as sampled_at, samples.value,
    from raw.metric_samples as samples
    inner join staging.metric_series as series
        on series.source = samples.source
        and series.name = samples.name
        and series.labels is not distinct from samples.labels
        and series.instance is not distinct from samples.instance
        and series.label is not distinct from samples.engine
        and series.model is not distinct from samples.model
    where samples.le is null and series.le is null and is_plausible(samples.value)
),

kept as (
    select series, sampled_at, min(part) as part, arg_min(value, part) as value,
    from timed
    where sampled_at is not null and within_reach(sampled_at)
    group by series, sampled_at
)

select series.engine, kept.sampled_at, series.source, series.model, series.name, series.labels, kept.value,
from kept
inner join staging.metric_series as series using (part)
order by kept.series, kept.sampled_at
