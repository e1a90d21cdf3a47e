-- What a setting is, when two runs are compared: the one place where that is known.
--
-- pool: how much KV state fits. admission: how much of it may be asked for at once. derived: a fact that follows from others and is
-- no variable of its own. measured: what an engine found of its machine when it started, which nobody set; where it matters, the pool
-- that follows from it differs. identity: names, places and numbers that change no result. What is not listed is a variable all the same.
create or replace macro setting_roles() as table
select key, role
from (values
    ('gpu_memory_utilization', 'pool'),
    ('num_gpu_blocks_override', 'pool'),
    ('block_size', 'pool'),
    ('kv_cache_dtype', 'pool'),
    ('tensor_parallel_size', 'pool'),
    ('pipeline_parallel_size', 'pool'),
    ('data_parallel_size', 'pool'),
    ('max_total_tokens', 'pool'),
    ('kv_cache_free_gpu_memory_fraction', 'pool'),
    ('ctx_size', 'pool'),
    ('cpu_offload_gb', 'pool'),
    ('engines', 'pool'),
    ('max_num_seqs', 'admission'),
    ('watermark', 'admission'),
    ('schedule_conservativeness', 'admission'),
    ('capacity_scheduler_policy', 'admission'),
    ('scheduler_reserve_full_isl', 'admission'),
    ('kv_capacity_tokens', 'derived'),
    ('num_gpu_blocks', 'derived'),
    ('num_cpu_blocks', 'derived'),
    ('kv_cache_memory_bytes', 'derived'),
    ('kv_cache_memory_gib', 'derived'),
    ('kv_cache_max_concurrency', 'derived'),
    ('max_concurrency', 'derived'),
    ('max_concurrency_tokens_per_request', 'derived'),
    ('effective_attention_block_size', 'derived'),
    ('user_specified_block_size', 'derived'),
    ('kv_offloading_cpu_blocks', 'derived'),
    ('full_layer_tokens', 'derived'),
    ('swa_layer_tokens', 'derived'),
    ('max_mamba_cache_size', 'derived'),
    ('engine_generation', 'derived'),
    ('weights_gib', 'measured'),
    ('free_before_load_gib', 'measured'),
    ('served_model_name', 'identity'),
    ('instance_id', 'identity'),
    ('data_parallel_rank', 'identity'),
    ('seed', 'identity'),
    ('random_seed', 'identity'),
    ('nccl_port', 'identity'),
    ('dist_init_addr', 'identity'),
    ('device_id', 'identity'),
    ('enable_log_requests', 'identity'),
    ('disable_log_stats', 'identity'),
    ('disable_log_requests', 'identity'),
    ('kv_events_config', 'identity'),
    ('observability_config', 'identity')
) as catalogue(key, role);

-- The role of any key: as listed, else by its name, else a variable (`other`).
create or replace macro named_role(key) as
    case when regexp_matches(key, '(^|_)(port|host|url|path|dir|file|endpoint|address|ids?|log|logs|logging|name|api_key|token)(_|$)') then 'identity' else 'other' end;

-- What an input may call what it says of this engine: by its own name, or by that of its server as a whole.
create or replace macro names_of_engine(engine) as
    list_distinct([engine, '*', concat(split_part(engine, '/', 1), '/*')]);

-- The one value of a group; NULL where it has several, or some and none.
create or replace macro the_same(value) as
    case when count(distinct coalesce(value::varchar, '')) = 1 then any_value(value) end;
