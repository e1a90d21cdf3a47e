-- Latency as a load generator sums it up, of the results of which nothing better is told: neither request by request, nor as a level of a sweep.
--
-- The user's own numbers, whatever the engine says. Those of no requests are none.
--
-- grain: source, run_index
-- needs: core.client_sums
-- column: source      VARCHAR     | Input the result was read from.
-- column: source_file VARCHAR     | Its file name alone.
-- column: run_index   BIGINT      | Result object within the file.
-- column: started_at  TIMESTAMPTZ | First request sent; NULL where the result has no times.
-- column: completed   BIGINT      | Requests completed.
-- column: failed      BIGINT      | Requests failed; NULL where not said.
-- column: ttft_p50_s  DOUBLE      | Median time to first token.
-- column: ttft_p99_s  DOUBLE      | 99th percentile of it.
-- column: itl_p50_s   DOUBLE      | Median time between tokens or chunks; of tokens per request on average, where only that is told.
-- column: itl_p99_s   DOUBLE      | 99th percentile of it.
-- column: is_alone    BOOLEAN     | Whether the run has no other result.
select
    sums.source,
    parse_filename(sums.source) as source_file,
    sums.run_index,
    sums.started_at,
    sums.completed,
    sums.failed,
    sums.ttft_p50_s,
    sums.ttft_p99_s,
    sums.itl_p50_s,
    sums.itl_p99_s,
    (select count(distinct source) from core.client_sums) = 1 as is_alone,
from core.client_sums as sums
anti join core.sweep_runs using (source, run_index)
anti join (from staging.client_requests where ttft_s is not null) as requests using (source, run_index)
where coalesce(sums.ttft_p50_s, sums.ttft_p99_s, sums.itl_p50_s, sums.itl_p99_s) is not null
    and coalesce(sums.completed, 1) > 0
order by sums.started_at nulls last, sums.source, sums.run_index
