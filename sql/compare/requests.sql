-- The requests of an analysis, in the order in which they came: what lengths, arrivals and latencies are compared by.
with gaps as (
    select request_key, list(gap_s order by chunk_index) as gaps_s, max(gap_s) as longest_gap_s
    from core.gap_chunks
    where chunk_index > 0
    group by request_key
)

select
    requests.input_tokens,
    requests.output_tokens,
    epoch(requests.arrived_at) as arrived_s,
    requests.ttft_s,
    seconds_between(requests.arrived_at, requests.finished_at) as latency_s,
    requests.queue_s,
    gaps.longest_gap_s,
    coalesce(gaps.gaps_s, []) as gaps_s,
    coalesce(requests.is_failed, false) as is_failed,
from core.requests
left join gaps using (request_key)
order by requests.arrived_at nulls last, requests.request_key
