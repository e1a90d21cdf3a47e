-- Each engine: what it is, how large its KV pool is and how it was set up, as far as any input says so.
--
-- A setting is told here where it held for all of the time in which the engine was seen to serve. One that a restart changed in
-- between is NULL: core.engine_setups has each, with its time.
--
-- grain: engine
-- needs: core.seen_engines
-- column: engine                   VARCHAR     | Its name in this run.
-- column: engine_kind              VARCHAR     | vllm, sglang, …, as its metrics are named, or the format of an input of it says; NULL where none does.
-- column: engine_version           VARCHAR     | As printed.
-- column: engine_generation        VARCHAR     | vLLM: v0 or v1; NULL where not told.
-- column: model                    VARCHAR     | Served model name.
-- column: kv_capacity_tokens       BIGINT      | Tokens the KV pool holds.
-- column: block_size               BIGINT      | Tokens in a block.
-- column: num_gpu_blocks           BIGINT      | Blocks in the pool.
-- column: max_num_seqs             BIGINT      | Most requests running at once.
-- column: max_num_seqs_source      VARCHAR     | argument or inferred; NULL where not known.
-- column: ranks_summed             BIGINT      | Data-parallel ranks whose sum its samples, slots and pool are; 1 where they are of one.
-- column: max_num_batched_tokens   BIGINT      | Token budget of a step.
-- column: max_model_len            BIGINT      | Longest sequence.
-- column: prefix_caching           BOOLEAN     | Whether prefix caching is on.
-- column: kv_connector             VARCHAR     | External KV tier, where one is configured.
-- column: has_speculative_decoding BOOLEAN     | Whether speculative decoding is on; NULL where not told.
-- column: tensor_parallel_size     BIGINT      | GPUs one copy of the model is split over.
-- column: gpu_memory_utilization   DOUBLE      | Share of GPU memory the engine may use.
-- column: kv_cache_dtype           VARCHAR     | Type of a KV entry; `auto` follows the model.
-- column: was_set_up_anew          BOOLEAN     | Whether it served with other settings after a restart: what differs is NULL here.
-- column: first_seen_at            TIMESTAMPTZ | First observation; NULL where only pages without a time show it.
-- column: last_seen_at             TIMESTAMPTZ | Last observation.
with models as (
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

-- an input is of the engine whose format it has; of vLLM's lines, only V0's have a count of swapped requests
formats as (
    select engines.engine, max(sources.engine_kind) as engine_kind, bool_or(inputs.is_v0) as is_v0
    from core.seen_engines as engines
    inner join (
        select engine, source, bool_or(swapped is not null) as is_v0 from staging.engine_samples group by all
        union all
        select distinct engine, source, false from staging.engine_events
        union all
        select distinct engine, source, false from staging.settings
    ) as inputs
        on list_contains(names_of_engine(engines.engine), inputs.engine)
    left join raw.sources as sources using (source)
    group by engines.engine
),

served as (
    select *
    from core.engine_setups
    -- of an engine that served nothing, its last
    qualify has_served or (not bool_or(has_served) over (partition by engine) and setup = max(setup) over (partition by engine))
),

setups as (
    select
        engine,
        the_same(engine_version) as engine_version,
        the_same(engine_generation) as engine_generation,
        the_same(model) as model,
        the_same(kv_capacity_tokens) as kv_capacity_tokens,
        the_same(block_size) as block_size,
        the_same(num_gpu_blocks) as num_gpu_blocks,
        the_same(max_num_seqs) as max_num_seqs,
        the_same(max_num_seqs_source) as max_num_seqs_source,
        max(ranks_summed) as ranks_summed,
        the_same(max_num_batched_tokens) as max_num_batched_tokens,
        the_same(max_model_len) as max_model_len,
        the_same(prefix_caching) as prefix_caching,
        the_same(kv_connector) as kv_connector,
        the_same(has_speculative_decoding) as has_speculative_decoding,
        the_same(tensor_parallel_size) as tensor_parallel_size,
        the_same(gpu_memory_utilization) as gpu_memory_utilization,
        the_same(kv_cache_dtype) as kv_cache_dtype,
        count(*) > 1 as was_set_up_anew,
    from served
    group by engine
)

select
    engines.engine,
    coalesce(
        models.engine_kind,
        case when setups.engine_generation is not null then 'vllm' end,
        formats.engine_kind
    ) as engine_kind,
    setups.engine_version,
    coalesce(setups.engine_generation, case when formats.is_v0 then 'v0' end) as engine_generation,
    coalesce(models.model, setups.model) as model,
    setups.kv_capacity_tokens,
    setups.block_size,
    setups.num_gpu_blocks,
    setups.max_num_seqs,
    case when setups.max_num_seqs is not null then setups.max_num_seqs_source end as max_num_seqs_source,
    setups.ranks_summed,
    setups.max_num_batched_tokens,
    setups.max_model_len,
    setups.prefix_caching,
    setups.kv_connector,
    setups.has_speculative_decoding,
    setups.tensor_parallel_size,
    setups.gpu_memory_utilization,
    setups.kv_cache_dtype,
    setups.was_set_up_anew,
    engines.first_seen_at,
    engines.last_seen_at,
from core.seen_engines as engines
left join setups using (engine)
left join models using (engine)
left join formats using (engine)
order by engines.engine
