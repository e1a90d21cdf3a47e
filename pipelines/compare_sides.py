"""One side of a comparison: what an analysis says of settings, workload and measures, read once and kept as plain values.

The queries are in sql/compare; nothing is judged here. An analysis by an older version lacks tables that they read, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb

from parsers.source import InputError
from pipelines.duck import connect, literal
from pipelines.origin import made_of

QUERIES = ("settings", "requests", "loads", "measures")


@dataclass(frozen=True)
class Setting:
    """One setting as an engine has it. `role` is pool, admission, derived, measured, identity or other (sql/lib/settings.sql)."""

    value: str
    role: str
    is_inferred: bool


@dataclass(frozen=True)
class Request:
    """One request; what nothing tells of it is None."""

    input_tokens: int | None
    output_tokens: int | None
    arrived_s: float | None
    ttft_s: float | None
    latency_s: float | None
    queue_s: float | None
    longest_gap_s: float | None
    gaps_s: Sequence[float]
    is_failed: bool


@dataclass(frozen=True)
class Load:
    """What one client result asked for."""

    client: str | None
    max_concurrency: int | None
    request_rate: float | None
    completed: int | None
    failed: int | None
    duration_s: float


@dataclass(frozen=True)
class Side:
    """One analyzed run. `made_of` tells its inputs by their content."""

    name: str
    settings: Mapping[str, Setting]
    requests: Sequence[Request]
    loads: Sequence[Load]
    measures: Mapping[str, tuple[float | None, float, float | None]]
    made_of: tuple[str, ...] = ()

    @cached_property
    def completed(self) -> list[Request]:
        """The requests that did not fail, in the order in which they came."""
        return [each for each in self.requests if not each.is_failed]

    @property
    def is_closed_loop(self) -> bool:
        """Whether the client waited for answers before it sent more: then arrivals are the server's doing."""
        return any(load.max_concurrency is not None for load in self.loads)

    @cached_property
    def arrival_gaps(self) -> list[float]:
        """Seconds between arrivals."""
        times = [each.arrived_s for each in self.requests if each.arrived_s is not None]
        return [later - earlier for earlier, later in pairwise(times)]

    @cached_property
    def duration_s(self) -> float | None:
        """How long the clients were at work; without client results, first arrival to last answer."""
        if self.loads:
            return sum(load.duration_s for load in self.loads)
        ends = [each.arrived_s + each.latency_s for each in self.completed if each.arrived_s is not None and each.latency_s]
        starts = [each.arrived_s for each in self.completed if each.arrived_s is not None]
        return max(ends) - min(starts) if ends else None


def read_side(database: Path) -> Side:
    """Read an analysis. InputError where it lacks what a comparison reads."""
    with _opened(database) as con:
        try:
            rows = {name: _rows(con, name) for name in QUERIES}
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            raise InputError(f"{database}: made by another version of kvpressure; analyze its inputs again") from error
        name = con.sql("select any_value(run) from analysis.runs").fetchall()[0][0]
    return Side(
        name=name or database.parent.name,
        settings={row["key"]: Setting(row["value"], row["role"], row["is_inferred"]) for row in rows["settings"]},
        requests=[Request(**row) for row in rows["requests"]],
        loads=[Load(**row) for row in rows["loads"]],
        measures={row["measure"]: (row["low"], row["best"], row["high"]) for row in rows["measures"]},
        made_of=made_of(database),
    )


@contextmanager
def _opened(database: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the macros on which the analysis' tables have their own names."""
    with connect() as con:
        try:
            con.execute(f"attach {literal(database)} as analysis (read_only)")
        except duckdb.Error as error:
            raise InputError(f"{database}: cannot be opened ({str(error).splitlines()[0]}); analyze its inputs again") from error
        con.execute("create schema core")
        tables = con.sql(
            "select schema_name, table_name from duckdb_tables() where database_name = 'analysis' order by all"
        ).fetchall()
        for schema, table in tables:
            con.execute(f'create view {schema}."{table}" as from analysis.{schema}."{table}"')
        yield con


def _rows(con: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    text = (Path(str(files("sql"))) / "compare" / f"{query}.sql").read_text()
    return con.sql(text).to_arrow_table().to_pylist()
