-- How many sequences of the observed lengths the KV pool holds at once.
--
-- N running sequences at unrelated moments of their stay need N · m tokens on average, with variance N · v (m, v: what one holds,
-- core.sequence_lengths). By the central limit theorem they need more than the pool C with a chance of no more than p as long as
--
--     N · m + z · sqrt(N · v) <= C      =>      sqrt(N) <= (sqrt(z² · v + 4 · m · C) - z · sqrt(v)) / (2 · m)
--
-- with z = 1.645 for p = 5 % and z = 2.326 for p = 1 %. Where no input tells lengths, m is what a running sequence was seen to
-- hold (KV usage times pool over running), and its deviation is taken for half of that, between one length for all (0.1) and open
-- chat (0.7); of an engine whose pool had several sizes no one share is of it. Sequences that share a prefix need less than this.
--
-- grain: engine, scope
-- needs: core.engines
-- needs: core.engine_states or core.sequence_lengths
-- column: engine                VARCHAR | Engine.
-- column: scope                 VARCHAR | run, pressure or calm: whose lengths.
-- column: requests              BIGINT  | Requests the lengths are of; NULL for the method `usage`.
-- column: pool_tokens           BIGINT  | Tokens the pool can hold, less a block that vLLM V1 keeps for itself; NULL where not known.
-- column: held_tokens           DOUBLE  | Tokens one running sequence holds on average.
-- column: held_deviation_tokens DOUBLE  | Its standard deviation.
-- column: prompt_share          DOUBLE  | Share of it that is prompt; NULL where lengths are not known.
-- column: fits_on_average       DOUBLE  | Sequences whose mean need equals the pool.
-- column: fits_95               BIGINT  | Most sequences that need more than the pool less than 5 % of the time.
-- column: fits_99               BIGINT  | The same for 1 %.
-- column: method                VARCHAR | requests, histograms or usage.
-- check:  fits_99 <= fits_95 | The stricter bound is the lower one.
with pools as (
    select
        engine,
        kv_capacity_tokens
            -- the null block of vLLM's block pool holds no tokens
            - case when engine_kind = 'vllm' and coalesce(engine_generation, 'v1') = 'v1' then coalesce(block_size, 0) else 0 end
            as pool_tokens,
    from core.engines
    where coalesce(kv_capacity_tokens, 1) > 0
),

measured as (
    select
        engine,
        'run' as scope,
        null::bigint as requests,
        sum(kv_usage_ratio) / sum(running) as held_share,
        0.5 * sum(kv_usage_ratio) / sum(running) as held_deviation_share,
        null::double as prompt_share,
        'usage' as method,
    from core.engine_states
    where running > 0
        and kv_usage_ratio > 0
        and engine not in (
            select engine from core.engine_setups group by engine having max(kv_capacity_tokens) > 1.05 * min(kv_capacity_tokens)
        )
    group by engine
),

needs as (
    select
        lengths.engine,
        lengths.scope,
        lengths.requests,
        lengths.held_tokens / pools.pool_tokens as held_share,
        lengths.held_deviation_tokens / pools.pool_tokens as held_deviation_share,
        lengths.prompt_share,
        lengths.method,
    from core.sequence_lengths as lengths
    inner join pools using (engine)
    where pools.pool_tokens > 0
    union all by name
    from measured
)

select
    needs.engine,
    needs.scope,
    needs.requests,
    pools.pool_tokens,
    needs.held_share * pools.pool_tokens as held_tokens,
    needs.held_deviation_share * pools.pool_tokens as held_deviation_tokens,
    needs.prompt_share,
    1 / needs.held_share as fits_on_average,
    most_sequences(1, needs.held_share, needs.held_deviation_share, 1.645) as fits_95,
    most_sequences(1, needs.held_share, needs.held_deviation_share, 2.326) as fits_99,
    needs.method,
from needs
inner join pools using (engine)
where needs.held_share > 0
-- lengths are the better evidence: what was seen held is taken only where there are none
qualify needs.method <> 'usage' or count(*) over (partition by needs.engine) = 1
order by needs.engine, needs.scope
