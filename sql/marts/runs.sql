-- The analyzed run as a whole.
--
-- grain: run
-- column: run           VARCHAR     | Its name.
-- column: started_at    TIMESTAMPTZ | Earliest observation on any engine or client.
-- column: ended_at      TIMESTAMPTZ | Latest one, with the time its sample stands for.
-- column: sources       BIGINT      | Inputs that were recognised.
-- column: clock_error_s DOUBLE      | Largest remaining error among the clocks that were joined; NULL where one is not known.
with bounds as (
    select first_seen_at as seen_at from core.engines
    union all
    select last_seen_at from core.engines
    union all
    select plus_seconds(sampled_at, scrape_s) from core.engine_states
    union all
    select interval_end from core.preemption_intervals
    union all
    select started_at from staging.client_runs
    union all
    select ended_at from staging.client_runs
)

select
    getvariable('run') as run,
    min(seen_at) as started_at,
    max(seen_at) as ended_at,
    (select count(*) from raw.sources where format is not null) as sources,
    (select case when bool_or(error_s is null) then null else max(error_s) end from staging.clocks where clock <> 'none') as clock_error_s,
from bounds
