-- Answers as streams: when each began and ended at the client, and which benchmark run it belongs to.
--
-- Streams are compared within one benchmark run: there the client's own clock relates them, without any error of alignment. So are
-- those of several runs on one engine whose clocks are known to a hundredth of a second, a fifth of the edges that tokens are counted at:
-- where a client's requests are all preempted together, the others' show that the engine went on.
--
-- grain: stream
-- needs: core.gap_chunks
-- column: stream        BIGINT      | Number of the request in core.gap_chunks.
-- column: request_key   VARCHAR     | Request.
-- column: client_run    VARCHAR     | Benchmark run it belongs to: `source#run_index`.
-- column: witness_group VARCHAR     | Streams it may be compared with have the same.
-- column: first_at      TIMESTAMPTZ | First chunk read.
-- column: last_at       TIMESTAMPTZ | Last chunk read.
-- column: chunks        BIGINT      | Chunks read.
-- column: usual_gap_s   DOUBLE      | Median, over the run's answers, of the mean time between chunks: what an undisturbed stream does.
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
    streams.stream,
    streams.request_key,
    streams.client_run,
    if(
        requests.engine <> '*' and max(requests.clock_error_s) over (partition by streams.client_run) <= 0.01,
        concat('engine ', requests.engine),
        streams.client_run
    ) as witness_group,
    streams.first_at,
    streams.last_at,
    streams.chunks,
    median(ratio(seconds_between(streams.first_at, streams.last_at), streams.chunks - 1)) over (partition by streams.client_run)
        as usual_gap_s,
from streams
left join core.requests as requests using (request_key)
order by streams.stream
