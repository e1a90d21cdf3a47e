"""inference-perf per-request report, 0.1 to 0.6 (opt-in: `report.request_lifecycle.per_request`): a list of every request.

    [{"start_time":1326.849,"end_time":1330.344,"request":"…","response":"…","info":{"input_tokens":314,"output_tokens":333,
      "output_token_times":[1326.975,1327.045]},"error":null}, …]
    … "info":{"request_metrics":{"text":{"input_tokens":314}},"response_metrics":{"output_tokens":333,"chunk_times":[…],…}}   0.6

A request becomes a row of `bench_requests`, on the client's monotonic clock, all of a file are one run: which stage a request
was of is not written. Where there are times of chunks they are taken, else those of tokens. Prompts and answers are not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parsers import Format
from parsers.bench_rows import (
    error_kind,
    gaps_of,
    has_keys,
    of,
    read_documents,
    real,
    seconds_between,
    text,
    whole,
    write_requests,
)
from parsers.source import Account, Sink, Source


def parse(source: Source, sink: Sink) -> Account:
    """Read one file; the account counts documents."""
    return read_documents(source, sink, _read)


def _read(report: Any, run_index: int, name: str, sink: Sink) -> bool:
    requests = report if isinstance(report, list) else []
    requests = [request for request in requests if isinstance(request, dict) and "start_time" in request]
    return bool(requests) and _read_requests(requests, run_index, name, sink)


def _read_requests(requests: list[dict[str, Any]], run_index: int, name: str, sink: Sink) -> bool:
    rows = list(_requests(requests))
    starts = [start for row in rows if (start := real(row["start_mono_s"])) is not None]
    ends = [end for request in requests if (end := real(request.get("end_time"))) is not None]
    failed = sum(bool(row["is_failed"]) for row in rows)
    run = {
        "source": name,
        "run_index": run_index,
        "client": "inference_perf",
        "duration_s": seconds_between(min(starts), max(ends)) if starts and ends else None,
        "completed": len(rows) - failed,
        "failed": failed,
        "num_prompts": len(rows),
        "has_details": True,
        "total_input_tokens": sum(whole(row["input_tokens"]) or 0 for row in rows) or None,
        "total_output_tokens": sum(whole(row["output_tokens"]) or 0 for row in rows) or None,
    }
    sink.write_rows("bench_runs", [run])
    write_requests(sink, name, run_index, rows)
    return True


def _requests(requests: list[dict[str, Any]]) -> Iterator[dict[str, object]]:
    for request in requests:
        info, error = request.get("info"), request.get("error")
        response = of(info, "response_metrics")
        tokens, chunks = (of(response, key) or of(info, key) or [] for key in ("output_token_times", "chunk_times"))
        times = chunks if isinstance(chunks, list) and chunks else tokens if isinstance(tokens, list) else []
        gaps = gaps_of(times)
        start = real(request.get("start_time"))
        input_tokens = of(info, "request_metrics", "text", "input_tokens")
        yield {
            "start_mono_s": start,
            "input_tokens": whole(of(info, "input_tokens") if input_tokens is None else input_tokens),
            "output_tokens": whole(of(response, "output_tokens") if response else of(info, "output_tokens")),
            "ttft_s": seconds_between(start, times[0]) if times else None,
            "latency_s": None if error else seconds_between(start, times[-1] if times else request.get("end_time")),
            "gaps_s": gaps,
            "gap_kind": ("chunk" if times is chunks else "token") if gaps else None,
            "is_failed": error is not None,
            "error_kind": error_kind(text(of(error, "error_type")) or "") if error else None,
        }


def detect(head: bytes) -> float:
    """A list of requests with the keys that only inference-perf has together."""
    own = has_keys(head, "start_time", "end_time", "request", "error")
    return 0.9 if head.lstrip().startswith(b"[") and own and not has_keys(head, "span_id") else 0.0


FORMAT = Format(
    name="inference_perf_requests",
    title="inference-perf per-request report",
    engine_kind=None,
    versions="inference-perf 0.1 to 0.6",
    can_tell="gaps between tokens of each request, and when it was sent on the client's clock",
    cannot_tell="the time of day of a request, its stage, or how late it was sent",
    tables=("bench_runs", "bench_requests"),
    detect=detect,
    parse=parse,
)
