-- The requests of a sweep, with what each made its reader wait for: the unit that intervals are drawn over.
--
-- The longest wait of a request is the time to its first token or the longest pause after it, whichever is longer: queueing shows in
-- the one, preemption in the other, and a reader feels the longer.
--
-- grain: request_key
-- needs: core.requests
-- needs: core.sweep_runs
-- column: request_key    VARCHAR     | Request (core.requests).
-- column: source         VARCHAR     | Result it is in.
-- column: run_index      BIGINT      | Result object within the file.
-- column: request_index  BIGINT      | Position in the result.
-- column: arrived_at     TIMESTAMPTZ | When it came.
-- column: input_tokens   BIGINT      | Prompt tokens.
-- column: output_tokens  BIGINT      | Generated tokens.
-- column: latency_s      DOUBLE      | Sending to last token; NULL where it failed.
-- column: ttft_s         DOUBLE      | Time to first token.
-- column: longest_gap_s  DOUBLE      | Longest time between two chunks; NULL where the result has no gaps.
-- column: longest_wait_s DOUBLE      | The longer of the two.
-- column: queue_s        DOUBLE      | Arrival to first scheduling; NULL without a span.
-- column: is_failed      BOOLEAN     | Whether it failed.
with gaps as (
    select source, run_index, request_index, list_max(gaps_s) as longest_gap_s, latency_s
    from staging.client_requests
)

select
    requests.request_key,
    requests.source,
    requests.run_index,
    requests.request_index,
    requests.arrived_at,
    requests.input_tokens,
    requests.output_tokens,
    coalesce(gaps.latency_s, seconds_between(requests.arrived_at, requests.finished_at)) as latency_s,
    requests.ttft_s,
    gaps.longest_gap_s,
    case when requests.ttft_s is not null then greatest(requests.ttft_s, coalesce(gaps.longest_gap_s, 0)) end as longest_wait_s,
    requests.queue_s,
    coalesce(requests.is_failed, false) as is_failed,
from core.requests
inner join core.sweep_runs as runs using (source, run_index)
left join gaps using (source, run_index, request_index)
order by requests.source, requests.run_index, requests.request_index
