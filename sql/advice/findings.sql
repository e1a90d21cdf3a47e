-- What each spell amounts to: severity, confidence, and the sentences that say so, before the verdicts are ranked.
--
-- Severity is on one scale (sql/lib/severity.sql). Confidence is how well the inputs that showed the spell can tell its cause from its
-- look-alikes. Evidence sentences carry the numbers and their units; what speaks against, and what is missing, is said beside.
--
-- grain: engine, verdict, window_start
-- column: engine           | Engine.
-- column: verdict          | What happened.
-- column: window_start     | When it began.
-- column: window_end       | When it was last seen.
-- column: peak_at          | When it was worst.
-- column: severity         | 0 to 100.
-- column: confidence       | 0 to 1.
-- column: summary          | One sentence.
-- column: evidence         | Sentences that speak for it.
-- column: evidence_against | Sentences that speak against it, or bound it.
-- column: missing          | What would settle it next time.
-- check:  severity between 0 and 100 | A scale.
-- check:  confidence between 0 and 1 | A probability.
with facts as (
    select
        facts.*,
        engines.max_num_seqs,
        engines.max_num_seqs_source,
        engines.kv_capacity_tokens,
        engines.engine_generation,
        engines.engine_kind,
        coalesce(slots.setting, 'max_num_seqs') as slots_setting,
        seconds_between(facts.window_start, facts.window_end) as window_s,
        facts.seconds = 0 as is_instant, -- one sample alone showed it
        ratio(facts.mean_waiting, facts.mean_waiting + facts.mean_running) as waiting_share,
    from marts.spell_facts as facts
    left join core.engines using (engine)
    left join engine_settings_known() as slots on slots.lever = 'more_sequences' and slots.engine_kind = engines.engine_kind
),

repeated as (
    select engine, tokens_low, tokens_best, tokens_high, share_low, share_best, share_high, told_by
    from marts.waste
    where kind = 'preemption_recompute'
),

refilled as (
    select engine, tokens_low, tokens_best, tokens_high, share_best, method, told_by
    from marts.waste
    where kind = 'prefix_refill'
),

-- vLLM V0 can move what it preempts to host memory
swaps as (
    select engine, max(requests) as requests
    from (
        select engine, value as requests
        from staging.metric_samples
        inner join signals() as signals using (name)
        where signals.signal = 'swapped' and within_window(sampled_at)
        union all
        select engine, swapped from staging.engine_samples
    )
    group by engine
),

-- what the engine's own samples of blocks, and its questions to a tier, say of an evicted prefix
evidenced as (
    select
        engine,
        ratio(
            sum(delta) filter (where signal = 'block_idle_before_evict_s_sum'), sum(delta) filter (where signal = 'block_idle_before_evict_s_count')
        ) as idle_s,
        sum(delta) filter (where signal = 'evicted_tokens') as evicted_tokens,
        sum(delta) filter (where signal = 'external_prefix_queries') as tier_queried_tokens,
        sum(delta) filter (where signal = 'external_prefix_hits') as tier_hit_tokens,
    from core.counter_intervals
    where signal in (
        'block_idle_before_evict_s_sum', 'block_idle_before_evict_s_count', 'evicted_tokens', 'external_prefix_queries', 'external_prefix_hits'
    )
    group by engine
),

preemption as (
    select
        facts.engine,
        facts.verdict,
        facts.window_start,
        facts.window_end,
        facts.peak_at,
        preemption_severity(
            -- a log does not count requests: those in the house at its fullest are the fewest there can have been
            ratio(facts.weight, greatest(coalesce(facts.first_tokens, facts.max_running + facts.max_waiting, recorded.requests), 1)),
            repeated.share_best * ratio(facts.weight, sum(facts.weight) over (partition by facts.engine))
        ) as severity,
        0.97 as confidence,
        format(
            '{} preemptions in {}: running requests lost their KV blocks because the pool was full{}.',
            round(facts.weight)::bigint,
            spoken_duration(facts.window_s),
            case
                when facts.paused_requests > 0 then format(
                    '; {} of the answers seen paused, the longest for {}', facts.paused_requests, spoken_duration(facts.longest_pause_s)
                )
                else ''
            end
        ) as summary,
        sentences([
            format('The engine counted {} preemptions.', round(facts.weight)::bigint),
            format('KV usage reached {:.0f} % with {:.0f} requests running on average.', 100 * facts.max_kv_usage_ratio, facts.mean_running),
            format(
                'Over the run {} tokens were processed again (between {} and {}): {:.0f} % of all tokens computed. Told by {}.',
                spoken_count(repeated.tokens_best), spoken_count(repeated.tokens_low), spoken_count(repeated.tokens_high),
                100 * repeated.share_best, repeated.told_by
            ),
            format('{:.2f} preemptions per request that got its first token.', ratio(facts.weight, facts.first_tokens)),
            format('Client streams stood still for {:.1f} s in all.', facts.paused_s),
            case
                when facts.max_waiting > 0 then format(
                    'Who is preempted waits to run again in the same queue as new requests: it held up to {} meanwhile.',
                    facts.max_waiting
                )
            end,
            case
                when swaps.requests > 0 then format(
                    'Up to {:.0f} requests at once lay swapped out in host memory: moved there and back, not computed again.', swaps.requests
                )
            end,
        ]) as evidence,
        sentences([
            case
                when ratio(facts.weight, facts.first_tokens) < 0.1
                    then format('Only {:.0f} % of requests were hit: mild.', 100 * ratio(facts.weight, facts.first_tokens))
            end,
        ]) as evidence_against,
        sentences([
            case when repeated.tokens_best is null then to_tell_repeated_tokens(facts.engine_kind, facts.engine_generation) end,
            case when facts.paused_requests is null then to_tell_whose_answers_paused(facts.engine_kind) end,
        ]) as missing,
    from facts
    left join repeated using (engine)
    left join swaps using (engine)
    left join (select engine, count(*) as requests from core.requests group by engine) as recorded using (engine)
    where facts.verdict = 'preemption'
),

-- requests that did not wait but failed, because nothing could be freed for them
failed as (
    select
        facts.engine,
        facts.verdict,
        facts.window_start,
        sum(failures.requests) as requests,
        any_value(failures.of_requests) as of_requests,
    from facts
    inner join core.failed_requests as failures
        on failures.engine = facts.engine
        and failures.failed_at between facts.window_start and facts.window_end
    where facts.verdict = 'queue_kv_capacity'
    group by all
),

failing as (
    select
        failed.engine,
        failed.verdict,
        facts.window_start,
        facts.window_end,
        facts.peak_at,
        -- a lost answer is the worst a user can get
        100 * (0.6 + 0.4 * clamp(coalesce(ratio(failed.requests, failed.of_requests), 0), 0, 1)) as severity,
        0.97 as confidence,
        format(
            '{}{} requests FAILED for lack of KV cache in {}: nothing could be freed for them.',
            failed.requests,
            coalesce(format(' of {}', failed.of_requests), ''),
            spoken_duration(facts.window_s)
        ) as summary,
        sentences([
            'The server''s log says of each that the context size, which all running requests share, was exceeded.',
            format('{} requests ran at most; the pool holds {} tokens for them.', facts.max_running, spoken_count(facts.kv_capacity_tokens)),
            case
                when facts.engine_kind = 'llamacpp'
                    then 'llama.cpp has no preemption: a full pool fails every request that runs, and no metric of it counts them.'
            end,
        ]) as evidence,
        []::varchar[] as evidence_against,
        []::varchar[] as missing,
    from failed
    inner join facts using (engine, verdict, window_start)
),

queueing as (
    select
        facts.engine,
        facts.verdict,
        facts.window_start,
        facts.window_end,
        facts.peak_at,
        coalesce(
            delay_severity(ratio(facts.queued_s, facts.queued_requests), ratio(facts.queued_s, facts.e2e_s)),
            -- no histogram: by how many of those in the house wait, and for how long they have
            case
                when facts.is_instant then instant_severity(facts.waiting_share)
                else delay_severity(facts.seconds / 10, facts.waiting_share)
            end
        ) as severity,
        case facts.verdict
            when 'queue_max_num_seqs' then case facts.max_num_seqs_source when 'argument' then 0.95 else 0.75 end
            when 'queue_kv_capacity' then 0.9
            when 'queue_deferred' then 0.9
            when 'queue_token_budget' then 0.7
            else 0.5
        end * case when facts.is_instant then 0.5 else 1 end as confidence,
        case facts.verdict
            when 'queue_max_num_seqs' then 'one of the ' || coalesce(facts.max_num_seqs::varchar, '') || format(' batch slots ({})', facts.slots_setting)
            when 'queue_kv_capacity' then 'room in the KV pool'
            when 'queue_token_budget' then 'a share of the step''s token budget (max_num_batched_tokens)'
            when 'queue_deferred' then 'something other than capacity (a LoRA slot, remote KV or a grammar)'
            else 'a cause the inputs do not tell'
        end
        || case when facts.verdict = 'queue_max_num_seqs' and facts.max_kv_usage_ratio < 0.8 then ' while the KV pool had room' else '' end as waited_for,
        case
            when facts.is_instant then format(
                'At the one instant seen, {:.0f} requests waited for {}, beside {:.0f} running.',
                facts.mean_waiting, waited_for, facts.mean_running
            )
            else format(
                'Requests waited for {}: {:.0f} on average beside {:.0f} running, for {}{}.',
                waited_for,
                facts.mean_waiting,
                facts.mean_running,
                spoken_duration(facts.seconds),
                case
                    when facts.verdict = 'queue_kv_capacity' and round(facts.preemptions) > 0
                        then format('; {:.0f} of them had been running and waited to run again', facts.preemptions)
                    else ''
                end
            )
        end as summary,
        sentences([
            case when not facts.is_instant then format('Up to {} requests waited; {} ran at most.', facts.max_waiting, facts.max_running) end,
            case
                when facts.is_instant then format('KV usage was {:.0f} %.', 100 * facts.max_kv_usage_ratio)
                else format('KV usage between samples was {:.0f} % on average, {:.0f} % at most.', 100 * facts.mean_kv_usage_ratio, 100 * facts.max_kv_usage_ratio)
            end,
            case facts.max_num_seqs_source
                when 'argument' then format('{} is {} (the engine''s own arguments).', facts.slots_setting, facts.max_num_seqs)
                when 'inferred' then format('The running count stays at {}: taken for {}, which no input states.', facts.max_num_seqs, facts.slots_setting)
            end,
            format(
                'Requests that ended in this time had waited {:.2f} s each before their first run, {:.0f} % of their whole latency.',
                ratio(facts.queued_s, facts.queued_requests), 100 * ratio(facts.queued_s, facts.e2e_s)
            ),
            case
                when facts.verdict = 'queue_unknown' and facts.engine_kind in ('sglang', 'tensorrt_llm') and facts.max_kv_usage_ratio < 0.9
                    then 'The pool had room: this engine admits by what a request may still generate (max_tokens), and so reserves more than is used.'
            end,
            case when facts.preemptions = 0 and facts.verdict = 'queue_kv_capacity' then 'No preemption was counted: the pool is full, but nobody who ran was stopped.' end,
        ]) as evidence,
        sentences([
            case when facts.is_instant then only_an_instant() end,
            case when facts.verdict = 'queue_kv_capacity' and facts.preemptions > 0 then format('{:.0f} of the waiting were preempted requests, waiting again.', facts.preemptions) end,
            case when facts.verdict = 'queue_token_budget' then 'Token-budget waits are told by exclusion: slots and pool had room and prompts were being worked off.' end,
        ]) as evidence_against,
        sentences([
            case
                when facts.is_instant then a_second_look()
                when facts.queued_requests is not null then null
                when facts.engine_kind = 'sglang' then 'How long each request waited, first and again: --export-metrics-to-file.'
                when facts.engine_kind = 'llamacpp' then 'How long each request waited: llama.cpp says so nowhere; keep the clients'' results.'
                when coalesce(facts.engine_kind, 'vllm') = 'vllm' then 'How long each request waited: scrape /metrics (vllm:request_queue_time_seconds).'
                else 'How long each request waited: scrape /metrics, and keep the clients'' results.'
            end,
            case when facts.verdict = 'queue_unknown' and facts.max_num_seqs is null then format('The value of {}: keep the engine''s start-up lines.', facts.slots_setting) end,
        ]) as missing,
    from facts
    anti join failed
        on failed.engine = facts.engine and failed.verdict = facts.verdict and failed.window_start = facts.window_start
    where facts.verdict like 'queue%'
),

eviction as (
    select
        facts.engine,
        facts.verdict,
        facts.window_start,
        facts.window_end,
        facts.peak_at,
        100
        * sqrt(clamp(
            -- KV events say how much of what was missed had been there before; without them it is taken to be all
            coalesce(least(1, ratio(refilled.tokens_best, sum(facts.missed_tokens) over (partition by facts.engine))), 1)
            * ratio(facts.missed_tokens, facts.queried_tokens),
            0,
            1
        ))
        -- where requests are preempted the cache goes first: the same shortage, named by its worse half
        * case when interrupted.preemptions > 0 then 0.3 else 1 end as severity,
        case when refilled.method like 'kv_events%' then 0.95 else 0.65 end as confidence,
        format(
            'Reusable prefix blocks were reclaimed before they were asked for again: {:.0f} % of looked-up prompt tokens were found{}.',
            100 * ratio(facts.hit_tokens, facts.queried_tokens),
            coalesce(format(', {:.0f} % before', 100 * facts.best_hit_ratio), '')
        ) as summary,
        sentences([
            format('{} prompt tokens that used to be found in the prefix cache were computed.', spoken_count(facts.missed_tokens)),
            format('Active requests held at most {:.0f} % of the pool: the rest was cache, and it was written over.', 100 * facts.max_kv_usage_ratio),
            format('{} tokens of blocks removed earlier were stored again over the run, told by {}.', spoken_count(refilled.tokens_best), refilled.told_by),
            format('The engine counted {} tokens of blocks that it reclaimed over the run.', spoken_count(nullif(evidenced.evicted_tokens, 0))),
            format('Reclaimed blocks had lain idle for {} on average.', spoken_duration(evidenced.idle_s)),
            case when facts.preemptions = 0 then 'No preemption was counted.' end,
        ]) as evidence,
        sentences([
            case when refilled.method is distinct from 'kv_events' then 'From counters alone, prompts that share nothing look the same as evicted ones.' end,
            case when interrupted.preemptions > 0 then 'Requests were preempted in the same time: what they hold again is not cache.' end,
            case
                when evidenced.tier_queried_tokens > 0 then format(
                    'A tier behind the pool was asked for {} tokens over the run and had {} of them.',
                    spoken_count(evidenced.tier_queried_tokens), if(evidenced.tier_hit_tokens > 0, spoken_count(evidenced.tier_hit_tokens), 'none')
                )
            end,
        ]) as evidence_against,
        sentences([
            case when refilled.method is distinct from 'kv_events' then to_tell_evicted_from_new(facts.engine_kind, facts.engine_generation) end,
        ]) as missing,
    from facts
    left join refilled using (engine)
    left join evidenced using (engine)
    left join lateral (
        select sum(preempted.weight) as preemptions
        from facts as preempted
        where preempted.verdict = 'preemption'
            and preempted.engine = facts.engine
            and preempted.window_start <= facts.window_end
            and preempted.window_end >= facts.window_start
    ) as interrupted on true
    where facts.verdict = 'prefix_eviction'
        and facts.first_tokens >= 20 -- a hit ratio over fewer prompts is off by a quarter or more by chance
),

-- the time of transfers is told by few tiers; tokens moved are cheaper than tokens computed, so without it their share is a remark
offload as (
    select
        facts.engine,
        facts.verdict,
        facts.window_start,
        facts.window_end,
        facts.peak_at,
        15 * sqrt(clamp(coalesce(ratio(facts.restored_tokens, facts.queried_tokens), tiers.restored_share), 0, 1)) as severity,
        case when facts.restored_tokens is not null then 0.8 else 0.6 end as confidence,
        format(
            'The KV pool does not hold the prefixes that come back: {} were loaded from a tier behind it{}.',
            coalesce(
                format('{:.0f} % of looked-up prompt tokens', 100 * ratio(facts.restored_tokens, facts.queried_tokens)),
                format('{} prompt tokens', spoken_count(facts.weight))
            ),
            coalesce(format(', {:.0f} % were found in it', 100 * ratio(facts.hit_tokens, facts.queried_tokens)), '')
        ) as summary,
        sentences([
            format('{} prompt tokens were in this pool before, left it, and came back: moved, and not computed again.', spoken_count(facts.weight)),
            format('The pool holds {} tokens.', spoken_count(facts.kv_capacity_tokens)),
            format('The tier lost {} tokens for want of room of its own.', spoken_count(nullif(tiers.dropped_tokens, 0))),
        ]) as evidence,
        ['Each token that came back was one less to compute: the tier does its work.'] as evidence_against,
        ['What the transfers cost: keep the clients'' per-request results with the tier on, and with it off.'] as missing,
    from facts
    left join (
        select
            engine,
            sum(dropped_tokens) as dropped_tokens,
            max(ratio(restored_tokens, restored_tokens + stored_tokens)) as restored_share,
        from core.tier_restores
        group by engine
    ) as tiers using (engine)
    where facts.verdict = 'offload_pressure'
),

held_back as (
    select
        facts.engine,
        facts.verdict,
        facts.window_start,
        facts.window_end,
        facts.peak_at,
        delay_severity(ratio(facts.weight, facts.signs), ratio(facts.weight, facts.weight + served.seconds)) as severity,
        0.85 as confidence,
        format(
            '{} were held back by their own client, for {} on average, while the engine had room.',
            if(facts.signs = 1, 'One request', format('{} requests', spoken_count(facts.signs))),
            spoken_duration(ratio(facts.weight, facts.signs))
        ) as summary,
        sentences([
            format('Nobody waited in the engine then: {} ran at most{}.', facts.max_running, coalesce(format(', of {} slots', facts.max_num_seqs), '')),
            format('KV usage at most {:.0f} %.', 100 * facts.max_kv_usage_ratio),
            format('The client had at most {} requests in flight.', limits.max_concurrency),
        ]) as evidence,
        ['Whether the engine serves more at once as fast, only the experiment shows.'] as evidence_against,
        []::varchar[] as missing,
    from facts
    left join lateral (
        select sum(seconds_between(requests.arrived_at, requests.finished_at)) as seconds
        from core.requests
        where requests.engine = facts.engine
            and requests.client_queue_s >= 0.1
            and requests.arrived_at between facts.window_start and facts.window_end
    ) as served on true
    left join lateral (
        select max(runs.max_concurrency) as max_concurrency
        from staging.client_runs as runs
        where runs.started_at <= facts.window_end and runs.ended_at >= facts.window_start
    ) as limits on true
    where facts.verdict = 'client_limited'
),

interference as (
    select
        engine,
        verdict,
        window_start,
        window_end,
        peak_at,
        delay_severity(ratio(weight, greatest(first_tokens, 1)), ratio(weight, decode_s)) as severity,
        case when max_kv_usage_ratio < 0.9 and coalesce(preemptions, 0) = 0 then 0.85 else 0.6 end as confidence,
        format(
            'Long prefills slowed every running answer: {:.0f} % of the time between tokens went to steps that carried them.',
            100 * least(1, ratio(weight, decode_s))
        ) as summary,
        sentences([
            format('{:.1f} s of inter-token time beyond what decoding needed, summed over the streams.', weight),
            format('{} prompt tokens were computed meanwhile, {} a request.', spoken_count(prompt_tokens), spoken_count(ratio(prompt_tokens, first_tokens))),
            format('KV usage at most {:.0f} %.', 100 * max_kv_usage_ratio),
            case when preemptions = 0 then 'No preemption was counted: nobody lost KV state.' end,
        ]) as evidence,
        sentences([
            case when preemptions > 0 then format('{:.0f} preemptions in the same time explain part of the slow gaps.', preemptions) end,
        ]) as evidence_against,
        []::varchar[] as missing,
    from facts
    where verdict = 'prefill_interference'
),

slow as (
    select
        engine,
        verdict,
        window_start,
        window_end,
        peak_at,
        delay_severity(ratio(decode_s, greatest(first_tokens, 1)), 0.5) as severity,
        0.5 as confidence,
        format('Every token took long: {:.2f} s between tokens at {:.0f} running, without prefill, preemption or a queue to explain it.',
            ratio(decode_s, generation_tokens), mean_running) as summary,
        sentences([
            format('KV usage at most {:.0f} %, {:.0f} requests waiting on average.', 100 * max_kv_usage_ratio, mean_waiting),
        ]) as evidence,
        []::varchar[] as evidence_against,
        ['GPU utilization and clocks of that time (DCGM), and whether the batch outgrew the captured CUDA graphs (the engine''s start-up lines).'] as missing,
    from facts
    where verdict = 'decode_slow'
),

cold as (
    select
        engine,
        verdict,
        window_start,
        window_end,
        peak_at,
        delay_severity(ratio(weight, greatest(first_tokens, 1)), 0.8) as severity,
        0.75 as confidence,
        format(
            'The engine had just started: the first tokens of its first requests took {} on average, with nobody waiting.',
            spoken_duration(ratio(weight, first_tokens))
        ) as summary,
        sentences([
            format('{:.0f} requests got their first token in this time; {:.0f} ran on average, none waited.', first_tokens, mean_running),
            format('KV usage at most {:.0f} %.', 100 * max_kv_usage_ratio),
        ]) as evidence,
        []::varchar[] as evidence_against,
        []::varchar[] as missing,
    from facts
    where verdict = 'cold_start'
),

totals as (
    select
        engine,
        sum(delta) filter (where signal = 'ttft_s_count') as first_tokens,
        sum(delta) filter (where signal = 'itl_s_sum') as decode_s,
    from core.counter_intervals
    group by engine
),

halted as (
    select
        facts.engine,
        verdict,
        window_start,
        window_end,
        peak_at,
        -- a pause of a second is an instant of the run: it is felt by what it adds to all of the run's requests
        delay_severity(
            ratio(facts.weight, greatest(totals.first_tokens, 1)),
            ratio(facts.weight, greatest(totals.decode_s, facts.weight))
        ) as severity,
        0.8 as confidence,
        format(
            'All answers stood still together, for {} at the longest: the engine, its host or the way to the clients paused.',
            spoken_duration(peak_weight)
        ) as summary,
        [
            format('Client streams lost {:.1f} s in all to pauses of a second or more that every stream shared.', weight),
            'Nobody lost KV state by it: in a preemption the other streams run on.',
        ] as evidence,
        []::varchar[] as evidence_against,
        [to_tell_whether_it_stepped(engine_kind, engine_generation)] as missing,
    from facts
    left join totals using (engine)
    where verdict = 'engine_pause'
),

runaway as (
    select
        engine,
        verdict,
        window_start,
        window_end,
        peak_at,
        -- it costs others what it holds: more where they wait
        case when max_waiting > 0 then 50 else 25 end as severity,
        0.7 as confidence,
        format(
            '{} requests generated for {} without a pause, {} tokens each or more: an answer nobody limited.',
            max_running, spoken_duration(window_s), spoken_count(peak_weight)
        ) as summary,
        sentences([
            format('No prompt was computed in that time, and {} requests ran throughout.', max_running),
            format('KV usage rose to {:.0f} %.', 100 * max_kv_usage_ratio),
            case when max_waiting > 0 then format('Up to {} requests waited behind them.', max_waiting) end,
        ]) as evidence,
        []::varchar[] as evidence_against,
        [to_tell_output_limits(engine_kind)] as missing,
    from facts
    where verdict = 'runaway_generation'
),

uneven as (
    select
        facts.engine,
        facts.verdict,
        facts.window_start,
        facts.window_end,
        facts.peak_at,
        100 * sqrt(1 - ratio(loads.mean_running, loads.running)) * 0.7 as severity,
        case when facts.is_instant then 0.4 else 0.85 end as confidence,
        format(
            'The load is uneven: this engine runs {:.0f} requests where the {} engines run {:.1f} on average and one only {:.0f}.',
            loads.running, loads.ranks, loads.mean_running, loads.least_running
        ) as summary,
        case when facts.is_instant then [] else [format('Held for {} of the time observed.', spoken_duration(facts.seconds))] end as evidence,
        case when facts.is_instant then [only_an_instant()] else [] end as evidence_against,
        case when facts.is_instant then [a_second_look()] else [] end as missing,
    from facts
    left join (
        select
            facts.engine,
            facts.window_start,
            avg(rank_loads.running) as running,
            avg(rank_loads.mean_running) as mean_running,
            avg(rank_loads.least_running) as least_running,
            max(rank_loads.ranks) as ranks,
        from facts
        inner join core.rank_loads
            on rank_loads.engine = facts.engine
            and rank_loads.sampled_at between facts.window_start and facts.window_end
        where facts.verdict = 'imbalance'
        group by all
    ) as loads using (engine, window_start)
    where facts.verdict = 'imbalance'
),

stalled as (
    select
        engine,
        verdict,
        window_start,
        window_end,
        peak_at,
        least(100, 60 + window_s / 10) as severity,
        0.85 as confidence,
        format(
            'The engine held {:.0f} running and {:.0f} waiting requests and produced no token for {}: stalled, not idle.',
            mean_running, mean_waiting, spoken_duration(window_s)
        ) as summary,
        ['Prompt and generation counters stood still while requests were in the engine.'] as evidence,
        []::varchar[] as evidence_against,
        ['The engine''s log of that time, for the error or lock behind it.'] as missing,
    from facts
    where verdict = 'engine_stalled'
)

select
    engine,
    verdict,
    window_start,
    window_end,
    peak_at,
    round(clamp(severity, 0, 100), 1) as severity,
    confidence,
    summary,
    evidence,
    evidence_against,
    missing,
from (
    from preemption
    union all by name
    from failing
    union all by name
    from queueing
    union all by name
    from eviction
    union all by name
    from offload
    union all by name
    from held_back
    union all by name
    from interference
    union all by name
    from slow
    union all by name
    from cold
    union all by name
    from halted
    union all by name
    from runaway
    union all by name
    from uneven
    union all by name
    from stalled
)
order by engine, verdict, window_start
