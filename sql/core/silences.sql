-- Stretches without a token of an engine that held requests, up to the sample that shows the next ones.
--
-- An engine books a prompt's tokens when it has computed all of it: without a token beside, a long prefill looks like a stall until then.
-- A silence that ends in prompt tokens was their prefill if it lasted no longer than they can have taken: at half the speed that
-- this engine has shown in other silences that ended in prompts of at least half the size, or at 500 tokens/s, which no accelerator stays
-- below (or at what this engine has shown at all, if it is slower). A sample that shows tokens ends a silence, whatever it shows beside.
--
-- grain: engine, silence_end
-- needs: core.counter_intervals or core.engine_states
-- needs: core.counter_intervals or staging.engine_samples
-- column: engine        VARCHAR     | Engine.
-- column: silence_start TIMESTAMPTZ | Last sample before that shows tokens, or no request in the engine.
-- column: silence_end   TIMESTAMPTZ | Sample that shows the next tokens.
-- column: prompt_tokens DOUBLE      | Prompt tokens it shows.
-- column: prefill_s     DOUBLE      | Longest that a prompt of this size can have taken; 0 where it shows none.
-- column: is_prefill    BOOLEAN     | Whether the silence was a long prefill.
-- check:  silence_start < silence_end | Stretches have a length.
with counted as (
    select
        engine,
        interval_end as sampled_at,
        sum(delta) filter (where signal = 'prompt_tokens') as prompt_tokens,
        sum(delta) filter (where signal in ('prompt_tokens', 'generation_tokens')) as tokens,
        sum(delta) filter (where signal = 'ttft_s_count') as prompts,
        bool_or(is_reset) as is_reset,
    from core.counter_intervals
    where signal in ('prompt_tokens', 'generation_tokens', 'ttft_s_count')
    group by all
),

usual as (
    select engine, median(scrape_s) as step_s from core.engine_states where origin = 'log' group by engine
),

-- a line tells the rate since the one before, which need not have been printed
logged as (
    select
        samples.engine,
        samples.sampled_at,
        max(samples.prompt_tokens_per_s) * any_value(usual.step_s) as prompt_tokens,
        max(samples.prompt_tokens_per_s + samples.generation_tokens_per_s) * any_value(usual.step_s) as tokens,
        null::double as prompts,
        false as is_reset,
    from staging.engine_samples as samples
    inner join usual using (engine)
    where samples.engine not in (select engine from counted)
        and samples.prompt_tokens_per_s is not null
        and samples.generation_tokens_per_s is not null
    group by samples.engine, samples.sampled_at
),

samples as (
    select
        told.*,
        told.tokens > 0 as has_tokens,
        -- a silence begins after these
        told.tokens > 0 or told.is_reset or states.running + states.waiting = 0 as is_edge,
    from (
        from counted
        union all by name
        from logged
    ) as told
    left join core.engine_states as states using (engine, sampled_at)
    where told.tokens is not null
),

followed as (
    select
        *,
        max(sampled_at) filter (where coalesce(is_edge, true)) over before as edge_at,
        lag(sampled_at) over (partition by engine order by sampled_at) as sampled_before,
    from samples
    window before as (partition by engine order by sampled_at rows between unbounded preceding and 1 preceding)
),

ended as (
    select
        *,
        edge_at < sampled_before as is_silence,
        coalesce(prompt_tokens, 0) / greatest(1, coalesce(prompts, 1)) as size, -- of one prompt: the first of several ends it
        ratio(prompt_tokens, seconds_between(edge_at, sampled_at)) as speed,
    from followed
    where has_tokens and not is_reset and edge_at is not null
),

compared as (
    select
        *,
        max(speed) filter (where is_silence) over alike as like_speed,
        max(speed) over others as most_speed,
    from ended
    window
        alike as (
            partition by engine order by log2(greatest(1, size)) range between 1 preceding and unbounded following exclude current row
        ),
        others as (partition by engine rows between unbounded preceding and unbounded following exclude current row)
),

bounded as (
    select *, coalesce(ratio(size, greatest(like_speed / 2, least(500, most_speed))), 0) as prefill_s from compared
)

select
    engine,
    edge_at as silence_start,
    sampled_at as silence_end,
    coalesce(prompt_tokens, 0)::double as prompt_tokens,
    prefill_s,
    seconds_between(edge_at, sampled_at) <= prefill_s as is_prefill,
from bounded
where is_silence
order by engine, silence_end
