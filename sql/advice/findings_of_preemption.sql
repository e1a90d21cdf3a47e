-- What each spell of preemption amounts to: who was interrupted, what was repeated.
--
-- step:  verdicts
-- grain: engine, verdict, window_start
-- needs: marts.spell_facts
-- column: engine           VARCHAR      | Engine.
-- column: verdict          VARCHAR      | What happened.
-- column: window_start     TIMESTAMPTZ  | When it began.
-- column: window_end       TIMESTAMPTZ  | When it was last seen.
-- column: peak_at          TIMESTAMPTZ  | When it was worst.
-- column: severity         DOUBLE       | As felt or paid, on the scale of all verdicts; not rounded, and not held to its ends.
-- column: confidence       DECIMAL(3,2) | 0 to 1.
-- column: summary          VARCHAR      | One sentence.
-- column: evidence         VARCHAR[]    | Sentences that speak for it.
-- column: evidence_against VARCHAR[]    | Sentences that speak against it, or bound it.
-- column: missing          VARCHAR[]    | What would settle it next time.
with repeated as (
    select engine, tokens_low, tokens_best, tokens_high, share_low, share_best, share_high, told_by
    from marts.waste
    where kind = 'preemption_recompute'
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
            '{} preemptions in {}: running requests lost their KV blocks{}{}.',
            round(facts.weight)::bigint,
            spoken_duration(seconds_between(facts.window_start, facts.window_end)),
            -- where the pool was seen, or the engine's own lines say so
            case when facts.max_kv_usage_ratio is not null or lines.engine is not null then ' because the pool was full' else '' end,
            case
                when facts.paused_requests > 0 then format(
                    '; {} of the answers seen paused, the longest for {}', facts.paused_requests, spoken_duration(facts.longest_pause_s)
                )
                else ''
            end
        ) as summary,
        sentences([
            format(
                'The engine counted {} preemptions{}.',
                round(facts.weight)::bigint,
                if(overall.count_low > round(facts.weight), format(' in this time, {} over the run', spoken_count(overall.count_low)), '')
            ),
            case
                when are_enough_samples(facts.samples) then format(
                    'KV usage reached {:.0f} % with {:.0f} requests running on average.', 100 * facts.max_kv_usage_ratio, facts.mean_running
                )
                when facts.max_kv_usage_ratio >= 0.9 then format('KV usage reached {:.0f} %.', 100 * facts.max_kv_usage_ratio)
            end,
            format(
                'Over the run {} tokens were processed again (between {} and {}){}. Told by {}.',
                spoken_count(repeated.tokens_best), spoken_count(repeated.tokens_low), spoken_count(repeated.tokens_high),
                coalesce(format(': {:.0f} % of all tokens computed', 100 * repeated.share_best), ''), repeated.told_by
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
            case
                when facts.first_tokens is null and facts.max_running + facts.max_waiting > 0 then format( -- too few, most of the time
                    'How many requests were served is not told: the severity is set against the {} that ran or waited at most, and may be less.',
                    facts.max_running + facts.max_waiting
                )
                when repeated.share_best is null
                    then 'What share of all tokens was processed again is not told, and not in the severity: it may be worse.'
            end,
            case
                when not are_enough_samples(facts.samples) and facts.max_kv_usage_ratio < 0.9 then format(
                    'The samples in it ({}) show the pool {:.0f} % full at most, and up to {} running: it was fuller between them. Scrape more often.',
                    facts.samples, 100 * facts.max_kv_usage_ratio, facts.max_running
                )
            end,
        ]) as evidence_against,
        sentences([
            case
                when repeated.tokens_best is null
                    then to_tell_repeated_tokens(engines.engine_kind, engines.engine_generation, engines.prefix_caching)
            end,
            case when facts.paused_requests is null then to_tell_whose_answers_paused(engines.engine_kind) end,
        ]) as missing,
    from marts.spell_facts as facts
    left join core.engines using (engine)
    left join repeated using (engine)
    left join swaps using (engine)
    left join marts.preemptions as overall using (engine)
    left join (
        select distinct engine from staging.engine_events where event = 'retraction' or event like 'preemption_warning%'
    ) as lines using (engine)
    left join (select engine, count(*) as requests from core.requests group by engine) as recorded using (engine)
    where facts.verdict = 'preemption'
)

select engine, verdict, window_start, window_end, peak_at, severity, confidence, summary, evidence, evidence_against, missing,
from preemption
order by engine, verdict, window_start
