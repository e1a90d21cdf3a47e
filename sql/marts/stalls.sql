-- Whose answers paused, when, for how long, and why.
--
-- grain: request_id, source_file, run_index, request_index, started_at
-- column: run           | Run.
-- column: engine        | Engine that served it.
-- column: request_id    | Request id as the server or the client has it; NULL where neither does.
-- column: source_file   | Client result it is in, as named, without .gz.
-- column: request_index | Position in that result, from 0.
-- column: run_index     | Result object within the file, from 0.
-- column: started_at    | When the last chunk before it was read.
-- column: duration_s    | Length.
-- column: cause         | preemption, prefill_interference, engine_pause or unknown.
-- column: tokens_before | Output tokens received before it.
-- column: victim_context_tokens | Tokens the request held then: its prompt and what it had generated.
-- column: waited_s      | Of a preemption: time to run again; NULL for other causes.
-- column: rebuild_s     | Of a preemption: time to compute its context again, at the run's own prefill rate, nothing found in the cache.
-- column: delayed_s     | The rest of the pause: what every other stream waited too.
-- column: peers         | Other streams it was compared with.
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
