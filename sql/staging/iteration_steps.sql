-- One engine step per row, from `Iteration(…)` lines, on absolute time.
--
-- grain: source, line
-- needs: raw.iteration_steps
-- column: engine              VARCHAR     | Engine that ran the step.
-- column: stepped_at          TIMESTAMPTZ | Instant of the line, to the stamp's second.
-- column: source              VARCHAR     | Input it was read from.
-- column: line                BIGINT      | Line number in that input: the order of steps within a second.
-- column: iteration           BIGINT      | The engine's own step counter; it restarts with the engine.
-- column: context_requests    BIGINT      | Requests in prefill.
-- column: context_tokens      BIGINT      | Tokens scheduled for them, recomputed ones included.
-- column: generation_requests BIGINT      | Requests in decode.
-- column: generation_tokens   BIGINT      | Tokens scheduled for them; a resumed request may be counted here.
-- column: elapsed_ms          DOUBLE      | As printed.
-- column: kv_usage_ratio      DOUBLE      | Share of the KV pool held by active requests; NULL before 0.26.
select
    engine_names.engine,
    absolute_time(steps.at_utc, steps.at_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s) as stepped_at,
    steps.source,
    steps.line,
    steps.iteration,
    steps.context_requests,
    steps.context_tokens,
    steps.generation_requests,
    steps.generation_tokens,
    steps.elapsed_ms,
    steps.kv_usage_ratio,
from raw.iteration_steps as steps
left join staging.clocks using (source)
left join staging.input_servers using (source)
left join staging.engine_names
    on engine_names.instance is not distinct from coalesce(steps.instance, input_servers.instance)
    and engine_names.label is not distinct from steps.engine
anti join staging.repeated_lines as copies
    on copies.source = steps.source
    and steps.line between copies.first_line and copies.last_line
where within_window(absolute_time(steps.at_utc, steps.at_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s))
order by source, line
