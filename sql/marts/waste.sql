-- What the GPU computed a second time, and what it loaded back instead: tokens, GPU-seconds and money, each with its range.
--
-- Two kinds of waste, never added up: preemption_recompute (paid by running requests) and prefix_refill (paid by new ones).
-- offload_restore is what an external tier brought back: link time, no computation, so it costs no GPU-seconds here.
--
-- GPU-seconds are tokens times what one more token in a step costs: the slope of step time over tokens, from iteration lines or
-- else from fully busy scrape intervals. The high end uses the average cost of a token in busy time, the step's own time
-- included; where no slope can be told, that average is the best guess and none the low end.
--
-- Where sources contradict each other, the surer one's best estimate stands, and the range covers all of them.
--
-- grain: run, engine, kind
-- column: run              | The analyzed run.
-- column: engine           | Engine.
-- column: kind             | preemption_recompute, prefix_refill or offload_restore.
-- column: tokens_low       | Least tokens; NULL where it cannot be told.
-- column: tokens_best      | Expected tokens; NULL where it cannot be told.
-- column: tokens_high      | Most tokens; NULL where nothing bounds it.
-- column: share_low        | Least share of all tokens computed.
-- column: share_best       | Expected share.
-- column: share_high       | Most.
-- column: gpu_seconds_low  | Least GPU time.
-- column: gpu_seconds_best | Expected GPU time.
-- column: gpu_seconds_high | Most GPU time.
-- column: cost_low         | Least cost in USD; NULL without a price.
-- column: cost_best        | Expected cost in USD; NULL without a price.
-- column: cost_high        | Most cost in USD; NULL without a price.
-- column: method           | What told the tokens, as a key.
-- column: told_by          | The same in words.
-- column: evidence         | The numbers behind it, and what they rest on.
-- column: contradiction    | What other sources say that contradict this one, in a sentence; NULL where none does.
-- check:  tokens_low is null or tokens_best is null or tokens_low <= tokens_best | A range holds its best estimate.
-- check:  share_best is null or share_best between 0 and 1 | A share.
with counted as (
    select
        engine,
        sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%local_compute%') as local_tokens,
        sum(delta) filter (where signal = 'prompt_tokens') as prompt_tokens,
        coalesce(sum(delta) filter (where signal in ('prefix_hits', 'external_prefix_hits')), 0) as hit_tokens,
        sum(delta) filter (where signal = 'generation_tokens') as generation_tokens,
        coalesce(sum(delta) filter (where signal = 'ttft_s_count'), 0) as first_tokens,
    from core.counter_intervals
    group by engine
),

recorded as (
    select engine, sum(input_tokens) + sum(output_tokens) - count(*) as tokens
    from core.requests
    where output_tokens > 0
    group by engine
),

-- tokens computed once
useful as (
    select
        engines.engine,
        greatest(
            coalesce(counted.local_tokens, counted.prompt_tokens - counted.hit_tokens) + counted.generation_tokens - counted.first_tokens,
            -- metrics that end before the requests do saw only a part; of the rest no hit is known
            if(counted.engine is null, recorded.tokens, null)
        ) as tokens,
    from core.engines
    left join counted using (engine)
    left join recorded using (engine)
),

stepped as (
    select engine, slope(elapsed_ms / 1000, context_tokens + generation_tokens) as token_s
    from staging.iteration_steps
    where elapsed_ms is not null
    group by engine
    having count(*) >= 100
),

-- one row per scrape interval with work at both its ends and throughout
busy as (
    select
        intervals.engine,
        intervals.interval_end,
        seconds_between(intervals.interval_start, intervals.interval_end) as seconds,
        sum(delta) filter (where signal = 'iteration_tokens_count') as steps,
        sum(delta) filter (where signal = 'generation_tokens')
            + coalesce(
                sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%local_compute%'),
                sum(delta) filter (where signal = 'prompt_tokens')
            ) as tokens,
    from core.counter_intervals as intervals
    where (intervals.engine, intervals.interval_start) in (select (engine, sampled_at) from core.engine_states where running > 0)
        and (intervals.engine, intervals.interval_end) in (select (engine, sampled_at) from core.engine_states where running > 0)
    group by all
),

measured as (
    select
        engine,
        case when count(*) >= 10 then slope(seconds / steps, tokens / steps) end as token_s,
        ratio(sum(seconds), sum(tokens)) as average_token_s,
    from busy
    where steps > 0 and tokens > 0
    group by engine
),

priced as (
    select
        engines.engine,
        coalesce(engines.tensor_parallel_size, 1) as gpus,
        -- a slope outside these is noise: a token costs something, and no more than the average one with its share of the step
        case
            when stepped.token_s > 0 then stepped.token_s
            when measured.token_s > 0 and measured.token_s <= measured.average_token_s then measured.token_s
        end as token_s,
        case
            when stepped.token_s > 0 then 'step time over tokens in iteration lines'
            when measured.token_s > 0 and measured.token_s <= measured.average_token_s then 'step time over tokens in busy scrape intervals'
            else 'average busy time per token, an upper bound'
        end as rate_from,
        greatest(measured.average_token_s, stepped.token_s) as most_token_s,
    from core.engines
    left join stepped using (engine)
    left join measured using (engine)
),

contradicted as (
    select
        engine,
        kind,
        min(tokens_low) as tokens_low,
        if(count(tokens_high) = count(*), max(tokens_high), null) as tokens_high,
        format(
            'Other sources say otherwise ({}): one of them rests on what does not hold here, and the range covers them all.',
            string_agg(
                format(
                    '{}: {}',
                    told_by(method),
                    case
                        when tokens_high is null then format('at least {}', spoken_count(tokens_low))
                        when spoken_count(tokens_low) = spoken_count(tokens_high) then spoken_count(tokens_low)
                        else format('{} to {}', spoken_count(tokens_low), spoken_count(tokens_high))
                    end
                ),
                '; ' order by method
            )
        ) as contradiction,
    from core.recompute_conflicts
    group by engine, kind
),

told as (
    select
        estimates.* replace (
            if(contradicted.engine is null, estimates.tokens_low, least(estimates.tokens_low, contradicted.tokens_low)) as tokens_low,
            case
                when contradicted.engine is null then estimates.tokens_high
                when contradicted.tokens_high is not null then greatest(estimates.tokens_high, contradicted.tokens_high)
            end as tokens_high
        ),
        contradicted.contradiction,
        if(estimates.kind = 'offload_restore', null, useful.tokens) as useful_tokens,
        if(estimates.kind = 'preemption_recompute', 1, 0) as is_beyond,
        -- a refill is among the tokens computed first for a prompt; what preemption computed again is beyond them, best told
        if(
            estimates.kind = 'preemption_recompute',
            0,
            coalesce(
                sum(estimates.tokens_best) filter (where estimates.kind = 'preemption_recompute') over (partition by estimates.engine),
                0
            )
        ) as beside_tokens,
        case when estimates.kind <> 'offload_restore' then coalesce(priced.token_s, 0) * priced.gpus end as low_token_s,
        case when estimates.kind <> 'offload_restore' then coalesce(priced.token_s, priced.most_token_s) * priced.gpus end as token_s,
        case when estimates.kind <> 'offload_restore' then coalesce(priced.most_token_s, priced.token_s) * priced.gpus end as most_token_s,
        priced.rate_from,
    from core.recompute_estimates as estimates
    left join contradicted using (engine, kind)
    left join useful using (engine)
    left join priced using (engine)
    where estimates.is_used
),

spent as (
    select
        *,
        if(token_s is null, null, tokens_low * low_token_s) as gpu_seconds_low,
        tokens_best * token_s as gpu_seconds_best,
        tokens_high * most_token_s as gpu_seconds_high,
        getvariable('gpu_cost_usd_per_hour') / 3600 as usd_per_s,
    from told
)

select
    getvariable('run') as run,
    engine,
    kind,
    tokens_low,
    tokens_best,
    tokens_high,
    clamp(ratio(tokens_low, useful_tokens + beside_tokens + is_beyond * tokens_low), 0, 1) as share_low,
    clamp(ratio(tokens_best, useful_tokens + beside_tokens + is_beyond * tokens_best), 0, 1) as share_best,
    clamp(ratio(tokens_high, useful_tokens + beside_tokens + is_beyond * tokens_high), 0, 1) as share_high,
    gpu_seconds_low,
    gpu_seconds_best,
    gpu_seconds_high,
    gpu_seconds_low * usd_per_s as cost_low,
    gpu_seconds_best * usd_per_s as cost_best,
    gpu_seconds_high * usd_per_s as cost_high,
    method,
    told_by(method) as told_by,
    concat_ws(' ', evidence, assumptions, if(tokens_best > 0 and token_s is not null, concat('GPU time from ', rate_from, '.'), null))
        as evidence,
    contradiction,
from spent
order by engine, kind
