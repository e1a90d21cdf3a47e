"""The `sql` fixture: a model is asked with a few rows typed into the test, and answers in the same form.

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
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parsers.columns import TABLES, schema
from pipelines.duck import connect
from pipelines.lake import Lake
from pipelines.models import LAYERS, Run, materialize, models
from pipelines.texttable import aligned, cell

DAY = "2026-01-01"
TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?")


class Rows:
    """A table of a test's lake, compared with text on the columns that the text names, in their order."""

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

    def _paired(self, rows: list[list[str]]) -> list[tuple[list, list[str]]]:
        have = [list(row.values()) for row in self._table.select(self._names).to_pylist()]
        blank = [""] * len(self._names)
        return [(row, rows[index] if index < len(rows) else blank) for index, row in enumerate(have)]


class Sql:
    """A lake of one run, filled by hand."""

    def __init__(self, folder: Path) -> None:
        self._lake = Lake.of(folder / "lake", run="test")
        self._empty = Lake.of(folder / "empty", run="test")
        self.run = Run("test")

    def given(self, table: str, text: str) -> None:
        """Write rows into `table`; without a layer it is the staging table of that name, or else the raw one."""
        name = (
            table
            if "." in table
            else next(f"{layer}.{table}" for layer in ("staging", "raw", *LAYERS[2:]) if _exists(f"{layer}.{table}"))
        )
        types = self._schema(name)
        columns, rows = split(text)
        unknown = set(columns) - set(types.names)
        assert not unknown, f"{name} has no column {', '.join(sorted(unknown))}; it has {', '.join(types.names)}"
        with connect(threads=1) as con:
            quoted = ", ".join(f'cast("{c}" as {{}}) as "{c}"' for c in columns)
            con.register("empty", types.empty_table())
            kinds = {row[0]: row[1] for row in con.sql("describe from empty").fetchall()}
            con.register(
                "typed", pa.table({c: pa.array([_read(row[i]) for row in rows], pa.string()) for i, c in enumerate(columns)})
            )
            query = f"from empty union all by name select {quoted.format(*(kinds[c] for c in columns))} from typed"
            made = con.sql(query).to_arrow_table()
        self._lake.put(name, lambda path: pq.write_table(made, path))

    def rows(self, table: str) -> Rows:
        """Make the model, and what it reads and was not given, and return its rows in its own order."""
        self._make(table, self._lake)
        return Rows(pq.read_table(self._lake.path(table)))

    def _make(self, table: str, lake: Lake) -> None:
        model = models()[table]
        for read in model.reads:
            if not read.startswith("raw.") and not lake.has(read):
                self._make(read, lake)
        with connect(threads=1) as con:
            materialize(model, lake=lake, con=con, run=self.run)

    def _schema(self, table: str) -> pa.Schema:
        """Column types of a table: of a raw one by the dictionary, of another by what its model makes of nothing."""
        if table.startswith("raw."):
            return schema(table.removeprefix("raw."))
        if not self._empty.has(table):
            self._make(table, self._empty)
        return pq.read_schema(self._empty.path(table))


@pytest.fixture
def sql(tmp_path) -> Sql:
    return Sql(tmp_path)


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
