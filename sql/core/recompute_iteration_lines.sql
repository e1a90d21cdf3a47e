-- Recomputed tokens from the engine's own account of every step: scheduled tokens that were neither new prompt nor new output.
--
-- A step computes the tokens it schedules. Without preemption these are the prompt tokens that no cache had, and one token for
-- each generated one but a request's first (which the prompt's last step gives). Iteration lines tell what was scheduled, and
-- counters the rest, so the difference was computed before: exact without speculative decoding.
--
-- Lines are counted where counters cover them. A scrape interval in which the engine restarted counts for nothing (its counters
-- lost what they held) but for the upper bound. Steps after the last scrape are taken to be like those before. Lines have whole seconds: where the counters begin or end under load, a second's
-- tokens at that end belong to neither side for sure. Steps that are missing between two iteration numbers are taken to be like
-- the others. The asynchronous scheduler (0.14.1 and later) computes one token more for a request that ends by its own choice.
--
-- grain: engine
-- needs: staging.iteration_steps
-- needs: core.counter_intervals
-- column: engine           VARCHAR | Engine.
-- column: scheduled_tokens BIGINT  | Tokens of all steps the counters cover.
-- column: useful_tokens    DOUBLE  | Of these, prompt tokens computed first and tokens generated.
-- column: uncovered_tokens BIGINT  | Tokens of steps that no scrape interval covers.
-- column: missing_steps    BIGINT  | Steps that have no line.
-- column: tokens_low       DOUBLE  | Least recomputed tokens; NULL with speculative decoding, whose rejected drafts are not counted.
-- column: tokens_best      DOUBLE  | Expected recomputed tokens.
-- column: tokens_high      DOUBLE  | Most recomputed tokens.
-- check:  tokens_low <= tokens_best and tokens_best <= tokens_high | A range holds its best estimate.
with counters as (
    select
        engine,
        interval_start,
        interval_end,
        bool_or(is_reset) as is_reset,
        sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%local_compute%') as local_tokens,
        sum(delta) filter (where signal = 'prompt_tokens') as prompt_tokens,
        sum(delta) filter (where signal in ('prefix_hits', 'external_prefix_hits')) as hit_tokens,
        sum(delta) filter (where signal = 'generation_tokens') as generation_tokens,
        sum(delta) filter (where signal = 'ttft_s_count') as first_tokens,
    from core.counter_intervals
    group by all
    having sum(delta) filter (where signal = 'generation_tokens') is not null
),

windows as (
    select
        engine,
        min(interval_start) as window_start,
        max(interval_end) as window_end,
        sum(coalesce(local_tokens, prompt_tokens - coalesce(hit_tokens, 0)) + generation_tokens - first_tokens)
            filter (where not is_reset) as useful_tokens,
        bool_or(local_tokens is not null or prompt_tokens is not null) and bool_or(first_tokens is not null) as is_told,
    from counters
    group by engine
),

lives as (
    select *, sum(is_start::int) over (partition by engine order by stepped_at, iteration) as life
    from (
        select
            *,
            context_tokens + generation_tokens as tokens,
            coalesce(iteration < lag(iteration) over (partition by engine order by stepped_at, source, line), false) as is_start,
        from staging.iteration_steps
    )
),

holes as (
    select engine, sum(missing) as missing_steps
    from (
        select engine, life, max(iteration) - min(iteration) + 1 - count(distinct iteration) as missing from lives group by all
    )
    group by engine
),

placed as (
    select
        lives.engine,
        lives.tokens,
        coalesce(counters.is_reset, false) as is_in_reset,
        least(
            abs(seconds_between(windows.window_start, lives.stepped_at)), abs(seconds_between(lives.stepped_at, windows.window_end))
        ) <= 1 as is_at_edge,
        lives.stepped_at > windows.window_start and lives.stepped_at <= windows.window_end as is_inside,
    from lives
    inner join windows using (engine)
    left join counters
        on counters.engine = lives.engine
        and lives.stepped_at > counters.interval_start
        and lives.stepped_at <= counters.interval_end
),

scheduled as (
    select
        engine,
        (sum(tokens) filter (where is_inside and not is_in_reset))::bigint as scheduled_tokens,
        coalesce(sum(tokens) filter (where is_in_reset), 0) as reset_tokens,
        coalesce(sum(tokens) filter (where not is_inside), 0)::bigint as uncovered_tokens,
        coalesce(sum(tokens) filter (where is_at_edge), 0) as edge_tokens,
        avg(tokens) as step_tokens,
    from placed
    group by engine
),

stopped as (
    select engine, sum(delta) as requests
    from core.counter_intervals
    where signal = 'finished' and labels like '%finished_reason=stop%'
    group by engine
),

told as (
    select
        scheduled.engine,
        scheduled.scheduled_tokens,
        windows.useful_tokens,
        holes.missing_steps,
        scheduled.scheduled_tokens + holes.missing_steps * scheduled.step_tokens - windows.useful_tokens as best,
        scheduled.edge_tokens + holes.missing_steps * scheduled.step_tokens as spread,
        scheduled.reset_tokens,
        scheduled.uncovered_tokens,
        coalesce(stopped.requests, 0) as over_scheduled_tokens,
    from scheduled
    inner join windows using (engine)
    inner join holes using (engine)
    left join stopped using (engine)
    left join core.engines using (engine)
    where windows.is_told
        and scheduled.scheduled_tokens is not null -- where every interval has a restart in it, none can be compared
        and not coalesce(engines.has_speculative_decoding, false)
)

select
    engine,
    scheduled_tokens,
    useful_tokens,
    uncovered_tokens,
    missing_steps::bigint as missing_steps,
    at_least_zero(best - spread - over_scheduled_tokens) as tokens_low,
    at_least_zero(best) * (1 + coalesce(ratio(uncovered_tokens, scheduled_tokens), 0)) as tokens_best,
    at_least_zero(best + spread + reset_tokens + uncovered_tokens) as tokens_high,
from told
order by engine
