-- Server-side request spans. Their times are the server's wall clock.
--
-- grain: source, line, request_id
-- column: engine        | The only engine of the run, or `*` where there are several (a span names none).
-- column: source        | Input it was read from.
-- column: line          | Line number of the record.
-- column: request_id    | Request id as the client sent it or the engine made it.
-- column: arrived_at    | When the frontend received the request.
-- column: ended_at      | When the frontend processed the last output.
-- column: input_tokens  | Prompt tokens.
-- column: output_tokens | Generated tokens.
-- column: max_tokens    | Output limit asked for.
-- column: ttft_s        | Arrival to first token.
-- column: e2e_s         | Arrival to last token.
-- column: queue_s       | Arrival to first scheduling; a wait after preemption is not in it.
-- column: prefill_s     | First scheduling to first token.
-- column: decode_s      | First to last token, waits after preemption included.
-- column: inference_s   | First scheduling to last token.
-- check:  queue_s >= 0 and decode_s >= 0 | Durations.
select
    engine_names.engine,
    spans.source,
    spans.line,
    spans.request_id,
    spans.start_at as arrived_at,
    spans.end_at as ended_at,
    spans.input_tokens,
    spans.output_tokens,
    spans.max_tokens,
    spans.ttft_s,
    spans.e2e_s,
    spans.queue_s,
    spans.prefill_s,
    spans.decode_s,
    spans.inference_s,
from raw.spans
left join staging.engine_names
    on engine_names.instance is not distinct from spans.instance
    and engine_names.label is null
where within_window(spans.start_at)
order by spans.source, spans.line, spans.request_id
