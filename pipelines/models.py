"""Models: what makes each table, read from the SQL library and the few tables that Python makes, and how one is run.

A model is a table's name, its documentation and the query or function that makes it. A SQL file says all of that itself, in
its header; a Python model says it in its docstring, in the same words:

    -- Purpose sentence, and what a reader must know.
    --
    -- grain: engine, interval_end
    -- needs: core.counter_intervals or staging.engine_events
    -- column: interval_end TIMESTAMPTZ | Scrape that first showed the new value.
    -- check:  preemptions >= 0 | A counter that falls is a restart, not a negative event.

Without a row in one at least of the tables that a `needs:` names it has none, and is not even asked for. A mart or an advice that
only leads to another says `-- step: <that table>`, and is not among what a reader meets first.
This module has no opinion on order in time, on Dagster or on the command line: `materialize` makes one table of one run.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq

from parsers.columns import TABLES, schema
from pipelines.duck import literal
from pipelines.lake import Lake

LAYERS = ("raw", "staging", "core", "marts", "advice")
PYTHON_MODELS = (
    "pipelines.clock.model",
    "pipelines.replay.effects",
    "pipelines.replay.hit_rates",
    "pipelines.replay.kv_events",
    "pipelines.replay.prefixes",
    "pipelines.replay.requests",
    "pipelines.sweep",
)
FLEET_LAYERS = ("days", "history", "fleet")  # what the fleet's tables read and are; see pipelines.fleet_day
_REFERENCE = re.compile(rf"\b(?:from|join)\s+((?:{'|'.join((*LAYERS, *FLEET_LAYERS))})\.\w+)", re.IGNORECASE)
_NOT_CODE = re.compile(r"--[^\n]*|'(?:[^']|'')*'")  # comments, and strings: one may hold `--max-num-seqs`

Function = Callable[[Mapping[str, pl.DataFrame], "Run"], pl.DataFrame]


@dataclass(frozen=True)
class Run:
    """One run to analyze: its name and what the caller said that no input says. Everything else is in the inputs."""

    name: str
    timezone: str | None = None
    since: str | None = None
    until: str | None = None
    gpu_cost_usd_per_hour: float | None = None
    target_ttft_s: float | None = None
    target_gap_s: float | None = None


@dataclass(frozen=True)
class Model:
    """One table: its documentation and the query, or the function, that makes it."""

    name: str
    purpose: str
    grain: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]  # name, and what it means
    types: Mapping[str, str]  # of a column, as DuckDB calls it
    checks: tuple[tuple[str, str], ...]
    reads: tuple[str, ...]
    needs: tuple[frozenset[str], ...] = ()  # without a row in one at least of each of these, it has none
    query: str | None = None
    function: Function | None = None
    step: str | None = None  # table of marts or advice that it only leads to
    only: Mapping[str, str] = field(default_factory=dict)

    @property
    def layer(self) -> str:
        """staging, core, marts or advice."""
        return self.name.split(".")[0]

    @property
    def table(self) -> str:
        """The name without its layer."""
        return self.name.split(".")[1]


class ModelError(Exception):
    """A model whose header or references break the library's rules; the message names the file and the rule."""


def from_sql(path: Path) -> Model:
    """The model of one SQL file. ModelError where its header lacks a purpose, a grain or columns."""
    text = path.read_text()
    header = "\n".join(line[2:].removeprefix(" ") for line in text.splitlines() if line.startswith("--"))
    query = "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip().rstrip(";")
    name = f"{path.parent.name}.{path.stem}"
    code = _NOT_CODE.sub("", query)
    return _documented(name, header, reads=tuple(sorted(set(_REFERENCE.findall(code)) - {name})), query=query)


def python_model(name: str, *, reads: Iterable[str], only: Mapping[str, str] | None = None) -> Callable[[Function], Function]:
    """Mark a function as the maker of table `name`; its docstring is the header. Found through PYTHON_MODELS.

    `only` says, as a SQL condition, which rows of a table it reads: a day has a million that most functions do not want.
    """

    def mark(function: Function) -> Function:
        header = inspect.cleandoc(function.__doc__ or "")
        model = _documented(name, header, reads=tuple(reads), function=function)
        function.model = replace(model, only=only or {})  # type: ignore[attr-defined]
        return function

    return mark


def _documented(
    name: str, header: str, *, reads: tuple[str, ...], query: str | None = None, function: Function | None = None
) -> Model:
    """A model from its header text."""
    prose, said = _header(header)
    grain = tuple(part.strip() for line in said["grain"] for part in line.split(","))
    needs = tuple(frozenset(part.strip() for part in line.split(" or ")) for line in said["needs"])
    columns, checks = ([_with_meaning(name, line) for line in said[kind]] for kind in ("column", "check"))
    types = {column: kind.strip() for column, _, kind in (what.partition(" ") for what, _ in columns)}
    if not (prose and grain and columns):
        raise ModelError(f"{name}: its header needs a purpose, a `grain:` and a `column:` for each column")
    if untyped := [column for column, kind in types.items() if not kind]:
        raise ModelError(f"{name}: `{untyped[0]}` lacks its type")
    if strange := sorted(frozenset().union(*needs) - set(reads)):
        raise ModelError(f"{name} needs {', '.join(strange)}, which it does not read")
    meanings = tuple(zip(types, (meaning for _, meaning in columns), strict=True))
    step = said["step"][0].strip() if said["step"] else None
    return Model(name, prose, grain, meanings, types, tuple(checks), reads, needs, query, function, step)


def _header(text: str) -> tuple[str, dict[str, list[str]]]:
    """What a header says in prose, and what its lines say of each kind."""
    prose, said = list[str](), {kind: list[str]() for kind in ("grain", "needs", "step", "column", "check")}
    for line in text.splitlines():
        kind, _, rest = line.partition(":")
        if kind in said:
            said[kind].append(rest)
        elif not any(said.values()):
            prose.append(line)
    return " ".join(" ".join(prose).split()), said


def _with_meaning(name: str, line: str) -> tuple[str, str]:
    """What a line is of, and its sentence."""
    what, _, meaning = (part.strip() for part in line.partition(" | "))
    if not meaning:
        raise ModelError(f"{name}: `{what}` lacks its ` | sentence`")
    return what, meaning


@cache
def models() -> dict[str, Model]:
    """Every model by name, each after all it reads."""
    found = [from_sql(path) for layer in LAYERS[1:] for path in sorted((Path(str(files("sql"))) / layer).glob("*.sql"))]
    for module in PYTHON_MODELS:
        made = (getattr(value, "model", None) for value in vars(import_module(module)).values())
        found += [each for each in made if isinstance(each, Model)]
    by_name = {each.name: each for each in found}
    for each in found:
        for read in each.reads:
            if read not in by_name and read.removeprefix("raw.") not in TABLES:
                raise ModelError(f"{each.name} reads {read}, which nothing makes")
    order = TopologicalSorter(
        {each.name: [read for read in each.reads if read in by_name] for each in sorted(found, key=lambda m: m.name)}
    )
    return {name: by_name[name] for name in order.static_order()}


def leading_to(tables: Iterable[str]) -> list[Model]:
    """The models of these tables and of all that they are made of, each after what it reads."""
    wanted = set(tables)
    for model in reversed(models().values()):
        if model.name in wanted:
            wanted.update(model.reads)
    return [model for model in models().values() if model.name in wanted]


def materialize(model: Model, *, lake: Lake, con: duckdb.DuckDBPyConnection, run: Run) -> int:
    """Make one table of one run from the tables it reads, and return its row count. `con` gains views of what was read."""
    for read in model.reads:
        view(read, lake=lake, con=con)
    set_variables(con, run)
    return make(model, lake=lake, con=con, run=run)


def make(model: Model, *, lake: Lake, con: duckdb.DuckDBPyConnection, run: Run) -> int:
    """As `materialize`, on a connection that already has the run's variables and a view of each table read."""
    if not all(any(_has_rows(table, lake) for table in tables) for tables in model.needs):
        model = replace(model, query=nothing_of(model))
    if model.query is None:
        frame = frame_of(model, con=con, run=run)
        lake.put(model.name, lambda path: frame.write_parquet(path, compression="zstd"))
    else:
        put_query(model, lake=lake, con=con)
    return pq.read_metadata(lake.path(model.name)).num_rows


def frame_of(model: Model, *, con: duckdb.DuckDBPyConnection, run: Run) -> pl.DataFrame:
    """The table of a model that is a function; what it reads is on the connection."""
    if model.function is None:
        raise ModelError(f"{model.name}: a query makes it, not a function")
    return model.function({read: con.sql(f"from {read} where {model.only.get(read, 'true')}").pl() for read in model.reads}, run)


def put_query(model: Model, *, lake: Lake, con: duckdb.DuckDBPyConnection) -> None:
    """Make the table of a model that is a query; what it reads is on the connection."""
    lake.put(
        model.name,
        lambda path: con.execute(f"copy ({model.query}) to {literal(path)} (format parquet, compression zstd)"),
    )


def _has_rows(table: str, lake: Lake) -> bool:
    """Whether the table was written, and with a row at least."""
    return lake.has(table) and pq.read_metadata(lake.path(table)).num_rows > 0


def nothing_of(model: Model) -> str:
    """A query for the model's columns and no row: most of the time that a query takes is its planning, also of no rows."""
    columns = ", ".join(f'null::{kind} as "{column}"' for column, kind in model.types.items())
    return f"select {columns} limit 0"


def view(table: str, *, lake: Lake, con: duckdb.DuckDBPyConnection) -> None:
    """Make `layer.table` readable on the connection. A raw table that no input filled is there, and empty."""
    layer, name = table.split(".")
    con.execute(f"create schema if not exists {layer}")
    if layer == "raw" and not lake.has(table):
        empty = schema(name).empty_table()
        con.register("_empty", empty)
        con.execute(f"create or replace table {table} as from _empty")
        con.unregister("_empty")
    else:
        con.execute(f"create or replace view {table} as from read_parquet({literal(lake.uri(table))}, hive_partitioning = false)")


def set_variables(con: duckdb.DuckDBPyConnection, run: Run) -> None:
    """The run's parameters, as the SQL reads them: getvariable('run'), ('since'), ('until'), ('gpu_cost_usd_per_hour')."""
    con.execute("set variable run = $value", {"value": run.name})
    con.execute("set variable since = $value::timestamptz", {"value": run.since})
    con.execute("set variable until = $value::timestamptz", {"value": run.until})
    con.execute("set variable gpu_cost_usd_per_hour = $value::double", {"value": run.gpu_cost_usd_per_hour})
    con.execute("set variable target_ttft_s = $value::double", {"value": run.target_ttft_s})
    con.execute("set variable target_gap_s = $value::double", {"value": run.target_gap_s})
