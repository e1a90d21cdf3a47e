"""Publishing: the tables of one analyzed run -> `analysis.duckdb`, `tables/*.parquet`, `summary.json` and `report.html`.

What a reader gets is made here and nothing is decided here: no number is computed, no row dropped. All files are made
in a folder of their own and moved in at the end, `analysis.duckdb` last: where it is, the rest of the same run is as well. What
the result was made of follows it.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import duckdb

from parsers import InputError
from parsers.columns import COLUMNS, TABLES
from pipelines.duck import connect, literal
from pipelines.lake import Lake
from pipelines.models import Model, models
from pipelines.storage import real, undisturbed

DATABASE, SUMMARY, REPORT, TICKET, TABLES_FOLDER = "analysis.duckdb", "summary.json", "report.html", "summary.md", "tables"
PICTURES = ("timeline.png", "timeline.svg")
ORIGIN = "origin.json"  # of `pipelines.origin`: what the result was made of
ARTEFACTS = (DATABASE, SUMMARY, REPORT, TICKET, TABLES_FOLDER, *PICTURES, ORIGIN)
STORAGE_VERSION = "v1.5.0"  # DuckDB 2 writes a format that the 1.5 command line cannot open unless told
SCHEMA_VERSION = 1  # of summary.json: raised when a field is renamed or removed
SUMMARY_SCHEMA = Path(__file__).with_name("summary.schema.json")
BESIDES = ("raw.sources", "core.engine_settings", "core.requests")  # a reader meets these as marts and advice, too
CONTRACT_TABLES = (
    "runs",
    "engines",
    "verdicts",
    "preemptions",
    "waste",
    "queue_time",
    "stalls",
    "evictions",
    "recommendations",
    "data_quality",
    "timeline",
)

_JSON_TYPES: Mapping[str, dict[str, Any]] = {
    "VARCHAR": {"type": "string"},
    "BOOLEAN": {"type": "boolean"},
    "DOUBLE": {"type": "number"},
    "FLOAT": {"type": "number"},
    "TIMESTAMP WITH TIME ZONE": {"type": "string", "format": "date-time"},
}


def publish(lake: Lake, into: Path, *, anonymize: bool = False, has_report: bool = True) -> None:
    """Make the artefacts of the lake's run in the folder `into`, which must be empty or not exist, or hold the run's database.

    `anonymize` replaces names, ids, hosts and paths in what is made to be shown, the report and the Markdown summary; the tables
    and `summary.json` keep them. Without a report nothing is drawn or worded: no page, no pictures, no Markdown.
    """
    (into / TABLES_FOLDER).mkdir(parents=True)
    if not (into / DATABASE).exists():
        write_database(lake, into / DATABASE)
    for table, name in tables().items():
        shutil.copyfile(lake.path(name), into / TABLES_FOLDER / f"{table}.parquet")
    with duckdb.connect(str(into / DATABASE), read_only=True) as con:
        con.execute("set timezone = 'UTC'")
        (into / SUMMARY).write_text(as_text(summary(con)))
    if has_report:
        write_report(into / DATABASE, into, anonymize=anonymize)


def replace(made: Path, out: Path) -> None:
    """Move the artefacts in `made` to `out`, in an order that never lets a mixture look whole; Ctrl-C is heard after it."""
    with undisturbed():
        for name in (ORIGIN, DATABASE, SUMMARY, REPORT, TICKET, *PICTURES):
            (out / name).unlink(missing_ok=True)
        if (out / TABLES_FOLDER).exists():
            shutil.rmtree(out / TABLES_FOLDER)
        for name in (TABLES_FOLDER, SUMMARY, *PICTURES, REPORT, TICKET, DATABASE, ORIGIN):
            if (made / name).exists():
                (made / name).replace(out / name)


def require_spared(inputs: Iterable[Path], out: Path) -> None:
    """InputError where a result in `out` would take the place of an input, or of what lies in `tables` and is no table."""
    places = {real(out) / name for name in ARTEFACTS}
    others = (file for file in (out / TABLES_FOLDER).rglob("*") if file.is_file() and file.suffix != ".parquet")
    for file in (*inputs, *others):
        place = real(file)
        if not places.isdisjoint((place, *place.parents)):
            told = f"{file}: the result in {out} would take its place"
            raise InputError(f"{told}; give --out a folder of its own, such as {out / 'result'}")


def artefacts(folder: Path) -> list[str]:
    """The files of a result that are in the folder, sorted; another's file beside them is none."""
    tables = [f"{TABLES_FOLDER}/{path.name}" for path in (folder / TABLES_FOLDER).glob("*")]
    return sorted([*tables, *(name for name in (DATABASE, SUMMARY, REPORT, TICKET, *PICTURES) if (folder / name).exists())])


def published() -> list[Model]:
    """The models of marts and advice whose tables a reader meets first: those that are no step to another."""
    return [model for model in models().values() if model.layer in ("marts", "advice") and not model.step]


def tables() -> dict[str, str]:
    """The tables that need no schema, in an analysis as in a lake, and have a file each: name -> what they are made as."""
    return {name.split(".")[1]: name for name in sorted((*BESIDES, *(model.name for model in published())))}


def write_database(lake: Lake, path: Path) -> None:
    """The database of a run whose tables are all there."""
    with connect(has_macros=False) as con, Database(con, path, lake) as database:
        for model in models().values():
            database.take(model)


class Database:
    """One self-contained DuckDB file: marts and advice in `main`, core and steps in `core`, inputs in `sources`; all commented.

    Those of core that need no schema are views in `main`, so that a query is the same over an analysis and over a lake.
    Tables are copied in the order in which they are taken, by a thread of its own, so that whoever makes them goes on meanwhile.
    It is whole when the context manager is left; duckdb.Error where it could not be written. The connection is for this alone.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, path: Path, lake: Lake) -> None:
        self._con, self._lake = con, lake
        con.execute(f"attach {literal(path)} as analysis (storage_version '{STORAGE_VERSION}')")
        con.execute("set checkpoint_threshold = '1kB'")  # into the file at once, and not into a log first
        con.execute("begin")  # one transaction: each of the thousand statements in its own would be written to a log first
        con.execute("create schema analysis.core")
        self._thread, self._copies = ThreadPoolExecutor(1), list[Future[None]]()
        meanings = [(name, COLUMNS[name].meaning) for name in TABLES["sources"]]
        purpose = "The files given: one row each, with what became of its lines."
        self._copy("raw.sources", "analysis.sources", comment=purpose, columns=meanings)

    def take(self, model: Model) -> None:
        """Copy the model's table, which is there and will not change, where it is one that a reader meets."""
        if model.layer in ("core", "marts", "advice"):
            table = f"analysis.core.{model.table}" if model.layer == "core" or model.step else f"analysis.{model.table}"
            self._copy(model.name, table, comment=model.purpose, columns=model.columns)

    def _copy(self, made: str, table: str, *, comment: str, columns: Iterable[tuple[str, str]]) -> None:
        statements = [
            f"create table {table} as from read_parquet({literal(self._lake.path(made))}, hive_partitioning = false)",
            *_comments("table", table, comment, columns),
        ]
        self._copies.append(self._thread.submit(lambda: self._con.execute("; ".join(statements)) and None))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed:
            self._con.interrupt()
        self._thread.shutdown(cancel_futures=failed is not None)
        if failed is None:
            for copy in self._copies:
                copy.result()
            self._con.execute("use analysis")  # the file may be called something else when it is opened
            for model in (models()[name] for name in BESIDES if name in models()):
                self._con.execute(f"create view main.{model.table} as from core.{model.table}")
                self._con.execute("; ".join(_comments("view", f"main.{model.table}", model.purpose, model.columns)))
            self._con.execute("use memory")
            self._con.execute("commit")
            self._con.execute("detach analysis")


def _comments(kind: str, name: str, purpose: str, columns: Iterable[tuple[str, str]]) -> list[str]:
    of_columns = (f'comment on column {name}."{column}" is {literal(meaning)}' for column, meaning in columns)
    return [f"comment on {kind} {name} is {literal(purpose)}", *of_columns]


def summary(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """The contract tables as plain JSON values: times in ISO 8601 UTC, what is not known as null."""
    have = {name for (name,) in con.sql("select table_name from duckdb_tables() where schema_name = 'main'").fetchall()}
    tables = {table: plain(con.sql(f"from {table}").to_arrow_table().to_pylist()) for table in CONTRACT_TABLES if table in have}
    return {"schema_version": SCHEMA_VERSION, "kvpressure_version": version("kvpressure"), **tables}


def as_text(told: Mapping[str, Any]) -> str:
    """A summary as JSON, each row of a table on a line of its own: for people, for `grep`, and written fast."""

    def of(value: Any) -> str:
        if not isinstance(value, list) or not value:
            return json.dumps(value, ensure_ascii=False)
        return "[\n  " + ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in value) + "\n ]"

    return "{\n " + ",\n ".join(f"{json.dumps(key)}: {of(value)}" for key, value in told.items()) + "\n}\n"


def summary_schema(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """JSON Schema of `summary`, from the types and comments of an analysis database."""
    rows = con.sql("""
        select table_name, column_name, data_type, comment
        from duckdb_columns()
        where schema_name = 'main'
        order by column_index
    """).fetchall()
    purposes = dict(con.sql("select table_name, comment from duckdb_tables() where schema_name = 'main'").fetchall())
    tables: dict[str, dict[str, Any]] = {}
    for table in CONTRACT_TABLES:
        columns = {name: {"description": comment, **_json_type(kind)} for owner, name, kind, comment in rows if owner == table}
        if columns:
            record = {"type": "object", "properties": columns, "required": list(columns), "additionalProperties": False}
            tables[table] = {"description": purposes[table], "type": "array", "items": record}
    head = {"schema_version": {"const": SCHEMA_VERSION}, "kvpressure_version": {"type": "string"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kvpressure summary.json",
        "description": "An export of the tables of analysis.duckdb. A value that is not known is null, never 0.",
        "type": "object",
        "properties": head | tables,
        "required": [*head, *tables],
        "additionalProperties": False,
    }


def _json_type(duckdb_type: str) -> dict[str, Any]:
    """JSON Schema of a column, nullable."""
    if duckdb_type.endswith("[]"):
        return {"type": ["array", "null"], "items": _json_type(duckdb_type.removesuffix("[]"))}
    plain = _JSON_TYPES.get(duckdb_type, {"type": "integer"} if "INT" in duckdb_type else {})
    return {**plain, "type": [plain["type"], "null"]} if "type" in plain else {}


def plain(value: Any) -> Any:
    """A value as JSON can hold it: times in ISO 8601 UTC, infinities and NaN as null."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_report(database: Path, into: Path, *, anonymize: bool) -> None:
    """The report page, its timeline as a picture, and the summary for tickets, from the database alone."""
    from pipelines import report  # noqa: PLC0415 - draws, which no other step needs
    from pipelines.charts import picture  # noqa: PLC0415

    report.write_report(database, into / REPORT, anonymize=anonymize)
    report.write_markdown(database, into / TICKET, anonymize=anonymize)
    png, svg = PICTURES
    picture.write_timeline(database, into / png, into / svg, anonymize=anonymize)
