-- What each engine is called in this run, for every way an input names it.
--
-- A run with one server calls its engines (data-parallel ranks) `0`, `1`, …; a run with several puts the server in front:
-- `pod-a/0`. An input that names no rank means the only one there is, or, where the server has several, the server as a whole:
-- its engine is `*`, and what is said of `*` holds for each rank.
--
-- grain: instance, label
-- column: instance VARCHAR | Server as the input names it; NULL where it names none.
-- column: label    VARCHAR | Rank as the input names it; NULL where it names none.
-- column: engine   VARCHAR | The name used in every later table; `*` for a server with several ranks.
with said as (
    select distinct source, instance, engine as label from raw.engine_samples where coalesce(engines_aggregated, 1) = 1
    union
    select distinct source, instance, engine as label from raw.iteration_steps
    union
    select distinct source, instance, engine as label from raw.engine_config
    union
    select distinct source, instance, engine as label from raw.engine_events
    union
    select distinct source, instance, dp_rank::varchar as label from raw.kv_events
    union
    select distinct source, instance, null as label from raw.spans
    union
    select distinct source, instance, null as label from raw.request_lines
    union
    select distinct source, instance, null as label from raw.engine_samples where engines_aggregated > 1
),

named as (
    select distinct coalesce(said.instance, input_servers.instance) as instance, said.label
    from said
    left join staging.input_servers using (source)
    union
    select instance, label from staging.metric_servers where is_engine
    union
    select null as instance, null as label
),

servers as (
    select count(distinct instance) as servers from named
),

ranks as (
    select
        coalesce(instance, (select min(instance) from named)) as server,
        count(distinct label) as ranks,
        min(label) as only_rank,
    from named
    group by all
),

called as (
    select
        named.instance,
        named.label,
        coalesce(named.label, case when ranks.ranks <= 1 then coalesce(ranks.only_rank, '0') else '*' end) as rank,
        case
            when servers.servers <= 1 then ''
            when named.instance is null then '*'
            else named.instance
        end as server,
    from named
    cross join servers
    left join ranks
        on ranks.server is not distinct from coalesce(named.instance, (select min(instance) from named))
)

select
    instance,
    label,
    case when server = '' then rank when server = '*' then '*' else concat(server, '/', rank) end as engine,
from called
order by instance nulls first, label nulls first
