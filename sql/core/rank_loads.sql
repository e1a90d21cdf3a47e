-- How evenly the engines (data-parallel ranks) of one server share its load, at each instant all were observed.
--
-- grain: engine, sampled_at
-- needs: core.engine_states
-- column: engine        VARCHAR     | Engine.
-- column: sampled_at    TIMESTAMPTZ | Instant observed.
-- column: running       BIGINT      | Requests running on it.
-- column: ranks         BIGINT      | Engines observed at that instant.
-- column: mean_running  DOUBLE      | Mean over them.
-- column: least_running BIGINT      | Fewest on any of them.
-- column: is_busiest    BOOLEAN     | Whether this engine runs the most.
with shared as (
    select
        engine,
        sampled_at,
        running,
        case when contains(engine, '/') then split_part(engine, '/', 1) else '' end as server,
    from core.engine_states
    where running is not null
),

compared as (
    select
        *,
        count(*) over server_now as ranks,
        avg(running) over server_now as mean_running,
        min(running) over server_now as least_running,
        row_number() over (partition by server, sampled_at order by running desc, engine) = 1 as is_busiest,
    from shared
    window server_now as (partition by server, sampled_at)
)

select engine, sampled_at, running, ranks, mean_running, least_running, is_busiest
from compared
where ranks > 1
order by engine, sampled_at
