"""A sweep as a table: a CSV file with one line for each level of load, as scripts around load generators write them.

    qps,n_ok,wall_s,goodput_rps,slo_pct,ttft_p50_s,ttft_p99_s,tpot_p50_ms,…,maxitl_p99_s,retractions,max_token_usage,out_tok_s,…
    0.5,120,328.9,0.364904,100.0000,0.052478,0.070176,20.4472,…,0.073470,0,0.82,1026.0887,…

Columns are found by name; the level is `qps` (or `rate`, `request_rate`) or `concurrency` (or `max_concurrency`). Each line
becomes a row of `bench_runs` with its numbers as `aggregates`, names as written; there are no requests and no times of day.
An empty field is not known. A line without a level, or with another number of fields than the header, is not understood.
"""

from __future__ import annotations

import json
import math
from io import StringIO

from parsers import Format
from parsers.csv_line import cells
from parsers.json_text import read_text
from parsers.source import Account, Sink, Source

CLIENT = "sweep_table"
_RATES = ("qps", "request_rate", "rate")
_CONCURRENCIES = ("max_concurrency", "concurrency")
_COMPLETED = ("n_ok", "completed", "requests")
_DURATIONS = ("wall_s", "duration_s", "duration")
# Told apart from any other table with a rate in it by the latencies and throughputs that a load generator measures.
_MEASURES = {
    "ttft_p50_s",
    "ttft_p99_s",
    "tpot_p50_ms",
    "tpot_p99_ms",
    "maxitl_p99_s",
    "out_tok_s",
    "max_token_usage",
    "retractions",
}


def parse(source: Source, sink: Sink) -> Account:
    """Read one table into the sink."""
    text, fault = read_text(source)
    account = Account(error=fault)
    names: list[str] = []
    rows = []
    for number, line in enumerate(StringIO(text), start=1):  # str.splitlines parts at form feeds, too
        account.lines += 1
        fields = cells(line.rstrip("\r\n"))
        if not names or not line.strip():
            names = names or [field.strip() for field in fields]
            account.ignored += 1
        elif len(fields) == len(names) and (row := _run(dict(zip(names, fields, strict=True)))) is not None:
            rows.append({"source": source.name, "run_index": len(rows), **row})
            account.used += 1
        else:
            account.misread(number)
    sink.write_rows("bench_runs", rows)
    return account


def _run(fields: dict[str, str]) -> dict[str, object] | None:
    """One line as a row of `bench_runs`; None where it has no level."""
    numbers = {name: number for name, text in fields.items() if (number := _number(text)) is not None}
    rate, concurrency = _first(numbers, _RATES), _first(numbers, _CONCURRENCIES)
    if rate is None and concurrency is None:
        return None
    completed = _first(numbers, _COMPLETED)
    return {
        "client": CLIENT,
        "duration_s": _first(numbers, _DURATIONS),
        "completed": round(completed) if completed is not None else None,
        "request_rate": rate,
        "max_concurrency": round(concurrency) if concurrency is not None else None,
        "has_details": False,
        "aggregates": json.dumps(numbers),
    }


def _first(numbers: dict[str, float], names: tuple[str, ...]) -> float | None:
    return next((numbers[name] for name in names if name in numbers), None)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def detect(head: bytes) -> float:
    """A header with a level and at least three of the measures."""
    first = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace")
    names = {name.strip() for name in first.split(",")}
    return 0.9 if names & {*_RATES, *_CONCURRENCIES} and len(names & _MEASURES) >= 3 else 0.0


FORMAT = Format(
    name="sweep_csv",
    title="a sweep as a CSV table, one line for each rate or concurrency",
    engine_kind=None,
    versions="any script with these column names",
    can_tell="where throughput and tail latency bend over the levels; KV usage and retractions where the table has them",
    cannot_tell="anything over time or per request; how sure the bend is",
    tables=("bench_runs",),
    detect=detect,
    parse=parse,
)
