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

import atexit
import re
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from parsers.columns import TABLES, schema
from pipelines.duck import connect
from pipelines.lake import Lake
from pipelines.models import LAYERS, Model, Run, make, materialize, models, set_variables, view
from pipelines.texttable import aligned, cell

DAY = "2026-01-01"
RUN = Run("test")
TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?")
NOTHING = Lake.of(tempfile.mkdtemp(prefix="kvpressure-nothing-"), run=RUN.name)  # every table as its model makes it of no input
atexit.register(shutil.rmtree, NOTHING.store.folder, ignore_errors=True)


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
    """A lake of one run, filled by hand. A table that is not given is made where `is_made` says so, and empty otherwise."""

    def __init__(self, folder: Path, *, is_made: Callable[[str], bool] = lambda _: True) -> None:
        self._lake = Lake.of(folder / "lake", run=RUN.name)
        self._is_made = is_made
        self._given: set[str] = set()
        self._made: set[str] = set()
        self.run = RUN

    def given(self, table: str, text: str) -> None:
        """Write rows into `table`; without a layer it is the staging table of that name, or else the raw one."""
        name = (
            table
            if "." in table
            else next(f"{layer}.{table}" for layer in ("staging", "raw", *LAYERS[2:]) if _exists(f"{layer}.{table}"))
        )
        types = types_of(name)
        unknown = set(split(text)[0]) - set(types.names)
        assert not unknown, f"{name} has no column {', '.join(sorted(unknown))}; it has {', '.join(types.names)}"
        con = connection("given")
        con.register("empty", types.empty_table())
        made = con.sql(f"from empty union all by name {typed(con, text, kinds(con, 'empty'))}").to_arrow_table()
        self._lake.put(name, lambda path: pq.write_table(made, path))
        self._given.add(name)
        self._made.clear()

    def engines(self, text: str) -> None:
        """Write engines that had one setup each: what they are into core.engines, how they were set up beside it."""
        self.given("core.engines", text)
        header, rows = split(text)
        kept = [i for i, name in enumerate(header) if name in types_of("core.engine_setups").names]
        lines = [["setup", "life", *(header[i] for i in kept)], *(["1", "1", *(row[i] for i in kept)] for row in rows)]
        self.given("core.engine_setups", "\n".join("  ".join(line) for line in lines))

    def rows(self, table: str) -> Rows:
        """Make the model, and what it reads and was not given, and return its rows in its own order."""
        self._made.discard(table)
        for layer in LAYERS:  # what another test gave, or this one before
            connection("given").execute(f"drop schema if exists {layer} cascade")
        self._make(table)
        return Rows(pq.read_table(self._lake.path(table)))

    def _make(self, table: str) -> None:
        for read in sorted(set(models()[table].reads) - self._given - self._made):
            if self._is_made(read) and self._depends_on_given(read):
                self._make(read)
            elif not read.startswith("raw."):
                self._lake.put(read, lambda path, read=read: shutil.copy(of_nothing(read), path))
                self._made.add(read)
        materialize(models()[table], lake=self._lake, con=connection("given"), run=self.run)
        self._made.add(table)

    def _depends_on_given(self, table: str) -> bool:
        return not table.startswith("raw.") and (self.run != RUN or bool(sources(table) & self._given))


@cache
def sources(table: str) -> frozenset[str]:
    """All that a table is made from, to the raw ones."""
    reads = () if table.startswith("raw.") else models()[table].reads
    return frozenset(reads).union(*map(sources, reads))


def of_nothing(table: str) -> Path:
    """The table as its model makes it of no input, made once."""
    if not NOTHING.has(table):
        readable(models()[table])
        make(models()[table], lake=NOTHING, con=connection("nothing"), run=RUN)
    return NOTHING.path(table)


def readable(model: Model) -> None:
    """Put what the model reads on the connection, made of nothing."""
    for read in model.reads:
        if not read.startswith("raw."):
            of_nothing(read)
    for read in model.reads:
        view(read, lake=NOTHING, con=connection("nothing"))
    set_variables(connection("nothing"), RUN)


@cache
def connection(purpose: str) -> duckdb.DuckDBPyConnection:  # noqa: ARG001 - the key
    """One for all tests of a process, and one for tables of nothing: opening one takes as long as a test."""
    return connect()


def types_of(table: str) -> pa.Schema:
    """Column types of a table: of a raw one by the dictionary, of another by what its model makes of nothing."""
    if table.startswith("raw."):
        return schema(table.removeprefix("raw."))
    return pq.read_schema(of_nothing(table))


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
