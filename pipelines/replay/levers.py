"""What may be asked: settings, and what each changes in a replay (`max_num_seqs=16` -> another scenario), and figures.

A lever is a function of a scenario, a value and what the run says of its engine. Here are those of the load, which every engine
has; an engine's own, by its own names, stand beside its settings (`vllm_settings`, `sglang_settings`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from pipelines.replay.engine import EngineSettings

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
FIXED_BYTES = "kv_cache_memory_bytes"  # fixes the pool's size in bytes; the other settings do in tokens


class LeverError(Exception):
    """A setting or value that cannot be asked about. One line: what, and what to do."""


@dataclass(frozen=True)
class Scenario:
    """An engine, its replicas and its load, as a replay takes them. None: as recorded."""

    settings: EngineSettings
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
    free_before_load_gib: float | None = None
    pool_set_by: str | None = None  # the setting that fixes the pool's size, where it is not what memory is left
    closed_concurrency: int | None = None


Settings = TypeVar("Settings", bound=EngineSettings)
Lever = Callable[[Scenario, str, Facts], tuple[Scenario, str | None]]


def with_settings(scenario: Scenario, **changed: float | str | bool | None) -> Scenario:
    """The scenario with settings of its scheduler changed, by the scheduler's own names."""
    return replace(scenario, settings=replace(scenario.settings, **changed))  # type: ignore[type-var]


def with_caching(scenario: Scenario, *, is_on: bool, note: str) -> tuple[Scenario, str | None]:
    """The scenario with its prefix cache on or off, and the note where it is on and was off when the run was recorded."""
    changed = replace(with_settings(scenario, is_caching=is_on), hit_share=scenario.hit_share if is_on else 0.0)
    return changed, note if is_on and not scenario.settings.is_caching else None


def settings_as(kind: type[Settings], scenario: Scenario) -> Settings:
    """The scheduler's settings as an engine's own levers take them."""
    if not isinstance(scenario.settings, kind):
        raise TypeError(f"a lever of {kind.__module__} for settings of {type(scenario.settings).__module__}")
    return scenario.settings


def pool_memory(name: str, facts: Facts, *needed: float | None, instead: str) -> list[float]:
    """GiB of the pool, and what else is needed. LeverError where its size does not follow from memory, or one is not known."""
    if facts.pool_set_by:
        raise _fixed(name, facts, instead)
    known = [each for each in (facts.kv_cache_gib, *needed) if each is not None]
    if not facts.kv_cache_gib or len(known) <= len(needed):
        raise LeverError(
            f"--set {name}: the inputs do not say how much memory weights and KV cache take; add the engine's log from its "
            f"start, or set {instead}"
        )
    return known


def _fixed(name: str, facts: Facts, instead: str) -> LeverError:
    return LeverError(f"--set {name}: {facts.pool_set_by} fixes the size of this pool; set {instead}")


def other_entries(value: str, facts: Facts, *, instead: str) -> tuple[float, str]:
    """How many times as many tokens the pool holds with KV entries of another type, and the sentence that shows it."""
    if facts.pool_set_by not in (None, FIXED_BYTES):
        raise _fixed("kv_cache_dtype", facts, instead)
    dtype = facts.kv_cache_dtype or "auto"
    before, after = kv_bytes(dtype), kv_bytes(value)
    return before / after, (
        f"kv_cache_dtype {dtype} -> {value}: {before} -> {after} bytes a value (auto taken for 16 bits); step time taken as it "
        "was"
    )


def split_over(name: str, gpus: int, facts: Facts, *, instead: str) -> tuple[float, str]:
    """How much larger the pool gets where the weights are split over so many GPUs, and the sentence that shows it.

    Each GPU holds its share of the weights and its share of each token's KV entry.
    """
    before = facts.tensor_parallel_size or 1
    cache_before, weights_before = pool_memory(name, facts, facts.weights_gib, instead=instead)
    weights = weights_before * before / gpus
    cache = cache_before + weights_before - weights
    return cache / cache_before * gpus / before, (
        f"{name} {before} -> {gpus}: weights {weights_before:.2f} -> {weights:.2f} GiB a GPU, KV cache "
        f"{cache_before:.2f} -> {cache:.2f} GiB, {gpus / before:g} times the GPUs; step time taken as it was: nothing "
        "recorded says how it changes"
    )


def more_or_less(gained: float) -> str:
    """The word after an amount."""
    return "more" if gained >= 0 else "less"


def values_of_load(scenario: Scenario, facts: Facts) -> dict[str, object]:
    """Where the levers of the load stand; None: as recorded."""
    return {
        "max_tokens": scenario.max_tokens,
        "max_prompt_tokens": scenario.max_prompt_tokens,
        "arrival_rate": f"{scenario.arrival_rate:g}",
        "concurrency": scenario.concurrency or facts.closed_concurrency,
        "requests": scenario.requests,
        "replicas": scenario.replicas,
    }


def _max_tokens(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return replace(scenario, max_tokens=whole("max_tokens", value)), None


def _max_prompt_tokens(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return replace(scenario, max_prompt_tokens=whole("max_prompt_tokens", value)), None


def _arrival_rate(scenario: Scenario, value: str, facts: Facts) -> tuple[Scenario, str | None]:
    factor = number("arrival_rate", value.removeprefix("x"), most=1000.0)
    note = "clients that wait for their answers have no rate of their own: arrival_rate multiplies their number"
    return replace(scenario, arrival_rate=factor), note if facts.closed_concurrency else None


def _concurrency(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, str]:
    return (
        replace(scenario, concurrency=whole("concurrency", value)),
        f"all recorded requests are sent by one client that keeps {value} in flight",
    )


def _requests(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, str]:
    return replace(scenario, requests=whole("requests", value)), f"{value} requests are drawn from the recorded ones"


def _replicas(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, str]:
    count = whole("replicas", value)
    return replace(
        scenario, replicas=count
    ), "requests are dealt to the replicas in turn; counts and queue seconds are their sums"


OF_LOAD: dict[str, Lever] = {
    "max_tokens": _max_tokens,
    "max_prompt_tokens": _max_prompt_tokens,
    "arrival_rate": _arrival_rate,
    "concurrency": _concurrency,
    "requests": _requests,
    "replicas": _replicas,
}
COUNTED_OF_LOAD = ("max_tokens", "max_prompt_tokens", "arrival_rate", "concurrency", "requests", "replicas")  # whole numbers


# values


def whole(name: str, value: str, *, least: int = 1) -> int:
    """A whole number, or LeverError."""
    if not re.fullmatch(r"\d{1,12}", value) or int(value) < least:
        raise LeverError(f"--set {name}={value}: not a whole number of at least {least}")
    return int(value)


def number(name: str, value: str, *, most: float) -> float:
    """A number from 0 on, or LeverError."""
    if not re.fullmatch(r"\d{0,9}\.?\d{1,9}", value) or not 0 <= float(value) <= most:
        raise LeverError(f"--set {name}={value}: not a number from 0 to {most:g}")
    return float(value)


def truth(name: str, value: str) -> bool:
    """True or false, or LeverError."""
    if value.lower() not in ("true", "false", "on", "off", "1", "0"):
        raise LeverError(f"--set {name}={value}: true or false")
    return value.lower() in ("true", "on", "1")


def kv_bytes(dtype: str) -> int:
    """Bytes of a value in the KV cache, or LeverError; `auto` is taken for 16 bits."""
    name = dtype.removeprefix("torch.")
    if name.startswith(("fp8", "int8", "float8")):
        return 1
    if name in ("auto", "bfloat16", "float16", "half"):
        return 2
    if name in ("float", "float32"):
        return 4
    raise LeverError(f"--set kv_cache_dtype={dtype}: how large its values are is not known; set the pool's size")
