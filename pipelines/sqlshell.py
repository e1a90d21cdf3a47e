"""Read-only SQL over an analysis or a lake: opening it safely, what a query gives, and how that is shown or kept.

The connection can read the one place given and nothing else, and not be talked out of it by a query. DuckDB allows writing where
it allows reading, so statements are let through by their kind, before any of them runs.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb import StatementType

from parsers.columns import TABLES
from parsers.source import InputError
from pipelines.duck import MEMORY_LIMIT, literal
from pipelines.models import LAYERS
from pipelines.publish import DATABASE, plain
from pipelines.storage import Store, real
from pipelines.texttable import aligned, cell, markdown, printable, records

FORMAT_OF_SUFFIX = {".csv": "csv", ".json": "json", ".md": "markdown", ".parquet": "parquet", ".txt": "table"}
HAS_RESULT = frozenset({StatementType.SELECT, StatementType.EXPLAIN, StatementType.MULTI})
DOT_COMMANDS = {
    ".tables": "the tables, each with what its rows are",
    ".schema [TABLE]": "the columns of a table, or of all",
    ".mode FORMAT": "how results are shown: table, line (a line for each column, as psql's \\x), csv, json, markdown; "
    "auto is table, and line on a terminal that is too narrow for it",
    ".help": "these words",
    ".quit": "leave; .exit and Ctrl-D do, too",
}
READING = {  # kinds of statement -> what the text must look like; what is created is created in memory, or refused by DuckDB
    StatementType.SELECT: re.compile(""),
    StatementType.CREATE: re.compile(r"(?!.*\bsecret\b)", re.IGNORECASE | re.DOTALL),
    StatementType.DROP: re.compile(""),
    StatementType.SET: re.compile(""),  # of a variable or a schema: the configuration is locked
    StatementType.EXPLAIN: re.compile(r"(?!.*\banalyze\b)", re.IGNORECASE | re.DOTALL),  # that would run it
    StatementType.MULTI: re.compile(r"\(|(?:pivot|unpivot|from|select|with)\b", re.IGNORECASE),  # what a PIVOT becomes
}


class QueryError(Exception):
    """A query that DuckDB refused. Its message is one line."""


def open_read_only(place: Path | str) -> duckdb.DuckDBPyConnection:
    """A locked-down connection on an analysis folder (or its database file), on what `parse` wrote, or on a lake anywhere.

    InputError where it is none of them.
    """
    if "://" in str(place):
        return _locked(_lake(Store.at(str(place))), f"{str(place).rstrip('/')}/")
    folder = Path(place)
    database = folder / DATABASE if folder.is_dir() else folder
    if database.is_file():
        return _locked(_connect(database))
    if (folder / "days").is_dir():
        return _locked(_lake(Store.at(folder.resolve())), f"{folder.resolve()}/")
    if any((folder / layer).is_dir() for layer in LAYERS):
        con = _connect(None)
        _add_views(con, folder)
        return _locked(con, f"{folder.resolve()}/")
    if (folder / "sources.parquet").is_file():
        con = _connect(None)
        for file in (folder / f"{table}.parquet" for table in TABLES):
            if file.is_file():
                con.execute(f"create view {file.stem} as from read_parquet({literal(file.resolve())})")
        return _locked(con, f"{folder.resolve()}/")
    raise InputError(f"{folder}: no {DATABASE} and no lake there; run `kvpressure analyze PATH --out {folder}` first")


def _locked(con: duckdb.DuckDBPyConnection, *places: str) -> duckdb.DuckDBPyConnection:
    """The connection, from now on unable to reach anything but these places."""
    con.execute(f"set allowed_directories = [{', '.join(map(literal, places))}]")
    con.execute("set enable_external_access = false")
    con.execute("set lock_configuration = true")
    return con


def _lake(store: Store) -> duckdb.DuckDBPyConnection:
    """A connection with the views of a lake's catalog, made anew: a lake may have been moved since it was published."""
    from pipelines import catalog

    con = _connect(None)
    store.open_on(con)
    views = catalog.statements(store)
    if not any("view" in each for each in views):
        raise InputError(f"{store.url}: no day of any engine there; run `kvpressure daily` first, or check the place")
    for statement in views:
        con.execute(statement)
    return con


def _connect(database: Path | None) -> duckdb.DuckDBPyConnection:
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY_LIMIT,
        "threads": os.cpu_count() or 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "temp_directory": "",
    }
    try:
        con = duckdb.connect(str(database or ":memory:"), read_only=database is not None, config=config)
    except duckdb.Error as error:
        raise InputError(f"{database}: {_first_line(error)}; analyze again, or give the folder of an analysis") from error
    con.execute("set timezone = 'UTC'")
    con.execute("set enable_progress_bar = false")
    return con


def _add_views(con: duckdb.DuckDBPyConnection, lake: Path) -> None:
    """A view for each table of a lake, in the schema of its layer; where a table lacks `run`, its folder's name has it."""
    for layer in LAYERS:
        for table in sorted((lake / layer).glob("*")):
            runs = sorted(table.glob("run=*/data.parquet"))
            if not runs:
                continue
            con.execute(f"create schema if not exists {layer}")
            parts = [
                f"select {_run_column(file)} * from read_parquet({literal(file.resolve())}, hive_partitioning = false)"
                for file in runs
            ]
            con.execute(f'create view {layer}."{table.name}" as {" union all by name ".join(parts)}')
            if layer in ("marts", "advice"):
                con.execute(f'create view "{table.name}" as from {layer}."{table.name}"')


def _run_column(file: Path) -> str:
    if "run" in pq.read_schema(file).names:
        return ""
    return f"{literal(unquote(file.parent.name.removeprefix('run=')))} as run,"


def require_outside(output: Path, place: str) -> None:
    """QueryError where a result would be written over, or among, what is read."""
    read, written = Path(place).resolve(), output.resolve()
    if "://" not in place and (written == read or (read.is_dir() and written.is_relative_to(read))):
        raise QueryError(f"{output}: lies in {place}, which is only read; give -o a file elsewhere")


def require_known(output: Path) -> None:
    """QueryError where the name of a file asks for a form that there is none of; one without an ending gets a table."""
    if output.suffix and output.suffix.lower() not in FORMAT_OF_SUFFIX:
        raise QueryError(f"{output}: no format for `{output.suffix}`; end it in {', '.join(FORMAT_OF_SUFFIX)}, or give --format")


def answer(con: duckdb.DuckDBPyConnection, query: str, *, kind: str | None = None, output: Path | None = None) -> None:
    """Run a query, or a dot command that is one, and print the last result, or write it to `output`."""
    table = dot_rows(con, query)
    if table is None and query.lstrip().startswith("."):
        raise QueryError(f"{query.strip()}: not for a command line; `.tables` and `.schema TABLE` show what there is")
    give(run(con, query) if table is None else table, kind=kind, output=output)


def give(table: pa.Table, *, kind: str | None = None, output: Path | None = None) -> None:
    """Print a result, or write it to `output`, in the form that its name asks for where `kind` does not."""
    kind = kind or FORMAT_OF_SUFFIX.get(output.suffix.lower() if output else "")
    if kind == "parquet":
        if output is None:
            raise QueryError("parquet is not for a terminal; add -o FILE")
        try:
            _keep(output, lambda made: pq.write_table(table, made, compression="zstd"))
        except pa.ArrowException as error:
            raise QueryError(f"not for parquet: {_first_line(error)}; cast that column to text") from error
    elif output is not None:
        text = render(table, kind or "table")
        _keep(output, lambda made: made.write_text(text))
    else:
        sys.stdout.write(render(table, kind) if kind else _fitting(table))


def _fitting(table: pa.Table) -> str:
    """A table, or a line for each column on a terminal that is too narrow for it: wrapped, nobody can read one."""
    text = render(table, "table")
    if sys.stdout.isatty() and max(map(len, text.split("\n"))) > shutil.get_terminal_size().columns:
        return render(table, "line")
    return text


def _keep(output: Path, write: Callable[[Path], object]) -> None:
    """Write a result beside its place and move it there once it is whole; OSError that names the file the caller asked for.

    What is no ordinary file, such as /dev/stdout, is written as it is.
    """
    is_file = output.is_file() or not output.exists()
    target = real(output)
    made = target.with_name(f".{target.name}.{os.getpid()}") if is_file else output
    try:
        write(made)
        if is_file:
            made.replace(target)
    except OSError as error:
        error.filename = str(output)
        raise
    finally:
        if is_file:
            made.unlink(missing_ok=True)


def run(con: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """The last result of a query's statements, or nothing. QueryError where one would write, or DuckDB refuses it."""
    table = pa.table({})
    for table in results(con, query):  # noqa: B007 - the last one is what is wanted
        pass
    return table


def results(con: duckdb.DuckDBPyConnection, query: str) -> Iterator[pa.Table]:
    """What each statement gives that gives anything; none runs before all have been found to read only."""
    try:
        statements = con.extract_statements(query)
        for statement in statements:
            if not _only_reads(statement):
                raise QueryError(
                    f"not allowed here: {_first_line(statement.query.strip())}; only reading is, -o FILE keeps a result"
                )
        for statement in statements:
            relation = con.sql(statement.query)
            if relation is not None and statement.type in HAS_RESULT:
                yield relation.to_arrow_table()
    except duckdb.PermissionException as error:
        raise QueryError(f"not allowed here: {_first_line(error)}; this prompt reads one analysis and writes nothing") from error
    except duckdb.Error as error:
        raise QueryError(f"{_with_hint(error)}; `.tables` and `.schema TABLE` show what there is") from error


def _only_reads(statement: duckdb.Statement) -> bool:
    shape = READING.get(statement.type)
    return shape is not None and shape.match(statement.query.lstrip()) is not None


def dot_rows(con: duckdb.DuckDBPyConnection, line: str) -> pa.Table | None:
    """What a dot command tells of the tables or of the prompt; None for any other line."""
    word, *rest = line.rstrip("; ").split() or [""]
    if word == ".tables":
        holds = "split_part(table_comment, '. ', 1)"  # its first sentence; duckdb_tables() has it all
        return run(
            con,
            f"select table_schema as schema, table_name as name, {holds} as holds "
            "from information_schema.tables order by table_schema <> 'main', schema, name",
        )
    if word == ".schema":
        return _columns(con, rest[0] if rest else None)
    if word == ".help":
        return pa.table({"command": list(DOT_COMMANDS), "what": list(DOT_COMMANDS.values())})
    return None


def _columns(con: duckdb.DuckDBPyConnection, asked: str | None) -> pa.Table:
    """The columns of all tables, or of one, which needs no schema where it is the only one or in `main`."""
    schema, _, table = (asked or "").rpartition(".")
    where = f"table_name = {literal(table)} and {literal(schema)} in ('', schema_name)" if asked else "true"
    found = "from duckdb_columns() where not internal"
    if asked:
        whose = f"(select first(schema_name order by schema_name <> 'main') {found} and {where})"
        where = f"{where} and schema_name = {whose}"
    if con.sql(f"select 1 {found} and {where} and comment is null limit 1").fetchall():
        from pipelines import catalog

        catalog.describe(con, table or None)  # views of a lake: for all of them at once it would be felt at the start
    columns = run(
        con,
        f"select {'' if asked else 'schema_name as schema, table_name as name, '}column_name as column, data_type as type, "
        f"comment as holds {found} and {where} order by schema_name <> 'main', schema_name, table_name, column_index",
    )
    if not columns.num_rows:
        raise QueryError(f"no table `{asked}`; `.tables` shows what there is")
    return columns


def render(table: pa.Table, kind: str) -> str:
    """A result as text: table, line (a line for each column), csv, json (an array of objects) or markdown."""
    values = zip(*map(_values, table.columns), strict=True)
    if kind == "json":
        if len(set(table.column_names)) < table.num_columns:
            raise QueryError("two columns have one name, which a JSON object cannot hold; tell them apart with `as`")
        objects = (dict(zip(table.column_names, row, strict=True)) for row in values)
        return "[" + ",\n ".join(json.dumps(plain(each), ensure_ascii=False, default=cell) for each in objects) + "]\n"
    rows, names = [list(map(cell, row)) for row in values], list(map(printable, table.column_names))
    if kind == "csv":
        text = io.StringIO()
        is_text = [pa.types.is_string(column.type) for column in table.schema]
        inert = ([_inert(cell) if words else cell for cell, words in zip(row, is_text, strict=True)] for row in rows)
        csv.writer(text, lineterminator="\n").writerows([list(map(_inert, names)), *inert])
        return text.getvalue()
    if kind == "markdown":
        return markdown(names, rows)
    if kind == "line":
        return records(names, rows)
    numeric = [pa.types.is_integer(column.type) or pa.types.is_floating(column.type) for column in table.schema]
    return aligned(names, rows, numeric=numeric)


def _inert(text: str) -> str:
    """A text that no spreadsheet takes for a formula: names in inputs are not ours to trust."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _values(column: pa.ChunkedArray) -> list[object]:
    """A column's values; QueryError where Python has no such date."""
    try:
        return column.to_pylist()
    except (OverflowError, ValueError) as error:
        raise QueryError(f"not to be shown: {_first_line(error)}; cast dates before year 1 or after 9999 to text") from error


def _first_line(error: object) -> str:
    return str(error).partition("\n")[0].rstrip(".;")


def _with_hint(error: duckdb.Error) -> str:
    """The first line of an error, and which name DuckDB takes to have been meant."""
    hints = (line for line in str(error).split("\n")[1:] if line.startswith(("Did you mean", "Candidate bindings")))
    return "; ".join([_first_line(error), *(hint.rstrip(".;") for hint in hints)])
