-- Metric samples of pages that carry no time and that nothing places: what an engine showed at some instant, nobody knows which.
--
-- Of engines with a scrape whose time is known there is nothing here, that one is used alone; nor is there where a window was asked for,
-- for then no page can be said to lie in it. Pages written one behind the other into one file are in the order of the file, and a series
-- that an engine only has after a while is in the last of them. Between files there is no order.
--
-- grain: engine, source, page, name, labels
-- needs: staging.metric_series
-- column: engine VARCHAR | Engine the series belongs to; `*` for one of the server as a whole.
-- column: source VARCHAR | Input it was read from.
-- column: page   BIGINT  | Number of the page within the input, from 1.
-- column: model  VARCHAR | Served model name.
-- column: name   VARCHAR | Exposed sample name, such as `vllm:num_preemptions_total`.
-- column: labels VARCHAR | Remaining labels.
-- column: value  DOUBLE  | Sample value.
with samples as (
    select source, instance, engine as label, model, name, labels, value, row_number() over () as row
    from raw.metric_samples
    where at_utc is null
        and le is null
        and is_plausible(value)
        and getvariable('since') is null
        and getvariable('until') is null
),

counted as (
    select
        series.engine,
        samples.source,
        samples.model,
        samples.name,
        samples.labels,
        samples.value,
        row_number() over (partition by series.part order by samples.row desc) as from_end,
    from samples
    inner join staging.metric_series as series
        on series.source = samples.source
        and series.name = samples.name
        and series.labels is not distinct from samples.labels
        and series.instance is not distinct from samples.instance
        and series.label is not distinct from samples.label
        and series.model is not distinct from samples.model
    where series.le is null
        and series.engine not in (select engine from staging.metric_samples)
        and samples.source not in (select source from staging.clocks where placed_at is not null)
)

select
    engine,
    source,
    max(from_end) over (partition by source) - from_end + 1 as page,
    any_value(model) as model,
    name,
    labels,
    max(value) as value, -- a server's ranks may say the same twice
from counted
group by engine, source, from_end, name, labels
order by engine, source, page, name, labels
