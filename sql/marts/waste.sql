-- What the GPU computed a second time, and what it loaded back instead: tokens, GPU-seconds and money, each with its range.
--
-- Two kinds of waste, for another pays for each: preemption_recompute (paid by running requests) and prefix_refill (paid by new ones).
-- offload_restore is what an external tier brought back: link time, no computation, so it costs no GPU-seconds here.
--
-- GPU-seconds are tokens times what one more prompt token costs (`core.token_costs`), on each GPU of the engine. Where only a bound
-- of that is known, there is a least and a most and no best.
--
-- Where sources contradict each other, the surer one's best estimate stands, and the range covers all of them.
--
-- grain: run, engine, kind
-- needs: core.recompute_estimates
-- column: run              VARCHAR   | The analyzed run.
-- column: engine           VARCHAR   | Engine.
-- column: kind             VARCHAR   | preemption_recompute, prefix_refill or offload_restore.
-- column: tokens_low       DOUBLE    | Least tokens; NULL where it cannot be told.
-- column: tokens_best      DOUBLE    | Expected tokens; NULL where it cannot be told.
-- column: tokens_high      DOUBLE    | Most tokens; NULL where nothing bounds it.
-- column: share_low        DOUBLE    | Least share of all tokens computed.
-- column: share_best       DOUBLE    | Expected share.
-- column: share_high       DOUBLE    | Most.
-- column: gpu_seconds_low  DOUBLE    | Least GPU time.
-- column: gpu_seconds_best DOUBLE    | Expected GPU time; NULL where only its bounds are known.
-- column: gpu_seconds_high DOUBLE    | Most GPU time.
-- column: cost_low         DOUBLE    | Least cost in USD; NULL without a price.
-- column: cost_best        DOUBLE    | Expected cost in USD; NULL without a price.
-- column: cost_high        DOUBLE    | Most cost in USD; NULL without a price.
-- column: method           VARCHAR   | What told the tokens, as a key.
-- column: told_by          VARCHAR   | The same in words.
-- column: evidence         VARCHAR   | The numbers behind it, and what they rest on.
-- column: contradiction    VARCHAR   | What other sources say that contradict this one, in a sentence; NULL where none does.
-- column: missing_series   VARCHAR[] | Series that /metrics as recorded lacks and that would tell the tokens; NULL where that is not why.
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
    select
        engine,
        sum(input_tokens) + sum(output_tokens) - count(*) as tokens,
        count(*) as requests,
        min(arrived_at) as first_at,
        max(arrived_at) as last_at,
    from core.requests
    where output_tokens > 0
    group by engine
),

-- what KV events show computed of these requests, to half a block for each: prompts that the cache had are not stored
stored as (
    select
        recorded.engine,
        told.stored_tokens - told.recompute_best + recorded.requests * told.block_size / 2 as tokens,
    from recorded
    inner join core.recompute_kv_events as told
        on told.engine = recorded.engine
        and told.lost_batches = 0
        and told.first_event_at <= plus_seconds(recorded.first_at, 5)
        and told.last_event_at >= recorded.last_at
),

-- tokens computed once
useful as (
    select
        engines.engine,
        greatest(
            coalesce(counted.local_tokens, counted.prompt_tokens - counted.hit_tokens) + counted.generation_tokens - counted.first_tokens,
            -- metrics that end before the requests do saw only a part; of the rest no hit is known
            if(counted.engine is null, least(recorded.tokens, stored.tokens), null)
        ) as tokens,
    from core.engines
    left join counted using (engine)
    left join recorded using (engine)
    left join stored using (engine)
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
        seen.uncounted_to,
        seen.uncounted_from,
        -- what counters told is the least where the load began before them, or went on after them
        coalesce(seen.uncounted_to, seen.uncounted_from) is not null
        and estimates.method in ('preemption_counter', 'capacity_bound', 'pool_never_full', 'external_hit_counter')
        -- a replay goes on after the last scrape, and holds all that it replays against what was counted
        or (seen.uncounted_to is not null and estimates.method = 'replay') as is_cut,
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
        if(estimates.kind = 'offload_restore', null, coalesce(engines.tensor_parallel_size, 1)) as gpus,
        costs.token_s_low,
        costs.token_s_best,
        costs.token_s_high,
        costs.told_by as price_told_by,
    from core.recompute_estimates as estimates
    left join contradicted using (engine, kind)
    left join useful using (engine)
    left join core.token_costs as costs using (engine)
    left join core.engines using (engine)
    left join core.seen_loads as seen using (engine)
    where estimates.is_used
),

bounded as (
    select * replace (if(is_cut, null, tokens_best) as tokens_best, if(is_cut, null, tokens_high) as tokens_high) from told
),

spent as (
    select
        *,
        tokens_low * token_s_low * gpus as gpu_seconds_low,
        -- nothing costs nothing, also where the price is only bounded
        if(tokens_best = 0 and token_s_high is not null, 0, tokens_best * token_s_best * gpus) as gpu_seconds_best,
        tokens_high * token_s_high * gpus as gpu_seconds_high,
        getvariable('gpu_cost_usd_per_hour') / 3600 as usd_per_s,
    from bounded
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
    told_by(method)
    || if(is_cut, left_out(uncounted_to, uncounted_from), '') as told_by,
    concat_ws(' ', evidence, assumptions, if(tokens_best > 0 and gpus * token_s_high is not null, format('GPU time from {}.', price_told_by), null))
        as evidence,
    contradiction,
    missing_series,
from spent
order by engine, kind
