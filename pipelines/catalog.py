"""The catalog of a lake, published last: a view for each table, as SQL (`catalog.sql`) and as a DuckDB file (`catalog.duckdb`).

    duckdb catalog.duckdb "from verdicts where day = '2026-11-27' and is_primary"

The file holds views and no rows, in a storage format that DuckDB 1.5 and 2 read, so it is never locked by the job and never out
of date: a view lists its files when it is asked. Tables of engines' days are in `main`, those of the fleet in `fleet`.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from pipelines import daily
from pipelines.duck import literal
from pipelines.fleet_day import fleet_models
from pipelines.lake import Lake
from pipelines.models import models
from pipelines.partition import SCHEMA_VERSION, days, finished
from pipelines.publish import STORAGE_VERSION
from pipelines.storage import Store

SQL, DATABASE = "catalog.sql", "catalog.duckdb"


def statements(store: Store) -> list[str]:
    """One statement after the other: views of the tables that the latest day has, with their comments."""
    made = [f"-- kvpressure lake, schema version {SCHEMA_VERSION}", "create schema if not exists fleet"]
    purposes = {name: model.purpose for name, model in {**models(), **fleet_models()}.items()}
    latest = days(store)[-1:]
    has = {table for day in latest for manifest in finished(store, day).values() for table in manifest.tables}
    for table, name in daily.tables().items():
        if table in has:
            made += _view(table, store.uri(f"days/{table}/day=*/engine=*/data.parquet"), purposes.get(name, "The files read."))
    for name, model in fleet_models().items():
        if any(Lake.of(store, day=day.isoformat()).has(name) for day in latest):
            made += _view(name, store.uri(f"{name.replace('.', '/')}/day=*/data.parquet"), model.purpose)
    return made


def _view(name: str, pattern: str, purpose: str) -> list[str]:
    source = f"read_parquet({literal(pattern)}, hive_partitioning = false, union_by_name = true)"
    return [f"create or replace view {name} as from {source}", f"comment on view {name} is {literal(purpose)}"]


def describe(con: duckdb.DuckDBPyConnection, only: str | None = None) -> None:
    """Give the columns of the catalog's views their comments, or those of one view: of each that is there and has none."""
    meanings = {table: daily.meanings(table) for table in daily.tables()}
    meanings |= {model.table: dict(model.columns) for model in fleet_models().values()}
    bare = con.execute(
        "select schema_name, table_name, column_name from duckdb_columns() "
        "where not internal and comment is null and coalesce(table_name = $only, true)",
        {"only": only},
    ).fetchall()
    for schema, table, column in bare:
        if meaning := meanings.get(table, {}).get(column):
            con.execute(f'comment on column "{schema}"."{table}"."{column}" is {literal(meaning)}')


def publish(store: Store) -> None:
    """Write both files anew, the statements last; nothing happens where they are what they were."""
    made = statements(store)
    text = (";\n".join(made).replace(";\n", "\n", 1) + ";\n").encode()
    if store.read(SQL) != text or not store.exists(DATABASE):
        store.put(DATABASE, lambda path: _write(path, store, made))
        store.put_bytes(SQL, text)


def _write(path: Path, store: Store, made: list[str]) -> None:
    with duckdb.connect() as con:
        store.open_on(con)
        con.execute(f"attach {literal(path)} as catalog (storage_version '{STORAGE_VERSION}')")
        con.execute("use catalog")
        for statement in made[1:]:
            con.execute(statement)
        describe(con)
        con.execute("use memory")
        con.execute("detach catalog")
