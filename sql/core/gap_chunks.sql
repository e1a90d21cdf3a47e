-- Every chunk of every answer, at the moment the client read it.
--
-- grain: stream, chunk_index
-- needs: staging.client_requests
-- column: stream      BIGINT      | Number of the request among those with times, by result and position.
-- column: request_key VARCHAR     | Request.
-- column: chunk_index BIGINT      | Position of the chunk, from 0: the first token.
-- column: gap_s       DOUBLE      | Time since the chunk before it; 0 for the first.
-- column: received_at TIMESTAMPTZ | When the client read it.
-- check:  gap_s >= 0 | Time does not run backwards.
with streams as (
    select
        row_number() over (order by source, run_index, request_index) as stream,
        concat(source, '#', run_index, '#', request_index) as request_key,
        plus_seconds(sent_at, ttft_s) as first_at,
        list_prepend(0.0, coalesce(gaps_s, [])) as gaps_s,
    from staging.client_requests
    where sent_at is not null and ttft_s is not null
),

chunks as (
    select stream, request_key, first_at, unnest(gaps_s) as gap_s, generate_subscripts(gaps_s, 1) - 1 as chunk_index,
    from streams
)

select
    stream,
    request_key,
    chunk_index,
    gap_s,
    plus_seconds(first_at, sum(gap_s) over (partition by stream order by chunk_index)) as received_at,
from chunks
order by stream, chunk_index
