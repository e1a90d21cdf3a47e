-- What another KV pool would hold: the observed lengths and the observed crowd against pools of other sizes, by arithmetic.
--
-- fp8 entries take half the bytes of 16-bit ones, so the same memory holds twice the tokens; more blocks hold more tokens; n
-- replicas hold n pools, each with an n-th of the crowd. Nothing else changes: not the lengths, not the speed, not what comes when.
-- Demand is what all requests in the house would hold if they all ran: (running + waiting) times what one holds on average.
--
-- grain: run, engine, option
-- needs: core.pool_demand
-- column: run                VARCHAR | The analyzed run.
-- column: engine             VARCHAR | Engine.
-- column: option             VARCHAR | as_is, fp8_kv, blocks_+25%, blocks_+50%, replicas_2 or replicas_3.
-- column: replicas           INTEGER | Engines that share the load.
-- column: pool_tokens        BIGINT  | Tokens one pool can hold.
-- column: held_tokens        DOUBLE  | Tokens one running sequence holds on average.
-- column: fits_on_average    DOUBLE  | Sequences, over all replicas, whose mean need equals the pools.
-- column: fits_95            BIGINT  | Most sequences, over all replicas, that need more than their pool less than 5 % of the time.
-- column: fits_99            BIGINT  | The same for 1 %.
-- column: demand_p50_tokens  DOUBLE  | Median demand on one pool over the observed time.
-- column: demand_p99_tokens  DOUBLE  | 99th percentile of it.
-- column: share_of_time_over DOUBLE  | Share of the observed time in which demand exceeds the pool; NULL where load was not observed.
-- column: arithmetic         VARCHAR | How the numbers come about.
-- check:  fits_99 <= fits_95 | The stricter bound is the lower one.
-- check:  share_of_time_over between 0 and 1 | A share.
with demands as (
    select
        demand.engine,
        demand.pool_tokens,
        demand.held_tokens,
        demand.held_deviation_tokens,
        coalesce(engines.kv_cache_dtype, 'auto') as kv_cache_dtype,
    from core.pool_demand as demand
    inner join core.engines using (engine)
    where demand.scope = 'run' and demand.pool_tokens > 0
),

options as (
    select option, pool_factor, replicas
    from (values
        ('as_is', 1.0, 1),
        ('fp8_kv', 2.0, 1),
        ('blocks_+25%', 1.25, 1),
        ('blocks_+50%', 1.5, 1),
        ('replicas_2', 1.0, 2),
        ('replicas_3', 1.0, 3)
    ) as choices(option, pool_factor, replicas)
),

sized as (
    select
        demands.engine,
        options.option,
        options.replicas,
        round(demands.pool_tokens * options.pool_factor)::bigint as pool_tokens,
        demands.pool_tokens as pool_tokens_now,
        demands.held_tokens,
        demands.held_deviation_tokens,
    from demands
    cross join options
    -- entries of a byte or less are not halved again
    where options.option <> 'fp8_kv' or not regexp_matches(lower(demands.kv_cache_dtype), 'fp8|int8|nvfp4|fp4')
),

observed as (
    select
        sized.engine,
        sized.option,
        quantile_cont((states.running + states.waiting) * sized.held_tokens / sized.replicas, 0.5) as demand_p50_tokens,
        quantile_cont((states.running + states.waiting) * sized.held_tokens / sized.replicas, 0.99) as demand_p99_tokens,
        ratio(
            sum(states.scrape_s) filter (
                where (states.running + states.waiting) * sized.held_tokens / sized.replicas > sized.pool_tokens
            ),
            sum(states.scrape_s)
        ) as time_over,
        sum(states.scrape_s) as observed_s,
    from sized
    inner join core.engine_states as states using (engine)
    where states.running is not null
    group by all
)

select
    getvariable('run') as run,
    sized.engine,
    sized.option,
    sized.replicas,
    sized.pool_tokens,
    sized.held_tokens,
    sized.replicas * sized.pool_tokens / sized.held_tokens as fits_on_average,
    sized.replicas * most_sequences(sized.pool_tokens, sized.held_tokens, sized.held_deviation_tokens, 1.645) as fits_95,
    sized.replicas * most_sequences(sized.pool_tokens, sized.held_tokens, sized.held_deviation_tokens, 2.326) as fits_99,
    observed.demand_p50_tokens,
    observed.demand_p99_tokens,
    case when observed.observed_s > 0 then coalesce(observed.time_over, 0) end as share_of_time_over,
    format(
        '{} × {} tokens (now {}) over {:.0f} ± {:.0f} tokens a sequence.',
        sized.replicas, spoken_count(sized.pool_tokens), spoken_count(sized.pool_tokens_now), sized.held_tokens, sized.held_deviation_tokens
    ) as arithmetic,
from sized
left join observed using (engine, option)
order by sized.engine, sized.option
