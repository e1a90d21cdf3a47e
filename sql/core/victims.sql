-- Which requests were preempted, how often, and what it cost each.
--
-- By the pauses in their answers where a client read them; by their decode time where only the server's span tells: then at least
-- half a second, and a third, of it is beyond what their neighbours took, and the engine counted preemptions meanwhile. Preemptions
-- shorter than a pause that is kept (core.request_gaps) are not seen either way.
--
-- grain: request_key
-- needs: core.stall_causes or core.stall_decodes
-- column: request_key        VARCHAR     | Request.
-- column: engine             VARCHAR     | Engine that served it.
-- column: request_id         VARCHAR     | Request id as the server or the client has it.
-- column: source_file        VARCHAR     | Input it is in.
-- column: request_index      BIGINT      | Position in the client's result; NULL without a client.
-- column: times_preempted    BIGINT      | Pauses caused by preemption; NULL by decode time, which is a sum.
-- column: first_preempted_at TIMESTAMPTZ | Start of the first one; NULL by decode time.
-- column: last_preempted_at  TIMESTAMPTZ | Start of the last one; NULL by decode time.
-- column: paused_s           DOUBLE      | Time its answer stood still for it.
-- column: waited_s           DOUBLE      | Of that, time to run again.
-- column: rebuild_s          DOUBLE      | Of that, time to compute its context again, at the run's own prefill rate, nothing found in the cache.
-- column: tokens_before      BIGINT      | Output tokens before the first one; NULL by decode time.
-- column: context_tokens     BIGINT      | Prompt and output tokens it held at the last one; at its end by decode time.
-- column: method             VARCHAR     | client_gaps or span_decode_time.
-- check:  paused_s >= 0 and waited_s >= 0 and rebuild_s >= 0 | Lengths.
with by_gaps as (
    select
        gaps.request_key,
        count(*) as times_preempted,
        min(gaps.started_at) as first_preempted_at,
        max(gaps.started_at) as last_preempted_at,
        sum(gaps.duration_s) as paused_s,
        sum(causes.away_s) as away_s,
        sum(least(causes.away_s, ratio(requests.input_tokens + gaps.tokens_before, rates.prefill_tokens_per_s))) as rebuild_s,
        min(gaps.tokens_before) as tokens_before,
        max(requests.input_tokens + gaps.tokens_before) as context_tokens,
        'client_gaps' as method,
    from core.request_gaps as gaps
    inner join core.stall_causes as causes using (stream, gap_index)
    inner join core.requests as requests using (request_key)
    cross join core.stall_rates as rates
    where causes.cause = 'preemption'
    group by gaps.request_key
),

by_spans as (
    select
        decodes.request_key,
        null::bigint as times_preempted,
        null::timestamptz as first_preempted_at,
        null::timestamptz as last_preempted_at,
        decodes.excess_s as paused_s,
        decodes.excess_s as away_s,
        least(decodes.excess_s, ratio(requests.input_tokens + requests.output_tokens, rates.prefill_tokens_per_s)) as rebuild_s,
        null::bigint as tokens_before,
        requests.input_tokens + requests.output_tokens as context_tokens,
        'span_decode_time' as method,
    from core.stall_decodes as decodes
    inner join core.requests as requests using (request_key)
    cross join core.stall_rates as rates
    anti join core.gap_streams as streams on streams.request_key = decodes.request_key
    where decodes.excess_s >= 0.5
        and decodes.excess_s >= decodes.decode_s / 3
        and coalesce(decodes.preemptions > 0, false)
),

found as (
    from by_gaps
    union all
    from by_spans
)

select
    found.request_key,
    requests.engine,
    requests.request_id,
    requests.source_file,
    requests.request_index,
    found.times_preempted,
    found.first_preempted_at,
    found.last_preempted_at,
    found.paused_s,
    found.away_s - found.rebuild_s as waited_s,
    found.rebuild_s,
    found.tokens_before,
    found.context_tokens,
    found.method,
from found
inner join core.requests as requests using (request_key)
order by found.request_key
