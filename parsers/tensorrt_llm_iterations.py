"""TensorRT-LLM iteration statistics: what `GET /metrics` of trtllm-serve drains, kept in a file.

    [{"iter": 12, "timestamp": "09-20-2025 10:00:00.125", "iterLatencyMS": 21.4, "numActiveRequests": 8, "numQueuedRequests": 3,
      "kvCacheStats": {"maxNumBlocks": 512, "freeNumBlocks": 40, "usedNumBlocks": 472, "tokensPerBlock": 32, …},
      "inflightBatchingStats": {"numContextRequests": 1, "numGenRequests": 7, "numPausedRequests": 1, "numCtxTokens": 512, …}}]

One object is one iteration of the engine: a row of `iteration_steps` and one of `engine_samples`. `numPausedRequests` counts the
requests this iteration paused (what other engines call preempted), those whose KV is kept and those that must be computed again.
`usedNumBlocks` holds no reusable blocks, so the usage is of active requests. Each call empties the server's buffer: what
another scraper took is missing here, and shows as a gap in `iter`. The stamp is local time.

A file may hold one drained list after the other, or one object on each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from parsers import Format
from parsers.json_text import count, elements_in, number
from parsers.log_reading import Row, Rows
from parsers.source import Account, Sink, Source

_ITERATION = re.compile(rb'"(?:iterLatencyMS|inflightBatchingStats|kvCacheStats|numActiveRequests)"\s*:')
_STAMPS = ("%m-%d-%Y %H:%M:%S.%f", "%m-%d-%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S")
# Blocks that moved between tiers in the iteration, in `kvCacheIterationStats` (one entry for each attention window).
_MOVED = {"iterOffloadBlocks": "kv_offloaded", "iterOnboardBlocks": "kv_restored", "iterHostDroppedBlocks": "kv_dropped"}


def parse(source: Source, sink: Sink) -> Account:
    """Read one file. An empty list is an answer of an engine that did nothing since the last call."""
    account, rows, said = Account(), Rows(source.name, sink), _Said()
    for each in elements_in(source, account):
        account.lines += 1
        rows.take(account, list(_rows_of(each, said)))
    rows.write()
    return account


class _Said:
    """The settings already written: every iteration repeats them."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def new(self, settings: dict[str, str]) -> Iterator[tuple[str, str]]:
        """Those that are new or have changed."""
        for key, text in settings.items():
            if self.settings.get(key) != text:
                self.settings[key] = text
                yield key, text


def _rows_of(value: object, said: _Said) -> Iterator[Row]:
    if not isinstance(value, dict) or not (value.keys() & {"iter", "numActiveRequests", "kvCacheStats", "inflightBatchingStats"}):
        return
    local = _local(value.get("timestamp"))
    when: dict[str, Any] = {"at_local": local} if local else {}
    rank = count(value.get("attentionDpRank"))
    if rank is not None:
        when["engine"] = str(rank)
    pool, batch = _object(value.get("kvCacheStats")), _object(value.get("inflightBatchingStats"))
    blocks, size = count(pool.get("maxNumBlocks")), count(pool.get("tokensPerBlock"))
    used = count(pool.get("usedNumBlocks"))
    usage = used / blocks if used is not None and blocks else None
    paused = count(batch.get("numPausedRequests"))
    yield (
        "engine_samples",
        when
        | {
            "running": count(batch.get("numScheduledRequests"), value.get("numActiveRequests")),
            "waiting": count(value.get("numQueuedRequests")),
            "kv_usage_ratio": usage,
            "kv_used_tokens": used * size if used is not None and size else None,
            "preemptions": paused,
        },
    )
    yield (
        "iteration_steps",
        when
        | {
            "iteration": count(value.get("iter")),
            "context_requests": count(batch.get("numContextRequests")),
            "context_tokens": count(batch.get("numCtxTokens")),
            "generation_requests": count(batch.get("numGenRequests")),
            "generation_tokens": _generated(batch),
            "elapsed_ms": number(value.get("iterLatencyMS")),
            "kv_usage_ratio": usage,
        },
    )
    if paused:
        yield "engine_events", when | {"event": "retraction", "count": paused}
    if tokens := count(batch.get("numPausedKvTokens")):
        yield "engine_events", when | {"event": "retraction_freed_tokens", "count": tokens}
    yield from _moved(value, when, size)
    for key, text in said.new(_settings(value, blocks, size)):
        yield "engine_config", when | {"key": key, "value_text": text}


def _generated(batch: dict[str, Any]) -> int | None:
    """One token for each request in decode, more with speculative decoding."""
    requests, mean = count(batch.get("numGenRequests")), number(batch.get("avgNumDecodedTokensPerIter"))
    return None if requests is None else round(requests * max(mean or 1.0, 1.0))


def _moved(value: dict[str, Any], when: dict[str, Any], size: int | None) -> Iterator[Row]:
    windows = _object(value.get("kvCacheIterationStats")).values()
    for name, event in _MOVED.items():
        blocks = sum(count(_object(window).get(name)) or 0 for window in windows)
        if blocks and size:
            yield "engine_events", when | {"event": event, "count": blocks * size}


def _settings(value: dict[str, Any], blocks: int | None, size: int | None) -> dict[str, str]:
    settings: dict[str, Any] = {
        "num_gpu_blocks": blocks,
        "block_size": size,
        "kv_capacity_tokens": blocks * size if blocks and size else None,
        "max_num_seqs": count(value.get("maxBatchSizeStatic"), value.get("maxNumActiveRequests")),
        "max_num_batched_tokens": count(value.get("maxNumTokensStatic"), value.get("maxNumTokensRuntime")),
    }
    return {key: str(setting) for key, setting in settings.items() if setting}


def _local(stamp: object) -> datetime | None:
    for form in _STAMPS if isinstance(stamp, str) else ():
        try:
            return datetime.strptime(stamp, form)  # type: ignore[arg-type]  # noqa: DTZ007 - the engine writes no zone
        except ValueError:
            continue
    return None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def detect(head: bytes) -> float:
    """JSON of iteration statistics."""
    return 0.95 if head.lstrip().startswith((b"[", b"{")) and len(set(_ITERATION.findall(head))) >= 2 else 0.0


FORMAT = Format(
    name="tensorrt_llm_iterations",
    title="TensorRT-LLM iteration statistics (JSON drained from /metrics)",
    engine_kind="tensorrt_llm",
    versions="1.0 to 1.2, from the documented schema; no recording of a real engine was at hand",
    can_tell="pauses, queue, KV usage and work of each iteration; blocks offloaded and restored where 2026 versions say so",
    cannot_tell="which requests were paused and whether their KV was kept; what another scraper drained; why a request waits",
    tables=("engine_samples", "iteration_steps", "engine_events", "engine_config"),
    detect=detect,
    parse=parse,
)
