"""AIPerf's scrapes of the server's metrics as Parquet (`server_metrics_export.parquet`, schema 1.0, AIPerf 0.4 to 0.13).

    endpoint_url   metric_name           metric_type  timestamp_ns         engine  value  sum   count  bucket_le  bucket_count
    http://gpu-1…  vllm:num_preemptions  counter      1759813207532900363  0       3.0    null  null   null       null
    http://gpu-1…  vllm:request_queue_…  histogram    1759813207532900363  0       null   3.1   9.0    0.3        4.0

One row for each sample, and one for each bucket of a histogram; each label is a column. They become `metric_samples` under the
names a page has: counters get back the `_total` that AIPerf strips.

Counters and histograms are what was added since the last scrape before the measured phase, which is as good as the counter
itself: only differences are used. But where the engine was restarted AIPerf writes 0 until its counter has passed that first
reading again; what was counted meanwhile is in no file. `…_info` series, which carry the settings, are never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from parsers import Format
from parsers.aiperf_server_metrics import server_of
from parsers.bench_rows import real
from parsers.prometheus_names import kept_name
from parsers.prometheus_samples import Samples
from parsers.source import Account, InputError, Sink, Source, UnrecognisedFormat
from parsers.unix_time import unix_microseconds

MAGIC = b"PAR1"
VALUES = ("value", "sum", "count", "bucket_le", "bucket_count")
REQUIRED = {"endpoint_url", "metric_name", "metric_type", "timestamp_ns", *VALUES}
NOT_LABELS = REQUIRED | {"unit", "description"}

Key = tuple[str, ...]


def parse(source: Source, sink: Sink) -> Account:
    """Read one file. UnrecognisedFormat where it is Parquet of another kind."""
    account, samples = Account(), Samples(source.name, sink)
    known: dict[Key, int] = {}
    try:
        file = _opened(source)
        labels = [name for name in file.schema_arrow.names if name not in NOT_LABELS]
        for batch in file.iter_batches(columns=[*sorted(REQUIRED), *labels]):
            for row in batch.to_pylist():
                account.lines += 1
                _read_row(row, labels, account, samples, known)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last for damaged text
        reason = " ".join(str(error).split())
        fault = f"{source.name}: Parquet that cannot be read to its end ({reason[:120]}); copy it again"
        if not account.lines:
            raise InputError(fault) from error
        account.error = fault
    samples.flush()
    return account


def _opened(source: Source) -> pq.ParquetFile:
    """The file, in memory where it is compressed once more."""
    if source.compression:
        with source.open(has_lines=False) as stream:
            file = pq.ParquetFile(pa.BufferReader(stream.read()))
    else:
        file = pq.ParquetFile(source.path)
    if missing := REQUIRED - set(file.schema_arrow.names):
        raise UnrecognisedFormat(
            f"{source.name}: Parquet, but not AIPerf's server metrics (no column {min(missing)}); "
            "`kvpressure formats` lists what is read"
        )
    return file


def _read_row(row: dict[str, Any], labels: list[str], account: Account, samples: Samples, known: dict[Key, int]) -> None:
    """One row into the samples and the account."""
    name, stamp = row["metric_name"], row["timestamp_ns"]
    at = unix_microseconds(stamp) if isinstance(stamp, int) else None
    if not isinstance(name, str) or at is None:
        account.misread(account.lines)
        return
    if (kept := kept_name(name)) is None:
        account.ignored += 1
        return
    values = [(part, bound, number) for part, bound, value in _values(row) if (number := real(value)) is not None]
    if not values:
        account.misread(account.lines)
        return
    account.used += 1
    of_series = {label: str(row[label]) for label in labels if row[label] is not None}
    if server := server_of(row["endpoint_url"]):
        of_series.setdefault("instance", server)
    for part, bound, value in values:
        of_sample = {**of_series, "le": str(bound)} if bound is not None else of_series
        key = (kept + part, *(f"{label}={text}" for label, text in of_sample.items()))
        if key not in known:
            known[key] = samples.describe(kept + part, of_sample, account.lines, at)
        samples.add(known[key], value, at)


def _values(row: dict[str, Any]) -> Iterator[tuple[str, object, object]]:
    """Suffix of the name, bucket and value of each sample in a row. Each bucket's row repeats the histogram's sum and count."""
    yield "_total" if row["metric_type"] == "counter" else "", None, row["value"]
    yield "_bucket", row["bucket_le"], row["bucket_count"]
    if row["bucket_le"] in ("+Inf", None):
        yield "_sum", None, row["sum"]
        yield "_count", None, row["count"]


def detect(head: bytes) -> float:
    """Parquet; which kind is in the file's end, where its reader looks."""
    return 0.5 if head.startswith(MAGIC) else 0.0


FORMAT = Format(
    name="aiperf_server_parquet",
    title="AIPerf server metrics as Parquet",
    engine_kind=None,
    versions="AIPerf 0.4 to 0.13, schema 1.0",
    can_tell="load, KV usage, preemption counts and latency histograms three times a second",
    cannot_tell="the pool's size and other settings; what was counted after a restart of the engine",
    tables=("metric_samples",),
    detect=detect,
    parse=parse,
)
