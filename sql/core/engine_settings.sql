-- What each engine's settings are, as said last: by the engine itself, or of the server as a whole (`*`).
--
-- Absent means that no input states it, which is not the same as "at its default": an engine prints what was changed.
--
-- grain: engine, key
-- column: engine     | Engine.
-- column: key        | Setting, by its command-line name with underscores.
-- column: value_text | Its value as printed.
with said as (
    select
        engines.engine,
        settings.key,
        settings.value_text,
        row_number() over (
            partition by engines.engine, settings.key
            -- what was said of the engine itself stands above what was said of its server
            order by settings.engine = engines.engine desc, settings.said_at desc nulls last, settings.source desc,
                settings.line desc
        ) as nth_last,
    from core.engines
    inner join staging.settings
        on settings.engine = engines.engine
        or settings.engine = '*'
        or settings.engine = concat(split_part(engines.engine, '/', 1), '/*')
    where settings.value_text not in ('', 'None')
)

select engine, key, value_text,
from said
where nth_last = 1
order by engine, key
