-- What each spell of waiting amounts to: for what requests waited, and what failed instead.
--
-- step:  verdicts
-- grain: engine, verdict, window_start
-- needs: marts.spell_facts
-- column: engine           VARCHAR       | Engine.
-- column: verdict          VARCHAR       | What happened.
-- column: window_start     TIMESTAMPTZ   | When it began.
-- column: window_end       TIMESTAMPTZ   | When it was last seen.
-- column: peak_at          TIMESTAMPTZ   | When it was worst.
-- column: severity         DOUBLE        | As felt or paid, on the scale of all verdicts; not rounded, and not held to its ends.
-- column: confidence       DECIMAL(18,5) | 0 to 1.
-- column: summary          VARCHAR       | One sentence.
-- column: title            VARCHAR       | What to call it where the verdict's own word says something else; NULL where that word will do.
-- column: evidence         VARCHAR[]     | Sentences that speak for it.
-- column: evidence_against VARCHAR[]     | Sentences that speak against it, or bound it.
-- column: missing          VARCHAR[]     | What would settle it next time.
with facts as (
    select
        facts.*,
        replace(facts.verdict, 'queue_', '') as cause,
        setups.max_num_seqs,
        setups.max_num_seqs_source,
        setups.ranks_summed,
        setups.kv_capacity_tokens,
        engines.engine_kind,
        coalesce(slots.setting, 'max_num_seqs') as slots_setting,
        seconds_between(facts.window_start, facts.window_end) as window_s,
        facts.seconds = 0 as is_instant, -- one sample alone showed it
        ratio(facts.mean_waiting, facts.mean_waiting + facts.mean_running) as waiting_share,
        -- a histogram is of those that ended in the spell: where they had been there for longer than it lasted, they came before it, and
        -- who waited in it ends after it
        not coalesce(facts.is_wait_recorded, false) and ratio(facts.e2e_s, facts.queued_requests) > facts.seconds as is_wait_of_others,
    from marts.spell_facts as facts
    left join core.engines using (engine)
    left join core.engine_setups as setups
        on setups.engine = facts.engine and is_within(facts.peak_at, setups.setup_start, setups.setup_end)
    left join engine_settings_known() as slots on slots.lever = 'more_sequences' and slots.engine_kind = engines.engine_kind
    where facts.verdict like 'queue%'
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
        'Requests failed for lack of KV room' as title, -- who fails does not wait
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
        delay_severity(ratio(facts.queued_s, facts.queued_requests), ratio(facts.queued_s, facts.e2e_s)) as told_severity,
        -- no histogram, or one of others: by how many of those in the house wait, and for how long they have
        case
            when facts.is_instant then instant_severity(facts.waiting_share)
            else delay_severity(facts.seconds / 10, facts.waiting_share)
        end as seen_severity,
        case when is_wait_of_others then greatest(told_severity, seen_severity) else coalesce(told_severity, seen_severity) end as severity,
        queue_confidence(facts.cause, facts.max_num_seqs_source, facts.max_kv_usage_ratio)
        * case when facts.is_instant then 0.5 else 1 end as confidence,
        waited_for(facts.cause, facts.max_num_seqs, facts.slots_setting, facts.max_kv_usage_ratio) as waited_for,
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
                        -- preemptions are counted, not the requests: one may be preempted many times
                        then format('; preempted requests waited among them to run again, {}', spoken_times(round(facts.preemptions)))
                    else ''
                end
            )
        end as summary,
        sentences([
            case when not facts.is_instant then format('Up to {} requests were seen waiting, and {} running.', facts.max_waiting, facts.max_running) end,
            case
                when facts.is_instant then format('KV usage was {:.0f} %.', 100 * facts.max_kv_usage_ratio)
                else format(
                    'KV usage was {:.0f} % on average, {:.0f} % at most.',
                    round(100 * facts.mean_kv_usage_ratio, 6), round(100 * facts.max_kv_usage_ratio, 6)
                )
            end,
            case facts.max_num_seqs_source
                when 'argument' then format(
                    '{} is {} (the engine''s own arguments){}.',
                    facts.slots_setting,
                    facts.max_num_seqs // coalesce(facts.ranks_summed, 1),
                    case when facts.ranks_summed > 1 then format(' for each of {} data-parallel ranks, whose sum is seen', facts.ranks_summed) else '' end
                )
                when 'inferred' then format('The running count stays at {}: taken for {}, which no input states.', facts.max_num_seqs, facts.slots_setting)
            end,
            format(
                'Requests that {} in this time had waited {:.2f} s each before their first run, {:.0f} % of their whole latency.',
                case when facts.is_wait_recorded then 'first ran' else 'ended' end,
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
            case when is_wait_of_others then 'Who ended in this time had mostly come before it: the waits of those that queued in it are not among theirs.' end,
            case
                when facts.verdict = 'queue_max_num_seqs' and facts.max_kv_usage_ratio is null
                    then 'Nothing shows how full the KV pool was: whether it has room for more than these is not known.'
            end,
            case
                when facts.verdict = 'queue_kv_capacity' and round(facts.preemptions) > 0
                    then format(
                        'Part of the waiting had run before: {} put them back into the queue.',
                        if(round(facts.preemptions) = 1, 'one preemption', spoken_count(facts.preemptions) || ' preemptions')
                    )
            end,
            case when facts.verdict = 'queue_token_budget' then 'Token-budget waits are told by exclusion: slots and pool had room and prompts were being worked off.' end,
        ]) as evidence_against,
        sentences([
            case
                when facts.is_instant then a_second_look()
                when facts.queued_requests is not null or facts.engine in (select engine from core.counter_intervals where signal = 'queue_s_count')
                    then null
                when facts.engine_kind = 'sglang' then 'How long each request waited, first and again: --export-metrics-to-file.'
                when facts.engine_kind = 'llamacpp' then 'How long each request waited: llama.cpp says so nowhere; keep the clients'' results.'
                when coalesce(facts.engine_kind, 'vllm') = 'vllm' then 'How long each request waited: scrape /metrics (vllm:request_queue_time_seconds).'
                else 'How long each request waited: scrape /metrics, and keep the clients'' results.'
            end,
            case when facts.verdict = 'queue_unknown' and facts.max_num_seqs is null then format('The value of {}: keep the engine''s start-up lines.', facts.slots_setting) end,
        ]) as missing,
    from facts
    anti join failed using (engine, verdict, window_start)
)

select engine, verdict, window_start, window_end, peak_at, severity, confidence, summary, title, evidence, evidence_against, missing,
from (
    from failing
    union all by name from queueing
)
order by engine, verdict, window_start
