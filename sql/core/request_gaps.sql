-- Pauses within answers: the gaps between chunks that a reader would notice.
--
-- Kept is a gap of at least a tenth of a second (a shorter one is not seen as a pause in reading) that is also five times what its
-- benchmark run usually has between chunks (on a slow engine a tenth of a second is a step).
--
-- grain: request_key, gap_index
-- needs: core.requests
-- needs: core.gap_streams
-- column: request_key   VARCHAR     | Request.
-- column: stream        BIGINT      | Its number in core.gap_chunks.
-- column: engine        VARCHAR     | Engine that served it.
-- column: source_file   VARCHAR     | Client result it is in.
-- column: run_index     BIGINT      | Result object within the file.
-- column: request_index BIGINT      | Position in the result, from 0.
-- column: gap_index     BIGINT      | Position of the gap in the answer, from 0.
-- column: started_at    TIMESTAMPTZ | When the client had read what came before.
-- column: ended_at      TIMESTAMPTZ | When the next chunk came.
-- column: duration_s    DOUBLE      | Length.
-- column: tokens_before BIGINT      | Output tokens received before it; chunks are counted as equal shares of the answer's tokens.
-- column: clock_error_s DOUBLE      | Remaining error of its times.
-- check:  duration_s >= 0.1 | Shorter ones are not kept.
select
    requests.request_key,
    chunks.stream,
    requests.engine,
    requests.source_file,
    requests.run_index,
    requests.request_index,
    chunks.chunk_index - 1 as gap_index,
    plus_seconds(chunks.received_at, -chunks.gap_s) as started_at,
    chunks.received_at as ended_at,
    chunks.gap_s as duration_s,
    case
        when requests.output_tokens > 0 then round(chunks.chunk_index * requests.output_tokens / streams.chunks)
        else chunks.chunk_index
    end::bigint as tokens_before,
    requests.clock_error_s,
from core.gap_chunks as chunks
inner join core.gap_streams as streams using (stream)
inner join core.requests as requests on requests.request_key = chunks.request_key
where chunks.gap_s >= 0.1 and chunks.gap_s >= 5 * coalesce(streams.usual_gap_s, 0)
order by requests.request_key, gap_index
