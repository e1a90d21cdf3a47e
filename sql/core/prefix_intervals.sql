-- Prefix-cache hits in each scrape interval, against the best the same engine has shown before.
--
-- A fall of the hit ratio under a wider load, with more new tokens written than the pool holds, is what eviction looks like from
-- counters; new prompts that share nothing look the same, so counters alone make it likely and KV events make it certain.
-- The best before is taken over a stretch of at least ten lookups' worth of tokens, so that one lucky prompt does not set it; after a
-- restart it starts again, for a cold cache is not an evicted one.
--
-- grain: engine, interval_end
-- column: engine           | Engine.
-- column: interval_start   | Scrape before.
-- column: interval_end     | Scrape.
-- column: queried_tokens   | Prompt tokens looked up.
-- column: hit_tokens       | Of these, found.
-- column: hit_ratio        | hit_tokens / queried_tokens over the interval and the two before it.
-- column: best_hit_ratio   | Highest such ratio seen before, since the engine started.
-- column: refilled_tokens  | Tokens of removed blocks that another prompt stored again; NULL without KV events.
-- column: missed_tokens    | Tokens that would have been found at the best ratio and were not, or that were refilled, whichever is more; NULL where neither is known.
-- column: near_lookups     | Requests that got their first token in the interval and the two before it.
-- column: written_tokens   | New KV tokens written since the engine's first scrape or restart: over the pool's size, something was evicted.
-- column: kv_capacity_tokens | Tokens the pool holds.
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
    from core.counter_intervals
    group by all
),

refills as (
    select
        counters.engine,
        counters.interval_end,
        sum(again.blocks_after_removal * again.block_size) as refilled_tokens,
    from counters
    inner join core.blocks_stored_again as again
        on again.engine = counters.engine
        and again.stored_at > counters.interval_start
        and again.stored_at <= counters.interval_end
    where again.kind = 'refill'
        -- with an external tier a block stored again may have been loaded, not computed
        and again.engine not in (select engine from core.engines where kv_connector is not null)
    group by all
),

lives as (
    select *, sum(is_reset::int) over (partition by engine order by interval_end) as life from counters
),

smoothed as (
    select
        *,
        sum(queried_tokens) over near as near_queried_tokens,
        sum(first_tokens) over near as near_lookups,
        ratio(sum(hit_tokens) over near, sum(queried_tokens) over near) as hit_ratio,
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
    refills.refilled_tokens,
    at_least_zero(greatest(compared.best_hit_ratio * compared.queried_tokens - compared.hit_tokens, refills.refilled_tokens)) as missed_tokens,
    compared.near_lookups,
    compared.written_tokens,
    engines.kv_capacity_tokens,
from compared
left join refills using (engine, interval_end)
left join core.engines using (engine)
where compared.queried_tokens is not null
order by compared.engine, compared.interval_end
