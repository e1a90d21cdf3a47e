"""llm-d Benchmark Report 0.2, YAML or JSON: one run in the form that several clients' results are converted to.

    version: '0.2.1'
    run: {uid: …, time: {start: '2025-11-05T18:00:00Z', end: '2025-11-05T18:15:00Z', duration: PT15M}}
    scenario: {load: {standardized: {tool: inference-perf, rate_qps: 8.0, concurrency: 64, …}}, stack: […]}
    results: {request_performance: {aggregate: {requests: {total: 500, failures: 2}, latency: {time_to_first_token: {…}}}},
              observability: {components: [{component_label: vllm-svc-0, time_series:
                {kv_cache_usage: {series: [{ts: …, mean: 35.2}]}}}]}}

It becomes a row of `bench_runs`, with every number of the client's view by its path, and the most that its engines say
of their load (`engine.waiting_requests.max`). The series of its components become `metric_samples` under the names that vLLM and
DCGM have for them: each point is the mean of minutes, and the most is higher. There is nothing of single requests in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import yaml

from parsers import Format
from parsers.bench_rows import numbers_of, of, real, text, whole
from parsers.json_text import read_text
from parsers.source import Account, InputError, Sink, Source
from parsers.unix_time import in_utc

# Series of a component -> metric and what one of its units is in the metric's.
SERIES = {
    "kv_cache_usage": ("vllm:kv_cache_usage_perc", 0.01),
    "num_requests_running": ("vllm:num_requests_running", 1.0),
    "running_requests": ("vllm:num_requests_running", 1.0),  # in reports of before 0.2.1
    "num_requests_waiting": ("vllm:num_requests_waiting", 1.0),
    "waiting_requests": ("vllm:num_requests_waiting", 1.0),
    "num_preemptions": ("vllm:num_preemptions_total", 1.0),
    "preemptions": ("vllm:num_preemptions_total", 1.0),
    "gpu_utilization": ("DCGM_FI_DEV_GPU_UTIL", 1.0),
    "power_consumption": ("DCGM_FI_DEV_POWER_USAGE", 1.0),
    "gpu_power": ("DCGM_FI_DEV_POWER_USAGE", 1.0),
}

# Aggregate of an engine's load -> the names it has had.
LOADS = {
    "kv_cache_usage": ("kv_cache_usage",),
    "running_requests": ("running_requests", "num_requests_running"),
    "waiting_requests": ("waiting_requests", "num_requests_waiting"),
}


def parse(source: Source, sink: Sink) -> Account:
    """Read one file; the account counts documents."""
    content, fault = read_text(source)
    account = Account(error=fault)
    try:
        reports = [json.loads(content)] if content.lstrip().startswith("{") else _from_yaml(content, source.name)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{source.name}: {fault or 'neither YAML nor JSON to its end; fetch it again'}") from error
    for report in reports:
        account.lines += 1
        if isinstance(of(report, "results"), dict):
            _read(report, account.used, source.name, sink)
            account.used += 1
        else:
            account.misread(account.lines)
    return account


def _from_yaml(content: str, name: str) -> list[Any]:
    """Each document; InputError for one that repeats lists or objects by reference, for a short one can be endless that way."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    anchors: set[str] = set()
    for event in yaml.parse(content, loader):
        if isinstance(event, yaml.CollectionStartEvent) and event.anchor:
            anchors.add(event.anchor)
        elif isinstance(event, yaml.AliasEvent) and event.anchor in anchors:
            raise InputError(f"{name}: YAML that refers to a list or object (*{event.anchor}); write it out without references")
    return list(yaml.load_all(content, loader))


def _read(report: Any, run_index: int, name: str, sink: Sink) -> None:
    aggregate = of(report, "results", "request_performance", "aggregate") or {}
    load = of(report, "scenario", "load", "standardized") or {}
    total, failed = whole(of(aggregate, "requests", "total")), whole(of(aggregate, "requests", "failures"))
    start, end = _time(of(report, "run", "time", "start")), _time(of(report, "run", "time", "end"))
    run = {
        "source": name,
        "run_index": run_index,
        "client": text(of(load, "tool")) or "benchmark_report",
        "model": _model(of(report, "scenario", "stack")),
        "start_at": start,
        "duration_s": (end - start).total_seconds() if start and end else None,
        "completed": total - (failed or 0) if total is not None else None,
        "failed": failed,
        "num_prompts": total,
        "request_rate": real(of(load, "rate_qps")),
        "max_concurrency": whole(of(load, "concurrency")),
        "has_details": False,
        "aggregates": json.dumps(numbers_of(aggregate) | _most(report)),
    }
    sink.write_rows("bench_runs", [run])
    sink.write_rows("metric_samples", [{"source": name, **sample} for sample in _samples(report)])


def _model(stack: object) -> str | None:
    """The model of the first component that names one."""
    models = (of(each, "standardized", "model", "name") for each in (stack if isinstance(stack, list) else ()))
    return next((model for model in models if isinstance(model, str)), None)


def _most(report: Any) -> dict[str, float]:
    """The highest of each quantity of load that any engine reached. A router has a queue too, and no KV cache."""
    components = of(report, "results", "observability", "components")
    loads = [of(component, "aggregate") for component in (components if isinstance(components, list) else ())]
    most: dict[str, float] = {}
    for load in loads:
        if of(load, "kv_cache_usage") is None:
            continue
        for name, names in LOADS.items():
            peaks = [peak for each in names if (peak := real(of(load, each, "max"))) is not None]
            if peaks:
                key = f"engine.{name}.max"
                most[key] = max(most.get(key, peaks[0]), *peaks)
    return most


def _samples(report: Any) -> Iterator[dict[str, object]]:
    components = of(report, "results", "observability", "components")
    for component in components if isinstance(components, list) else ():
        for series, (metric, scale) in SERIES.items():
            points = of(component, "time_series", series, "series")
            for point in points if isinstance(points, list) else ():
                time, value = _time(of(point, "ts")), real(of(point, "mean") if "mean" in point else of(point, "value"))
                if time is not None and value is not None:
                    instance = text(of(component, "component_label"))
                    yield {"at_utc": time, "instance": instance, "name": metric, "labels": "", "value": value * scale}


def _time(value: object) -> datetime | None:
    """A moment: YAML makes one of an unquoted stamp itself."""
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return in_utc(time) if time.tzinfo else None
    except ValueError:
        return None


_HEAD_RESULTS = re.compile(rb'^(?:\{\s*)?"?(?:results|run|scenario|version)"?\s*:', re.MULTILINE)
_HEAD_OWN = (b"component_health", b"component_label", b"request_performance", b"observability")


def detect(head: bytes) -> float:
    """A report's sections, and not the schema that describes them."""
    if b'"$defs"' in head or b'"$schema"' in head or not _HEAD_RESULTS.search(head):
        return 0.0
    return 0.9 if sum(word in head for word in _HEAD_OWN) >= 2 else 0.0


FORMAT = Format(
    name="benchmark_report",
    title="llm-d Benchmark Report (YAML or JSON)",
    engine_kind=None,
    versions="Benchmark Report 0.2",
    can_tell="rate, limits, latencies and throughput of a run as its client summed them up; the course of load and KV usage",
    cannot_tell="anything of single requests",
    tables=("bench_runs", "metric_samples"),
    detect=detect,
    parse=parse,
)
