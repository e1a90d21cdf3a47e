"""Prometheus series of inference engines: which are kept, what they are called, and whose they are.

    vllm:num_requests_running{engine="0",model_name="llama"}            -> engine 0, model llama
    ray_vllm_num_preemptions_total{engine="1",WorkerId="ab"}            -> vllm:num_preemptions_total, engine 1, WorkerId=ab
    sglang:queue_time_seconds_bucket{dp_rank="0",le="0.5",tp_rank="0"}  -> engine 0, le 0.5, labels tp_rank=0
    trtllm:kv_cache_utilization{model_name="llama"}                     -> trtllm_kv_cache_utilization
    nv_trt_llm_request_metrics{request_type="waiting"}                  -> nv_trt_llm_request_metrics:waiting
    vllm:cache_config_info{block_size="16",num_gpu_blocks="12000",…}    -> the sample, and its labels as `engine_config` rows

Shared by the text and the JSON reader, so that a series has the same identity whichever way it was saved. Everything else a
page exposes (Python's garbage collector, the web framework's own counters) and the `_created` stamps are left out on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Of these families, and of the names below as they are exposed, every series is kept.
# Ray and some gateways turn the colon into an underscore; Ray also prefixes.
_FAMILY = re.compile(r"(?:ray_)?(vllm|sglang|llamacpp|lmcache)[:_](?=.)")
_AS_EXPOSED = re.compile(
    r"trtllm_|nv_trt_llm_|dynamo_|kvbm_|inference_pool_|inference_extension_|llm_d_|DCGM_FI_|process_start_time_seconds$|up$"
)
# Triton's TensorRT-LLM backend exposes several quantities under one name, told apart by one of these labels.
_QUANTITY_LABELS = ("request_type", "kv_cache_block_type", "inflight_batcher_specific_metric", "memory_type")

ENGINE_LABELS = ("engine", "dp_rank", "engine_idx")
MODEL_LABELS = ("model_name", "model")
INSTANCE_LABELS = (
    "pod",
    "instance",
    "node",
    "host",
    "hostname",
    "Hostname",
)  # a pod says more than the address it was scraped at
_CONFIG_NAMES = {"vllm:cache_config_info", "vllm:cache_config"}
_CONFIG_KEYS = {"kv_cache_size_tokens": "kv_capacity_tokens", "cache_dtype": "kv_cache_dtype"}
_NOT_CONFIG = {*ENGINE_LABELS, *MODEL_LABELS, *INSTANCE_LABELS, "job", "namespace", "container", "endpoint", "service"}


@dataclass(frozen=True, slots=True)
class Series:
    """Identity of one series in the terms of `metric_samples`."""

    name: str
    le: float | None
    engine: str | None
    model: str | None
    instance: str | None
    labels: str


def kept_name(name: str) -> str | None:
    """The name rows carry, or None where no analysis reads the series."""
    if name.endswith("_created"):
        return None
    if family := _FAMILY.match(name):
        return f"{family[1]}:{name[family.end() :]}"
    if name.startswith("trtllm:"):  # as Dynamo up to 0.7 exposes it
        name = name.replace(":", "_", 1)
    return name if _AS_EXPOSED.match(name) else None


def identity(name: str, labels: Mapping[str, str]) -> Series:
    """Whose series it is: the labels that name server, engine and model become columns, the others one sorted text."""
    rest = {key: value for key, value in labels.items() if key not in ("job", "__name__")}
    engine, model, instance = (_take_first(rest, keys) for keys in (ENGINE_LABELS, MODEL_LABELS, INSTANCE_LABELS))
    if name.startswith("nv_trt_llm_") and (quantity := _take_first(rest, _QUANTITY_LABELS)):
        name = f"{name}:{quantity}"
    bound = rest.get("le")
    le = number(bound) if bound is not None else None
    if le is not None:
        del rest["le"]
    return Series(name, le, engine, model, instance, ",".join(f"{key}={value}" for key, value in sorted(rest.items())))


def config(name: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Settings an info series carries as labels, by the key `engine_config` knows them under; empty for any other series."""
    if name not in _CONFIG_NAMES:
        return {}
    return {
        _CONFIG_KEYS.get(key, key): value
        for key, value in labels.items()
        if key not in _NOT_CONFIG and not key.startswith("_") and value not in ("", "None")
    }


def number(text: str | bytes) -> float | None:
    """A sample value or bucket bound: `1e3`, `+Inf`, `NaN`. None where it is no number."""
    try:
        return float(text)
    except ValueError:
        return None


def _take_first(labels: dict[str, str], keys: tuple[str, ...]) -> str | None:
    return next((labels.pop(key) for key in keys if key in labels), None)
