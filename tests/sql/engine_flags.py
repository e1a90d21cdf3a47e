"""Command-line settings that versions of vLLM and SGLang have, as their own argument parsers define them.

Read from the released packages named in VERSIONS (vLLM: `vllm/engine/arg_utils.py`; SGLang: `server_args.py`). A setting is
listed with the first and the last of these versions that has it: those that bear on the KV pool, or that tools are known to
advise.
"""

VERSIONS = {
    "vllm": (
        *("0.8.5", "0.9.1", "0.10.2", "0.11.1", "0.11.2", "0.12.0", "0.14.1"),
        *("0.15.1", "0.16.0", "0.20.2", "0.24.0", "0.28.0", "0.32.0"),
    ),
    "sglang": ("0.4.3", "0.4.10", "0.5.5"),
}

FLAGS: dict[str, dict[str, tuple[str, str]]] = {
    "vllm": {
        "cpu_offload_gb": ("0.8.5", "0.32.0"),
        "data_parallel_size": ("0.8.5", "0.32.0"),
        "enable_chunked_prefill": ("0.8.5", "0.32.0"),
        "enable_logging_iteration_details": ("0.14.1", "0.32.0"),
        "enable_prefix_caching": ("0.8.5", "0.32.0"),
        "gpu_memory_utilization": ("0.8.5", "0.32.0"),
        "kv_cache_dtype": ("0.8.5", "0.32.0"),
        "kv_cache_memory_bytes": ("0.10.2", "0.32.0"),
        "kv_cache_metrics": ("0.12.0", "0.32.0"),
        "kv_events_config": ("0.9.1", "0.32.0"),
        "kv_offloading_size": ("0.11.1", "0.32.0"),
        "kv_transfer_config": ("0.8.5", "0.32.0"),
        "long_prefill_token_threshold": ("0.8.5", "0.32.0"),
        "max_loras": ("0.8.5", "0.32.0"),
        "max_model_len": ("0.8.5", "0.32.0"),
        "max_num_batched_tokens": ("0.8.5", "0.32.0"),
        "max_num_partial_prefills": ("0.8.5", "0.24.0"),
        "max_num_queued_reqs": ("0.32.0", "0.32.0"),
        "max_num_seqs": ("0.8.5", "0.32.0"),
        "num_gpu_blocks_override": ("0.8.5", "0.32.0"),
        "num_scheduler_steps": ("0.8.5", "0.9.1"),
        "override_generation_config": ("0.8.5", "0.32.0"),
        "preemption_mode": ("0.8.5", "0.10.2"),
        "quantization": ("0.8.5", "0.32.0"),
        "scheduler_delay_factor": ("0.8.5", "0.10.2"),
        "scheduler_reserve_full_isl": ("0.20.2", "0.32.0"),
        "swap_space": ("0.8.5", "0.16.0"),
        "tensor_parallel_size": ("0.8.5", "0.32.0"),
        "watermark": ("0.24.0", "0.32.0"),
    },
    "sglang": {
        "chunked_prefill_size": ("0.4.3", "0.5.5"),
        "disable_radix_cache": ("0.4.3", "0.5.5"),
        "enable_hierarchical_cache": ("0.4.3", "0.5.5"),
        "hicache_size": ("0.4.10", "0.5.5"),
        "kv_cache_dtype": ("0.4.3", "0.5.5"),
        "max_loras_per_batch": ("0.4.3", "0.5.5"),
        "max_running_requests": ("0.4.3", "0.5.5"),
        "mem_fraction_static": ("0.4.3", "0.5.5"),
        "schedule_conservativeness": ("0.4.3", "0.5.5"),
        "tp_size": ("0.4.3", "0.5.5"),
    },
}


def settings_of(engine_kind: str, version: str) -> set[str]:
    """The listed settings that this version has. ValueError for a version that was not read."""
    read = VERSIONS[engine_kind]
    at = read.index(version)
    return {name for name, (first, last) in FLAGS[engine_kind].items() if read.index(first) <= at <= read.index(last)}
