-- Settings and facts the engines stated about themselves, in every place they said so before the end of the time asked for.
--
-- grain: source, line, engine, key
-- needs: raw.engine_config
-- column: engine     VARCHAR     | Engine, or `*` for the server as a whole.
-- column: key        VARCHAR     | Setting, by its command-line name where it has one.
-- column: value_text VARCHAR     | Its value as printed.
-- column: said_at    TIMESTAMPTZ | When it was said.
-- column: source     VARCHAR     | Input it was read from.
-- column: line       BIGINT      | Line number.
select
    engine_names.engine,
    config.key,
    config.value_text,
    absolute_time(config.at_utc, config.at_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s) as said_at,
    config.source,
    config.line,
from raw.engine_config as config
left join staging.clocks using (source)
left join staging.input_servers using (source)
left join staging.engine_names
    on engine_names.instance is not distinct from coalesce(config.instance, input_servers.instance)
    and engine_names.label is not distinct from config.engine
where said_at is null or before_the_end(said_at) -- a later start is of a later time
order by config.source, config.line, engine_names.engine, config.key
