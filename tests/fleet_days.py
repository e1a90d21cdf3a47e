"""A day of a fleet, filled by hand: what the fleet's tables and their page are tested on."""

from __future__ import annotations

import duckdb

from pipelines import daily
from pipelines.fleet_day import FLEET_SCHEMA, fleet_models
from tests.typed_tables import DAY, Rows, kinds, typed, types_of


class Fleet:
    """A day of a fleet, filled by hand: `days.verdicts`, `history.engine_days`, ...; what is not given is empty."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con
        self._given: set[str] = set()
        for schema in ("days", "fleet", "history"):
            con.execute(f"create schema {schema}")
        con.execute(f"set variable day = date '{DAY}'")
        for table, model in daily.tables().items():
            types = types_of(model)
            con.register("_empty", types.empty_table())
            run = "" if "run" in types.names else "null::varchar as run, "
            con.execute(f"create table days.{table} as select null::date as day, {run}* from _empty")
        con.register("_empty", FLEET_SCHEMA.empty_table())
        con.execute("create table days.fleet as from _empty")
        for name, model in fleet_models().items():  # of nothing, which gives their types
            for read in model.reads:
                if read.startswith("history."):
                    con.execute(f"create table if not exists {read} as from {read.replace('history.', 'fleet.')} where false")
            con.execute(f"create table {name} as {model.query}")

    def given(self, table: str, text: str) -> None:
        self.con.execute(f"insert into {table} by name {typed(self.con, text, kinds(self.con, table))}")
        self._given.add(table)

    def rows(self, table: str) -> Rows:
        for name, model in fleet_models().items():
            if name not in self._given:
                self.con.execute(f"create or replace table {name} as {model.query}")
        return Rows(self.con.sql(f"from {table}").to_arrow_table())
