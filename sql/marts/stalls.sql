-- Whose answers paused, when, for how long, and why.
--
-- grain: request_id, source_file, run_index, request_index, started_at
-- needs: core.stall_causes
-- column: run                   VARCHAR     | Run.
-- column: engine                VARCHAR     | Engine that served it.
-- column: request_id            VARCHAR     | Request id as the server or the client has it; NULL where neither does.
-- column: source_file           VARCHAR     | Client result it is in, as named, without .gz.
-- column: request_index         BIGINT      | Position in that result, from 0.
-- column: run_index             BIGINT      | Result object within the file, from 0.
-- column: started_at            TIMESTAMPTZ | When the last chunk before it was read.
-- column: duration_s            DOUBLE      | Length.
-- column: cause                 VARCHAR     | preemption, prefill_interference, engine_pause or unknown.
-- column: tokens_before         BIGINT      | Output tokens received before it.
-- column: victim_context_tokens BIGINT      | Tokens the request held then: its prompt and what it had generated.
-- column: waited_s              DOUBLE      | Of a preemption: time to run again; NULL for other causes.
-- column: rebuild_s             DOUBLE      | Of a preemption: time to compute its context again, at the run's own prefill rate, nothing found in the cache.
-- column: delayed_s             DOUBLE      | The rest of the pause: what every other stream waited too.
-- column: peers                 BIGINT      | Other streams it was compared with.
-- check:  duration_s > 0 | A length.
-- check:  cause in ('preemption', 'prefill_interference', 'engine_pause', 'unknown') | The four words.
select
    getvariable('run') as run,
    gaps.engine,
    requests.request_id,
    gaps.source_file,
    gaps.request_index,
    gaps.run_index,
    gaps.started_at,
    gaps.duration_s,
    causes.cause,
    gaps.tokens_before,
    coalesce(requests.input_tokens, 0) + gaps.tokens_before as victim_context_tokens,
    case when causes.cause = 'preemption' then causes.away_s - split.rebuild_s end as waited_s,
    case when causes.cause = 'preemption' then split.rebuild_s end as rebuild_s,
    case when causes.cause = 'preemption' then gaps.duration_s - causes.away_s end as delayed_s,
    causes.peers,
from core.request_gaps as gaps
inner join core.stall_causes as causes using (stream, gap_index)
inner join core.requests as requests using (request_key)
cross join core.stall_rates as rates
cross join lateral (
    select least(causes.away_s, ratio(requests.input_tokens + gaps.tokens_before, rates.prefill_tokens_per_s)) as rebuild_s
) as split
order by gaps.source_file, gaps.run_index, gaps.request_index, gaps.started_at
