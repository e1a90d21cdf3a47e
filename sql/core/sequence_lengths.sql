-- How long prompts and answers are, in the whole run, under pressure and in calm times, and what a running sequence holds of the
-- pool.
--
-- A running sequence met at a random moment is a long one more often than not: it stays for as many steps as it has tokens to
-- generate. So each sequence counts by its steps (its output tokens, and one for each budget's worth of prompt). At a random
-- moment of its stay it holds its prompt, a part u of its output, u even between 0 and 1, and on average half a block that is not
-- yet full:
--
--     held = prompt + output / 2 + block / 2        within-sequence variance = output² / 12 + block² / 12
--
-- Lengths come from the requests of clients and spans, else from the engine's length histograms (each bucket by its middle,
-- stretched so that their mean is the exact one; prompts and outputs taken as independent). Prefixes that sequences share are
-- counted in each.
--
-- grain: engine, scope
-- needs: core.histogram_intervals or core.requests
-- needs: core.engines or core.histogram_intervals
-- column: engine                VARCHAR | Engine.
-- column: scope                 VARCHAR | run; pressure: requests in the engine during a spell (core.spells); calm: the others.
-- column: requests              BIGINT  | Requests in it.
-- column: prompt_mean           DOUBLE  | Mean prompt tokens.
-- column: prompt_p50            DOUBLE  | Median.
-- column: prompt_p90            DOUBLE  | 90th percentile.
-- column: prompt_p99            DOUBLE  | 99th percentile.
-- column: output_mean           DOUBLE  | Mean output tokens.
-- column: output_p50            DOUBLE  | Median.
-- column: output_p90            DOUBLE  | 90th percentile.
-- column: output_p99            DOUBLE  | 99th percentile.
-- column: held_tokens           DOUBLE  | Tokens of the pool a running sequence holds on average.
-- column: held_deviation_tokens DOUBLE  | Standard deviation of that over sequences and moments.
-- column: prompt_share          DOUBLE  | Share of the held tokens that is prompt.
-- column: method                VARCHAR | requests or histograms.
-- check:  requests > 0 | Only scopes with requests are here.
-- check:  prompt_share between 0 and 1 | A share.
with requests as (
    select
        engines.engine,
        requests.input_tokens::double as prompt_tokens,
        requests.output_tokens::double as output_tokens,
        exists (
            from core.spells
            where spells.engine = engines.engine
                and spells.window_start <= coalesce(requests.finished_at, requests.arrived_at)
                and spells.window_end >= requests.arrived_at
        ) as is_pressed,
    from core.requests
    inner join core.engines on requests.engine = engines.engine or requests.engine like '%*' or requests.engine is null
    where requests.input_tokens > 0 and requests.output_tokens > 0 and not coalesce(requests.is_failed, false)
),

-- the same from histograms: how many requests finished with a length in each bucket
intervals as (
    select
        histogram_intervals.*,
        exists (
            from core.spells
            where spells.engine = histogram_intervals.engine
                and spells.window_start < histogram_intervals.interval_end
                and spells.window_end > histogram_intervals.interval_start
        ) as is_pressed,
    from core.histogram_intervals
    where signal in ('request_prompt_tokens', 'request_generation_tokens')
        and engine not in (select engine from requests)
),

inside as (
    select engine, is_pressed, signal, if(isinf(le), above, (above + le) / 2) as middle_tokens, sum(delta) as requests,
    from intervals
    group by all
    order by all
),

exact as (
    select
        counters.engine,
        replace(counters.signal, '_sum', '') as signal,
        ratio(
            sum(delta) filter (where counters.signal in ('request_prompt_tokens_sum', 'request_generation_tokens_sum')),
            any_value(counted.requests)
        ) as mean_tokens,
    from core.counter_intervals as counters
    inner join (
        select engine, replace(signal, '_count', '') as signal, sum(delta) as requests
        from core.counter_intervals
        where signal in ('request_prompt_tokens_count', 'request_generation_tokens_count')
        group by all
    ) as counted
        on counted.engine = counters.engine
        and counters.signal = concat(counted.signal, '_sum')
    group by all
),

stretched as (
    select
        inside.engine,
        inside.is_pressed,
        inside.signal,
        inside.requests,
        inside.middle_tokens * coalesce(
            ratio(exact.mean_tokens, sum(inside.requests * inside.middle_tokens) over whole / sum(inside.requests) over whole), 1
        ) as tokens,
    from inside
    left join exact using (engine, signal)
    where inside.requests > 0 and inside.middle_tokens > 0
    window whole as (partition by inside.engine, inside.signal)
),

sequences as (
    select engine, is_pressed, prompt_tokens, output_tokens, 1.0 as requests, 'requests' as method
    from requests
    union all
    select
        prompts.engine,
        prompts.is_pressed,
        prompts.tokens as prompt_tokens,
        outputs.tokens as output_tokens,
        prompts.requests * ratio(
            outputs.requests, sum(outputs.requests) over (partition by prompts.engine, prompts.is_pressed, prompts.tokens)
        ) as requests,
        'histograms' as method,
    from stretched as prompts
    inner join stretched as outputs
        on outputs.engine = prompts.engine
        and outputs.is_pressed = prompts.is_pressed
        and prompts.signal = 'request_prompt_tokens'
        and outputs.signal = 'request_generation_tokens'
),

scoped as (
    select engine, 'run' as scope, prompt_tokens, output_tokens, requests, method from sequences
    union all
    select engine, case when is_pressed then 'pressure' else 'calm' end as scope, prompt_tokens, output_tokens, requests, method
    from sequences
),

held as (
    select
        scoped.*,
        sum(requests) over (partition by scoped.engine, scope) as all_requests,
        sum(requests) over (partition by scoped.engine, scope order by prompt_tokens) as prompts_up_to,
        sum(requests) over (partition by scoped.engine, scope order by output_tokens) as outputs_up_to,
        -- 2,048 tokens a step and 16 a block are vLLM's own defaults, where nothing is said
        requests * (output_tokens + ceil(prompt_tokens / coalesce(engines.max_num_batched_tokens, 2048))) as steps,
        prompt_tokens + output_tokens / 2 + coalesce(engines.block_size, 16) / 2 as held_tokens,
        (output_tokens ** 2 + coalesce(engines.block_size, 16) ** 2) / 12 as inner_variance,
    from scoped
    left join core.engines using (engine)
)

select
    engine,
    scope,
    round(sum(requests))::bigint as requests,
    sum(requests * prompt_tokens) / sum(requests) as prompt_mean,
    min(prompt_tokens) filter (where prompts_up_to >= 0.5 * all_requests) as prompt_p50,
    min(prompt_tokens) filter (where prompts_up_to >= 0.9 * all_requests) as prompt_p90,
    min(prompt_tokens) filter (where prompts_up_to >= 0.99 * all_requests) as prompt_p99,
    sum(requests * output_tokens) / sum(requests) as output_mean,
    min(output_tokens) filter (where outputs_up_to >= 0.5 * all_requests) as output_p50,
    min(output_tokens) filter (where outputs_up_to >= 0.9 * all_requests) as output_p90,
    min(output_tokens) filter (where outputs_up_to >= 0.99 * all_requests) as output_p99,
    sum(steps * held_tokens) / sum(steps) as held_tokens,
    sqrt(at_least_zero(
        sum(steps * (held_tokens ** 2 + inner_variance)) / sum(steps) - (sum(steps * held_tokens) / sum(steps)) ** 2
    )) as held_deviation_tokens,
    sum(steps * prompt_tokens) / sum(steps * (prompt_tokens + output_tokens / 2)) as prompt_share,
    any_value(method) as method,
from held
group by engine, scope
having round(sum(requests)) > 0
order by engine, scope
