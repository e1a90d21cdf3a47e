-- Arrivals and ends of requests as the engine logged them.
--
-- grain: source, line, request_id, event
-- needs: raw.request_lines
-- column: engine     VARCHAR     | Engine or, since these lines name none, the server.
-- column: logged_at  TIMESTAMPTZ | Instant of the line, to the stamp's second.
-- column: source     VARCHAR     | Input it was read from.
-- column: line       BIGINT      | Line number.
-- column: request_id VARCHAR     | External id for received, internal id for added.
-- column: event      VARCHAR     | received, added, finished, aborted, failed.
-- column: max_tokens BIGINT      | Output limit printed with it.
select
    engine_names.engine,
    absolute_time(lines.at_utc, lines.at_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s) as logged_at,
    lines.source,
    lines.line,
    lines.request_id,
    lines.event,
    lines.max_tokens,
from raw.request_lines as lines
left join staging.clocks using (source)
left join staging.input_servers using (source)
left join staging.engine_names
    on engine_names.instance is not distinct from coalesce(lines.instance, input_servers.instance)
    and engine_names.label is null
anti join staging.repeated_lines as copies
    on copies.source = lines.source
    and lines.line between copies.first_line and copies.last_line
where within_window(absolute_time(lines.at_utc, lines.at_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s))
order by lines.source, lines.line, lines.request_id, lines.event
