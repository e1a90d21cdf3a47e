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
-- column: missed_tokens    | Tokens that would have been found at the best ratio and were not.
-- column: near_lookups     | Requests that got their first token in the interval and the two before it.
-- column: written_tokens   | New KV tokens written since the engine's first scrape or restart: over the pool's size, something was evicted.
-- column: kv_capacity_tokens | Tokens the pool holds.
-- check:  hit_tokens <= queried_tokens | Shares of what was looked up, on versions that count tokens.
with counters as (
    select
        engine,
        interval_start,
        interval_end,
        sum(delta) filter (where signal = 'prefix_queries') as queried_tokens,
        sum(delta) filter (where signal = 'prefix_hits') as hit_tokens,
        coalesce(
            sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%source=local_compute%'),
            sum(delta) filter (where signal = 'prompt_tokens')
        ) as prompt_tokens,
        sum(delta) filter (where signal = 'generation_tokens') as generation_tokens,
        bool_or(is_reset) as is_reset,
        sum(delta) filter (where signal = 'ttft_s_count') as first_tokens,
    from core.counter_intervals
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
    greatest(0, compared.best_hit_ratio * compared.queried_tokens - compared.hit_tokens) as missed_tokens,
    compared.near_lookups,
    compared.written_tokens,
    engines.kv_capacity_tokens,
from compared
left join core.engines using (engine)
where compared.queried_tokens is not null
order by compared.engine, compared.interval_end
