"""SGLang: what a server says of its own set-up, in its log and in /server_info.

    server_args=ServerArgs(model_path='/models/tiny', tp_size=2, max_running_requests=None, …)      -> tensor_parallel_size = 2, …
    server_args={'model_path': '/models/tiny', 'page_size': 1, 'disable_radix_cache': False, …}     from 0.5.20 on
    max_total_num_tokens=900, chunked_prefill_size=256, …, max_running_requests=8, context_len=1000 -> kv_capacity_tokens = 900, …
    Use sliding window memory pool. full_layer_tokens=153600, swa_layer_tokens=122880               -> the pools of a hybrid model
    Load weight end. elapsed=12.25 s, type=LlamaForCausalLM, avail mem=63.42 GB, mem usage=15.06 GB.     -> weights_gib = 15.06
    KV Cache is allocated. dtype: torch.bfloat16, #tokens: 185897, K size: 4.25 GB, V size: 4.25 GB -> kv_cache_memory_gib = 8.50

Settings get the name they have for every engine (`max_running_requests` is `max_num_seqs`); those without a counterpart keep
their own. Only what bears on scheduling and memory is kept, so no key and no path of a secret can get out.

Memory is of one GPU, and in units of 2^30 bytes, though the lines say GB. A draft model says the same of itself after the target
model has, and a hybrid model of each of its pools: there these lines are not what they are elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from parsers.vllm_config_lines import LONGEST_VALUE, SETTING, split_top_level

RENAMED = {
    "model_path": "model",
    "context_length": "max_model_len",
    "context_len": "max_model_len",
    "max_running_requests": "max_num_seqs",
    "max_total_num_tokens": "kv_capacity_tokens",
    "max_total_num_token": "kv_capacity_tokens",  # 0.1.9
    "page_size": "block_size",
    "tp_size": "tensor_parallel_size",
    "dp_size": "data_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "mem_fraction_static": "gpu_memory_utilization",
    "chunked_prefill_size": "max_num_batched_tokens",
    "schedule_policy": "scheduling_policy",
    "speculative_algorithm": "speculative_config",
    "version": "engine_version",
}
KEPT = frozenset(
    """
    model_path served_model_name context_length context_len max_running_requests max_total_tokens max_total_num_tokens
    max_total_num_token page_size tp_size dp_size pp_size mem_fraction_static chunked_prefill_size max_prefill_tokens
    schedule_policy schedule_conservativeness retraction_policy kv_cache_dtype speculative_algorithm disable_radix_cache
    enable_hierarchical_cache hicache_ratio hicache_size hicache_write_policy enable_lmcache disaggregation_mode
    cuda_graph_max_bs disable_cuda_graph enable_mixed_chunk enable_priority_scheduling max_queued_requests decode_log_interval
    disable_overlap_schedule full_layer_tokens swa_layer_tokens version device
    """.split()  # noqa: SIM905 - a list of words reads better as one
)

SERVER_ARGS = re.compile(r"server_args=(?:ServerArgs\(|\{)(?P<arguments>.*)[)}]\s*$", re.DOTALL)
# max_total_num_tokens=900, chunked_prefill_size=256, …, available_gpu_mem=19.98 GB
CAPACITY = re.compile(r"max_total_num_tokens?=\d+")
# Use sliding window memory pool. full_layer_tokens=153600, swa_layer_tokens=122880
POOLS = re.compile(r"full_layer_tokens=\d+, swa_layer_tokens=\d+")
FACT = re.compile(r"\b(\w+)=(\d+)\b")
MEMORY = tuple(
    re.compile(pattern)
    for pattern in (
        # Load weight begin. avail mem=78.58 GB
        r"Load weight begin\. avail mem=(?P<free_before_load_gib>\d+\.\d+) GB",
        # Load weight end. [elapsed=12.25 s, ]type=LlamaForCausalLM, …, avail mem=63.42 GB, mem usage=15.06 GB.
        r"Load weight end\. .{0,400}\bmem usage=(?P<weights_gib>\d+\.\d+) GB",
        # KV Cache is allocated. [dtype: torch.bfloat16, ]#tokens: 185897, K size: 4.25 GB, V size: 4.25 GB
        r"KV Cache is allocated\. .{0,100}\bK size: (?P<keys>\d+\.\d+) GB, V size: (?P<values>\d+\.\d+) GB",
        # KV Cache is allocated. …, KV size: 8.50 GB (latent attention) · Post-capture KV sizing: KV cache allocated. …
        r"(?:KV Cache is|Post-capture KV sizing: KV cache) allocated\. .{0,100}\bKV size: (?P<kv_cache_memory_gib>\d+\.\d+) GB",
        # Mamba Cache is allocated. max_mamba_cache_size: 160, conv_state size: 0.21GB, ssm_state size: 10.55GB
        r"Mamba Cache is allocated\. max_mamba_cache_size: (?P<max_mamba_cache_size>\d+)",
    )
)


def settings_of(message: str) -> dict[str, str]:
    """Settings and facts a message states; empty where it states none."""
    if arguments := SERVER_ARGS.match(message):
        found = (SETTING.fullmatch(part) for part in split_top_level(arguments["arguments"]))
        return kept({each[1] or each[2] or each[3]: each[4].strip().strip("'\"") for each in found if each})
    if CAPACITY.search(message) or POOLS.search(message):
        return kept(dict(FACT.findall(message)))
    return next((_memory(found.groupdict()) for pattern in MEMORY if (found := pattern.match(message))), {})


def _memory(said: dict[str, str]) -> dict[str, str]:
    """What a line says of memory; keys and values of the cache are one pool."""
    if "keys" in said:
        return {"kv_cache_memory_gib": f"{float(said['keys']) + float(said['values']):.2f}"}
    return said


def kept(settings: Mapping[str, object]) -> dict[str, str]:
    """The settings that are kept, by the names all engines share; None says that a default holds and not which: dropped."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        text = str(value)
        if name in KEPT and value is not None and text not in ("None", "") and len(text) <= LONGEST_VALUE:
            found[RENAMED.get(name, name)] = text
    if "disable_radix_cache" in found:
        found["enable_prefix_caching"] = str(found["disable_radix_cache"].lower() != "true")
    for flag, tier in (("enable_hierarchical_cache", "hicache"), ("enable_lmcache", "lmcache")):
        if found.get(flag, "").lower() == "true":
            found["kv_connector"] = tier
    return found
