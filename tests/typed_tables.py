"""Tables typed into a test, and the answer read back in the same form.

    sql.given("metric_samples", '''
        engine  sampled_at  name             value
        0       12:00:00    num_preemptions  920
    ''')
    assert sql.rows("core.counter_intervals") == '''
        engine  interval_end  delta
    '''

Columns stand two or more spaces apart, so a value may hold single spaces. `-` is NULL, `12:00:15` is 2026-01-01 12:00:15 UTC,
`[1, 2]` is a list. What a table is not given is NULL; a table that is not given is made by its own model from empty inputs.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from parsers.columns import TABLES, schema
from pipelines.duck import beside, connect, load_macros
from pipelines.models import LAYERS, Model, Run, frame_of, models, set_variables
from pipelines.texttable import aligned, cell

DAY = "2026-01-01"
RUN = Run("test")
TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?")
filled: list[Any] = []  # which `Sql` filled the tests' connection, and for which run
NOTHING = "nothing"  # the database with every table as its model makes it of no input


class Rows:
    """A table, compared with text on the columns that the text names, in their order."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._names = table.column_names

    def __eq__(self, expected: object) -> bool:
        self._names, rows = split(str(expected))
        return [
            [_told(value, given) for value, given in zip(row, wanted, strict=True)] for row, wanted in self._paired(rows)
        ] == rows

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        shown = self._table.select(self._names).to_pylist()
        return "\n" + aligned(self._names, [[_told(value) for value in row.values()] for row in shown])

    def dicts(self) -> list[dict[str, Any]]:
        return self._table.to_pylist()

    def _paired(self, rows: list[list[str]]) -> list[tuple[list, list[str]]]:
        have = [list(row.values()) for row in self._table.select(self._names).to_pylist()]
        blank = [""] * len(self._names)
        return [(row, rows[index] if index < len(rows) else blank) for index, row in enumerate(have)]


class Sql:
    """The tables of one run, filled by hand. A table that is not given is made where `is_made` says so, and empty otherwise."""

    def __init__(self, *, is_made: Callable[[str], bool] = lambda _: True) -> None:
        self._is_made = is_made
        self._given: dict[str, pa.Table] = {}
        self._there: set[str] = set()
        self._filled: set[str] = set()  # those of them that are not as they are made of nothing
        self.run = RUN

    def given(self, table: str, text: str) -> None:
        """Put rows into `table`; without a layer it is the staging table of that name, or else the raw one."""
        name = (
            table
            if "." in table
            else next(f"{layer}.{table}" for layer in ("staging", "raw", *LAYERS[2:]) if _exists(f"{layer}.{table}"))
        )
        types = types_of(name)
        unknown = set(split(text)[0]) - set(types.names)
        assert not unknown, f"{name} has no column {', '.join(sorted(unknown))}; it has {', '.join(types.names)}"
        con = given()
        con.register("empty", types.empty_table())
        self.put(name, con.sql(f"from empty union all by name {typed(con, text, kinds(con, 'empty'))}").to_arrow_table())

    def put(self, table: str, rows: pa.Table) -> None:
        """The same with a table at hand."""
        self._given[table] = rows
        filled.clear()

    def engines(self, text: str) -> None:
        """Put engines that had one setup each: what they are into core.engines, how they were set up beside it."""
        self.given("core.engines", text)
        header, rows = split(text)
        kept = [i for i, name in enumerate(header) if name in types_of("core.engine_setups").names]
        lines = [["setup", "life", *(header[i] for i in kept)], *(["1", "1", *(row[i] for i in kept)] for row in rows)]
        self.given("core.engine_setups", "\n".join("  ".join(line) for line in lines))

    def rows(self, table: str) -> Rows:
        """Make the model, and what it reads and was not given, and return its rows in its own order."""
        if filled != [self, self.run] or table in self._given:
            self._fill({name: rows for name, rows in self._given.items() if name != table})
        if table not in self._there:
            self._make(table)
        return Rows(given().sql(f"from {table}").to_arrow_table())

    def _fill(self, tables: Mapping[str, pa.Table]) -> None:
        """Let the connection have these tables, and none that another test gave, or this one before."""
        for layer in LAYERS:
            given().execute(f"drop schema if exists {layer} cascade; create schema {layer}")
        set_variables(given(), self.run)
        for name, rows in tables.items():
            put(given(), name, rows)
        self._there, self._filled = set(tables), set(tables)
        filled[:] = [self, self.run]

    def _make(self, table: str) -> None:
        """Make a table of what is there, and whatever it reads that is not."""
        for read in models()[table].reads:
            self._let_there_be(read)
        rows = make(models()[table], given(), self.run)
        self._there.add(table)
        if rows or of_nothing(table).has_rows:
            self._filled.add(table)

    def _let_there_be(self, table: str) -> None:
        """Make a table that another reads; one that is not made, or of nothing but what others are of nothing, is so itself."""
        if table in self._there:
            return
        if not table.startswith("raw.") and self._is_made(table):
            for read in models()[table].reads:
                self._let_there_be(read)
            if self.run != RUN or self._may_be_filled(models()[table]):
                self._make(table)
                return
        of_nothing(table)
        given().execute(f"create view {table} as from {NOTHING}.{table}")
        self._there.add(table)

    def _may_be_filled(self, model: Model) -> bool:
        """Whether it may be another than it is of nothing."""
        return bool(self._filled.intersection(model.reads)) and all(self._filled & tables for tables in model.needs)


@cache
def given() -> duckdb.DuckDBPyConnection:
    """One connection for all tests of a process: opening one takes as long as a test."""
    con = connect()
    con.execute(f"attach ':memory:' as {NOTHING}")
    return con


@cache
def nothing() -> duckdb.DuckDBPyConnection:
    """One beside it, which makes of no input the tables that no test gives anything for."""
    con = beside(given())
    con.execute(f"use {NOTHING}")
    load_macros(con)
    for layer in LAYERS:
        con.execute(f"create schema {layer}")
    set_variables(con, RUN)
    return con


@dataclass(frozen=True)
class OfNothing:
    """A table as its model makes it of no input."""

    types: pa.Schema
    has_rows: bool


@cache
def of_nothing(table: str) -> OfNothing:
    """The table as its model makes it of no input, made once."""
    if table.startswith("raw."):
        rows = put(nothing(), table, schema(table.removeprefix("raw.")).empty_table())
    else:
        readable(models()[table])
        rows = make(models()[table], nothing(), RUN)
    return OfNothing(nothing().sql(f"from {table} limit 0").to_arrow_table().schema, rows > 0)


def readable(model: Model) -> None:
    """Let there be all that the model reads, made of nothing."""
    for read in model.reads:
        of_nothing(read)


def make(model: Model, con: duckdb.DuckDBPyConnection, run: Run) -> int:
    """Make one table in memory, of what the connection has; its row count."""
    if model.query is None:
        return put(con, model.name, frame_of(model, con=con, run=run).to_arrow())
    return con.execute(f"create table {model.name} as {model.query}").fetchall()[0][0]


def put(con: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> int:
    con.register("_rows", rows)
    con.execute(f"create table {table} as from _rows")
    con.unregister("_rows")
    return rows.num_rows


def types_of(table: str) -> pa.Schema:
    """Column types of a table: of a raw one by the dictionary, of another by what its model makes of nothing."""
    return schema(table.removeprefix("raw.")) if table.startswith("raw.") else of_nothing(table).types


def kinds(con: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """DuckDB's types of a table's columns."""
    return {name: kind for name, kind, *_ in con.sql(f"describe from {table}").fetchall()}


def typed(con: duckdb.DuckDBPyConnection, text: str, kinds: Mapping[str, str]) -> str:
    """A query for the rows of a text table, with the types that its columns have."""
    columns, rows = split(text)
    con.register(
        "_typed", pa.table({name: pa.array([_read(row[i]) for row in rows], pa.string()) for i, name in enumerate(columns)})
    )
    cast = ", ".join(f'cast("{name}" as {kinds[name]}) as "{name}"' for name in columns)
    return f"select {cast} from _typed"


def split(text: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a text table."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in textwrap.dedent(text).strip().splitlines()]
    for line in lines[1:]:
        assert len(line) == len(lines[0]), f"{line} has {len(line)} values for the columns {lines[0]}"
    return lines[0], lines[1:]


def _read(word: str) -> str | None:
    if word == "-":
        return None
    return f"{DAY} {word}+00" if TIME.fullmatch(word) else word


def _told(value: object, given: str = "") -> str:
    """A value as a test would write it. A float is told with as many digits as the test gave it."""
    if value is None:
        return "-"
    if isinstance(value, float) and re.fullmatch(r"-?\d+\.\d+", given):
        return f"{value:.{len(given.split('.')[1])}f}"
    return cell(value).removeprefix(f"{DAY}T").removesuffix("Z") if cell(value).startswith(DAY) else cell(value)


def _exists(table: str) -> bool:
    return table in models() or table.removeprefix("raw.") in TABLES
