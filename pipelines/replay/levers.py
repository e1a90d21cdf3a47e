"""What may be asked: settings, and what each changes in a replay (`max_num_seqs=16` -> another scenario), and figures.

A lever is a function of a scenario, a value and what the run says of its engine. Levers that need arithmetic (memory to blocks)
leave a sentence that shows it. What the replay cannot foretell of a lever, it says as well: a split over more GPUs changes the
step time, and nothing recorded says how.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pipelines.replay.scheduler import Settings

FIGURES = (
    "preemptions",
    "recomputed_tokens",
    "queue_s",
    "duration_s",
    "output_tokens_per_s",
    "ttft_p50_ms",
    "ttft_p99_ms",
    "itl_p50_ms",
    "itl_p99_ms",
)


class LeverError(Exception):
    """A setting or value that cannot be asked about. One line: what, and what to do."""


@dataclass(frozen=True)
class Scenario:
    """An engine, its replicas and its load, as a replay takes them. None: as recorded."""

    settings: Settings
    hit_share: float
    max_tokens: int | None = None
    max_prompt_tokens: int | None = None
    arrival_rate: float = 1.0
    concurrency: int | None = None
    requests: int | None = None
    replicas: int = 1


@dataclass(frozen=True)
class Facts:
    """What the run says of its engine beside the scheduler's settings; None where it does not."""

    gpu_memory_utilization: float | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel_size: int | None = None
    kv_cache_gib: float | None = None
    weights_gib: float | None = None
    closed_concurrency: int | None = None


Lever = Callable[[Scenario, str, Facts], tuple[Scenario, str | None]]


def applied(scenario: Scenario, changes: Mapping[str, str], facts: Facts) -> tuple[Scenario, tuple[str, ...]]:
    """The scenario with the changes made, in order, and the sentences they leave. LeverError where one makes no sense."""
    notes = []
    for name, value in changes.items():
        lever = LEVERS.get(name)
        if lever is None:
            raise LeverError(f"--set {name}: not a setting a replay knows; one of {', '.join(LEVERS)}")
        scenario, note = lever(scenario, value, facts)
        notes += [note] if note else []
    return scenario, tuple(notes)


def value_of(scenario: Scenario, name: str, facts: Facts) -> str | None:
    """What the lever stands at; None where that is not known."""
    settings = scenario.settings
    known: dict[str, object] = {
        "max_num_seqs": settings.max_num_seqs,
        "num_gpu_blocks": settings.blocks + 1,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "watermark": f"{settings.watermark_blocks / (settings.blocks + 1):.3g}",
        "enable_prefix_caching": settings.is_caching,
        "gpu_memory_utilization": facts.gpu_memory_utilization,
        "kv_cache_dtype": facts.kv_cache_dtype,
        "tensor_parallel_size": facts.tensor_parallel_size,
        "concurrency": scenario.concurrency or facts.closed_concurrency,
        "arrival_rate": f"{scenario.arrival_rate:g}",
        "replicas": scenario.replicas,
        "max_tokens": scenario.max_tokens,
        "max_prompt_tokens": scenario.max_prompt_tokens,
        "requests": scenario.requests,
    }
    value = known[name]
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# levers


def _max_num_seqs(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return _with(scenario, max_num_seqs=_whole("max_num_seqs", value)), None


def _max_num_batched_tokens(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return _with(scenario, max_num_batched_tokens=_whole("max_num_batched_tokens", value)), None


def _num_gpu_blocks(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return _with_blocks(scenario, _whole("num_gpu_blocks", value, least=2)), None


def _gpu_memory_utilization(scenario: Scenario, value: str, facts: Facts) -> tuple[Scenario, str]:
    share = _number("gpu_memory_utilization", value, most=1.0)
    if not (facts.gpu_memory_utilization and facts.kv_cache_gib and facts.weights_gib is not None):
        raise LeverError(
            "--set gpu_memory_utilization: the inputs do not say how much memory weights and KV cache take; add the engine's "
            "log from its start, or set num_gpu_blocks"
        )
    # what weights and KV cache take is the least the engine may use, so the GPU has at least that over its share
    gpu_gib = (facts.kv_cache_gib + facts.weights_gib) / facts.gpu_memory_utilization
    gained = (share - facts.gpu_memory_utilization) * gpu_gib
    blocks = _scaled(scenario, 1 + gained / facts.kv_cache_gib, "gpu_memory_utilization")
    return _with_blocks(scenario, blocks), (
        f"gpu_memory_utilization {facts.gpu_memory_utilization:g} -> {share:g}: {abs(gained):.2f} GiB {_more(gained)} of a GPU "
        f"of at least {gpu_gib:.1f} GiB; KV cache {facts.kv_cache_gib:.2f} -> {facts.kv_cache_gib + gained:.2f} GiB, "
        f"{scenario.settings.blocks + 1} -> {blocks} blocks"
    )


def _kv_cache_dtype(scenario: Scenario, value: str, facts: Facts) -> tuple[Scenario, str]:
    before, after = _kv_bytes(facts.kv_cache_dtype or "auto"), _kv_bytes(value)
    blocks = _scaled(scenario, before / after, "kv_cache_dtype")
    return _with_blocks(scenario, blocks), (
        f"kv_cache_dtype {facts.kv_cache_dtype or 'auto'} -> {value}: {before} -> {after} bytes a value (auto taken for 16 "
        f"bits), {scenario.settings.blocks + 1} -> {blocks} blocks; step time taken as it was"
    )


def _tensor_parallel_size(scenario: Scenario, value: str, facts: Facts) -> tuple[Scenario, str]:
    after, before = _whole("tensor_parallel_size", value), facts.tensor_parallel_size or 1
    if not (facts.kv_cache_gib and facts.weights_gib is not None):
        raise LeverError(
            "--set tensor_parallel_size: the inputs do not say how much memory weights and KV cache take; add the engine's log "
            "from its start, or set num_gpu_blocks"
        )
    # each GPU holds its share of the weights and its share of each token's KV entry
    weights_gib = facts.weights_gib * before / after
    cache_gib = facts.kv_cache_gib + facts.weights_gib - weights_gib
    blocks = _scaled(scenario, cache_gib / facts.kv_cache_gib * after / before, "tensor_parallel_size")
    return _with_blocks(scenario, blocks), (
        f"tensor_parallel_size {before} -> {after}: weights {facts.weights_gib:.2f} -> {weights_gib:.2f} GiB a GPU, KV cache "
        f"{facts.kv_cache_gib:.2f} -> {cache_gib:.2f} GiB, {after / before:g} times the GPUs; {scenario.settings.blocks + 1} -> "
        f"{blocks} blocks; step time taken as it was: nothing recorded says how it changes"
    )


def _watermark(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    share = _number("watermark", value, most=1.0)
    return _with(scenario, watermark_blocks=int(share * (scenario.settings.blocks + 1))), None


def _enable_prefix_caching(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, str | None]:
    is_on = _truth("enable_prefix_caching", value)
    was_on = scenario.settings.is_caching
    changed = replace(_with(scenario, is_caching=is_on), hit_share=scenario.hit_share if is_on else 0.0)
    if is_on and not was_on:
        return changed, "which prompts begin alike is not recorded while caching is off: only resumed requests find their blocks"
    return changed, None


def _max_tokens(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return replace(scenario, max_tokens=_whole("max_tokens", value)), None


def _max_prompt_tokens(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return replace(scenario, max_prompt_tokens=_whole("max_prompt_tokens", value)), None


def _arrival_rate(scenario: Scenario, value: str, facts: Facts) -> tuple[Scenario, str | None]:
    factor = _number("arrival_rate", value.removeprefix("x"), most=1000.0)
    note = "clients that wait for their answers have no rate of their own: arrival_rate multiplies their number"
    return replace(scenario, arrival_rate=factor), note if facts.closed_concurrency else None


def _concurrency(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, str]:
    return (
        replace(scenario, concurrency=_whole("concurrency", value)),
        f"all recorded requests are sent by one client that keeps {value} in flight",
    )


def _requests(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, str]:
    return replace(scenario, requests=_whole("requests", value)), f"{value} requests are drawn from the recorded ones"


def _replicas(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, str]:
    count = _whole("replicas", value)
    return replace(
        scenario, replicas=count
    ), "requests are dealt to the replicas in turn; counts and queue seconds are their sums"


LEVERS: dict[str, Lever] = {
    "max_num_seqs": _max_num_seqs,
    "num_gpu_blocks": _num_gpu_blocks,
    "gpu_memory_utilization": _gpu_memory_utilization,
    "kv_cache_dtype": _kv_cache_dtype,
    "tensor_parallel_size": _tensor_parallel_size,
    "max_num_batched_tokens": _max_num_batched_tokens,
    "watermark": _watermark,
    "enable_prefix_caching": _enable_prefix_caching,
    "max_tokens": _max_tokens,
    "max_prompt_tokens": _max_prompt_tokens,
    "arrival_rate": _arrival_rate,
    "concurrency": _concurrency,
    "requests": _requests,
    "replicas": _replicas,
}
SWEPT = (  # those whose values are whole numbers
    "max_num_seqs",
    "num_gpu_blocks",
    "max_num_batched_tokens",
    "max_tokens",
    "max_prompt_tokens",
    "arrival_rate",
    "concurrency",
    "requests",
    "replicas",
)


# values


def _with(scenario: Scenario, **changed: int | bool) -> Scenario:
    return replace(scenario, settings=replace(scenario.settings, **changed))  # type: ignore[arg-type]


def _with_blocks(scenario: Scenario, blocks: int) -> Scenario:
    share = scenario.settings.watermark_blocks / (scenario.settings.blocks + 1)
    return _with(scenario, blocks=blocks - 1, watermark_blocks=int(share * blocks))  # the null block


def _scaled(scenario: Scenario, factor: float, name: str) -> int:
    blocks = int((scenario.settings.blocks + 1) * factor)
    if blocks < 2:
        raise LeverError(f"--set {name}: leaves no room for a KV cache")
    return blocks


def _kv_bytes(dtype: str) -> int:
    name = dtype.removeprefix("torch.")
    if name.startswith(("fp8", "int8", "float8")):
        return 1
    if name in ("auto", "bfloat16", "float16", "half"):
        return 2
    if name in ("float", "float32"):
        return 4
    raise LeverError(f"--set kv_cache_dtype={dtype}: how large its values are is not known; set num_gpu_blocks")


def _more(gained: float) -> str:
    return "more" if gained >= 0 else "less"


def _whole(name: str, value: str, *, least: int = 1) -> int:
    if not re.fullmatch(r"\d{1,12}", value) or int(value) < least:
        raise LeverError(f"--set {name}={value}: not a whole number of at least {least}")
    return int(value)


def _number(name: str, value: str, *, most: float) -> float:
    if not re.fullmatch(r"\d{0,9}\.?\d{1,9}", value) or not 0 <= float(value) <= most:
        raise LeverError(f"--set {name}={value}: not a number from 0 to {most:g}")
    return float(value)


def _truth(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false", "on", "off", "1", "0"):
        raise LeverError(f"--set {name}={value}: true or false")
    return value.lower() in ("true", "on", "1")
