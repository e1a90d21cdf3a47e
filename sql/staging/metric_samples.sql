-- Metric samples of the names this product reads, one per series and instant, on absolute time.
--
-- A scrape without a time of its own is placed by its counters (staging.clocks) only where no timed scrape was recorded;
-- the same sample from two files (a scrape and a range query) is kept once. SGLang's tensor- and pipeline-parallel ranks each
-- report the same logical numbers: rank 0 speaks for all. A value below 0, not finite, or too large for anything an engine counts
-- is as good as not scraped. Where a window was asked for, the scrapes shortly before it are here too: counters begin with them.
--
-- grain: engine, name, labels, le, sampled_at
-- column: engine     | Engine the series belongs to; `*` for one of the server as a whole.
-- column: sampled_at | Instant of the scrape.
-- column: source     | Input it was read from.
-- column: model      | Served model name.
-- column: name       | Exposed sample name, such as `vllm:num_preemptions_total`.
-- column: le         | Upper bound of a histogram bucket; NULL for other samples.
-- column: labels     | Remaining labels.
-- column: value      | Sample value.
with timed as (
    select
        samples.instance,
        samples.engine as label,
        coalesce(samples.at_utc, clocks.placed_at) as sampled_at,
        samples.at_utc is null as is_placed,
        samples.source,
        samples.model,
        samples.name,
        samples.le,
        samples.labels,
        samples.value,
    from raw.metric_samples as samples
    left join staging.clocks using (source)
),

kept as (
    from timed
    where sampled_at is not null
        and within_reach(sampled_at)
        and value >= 0 and value < power(2, 53)  -- NaN is above every number
        and not (name like 'sglang:%' and regexp_matches(labels, '(^|,)(tp|pp)_rank=[1-9]'))
        and (not is_placed or not exists (select 1 from timed where not is_placed))
)

select distinct on (engine_names.engine, kept.name, kept.labels, kept.le, kept.sampled_at)
    engine_names.engine,
    kept.sampled_at,
    kept.source,
    kept.model,
    kept.name,
    kept.le,
    kept.labels,
    kept.value,
from kept
left join staging.engine_names
    on engine_names.instance is not distinct from kept.instance
    and engine_names.label is not distinct from kept.label
order by engine_names.engine, kept.name, kept.labels, kept.le, kept.sampled_at, kept.source
