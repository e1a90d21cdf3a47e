-- How each engine was set up, and for how long: lives that follow each other with the same settings are one setup.
--
-- What is judged of a time is judged by the setup of that time. Settings are what may be set: the sizes that an engine worked out from
-- them part two setups only where they differ by more than a twentieth, for each start finds a little more or less memory free.
-- `max_num_seqs` is rarely said (no metric carries it): where requests wait and the running count stays at one ceiling while the KV
-- pool has room, that ceiling is taken for it and marked `inferred`. One that is said and that the running count left far behind was
-- said of another life, and is no limit; where no more ran than all data-parallel ranks together admit, the samples are their sum, and so
-- are the limit and the pool here.
--
-- grain: engine, setup
-- needs: core.engine_lives
-- column: engine                   VARCHAR     | Engine.
-- column: setup                    BIGINT      | Its number, from 1.
-- column: setup_start              TIMESTAMPTZ | When it began; NULL of the first: what came before is of it too.
-- column: setup_end                TIMESTAMPTZ | When the next began; NULL of the last.
-- column: life                     BIGINT      | The last of its lives (core.engine_lives), whose settings these are.
-- column: has_served               BOOLEAN     | Whether requests were seen in the engine in this time.
-- column: engine_version           VARCHAR     | As printed.
-- column: engine_generation        VARCHAR     | vLLM: v0 or v1; NULL where not told.
-- column: model                    VARCHAR     | Model, as the settings name it.
-- column: kv_capacity_tokens       BIGINT      | Tokens the KV pool holds.
-- column: block_size               BIGINT      | Tokens in a block.
-- column: num_gpu_blocks           BIGINT      | Blocks in the pool.
-- column: max_num_seqs             BIGINT      | Most requests running at once.
-- column: max_num_seqs_source      VARCHAR     | argument or inferred; NULL where not known.
-- column: ranks_summed             BIGINT      | Data-parallel ranks whose sum its samples are; 1 where they are of one.
-- column: max_num_batched_tokens   BIGINT      | Token budget of a step.
-- column: max_model_len            BIGINT      | Longest sequence.
-- column: prefix_caching           BOOLEAN     | Whether prefix caching is on.
-- column: kv_connector             VARCHAR     | External KV tier, where one is configured.
-- column: has_speculative_decoding BOOLEAN     | Whether speculative decoding is on; NULL where not told.
-- column: tensor_parallel_size     BIGINT      | GPUs one copy of the model is split over.
-- column: gpu_memory_utilization   DOUBLE      | Share of GPU memory the engine may use.
-- column: kv_cache_dtype           VARCHAR     | Type of a KV entry; `auto` follows the model.
with settings as (
    select settings.*, coalesce(roles.role, named_role(settings.key)) as role
    from core.life_settings as settings
    left join setting_roles() as roles using (key)
),

lives as (
    select
        lives.engine,
        lives.life,
        any_value(lives.life_start) as life_start,
        any_value(lives.life_end) as life_end,
        list((settings.key, settings.value_text) order by settings.key)
            filter (where settings.role not in ('derived', 'measured', 'identity')) as set_up,
        max(try_cast(replace(settings.value_text, ',', '') as double)) filter (where settings.key = 'kv_capacity_tokens')
            as kv_capacity_tokens,
        max(try_cast(settings.value_text as double)) filter (where settings.key = 'num_gpu_blocks') as num_gpu_blocks,
    from core.engine_lives as lives
    left join settings using (engine, life)
    group by lives.engine, lives.life
),

compared as (
    select
        *,
        life > 1 and (
            set_up is distinct from lag(set_up) over in_order
            or coalesce(abs(kv_capacity_tokens / lag(kv_capacity_tokens) over in_order - 1) > 0.05, false)
            or coalesce(abs(num_gpu_blocks / lag(num_gpu_blocks) over in_order - 1) > 0.05, false)
        ) as is_new,
    from lives
    window in_order as (partition by engine order by life)
),

setups as (
    select
        engine,
        setup,
        arg_min((life_start,), life)[1] as setup_start,
        arg_max((life_end,), life)[1] as setup_end,
        max(life) as life,
    from (select *, (1 + count_if(is_new) over (partition by engine order by life))::bigint as setup from compared)
    group by engine, setup
),

said as (
    select
        setups.engine,
        setups.setup,
        max(value_text) filter (where key = 'engine_version') as engine_version,
        lower(max(value_text) filter (where key = 'engine_generation')) as engine_generation,
        max(value_text) filter (where key = 'served_model_name') as served_model_name,
        max(value_text) filter (where key = 'model') as model,
        max(try_cast(replace(value_text, ',', '') as bigint)) filter (where key = 'kv_capacity_tokens') as kv_capacity_tokens,
        max(try_cast(value_text as bigint)) filter (where key = 'block_size') as block_size,
        max(try_cast(value_text as bigint)) filter (where key = 'num_gpu_blocks') as num_gpu_blocks,
        max(try_cast(value_text as bigint)) filter (where key = 'num_gpu_blocks_override') as num_gpu_blocks_override,
        max(try_cast(value_text as bigint)) filter (where key = 'max_num_seqs') as max_num_seqs,
        max(try_cast(value_text as bigint)) filter (where key = 'data_parallel_size') as data_parallel_size,
        max(try_cast(value_text as bigint)) filter (where key = 'max_num_batched_tokens') as max_num_batched_tokens,
        max(try_cast(value_text as bigint)) filter (where key = 'max_model_len') as max_model_len,
        max(try_cast(value_text as boolean)) filter (where key = 'enable_prefix_caching') as prefix_caching,
        -- `native` is the back end that offloading would use: printed whether it is on or not
        max(value_text) filter (
            where key in ('kv_connector', 'kv_transfer_config', 'kv_offloading_backend') and value_text not in ('None', 'native')
        ) as kv_connector,
        max(value_text) filter (where key = 'speculative_config') as speculative_config,
        max(try_cast(value_text as bigint)) filter (where key = 'tensor_parallel_size') as tensor_parallel_size,
        max(try_cast(value_text as double)) filter (where key = 'gpu_memory_utilization') as gpu_memory_utilization,
        max(value_text) filter (where key = 'kv_cache_dtype') as kv_cache_dtype,
        max(value_text) filter (where key = 'kv_offloading_size') as kv_offloading_size,
    from setups
    inner join core.life_settings using (engine, life)
    group by setups.engine, setups.setup
),

-- sizes that an engine exposes as gauges
sizes as (
    select
        setups.engine,
        setups.setup,
        max(value) filter (where signal = 'kv_capacity_tokens') as kv_capacity_tokens,
        max(value) filter (where signal = 'num_gpu_blocks') as num_gpu_blocks,
        max(value) filter (where signal = 'block_size') as block_size,
        max(value) filter (where signal = 'max_num_seqs') as max_num_seqs,
        max(value) filter (where signal = 'max_model_len') as max_model_len,
    from (
        select engine, name, value, sampled_at from staging.metric_samples
        union all
        select engine, name, value, null from staging.untimed_samples
    ) as samples
    inner join signals() as signals using (name)
    inner join setups
        on setups.engine = samples.engine
        and (samples.sampled_at is null or is_within(samples.sampled_at, setups.setup_start, setups.setup_end))
    where signal in ('kv_capacity_tokens', 'num_gpu_blocks', 'block_size', 'max_num_seqs', 'max_model_len') and value > 0
    group by setups.engine, setups.setup
),

-- a log whose start-up lines are missing still says how large the pool is: tokens in use over their share of it
used as (
    select setups.engine, setups.setup, median(samples.kv_used_tokens / samples.kv_usage_ratio) as kv_capacity_tokens
    from staging.engine_samples as samples
    inner join setups on setups.engine = samples.engine and is_within(samples.sampled_at, setups.setup_start, setups.setup_end)
    where samples.kv_usage_ratio >= 0.5 and samples.kv_used_tokens > 0
    group by setups.engine, setups.setup
),

states as (
    select
        setups.setup,
        states.*,
        prompt_progress.prompt_tokens,
        max(states.running) over (partition by setups.engine, setups.setup) as peak,
    from core.engine_states as states
    inner join setups on setups.engine = states.engine and is_within(states.sampled_at, setups.setup_start, setups.setup_end)
    left join core.prompt_progress on prompt_progress.engine = states.engine and prompt_progress.sampled_at = states.sampled_at
),

ceilings as (
    select
        engine,
        setup,
        max(running) as ceiling,
        bool_or(running > 0 or waiting > 0) as has_served,
        avg((running = peak)::int) filter (where waiting > 0 and not coalesce(deferred = waiting, false)) as share_at_ceiling,
        quantile_cont(kv_usage_ratio, 0.9) filter (where waiting > 0) as kv_usage_ratio,
        count(*) filter (where waiting > 0) as waiting_samples,
        -- slots are a limit only where requests come and go: one request that runs on while others wait shows no slot
        avg((coalesce(prompt_tokens, 0) > 0)::int) filter (where waiting > 0) >= 0.5 and max(running) >= 2 as is_turning_over,
    from states
    group by engine, setup
)

select
    setups.engine,
    setups.setup,
    setups.setup_start,
    setups.setup_end,
    setups.life,
    coalesce(ceilings.has_served, false) as has_served,
    said.engine_version,
    said.engine_generation,
    coalesce(trim(said.served_model_name, '[]'' '), said.model) as model,
    coalesce(
        slots.ranks * said.kv_capacity_tokens,
        slots.ranks * said.num_gpu_blocks * said.block_size,
        slots.ranks * sizes.kv_capacity_tokens,
        slots.ranks * sizes.num_gpu_blocks * sizes.block_size,
        round(used.kv_capacity_tokens)
    )::bigint as kv_capacity_tokens,
    coalesce(said.block_size, sizes.block_size)::bigint as block_size,
    (
        slots.ranks
        * coalesce(
            said.num_gpu_blocks,
            said.num_gpu_blocks_override,
            said.kv_capacity_tokens // nullif(said.block_size, 0),
            sizes.num_gpu_blocks
        )
    )::bigint as num_gpu_blocks,
    coalesce(
        slots.stated,
        -- a plateau: most waiting samples stand at the ceiling, and nine in ten of them left room in the pool
        case when plateaus.is_plateau then ceilings.ceiling end
    ) as max_num_seqs,
    case
        when slots.stated is not null then 'argument'
        when plateaus.is_plateau then 'inferred'
    end as max_num_seqs_source,
    slots.ranks as ranks_summed,
    said.max_num_batched_tokens,
    coalesce(said.max_model_len, sizes.max_model_len)::bigint as max_model_len,
    said.prefix_caching,
    case
        when said.kv_connector is not null then said.kv_connector
        when said.kv_offloading_size is not null then 'kv_offloading'
    end as kv_connector,
    case when said.speculative_config is not null then said.speculative_config <> 'None' end as has_speculative_decoding,
    said.tensor_parallel_size,
    said.gpu_memory_utilization,
    said.kv_cache_dtype,
from setups
left join said using (engine, setup)
left join sizes using (engine, setup)
left join used using (engine, setup)
left join ceilings using (engine, setup)
cross join lateral (
    select ceilings.waiting_samples >= 3
        and ceilings.share_at_ceiling >= 0.6
        and ceilings.kv_usage_ratio < 0.8
        and ceilings.is_turning_over as is_plateau,
) as plateaus
-- a limit that the running count left far behind was said of another life of the engine (a line may count a chunk's request twice), or
-- of each rank of several
cross join lateral (
    select
        coalesce(said.max_num_seqs, sizes.max_num_seqs::bigint) as said_slots,
        coalesce(ceilings.ceiling <= 1.25 * said_slots + 1, true) as is_kept,
        not is_kept and coalesce(ceilings.ceiling <= 1.25 * said_slots * said.data_parallel_size + 1, false) as is_of_ranks,
        if(is_of_ranks, said.data_parallel_size, 1) as ranks,
        if(is_kept or is_of_ranks, ranks * said_slots, null) as stated,
) as slots
order by setups.engine, setups.setup
