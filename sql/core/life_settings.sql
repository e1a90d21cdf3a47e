-- What each engine's settings were in each of its lives.
--
-- A log says its engine's settings when a life begins; what is read again and again (/metrics) is written down where it changes, and
-- holds for as long as it was read. Of a life whose start-up lines are not here, what the others say holds where all of them say the same;
-- else it is not known. What carries no time holds throughout where nothing that carries one speaks of it.
--
-- grain: engine, life, key
-- needs: core.engine_lives
-- needs: core.seen_engines
-- needs: staging.settings
-- column: engine     VARCHAR | Engine.
-- column: life       BIGINT  | Its life (core.engine_lives).
-- column: key        VARCHAR | Setting, by its command-line name with underscores.
-- column: value_text VARCHAR | Its value as printed.
with said as (
    select
        seen.engine,
        settings.key,
        settings.value_text,
        settings.said_at,
        if(starts.source is null, times.last_utc, null) as read_until,
        -- what was said of the engine itself stands above what was said of its server; what was said last, above what was said before
        (settings.engine = seen.engine, coalesce(settings.said_at, timestamptz '-infinity'), settings.source, settings.line) as standing,
    from (select engine, unnest(names_of_engine(engine)) as said_of from core.seen_engines) as seen
    inner join staging.settings on settings.engine = seen.said_of
    left join (select distinct source from raw.engine_events where event = 'engine_start') as starts using (source)
    left join staging.clock_sources as times using (source)
    where settings.value_text not in ('', 'None')
),

dated as (
    select engine, key from said where said_at is not null group by all
),

told as (
    select lives.engine, lives.life, said.key, arg_max(said.value_text, said.standing) as value_text
    from core.engine_lives as lives
    inner join said
        on said.engine = lives.engine
        and (
            is_within(said.said_at, lives.life_start, lives.life_end)
            or (said.said_at < lives.life_start and said.read_until >= lives.life_start)
        )
    group by all
    union all
    select lives.engine, lives.life, said.key, arg_max(said.value_text, said.standing)
    from core.engine_lives as lives
    inner join said using (engine)
    anti join dated on dated.engine = said.engine and dated.key = said.key
    group by all
),

agreed as (
    select engine, key, any_value(value_text) as value_text from told group by engine, key having count(distinct value_text) = 1
)

select engine, life, key, value_text from told
union all
select lives.engine, lives.life, agreed.key, agreed.value_text
from core.engine_lives as lives
inner join agreed using (engine)
anti join told on told.engine = lives.engine and told.life = lives.life and told.key = agreed.key
where not lives.is_stated
order by engine, life, key
