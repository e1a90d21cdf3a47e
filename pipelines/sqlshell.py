"""Read-only SQL over an analysis or a lake: opening it safely, one query's answer, and a prompt.

The connection can read the one place given and nothing else, and not be talked out of it by a query. DuckDB allows writing where
it allows reading, so statements are let through by their kind, before any of them runs.
"""

from __future__ import annotations

import cmd
import contextlib
import csv
import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb import StatementType

from parsers.source import InputError
from pipelines.duck import MEMORY_LIMIT, literal
from pipelines.models import LAYERS
from pipelines.publish import DATABASE, plain
from pipelines.storage import Store
from pipelines.texttable import aligned, cell, markdown, printable

FORMAT_OF_SUFFIX = {".csv": "csv", ".json": "json", ".md": "markdown", ".parquet": "parquet"}
PROMPT_BEGIN, PROMPT_MORE = "kvpressure> ", "       ...> "
DOT_WORDS = (".exit", ".help", ".quit", ".schema", ".tables")
WORDS = frozenset(
    re.findall(
        r"\w+",
        """and as asc between by case count current_date date day desc describe distinct else end exists explain false filter from
        group having in inner interval is join left like limit max median min not null on or order over partition pivot qualify
        round select sum summarize then true union unnest using when where with""",
    )
)
PROMPT_ROWS = 100  # a prompt shows no more of an answer than this; `-o` and a query on the command line have no such limit


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
    """A locked-down connection on an analysis folder (or its database file) or a lake, also in an object store.

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


def answer(con: duckdb.DuckDBPyConnection, query: str, *, kind: str | None = None, output: Path | None = None) -> None:
    """Run a query, or a dot command that is one, and print its result, or write it to `output`."""
    if query.lstrip().startswith(".") and not dot_query(query):
        raise QueryError(f"{query.strip()}: not for a command line; `.tables` and `.schema TABLE` show what there is")
    table = run(con, dot_query(query) or query)
    kind = kind or FORMAT_OF_SUFFIX.get(output.suffix.lower() if output else "", "table")
    if kind == "parquet":
        if output is None:
            raise QueryError("parquet is not for a terminal; add -o FILE")
        try:
            _keep(output, lambda made: pq.write_table(table, made, compression="zstd"))
        except pa.ArrowException as error:
            raise QueryError(f"not for parquet: {_first_line(error)}; cast that column to text") from error
    elif output is not None:
        text = render(table, kind)
        _keep(output, lambda made: made.write_text(text))
    else:
        sys.stdout.write(render(table, kind))


def _keep(output: Path, write: Callable[[Path], object]) -> None:
    """Write a result beside its place and move it there once it is whole; OSError that names the file the caller asked for.

    What is no ordinary file, such as /dev/stdout, is written as it is.
    """
    is_file = output.is_file() or not output.exists()
    target = Path(os.path.realpath(output))
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
    """The result of the query's last statement, or nothing. QueryError where one would write, or DuckDB refuses it."""
    try:
        for statement in con.extract_statements(query):
            if not _only_reads(statement):
                raise QueryError(
                    f"not allowed here: {_first_line(statement.query.strip())}; only reading is, -o FILE keeps a result"
                )
        relation = con.sql(query)
        return pa.table({}) if relation is None else relation.to_arrow_table()
    except duckdb.PermissionException as error:
        raise QueryError(f"not allowed here: {_first_line(error)}; this prompt reads one analysis and writes nothing") from error
    except duckdb.Error as error:
        raise QueryError(f"{_with_hint(error)}; `.tables` and `.schema TABLE` show what there is") from error


def _only_reads(statement: duckdb.Statement) -> bool:
    shape = READING.get(statement.type)
    return shape is not None and shape.match(statement.query.lstrip()) is not None


def dot_query(line: str) -> str | None:
    """The query behind `.tables` and `.schema TABLE`; None for anything else."""
    word, *rest = line.split() or [""]
    if word == ".tables":
        holds = "split_part(table_comment, '. ', 1)"  # its first sentence; duckdb_tables() has it all
        return (
            f"select table_schema as schema, table_name as name, {holds} as holds "
            "from information_schema.tables order by table_schema <> 'main', schema, name"
        )
    if word == ".schema" and rest:
        return (
            "select column_name as column, data_type as type, comment as holds from duckdb_columns() "
            f"where table_name = {literal(rest[0].rstrip(';').split('.')[-1])} order by schema_name, column_index"
        )
    return None


def render(table: pa.Table, kind: str) -> str:
    """A result as text: table, csv, json (an array of objects) or markdown."""
    values = zip(*map(_values, table.columns), strict=True)
    if kind == "json":
        if len(set(table.column_names)) < table.num_columns:
            raise QueryError("two columns have one name, which a JSON object cannot hold; tell them apart with `as`")
        records = (dict(zip(table.column_names, row, strict=True)) for row in values)
        return "[" + ",\n ".join(json.dumps(plain(each), ensure_ascii=False, default=cell) for each in records) + "]\n"
    rows, names = [list(map(cell, row)) for row in values], list(map(printable, table.column_names))
    if kind == "csv":
        text = io.StringIO()
        is_text = [pa.types.is_string(column.type) for column in table.schema]
        inert = ([_inert(cell) if words else cell for cell, words in zip(row, is_text, strict=True)] for row in rows)
        csv.writer(text, lineterminator="\n").writerows([list(map(_inert, names)), *inert])
        return text.getvalue()
    if kind == "markdown":
        return markdown(names, rows)
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


class Prompt(cmd.Cmd):
    """Statements end with `;`; words that begin with a dot are for the prompt itself."""

    intro = "Read-only SQL; end a statement with `;`. `.tables`, `.schema TABLE`, `.help`, `.quit`."
    prompt = PROMPT_BEGIN

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        super().__init__()
        self._con = con
        self._pending: list[str] = []
        self._known: list[str] | None = None  # names to complete to, asked for at the first Tab

    def cmdloop(self, intro: str | None = None) -> None:
        """The loop; an interrupt gives up the statement that is being typed or run, and nothing else."""
        try:
            super().cmdloop(intro)
        except KeyboardInterrupt:
            print("\n(given up; `.quit` leaves)")
            self._pending, self.prompt = [], PROMPT_BEGIN
            self.cmdloop("")

    def preloop(self) -> None:
        """Take up the history of earlier prompts."""
        with contextlib.suppress(ImportError, OSError):
            import readline

            readline.read_history_file(_history_file())

    def postloop(self) -> None:
        """Keep the history for later prompts."""
        with contextlib.suppress(ImportError, OSError):
            import readline

            _history_file().parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(1000)
            readline.write_history_file(_history_file())

    def completenames(self, text: str, *_: object) -> list[str]:
        """Tab at the beginning of a line: a dot command, or a word of SQL."""
        return self.completedefault(text)

    def completedefault(self, *ignored: object) -> list[str]:
        """Tab anywhere: tables with and without their schema, columns, words of SQL."""
        text = str(ignored[0])
        found = {word for word in (*DOT_WORDS, *WORDS, *self._names()) if word.lower().startswith(text.lower())}
        return sorted(word.upper() if text.isupper() and word in WORDS else word for word in found)

    def _names(self) -> list[str]:
        """Tables and columns that need no quotes."""
        if self._known is None:
            rows = self._con.sql(
                "select distinct unnest([table_name, concat(table_schema, '.', table_name), column_name]) "
                "from information_schema.columns"
            ).fetchall()
            self._known = [name for (name,) in rows if name.isascii() and name.replace("_", "").replace(".", "").isalnum()]
        return self._known

    def onecmd(self, line: str) -> bool:
        """A dot command, a part of a statement, or its end. True ends the prompt."""
        words = line.split()
        if line == "EOF" or (words and words[0] in (".quit", ".exit")):
            print()
            return True
        if words and words[0].startswith(".") and not self._pending:
            if query := dot_query(line):
                self._show(query)
            else:
                print(self.intro)
        elif words or self._pending:
            self._pending.append(line)
            if line.rstrip().endswith(";"):
                query, self._pending = "\n".join(self._pending), []
                self._show(query)
        self.prompt = PROMPT_MORE if self._pending else PROMPT_BEGIN
        return False

    def _show(self, query: str) -> None:
        try:
            table = run(self._con, query)
            text = render(table.slice(0, PROMPT_ROWS), "table")
        except QueryError as error:
            print(printable(str(error)))
            return
        sys.stdout.write(text)
        if table.num_rows > PROMPT_ROWS:
            print(f"({PROMPT_ROWS} of {table.num_rows} rows)")


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "kvpressure" / "sql_history"
