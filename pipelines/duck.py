"""DuckDB connections, opened one way: in memory, UTC, no extension fetched, the macros of `sql/lib` loaded.

Nothing here knows a table. Connections are thrown away after use; what lasts is Parquet (see `pipelines.lake`).
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import duckdb

INTERRUPTED = "Query interrupted"  # the RuntimeError that Ctrl-C is while a statement runs
MEMORY_LIMIT = os.environ.get("KVPRESSURE_MEMORY_LIMIT", "2GB")


def connect(*, threads: int = 1, has_macros: bool = True) -> duckdb.DuckDBPyConnection:
    """A fresh in-memory database with the SQL library's macros. Close it, or use it as a context manager.

    One thread, because two add up floating-point numbers in an order of chance: the same input would not give the same bytes.
    """
    con = duckdb.connect(
        config={
            "threads": threads,
            "memory_limit": MEMORY_LIMIT,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )
    _settle(con)
    if has_macros:
        load_macros(con)
    return con


def load_macros(con: duckdb.DuckDBPyConnection) -> None:
    """The SQL library's macros, into the database that the connection uses."""
    for macro_file in sorted((Path(str(files("sql"))) / "lib").glob("*.sql")):
        con.execute(macro_file.read_text())


def beside(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Another connection to the same database, for another thread; closed with the first."""
    other = con.cursor()
    _settle(other)
    return other


def _settle(con: duckdb.DuckDBPyConnection) -> None:
    """What is set for a connection and not for its database."""
    con.execute("set timezone = 'UTC'")  # not in config: there it would look for an icu extension to load
    con.execute("set preserve_insertion_order = true")
    con.execute("set enable_progress_bar = false")


def literal(text: str | Path) -> str:
    """`text` as a SQL string literal, for the few statements (COPY, ATTACH, views) that take no parameters."""
    return "'" + str(text).replace("'", "''") + "'"
