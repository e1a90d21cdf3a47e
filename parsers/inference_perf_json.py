"""inference-perf reports (kubernetes-sigs), 0.1 to 0.6: a file for each stage of a load, one of what Prometheus said beside it.

    stage_3_lifecycle_metrics.json   {"load_summary": {"count": 5531, "schedule_delay": {"mean": 0.0003, …}, "requested_rate":
                                      92.19, "achieved_rate": 92.22},
                                      "successes": {"count": 5531, "latency": {"time_to_first_token": {"median": 0.0445, …}, …},
                                      "throughput": {"output_tokens_per_sec": 5693.9, …}, …}, "failures": {"count": 0, …}}
    stage_3_prometheus_metrics.json  {"load_summary": {}, "successes": {"count": 13234, "queue_len": {"mean": 5},
                                      "kv_cache_usage_percentage": {"mean": 0.0, …}, "num_preemptions_total": {"mean": 0}, …}, …}
    summary_lifecycle_metrics.json   the stages together, without a rate

Each file is a row of `bench_runs` without requests and without a time of day; its numbers are `aggregates`, named by their path
(`latency.time_to_first_token.median`). The Prometheus report is a run of the client `inference_perf_prometheus`, and counts over
the server's whole life, not the stage. Where it shows 0 for every quantile of KV usage it has asked for a metric that the server
does not have; the zeros are kept as written, and SQL decides. The account counts objects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from parsers import Format
from parsers.bench_rows import numbers_of, of, read_documents, whole
from parsers.source import Account, Sink, Source

CLIENT, REPORT = "inference_perf", "inference_perf_prometheus"
_REPORTED = ("queue_len", "kv_cache_usage_percentage", "num_preemptions_total", "num_requests_swapped")


def parse(source: Source, sink: Sink) -> Account:
    """Read one report into the sink. InputError where its object is not whole."""
    return read_documents(source, sink, _read)


def _read(document: Any, run_index: int, name: str, sink: Sink) -> bool:
    if not isinstance(of(document, "successes"), dict):
        return False
    sink.write_rows("bench_runs", [_run(document, run_index, name)])
    return True


def _run(document: Mapping, run_index: int, name: str) -> dict[str, object]:
    """One report as a row of `bench_runs`."""
    successes = document["successes"]
    if any(key in successes for key in _REPORTED):
        numbers = numbers_of(successes)
        return {
            "source": name, "run_index": run_index, "client": REPORT, "has_details": False, "aggregates": json.dumps(numbers),
        }  # fmt: skip
    numbers = numbers_of({"load_summary": document.get("load_summary"), **successes})
    completed = whole(numbers.get("count"))
    return {
        "source": name,
        "run_index": run_index,
        "client": CLIENT,
        # the time it took to answer all, which is longer than to send them: completed over completed per second
        "duration_s": _over(numbers.get("count"), numbers.get("throughput.requests_per_sec")),
        "completed": completed,
        "failed": whole(of(document, "failures", "count")),
        "num_prompts": whole(numbers.get("load_summary.count")),
        "request_rate": numbers.get("load_summary.requested_rate"),
        "has_details": False,
        "total_input_tokens": whole(_times(completed, numbers.get("prompt_len.mean"))),
        "total_output_tokens": whole(_times(completed, numbers.get("output_len.mean"))),
        "aggregates": json.dumps(numbers),
    }


def _over(value: float | None, per_second: float | None) -> float | None:
    return value / per_second if value is not None and per_second else None


def _times(count: int | None, mean: float | None) -> int | None:
    return round(count * mean) if count is not None and mean is not None else None


def detect(head: bytes) -> float:
    """`load_summary` opens the object, and `successes` follows."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return 0.95 if start.startswith(b"{") and b'"load_summary"' in start[:200] and b'"successes"' in start else 0.0


FORMAT = Format(
    name="inference_perf_json",
    title="inference-perf stage and summary reports, with the Prometheus report beside each",
    engine_kind=None,
    versions="inference-perf 0.1 to 0.6",
    can_tell="latency and throughput at each offered rate; KV usage and preemptions where Prometheus had them",
    cannot_tell="anything per request or over time; what the server did in one stage, for its counts are of its whole life",
    tables=("bench_runs",),
    detect=detect,
    parse=parse,
)
