"""GuideLLM `benchmarks.json`, 0.1 to 0.8: one document, one benchmark in it per rate.

    {"metadata":{"version":2,"guidellm_version":"0.8.0"},"config":…,"benchmarks":[{"config":{"strategy":{"type_":"constant",
      "rate":2.0,"max_concurrency":512}},"start_time":1786678148.25,"duration":5.02,"metrics":{"request_totals":{"successful":2,…}},
      "requests":{"successful":[{"request_id":"…","prompt_tokens":91,"output_tokens":16,
        "info":{"timings":{"queued":1786678147.2,"request_start":1786678148.26,"first_token_iteration":1786678148.27,…}}}],
       "errored":[],"incomplete":[]}}]}
    {"benchmarks":[{"args":…,"requests":{"successful":[{"start_time":1786678148.26,"first_token_time":…,"prompt_tokens":91,…}]}}]}

Each benchmark becomes a row of `bench_runs` and each request kept a row of `bench_requests`, on an absolute clock. A report may
have been stripped of its requests or hold a sample of them: their number is `completed`, never the length of the list. There is a
first and a last token of each request and no time between them, so a pause within an answer cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parsers import Format
from parsers.bench_rows import (
    begins_as_json,
    epoch,
    error_kind,
    has_keys,
    numbers_in,
    of,
    read_documents,
    real,
    seconds_between,
    text,
    whole,
    write_requests,
)
from parsers.source import Account, Sink, Source

GROUPS = ("successful", "errored", "incomplete")
NOT_AGGREGATES = ("request_totals", "pdf", "mode", "variance", "errored", "incomplete", "total")


def parse(source: Source, sink: Sink) -> Account:
    """Read one file; the account counts benchmarks."""
    runs = 0

    def read(report: Any, _: int, name: str, sink: Sink) -> bool:
        nonlocal runs
        benchmarks = of(report, "benchmarks")
        for benchmark in benchmarks if isinstance(benchmarks, list) else ():
            _read(report, benchmark, runs, name, sink)
            runs += 1
        return isinstance(benchmarks, list) and bool(benchmarks)

    return read_documents(source, sink, read)


def _read(report: Any, benchmark: Any, run_index: int, name: str, sink: Sink) -> None:
    requests = of(benchmark, "requests")
    kept = {group: of(requests, group) if isinstance(of(requests, group), list) else [] for group in GROUPS}
    totals = of(benchmark, "metrics", "request_totals") or of(benchmark, "request_totals") or {}
    counts = {group: whole(of(totals, group)) for group in GROUPS}
    completed = counts["successful"] if counts["successful"] is not None else len(kept["successful"])
    failed = counts["errored"] if counts["errored"] is not None else len(kept["errored"])
    strategy = of(benchmark, "config", "strategy") or of(benchmark, "args", "strategy") or {}
    start = real(of(benchmark, "start_time")) or real(of(benchmark, "run_stats", "start_time"))
    sink.write_rows(
        "bench_runs",
        [
            {
                "source": name,
                "run_index": run_index,
                "client": "guidellm",
                "model": text(of(benchmark, "config", "backend", "model") or of(report, "args", "model")),
                "start_at": epoch(start),
                "duration_s": real(of(benchmark, "duration")) or seconds_between(start, of(benchmark, "end_time")),
                "completed": completed,
                "failed": failed,
                "num_prompts": sum(count or 0 for count in counts.values()) or sum(map(len, kept.values())),
                "request_rate": real(of(strategy, "rate")),
                "max_concurrency": whole(of(strategy, "streams")) or whole(of(strategy, "max_concurrency")),
                "has_details": any(kept.values()),
                "aggregates": numbers_in(of(benchmark, "metrics"), but=NOT_AGGREGATES) if completed else None,
            }
        ],
    )
    write_requests(sink, name, run_index, _requests(kept))


def _requests(kept: dict[str, list[Any]]) -> Iterator[dict[str, object]]:
    for group, requests in kept.items():
        for request in requests:
            timings = of(request, "info", "timings") or {}
            start = real(timings.get("request_start")) or real(of(request, "start_time"))
            first = real(timings.get("first_token_iteration")) or real(of(request, "first_token_time"))
            last = real(timings.get("last_token_iteration")) or real(of(request, "last_token_time"))
            error = text(of(request, "info", "error") or of(request, "error"))
            failed = group == "errored"
            yield {
                "request_id": text(of(request, "request_id")),
                "start_at": epoch(start),
                "client_queue_s": seconds_between(timings.get("targeted_start") or timings.get("queued"), start),
                "input_tokens": whole(_tokens(request, "prompt_tokens", "input_metrics")),
                "output_tokens": whole(_tokens(request, "output_tokens", "output_metrics")),
                "ttft_s": seconds_between(start, first),
                "latency_s": None if group != "successful" else seconds_between(start, last),
                "is_failed": failed,
                "error_kind": error_kind(error) if error else None,
            }


def _tokens(request: Any, name: str, metrics: str) -> object:
    value = of(request, name)
    return value if value is not None else of(request, metrics, "total_tokens") or of(request, metrics, "text_tokens")


def detect(head: bytes) -> float:
    """A list of benchmarks beside what GuideLLM alone writes."""
    if not head.lstrip().startswith(b"{"):
        return 0.0
    if b'"guidellm_version"' in head:
        return 0.95
    own = any(has_keys(head, key) for key in ("scheduler_state", "type_", "run_stats", "scheduler_metrics"))
    return 0.9 if begins_as_json(head) and has_keys(head, "benchmarks") and own else 0.0


FORMAT = Format(
    name="guidellm_json",
    title="GuideLLM benchmarks.json",
    engine_kind=None,
    versions="GuideLLM 0.1 to 0.8",
    can_tell="when each request was sent, on an absolute clock, its time to first token and the client's own queue",
    cannot_tell="pauses within an answer: it keeps the first and the last token only; requests that were left out of the report",
    tables=("bench_runs", "bench_requests"),
    detect=detect,
    parse=parse,
)
