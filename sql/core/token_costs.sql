-- What one more prompt token costs an engine's GPUs: the price of each token that is computed again.
--
-- A step takes a time of its own, more for each prompt token in it, and more for each request that decodes in it. The three are told
-- apart by least squares, from the lines of at least 100 steps or else from ten scrape intervals in which the engine was busy
-- throughout. The range is two standard errors on each side, at least nothing, and at most the average time of a token, which counts the
-- steps' own time, too: a token that is computed again may need a step that there would not have been. Where the data do not tell
-- prompt tokens from what else takes time, or not from nothing, there is no best guess.
--
-- grain: engine
-- needs: core.engines
-- column: engine       VARCHAR | Engine.
-- column: token_s_low  DOUBLE  | Least seconds of its GPUs.
-- column: token_s_best DOUBLE  | Expected; NULL where only a bound is known.
-- column: token_s_high DOUBLE  | Most; NULL where no busy time is known.
-- column: told_by      VARCHAR | What they were told from, in words.
-- check:  token_s_low <= token_s_best and token_s_best <= token_s_high | A range holds its best estimate.
with lines as (
    select
        engine,
        'lines' as origin,
        elapsed_ms / 1000 as seconds,
        1.0 as steps,
        -- a request that resumes is computed anew and may be counted among those that decode
        (context_tokens + at_least_zero(generation_tokens - coalesce(generation_requests, generation_tokens)))::double as prompt_tokens,
        coalesce(generation_requests, generation_tokens)::double as decodes,
    from staging.iteration_steps
    where elapsed_ms is not null
),

-- one row per scrape interval with work at both its ends and throughout
busy as (
    select
        intervals.engine,
        'intervals' as origin,
        seconds_between(intervals.interval_start, intervals.interval_end) as seconds,
        sum(delta) filter (where signal = 'iteration_tokens_count') as steps,
        coalesce(
            sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%local_compute%'),
            sum(delta) filter (where signal = 'prompt_tokens')
        ) as prompt_tokens,
        sum(delta) filter (where signal = 'generation_tokens') as decodes,
    from core.counter_intervals as intervals
    where (intervals.engine, intervals.interval_start) in (select (engine, sampled_at) from core.engine_states where running > 0)
        and (intervals.engine, intervals.interval_end) in (select (engine, sampled_at) from core.engine_states where running > 0)
    group by intervals.engine, intervals.interval_start, intervals.interval_end
    having steps > 0 and prompt_tokens + decodes > 0
),

-- sums of products, of which the normal equations are made
sums as (
    select
        engine,
        origin,
        count(*) as observations,
        sum(seconds) as seconds,
        sum(prompt_tokens + decodes) as tokens,
        sum(steps * steps) as nn,
        sum(steps * prompt_tokens) as np,
        sum(steps * decodes) as nd,
        sum(prompt_tokens * prompt_tokens) as pp,
        sum(prompt_tokens * decodes) as pd,
        sum(decodes * decodes) as dd,
        sum(steps * seconds) as ny,
        sum(prompt_tokens * seconds) as py,
        sum(decodes * seconds) as dy,
        sum(seconds * seconds) as yy,
    from (from lines union all from busy)
    group by engine, origin
),

solved as (
    select
        *,
        nn * (pp * dd - pd * pd) - np * (np * dd - pd * nd) + nd * (np * pd - pp * nd) as determinant,
        -- Cramer's rule: seconds of a step, of a prompt token, of a decoding request
        ratio(ny * (pp * dd - pd * pd) - np * (py * dd - pd * dy) + nd * (py * pd - pp * dy), determinant) as step_s,
        ratio(nn * (py * dd - pd * dy) - ny * (np * dd - pd * nd) + nd * (np * dy - py * nd), determinant) as prompt_token_s,
        ratio(nn * (pp * dy - py * pd) - np * (np * dy - py * nd) + ny * (np * pd - pp * nd), determinant) as decode_s,
        sqrt(at_least_zero(
            ratio(yy - step_s * ny - prompt_token_s * py - decode_s * dy, observations - 3) * ratio(nn * dd - nd * nd, determinant)
        )) as error_s,
        determinant > 1e-9 * nn * pp * dd as is_told, -- else two of the three went together throughout
    from sums
    where observations >= if(origin = 'lines', 100, 10)
),

averages as (
    select engine, ratio(sum(seconds), sum(tokens)) as token_s from sums where origin = 'intervals' group by engine
),

fitted as (
    select
        solved.engine,
        solved.origin,
        solved.prompt_token_s as best,
        at_least_zero(solved.prompt_token_s - 2 * solved.error_s) as low,
        greatest(coalesce(averages.token_s, 0), if(solved.origin = 'lines', solved.prompt_token_s + 2 * solved.error_s, 0)) as high,
    from solved
    left join averages using (engine)
    where solved.is_told
        and solved.prompt_token_s > 0
        and (solved.origin = 'lines' or solved.prompt_token_s <= averages.token_s)
    qualify row_number() over (partition by solved.engine order by solved.origin desc) = 1
)

select
    engines.engine,
    coalesce(fitted.low, if(averages.token_s is null, null, 0)) as token_s_low,
    if(fitted.low > 0, fitted.best, null) as token_s_best,
    coalesce(fitted.high, averages.token_s) as token_s_high,
    case
        when fitted.origin = 'lines' then 'the time of steps by what was in them, from iteration lines'
        when fitted.origin = 'intervals' then 'the time of steps by what was in them, from busy scrape intervals'
        else 'the average busy time of a token, an upper bound'
    end as told_by,
from core.engines
left join averages using (engine)
left join fitted using (engine)
where coalesce(fitted.high, averages.token_s) is not null
order by engines.engine
