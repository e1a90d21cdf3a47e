"""LMCache log lines: what an external KV tier gave back, took in and dropped, in a log of its own or among an engine's lines.

    [2026-03-01 10:00:00,123] LMCache INFO: Reqid: cmpl-1, Total tokens 5120, Inference Engine computed tokens: 512, LMCache hit
      tokens: 4096, need to load: 3584 (vllm_v1_adapter.py:1234:lmcache.integration.vllm.vllm_v1_adapter)
    … LMCache INFO: [req_id=cmpl-1] Retrieved 3584 out of 3584 required tokens (from 5120 total tokens). size: 0.4375 gb, …
    … LMCache INFO: Stored 4096 out of total 5120 tokens. size: 0.5000 GB, cost 12.3456 ms, throughput: 40.1234 GB/s; …
    … LMCache WARNING: Local cpu memory under pressure so choosing to not store the KV cache.

Tokens retrieved are restored, not computed: they are `kv_restored` and never recomputation. A look-up is printed at each
scheduling attempt, so a preempted request prints it again. Fewer tokens retrieved than required were evicted in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from parsers import Format
from parsers.log_reading import Entry, Grammar, Row, entries, head_lines, literals, read_log
from parsers.source import Account, Sink, Source

START = re.compile(r"LMCache (?:DEBUG|INFO|WARNING|ERROR): ")
GRAMMAR = Grammar(
    literals("LMCache "), START, re.compile(r"LMCache \w+: (?:Reqid: |(?:\[req_id=\S+\] )?(?:Retrieved|Stored) \d)")
)

# Each line, and the event it is; `count` and `request_id` are what those groups hold.
EVENTS = tuple(
    (event, re.compile(pattern))
    for event, pattern in (
        (
            "kv_lookup",
            r"Reqid: (?P<request_id>\S+), Total tokens \d+,.*? LMCache hit tokens: (?P<count>\d+), need to load: -?\d+",
        ),
        (
            "kv_restored",
            r"(?:\[req_id=(?P<request_id>[^\]]+)\] )?Retrieved (?P<count>\d+) out of \d+ (?:required |total )?tokens",
        ),
        ("kv_restored", r"Retrieved (?P<count>\d+) tokens in [\d.]+ seconds"),
        ("kv_offloaded", r"(?:\[req_id=(?P<request_id>[^\]]+)\] )?Stored (?P<count>\d+) out of (?:total )?\d+ tokens"),
        ("kv_offloaded", r"Stored (?P<count>\d+) tokens in [\d.]+ seconds"),
        ("kv_dropped", r"Local cpu memory under pressure so choosing to (?:not store|store only +(?P<count>\d+) total chunks)"),
        ("kv_tier_full", r"No eviction candidates found in local cpu backend|L1 memory usage [\d.]+ above watermark"),
        ("kv_tier_evicted_chunks", r"Evicting (?P<count>\d+) chunks from cpu memory"),
    )
)


def event_of(message: str) -> dict[str, Any] | None:
    """Event, request and count of a message LMCache wrote; None for any other."""
    level = START.match(message)
    for event, pattern in EVENTS if level else ():
        if found := pattern.match(message[level.end() :]):  # type: ignore[union-attr]
            groups = found.groupdict()
            count = groups.get("count")
            return {"event": event, "request_id": groups.get("request_id"), "count": int(count) if count else None}
    return None


def lmcache_rows(entry: Entry, columns: dict[str, Any]) -> Iterator[Row]:
    """The row of a record LMCache wrote; nothing for any other."""
    if event := event_of(entry.message):
        yield "engine_events", columns | event


def _read(text: str) -> Iterator[Row]:
    for entry in entries(text, START):
        yield from lmcache_rows(entry, entry.columns)


def parse(source: Source, sink: Sink) -> Account:
    """Read one log."""
    return read_log(source, sink, GRAMMAR, _read)


def detect(head: bytes) -> float:
    """A log LMCache writes to. An engine's log with such lines in it is the engine's, whose reader takes them too."""
    return 0.5 if any(START.search(line) for line in head_lines(head)) else 0.0


FORMAT = Format(
    name="lmcache_log",
    title="LMCache log",
    engine_kind=None,
    versions="0.3.7 to 0.5.6",
    can_tell="tokens restored from and stored to the external KV tier, by request; stores it dropped under memory pressure",
    cannot_tell="what the engine recomputed; whether a dropped store was ever asked for again",
    tables=("engine_events",),
    detect=detect,
    parse=parse,
)
