-- Whether prompts were being worked off when an engine's load was observed: by its counter, else as its log printed.
--
-- grain: engine, sampled_at
-- needs: core.counter_intervals or staging.engine_samples
-- column: engine        VARCHAR     | Engine.
-- column: sampled_at    TIMESTAMPTZ | Scrape or line.
-- column: prompt_tokens DOUBLE      | Prompt tokens counted since the scrape before, or tokens per second as printed: above 0 means progress.
-- check:  prompt_tokens >= 0 | Counts.
with counted as (
    select engine, interval_end as sampled_at, sum(delta) as prompt_tokens
    from core.counter_intervals
    where signal = 'prompt_tokens'
    group by all
),

logged as (
    select engine, sampled_at, max(prompt_tokens_per_s) as prompt_tokens
    from staging.engine_samples
    where engine not in (select engine from counted) and sampled_at is not null
    group by all
)

select engine, sampled_at, prompt_tokens
from (
    from counted
    union all by name
    from logged
)
order by engine, sampled_at
