-- Prefix-cache hits in each scrape interval, against the best the same engine has shown before.
--
-- A fall of the hit ratio under a wider load, with more new tokens written than the pool holds, is what eviction looks like from
-- counters; new prompts that share nothing look the same, so counters alone make it likely and KV events make it certain.
-- The best before is taken over a stretch of at least ten lookups' worth of tokens, so that one lucky prompt does not set it; after a
-- restart it starts again, for a cold cache is not an evicted one.
--
-- What a tier gave back counts where it is known that this engine had it before: by the tier's kind (host memory or disk, SGLang's own
-- hierarchy, a store that keeps what the engine itself wrote), or by KV events. What another engine sent is no sign of a small pool.
--
-- grain: engine, interval_end
-- needs: core.counter_intervals
-- column: engine             VARCHAR     | Engine.
-- column: interval_start     TIMESTAMPTZ | Scrape before.
-- column: interval_end       TIMESTAMPTZ | Scrape.
-- column: queried_tokens     DOUBLE      | Prompt tokens looked up.
-- column: hit_tokens         DOUBLE      | Of these, found.
-- column: hit_ratio          DOUBLE      | hit_tokens / queried_tokens over the interval and the two before it.
-- column: best_hit_ratio     DOUBLE      | Highest such ratio seen before, since the engine started.
-- column: refilled_tokens    BIGINT      | Tokens of removed blocks that another prompt stored again; NULL without KV events.
-- column: missed_tokens      DOUBLE      | Tokens that would have been found at the best ratio and were neither found nor given back by a tier, or that were refilled, whichever is more; NULL where neither is known.
-- column: restored_tokens    DOUBLE      | Prompt tokens that were here before and came back from a tier (host memory, disk, a store); NULL where that is not known.
-- column: restored_ratio     DOUBLE      | restored_tokens / queried_tokens over the interval and the two before it.
-- column: lookups            DOUBLE      | Requests that got their first token in the interval.
-- column: near_lookups       DOUBLE      | Requests that got theirs in it and the two before it.
-- column: written_tokens     DOUBLE      | New KV tokens written since the engine's first scrape or restart: over the pool's size, something was evicted.
-- column: kv_capacity_tokens BIGINT      | Tokens the pool holds.
-- check:  hit_tokens <= queried_tokens | Shares of what was looked up, on versions that count tokens.
with counters as (
    select
        engine,
        interval_start,
        interval_end,
        coalesce(
            sum(delta) filter (where signal = 'prefix_queries'),
            -- SGLang and TensorRT-LLM count prompts and what of them was cached, both when a request ends
            if(bool_or(signal = 'cached_prompt_tokens'), sum(delta) filter (where signal = 'prompt_tokens'), null)
        ) as queried_tokens,
        coalesce(
            sum(delta) filter (where signal = 'prefix_hits'),
            clamp(
                sum(delta) filter (where signal = 'cached_prompt_tokens' and labels not like '%cache_source=total%'),
                0,
                sum(delta) filter (where signal = 'prompt_tokens')
            )
        ) as hit_tokens,
        coalesce(
            sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%source=local_compute%'),
            sum(delta) filter (where signal = 'prompt_tokens')
                - coalesce(sum(delta) filter (where signal = 'cached_prompt_tokens' and labels not like '%cache_source=total%'), 0)
        ) as prompt_tokens,
        sum(delta) filter (where signal = 'generation_tokens') as generation_tokens,
        bool_or(is_reset) as is_reset,
        sum(delta) filter (where signal = 'ttft_s_count') as first_tokens,
        sum(delta) filter (
            where signal = 'prompt_tokens_cached_by_source' and regexp_matches(labels, '(^|,)source=(host|disk)(,|$)')
        ) as own_tier_tokens,
        coalesce(
            sum(delta) filter (where signal = 'external_prefix_hits')
                - coalesce(sum(delta) filter (where signal = 'prompt_tokens_cached_by_source' and labels like '%source=p2p%'), 0),
            sum(delta) filter (where signal = 'tier_restored_tokens' and is_of_kv_pool(labels))
        ) as tier_tokens,
    from core.counter_intervals
    group by all
),

again as (
    select
        counters.engine,
        counters.interval_end,
        -- an interval and the two before it: blocks are stored a little before or after the counter says so
        sum(sum(again.blocks_after_removal * again.block_size)) over (
            partition by counters.engine order by counters.interval_end rows 2 preceding
        ) as near_again_tokens,
        (sum(again.blocks_after_removal * again.block_size) filter (where again.kind = 'refill'))::bigint as refilled_tokens,
    from counters
    left join core.blocks_stored_again as again
        on again.engine = counters.engine
        and again.stored_at > counters.interval_start
        and again.stored_at <= counters.interval_end
    group by counters.engine, counters.interval_end
),

told as (
    select
        counters.*,
        setups.kv_capacity_tokens,
        -- with an external tier a block stored again may have been loaded, not computed
        if(setups.kv_connector is null, again.refilled_tokens, null) as refilled_tokens,
        case
            when counters.own_tier_tokens > 0 then counters.own_tier_tokens
            when engines.engine_kind = 'sglang' then counters.tier_tokens
            when counters.engine in (select engine from staging.kv_events)
                then if(counters.tier_tokens is null, null, least(counters.tier_tokens, coalesce(again.near_again_tokens, 0)))
            when keeps_own_blocks(setups.kv_connector) then counters.tier_tokens
        end as restored_tokens,
    from counters
    left join again using (engine, interval_end)
    left join core.engines using (engine)
    left join core.engine_setups as setups
        on setups.engine = counters.engine and is_within(counters.interval_end, setups.setup_start, setups.setup_end)
),

lives as (
    select *, sum(is_reset::int) over (partition by engine order by interval_end) as life from told
),

smoothed as (
    select
        *,
        sum(first_tokens) over near as near_lookups,
        ratio(sum(hit_tokens) over near, sum(queried_tokens) over near) as hit_ratio,
        ratio(sum(restored_tokens) over near, sum(queried_tokens) over near) as restored_ratio,
        sum(coalesce(prompt_tokens, 0) + coalesce(generation_tokens, 0)) over so_far as written_tokens,
    from lives
    window
        near as (partition by engine, life order by interval_end rows 2 preceding),
        so_far as (partition by engine, life order by interval_end)
),

compared as (
    select
        *,
        max(hit_ratio) filter (where near_lookups >= 10) over before as best_hit_ratio,
    from smoothed
    window before as (partition by engine, life order by interval_end rows between unbounded preceding and 1 preceding)
)

select
    compared.engine,
    compared.interval_start,
    compared.interval_end,
    compared.queried_tokens,
    compared.hit_tokens,
    compared.hit_ratio,
    compared.best_hit_ratio,
    compared.refilled_tokens,
    at_least_zero(greatest(
        compared.best_hit_ratio * compared.queried_tokens - compared.hit_tokens - coalesce(compared.tier_tokens, 0),
        compared.refilled_tokens
    )) as missed_tokens,
    compared.restored_tokens,
    compared.restored_ratio,
    compared.first_tokens as lookups,
    compared.near_lookups,
    compared.written_tokens,
    compared.kv_capacity_tokens,
from compared
where compared.queried_tokens is not null
order by compared.engine, compared.interval_end
