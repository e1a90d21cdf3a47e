-- What each exposed metric name means: the one place where engines' metric names are known to the SQL library.
--
-- signal: our word for it, the same for every engine. kind: gauge, counter, or histogram (its name without _bucket, _sum, _count).
-- factor: what to multiply by to have our unit. preferred: of several names for one signal, the lowest present is used. Only what a query
-- reads is here: a test looks for it.
create or replace macro signals() as table
select name, signal, kind, factor, preferred
from (values
    ('vllm:num_requests_running', 'running', 'gauge', 1.0, 1),
    ('vllm:num_requests_waiting', 'waiting', 'gauge', 1.0, 1),
    ('vllm:num_requests_waiting_by_reason', 'waiting_by_reason', 'gauge', 1.0, 1),
    ('vllm:num_requests_swapped', 'swapped', 'gauge', 1.0, 1),
    ('vllm:kv_cache_usage_perc', 'kv_usage_ratio', 'gauge', 1.0, 1),
    ('vllm:gpu_cache_usage_perc', 'kv_usage_ratio', 'gauge', 1.0, 2),
    ('vllm:num_preemptions_total', 'preemptions', 'counter', 1.0, 1),
    ('vllm:num_preemptions', 'preemptions', 'counter', 1.0, 2),
    ('vllm:prompt_tokens_total', 'prompt_tokens', 'counter', 1.0, 1),
    ('vllm:prompt_tokens', 'prompt_tokens', 'counter', 1.0, 2),
    ('vllm:generation_tokens_total', 'generation_tokens', 'counter', 1.0, 1),
    ('vllm:generation_tokens', 'generation_tokens', 'counter', 1.0, 2),
    ('vllm:prompt_tokens_by_source_total', 'prompt_tokens_by_source', 'counter', 1.0, 1),
    ('vllm:prompt_tokens_by_source', 'prompt_tokens_by_source', 'counter', 1.0, 2),
    ('vllm:prompt_tokens_cached_by_source_total', 'prompt_tokens_cached_by_source', 'counter', 1.0, 1),
    ('vllm:prefix_cache_queries_total', 'prefix_queries', 'counter', 1.0, 1),
    ('vllm:prefix_cache_queries', 'prefix_queries', 'counter', 1.0, 2),
    ('vllm:gpu_prefix_cache_queries_total', 'prefix_queries', 'counter', 1.0, 3),
    ('vllm:prefix_cache_hits_total', 'prefix_hits', 'counter', 1.0, 1),
    ('vllm:prefix_cache_hits', 'prefix_hits', 'counter', 1.0, 2),
    ('vllm:gpu_prefix_cache_hits_total', 'prefix_hits', 'counter', 1.0, 3),
    ('vllm:external_prefix_cache_queries_total', 'external_prefix_queries', 'counter', 1.0, 1),
    ('vllm:external_prefix_cache_hits_total', 'external_prefix_hits', 'counter', 1.0, 1),
    ('vllm:spec_decode_num_draft_tokens_total', 'spec_draft_tokens', 'counter', 1.0, 1),
    ('vllm:request_success_total', 'finished', 'counter', 1.0, 1),
    ('vllm:request_success', 'finished', 'counter', 1.0, 2),
    ('vllm:admission_rejections_total', 'rejections', 'counter', 1.0, 1),
    ('vllm:time_to_first_token_seconds', 'ttft_s', 'histogram', 1.0, 1),
    ('vllm:inter_token_latency_seconds', 'itl_s', 'histogram', 1.0, 1),
    ('vllm:time_per_output_token_seconds', 'itl_s', 'histogram', 1.0, 2),
    ('vllm:e2e_request_latency_seconds', 'e2e_s', 'histogram', 1.0, 1),
    ('vllm:request_queue_time_seconds', 'queue_s', 'histogram', 1.0, 1),
    ('vllm:request_prompt_tokens', 'request_prompt_tokens', 'histogram', 1.0, 1),
    ('vllm:request_generation_tokens', 'request_generation_tokens', 'histogram', 1.0, 1),
    ('vllm:iteration_tokens_total', 'iteration_tokens', 'histogram', 1.0, 1),
    ('vllm:kv_block_idle_before_evict_seconds', 'block_idle_before_evict_s', 'histogram', 1.0, 1),
    -- SGLang. Its gauges are as of the last batch line it logged; num_retracted_reqs and cache_hit_rate are of the last event
    -- only, and are left out. token_usage leaves out what may be evicted; a hybrid model's own pools stand beside it.
    ('sglang:num_running_reqs', 'running', 'gauge', 1.0, 1),
    ('sglang:num_queue_reqs', 'waiting', 'gauge', 1.0, 1),
    ('sglang:token_usage', 'kv_usage_ratio', 'gauge', 1.0, 1),
    ('sglang:full_token_usage', 'kv_usage_ratio', 'gauge', 1.0, 2),
    ('sglang:max_total_num_tokens', 'kv_capacity_tokens', 'gauge', 1.0, 1),
    ('sglang:page_size', 'block_size', 'gauge', 1.0, 1),
    ('sglang:context_len', 'max_model_len', 'gauge', 1.0, 1),
    ('sglang:kv_evictable_tokens', 'kv_evictable_tokens', 'gauge', 1.0, 1),
    ('sglang:num_retracted_requests_total', 'preemptions', 'counter', 1.0, 1),
    ('sglang:num_retracted_input_tokens_total', 'retracted_input_tokens', 'counter', 1.0, 1),
    ('sglang:num_retracted_output_tokens_total', 'retracted_output_tokens', 'counter', 1.0, 1),
    ('sglang:realtime_tokens_total', 'realtime_tokens', 'counter', 1.0, 1),
    ('sglang:prefill_effective_tokens_total', 'prefill_effective_tokens', 'counter', 1.0, 1),
    ('sglang:prompt_tokens_total', 'prompt_tokens', 'counter', 1.0, 1),
    ('sglang:cached_tokens_total', 'cached_prompt_tokens', 'counter', 1.0, 1),
    ('sglang:generation_tokens_total', 'generation_tokens', 'counter', 1.0, 1),
    ('sglang:evicted_tokens_total', 'evicted_tokens', 'counter', 1.0, 1),
    ('sglang:load_back_tokens_total', 'tier_restored_tokens', 'counter', 1.0, 1),
    ('sglang:prefetched_tokens_total', 'storage_prefetched_tokens', 'counter', 1.0, 1),
    ('sglang:hicache_backup_tokens_total', 'tier_stored_tokens', 'counter', 1.0, 1),
    ('sglang:hicache_dropped_tokens_total', 'tier_dropped_tokens', 'counter', 1.0, 1),
    ('sglang:num_requests_total', 'finished', 'counter', 1.0, 1),
    ('sglang:num_aborted_requests_total', 'aborted', 'counter', 1.0, 1),
    ('sglang:time_to_first_token_seconds', 'ttft_s', 'histogram', 1.0, 1),
    ('sglang:inter_token_latency_seconds', 'itl_s', 'histogram', 1.0, 1),
    ('sglang:time_per_output_token_seconds', 'itl_s', 'histogram', 1.0, 2),
    ('sglang:e2e_request_latency_seconds', 'e2e_s', 'histogram', 1.0, 1),
    ('sglang:queue_time_seconds', 'queue_s', 'histogram', 1.0, 1),
    -- TensorRT-LLM. Pauses are a gauge of the last iteration: what fell between two scrapes is lost, so it is not here.
    ('trtllm_num_requests_running', 'running', 'gauge', 1.0, 1),
    ('trtllm_num_requests_waiting', 'waiting', 'gauge', 1.0, 1),
    ('trtllm_kv_cache_utilization', 'kv_usage_ratio', 'gauge', 1.0, 1),
    ('trtllm_kv_cache_max_blocks', 'num_gpu_blocks', 'gauge', 1.0, 1),
    ('trtllm_kv_cache_tokens_per_block', 'block_size', 'gauge', 1.0, 1),
    ('trtllm_prompt_tokens_total', 'prompt_tokens', 'counter', 1.0, 1),
    ('trtllm_prompt_cached_tokens_total', 'cached_prompt_tokens', 'counter', 1.0, 1),
    ('trtllm_generation_tokens_total', 'generation_tokens', 'counter', 1.0, 1),
    ('trtllm_request_success_total', 'finished', 'counter', 1.0, 1),
    ('trtllm_time_to_first_token_seconds', 'ttft_s', 'histogram', 1.0, 1),
    ('trtllm_time_per_output_token_seconds', 'itl_s', 'histogram', 1.0, 1),
    ('trtllm_e2e_request_latency_seconds', 'e2e_s', 'histogram', 1.0, 1),
    ('trtllm_request_queue_time_seconds', 'queue_s', 'histogram', 1.0, 1),
    -- Triton's TensorRT-LLM backend: one name for many quantities, told apart by a label (parsers.prometheus_names adds it).
    ('nv_trt_llm_request_metrics:scheduled', 'running', 'gauge', 1.0, 1),
    ('nv_trt_llm_request_metrics:active', 'running', 'gauge', 1.0, 2),
    ('nv_trt_llm_request_metrics:waiting', 'waiting', 'gauge', 1.0, 1),
    ('nv_trt_llm_request_metrics:max', 'max_num_seqs', 'gauge', 1.0, 1),
    ('nv_trt_llm_kv_cache_block_metrics:fraction', 'kv_usage_ratio', 'gauge', 1.0, 1),
    ('nv_trt_llm_kv_cache_block_metrics:max', 'num_gpu_blocks', 'gauge', 1.0, 1),
    ('nv_trt_llm_kv_cache_block_metrics:tokens_per', 'block_size', 'gauge', 1.0, 1),
    -- llama.cpp. No gauge of the KV pool since 2025, no counter of failed requests in any version; prompt tokens are those computed.
    ('llamacpp:requests_processing', 'running', 'gauge', 1.0, 1),
    ('llamacpp:requests_deferred', 'waiting', 'gauge', 1.0, 1),
    ('llamacpp:kv_cache_usage_ratio', 'kv_usage_ratio', 'gauge', 1.0, 1),
    ('llamacpp:prompt_tokens_total', 'prompt_tokens', 'counter', 1.0, 1),
    ('llamacpp:tokens_predicted_total', 'generation_tokens', 'counter', 1.0, 1),
    -- LMCache and other tiers behind an engine.
    ('lmcache:num_hit_tokens_total', 'tier_restored_tokens', 'counter', 1.0, 2),
    ('lmcache:num_hit_tokens', 'tier_restored_tokens', 'counter', 1.0, 3),
    ('lmcache:num_stored_tokens_total', 'tier_stored_tokens', 'counter', 1.0, 2),
    ('lmcache:num_stored_tokens', 'tier_stored_tokens', 'counter', 1.0, 3),
    -- Dynamo and llm-d repeat what their engines say; they answer only where the engine itself was not scraped.
    ('dynamo_component_gpu_cache_usage_percent', 'kv_usage_ratio', 'gauge', 1.0, 5),
    ('dynamo_component_kvstats_gpu_cache_usage_percent', 'kv_usage_ratio', 'gauge', 1.0, 5),
    ('dynamo_frontend_inflight_requests', 'running', 'gauge', 1.0, 5),
    ('dynamo_frontend_queued_requests', 'waiting', 'gauge', 1.0, 5),
    ('dynamo_frontend_model_rejection_total', 'rejections', 'counter', 1.0, 5),
    ('kvbm_matched_tokens', 'tier_restored_tokens', 'counter', 1.0, 4),
    ('kvbm_matched_tokens_total', 'tier_restored_tokens', 'counter', 1.0, 4),
    ('DCGM_FI_DEV_GPU_UTIL', 'gpu_util_ratio', 'gauge', 0.01, 1),
    ('DCGM_FI_DEV_FB_FREE', 'gpu_free_mib', 'gauge', 1.0, 1),
    ('DCGM_FI_DEV_FB_USED', 'gpu_used_mib', 'gauge', 1.0, 1),
    ('process_start_time_seconds', 'process_start_epoch_s', 'gauge', 1.0, 1)
) as catalogue(name, signal, kind, factor, preferred);

-- The name under which an engine of this kind and version exposes a signal; NULL where it has none.
create or replace macro exposed_as(wanted, engine_kind, engine_version) as (
    select any_value(name)
    from signals()
    where signal = wanted
        and starts_with(name, engine_kind || ':')
        and preferred = if(
            wanted = 'kv_usage_ratio' and engine_kind = 'vllm'
            and coalesce(version_number(engine_version) < version_number('0.9.2'), false),
            2, 1
        )
);

-- Whether a sample is a number that an engine can have counted or gauged; one below 0, not finite or too large is as good as not
-- scraped. NaN is above every number.
create or replace macro is_plausible(value) as value >= 0 and value < power(2, 53);
