-- What each spell of prefixes that had left the pool amounts to: computed again, or loaded from a tier behind it.
--
-- step:  verdicts
-- grain: engine, verdict, window_start
-- needs: core.prefix_intervals or marts.spell_facts or staging.engine_samples
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
with refilled as (
    select engine, tokens_low, tokens_best, tokens_high, share_best, method, told_by
    from marts.waste
    where kind = 'prefix_refill'
),

recomputed as (
    select engine, tokens_best
    from marts.waste
    where kind = 'preemption_recompute'
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
        -- where requests are preempted the cache goes first: the same shortage, named by its worse half. That is preemption, unless
        -- KV events show that more was computed again of evicted prefixes than of preempted requests.
        * case
            when coalesce(interrupted.preemptions, 0) = 0 then 1
            when refilled.method = 'kv_events' and refilled.tokens_best > recomputed.tokens_best then 1
            else 0.3
        end as severity,
        case when refilled.method like 'kv_events%' then 0.95 else 0.65 end as confidence,
        format(
            'Reusable prefix blocks were reclaimed before they were asked for again: {:.0f} % of looked-up prompt tokens were found{}.',
            100 * ratio(facts.hit_tokens, facts.queried_tokens),
            -- where KV events show it, hits may have been as few all along
            case
                when facts.best_hit_ratio >= ratio(facts.hit_tokens, facts.queried_tokens) + 0.05 then format(', {:.0f} % at best before', 100 * facts.best_hit_ratio)
                else ''
            end
        ) as summary,
        sentences([
            -- as many as the hits fell short of the best time by: where KV events tell, that is not needed
            case
                when refilled.method is distinct from 'kv_events' then format(
                    '{} prompt tokens that used to be found in the prefix cache were computed.', spoken_count(facts.missed_tokens)
                )
            end,
            format(
                case
                    when facts.max_kv_usage_ratio < 0.95
                        then 'Active requests held at most {:.0f} % of the pool: the rest was cache, and it was written over.'
                    else 'Active requests held up to {:.0f} % of the pool: what was kept for reuse had to make way.'
                end,
                100 * facts.max_kv_usage_ratio
            ),
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
            case when refilled.method is distinct from 'kv_events' then to_tell_evicted_from_new(engines.engine_kind, engines.engine_generation) end,
        ]) as missing,
    from marts.spell_facts as facts
    left join core.engines using (engine)
    left join refilled using (engine)
    left join recomputed using (engine)
    left join evidenced using (engine)
    left join lateral (
        select sum(preempted.weight) as preemptions
        from marts.spell_facts as preempted
        where preempted.verdict = 'preemption'
            and preempted.engine = facts.engine
            and preempted.window_start <= facts.window_end
            and preempted.window_end >= facts.window_start
    ) as interrupted on true
    where facts.verdict = 'prefix_eviction'
        and facts.first_tokens >= 20 -- a hit ratio over fewer prompts is off by a quarter or more by chance
),

-- A fall that is less than a sign: half of the hits or more are gone, but less than a third of what was looked up. Prompts that grow, or
-- that share less, do the same to a ratio, so it is a remark: a tenth of what it would be. Not where KV events tell.
fallen as (
    select engine, min(interval_start) as window_start, max(interval_end) as window_end
    from core.prefix_intervals
    anti join (from marts.spell_facts where verdict = 'prefix_eviction') using (engine)
    anti join (from refilled where method like 'kv_events%') using (engine)
    where near_lookups >= 10 -- as of the sign
        and hit_ratio + coalesce(restored_ratio, 0) <= best_hit_ratio / 2
        and best_hit_ratio - hit_ratio >= 0.15 -- less is chance, or some other prompts
        and missed_tokens > 0
        and written_tokens > kv_capacity_tokens
    group by engine
),

-- over the whole time between, for a ratio that falls and recovers is a load of many kinds
fall as (
    select
        fallen.*,
        arg_max(intervals.interval_start, intervals.missed_tokens) as peak_at,
        sum(intervals.missed_tokens) as missed_tokens,
        sum(intervals.queried_tokens) as queried_tokens,
        ratio(sum(intervals.hit_tokens), sum(intervals.queried_tokens)) as hit_ratio,
        max(intervals.best_hit_ratio) as best_hit_ratio,
    from fallen
    inner join core.prefix_intervals as intervals
        on intervals.engine = fallen.engine
        and intervals.interval_end > fallen.window_start
        and intervals.interval_end <= fallen.window_end
    group by all
    having sum(intervals.lookups) >= 20
        and ratio(sum(intervals.hit_tokens) + coalesce(sum(intervals.restored_tokens), 0), sum(intervals.queried_tokens))
        <= max(intervals.best_hit_ratio) / 2
),

likeness as (
    select
        fall.engine,
        'prefix_eviction' as verdict,
        fall.window_start,
        fall.window_end,
        fall.peak_at,
        10 * sqrt(clamp(ratio(fall.missed_tokens, fall.queried_tokens), 0, 1)) as severity,
        0.35 as confidence,
        format(
            'The prefix cache found {:.0f} % of looked-up prompt tokens, {:.0f} % at best before: reclaimed prefixes, or prompts that grew or share less.',
            100 * fall.hit_ratio, 100 * fall.best_hit_ratio
        ) as summary,
        sentences([
            format(
                'Had as many been found as before, {} prompt tokens fewer would have been computed; more had been written than the pool holds.',
                spoken_count(fall.missed_tokens)
            ),
        ]) as evidence,
        ['From counters alone, a change of the load looks the same: this is a remark.'] as evidence_against,
        [
            format(
                'Why the prefix cache found {:.0f} % of looked-up prompt tokens after {:.0f} %. {}',
                100 * fall.hit_ratio, 100 * fall.best_hit_ratio, to_tell_evicted_from_new(engines.engine_kind, engines.engine_generation)
            ),
        ] as missing,
    from fall
    left join core.engines using (engine)
),

-- A log prints the ratio over the engine's own last requests, which falls late and by less than the ratio of one time does. Where nothing
-- counts, half of it gone is worth as much of a remark.
logged as (
    select
        engine,
        sampled_at,
        prefix_hit_ratio as hit_ratio,
        max(prefix_hit_ratio) over before as best_hit_ratio,
        arg_max(sampled_at, prefix_hit_ratio) over before as best_at,
    from staging.engine_samples
    where prefix_hit_ratio is not null
        and engine not in (select engine from core.prefix_intervals)
        and engine not in (select engine from refilled where method like 'kv_events%')
    window before as (partition by engine order by sampled_at rows between unbounded preceding and 1 preceding)
),

logged_fall as (
    select
        engine,
        arg_min(best_at, hit_ratio) as window_start,
        max(sampled_at) as window_end,
        arg_min(sampled_at, hit_ratio) as peak_at,
        min(hit_ratio) as hit_ratio,
        arg_min(best_hit_ratio, hit_ratio) as best_hit_ratio,
        max(best_hit_ratio - hit_ratio) as lost_ratio,
    from logged
    where hit_ratio <= best_hit_ratio / 2 and best_hit_ratio - hit_ratio >= 0.15
    group by engine
),

logged_likeness as (
    select
        fall.engine,
        'prefix_eviction' as verdict,
        fall.window_start,
        fall.window_end,
        fall.peak_at,
        10 * sqrt(fall.lost_ratio) as severity,
        0.3 as confidence,
        format('The {}: reclaimed prefixes, or prompts that grew or share less.', what_fell) as summary,
        []::varchar[] as evidence,
        ['A log tells no more of it: this is a remark.'] as evidence_against,
        [
            format(
                'Why the {}: /metrics counts them. {}',
                what_fell, to_tell_evicted_from_new(engines.engine_kind, engines.engine_generation)
            ),
        ] as missing,
    from logged_fall as fall
    left join core.engines using (engine)
    cross join lateral (
        select format(
            'log''s share of prompt tokens found in the prefix cache fell from {:.0f} to {:.0f} %',
            100 * fall.best_hit_ratio, 100 * fall.hit_ratio
        ) as what_fell,
    ) as said
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
            format('The pool holds {} tokens.', spoken_count(setups.kv_capacity_tokens)),
            format('The tier lost {} tokens for want of room of its own.', spoken_count(nullif(tiers.dropped_tokens, 0))),
        ]) as evidence,
        ['Each token that came back was one less to compute: the tier does its work.'] as evidence_against,
        ['What the transfers cost: keep the clients'' per-request results with the tier on, and with it off.'] as missing,
    from marts.spell_facts as facts
    left join core.engine_setups as setups
        on setups.engine = facts.engine and is_within(facts.peak_at, setups.setup_start, setups.setup_end)
    left join (
        select
            engine,
            sum(dropped_tokens) as dropped_tokens,
            max(ratio(restored_tokens, restored_tokens + stored_tokens)) as restored_share,
        from core.tier_restores
        group by engine
    ) as tiers on tiers.engine = facts.engine
    where facts.verdict = 'offload_pressure'
)

select engine, verdict, window_start, window_end, peak_at, severity, confidence, summary, evidence, evidence_against, missing,
from (
    from eviction
    union all by name from likeness
    union all by name from logged_likeness
    union all by name from offload
)
order by engine, verdict, window_start
