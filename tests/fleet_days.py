"""A day of a fleet, filled by hand: what the fleet's tables and their page are tested on."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa

from pipelines import daily
from pipelines.fleet_day import _FLEET_SCHEMA, fleet_models
from tests.sql.conftest import Rows, Sql, _read, split

DAY = "2026-01-01"


class Fleet:
    """A day of a fleet, filled by hand: `days.verdicts`, `history.engine_days`, ...; what is not given is empty."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        self._given: set[str] = set()
        for schema in ("days", "fleet", "history"):
            con.execute(f"create schema {schema}")
        con.execute(f"set variable day = date '{DAY}'")
        for table, types in day_types().items():
            con.register("_empty", types.empty_table())
            run = "" if "run" in types.names else "null::varchar as run, "
            con.execute(f"create table days.{table} as select null::date as day, {run}* from _empty")
        con.register("_empty", _FLEET_SCHEMA.empty_table())
        con.execute("create table days.fleet as from _empty")
        for name, model in fleet_models().items():  # of nothing, which gives their types
            for read in model.reads:
                if read.startswith("history."):
                    con.execute(f"create table if not exists {read} as from {read.replace('history.', 'fleet.')} where false")
            con.execute(f"create table {name} as {model.query}")

    def given(self, table: str, text: str) -> None:
        columns, rows = split(text)
        texts = {c: pa.array([_read(row[i]) for row in rows], pa.string()) for i, c in enumerate(columns)}
        self._con.register("_typed", pa.table(texts))
        kinds = {name: kind for name, kind, *_ in self._con.sql(f"describe from {table}").fetchall()}
        cast = ", ".join(f'cast("{c}" as {kinds[c]}) as "{c}"' for c in columns)
        self._con.execute(f"insert into {table} by name select {cast} from _typed")
        self._given.add(table)

    def rows(self, table: str) -> Rows:
        for name, model in fleet_models().items():
            if name not in self._given:
                self._con.execute(f"create or replace table {name} as {model.query}")
        return Rows(self._con.sql(f"from {table}").to_arrow_table())


@cache
def day_types() -> dict[str, pa.Schema]:
    """The types of a day's tables, as their models make them of nothing."""
    with TemporaryDirectory() as folder:
        sql = Sql(Path(folder))
        return {table: sql._schema(model) for table, model in daily.tables().items()}
