"""vLLM engine log: what it says about its own configuration and capacity when it starts.

    non-default args: {'model': '/models/tiny', 'max_num_seqs': 32, 'api_key': '***', …}      -> max_num_seqs = 32, …
    args: Namespace(host=None, …, max_num_seqs=256, block_size=None, swap_space=4, …)         -> max_num_seqs = 256, …
    Initializing a V1 LLM engine (v0.32.0) with config: model='/models/tiny', max_seq_len=2048, …   -> max_model_len = 2048, …
    GPU KV cache size: 2,925,232 tokens, Maximum concurrency for 32,768 tokens per request: 89.27x  -> kv_capacity_tokens, …

Names are those of the command line, with underscores. Only settings that bear on scheduling and memory are kept, so no key,
token or prompt can get out; None is dropped: it says that a default holds and not which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

LONGEST_VALUE = 200

# fmt: off
KEPT = frozenset((
    "api_server_count", "async_scheduling", "block_size", "cpu_offload_gb", "data_parallel_rank", "data_parallel_size",
    "decode_context_parallel_size", "device", "disable_log_requests", "disable_log_stats", "dtype", "enable_chunked_prefill",
    "enable_expert_parallel", "enable_log_requests", "enable_logging_iteration_details", "enable_lora", "enable_prefix_caching",
    "enforce_eager", "gpu_memory_utilization", "kv_cache_dtype", "kv_cache_memory_bytes", "kv_connector",
    "kv_offloading_backend", "kv_offloading_size", "kv_role", "long_prefill_token_threshold", "max_cpu_loras",
    "max_long_partial_prefills", "max_loras", "max_model_len", "max_num_batched_tokens", "max_num_partial_prefills",
    "max_num_queued_reqs", "max_num_queued_tokens", "max_num_seqs", "model", "num_gpu_blocks_override", "num_lookahead_slots",
    "num_scheduler_steps", "num_speculative_tokens", "pipeline_parallel_size", "preemption_mode", "prefix_caching_hash_algo",
    "quantization", "scheduler_delay_factor", "scheduler_reserve_full_isl", "scheduling_policy", "served_model_name",
    "speculative_model", "swap_space", "tensor_parallel_size", "use_v2_block_manager", "watermark",
))
# fmt: on
RENAMED = {
    "max_seq_len": "max_model_len",
    "chunked_prefill_enabled": "enable_chunked_prefill",
    "device_config": "device",
    "model_tag": "model",
}
NESTED = ("kv_transfer_config", "speculative_config", "scheduler_config", "cache_config")

# args: Namespace(host=None, …) · non-default args: {'model': …} · Initializing a V1 LLM engine (v0.32.0) with config: model=…
NAMESPACE = re.compile(r"(?:non-default )?args: (?:Namespace\(|\{)")
ENGINE = re.compile(r"Initializing an? (?:(?P<generation>V[01]) )?LLM engine \(v(?P<version>[^)\s]+)\) with config: ")
# 'max_num_seqs': 32 · max_num_seqs=32
SETTING = re.compile(r"""\s*(?:'(\w+)'\s*:|"(\w+)"\s*:|(\w+)=)\s*(.*)""", re.DOTALL)

# Each line, and the settings its named groups are.
FACTS = tuple(
    re.compile(pattern)
    for pattern in (
        # # GPU blocks: 50231, # CPU blocks: 8192
        r"# (?:GPU|CPU|XPU|TPU|HPU|\w+) blocks: (?P<num_gpu_blocks>\d+)(?:, # CPU blocks: (?P<num_cpu_blocks>\d+))?",
        # GPU KV cache size: 2,925,232 tokens[, Maximum concurrency for 32,768 tokens per request: 89.27x]
        r"[A-Z]\w*(?: \+ host)? KV cache size: (?P<kv_capacity_tokens>[\d,]*\d) tokens(?:, (?=Maximum)|\.?$)",
        # Maximum concurrency for 32,768 tokens per request: 89.27x
        (
            r"(?:[A-Z]\w*(?: \+ host)? KV cache size: [\d,]+ tokens, )?Maximum concurrency for "
            r"(?P<max_concurrency_tokens_per_request>[\d,]*\d) tokens per request: (?P<max_concurrency>[\d.,]+)x"
        ),
        # Available KV cache memory: 45.20 GiB
        r"Available KV cache memory: (?P<kv_cache_memory_gib>[\d.]+) GiB",
        # Explicitly set (1.0/62.8) GiB for KV cache on node 0.
        r"(?:Auto|Explicitly) set \((?P<kv_cache_memory_gib>[\d.]+)/[\d.]+\) GiB for KV cache",
        # … the rest of the memory reserved for KV Cache is 45.2GiB.
        r".{0,400}the rest of the memory reserved for KV Cache is (?P<kv_cache_memory_gib>[\d.]+)GiB",
        # Loading model weights took 14.9888 GB · Model loading took 14.99 GiB memory and 3.1 seconds
        r"(?:Loading model weights|Model loading) took (?P<weights_gib>[\d.]+) Gi?B",
        # Overriding num_gpu_blocks=7000 with num_gpu_blocks_override=128
        r"Overriding num_gpu_blocks=\d+ with num_gpu_blocks_override=(?P<num_gpu_blocks_override>\d+)",
        # 4 Engines: vllm cache_config_info with initialization after num_gpu_blocks is: 7000
        r"(?:\d+ Engines|Engine \d+): vllm cache_config_info .{0,60}num_gpu_blocks is: (?P<num_gpu_blocks>\d+)",
        # Auto-fit max_model_len: reduced from 131072 to 40960 to fit in …
        r"Auto-fit max_model_len: reduced from \d+ to (?P<max_model_len>\d+)",
        # Using max model len 2048
        r"Using max model len (?P<max_model_len>\d+)",
        # Setting kv cache block size to 128 for … · Setting attention block size to 784 tokens … · Forcing kv cache block …
        r"(?:Setting|Forcing) (?:kv cache|attention) block size to (?P<block_size>\d+)",
        # Chunked prefill is enabled with max_num_batched_tokens=8192.
        r"Chunked prefill is enabled with max_num_batched_tokens=(?P<max_num_batched_tokens>\d+)",
        # Raising max_num_batched_tokens from 2048 to 2496 to accommodate …
        r"Raising max_num_batched_tokens from \d+ to (?P<max_num_batched_tokens>\d+)",
        # Defaulting max_num_seqs to 256 for OPENAI_API_SERVER usage context.
        r"Defaulting max_num_seqs to (?P<max_num_seqs>\d+)",
        r"Defaulting max_num_batched_tokens to (?P<max_num_batched_tokens>\d+)",
        # Defaulting api_server_count to data_parallel_size (4).
        r"Defaulting api_server_count to data_parallel_size \((?P<api_server_count>\d+)\)",
        # AsyncLLM created with api_server_count more than 1; …
        r"AsyncLLM created with (?P<api_server_count>api_server_count more than 1)",
        # Asynchronous scheduling is enabled.
        r"Asynchronous scheduling is (?P<async_scheduling>enabled|disabled)",
        # Creating offloading spec with name: CPUOffloadingSpec
        r"Creating offloading spec with name: (?P<kv_offloading_spec>\w+)",
        # Allocating 64 CPU tensors... · SimpleCPUOffloadScheduler: Allocating 4096 CPU blocks (2.00 GB, mode=lazy)
        r"SimpleCPUOffloadScheduler: Allocating (?P<kv_offloading_cpu_blocks>\d+) CPU blocks",
        # Creating v1 connector with name: OffloadingConnector and engine_id: …
        r"Creating v1 connector with name: (?P<kv_connector>\w+)",
        # vLLM API server version 0.9.2 · vLLM server version 0.32.0, serving model Qwen/Qwen3-8B
        r"vLLM (?:API )?server version (?P<engine_version>\d[\w.+-]*\w)(?:, serving model (?P<model>\S+))?",
        # the banner:   ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0
        r"[ \u2580-\u259f]*[\u2580-\u259f]  version (?P<engine_version>\d[\w.+-]*)\s*$",
        r"[ \u2580-\u259f]*[\u2580-\u259f]  model   (?P<model>\S+)\s*$",
    )
)


def settings_of(message: str) -> dict[str, str]:
    """Settings and facts a message states, by the name of their command-line argument; empty where it states none."""
    if engine := ENGINE.match(message):
        found = {"engine_version": engine["version"]}
        if engine["generation"]:
            found["engine_generation"] = engine["generation"].lower()
        return found | _kept(message[engine.end() :])
    if arguments := NAMESPACE.match(message):
        return _kept(message[arguments.end() :].removesuffix(")").removesuffix("}"))
    found = {}
    for fact in FACTS:
        if match := fact.match(message):
            found |= {name: value.replace(",", "") for name, value in match.groupdict().items() if value}
    if found.get("api_server_count") == "api_server_count more than 1":
        found["api_server_count"] = ">1"
    return found


def settings_in(arguments: Mapping[str, object]) -> dict[str, str]:
    """The same of arguments that a document states as an object, those of its nested configurations among them."""
    found: dict[str, str] = {}
    for given, value in arguments.items():
        name = RENAMED.get(given, given)
        if isinstance(value, Mapping) and given in NESTED:
            found |= settings_in(value)
        elif name in KEPT and isinstance(value, str | int | float) and len(str(value)) <= LONGEST_VALUE:
            found.setdefault(name, str(value))
    return found


def _kept(text: str) -> dict[str, str]:
    """The settings of an argument list that are kept, nested ones (`kv_connector` in `kv_transfer_config`) among them."""
    found: dict[str, str] = {}
    for part in split_top_level(text):
        setting = SETTING.fullmatch(part)
        if not setting:
            continue
        name = setting[1] or setting[2] or setting[3]
        name, value = RENAMED.get(name, name), setting[4].strip()
        if name in NESTED and (nested := re.fullmatch(r"\w*[({](.*)[)}]", value, re.DOTALL)):
            found |= _kept(nested[1])
        elif name in KEPT and value != "None":
            short = value.strip("'\"")
            if len(short) <= LONGEST_VALUE:
                found.setdefault(name, short)
    return found


def split_top_level(text: str) -> Iterator[str]:
    """Parts of a Python argument list between the commas that stand in no bracket and no quotes. Evaluates nothing.

    >>> list(split_top_level("a=1, b='x, y', c=C(d=2, e=[3, 4])"))
    ['a=1', " b='x, y'", ' c=C(d=2, e=[3, 4])']
    """
    depth, start, quote = 0, 0, ""
    marks = re.finditer(r"\\.|['\"(){}\[\],]", text, re.DOTALL)
    for mark in marks:
        char = mark[0]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "({[":
            depth += 1
        elif char in ")}]":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start : mark.start()]
            start = mark.end()
    yield text[start:]
