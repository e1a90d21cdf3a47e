-- What each client result of an analysis asked of the server: the part of a workload that a client is told, in the order it ran.
select
    client,
    max_concurrency,
    request_rate,
    completed,
    failed,
    duration_s,
from core.client_sums
where duration_s is not null
order by started_at nulls last, source, run_index
