-- Each engine of the run, as far as any input describes it. NULL is "no input says".
--
-- grain: run, engine
-- needs: core.engines
-- column: run                      VARCHAR     | The analyzed run.
-- column: engine                   VARCHAR     | Its name in this run.
-- column: engine_kind              VARCHAR     | vllm, sglang, ….
-- column: engine_version           VARCHAR     | As printed.
-- column: engine_generation        VARCHAR     | vLLM: v0 or v1.
-- column: model                    VARCHAR     | Served model name.
-- column: kv_capacity_tokens       BIGINT      | Tokens the KV pool holds.
-- column: block_size               BIGINT      | Tokens in a block.
-- column: num_gpu_blocks           BIGINT      | Blocks in the pool.
-- column: max_num_seqs             BIGINT      | Most requests running at once.
-- column: max_num_seqs_source      VARCHAR     | argument or inferred.
-- column: ranks_summed             BIGINT      | Data-parallel ranks whose sum its samples, slots and pool are; 1 where they are of one.
-- column: max_num_batched_tokens   BIGINT      | Token budget of a step.
-- column: max_model_len            BIGINT      | Longest sequence.
-- column: prefix_caching           BOOLEAN     | Whether prefix caching is on.
-- column: kv_connector             VARCHAR     | External KV tier, where one is configured.
-- column: has_speculative_decoding BOOLEAN     | Whether speculative decoding is on.
-- column: tensor_parallel_size     BIGINT      | GPUs one copy of the model is split over.
-- column: gpu_memory_utilization   DOUBLE      | Share of GPU memory the engine may use.
-- column: kv_cache_dtype           VARCHAR     | Type of a KV entry.
-- column: first_seen_at            TIMESTAMPTZ | First observation.
-- column: last_seen_at             TIMESTAMPTZ | Last observation.
select
    getvariable('run') as run,
    engine,
    engine_kind,
    engine_version,
    engine_generation,
    model,
    kv_capacity_tokens,
    block_size,
    num_gpu_blocks,
    max_num_seqs,
    max_num_seqs_source,
    ranks_summed,
    max_num_batched_tokens,
    max_model_len,
    prefix_caching,
    kv_connector,
    has_speculative_decoding,
    tensor_parallel_size,
    gpu_memory_utilization,
    kv_cache_dtype,
    first_seen_at,
    last_seen_at,
from core.engines
order by engine
