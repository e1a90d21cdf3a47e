"""What is fuzzed: one function for each way bytes get in. Each takes any bytes and raises nothing but what a user may see.

A target fails by any exception but `InputError`, by an error of more than one line, or by an account that lost a line; the fuzzer
(`tests.fuzz.run`) adds hangs and memory. A target needs no fuzzer: `tests/fuzz/test_corpus.py` calls it with what was found.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import parsers
from parsers import Account, Format, InputError, Sink, Source, sglang_config_lines, vllm_config_lines
from parsers.columns import COLUMNS, TABLES, schema
from parsers.source import HEAD_BYTES, lines_of
from pipelines.duck import connect
from pipelines.models import Run, models, set_variables

Target = Callable[[bytes], None]
MOST_BYTES = 1 << 26  # decompressed bytes that are looked at


class Discard(Sink):
    """Checks rows as a sink does and keeps none, so that a run is not spent on writing Parquet."""

    def write(self, table: str, batch: pa.RecordBatch | pa.Table) -> None:
        wanted = schema(table)
        assert set(batch.schema.names) <= set(wanted.names), (table, batch.schema.names)
        for name in batch.schema.names:
            column = batch.column(name).cast(wanted.field(name).type)
            column.validate(full=True)  # text that is no UTF-8 would break who reads the file


class Scratch:
    """One file in memory that each input is written to, for sources are files."""

    def __init__(self) -> None:
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
        self.path = Path(folder, f"kvpressure-fuzz-{os.getpid()}", "input")
        atexit.register(self.remove)

    def remove(self) -> None:
        """Take the file away; a worker of the tests ends without `atexit`."""
        shutil.rmtree(self.path.parent, ignore_errors=True)

    def source(self, data: bytes) -> Source:
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_bytes(data)
        return Source(self.path, "input")

    def sink(self) -> Discard:
        return Discard(self.path.parent / "tables")


SCRATCH = Scratch()


def _checked(account: Account) -> None:
    assert account.balanced, account
    assert account.first_not_understood is None or 1 <= account.first_not_understood <= account.lines, account
    _one_line(account.error)


def _one_line(message: str | None) -> None:
    assert message is None or (message and "\n" not in message), repr(message)


def detect(data: bytes) -> None:
    """Every format's opinion of a head."""
    for form in parsers.formats():
        assert 0 <= form.detect(data[:HEAD_BYTES]) <= 1


def opened(data: bytes) -> None:
    """Decompression of whatever is there, by the chunk and by the line."""
    source = SCRATCH.source(data)
    size = 0
    try:
        source.head()
        with source.open() as stream:
            for _, whole in lines_of(stream, 1 << 16):
                size += whole
                if size > MOST_BYTES:
                    break
    except InputError as error:
        _one_line(str(error))


def anything(data: bytes) -> None:
    """A file as a user gives it: wrappers peeled, format detected, parsed."""
    try:
        _, account = parsers.parse(SCRATCH.source(data), SCRATCH.sink())
    except InputError as error:
        _one_line(str(error))
    else:
        _checked(account)


def _reader(form: Format) -> Target:
    def read(data: bytes) -> None:
        try:
            account = form.parse(SCRATCH.source(data), SCRATCH.sink())
        except InputError as error:
            _one_line(str(error))
        else:
            _checked(account)

    read.__doc__ = f"The reader of {form.title}, whatever it would detect."
    return read


def config(data: bytes) -> None:
    """Settings out of start-up lines."""
    text = data.decode("utf-8", "replace")
    for key, value in {**vllm_config_lines.settings_of(text), **sglang_config_lines.settings_of(text)}.items():
        assert isinstance(key, str)
        assert isinstance(value, str)
    assert len("".join(vllm_config_lines.split_top_level(text))) <= len(text)


# The clock ------------------------------------------------------------------------------------------------------------------


class Choices:
    """Decisions taken from bytes, one after the other; when they run out, the first choice."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def below(self, count: int) -> int:
        size = 1 if count <= 256 else 2 if count <= 65_536 else 4
        part = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(part, "big") % count

    def of(self, *options: Any) -> Any:
        return options[self.below(len(options))]


START = datetime(2026, 11, 29, 13, 11, 29, tzinfo=UTC)
SOURCES = ("server.log", "client.json", "spans.jsonl", "prometheus.json", "page.txt", "other.json")
ZONES = (None, "UTC", "Europe/Berlin", "Pacific/Apia", "no such zone")
SQL_MODELS = ("staging.clock_sources", "staging.clock_curves", "staging.clock_snapshots")
CLOCKED = ("engine_samples", "engine_config", "request_lines", "metric_samples", "bench_runs", "bench_requests", "spans")
MOST_ROWS = 40


@cache
def database() -> duckdb.DuckDBPyConnection:
    """One database for all inputs, for opening one takes longer than filling it."""
    con = connect()
    con.execute("create schema raw; create schema staging")
    set_variables(con, Run("fuzz"))
    for table in TABLES:
        con.register(f"_{table}", schema(table).empty_table())
        con.execute(f"create view raw.{table} as from _{table}")
    for name in SQL_MODELS:
        con.execute(f"create view {name} as {models()[name].query}")
    return con


def clocks(data: bytes) -> None:
    """The clock join over tables of any rows: one row for each source, errors that are distances, never a crash."""
    choices = Choices(data)
    zone = choices.of(*ZONES)
    rows: dict[str, list[dict[str, Any]]] = {}
    for _ in range(choices.below(MOST_ROWS)):
        table = choices.of(*CLOCKED)
        row = {name: value for name in schema(table).names if (value := _value(name, choices)) is not None}
        rows.setdefault(table, []).append(row | {"source": choices.of(*SOURCES)})
    met = sorted({row["source"] for table in rows.values() for row in table})
    rows["sources"] = [{"source": source, "format": "any"} for source in met]
    con = database()
    for table in TABLES:
        con.register(f"_{table}", pa.Table.from_pylist(rows.get(table, []), schema=schema(table)))
    model = models()["staging.clocks"]
    assert model.function
    try:
        made = model.function({read: con.sql(f"from {read}").pl() for read in model.reads}, Run("fuzz", timezone=zone))
    except InputError as error:
        _one_line(str(error))
        return
    assert made["source"].to_list() == met
    assert all(error is None or error >= 0 for error in made["error_s"]), made


def _value(name: str, choices: Choices) -> Any:  # noqa: C901, PLR0911 - one branch for each kind of column
    """A value for a column, of its type: usual, at an edge, or none."""
    odds = choices.below(8)
    if odds == 0:
        return None
    wild = odds == 1
    if name in ("at_utc", "start_at", "end_at"):
        return START + timedelta(microseconds=choices.below(2**31) * (10**6 if wild else 100))
    if name in ("at_local", "date_local"):
        year = choices.of(2000, 2026, 1, 9999) if wild or name == "at_local" else 2026
        month, day = choices.of((11, 29), (12, 31), (1, 1), (2, 29) if year == 2000 else (2, 28))
        return datetime(year, month, day, choices.below(24), choices.below(60), choices.below(60))  # noqa: DTZ001 - no zone
    if name == "name":
        return choices.of("vllm:request_success_total", "vllm:num_requests_running", "vllm:prompt_tokens_total", "x_total")
    if name == "request_id":
        return choices.of("cmpl-bench-ab12cd34-", "chatcmpl-", "", "7") + str(choices.below(5)) + choices.of("-0", "")
    if name == "gaps_s":
        return [choices.below(100) / 10 for _ in range(choices.below(4))]
    if name in ("event", "key", "labels", "process", "instance", "engine"):
        return choices.of("0", "1", "")
    kind = COLUMNS[name].type
    if kind == pa.bool_():
        return bool(choices.below(2))
    if kind == pa.float64():
        return choices.of(0.0, -1.0, 1e300, 1e18, float("inf"), float("nan")) if wild else choices.below(100_000) / 100
    if kind == pa.int64():
        return choices.of(0, -1, 2**62, 2**63 - 1) if wild else choices.below(1000)
    return None


TARGETS: dict[str, Target] = {
    "detect": detect,
    "opened": opened,
    "anything": anything,
    "config": config,
    "clocks": clocks,
    **{form.name: _reader(form) for form in parsers.formats()},
}
