"""The results of a run as llm-d Benchmark Reports 0.2, for whoever compares runs of several tools in that form.

One report for each client result, as documents of one YAML file: what the client saw of its requests, what the engines showed
meanwhile, and, in a section of its own that the schema leaves room for (`results.observability.kvpressure`), what this program
makes of the whole run. What is not known is left out, never 0. `parsers.benchmark_report` reads what is written here.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import yaml

from pipelines.charts.data import Data, Mask

SCHEMA_VERSION = "0.2.1"
PERCENTILES = (0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)

Row = Mapping[str, Any]
Connection = duckdb.DuckDBPyConnection
# Series of a component, with their unit: column of `timeline`, and what one of its units is in the report's.
SERIES = {
    "kv_cache_usage": ("kv_usage_ratio", 100.0, "percent"),
    "num_requests_running": ("running", 1.0, "count"),
    "num_requests_waiting": ("waiting", 1.0, "count"),
    "gpu_utilization": ("gpu_util_ratio", 100.0, "percent"),
}
WORDS = {
    "units",
    "kind",
    "tool",
    "verdict",
    "method",
    "distribution",
    "version",
    "schema_version",
}  # whose values are never names
DIGESTS = {"uid", "cfg_id"}  # of names among others
AGGREGATE_NAMES = {"num_requests_running": "running_requests", "num_requests_waiting": "waiting_requests"}


class NoClientResultError(Exception):
    """An analysis without a client's result. One line."""


def write(database: Path, file: Path, *, anonymize: bool = False) -> int:
    """Write the reports of an analysis to a file; how many there are. `anonymize` hides the names that the page hides."""
    with duckdb.connect(str(database), read_only=True) as con:
        con.execute("set timezone = 'UTC'")
        made = reports(con)
    if anonymize:
        with Data.open(database, anonymize=True) as data:
            made = [_hidden(each, data.mask) for each in made]
    if not made:
        raise NoClientResultError(
            "no client result among the inputs to make a benchmark report of; "
            "give the load generator's result, or leave --benchmark-report out"
        )
    file.write_text(yaml.safe_dump_all(made, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return len(made)


def reports(con: Connection) -> list[dict[str, Any]]:
    """One report for each client result, in the order in which they ran."""
    ran = _rows(con, "core.client_sums", "duration_s is not null", "started_at nulls last, source, run_index")
    requests: dict[tuple[str, int], list[Row]] = {}
    for row in _rows(con, "core.requests", "has_client", "source, run_index, request_index"):
        requests.setdefault((row["source"], row["run_index"]), []).append(row)
    gaps: dict[str, list[float]] = {}
    for row in _rows(con, "core.gap_chunks", "chunk_index > 0", "request_key, chunk_index"):
        gaps.setdefault(row["request_key"], []).append(row["gap_s"])
    return [_report(con, row, requests.get((row["source"], row["run_index"]), []), gaps) for row in ran]


def _hidden(report: dict[str, Any], mask: Mask) -> dict[str, Any]:
    """The report with every name replaced, and its digests made of what is left: one of a name gives it away to who guesses."""
    hidden = _masked(report, mask)
    hidden["run"]["uid"] = _digest(hidden["run"])
    for each in hidden["scenario"].get("stack", ()):
        each["metadata"]["cfg_id"] = _digest([each["standardized"], each["native"]["config"]])
    return hidden


def _masked(value: Any, mask: Mask) -> Any:
    if isinstance(value, dict):
        return {key: each if key in WORDS else _masked(each, mask) for key, each in value.items() if key not in DIGESTS}
    return [_masked(each, mask) for each in value] if isinstance(value, list) else mask(value)


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def _report(con: Connection, ran: Row, requests: Sequence[Row], gaps: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    start, duration = ran["started_at"], ran["duration_s"]
    end = datetime.fromtimestamp(start.timestamp() + duration, UTC) if start else None
    run = {
        "uid": _digest(f"{_name(con)}/{ran['source']}/{ran['run_index']}"),
        "time": _known(start=_time(start), end=_time(end), duration=f"PT{duration:.6f}S"),
        "description": f"{ran['source']} of run {_name(con)}",
    }
    window = (start, end) if start and end else None
    engines = _rows(con, "engines", order="engine")
    components = [_component(con, engine["engine"], window) for engine in engines]
    return {
        "version": SCHEMA_VERSION,
        "run": run,
        "scenario": _known(
            stack=[_stack(con, engine) for engine in engines] or None,
            load=_load(ran, [row["input_tokens"] for row in requests if row["input_tokens"] is not None]),
        ),
        "results": {
            "request_performance": {"aggregate": _performance(ran, requests, gaps)},
            "observability": _known(components=components or None, kvpressure=_told(con)),
        },
    }


# what was run


def _stack(con: Connection, engine: Row) -> dict[str, Any]:
    """An engine as a component. It is `generic`: the schema wants to know the accelerator of an `inference_engine`."""
    settings = {
        row["key"]: row["value_text"]
        for row in _rows(con, "core.engine_settings", f"engine = '{_quoted(engine['engine'])}'", "key")
    }
    standardized = {
        "kind": "generic",
        "tool": engine["engine_kind"] or "unknown",
        "tool_version": engine["engine_version"] or "unknown",
        "model": {"name": engine["model"]} if engine["model"] else None,
    }
    return {
        "metadata": {"schema_version": "0.0.1", "label": engine["engine"], "cfg_id": _digest([standardized, settings])},
        "standardized": _known(**standardized),
        "native": {"config": settings},
    }


def _load(ran: Row, input_tokens: Sequence[int]) -> dict[str, Any] | None:
    """What was asked; the schema wants to know at least the length of prompts."""
    if not input_tokens:
        return None
    lengths = {"distribution": "other", "value": statistics.fmean(input_tokens), "min": min(input_tokens)}
    standardized = _known(
        tool=ran["client"] or "unknown",
        tool_version="unknown",
        source="unknown",
        input_seq_len={**lengths, "max": max(*input_tokens, 1)},
        rate_qps=ran["request_rate"],
        concurrency=ran["max_concurrency"],
    )
    return {"metadata": {"schema_version": "0.0.1"}, "standardized": standardized, "native": {}}


# what came of it


def _performance(ran: Row, requests: Sequence[Row], gaps: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The client's view, from its single requests where it keeps them and from its sums elsewhere."""
    answered = [row for row in requests if not row["is_failed"]]
    completed, failed, duration = ran["completed"], ran["failed"], ran["duration_s"]
    if completed is None:
        completed, failed = len(answered), len(requests) - len(answered)
    input_tokens, output_tokens = (_values(answered, column) for column in ("input_tokens", "output_tokens"))
    spans = [latency for row in answered if (latency := _latency(row, gaps)) is not None]
    per_token = [
        (latency - row["ttft_s"]) / (row["output_tokens"] - 1)
        for row in answered
        if row["ttft_s"] is not None and (row["output_tokens"] or 0) > 1 and (latency := _latency(row, gaps)) is not None
    ]
    between = [gap for row in answered for gap in gaps.get(row["request_key"], ())]
    return _known(
        requests=_known(
            total=completed + (failed or 0),
            failures=failed,
            input_length=_stats(input_tokens, "count"),
            output_length=_stats(output_tokens, "count"),
        ),
        latency=_known(
            time_to_first_token=_stats(_values(answered, "ttft_s"), "s"),
            time_per_output_token=_stats(per_token, "s/token"),
            inter_token_latency=_stats(between, "s/token"),
            request_latency=_stats(spans, "s"),
        )
        or None,
        throughput=_known(
            input_token_rate=_rate(sum(input_tokens) / duration if input_tokens and duration else None, "tokens/s"),
            output_token_rate=_rate(ran["output_tokens_per_s"], "tokens/s"),
            request_rate=_rate(ran["requests_per_s"], "queries/s"),
        )
        or None,
    )


def _latency(request: Row, gaps: Mapping[str, Sequence[float]]) -> float | None:
    """Sending to last token at the client: its own pauses added up; between the two moments known where it kept none."""
    if request["ttft_s"] is not None and (own := gaps.get(request["request_key"])):
        return request["ttft_s"] + sum(own)
    if request["finished_at"] is None or request["arrived_at"] is None:
        return None
    return (request["finished_at"] - request["arrived_at"]).total_seconds()


def _component(con: Connection, engine: str, window: tuple[datetime, datetime] | None) -> dict[str, Any]:
    """What an engine showed while the client ran."""
    where = f"engine = '{_quoted(engine)}'"
    if window:
        where += f" and bucket_at >= '{window[0].isoformat()}' and bucket_at <= '{window[1].isoformat()}'"
    rows = _rows(con, "timeline", where, "bucket_at")
    aggregate, series = {}, {}
    for name, (column, factor, unit) in SERIES.items():
        points = [(row["bucket_at"], row[column] * factor) for row in rows if row[column] is not None]
        if points:
            aggregate[AGGREGATE_NAMES.get(name, name)] = _stats([value for _, value in points], unit)
            series[name] = {"units": unit, "series": [{"ts": _time(at), "value": value} for at, value in points]}
    counted = [(row["bucket_at"], row["preemptions"]) for row in rows if row["preemptions"] is not None]
    if counted:
        total, cumulative = 0.0, []
        for at, count in counted:
            total += count
            cumulative.append({"ts": _time(at), "value": total})
        aggregate["preemptions"] = {"units": "count", "mean": total}
        series["num_preemptions"] = {"units": "count", "series": cumulative}
    return _known(component_label=engine, aggregate=aggregate or None, time_series=series or None)


def _told(con: Connection) -> dict[str, Any]:
    """What this program makes of the run: the verdict, and its two kinds of waste with their ranges."""
    return {
        "version": version("kvpressure"),
        "verdicts": [
            {key: row[key] for key in ("engine", "verdict", "severity", "confidence", "summary")}
            for row in _rows(con, "verdicts", "is_primary", "severity desc, engine")
        ],
        "preemptions": [
            {key: row[key] for key in ("engine", "count_low", "count_best", "count_high", "method")}
            for row in _rows(con, "preemptions", "count_best is not null", "engine")
        ],
        "waste": [
            {key: row[key] for key in ("engine", "kind", "tokens_low", "tokens_best", "tokens_high", "method")}
            for row in _rows(con, "waste", "tokens_best > 0", "engine, kind")
        ],
    }


# values


def _stats(values: Sequence[float], unit: str) -> dict[str, Any] | None:
    """The schema's statistics of some values; None of none."""
    if not values:
        return None
    in_order = sorted(map(float, values))
    return {
        "units": unit,
        "mean": statistics.fmean(in_order),
        "stddev": statistics.pstdev(in_order),
        "min": in_order[0],
        **{f"p{share:g}".replace(".", "p"): _percentile(in_order, share) for share in PERCENTILES},
        "max": in_order[-1],
    }


def _percentile(in_order: Sequence[float], share: float) -> float:
    """Linear between the two values around it, as clients have it."""
    place = share / 100 * (len(in_order) - 1)
    below = math.floor(place)
    above = min(below + 1, len(in_order) - 1)
    return in_order[below] + (in_order[above] - in_order[below]) * (place - below)


def _rate(value: float | None, unit: str) -> dict[str, Any] | None:
    return {"units": unit, "mean": value} if value is not None else None


def _values(rows: Iterable[Row], column: str) -> list[float]:
    return [row[column] for row in rows if row[column] is not None]


def _known(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _time(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment else None


def _name(con: Connection) -> str:
    runs = _rows(con, "runs")
    return runs[0]["run"] if runs else ""


def _rows(con: Connection, table: str, where: str = "true", order: str = "all") -> list[dict[str, Any]]:
    return con.sql(f"from {table} where {where} order by {order}").to_arrow_table().to_pylist()


def _quoted(text: str) -> str:
    return text.replace("'", "''")
