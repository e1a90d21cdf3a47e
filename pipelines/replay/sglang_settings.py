"""What a run says of SGLang's scheduler, which of its settings may be asked about, and what of it the replay does not do.

The levers have SGLang's own names. What a run says of them has the names that all engines share: `max_running_requests` is
`max_num_seqs` there, `chunked_prefill_size` is `max_num_batched_tokens`, a page is a block.
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
from pipelines.replay.sglang_admission import POLICIES, Settings

NO_SLOT_LIMIT = 4096  # SGLang's largest default


def settings_of(engine: Mapping[str, object], said: Mapping[str, str]) -> Settings:
    """Settings of the recorded engine, a row of core.engines, and of what else it said."""
    chunk = int(engine["max_num_batched_tokens"] or 0)  # type: ignore[call-overload]
    conservativeness = real(said.get("schedule_conservativeness"))
    return Settings.of_version(
        version_of(engine),
        max_total_num_tokens=int(engine["kv_capacity_tokens"]),  # type: ignore[call-overload]
        page_size=int(engine["block_size"] or 1),  # type: ignore[call-overload]
        max_running_requests=int(engine["max_num_seqs"] or NO_SLOT_LIMIT),  # type: ignore[call-overload]
        chunked_prefill_size=chunk if chunk > 0 else None,
        max_prefill_tokens=int(real(said.get("max_prefill_tokens")) or Settings.max_prefill_tokens),
        schedule_conservativeness=Settings.schedule_conservativeness if conservativeness is None else conservativeness,
        schedule_policy=said.get("scheduling_policy", "fcfs"),
        is_caching=engine["prefix_caching"] is not False,
    )


def assumed(engine: Mapping[str, object], said: Mapping[str, str]) -> Iterator[str]:
    """Settings that are the engine's defaults, for want of recorded ones."""
    if version_of(engine) is None:
        yield "SGLang's version is taken for the newest: no input says it"
    if "schedule_conservativeness" not in said:
        yield f"schedule_conservativeness taken for SGLang's {Settings.schedule_conservativeness:g}: no input says it"
    if "scheduling_policy" not in said:
        yield "schedule_policy taken for SGLang's fcfs: no input says it"
    if not engine["block_size"]:
        yield "page_size taken for SGLang's 1: no input says it"
    if not engine["max_num_seqs"]:
        yield "max_running_requests taken for no limit: no input says it, and it did not bind"
    elif engine["max_num_seqs_source"] == "inferred":
        yield f"max_running_requests {engine['max_num_seqs']} inferred from the running count"


# what is not modelled


def not_modelled(engine: Mapping[str, object], said: Mapping[str, str]) -> Iterator[str]:
    """Why this engine is not replayed: what it does and the replay does not."""
    if engine["has_speculative_decoding"]:
        yield SPECULATIVE
    if engine["kv_connector"]:
        yield f"host tier or cache server ({engine['kv_connector']}): {RESTORED}"
    if not engine["kv_capacity_tokens"]:
        yield "the size of the KV pool is not known: add the engine's log from its start, or its metrics"
    if engine["max_num_batched_tokens"] is None:
        yield "chunked_prefill_size is not known, and no default holds for every GPU: add the engine's log from its start"
    yield from (reason for is_so, reason in NOT_MODELLED if is_so(said))


NOT_MODELLED_COUNTERS = {
    ("tier_restored_tokens", ""): f"prompt tokens came from a host tier: {RESTORED}",
    ("storage_prefetched_tokens", ""): f"prompt tokens came from storage: {RESTORED}",
}
NOT_MODELLED: tuple[tuple[Callable[[Mapping[str, str]], bool], str], ...] = (
    (
        lambda said: said.get("disaggregation_mode", "null") != "null",
        "disaggregated prefill and decode: the other half of each request is on another server",
    ),
    (
        lambda said: _is(said, "enable_priority_scheduling") or said.get("retraction_policy", "length") != "length",
        "priority scheduling: which request is more urgent is not recorded",
    ),
    (
        lambda said: said.get("scheduling_policy", "fcfs") not in POLICIES,
        f"a schedule_policy other than {', '.join(POLICIES)} is not modelled",
    ),
    (
        lambda said: _is(said, "enable_mixed_chunk"),
        "enable_mixed_chunk: steps that prefill and decode together are not modelled",
    ),
    (
        lambda said: (real(said.get("pipeline_parallel_size")) or 1) > 1,
        "pipeline parallelism: several batches are under way at once, and that is not modelled",
    ),
    (
        lambda said: bool({"swa_layer_tokens", "max_mamba_cache_size"} & set(said)),
        "hybrid KV pools: groups of layers fill at different rates, and that is not modelled",
    ),
    (lambda said: _is(said, "enable_lora"), "LoRA: adapter slots hold requests back, and that is not modelled"),
    (
        lambda said: said.get("radix_eviction_policy", "lru") != "lru",
        "a radix_eviction_policy other than lru is not modelled",
    ),
)


def _is(said: Mapping[str, str], name: str) -> bool:
    return said.get(name, "False") == "True"


# levers


def _max_running_requests(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return with_settings(scenario, max_running_requests=whole("max_running_requests", value)), None


def _max_total_tokens(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return _with_tokens(scenario, whole("max_total_tokens", value, least=_of(scenario).page_size)), None


def _mem_fraction_static(scenario: Scenario, value: str, facts: Facts) -> tuple[Scenario, str]:
    share = number("mem_fraction_static", value, most=1.0)
    cache, before, free = pool_memory(
        "mem_fraction_static", facts, facts.gpu_memory_utilization, facts.free_before_load_gib, instead="max_total_tokens"
    )
    # what is free after the weights, less the rest of what was free before them, is the pool's
    gained = (share - before) * free
    tokens = _scaled(scenario, 1 + gained / cache, "mem_fraction_static")
    return _with_tokens(scenario, tokens), (
        f"mem_fraction_static {before:g} -> {share:g}: {abs(gained):.2f} GiB {more_or_less(gained)} of the "
        f"{free:.2f} GiB that were free before the weights; KV cache {cache:.2f} -> {cache + gained:.2f} GiB, "
        f"{_of(scenario).max_total_num_tokens} -> {tokens} tokens"
    )


def _tp_size(scenario: Scenario, value: str, facts: Facts) -> tuple[Scenario, str]:
    factor, sentence = split_over("tp_size", whole("tp_size", value), facts, instead="max_total_tokens")
    tokens = _scaled(scenario, factor, "tp_size")
    return _with_tokens(scenario, tokens), f"{sentence}; {_of(scenario).max_total_num_tokens} -> {tokens} tokens"


def _kv_cache_dtype(scenario: Scenario, value: str, facts: Facts) -> tuple[Scenario, str]:
    factor, sentence = other_entries(value, facts, instead="max_total_tokens")
    tokens = _scaled(scenario, factor, "kv_cache_dtype")
    return _with_tokens(scenario, tokens), f"{sentence}; {_of(scenario).max_total_num_tokens} -> {tokens} tokens"


def _chunked_prefill_size(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    chunk = None if value == "-1" else whole("chunked_prefill_size", value, least=_of(scenario).page_size)
    return with_settings(scenario, chunked_prefill_size=chunk), None


def _max_prefill_tokens(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return with_settings(scenario, max_prefill_tokens=whole("max_prefill_tokens", value)), None


def _schedule_conservativeness(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    return with_settings(scenario, schedule_conservativeness=number("schedule_conservativeness", value, most=100.0)), None


def _schedule_policy(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, None]:
    if value not in POLICIES:
        raise LeverError(f"--set schedule_policy={value}: not modelled; one of {', '.join(POLICIES)}")
    return with_settings(scenario, schedule_policy=value), None


def _disable_radix_cache(scenario: Scenario, value: str, _: Facts) -> tuple[Scenario, str | None]:
    note = "which prompts begin alike is not recorded while the cache is off: only retracted ones find their prompts"
    return with_caching(scenario, is_on=not truth("disable_radix_cache", value), note=note)


LEVERS: dict[str, Lever] = {
    "max_running_requests": _max_running_requests,
    "max_total_tokens": _max_total_tokens,
    "mem_fraction_static": _mem_fraction_static,
    "kv_cache_dtype": _kv_cache_dtype,
    "tp_size": _tp_size,
    "chunked_prefill_size": _chunked_prefill_size,
    "max_prefill_tokens": _max_prefill_tokens,
    "schedule_conservativeness": _schedule_conservativeness,
    "schedule_policy": _schedule_policy,
    "disable_radix_cache": _disable_radix_cache,
}
COUNTED = ("max_running_requests", "max_total_tokens", "chunked_prefill_size", "max_prefill_tokens")  # whole numbers


def values(scenario: Scenario, facts: Facts) -> dict[str, object]:
    """Where the levers stand."""
    settings = _of(scenario)
    return values_of_load(scenario, facts) | {
        "max_running_requests": settings.max_running_requests,
        "max_total_tokens": settings.max_total_num_tokens,
        "mem_fraction_static": facts.gpu_memory_utilization,
        "kv_cache_dtype": facts.kv_cache_dtype,
        "tp_size": facts.tensor_parallel_size,
        "chunked_prefill_size": -1 if settings.chunked_prefill_size is None else settings.chunked_prefill_size,
        "max_prefill_tokens": settings.max_prefill_tokens,
        "schedule_conservativeness": f"{settings.schedule_conservativeness:g}",
        "schedule_policy": settings.schedule_policy,
        "disable_radix_cache": not settings.is_caching,
    }


def _of(scenario: Scenario) -> Settings:
    return settings_as(Settings, scenario)


def _with_tokens(scenario: Scenario, tokens: int) -> Scenario:
    return with_settings(scenario, max_total_num_tokens=tokens)


def _scaled(scenario: Scenario, factor: float, name: str) -> int:
    settings = _of(scenario)
    pages = int(settings.max_total_num_tokens * factor) // settings.page_size
    if pages < 1:
        raise LeverError(f"--set {name}: leaves no room for a KV cache")
    return pages * settings.page_size
