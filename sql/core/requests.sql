-- Requests, one row each however they were observed: by the client, by the server's span, or by both.
--
-- A client's request and its span are the same where the span carries the client's index (load generators put it into the request
-- id), and else where the token counts are equal and the arrival follows the sending: within one pair of counts, each span goes to
-- the earliest request that can still have caused it, so that every span is used once and order is kept.
--
-- grain: request_key
-- needs: staging.client_requests or staging.spans
-- column: request_key    VARCHAR     | `source#run_index#request_index` of the client, else `source:line#request_id` of the span.
-- column: engine         VARCHAR     | Engine that served it; `*` where the inputs do not say which of several.
-- column: source         VARCHAR     | Client result it is in; else the span's input.
-- column: source_file    VARCHAR     | Its file name alone.
-- column: run_index      BIGINT      | Result object within the file; NULL without a client.
-- column: request_index  BIGINT      | Position in the result, from 0; NULL without a client.
-- column: request_id     VARCHAR     | Id the server saw; else the client's.
-- column: arrived_at     TIMESTAMPTZ | Arrival at the server, where a span tells; else when the client sent it.
-- column: first_token_at TIMESTAMPTZ | First token at the client; else at the server.
-- column: finished_at    TIMESTAMPTZ | Last token at the client; else at the server.
-- column: input_tokens   BIGINT      | Prompt tokens.
-- column: output_tokens  BIGINT      | Generated tokens.
-- column: max_tokens     BIGINT      | Output limit it asked for; NULL without a span that says it.
-- column: ignores_eos    BOOLEAN     | Whether it asked to generate up to that limit; NULL without a span that says it.
-- column: ttft_s         DOUBLE      | Time to first token as the client saw it; else as the server did.
-- column: queue_s        DOUBLE      | Arrival to first scheduling; NULL without a span.
-- column: prefill_s      DOUBLE      | First scheduling to first token; NULL without a span.
-- column: decode_s       DOUBLE      | First to last token, waits after preemption included.
-- column: client_queue_s DOUBLE      | Wait inside the client before sending.
-- column: is_failed      BOOLEAN     | Whether the client counts it as failed.
-- column: has_client     BOOLEAN     | Whether a client's result has it.
-- column: has_span       BOOLEAN     | Whether a span has it.
-- column: clock_error_s  DOUBLE      | Remaining error of the client's times; 0 where only a span has it.
with clients as (
    select
        *,
        concat(source, '#', run_index, '#', request_index) as client_key,
        plus_seconds(sent_at, ttft_s) as client_first_at,
        coalesce(latency_s, ttft_s + list_sum(gaps_s)) as spent_s,
        -- when the server can have received it: 50 ms are for clocks that differ by more than was found
        plus_seconds(sent_at, -0.05 - coalesce(clock_error_s, 0)) as from_at,
        plus_seconds(sent_at, ttft_s + 0.05 + coalesce(clock_error_s, 0)) as until_at,
    from staging.client_requests
),

spans as (
    select
        *,
        concat(source, ':', line, '#', request_id) as span_key,
        regexp_replace(regexp_replace(request_id, '^chatcmpl-', ''), '^cmpl-(.*)-[0-9]+$', '\1') as bare_id,
        regexp_extract(bare_id, '^(.*\D)[0-9]+$', 1) as tag,
        try_cast(regexp_extract(bare_id, '\D([0-9]{1,9})$', 1) as bigint) as tag_index,
    from staging.spans
),

-- by index: a tag belongs to the run whose requests nearly all have its token counts and arrive between sending and first token
indexed as (
    select
        clients.client_key,
        clients.source,
        clients.run_index,
        spans.span_key,
        spans.tag,
        coalesce(clients.input_tokens = spans.input_tokens and clients.output_tokens = spans.output_tokens, false) as is_alike,
        is_alike and coalesce(spans.arrived_at between clients.from_at and clients.until_at, false) as agrees,
    from clients
    inner join spans on spans.tag_index = clients.request_index
    where spans.tag <> ''
),

tags as (
    select source, run_index, tag
    from indexed
    group by source, run_index, tag
    having count(*) filter (agrees) >= 0.9 * count(*) and count(*) > 1
    qualify row_number() over (partition by source, run_index order by count(*) filter (agrees) desc, tag) = 1
),

by_index as (
    select indexed.client_key, indexed.span_key
    from indexed
    inner join tags using (source, run_index, tag)
    where indexed.is_alike
),

-- by counts: the k-th request of a pair of counts takes its first possible span, or the one after its predecessor's
waiting_clients as (
    select
        client_key,
        sent_at,
        input_tokens,
        output_tokens,
        from_at,
        until_at,
        row_number() over (partition by input_tokens, output_tokens order by sent_at, client_key) as client_rank,
    from clients
    anti join by_index using (client_key)
    where sent_at is not null and output_tokens > 0
),

waiting_spans as (
    select
        span_key,
        arrived_at,
        input_tokens,
        output_tokens,
        row_number() over (partition by input_tokens, output_tokens order by arrived_at, span_key) as span_rank,
    from spans
    anti join by_index using (span_key)
    where input_tokens is not null and output_tokens is not null
),

first_possible as (
    select waiting_clients.*, coalesce(earlier.span_rank, 0) + 1 as lowest_rank
    from waiting_clients
    asof left join (
        select input_tokens, output_tokens, arrived_at, max(span_rank) as span_rank from waiting_spans group by all
    ) as earlier
        on earlier.input_tokens = waiting_clients.input_tokens
        and earlier.output_tokens = waiting_clients.output_tokens
        and earlier.arrived_at < waiting_clients.from_at
),

assigned as (
    select
        *,
        client_rank + max(lowest_rank - client_rank) over (
            partition by input_tokens, output_tokens order by client_rank
        ) as span_rank,
    from first_possible
),

by_counts as (
    select assigned.client_key, waiting_spans.span_key
    from assigned
    inner join waiting_spans using (input_tokens, output_tokens, span_rank)
    where waiting_spans.arrived_at <= assigned.until_at
),

matches as (
    from by_index
    union all
    from by_counts
),

only_engine as (
    select min(engine) as engine from staging.engine_names where instance is null and label is null
)

select
    coalesce(clients.client_key, spans.span_key) as request_key,
    coalesce(spans.engine, only_engine.engine) as engine,
    coalesce(clients.source, spans.source) as source,
    coalesce(clients.source_file, parse_filename(spans.source)) as source_file,
    clients.run_index,
    clients.request_index,
    coalesce(spans.request_id, clients.request_id) as request_id,
    coalesce(spans.arrived_at, clients.sent_at) as arrived_at,
    coalesce(clients.client_first_at, plus_seconds(spans.arrived_at, spans.ttft_s)) as first_token_at,
    coalesce(plus_seconds(clients.sent_at, clients.spent_s), plus_seconds(spans.arrived_at, spans.e2e_s)) as finished_at,
    coalesce(clients.input_tokens, spans.input_tokens) as input_tokens,
    coalesce(clients.output_tokens, spans.output_tokens) as output_tokens,
    spans.max_tokens,
    spans.ignores_eos,
    coalesce(clients.ttft_s, spans.ttft_s) as ttft_s,
    spans.queue_s,
    spans.prefill_s,
    coalesce(spans.decode_s, clients.spent_s - clients.ttft_s) as decode_s,
    clients.client_queue_s,
    coalesce(clients.is_failed, false) as is_failed,
    clients.client_key is not null as has_client,
    spans.span_key is not null as has_span,
    case when clients.client_key is null then 0.0 else clients.clock_error_s end as clock_error_s,
from clients
full join matches using (client_key)
full join spans on spans.span_key = matches.span_key
cross join only_engine
order by request_key
