-- Stretches in which an engine only generated: the same requests ran on, no prompt was computed, and how long their answers grew.
--
-- One request that writes for minutes holds its blocks and its slot all that time. Nothing else in a log shows it.
--
-- grain: engine, stretch_start
-- needs: core.engine_states
-- column: engine             VARCHAR     | Engine.
-- column: stretch_start      TIMESTAMPTZ | First observation of the stretch.
-- column: stretch_end        TIMESTAMPTZ | Last one.
-- column: running            BIGINT      | Requests that ran throughout.
-- column: max_waiting        BIGINT      | Most requests that waited meanwhile.
-- column: tokens_per_request DOUBLE      | Tokens generated in the stretch, by each of them on average: a lower bound of the length of the answers.
-- check:  tokens_per_request >= 0 | Counts.
with counted as (
    select
        engine,
        interval_end as sampled_at,
        sum(delta) filter (where signal = 'prompt_tokens') as prompt_tokens,
        sum(delta) filter (where signal = 'generation_tokens') as generation_tokens,
    from core.counter_intervals
    where signal in ('prompt_tokens', 'generation_tokens')
    group by all
),

observed as (
    select
        states.engine,
        states.sampled_at,
        states.scrape_s,
        states.running,
        states.waiting,
        coalesce(counted.prompt_tokens, samples.prompt_tokens_per_s * states.scrape_s) as prompt_tokens,
        coalesce(counted.generation_tokens, samples.generation_tokens_per_s * states.scrape_s) as generation_tokens,
    from core.engine_states as states
    left join counted using (engine, sampled_at)
    left join staging.engine_samples as samples using (engine, sampled_at)
),

numbered as (
    select
        *,
        sum(is_other::int) over (partition by engine order by sampled_at) as stretch,
    from (
        select
            *,
            prompt_tokens is null
            or prompt_tokens > 0
            or running = 0
            or running <> lag(running) over (partition by engine order by sampled_at) as is_other,
        from observed
    )
)

select
    engine,
    min(sampled_at) as stretch_start,
    max(plus_seconds(sampled_at, scrape_s)) as stretch_end,
    any_value(running) as running,
    max(waiting) as max_waiting,
    ratio(sum(generation_tokens), any_value(running)) as tokens_per_request,
from numbered
where prompt_tokens = 0 and running > 0
group by engine, stretch
order by engine, stretch_start
