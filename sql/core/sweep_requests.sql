-- The requests of a sweep, with what each made its reader wait for: the unit that intervals are drawn over.
--
-- The longest wait of a request is the time to its first token or the longest pause after it, whichever is longer: queueing shows in
-- the one, preemption in the other, and a reader feels the longer.
--
-- grain: request_key
-- column: request_key    | Request (core.requests).
-- column: source         | Result it is in.
-- column: run_index      | Result object within the file.
-- column: request_index  | Position in the result.
-- column: arrived_at     | When it came.
-- column: input_tokens   | Prompt tokens.
-- column: output_tokens  | Generated tokens.
-- column: latency_s      | Sending to last token; NULL where it failed.
-- column: ttft_s         | Time to first token.
-- column: longest_gap_s  | Longest time between two chunks; NULL where the result has no gaps.
-- column: longest_wait_s | The longer of the two.
-- column: queue_s        | Arrival to first scheduling; NULL without a span.
-- column: is_failed      | Whether it failed.
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
