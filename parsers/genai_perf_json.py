r"""genai-perf and perf_analyzer `profile_export.json`: every request with the times of its responses.

    {"experiments":[{"experiment":{"mode":"concurrency","value":1},
      "requests":[{"timestamp":1708451700123456789,"response_timestamps":[1708451700223456789,1708451700233456789],
        "response_outputs":[{"response":"data: {\"choices\":[…]}\n\n"},{"response":"data: [DONE]\n\n"}]}],
      "window_boundaries":[…]}],"version":"1.0","service_kind":"openai"}

Each experiment becomes a row of `bench_runs`, each request a row of `bench_requests`, on an absolute clock. Responses without
content (the role alone, `[DONE]`) are no tokens and are left out of the gaps. Lengths are not in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from parsers import Format
from parsers.bench_rows import (
    begins_as_json,
    epoch_ns,
    gaps_of,
    has_keys,
    of,
    read_documents,
    real,
    seconds_between,
    whole,
    write_requests,
)
from parsers.source import Account, Sink, Source

NS = 1e9
CONTENT = re.compile(r'"(?:content|text|text_output|reasoning_content)"\s*:\s*"(?!")')


def parse(source: Source, sink: Sink) -> Account:
    """Read one file."""
    runs = 0

    def read(document: Any, _: int, name: str, sink: Sink) -> bool:
        nonlocal runs
        experiments = of(document, "experiments")
        for experiment in experiments if isinstance(experiments, list) else ():
            _read(experiment, runs, name, sink)
            runs += 1
        return isinstance(experiments, list) and bool(experiments)

    return read_documents(source, sink, read)


def _read(experiment: Any, run_index: int, name: str, sink: Sink) -> None:
    requests = of(experiment, "requests")
    requests = requests if isinstance(requests, list) else []
    mode, value = of(experiment, "experiment", "mode"), of(experiment, "experiment", "value")
    starts = [start for request in requests if isinstance(start := of(request, "timestamp"), int)]
    ends = [times[-1] for request in requests if isinstance(times := of(request, "response_timestamps"), list) and times]
    rows = list(_requests(requests))
    failed = sum(bool(row["is_failed"]) for row in rows)
    run = {
        "source": name,
        "run_index": run_index,
        "client": "genai_perf",
        "start_at": epoch_ns(min(starts)) if starts else None,
        "duration_s": seconds_between(min(starts), max(ends), NS) if starts and ends else None,
        "completed": len(rows) - failed,
        "failed": failed,
        "num_prompts": len(rows),
        "request_rate": real(value) if mode == "request_rate" else None,
        "max_concurrency": whole(value) if mode == "concurrency" else None,
        "has_details": bool(rows),
    }
    sink.write_rows("bench_runs", [run])
    write_requests(sink, name, run_index, rows)


def _requests(requests: list[Any]) -> Iterator[dict[str, object]]:
    for request in requests:
        start, times, outputs = (of(request, key) for key in ("timestamp", "response_timestamps", "response_outputs"))
        times = times if isinstance(times, list) else []
        if isinstance(outputs, list) and len(outputs) == len(times):
            times = [time for time, output in zip(times, outputs, strict=True) if CONTENT.search(str(of(output, "response")))]
        gaps = gaps_of(times, NS)
        yield {
            "start_at": epoch_ns(start),
            "ttft_s": seconds_between(start, times[0], NS) if times else None,
            "latency_s": seconds_between(start, times[-1], NS) if times else None,
            "gaps_s": gaps,
            "gap_kind": "chunk" if gaps else None,
            "is_failed": not times,
        }


def detect(head: bytes) -> float:
    """Experiments with the times of responses in them."""
    return 0.95 if begins_as_json(head) and has_keys(head, "experiments", "response_timestamps") else 0.0


FORMAT = Format(
    name="genai_perf_json",
    title="genai-perf, perf_analyzer profile_export.json",
    engine_kind=None,
    versions="genai-perf 0.0.4 to 0.0.16",
    can_tell="when each request was sent, on an absolute clock, and its pauses between responses",
    cannot_tell="lengths in tokens; the client's own queue; the server's",
    tables=("bench_runs", "bench_requests"),
    detect=detect,
    parse=parse,
)
