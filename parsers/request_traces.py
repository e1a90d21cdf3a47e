"""Public request traces: when requests arrived, how long they were, and (some) which blocks their prompts share. No latencies.

    TIMESTAMP,ContextTokens,GeneratedTokens                                                     Azure 2023, 2024, 2025
    2023-11-16 18:17:03.9799600,4808,10
    {"timestamp": 40, "input_length": 23769, "output_length": 3, "hash_ids": [151, 152, …]}     Mooncake: ms, 512 tokens
    {"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.1, "input_length": 521, …}           Bailian: s, 16 tokens
    Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type                        BurstGPT: s
    arrived_at,num_prefill_tokens,num_decode_tokens                                             vidur, Splitwise: s

A request becomes a row of `workload_requests`: a workload to replay, and where it names blocks, what a prefix cache could have
found again. A block's id stands for the whole prefix up to it, in blocks of the trace's own size, which is not the engine's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from parsers import Format
from parsers.bench_rows import epoch, real, text, whole
from parsers.csv_line import cells
from parsers.json_text import decode_line, decoded
from parsers.source import Account, Sink, Source
from parsers.unix_time import in_utc

BATCH_ROWS = 20_000
BLOCK_SIZES = (16, 32, 64, 128, 256, 512, 1024)
NS_SINCE = 1e17  # a timestamp above is in nanoseconds since 1970

# Column of a CSV trace -> what it is.
CSV_COLUMNS = {
    "TIMESTAMP": "time", "Timestamp": "time", "arrived_at": "time", "arrival_timestamp": "time",
    "ContextTokens": "input_tokens", "Request tokens": "input_tokens", "num_prefill_tokens": "input_tokens",
    "prompt_size": "input_tokens",
    "GeneratedTokens": "output_tokens", "Response tokens": "output_tokens", "num_decode_tokens": "output_tokens",
    "token_size": "output_tokens", "Session ID": "session",
}  # fmt: skip


def parse(source: Source, sink: Sink) -> Account:
    """Read one trace; the account counts lines."""
    account, rows, first = Account(), list[dict[str, object]](), math.nan
    with account.kept_to_the_fault():
        for line, found in _records(source, account):
            seconds = found.pop("seconds", None)
            if not isinstance(seconds, float):
                account.misread(line)
                continue
            first = seconds if math.isnan(first) else first
            account.used += 1
            rows.append({"source": source.name, "line": line, "arrival_s": round(seconds - first, 6), **found})
            if len(rows) >= BATCH_ROWS:
                sink.write_rows("workload_requests", rows)
                rows = []
    sink.write_rows("workload_requests", rows)
    return account


def _records(source: Source, account: Account) -> Iterator[tuple[int, dict[str, object]]]:
    """Each request with its line; a line that is none is counted as such."""
    with source.open() as stream:
        lines = (line.decode("utf-8-sig", "replace") for line in stream)
        first = next(lines, "")
        if first.lstrip().startswith("{"):
            yield from _json_records(chain((first,), lines), account)
            return
        account.lines, account.ignored = 1, 1
        names = [CSV_COLUMNS.get(name.strip(), "") for name in cells(first)]
        for line in lines:
            account.lines += 1
            if line.strip():
                yield account.lines, _of_cells(dict(zip(names, cells(line), strict=False)))
            else:
                account.ignored += 1


def _of_cells(row: dict[str, str]) -> dict[str, object]:
    seconds, start = real(row.get("time")), None
    if seconds is None:
        seconds, start = _clock(row.get("time", ""))
    return {
        "seconds": seconds,
        "start_at": start,
        "session": row.get("session") or None,
        "input_tokens": whole(row.get("input_tokens")),
        "output_tokens": whole(row.get("output_tokens")),
    }


def _clock(stamp: str) -> tuple[float | None, datetime | None]:
    """A wall clock, as seconds to count from and, where it has a zone, as a moment."""
    try:
        time = datetime.fromisoformat(stamp.strip())
        start = in_utc(time) if time.tzinfo else None
    except ValueError:
        return None, None
    return (start or time.replace(tzinfo=UTC)).timestamp(), start


def _json_records(lines: Iterator[str], account: Account) -> Iterator[tuple[int, dict[str, object]]]:
    block_size = None
    for line in lines:
        account.lines += 1
        if not line.strip():
            account.ignored += 1
            continue
        request = decode_line(line.encode())
        if not isinstance(request, dict):
            account.misread(account.lines)
            continue
        hashes = request.get("hash_ids")
        hashes = [each % 2**64 for each in hashes if isinstance(each, int)] if isinstance(hashes, list) else None
        block_size = block_size or _block_size(request, hashes)
        yield account.lines, _of_object(request, hashes, block_size)


def _of_object(request: dict[str, Any], hashes: list[int] | None, block_size: int | None) -> dict[str, object]:
    time = real(request.get("timestamp"))
    start = None
    if time is not None and time > NS_SINCE:
        time /= 1e9
        start = epoch(time)
    elif time is not None and "chat_id" not in request:
        time /= 1e3
    chat = request.get("chat_id")
    return {
        "seconds": time,
        "start_at": start,
        "session": str(chat) if chat is not None else text(request.get("session_id")),
        "input_tokens": whole(request.get("input_length")),
        "output_tokens": whole(request.get("output_length")),
        "block_size": block_size if hashes else None,
        "block_hashes": hashes or None,
    }


def _block_size(request: dict[str, Any], hashes: list[int] | None) -> int | None:
    """Tokens in a block, where the request's length tells; the last block may be partial."""
    length = whole(request.get("input_length"))
    if not hashes or not length or len(hashes) < 2:
        return None
    return next((size for size in BLOCK_SIZES if math.ceil(length / size) == len(hashes)), None)


def detect(head: bytes) -> float:
    """A header of one of the CSV traces, or a line with the lengths and blocks of a request."""
    first = decoded(head.lstrip().split(b"\n", 1)[0]).strip()
    if first.startswith("{"):
        try:
            request = json.loads(first)
        except (ValueError, RecursionError):
            return 0.0
        return 0.9 if isinstance(request, dict) and {"timestamp", "input_length", "output_length"} <= request.keys() else 0.0
    known = {CSV_COLUMNS.get(name.strip()) for name in first.split(",")}
    return 0.9 if {"time", "input_tokens", "output_tokens"} <= known else 0.0


FORMAT = Format(
    name="request_trace",
    title="Request traces: Azure, Mooncake, Bailian, BurstGPT, vidur/Splitwise",
    engine_kind=None,
    versions="the traces published from 2023 to 2026",
    can_tell="when requests arrived and how long they were; with block ids, what a prefix cache of each size "
    "could find again, and of a run made from it which prompts begin alike",
    cannot_tell="any latency: nobody served these requests here",
    tables=("workload_requests",),
    detect=detect,
    parse=parse,
)
