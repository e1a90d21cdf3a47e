-- Requests as the client saw them, on absolute time. A request is of the window in which it ended.
--
-- grain: source, run_index, request_index
-- needs: raw.bench_requests
-- column: source         VARCHAR     | Input it was read from.
-- column: source_file    VARCHAR     | Its file name alone.
-- column: run_index      BIGINT      | Result object within the file.
-- column: request_index  BIGINT      | Position in the result, from 0.
-- column: request_id     VARCHAR     | Id the client wrote; NULL where it writes none.
-- column: sent_at        TIMESTAMPTZ | When the client sent it; NULL where the result has no times.
-- column: clock_error_s  DOUBLE      | Remaining error of sent_at.
-- column: client_queue_s DOUBLE      | Wait inside the client before sending.
-- column: input_tokens   BIGINT      | Prompt tokens.
-- column: output_tokens  BIGINT      | Generated tokens.
-- column: ttft_s         DOUBLE      | Time to first token.
-- column: latency_s      DOUBLE      | Sending to last token.
-- column: gaps_s         DOUBLE[]    | Times between received chunks, in order.
-- column: gap_kind       VARCHAR     | chunk, token or smoothed_token.
-- column: is_failed      BOOLEAN     | Whether the request failed.
select
    requests.source,
    parse_filename(requests.source) as source_file,
    requests.run_index,
    requests.request_index,
    requests.request_id,
    coalesce(
        requests.start_at,
        make_timestamptz(try_cast((clocks.mono_epoch_s + requests.start_mono_s) * 1e6 as bigint))
    ) as sent_at,
    clocks.error_s as clock_error_s,
    requests.client_queue_s,
    requests.input_tokens,
    requests.output_tokens,
    requests.ttft_s,
    requests.latency_s,
    requests.gaps_s,
    requests.gap_kind,
    requests.is_failed,
from raw.bench_requests as requests
left join staging.clocks using (source)
where getvariable('since') is null and getvariable('until') is null or within_window(
    plus_seconds(sent_at, coalesce(requests.latency_s, requests.ttft_s + list_sum(requests.gaps_s), requests.ttft_s, 0))
)
order by requests.source, requests.run_index, requests.request_index
