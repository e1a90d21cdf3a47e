-- Counters turned into what happened between two scrapes, safe against resets.
--
-- A counter that falls was reset (the engine restarted): what it shows then happened since the restart. A series that appears in
-- mid-recording had never been incremented before. The first scrape of a recording tells nothing: its count is of another day.
-- An interval that reaches into the window asked for belongs to it: what crosses midnight is of the day in which it ended.
--
-- grain: engine, name, labels, interval_end
-- needs: staging.metric_samples
-- column: engine         VARCHAR     | Engine the series belongs to.
-- column: signal         VARCHAR     | Our word for it (sql/lib/signals.sql).
-- column: name           VARCHAR     | Exposed name; `_sum` and `_count` of histograms are here too.
-- column: labels         VARCHAR     | Remaining labels.
-- column: interval_start TIMESTAMPTZ | Scrape before: what happened lies between the two.
-- column: interval_end   TIMESTAMPTZ | Scrape that first showed the new value.
-- column: delta          DOUBLE      | Increase in our unit; after a reset, the new value.
-- column: is_reset       BOOLEAN     | Whether the counter fell.
-- check:  delta >= 0 | A counter that falls is a restart, not a negative event.
-- check:  interval_start < interval_end | Intervals have a length.
with counted as (
    select name, signal, factor from signals() where kind = 'counter'
    union all
    select concat(name, '_sum') as name, concat(signal, '_sum') as signal, factor from signals() where kind = 'histogram'
    union all
    select concat(name, '_count') as name, concat(signal, '_count') as signal, 1.0 as factor from signals() where kind = 'histogram'
),

samples as (
    select engine, signal, name, labels, sampled_at, value * factor as value
    from staging.metric_samples
    inner join counted using (name)
),

scrapes as (
    select engine, sampled_at, lag(sampled_at) over (partition by engine order by sampled_at) as scrape_before
    from (select distinct engine, sampled_at from samples)
),

steps as (
    select
        *,
        lag(engine) over () is not distinct from engine
        and lag(name) over () is not distinct from name
        and lag(labels) over () is not distinct from labels as has_before,
        if(has_before, lag(sampled_at) over (), null) as sampled_before,
        if(has_before, lag(value) over (), null) as value_before,
    from (from samples order by engine, name, labels, sampled_at)
)

select
    steps.engine,
    steps.signal,
    steps.name,
    steps.labels,
    coalesce(steps.sampled_before, scrapes.scrape_before) as interval_start,
    steps.sampled_at as interval_end,
    case when steps.value < steps.value_before then steps.value else steps.value - coalesce(steps.value_before, 0) end as delta,
    coalesce(steps.value < steps.value_before, false) as is_reset,
from steps
inner join scrapes using (engine, sampled_at)
where coalesce(steps.sampled_before, scrapes.scrape_before) is not null and within_window(steps.sampled_at)
order by engine, name, labels, interval_end
