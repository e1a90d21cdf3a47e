-- Each engine: what it is, how large its KV pool is and how it was set up, as far as any input says so.
--
-- A setting said of the server (`*`) holds for each of its ranks; what the engine said last holds. `max_num_seqs` is rarely said
-- (no metric carries it): where requests wait and the running count stays at one ceiling while the KV pool has room, that ceiling
-- is taken for it and marked `inferred`. One that is said and that the running count left far behind was another life's, and no limit.
--
-- grain: engine
-- column: engine                   | Its name in this run.
-- column: engine_kind              | vllm, sglang, …, as its metrics are named, or the format of an input of it says; NULL where none does.
-- column: engine_version           | As printed.
-- column: engine_generation        | vLLM: v0 or v1; NULL where not told.
-- column: model                    | Served model name.
-- column: kv_capacity_tokens       | Tokens the KV pool holds.
-- column: block_size               | Tokens in a block.
-- column: num_gpu_blocks           | Blocks in the pool.
-- column: max_num_seqs             | Most requests running at once.
-- column: max_num_seqs_source      | argument or inferred; NULL where not known.
-- column: max_num_batched_tokens   | Token budget of a step.
-- column: max_model_len            | Longest sequence.
-- column: prefix_caching           | Whether prefix caching is on.
-- column: kv_connector             | External KV tier, where one is configured.
-- column: has_speculative_decoding | Whether speculative decoding is on; NULL where not told.
-- column: tensor_parallel_size     | GPUs one copy of the model is split over.
-- column: gpu_memory_utilization   | Share of GPU memory the engine may use.
-- column: kv_cache_dtype           | Type of a KV entry; `auto` follows the model.
-- column: first_seen_at            | First observation; NULL where only pages without a time show it.
-- column: last_seen_at             | Last observation.
with seen as (
    select engine, sampled_at as seen_at from core.engine_states
    union all
    select engine, stepped_at from staging.iteration_steps
    union all
    select engine, published_at from staging.kv_events
    union all
    select engine, arrived_at from staging.spans where not exists (from core.engine_states)
    union all
    select engine, happened_at from staging.engine_events where not exists (from core.engine_states)
    union all
    select engine, null from core.untimed_pages
),

engines as (
    select engine, min(seen_at) as first_seen_at, max(seen_at) as last_seen_at
    from seen
    where engine is not null and (engine not like '%*' or not exists (from seen where engine not like '%*'))
    group by engine
),

said as (
    select
        engines.engine,
        settings.key,
        arg_max(settings.value_text, (settings.engine = engines.engine, settings.said_at, settings.source, settings.line)) as value_text,
    from engines
    inner join staging.settings
        on settings.engine = engines.engine
        or settings.engine = '*'
        or settings.engine = concat(split_part(engines.engine, '/', 1), '/*')
    group by all
),

settings as (
    select
        engine,
        max(value_text) filter (where key = 'engine_version') as engine_version,
        lower(max(value_text) filter (where key = 'engine_generation')) as engine_generation,
        max(value_text) filter (where key = 'served_model_name') as served_model_name,
        max(value_text) filter (where key = 'model') as model,
        max(try_cast(replace(value_text, ',', '') as bigint)) filter (where key = 'kv_capacity_tokens') as kv_capacity_tokens,
        max(try_cast(value_text as bigint)) filter (where key = 'block_size') as block_size,
        max(try_cast(value_text as bigint)) filter (where key = 'num_gpu_blocks') as num_gpu_blocks,
        max(try_cast(value_text as bigint)) filter (where key = 'num_gpu_blocks_override') as num_gpu_blocks_override,
        max(try_cast(value_text as bigint)) filter (where key = 'max_num_seqs') as max_num_seqs,
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
    from said
    group by engine
),

models as (
    select
        engine,
        max(model) as model,
        case
            when bool_or(name like 'vllm:%') then 'vllm'
            when bool_or(name like 'sglang:%') then 'sglang'
            when bool_or(name like 'trtllm%' or name like 'nv_trt_llm%') then 'tensorrt_llm'
            when bool_or(name like 'llamacpp:%') then 'llamacpp'
        end as engine_kind,
    from (
        select engine, name, model from staging.metric_samples
        union all
        select engine, name, model from staging.untimed_samples
    )
    group by engine
),

-- sizes that an engine exposes as gauges
sizes as (
    select
        engine,
        max(value) filter (where signal = 'kv_capacity_tokens') as kv_capacity_tokens,
        max(value) filter (where signal = 'num_gpu_blocks') as num_gpu_blocks,
        max(value) filter (where signal = 'block_size') as block_size,
        max(value) filter (where signal = 'max_num_seqs') as max_num_seqs,
        max(value) filter (where signal = 'max_model_len') as max_model_len,
    from (
        select engine, name, value from staging.metric_samples
        union all
        select engine, name, value from staging.untimed_samples
    )
    inner join signals() as signals using (name)
    where signal in ('kv_capacity_tokens', 'num_gpu_blocks', 'block_size', 'max_num_seqs', 'max_model_len') and value > 0
    group by engine
),

-- a log whose start-up lines are missing still says how large the pool is: tokens in use over their share of it
used as (
    select engine, median(kv_used_tokens / kv_usage_ratio) as kv_capacity_tokens
    from staging.engine_samples
    where kv_usage_ratio >= 0.5 and kv_used_tokens > 0
    group by engine
),

ceilings as (
    select
        engine,
        max(running) as ceiling,
        avg((running = peak)::int) filter (where waiting > 0 and not coalesce(deferred = waiting, false)) as share_at_ceiling,
        quantile_cont(kv_usage_ratio, 0.9) filter (where waiting > 0) as kv_usage_ratio,
        count(*) filter (where waiting > 0) as waiting_samples,
        -- slots are a limit only where requests come and go: one request that runs on while others wait shows no slot
        avg((coalesce(prompt_progress.prompt_tokens, 0) > 0)::int) filter (where waiting > 0) >= 0.5 and max(running) >= 2 as is_turning_over,
    from (select *, max(running) over (partition by engine) as peak from core.engine_states)
    left join core.prompt_progress using (engine, sampled_at)
    group by engine
),

-- an input is of the engine whose format it has; of vLLM's lines, only V0's have a count of swapped requests
formats as (
    select engines.engine, max(sources.engine_kind) as engine_kind, bool_or(inputs.is_v0) as is_v0
    from engines
    inner join (
        select engine, source, bool_or(swapped is not null) as is_v0 from staging.engine_samples group by all
        union all
        select distinct engine, source, false from staging.engine_events
        union all
        select distinct engine, source, false from staging.settings
    ) as inputs
        on inputs.engine = engines.engine
        or inputs.engine = '*'
        or inputs.engine = concat(split_part(engines.engine, '/', 1), '/*')
    left join raw.sources as sources using (source)
    group by engines.engine
)

select
    engines.engine,
    coalesce(
        models.engine_kind,
        case when settings.engine_generation is not null then 'vllm' end,
        formats.engine_kind
    ) as engine_kind,
    settings.engine_version,
    coalesce(settings.engine_generation, case when formats.is_v0 then 'v0' end) as engine_generation,
    coalesce(models.model, trim(settings.served_model_name, '[]'' '), settings.model) as model,
    coalesce(
        settings.kv_capacity_tokens,
        settings.num_gpu_blocks * settings.block_size,
        sizes.kv_capacity_tokens,
        sizes.num_gpu_blocks * sizes.block_size,
        round(used.kv_capacity_tokens)
    )::bigint as kv_capacity_tokens,
    coalesce(settings.block_size, sizes.block_size)::bigint as block_size,
    coalesce(
        settings.num_gpu_blocks,
        settings.num_gpu_blocks_override,
        settings.kv_capacity_tokens // nullif(settings.block_size, 0),
        sizes.num_gpu_blocks
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
    settings.max_num_batched_tokens,
    coalesce(settings.max_model_len, sizes.max_model_len)::bigint as max_model_len,
    settings.prefix_caching,
    case
        when settings.kv_connector is not null then settings.kv_connector
        when settings.kv_offloading_size is not null then 'kv_offloading'
    end as kv_connector,
    case when settings.speculative_config is not null then settings.speculative_config <> 'None' end as has_speculative_decoding,
    settings.tensor_parallel_size,
    settings.gpu_memory_utilization,
    settings.kv_cache_dtype,
    engines.first_seen_at,
    engines.last_seen_at,
from engines
left join settings using (engine)
left join models using (engine)
left join sizes using (engine)
left join used using (engine)
left join ceilings using (engine)
cross join lateral (
    select ceilings.waiting_samples >= 3
        and ceilings.share_at_ceiling >= 0.6
        and ceilings.kv_usage_ratio < 0.8
        and ceilings.is_turning_over as is_plateau,
) as plateaus
-- a limit that the running count left far behind was said of another life of the engine (a line may count a chunk's request twice)
cross join lateral (
    select
        case
            when coalesce(ceilings.ceiling <= 1.25 * coalesce(settings.max_num_seqs, sizes.max_num_seqs) + 1, true)
                then coalesce(settings.max_num_seqs, sizes.max_num_seqs::bigint)
        end as stated,
) as slots
left join formats using (engine)
order by engine
