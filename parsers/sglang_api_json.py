"""What SGLang's HTTP API answers, kept in a file: `/v1/loads` (`/get_load` before 0.5.8) and `/server_info`.

    {"timestamp": "2026-11-29T13:23:57.308+00:00", "version": "0.5.23", "loads": [{"dp_rank": 0, "num_running_reqs": 4,
      "num_waiting_reqs": 4, "num_waiting_uncached_tokens": 176, "num_used_tokens": 357, "token_usage": 0.4}]} -> engine_samples
    {"t": 1795958637.3, "loads": {…}}                                 the same, with a poller's own time
    {"model_path": "/models/tiny", "max_running_requests": 8, …, "max_total_num_tokens": 900, "version": "0.5.2"} -> engine_config

`/v1/loads` is as of the instant asked, where the gauges of `/metrics` are as of the last batch line. Its `token_usage` leaves
out what may be evicted; `num_used_tokens` too. `queues.retracted` counts on disaggregated decode servers only, and is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from parsers import Format
from parsers.json_text import values_in
from parsers.log_reading import Row, Rows
from parsers.sglang_config_lines import kept
from parsers.source import Account, Sink, Source
from parsers.unix_time import in_utc

_LOAD = re.compile(rb'"num_(?:waiting|running)_reqs"\s*:')
_INFO = re.compile(rb'"(?:mem_fraction_static|chunked_prefill_size|schedule_conservativeness)"\s*:')
_COUNTS = {
    "num_running_reqs": "running",
    "num_waiting_reqs": "waiting",
    "num_used_tokens": "kv_used_tokens",
    "num_waiting_uncached_tokens": "waiting_tokens",
}
_MEMORY = {"weight": "weights_gib", "kvcache": "kv_cache_memory_gib"}  # in units of 2^30 bytes, as in the log


def parse(source: Source, sink: Sink) -> Account:
    """Read one file: documents one after the other, on one line each or not."""
    account, rows = Account(), Rows(source.name, sink)
    for value in values_in(source, account):
        account.lines += 1
        rows.take(account, list(_rows_of(value)))
    rows.write()
    return account


def _rows_of(value: object) -> Iterator[Row]:
    if isinstance(value, list):
        for each in value:
            yield from _rows_of(each)
    elif isinstance(value, dict) and ("loads" in value or "num_running_reqs" in value):
        yield from _loads(value)
    elif isinstance(value, dict):
        for key, text in (kept(value) | _memory(value.get("internal_states"))).items():
            yield "engine_config", {"key": key, "value_text": text}


def _memory(states: object) -> dict[str, str]:
    """Memory of one GPU, from the first rank that tells it: {"weight": 15.063, "kvcache": 8.5, "token_capacity": 185897, …}."""
    for state in states if isinstance(states, list) else []:
        told = state.get("memory_usage") if isinstance(state, dict) else None
        if isinstance(told, dict):
            return {key: str(told[name]) for name, key in _MEMORY.items() if isinstance(told.get(name), (int, float))}
    return {}


def _loads(answer: dict[str, Any]) -> Iterator[Row]:
    """The samples of one answer, and the capacity it states with each."""
    loads = answer.get("loads", [answer])
    if isinstance(loads, dict):  # a poller's own time around the answer
        yield from _loads(loads)
        return
    for load in loads if isinstance(loads, list) else []:
        if not isinstance(load, dict):
            continue
        at = _instant(load.get("timestamp")) or _instant(answer.get("timestamp"))
        rank = load.get("dp_rank")
        where = {"at_utc": at} | ({"engine": str(rank)} if isinstance(rank, int) else {})
        row: dict[str, Any] = {column: load[name] for name, column in _COUNTS.items() if isinstance(load.get(name), int)}
        if isinstance(usage := load.get("token_usage"), (int, float)):
            row["kv_usage_ratio"] = float(usage)
        if row:
            yield "engine_samples", where | row
        capacity = {name: load.get(name) for name in ("max_total_num_tokens", "max_running_requests")}
        for key, text in kept(capacity | {"version": answer.get("version")}).items():
            yield "engine_config", where | {"key": key, "value_text": text}


def _instant(stamp: object) -> datetime | None:
    """An absolute time, as epoch seconds or ISO with a zone."""
    if isinstance(stamp, str):
        try:
            parsed = datetime.fromisoformat(stamp)
            return in_utc(parsed) if parsed.tzinfo else None
        except ValueError:
            return None
    if isinstance(stamp, (int, float)) and not isinstance(stamp, bool) and 1e9 < stamp < 1e11:
        return datetime.fromtimestamp(stamp, UTC)
    return None


def detect(head: bytes) -> float:
    """JSON with the fields of one of the two answers."""
    if not head.lstrip().startswith((b"{", b"[")):
        return 0.0
    if b'"loads"' in head and _LOAD.search(head):
        return 0.95
    return 0.9 if b'"model_path"' in head and _INFO.search(head) and b'"request_parameters"' not in head else 0.0


FORMAT = Format(
    name="sglang_api_json",
    title="SGLang API answers: /v1/loads, /server_info",
    engine_kind="sglang",
    versions="0.5.8 to 0.5.23",
    can_tell="load, queue and active KV usage at each instant asked; settings and capacity",
    cannot_tell="retractions, evictions and recomputation; queues.retracted counts on disaggregated decode servers only",
    tables=("engine_samples", "engine_config"),
    detect=detect,
    parse=parse,
)
