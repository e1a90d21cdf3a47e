-- Why requests wait, at each instant an engine's load was observed.
--
-- The scheduler admits in order, so the whole queue waits for what its head waits for. A sample is taken after a step, when
-- finished requests have already left: a full batch or pool shows as one a moment later too. So the ceilings are judged over the
-- sample and two neighbours on each side in the same spell of waiting.
--
-- grain: engine, sampled_at
-- needs: core.engine_states
-- column: engine          VARCHAR     | Engine observed.
-- column: sampled_at      TIMESTAMPTZ | Instant observed; only instants with waiting requests are here.
-- column: scrape_s        DOUBLE      | Seconds this sample stands for.
-- column: waiting         BIGINT      | Requests waiting.
-- column: spell           BIGINT      | Number of the uninterrupted spell of waiting it belongs to.
-- column: cause           VARCHAR     | max_num_seqs, kv_capacity, token_budget, deferred or unknown.
-- column: head_need_ratio DOUBLE      | Share of the pool one mean prompt takes: what must be free to admit the head.
-- check:  cause is not null | Unknown is a cause.
with states as (
    select
        states.*,
        setups.max_num_seqs,
        setups.kv_capacity_tokens,
        setups.block_size,
        engines.engine_kind,
    from core.engine_states as states
    left join core.engines using (engine)
    left join core.engine_setups as setups
        on setups.engine = states.engine and is_within(states.sampled_at, setups.setup_start, setups.setup_end)
),

prompts as (
    select
        engine,
        ratio(
            sum(delta) filter (where signal = 'request_prompt_tokens_sum'),
            sum(delta) filter (where signal = 'request_prompt_tokens_count')
        ) as mean_prompt_tokens,
    from core.counter_intervals
    group by engine
),

spells as (
    select
        *,
        (sum(starts) over (partition by engine order by sampled_at))::bigint as spell,
    from (
        select
            *,
            (waiting > 0 and coalesce(lag(waiting) over (partition by engine order by sampled_at), 0) = 0)::int as starts,
        from states
    )
    where waiting > 0
),

judged as (
    select
        *,
        max(running) over near as near_running,
        max(kv_usage_ratio) over near as near_usage_ratio,
        max(running) over near > min(running) over near as is_running_moving,
        count(*) over (partition by engine, spell) as spell_samples,
    from spells
    window near as (partition by engine, spell order by sampled_at rows between 2 preceding and 2 following)
),

needed as (
    select
        judged.*,
        prompt_progress.prompt_tokens,
        -- what the head needs: a mean prompt where the engine told their lengths, else what a running request holds on average
        coalesce(
            ratio(prompts.mean_prompt_tokens + judged.block_size, judged.kv_capacity_tokens),
            ratio(judged.kv_usage_ratio, judged.running)
        ) as head_need_ratio,
        -- SGLang reserves more for each answer after a retraction (new_token_ratio), and falls back within about a minute: what then
        -- waits in front of a pool with room waits for KV all the same
        exists (
            from core.preemption_intervals as intervals
            where intervals.engine = judged.engine
                and judged.engine_kind = 'sglang'
                and intervals.preemptions > 0
                and intervals.interval_start <= judged.sampled_at
                and intervals.interval_end > judged.sampled_at - interval 60 second
        ) as is_after_retraction,
    from judged
    left join prompts using (engine)
    left join core.prompt_progress using (engine, sampled_at)
)

select
    engine,
    sampled_at,
    scrape_s,
    waiting,
    spell,
    case
        when ceiling.reached is not null then ceiling.reached
        when is_after_retraction then 'kv_capacity'
        -- room for the head in the pool, slots not at their limit, and prompts being worked off: short is the token budget of a step
        -- (a log's lone line is an instant: a pool that was full the moment before shows room in it)
        when near_usage_ratio is not null
            and prompt_tokens > 0
            and (max_num_seqs is not null or is_running_moving)
            and (origin = 'metrics' or spell_samples >= 3) then 'token_budget'
        else 'unknown'
    end as cause,
    head_need_ratio,
from needed
cross join lateral (
    select capacity_cause(waiting, deferred, near_running, max_num_seqs, near_usage_ratio, head_need_ratio) as reached
) as ceiling
order by engine, sampled_at
