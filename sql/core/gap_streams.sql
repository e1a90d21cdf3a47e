-- Answers as streams: when each began and ended at the client, and which benchmark run it belongs to.
--
-- Streams are compared within one benchmark run: there the client's own clock relates them, without any error of alignment.
--
-- grain: stream
-- column: stream        | Number of the request in core.gap_chunks.
-- column: request_key   | Request.
-- column: client_run    | Benchmark run it belongs to: `source#run_index`.
-- column: first_at      | First chunk read.
-- column: last_at       | Last chunk read.
-- column: chunks        | Chunks read.
-- column: usual_gap_s   | Median, over the run's answers, of the mean time between chunks: what an undisturbed stream does.
-- check:  first_at <= last_at | A stream begins before it ends.
with streams as (
    select
        stream,
        request_key,
        regexp_extract(request_key, '^(.*)#[0-9]+$', 1) as client_run,
        min(received_at) as first_at,
        max(received_at) as last_at,
        count(*) as chunks,
    from core.gap_chunks
    group by all
)

select
    stream,
    request_key,
    client_run,
    first_at,
    last_at,
    chunks,
    median(ratio(seconds_between(first_at, last_at), chunks - 1)) over (partition by client_run) as usual_gap_s,
from streams
order by stream
