-- Why requests wait, at each instant an engine's load was observed.
--
-- The scheduler admits in order, so the whole queue waits for what its head waits for. A sample is taken after a step, when
-- finished requests have already left: a full batch or pool shows as one a moment later too. So the ceilings are judged over the
-- sample and two neighbours on each side in the same spell of waiting.
--
-- grain: engine, sampled_at
-- column: engine         | Engine observed.
-- column: sampled_at     | Instant observed; only instants with waiting requests are here.
-- column: scrape_s       | Seconds this sample stands for.
-- column: waiting        | Requests waiting.
-- column: spell          | Number of the uninterrupted spell of waiting it belongs to.
-- column: cause          | max_num_seqs, kv_capacity, token_budget, deferred or unknown.
-- column: head_need_ratio | Share of the pool one mean prompt takes: what must be free to admit the head.
-- check:  cause is not null | Unknown is a cause.
with states as (
    select
        engine_states.*,
        engines.max_num_seqs,
        engines.kv_capacity_tokens,
        engines.block_size,
    from core.engine_states
    left join core.engines using (engine)
),

prompts as (
    select
        engine,
        ratio(
            sum(delta) filter (where signal = 'request_prompt_tokens_sum'),
            sum(delta) filter (where signal = 'request_prompt_tokens_count')
        ) as mean_prompt_tokens,
    from core.counter_intervals
    group by engine
),

progress as (
    select engine, interval_end as sampled_at, sum(delta) as prompt_tokens
    from core.counter_intervals
    where signal = 'prompt_tokens'
    group by all
),

spells as (
    select
        *,
        sum(starts) over (partition by engine order by sampled_at) as spell,
    from (
        select
            *,
            (waiting > 0 and coalesce(lag(waiting) over (partition by engine order by sampled_at), 0) = 0)::int as starts,
        from states
    )
    where waiting > 0
),

judged as (
    select
        *,
        max(running) over near as near_running,
        max(kv_usage_ratio) over near as near_usage_ratio,
    from spells
    window near as (partition by engine, spell order by sampled_at rows between 2 preceding and 2 following)
)

select
    judged.engine,
    judged.sampled_at,
    judged.scrape_s,
    judged.waiting,
    judged.spell,
    case
        when judged.deferred >= judged.waiting then 'deferred'
        when judged.near_running >= judged.max_num_seqs then 'max_num_seqs'
        when judged.near_usage_ratio >= 0.95 then 'kv_capacity'
        when judged.near_usage_ratio + ratio(prompts.mean_prompt_tokens + judged.block_size, judged.kv_capacity_tokens) >= 1 then 'kv_capacity'
        -- room for the head in batch and pool, and prompts being worked off: what is short is the token budget of a step
        when judged.max_num_seqs is not null and judged.near_usage_ratio is not null and progress.prompt_tokens > 0 then 'token_budget'
        else 'unknown'
    end as cause,
    ratio(prompts.mean_prompt_tokens + judged.block_size, judged.kv_capacity_tokens) as head_need_ratio,
from judged
left join prompts using (engine)
left join progress using (engine, sampled_at)
order by judged.engine, judged.sampled_at
