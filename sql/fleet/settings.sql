-- The settings each engine ran with on a day, so that a later day can tell what changed.
--
-- grain: day, run, engine, key
-- column: day        DATE    | The day.
-- column: run        VARCHAR | Engine, by its name in the configuration.
-- column: engine     VARCHAR | Rank within it.
-- column: key        VARCHAR | Setting, by its command-line name with underscores.
-- column: value_text VARCHAR | Its value as printed.
select
    getvariable('day')::date as day,
    run,
    engine,
    key,
    value_text,
from days.engine_settings
order by run, engine, key
