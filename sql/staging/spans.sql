-- Server-side request spans. Their times are the server's wall clock.
--
-- The same request in two inputs (a log and an exported file) is kept once. A request is of the window in which it ended.
--
-- grain: source, line, request_id
-- needs: raw.spans
-- column: engine          VARCHAR     | The only engine of the run, or `*` where there are several (a span names none).
-- column: source          VARCHAR     | Input it was read from.
-- column: line            BIGINT      | Line number of the record.
-- column: request_id      VARCHAR     | Request id as the client sent it or the engine made it.
-- column: arrived_at      TIMESTAMPTZ | When the frontend received the request.
-- column: ended_at        TIMESTAMPTZ | When the frontend processed the last output.
-- column: input_tokens    BIGINT      | Prompt tokens.
-- column: output_tokens   BIGINT      | Generated tokens.
-- column: max_tokens      BIGINT      | Output limit asked for.
-- column: ignores_eos     BOOLEAN     | Whether it asked to generate up to that limit, past the end of the text; NULL where not said.
-- column: ttft_s          DOUBLE      | Arrival to first token.
-- column: e2e_s           DOUBLE      | Arrival to last token.
-- column: queue_s         DOUBLE      | Arrival to first scheduling; a wait after preemption is not in it.
-- column: prefill_s       DOUBLE      | First scheduling to first token.
-- column: decode_s        DOUBLE      | First to last token, waits after preemption included.
-- column: inference_s     DOUBLE      | First scheduling to last token.
-- column: preemptions     BIGINT      | Times it was preempted; NULL where the engine does not say.
-- column: requeue_s       DOUBLE      | Wait to run again after preemptions; NULL where the engine does not say.
-- column: cached_tokens   BIGINT      | Prompt tokens found in the prefix cache when it first ran.
-- column: computed_tokens BIGINT      | Prompt tokens computed for it.
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
    spans.ignores_eos,
    spans.ttft_s,
    spans.e2e_s,
    spans.queue_s,
    spans.prefill_s,
    spans.decode_s,
    spans.inference_s,
    spans.preemptions,
    spans.requeue_s,
    spans.cached_tokens,
    spans.computed_tokens,
from raw.spans
left join staging.input_servers using (source)
left join staging.engine_names
    on engine_names.instance is not distinct from coalesce(spans.instance, input_servers.instance)
    and engine_names.label is null
where within_window(coalesce(spans.end_at, plus_seconds(spans.start_at, spans.e2e_s), spans.start_at))
qualify spans.request_id is null
    or spans.start_at is null
    or row_number() over (partition by spans.instance, spans.request_id, spans.start_at order by spans.source, spans.line) = 1
order by spans.source, spans.line, spans.request_id
