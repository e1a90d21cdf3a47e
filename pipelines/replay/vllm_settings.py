"""What a run says of vLLM's scheduler, which of its settings may be asked about, and what of it the replay does not do.

Levers that need arithmetic (memory to blocks) leave a sentence that shows it. What the replay cannot foretell of a lever, it says
as well: a split over more GPUs changes the step time, and nothing recorded says how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pipelines.replay.levers import (
    Facts,
    Lever,
    LeverError,
    Scenario,
    more_or_less,
    number,
    other_entries,
    pool_memory,
    settings_as,
    split_over,
    truth,
    values_of_load,
    whole,
    with_caching,
    with_settings,
)
from pipelines.replay.said import RESTORED, SPECULATIVE, real, version_of
from pipelines.replay.vllm import Settings

DEFAULT_BLOCK_SIZE = 16  # vLLM's own on GPUs
DEFAULT_BATCHED_TOKENS = 2048  # vLLM V1's own for a server
NO_SLOT_LIMIT = 1024  # vLLM's largest default; where it binds, core.engines infers it


def settings_of(engine: Mapping[str, object], said: Mapping[str, str] | None = None) -> Settings:
    """Settings of the recorded engine, a row of core.engines, and of what else it said; defaults where no input says them."""
    block_size = int(engine["block_size"] or DEFAULT_BLOCK_SIZE)  # type: ignore[call-overload]
    blocks = int(engine["num_gpu_blocks"] or engine["kv_capacity_tokens"] // block_size)  # type: ignore[call-overload,operator]
    watermark = real((said or {}).get("watermark"))
    return Settings.of_version(
        version_of(engine),
        blocks=blocks - 1,  # the null block
        block_size=block_size,
        max_num_seqs=int(engine["max_num_seqs"] or NO_SLOT_LIMIT),  # type: ignore[call-overload]
        max_num_batched_tokens=int(engine["max_num_batched_tokens"] or DEFAULT_BATCHED_TOKENS),  # type: ignore[call-overload]
        is_caching=engine["prefix_caching"] is not False,
        watermark_blocks=int((watermark or 0.0) * blocks),
    )


def assumed(engine: Mapping[str, object], said: Mapping[str, str]) -> Iterator[str]:
    """Settings that are the engine's defaults, for want of recorded ones."""
    if not engine["max_num_batched_tokens"]:
        yield f"max_num_batched_tokens taken for vLLM's {DEFAULT_BATCHED_TOKENS}: no input says it"
        if "scheduling_policy" not in said:  # else the start-up lines are here, and would have it
            yield "scheduling_policy taken for vLLM's fcfs: no input says it"
    if not engine["max_num_seqs"]:
        yield f"max_num_seqs taken for vLLM's {NO_SLOT_LIMIT}: no input says it, and it did not bind"
    elif engine["max_num_seqs_source"] == "inferred":
        yield f"max_num_seqs {engine['max_num_seqs']} inferred from the running count"


# what is not modelled


def not_modelled(engine: Mapping[str, object], said: Mapping[str, str]) -> Iterator[str]:
    """Why this engine is not replayed: what it does and the replay does not."""
    if engine["engine_generation"] == "v0":
        yield "the scheduler of vLLM V0 is not modelled, only that of V1"
    if int(engine.get("ranks_summed") or 1) > 1:  # type: ignore[call-overload]
        yield SUMMED.format(engine["ranks_summed"])
    if engine["has_speculative_decoding"]:
        yield SPECULATIVE
    if offload := engine["kv_connector"] or next((said[key] for key in OFFLOAD_SETTINGS if key in said), None):
        yield f"KV connector or offload ({offload}): {RESTORED}"
    if not engine["num_gpu_blocks"] and not engine["kv_capacity_tokens"]:
        yield "the size of the KV pool is not known: add the engine's log from its start, or its metrics"
    yield from (reason for is_so, reason in NOT_MODELLED if is_so(said))


def is_by_priority(said: Mapping[str, str]) -> bool:
    """Whether the least urgent request is the victim, and not the one admitted last."""
    return said.get("scheduling_policy") == "priority"


SUMMED = "the samples are sums over {} data-parallel ranks, each with a scheduler and a pool of its own: give those of one rank"
BY_PRIORITY = "priority scheduling: which request is more urgent is not recorded"
NOT_MODELLED_COUNTERS = {
    ("spec_draft_tokens", ""): SPECULATIVE,
    ("external_prefix_hits", ""): f"prompt tokens came from an external cache: {RESTORED}",
    ("prompt_tokens_by_source", "external_kv_transfer"): f"prompt tokens came from an external cache: {RESTORED}",
}
OFFLOAD_SETTINGS = ("kv_offloading_size", "kv_offloading_spec", "kv_offloading_cpu_blocks", "kv_connector", "kv_role")
NOT_MODELLED: tuple[tuple[Callable[[Mapping[str, str]], bool], str], ...] = (
    (lambda said: bool({"speculative_model", "num_speculative_tokens"} & set(said)), SPECULATIVE),
    (
        lambda said: said.get("enable_lora", "True" if "max_loras" in said else "False") == "True",
        "LoRA: adapter slots hold requests back, and that is not modelled",
    ),
    (is_by_priority, BY_PRIORITY),
    (
        lambda said: (real(said.get("pipeline_parallel_size")) or 1) > 1,
        "pipeline parallelism: several batches are under way at once, and that is not modelled",
    ),
    (
        lambda said: said.get("mamba_cache_mode", "none") != "none" or said.get("is_hybrid") == "True",
        "hybrid KV pools: groups of layers fill at different rates, and that is not modelled",
    ),
)


# levers


def _max_num_seqs(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return with_settings(scenario, max_num_seqs=whole("max_num_seqs", value)), None


def _max_num_batched_tokens(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return with_settings(scenario, max_num_batched_tokens=whole("max_num_batched_tokens", value)), None


def _num_gpu_blocks(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return _with_blocks(scenario, whole("num_gpu_blocks", value, least=2)), None


def _gpu_memory_utilization(scenario: Scenario, value: str, facts: Facts) -> tuple[Scenario, str]:
    share = number("gpu_memory_utilization", value, most=1.0)
    cache, before, weights = pool_memory(
        "gpu_memory_utilization", facts, facts.gpu_memory_utilization, facts.weights_gib, instead="num_gpu_blocks"
    )
    # what weights and KV cache take is the least the engine may use, so the GPU has at least that over its share
    gpu = (cache + weights) / before
    gained = (share - before) * gpu
    blocks = _scaled(scenario, 1 + gained / cache, "gpu_memory_utilization")
    return _with_blocks(scenario, blocks), (
        f"gpu_memory_utilization {before:g} -> {share:g}: {abs(gained):.2f} GiB {more_or_less(gained)} of "
        f"a GPU of at least {gpu:.1f} GiB; KV cache {cache:.2f} -> {cache + gained:.2f} GiB, "
        f"{_of(scenario).blocks + 1} -> {blocks} blocks"
    )


def _kv_cache_dtype(scenario: Scenario, value: str, facts: Facts) -> tuple[Scenario, str]:
    factor, sentence = other_entries(value, facts, instead="num_gpu_blocks")
    blocks = _scaled(scenario, factor, "kv_cache_dtype")
    return _with_blocks(scenario, blocks), f"{sentence}; {_of(scenario).blocks + 1} -> {blocks} blocks"


def _tensor_parallel_size(scenario: Scenario, value: str, facts: Facts) -> tuple[Scenario, str]:
    gpus = whole("tensor_parallel_size", value)
    factor, sentence = split_over("tensor_parallel_size", gpus, facts, instead="num_gpu_blocks")
    blocks = _scaled(scenario, factor, "tensor_parallel_size")
    return _with_blocks(scenario, blocks), f"{sentence}; {_of(scenario).blocks + 1} -> {blocks} blocks"


def _watermark(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    share = number("watermark", value, most=1.0)
    return with_settings(scenario, watermark_blocks=int(share * (_of(scenario).blocks + 1))), None


def _enable_prefix_caching(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, str | None]:
    note = "which prompts begin alike is not recorded while caching is off: only resumed requests find their blocks"
    return with_caching(scenario, is_on=truth("enable_prefix_caching", value), note=note)


LEVERS: dict[str, Lever] = {
    "max_num_seqs": _max_num_seqs,
    "num_gpu_blocks": _num_gpu_blocks,
    "gpu_memory_utilization": _gpu_memory_utilization,
    "kv_cache_dtype": _kv_cache_dtype,
    "tensor_parallel_size": _tensor_parallel_size,
    "max_num_batched_tokens": _max_num_batched_tokens,
    "watermark": _watermark,
    "enable_prefix_caching": _enable_prefix_caching,
}
COUNTED = ("max_num_seqs", "num_gpu_blocks", "max_num_batched_tokens")  # those whose values are whole numbers


def values(scenario: Scenario, facts: Facts) -> dict[str, object]:
    """Where the levers stand; None where that is not known."""
    settings = _of(scenario)
    return values_of_load(scenario, facts) | {
        "max_num_seqs": settings.max_num_seqs,
        "num_gpu_blocks": settings.blocks + 1,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "watermark": f"{settings.watermark_blocks / (settings.blocks + 1):.3g}",
        "enable_prefix_caching": settings.is_caching,
        "gpu_memory_utilization": facts.gpu_memory_utilization,
        "kv_cache_dtype": facts.kv_cache_dtype,
        "tensor_parallel_size": facts.tensor_parallel_size,
    }


def _of(scenario: Scenario) -> Settings:
    return settings_as(Settings, scenario)


def _with_blocks(scenario: Scenario, blocks: int) -> Scenario:
    share = _of(scenario).watermark_blocks / (_of(scenario).blocks + 1)
    return with_settings(scenario, blocks=blocks - 1, watermark_blocks=int(share * blocks))  # the null block


def _scaled(scenario: Scenario, factor: float, name: str) -> int:
    blocks = int((_of(scenario).blocks + 1) * factor)
    if blocks < 2:
        raise LeverError(f"--set {name}: leaves no room for a KV cache")
    return blocks
