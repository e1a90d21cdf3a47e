-- Each engine of the run, as far as any input describes it. NULL is "no input says".
--
-- grain: run, engine
-- column: run                      | The analyzed run.
-- column: engine                   | Its name in this run.
-- column: engine_kind              | vllm, sglang, ….
-- column: engine_version           | As printed.
-- column: engine_generation        | vLLM: v0 or v1.
-- column: model                    | Served model name.
-- column: kv_capacity_tokens       | Tokens the KV pool holds.
-- column: block_size               | Tokens in a block.
-- column: num_gpu_blocks           | Blocks in the pool.
-- column: max_num_seqs             | Most requests running at once.
-- column: max_num_seqs_source      | argument or inferred.
-- column: ranks_summed             | Data-parallel ranks whose sum its samples, slots and pool are; 1 where they are of one.
-- column: max_num_batched_tokens   | Token budget of a step.
-- column: max_model_len            | Longest sequence.
-- column: prefix_caching           | Whether prefix caching is on.
-- column: kv_connector             | External KV tier, where one is configured.
-- column: has_speculative_decoding | Whether speculative decoding is on.
-- column: tensor_parallel_size     | GPUs one copy of the model is split over.
-- column: gpu_memory_utilization   | Share of GPU memory the engine may use.
-- column: kv_cache_dtype           | Type of a KV entry.
-- column: first_seen_at            | First observation.
-- column: last_seen_at             | Last observation.
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
