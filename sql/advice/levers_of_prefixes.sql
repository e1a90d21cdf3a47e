-- What to change where reusable prefixes are reclaimed before they are asked for again: keep them longer, or ask sooner.
--
-- Each lever gets its value from the run's own numbers, or falls away. Which of them the engine has, and which are told:
-- advice.proposals.
--
-- step:  recommendations
-- grain: engine, verdict, lever
-- needs: advice.lever_facts
-- column: engine     VARCHAR   | Engine.
-- column: verdict    VARCHAR   | The verdict it answers.
-- column: lever      VARCHAR   | The lever, as the catalogue calls it.
-- column: from_value VARCHAR   | Its value in the run; NULL where no input says. Of levers outside of the engine: the quantity it acts on.
-- column: to_value   VARCHAR   | The value proposed; NULL for a lever that has none.
-- column: effects    VARCHAR[] | Sentences on what should change; NULL among them where the run lacks a number.
-- column: estimates  VARCHAR[] | Sentences on how much of it to expect by rule of thumb; a replay, where there is one, takes their place.
-- column: prices     VARCHAR[] | Sentences on what it costs by rule of thumb; a replay takes their place, too.
-- column: evidence   VARCHAR[] | Sentences with the run's numbers that the value rests on.
-- column: method     VARCHAR   | How value and effect were worked out.

-- a host tier as large as what was reclaimed in the run, where KV events tell; at most four times the pool, and else twice it
with tiers as (
    select
        *,
        case
            when evicted_tokens > 0 then least(evicted_tokens, 4 * kv_capacity_tokens)
            else 2 * kv_capacity_tokens
        end as tier_tokens,
        case when not coalesce(has_fixed_pool, false) then ratio(kv_cache_memory_gib, kv_capacity_tokens) end as gib_per_token,
    from advice.lever_facts
    where verdict = 'prefix_eviction' and kv_connector is null and not coalesce(has_host_tier, false)
),

host_tier as (
    select
        engine,
        verdict,
        unnest(['host_tier', 'host_tier_connector']) as lever,
        null as from_value,
        coalesce(
            format('{:.0f} GiB', ceil(tier_tokens * gib_per_token)),
            format('memory for {} tokens', spoken_count(tier_tokens))
        ) as to_value,
        [
            format(
                'Up to {} prompt tokens would have been copied back instead of computed: hits go from {:.0f} % back towards '
                '{:.0f} %.',
                spoken_count(missed_tokens), 100 * hit_ratio, 100 * best_hit_ratio
            ),
        ] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [
            format(
                '{} tokens of reusable blocks were reclaimed in the run; the pool holds {}.',
                spoken_count(evicted_tokens), spoken_count(kv_capacity_tokens)
            ),
        ] as evidence,
        case
            when evicted_tokens > 0 then 'blocks removed, from KV events, at most four times the pool'
            else 'twice the pool, as a start: no input shows how much was reclaimed'
        end as method,
    from tiers
),

locality as (
    select
        engine,
        verdict,
        'locality' as lever,
        format('{:.0f} % of prompt tokens found', 100 * hit_ratio) as from_value,
        format('up to {:.0f} %', 100 * best_hit_ratio) as to_value,
        [
            coalesce(
                format('Up to {} prompt tokens of the run need not be computed again.', spoken_count(missed_tokens)),
                'Prefixes are asked for while they are still in the pool.'
            ),
        ] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [format('{:.0f} % of prompt tokens were found, and up to {:.0f} % might be.', 100 * hit_ratio, 100 * best_hit_ratio)] as evidence,
        'tokens found at the best earlier hit ratio and not found now' as method,
    from advice.lever_facts
    where verdict = 'prefix_eviction' and severity >= 20
),

locality_beside_a_tier as (
    select
        engine,
        verdict,
        'locality' as lever,
        format('{:.0f} % of prompt tokens come back from a tier', 100 * restored_ratio) as from_value,
        'found in the pool' as to_value,
        [
            coalesce(
                format('Up to {} prompt tokens of the run need not be moved.', spoken_count(restored_tokens)),
                'Prefixes are asked for while they are still in the pool.'
            ),
        ] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [format('The pool itself had {:.0f} % of them.', 100 * hit_ratio)] as evidence,
        'tokens that were in the pool before and came back from a tier' as method,
    from advice.lever_facts
    where verdict = 'offload_pressure'
),

proposed as (
    from host_tier
    union all by name from locality
    union all by name from locality_beside_a_tier
)

select engine, verdict, lever, from_value, to_value, effects, estimates, prices, evidence, method,
from proposed
order by engine, verdict, lever
