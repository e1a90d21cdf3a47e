-- The engines that any input shows at work, and from when to when.
--
-- grain: engine
-- column: engine        VARCHAR     | Its name in this run.
-- column: first_seen_at TIMESTAMPTZ | First observation; NULL where only pages without a time show it.
-- column: last_seen_at  TIMESTAMPTZ | Last observation.
-- check:  first_seen_at <= last_seen_at | Observations are in order.
with seen as (
    select engine, sampled_at as seen_at from core.engine_states
    union all
    select engine, stepped_at from staging.iteration_steps
    union all
    select engine, published_at from staging.kv_events
    union all
    select engine, arrived_at from staging.spans where not exists (from core.engine_states)
    union all
    select engine, happened_at from staging.engine_events where not exists (from core.engine_states)
    union all
    select engine, said_at from staging.settings where not exists (from core.engine_states)
    union all
    select engine, null from core.untimed_pages
)

select engine, min(seen_at) as first_seen_at, max(seen_at) as last_seen_at
from seen
where engine is not null and (engine not like '%*' or not exists (from seen where engine not like '%*'))
group by engine
order by engine
