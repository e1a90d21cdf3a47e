"""AIPerf's own scrapes: of the server's metrics (`server_metrics_export.jsonl`) and of the GPUs (`gpu_telemetry_export.jsonl`).

    {"endpoint_url":"http://gpu-1:8000/metrics","timestamp_ns":1759813207532900363,
     "metrics":{"vllm:num_preemptions":[{"labels":{"engine":"0"},"value":3.0}],
      "vllm:request_queue_time_seconds":[{"labels":{"engine":"0"},"buckets":{"0.3":4,"+Inf":9},"sum":3.1,"count":9}]}}
    {"gpu_index":0,"hostname":"gpu-1","timestamp_ns":1759813207532900363,
     "telemetry_data":{"gpu_utilization":97.0,"gpu_power_usage":412.1,"gpu_memory_used":70.1}}

Both become `metric_samples`, under the names that Prometheus and DCGM have for them: counters, which AIPerf strips of their
`_total`, get it back, GPU readings become `DCGM_FI_DEV_…` in DCGM's units. A scrape equal to the one before it was not written;
`…_info` families never are, so the pool's size is not in here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from parsers import Format
from parsers.bench_rows import begins_as_json, has_keys, of, real, text
from parsers.json_text import decode_line
from parsers.prometheus_names import kept_name
from parsers.prometheus_samples import Samples
from parsers.source import Account, Sink, Source
from parsers.unix_time import unix_microseconds

COUNTERS = re.compile(
    r"vllm:(?:num_preemptions|(?:prompt|generation)_tokens|request_success|(?:external_)?prefix_cache_(?:hits|queries)"
    r"|gpu_prefix_cache_(?:hits|queries)|spec_decode_num_\w+|request_prefill_\w+_tokens|prompt_tokens_\w+)"
    r"|sglang:(?:num_retracted_requests|realtime_tokens|prefill_effective_tokens|(?:prompt|generation|cached)_tokens|num_requests)"
)
GIB = 1e9 / 2**20  # AIPerf writes GB, DCGM counts MiB
# Reading (with its vendor's prefix taken off) -> DCGM's name, and what one of its units is in DCGM's.
TELEMETRY = {
    "utilization": ("DCGM_FI_DEV_GPU_UTIL", 1.0),
    "power_usage": ("DCGM_FI_DEV_POWER_USAGE", 1.0),
    "memory_used": ("DCGM_FI_DEV_FB_USED", GIB),
    "energy_consumption": ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e9),  # MJ in mJ
    "temperature": ("DCGM_FI_DEV_GPU_TEMP", 1.0),
    "sm_clock_frequency": ("DCGM_FI_DEV_SM_CLOCK", 1.0),
}
VENDOR = re.compile(r"^(?:nvidia_|amd_)?(?:gpu_)?")

Sample = tuple[str, dict[str, str], float]


def parse(source: Source, sink: Sink) -> Account:
    """Read one file."""
    account, samples = Account(), Samples(source.name, sink)
    known: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
    with account.kept_to_the_fault(), source.open() as stream:
        for line in stream:
            account.lines += 1
            scrape = decode_line(line) if line.strip() else None
            time = unix_microseconds(stamp) if isinstance(stamp := of(scrape, "timestamp_ns"), int) else None
            if not line.strip():
                account.ignored += 1
            elif time is None:
                account.misread(account.lines)
            else:
                account.used += 1
                for name, labels, value in _samples(scrape):
                    key = (name, tuple(sorted(labels.items())))
                    if key not in known:
                        known[key] = samples.describe(name, labels, account.lines, time)
                    samples.add(known[key], value, time)
    samples.flush()
    return account


def _samples(scrape: Any) -> Iterator[Sample]:
    if isinstance(telemetry := of(scrape, "telemetry_data"), dict):
        labels = {"gpu": str(scrape.get("gpu_index", 0))}
        if host := text(scrape.get("hostname")):
            labels["hostname"] = host
        for reading, value in telemetry.items():
            name, scale = TELEMETRY.get(VENDOR.sub("", reading, count=1), ("", 0.0))
            if name and (number := real(value)) is not None:
                yield name, labels, number * scale
        return
    families = of(scrape, "metrics")
    server = server_of(of(scrape, "endpoint_url"))
    for family, series in families.items() if isinstance(families, dict) else ():
        if kept := kept_name(family):
            for each in series if isinstance(series, list) else ():
                yield from _of_series(kept, each, server)


def server_of(url: object) -> str | None:
    """The server of an address, as Prometheus calls its targets; None where there is none in it."""
    try:
        return urlsplit(url).netloc or None if isinstance(url, str) else None
    except ValueError:
        return None


def _of_series(name: str, series: object, server: str | None) -> Iterator[Sample]:
    """The samples a page of that server would have had for one series."""
    named = of(series, "labels")
    labels = {"instance": server} if server else {}
    labels |= {str(key): str(value) for key, value in named.items()} if isinstance(named, dict) else {}
    value = real(of(series, "value"))
    if value is not None:
        yield f"{name}_total" if COUNTERS.fullmatch(name) else name, labels, value
    buckets = of(series, "buckets")
    for bound, count in buckets.items() if isinstance(buckets, dict) else ():
        if (number := real(count)) is not None:
            yield f"{name}_bucket", {**labels, "le": str(bound)}, number
    for part in ("sum", "count"):
        if (number := real(of(series, part))) is not None:
            yield f"{name}_{part}", labels, number


def detect(head: bytes) -> float:
    """A line with a scrape in it."""
    first = head.lstrip().split(b"\n", 1)[0]
    if not begins_as_json(head) or not has_keys(first, "timestamp_ns"):
        return 0.0
    return 0.95 if has_keys(first, "endpoint_url", "metrics") or has_keys(first, "telemetry_data") else 0.0


FORMAT = Format(
    name="aiperf_server_metrics",
    title="AIPerf server metrics and GPU telemetry as JSON lines",
    engine_kind=None,
    versions="AIPerf 0.2 to 0.13",
    can_tell="load, KV usage, preemption counts, latency histograms and GPU load three times a second",
    cannot_tell="the pool's size and other settings, whose series AIPerf leaves out",
    tables=("metric_samples",),
    detect=detect,
    parse=parse,
)
