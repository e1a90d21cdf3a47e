"""NVIDIA AIPerf `profile_export.jsonl`: one object per request, both eras.

    {"metadata":{"x_request_id":"7609","credit_issued_ns":1759813207530000000,"request_start_ns":1759813207532900363,
      "request_end_ns":1759813207838764604,"benchmark_phase":"profiling","was_cancelled":false,…},
     "metrics":{"input_sequence_length":{"value":550,"unit":"tokens"},"time_to_first_token":{"value":255.88,"unit":"ms"},
      "request_latency":{"value":297.5,"unit":"ms"},"inter_chunk_latency":{"value":[4.89,5.31],"unit":"ms"},…},"error":null}
    {"metadata":{"x_request_id":"c087","timestamp_ns":1759522419154829652,"credit_phase":"profiling",…},"metrics":{"ttft":…}}  0.1

Each becomes a row of `bench_requests`, all of a file are one run. The times are epoch nanoseconds, so they can be laid beside
a server's log without guessing. `inter_chunk_latency` are true gaps between chunks; `inter_token_latency` is a mean and not used.
The wait from a credit to the start is the client's own queue. Warm-up requests loaded the server too and are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parsers import Format
from parsers.bench_rows import (
    begins_as_json,
    epoch_ns,
    error_kind,
    has_keys,
    of,
    reals,
    seconds_between,
    text,
    whole,
    write_requests,
)
from parsers.bench_rows import real as number
from parsers.json_text import decode_line
from parsers.source import Account, Sink, Source

PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
NS = 1e9


def parse(source: Source, sink: Sink) -> Account:
    """Read one file."""
    account, run = Account(), _Run()
    with account.kept_to_the_fault():
        write_requests(sink, source.name, 0, _requests(source, account, run))
    if account.used:
        sink.write_rows("bench_runs", [{"source": source.name, "run_index": 0, "client": "aiperf", **run.row()}])
    return account


class _Run:
    """What the requests add up to."""

    def __init__(self) -> None:
        self.completed = self.failed = self.input_tokens = self.output_tokens = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def take(self, row: dict[str, object], start_ns: object, end_ns: object) -> None:
        """Add a request."""
        if row["is_failed"]:
            self.failed += 1
        else:
            self.completed += 1
            self.input_tokens += whole(row["input_tokens"]) or 0
            self.output_tokens += whole(row["output_tokens"]) or 0
        if isinstance(start_ns, int):
            self.first_ns = min(start_ns, self.first_ns or start_ns)
        for each in (start_ns, end_ns):
            if isinstance(each, int):
                self.last_ns = max(each, self.last_ns or each)

    def row(self) -> dict[str, object]:
        """The run."""
        return {
            "start_at": epoch_ns(self.first_ns),
            "duration_s": seconds_between(self.first_ns, self.last_ns, NS),
            "completed": self.completed,
            "failed": self.failed,
            "num_prompts": self.completed + self.failed,
            "has_details": True,
            "total_input_tokens": self.input_tokens or None,
            "total_output_tokens": self.output_tokens or None,
        }


def _requests(source: Source, account: Account, run: _Run) -> Iterator[dict[str, object]]:
    with source.open() as stream:
        for line in stream:
            account.lines += 1
            if not line.strip():
                account.ignored += 1
                continue
            record = decode_line(line)
            metadata = of(record, "metadata")
            if not isinstance(metadata, dict):
                account.misread(account.lines)
                continue
            account.used += 1
            start = metadata.get("request_start_ns", metadata.get("timestamp_ns"))
            row = _request(record, metadata, start)
            run.take(row, start, metadata.get("request_end_ns", of(record, "metrics", "max_response_timestamp", "value")))
            yield row


def _request(record: Any, metadata: dict[str, Any], start: object) -> dict[str, object]:
    metrics, error = of(record, "metrics"), of(record, "error")
    gaps = of(metrics, "inter_chunk_latency")
    per_second = PER_SECOND.get(str(of(gaps, "unit")), 1e3)
    values = reals(of(gaps, "value"))
    failed = error is not None or bool(metadata.get("was_cancelled"))
    return {
        "request_id": text(metadata.get("x_request_id")),
        "start_at": epoch_ns(start),
        "client_queue_s": seconds_between(metadata.get("credit_issued_ns"), start, NS),
        "input_tokens": whole(of(metrics, "input_sequence_length", "value") or of(metrics, "isl", "value")),
        "output_tokens": whole(of(metrics, "output_sequence_length", "value") or of(metrics, "osl", "value")),
        "ttft_s": _seconds(metrics, "time_to_first_token", "ttft"),
        "latency_s": None if failed else _seconds(metrics, "request_latency"),
        "gaps_s": [each / per_second for each in values] if values else None,
        "gap_kind": "chunk" if values else None,
        "is_failed": failed,
        "error_kind": _error(error, is_cancelled=bool(metadata.get("was_cancelled"))) if failed else None,
    }


def _seconds(metrics: object, *names: str) -> float | None:
    for name in names:
        value = number(of(metrics, name, "value"))
        if value is not None:
            return value / PER_SECOND.get(str(of(metrics, name, "unit")), 1e3)
    return None


def _error(error: object, *, is_cancelled: bool) -> str:
    kind, code = text(of(error, "type")), whole(of(error, "code"))
    if kind:
        return error_kind(kind) if error_kind(kind) != "other" else kind[:50]
    return f"HTTP {code}" if code else "cancelled" if is_cancelled else "other"


def detect(head: bytes) -> float:
    """A line with a request's metadata and metrics."""
    first = head.lstrip().split(b"\n", 1)[0]
    if not begins_as_json(head) or not has_keys(first, "metadata", "metrics"):
        return 0.0
    own = any(has_keys(first, key) for key in ("request_start_ns", "timestamp_ns", "x_request_id", "credit_phase"))
    return 0.95 if own and b'"telemetry_data"' not in first else 0.0


FORMAT = Format(
    name="aiperf_requests",
    title="AIPerf profile_export.jsonl",
    engine_kind=None,
    versions="AIPerf 0.1 to 0.13",
    can_tell="when each request was sent, on an absolute clock; its pauses between chunks; how long the client itself held it",
    cannot_tell="why a request paused; the server's queue",
    tables=("bench_runs", "bench_requests"),
    detect=detect,
    parse=parse,
)
