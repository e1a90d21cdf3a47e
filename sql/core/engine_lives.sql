-- The lives of each engine: from one start to the next, as its start-up lines or counters that fell tell.
--
-- Start-up lines are those that a log has since its last statistics line, or since the end it told, up to the line with which the
-- engine says that it starts; where it starts without ever having served, its server names its version again. A fall of the counters
-- is a start of which the lines are not here, unless they are there within a minute of it (two clocks).
--
-- grain: engine, life
-- needs: core.counter_intervals or core.seen_engines
-- column: engine     VARCHAR     | Engine.
-- column: life       BIGINT      | Its number, from 1.
-- column: life_start TIMESTAMPTZ | First start-up line, or the scrape that first shows the fallen counters; NULL of the first: what came before is of it too.
-- column: life_end   TIMESTAMPTZ | Start of the next; NULL of the last.
-- column: is_stated  BOOLEAN     | Whether its start-up lines are here: then what they do not say was not set, or is at its default.
-- check:  life_start is null or life_end is null or life_start < life_end | Lives follow each other.
with statements as (
    select
        settings.source,
        settings.line,
        any_value(config.instance) as instance,
        list(distinct settings.engine) as engines,
        any_value(settings.said_at) as said_at,
        bool_or(settings.key = 'engine_version') and bool_and(starts.source is null) as is_server,
        bool_or(starts.source is not null) as is_start,
    from staging.settings
    inner join (select distinct source, line, coalesce(instance, '') as instance from raw.engine_config) as config using (source, line)
    left join (select distinct source, line from raw.engine_events where event = 'engine_start') as starts using (source, line)
    where settings.said_at is not null
    group by settings.source, settings.line
),

-- lines after which what an engine says of itself is said by its next life
closings as (
    select source, line, coalesce(instance, '') as instance from raw.engine_samples
    union all
    select source, line, coalesce(instance, '') as instance
    from raw.engine_events
    where event in ('engine_shutdown', 'engine_dead', 'engine_failure')
),

placed as (
    select
        statements.*,
        closings.line as closed_line,
        lag(statements.line) over in_order as line_before,
        count_if(statements.is_start) over (in_order rows between unbounded preceding and 1 preceding) as starts_before,
    from statements
    asof left join closings
        on closings.source = statements.source
        and closings.instance = statements.instance
        and closings.line < statements.line
    window in_order as (partition by statements.source, statements.instance order by statements.line)
),

opened as (
    select
        *,
        coalesce(closed_line > line_before, false)
        or is_server and starts_before > coalesce(
            max(starts_before) filter (where is_server) over (
                partition by source, instance order by line rows between unbounded preceding and 1 preceding
            ),
            0
        ) as is_first,
    from placed
),

openings as (
    select source, instance, opening, min(said_at) as started_at, list_distinct(flatten(list(engines))) as engines
    from (select *, count_if(is_first) over (partition by source, instance order by line) as opening from opened)
    group by source, instance, opening
    having bool_or(is_start)
),

stated as (
    select distinct seen.engine, openings.started_at
    from (select engine, unnest(names_of_engine(engine)) as said_of from core.seen_engines) as seen
    inner join (select started_at, unnest(engines) as said_of from openings) as openings using (said_of)
),

fallen as (
    select distinct engine, interval_start, interval_end from core.counter_intervals where is_reset
),

starts as (
    select engine, started_at, true as is_stated from stated
    union all
    select fallen.engine, fallen.interval_end, false
    from fallen
    where not exists (
        from stated
        where stated.engine = fallen.engine
            and stated.started_at between fallen.interval_start - interval 1 minute and fallen.interval_end + interval 1 minute
    )
    group by all
),

-- what was seen of an engine before the first start that is known is of a life of its own
lives as (
    select engine, started_at, is_stated from starts
    union all
    select seen.engine, null, false
    from core.seen_engines as seen
    left join (select engine, min(started_at) as started_at from starts group by engine) as first using (engine)
    where first.started_at is null or seen.first_seen_at < first.started_at
)

select
    engine,
    row_number() over in_order as life,
    if(life = 1, null, started_at) as life_start,
    lead(started_at) over in_order as life_end,
    is_stated,
from lives
window in_order as (partition by engine order by started_at nulls first)
order by engine, life
