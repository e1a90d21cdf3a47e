r"""TensorRT-LLM log: iteration lines of `print_iter_log`, capacity at start, and Triton's statistics records.

    [09/20/2025-10:00:00] [TRT-LLM] [I] iter = 12, global_rank = 0, rank = 0, currank_total_requests = 3/8, host_step_time = 12ms,
      prev_device_step_time = 10.21ms, timestamp = 2025-09-20 10:00:00, num_scheduled_requests: 8,
      states = {'num_ctx_requests': 2, 'num_ctx_tokens': 512, 'num_generation_tokens': 6}                       -> iteration_steps
    [TensorRT-LLM][INFO] TRTGptModel maxBatchSize: 16                                                           -> engine_config
    [TensorRT-LLM][INFO] Allocated 1.50 GiB for max tokens in paged KV cache (12288).
    I1002 23:45:42.282246 136 model_instance_state.cc:1115] "{\\"Active Request Count\\":8,…}"       -> engine_samples

Pairs are written `k = v` and `k: v`, and are looked up by name. `kv_cache_util` (2026) counts reusable blocks as free.
`prev_device_step_time` is of the row before and is not read. No line says that a request was paused, and none how many wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from parsers import Format
from parsers.columns import PLACEHOLDER_YEAR
from parsers.log_reading import Entry, Grammar, Row, entries, head_lines, literals, local_time, read_log
from parsers.source import Account, Sink, Source

GRAMMAR = Grammar(
    literals=literals(
        *("iter = ", "TRTGptModel ", "in KV cache p", "paged KV cache", "KV cache pages per sequence", "Active Request Count"),
        *("tokens per block", "tokensPerBlock", "OutOfMemory", "out of memory", "TensorRT LLM version", "TensorRT-LLM version"),
        *("scheduler policy", "CapacitySchedulerPolicy", "capacity_scheduler_policy"),
    ),
    start=re.compile(
        r"iter = \d+, |TRTGptModel \w+: |Number of blocks in KV cache |Allocated [\d.]+ GiB for max tokens"
        r"|(?:Number of )?tokens per block: |\[?TensorRT[- ]LLM\]? version: |Capacity Scheduler Policy: "
        r"|model_instance_state\.cc:\d+\] "
        r"|torch\.(?:cuda\.)?OutOfMemoryError"
    ),
    must_be_understood=re.compile(
        r"\biter = \d+, |Number of blocks in KV cache (?:primary|secondary) pool: |Active Request Count\\+\":"
    ),
)

# [09/20/2025-10:00:00] · I1002 23:45:42.282246
STAMP = re.compile(r"\[(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{4})-(?P<time>\d\d:\d\d:\d\d)\]")
GLOG = re.compile(r"\b[IWEF](?P<month>\d\d)(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d\.\d{1,6}) ")
RANK = re.compile(r"\[RANK (?P<rank>\d+)\]")

# iter = 12 · num_scheduled_requests: 8 · host_step_time = 12.34ms · 'num_ctx_tokens': 512
PAIR = re.compile(r"'?(?P<key>[a-z_]+)'?(?: = |: )(?P<value>\d+(?:\.\d+)?)(?P<rest>ms|/\d+)?(?=[,}\s]|$)")
TIMESTAMP = re.compile(r"timestamp = (?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)")
# {\"Active Request Count\":8,\"Iteration Counter\":6189, … escaped once or not at all
TRITON_PAIR = re.compile(r'\\*"(?P<key>[A-Z][\w /-]+?)\\*":(?P<value>\d+(?:\.\d+)?)')

SETTINGS = tuple(
    re.compile(pattern)
    for pattern in (
        # TRTGptModel maxBatchSize: 16 · maxNumTokens: 11776 · maxSequenceLen: 12288
        r"TRTGptModel maxBatchSize: (?P<max_num_seqs>\d+)",
        r"TRTGptModel maxNumTokens: (?P<max_num_batched_tokens>\d+)",
        r"TRTGptModel maxSequenceLen: (?P<max_model_len>\d+)",
        r"Number of blocks in KV cache primary pool: (?P<num_gpu_blocks>\d+)",
        r"Number of blocks in KV cache secondary pool: (?P<kv_offloading_cpu_blocks>\d+)",
        r"Allocated [\d.]+ GiB for max tokens in paged KV cache \((?P<kv_capacity_tokens>\d+)\)",
        r"(?:Number of )?tokens per block: (?P<block_size>\d+)",
        r"Capacity Scheduler Policy: (?P<capacity_scheduler_policy>\w+)",
        r"\[?TensorRT[- ]LLM\]? version: (?P<engine_version>\d[\w.+-]*)",
    )
)


def _read(text: str) -> Iterator[Row]:
    for entry in entries(text, GRAMMAR.start):
        columns = _times(entry) | ({"process": f"rank {rank['rank']}"} if (rank := RANK.search(entry.prefix)) else {})
        yield from _rows(entry.message, columns)


def _times(entry: Entry) -> dict[str, Any]:
    """The entry's columns with its own stamp: the log's, or glog's, which has no year."""
    columns = dict(entry.columns)
    stamp = STAMP.search(entry.prefix) or GLOG.search(entry.prefix)
    if stamp:
        year = stamp.groupdict().get("year") or PLACEHOLDER_YEAR
        if moment := local_time(f"{year}-{stamp['month']}-{stamp['day']} {stamp['time']}"):
            columns["at_local"] = moment
    return columns


def _rows(message: str, columns: dict[str, Any]) -> Iterator[Row]:
    if message.startswith("iter = "):
        yield from _iteration(message, columns)
    elif "Active Request Count" in message:
        yield from _triton(message, columns)
    elif "OutOfMemoryError" in message:
        yield "engine_events", columns | {"event": "engine_failure"}
    for pattern in SETTINGS:
        if found := pattern.match(message):
            for key, text in found.groupdict().items():
                yield "engine_config", columns | {"key": key, "value_text": text}


def _iteration(message: str, columns: dict[str, Any]) -> Iterator[Row]:
    """One engine step, and the load it ran with."""
    pairs = {found["key"]: found["value"] for found in PAIR.finditer(message)}
    if not pairs.keys() & {"num_ctx_requests", "num_scheduled_requests"}:
        return
    if (stamp := TIMESTAMP.search(message)) and (moment := local_time(stamp["time"])):
        columns = columns | {"at_local": moment}
    step: dict[str, Any] = {"iteration": int(pairs["iter"])}
    for key, column in (("num_ctx_requests", "context_requests"), ("num_ctx_tokens", "context_tokens")):
        step[column] = int(pairs[key]) if key in pairs else None
    scheduled = int(pairs["num_scheduled_requests"]) if "num_scheduled_requests" in pairs else None
    if scheduled is not None and step["context_requests"] is not None:
        step["generation_requests"] = scheduled - step["context_requests"]
    step["generation_tokens"] = int(pairs["num_generation_tokens"]) if "num_generation_tokens" in pairs else None
    step["elapsed_ms"] = float(pairs["host_step_time"]) if "host_step_time" in pairs else None
    usage = float(pairs["kv_cache_util"]) if "kv_cache_util" in pairs else None
    yield "iteration_steps", columns | step | {"kv_usage_ratio": usage}
    yield "engine_samples", columns | {"running": scheduled, "kv_usage_ratio": usage}


def _triton(message: str, columns: dict[str, Any]) -> Iterator[Row]:
    """The record Triton's backend prints; it may be cut off by whoever copied it."""
    pairs = {found["key"]: float(found["value"]) for found in TRITON_PAIR.finditer(message)}
    used, most = pairs.get("Used KV cache blocks"), pairs.get("Max KV cache blocks")
    paused = pairs.get("Paused Requests")
    active, scheduled = pairs.get("Active Request Count"), pairs.get("Scheduled Requests")
    running = active if scheduled is None else scheduled
    row: dict[str, Any] = {
        "running": None if running is None else int(running),
        # active but not scheduled: admitted by the server, without a place in the batch
        "waiting": None if active is None or scheduled is None else max(0, int(active - scheduled)),
        "kv_usage_ratio": used / most if used is not None and most else None,
        "preemptions": None if paused is None else int(paused),
    }
    yield "engine_samples", columns | row
    if paused:
        yield "engine_events", columns | {"event": "retraction", "count": int(paused)}
    if limit := pairs.get("Max Request Count"):
        yield "engine_config", columns | {"key": "max_num_seqs", "value_text": str(int(limit))}


def parse(source: Source, sink: Sink) -> Account:
    """Read one log."""
    return read_log(source, sink, GRAMMAR, _read)


OWN = re.compile(
    r"\[TensorRT-LLM\]\[\w+\]|\[TRT-LLM\] \[[A-Z]\]|\biter = \d+, (?:global_)?rank = \d+, |\{\\+\"Active Request Count\\+\":"
)


def detect(head: bytes) -> float:
    """How sure it is that this is a log of TensorRT-LLM."""
    return 0.9 if any(OWN.search(line[:2000]) for line in head_lines(head)) else 0.0


FORMAT = Format(
    name="tensorrt_llm_engine_log",
    title="TensorRT-LLM log: iteration lines, capacity, Triton statistics records",
    engine_kind="tensorrt_llm",
    versions="0.16 to 1.2, from source and public reports; no recording of a real engine was at hand",
    can_tell="work of each iteration where print_iter_log was on; batch, token and KV limits",
    cannot_tell="pauses (no line, but in Triton's records); how many requests wait; which",
    tables=("iteration_steps", "engine_samples", "engine_config", "engine_events"),
    detect=detect,
    parse=parse,
)
