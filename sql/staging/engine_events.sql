-- What the engines' logs say happened: starts, ends, V0 preemption warnings, failures.
--
-- grain: source, line, event
-- needs: raw.engine_events
-- column: engine      VARCHAR     | Engine, or the server where the line names none.
-- column: happened_at TIMESTAMPTZ | Instant of the line.
-- column: source      VARCHAR     | Input it was read from.
-- column: line        BIGINT      | Line number.
-- column: process     VARCHAR     | Process that wrote it.
-- column: event       VARCHAR     | engine_start, preemption_warning_recompute, engine_failure, …
-- column: request_id  VARCHAR     | Request it names.
-- column: count       BIGINT      | Number printed with it; for a V0 preemption warning the cumulative count.
select
    engine_names.engine,
    absolute_time(events.at_utc, events.at_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s) as happened_at,
    events.source,
    events.line,
    events.process,
    events.event,
    events.request_id,
    events.count,
from raw.engine_events as events
left join staging.clocks using (source)
left join staging.input_servers using (source)
left join staging.engine_names
    on engine_names.instance is not distinct from coalesce(events.instance, input_servers.instance)
    and engine_names.label is not distinct from events.engine
anti join staging.repeated_lines as copies
    on copies.source = events.source
    and events.line between copies.first_line and copies.last_line
where within_window(absolute_time(events.at_utc, events.at_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s))
order by events.source, events.line, events.event
