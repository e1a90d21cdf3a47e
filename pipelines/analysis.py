"""An analysis from end to end, as plain functions: intake, then every model in order, then publishing.

The command line and the tests call these; the Dagster assets call the same steps one by one. Nothing is known here of what any
table means.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from parsers import InputError, Source
from parsers.columns import TABLES
from pipelines import intake, origin, publish
from pipelines.duck import MEMORY_LIMIT, beside, connect, literal
from pipelines.intake import Intake
from pipelines.lake import Lake
from pipelines.models import LAYERS, Model, Run, make, models, set_variables, view
from pipelines.storage import TEMPORARY, is_alive, undisturbed

Tell = Callable[[str], object]
MOST_GAPS = 100_000_000  # of streams of clients: 200,000 answers of 500 chunks
WORK_PREFIX = ".kvpressure-"
AT_ONCE = 2  # tables: more would wait for one another, for few of them are long


@dataclass(frozen=True)
class Analysis:
    """A finished analysis: where the result lies, what is to be said of files not read, and the rows of each table."""

    out: Path
    unread: list[str]
    rows: dict[str, int]
    is_unchanged: bool = False  # all of it was there already

    @property
    def database(self) -> Path:
        """The DuckDB file that holds everything."""
        return self.out / publish.DATABASE

    @property
    def report(self) -> Path:
        """The page to look at."""
        return self.out / publish.REPORT


def analyze(  # noqa: PLR0913 - each by its name
    paths: Iterable[Path | Source],
    out: Path,
    run: Run,
    *,
    anonymize: bool = False,
    has_report: bool = True,
    fresh: bool = False,
    tell: Tell = lambda _: None,
) -> Analysis:
    """Read, model and publish one run into the folder `out`. InputError where nothing given can be read.

    A result that was there before stays until the new one is complete, and stays for good where it is of the same inputs,
    options and program; `fresh` makes it anew in any case.
    """
    sources = intake.find(paths, skip=out)
    publish.require_spared((source.path for source in sources), out)
    tell("looking for what has changed")
    made_of = origin.begin(origin.inputs(sources), run, anonymize=anonymize, has_report=has_report)
    may_be_kept = not fresh and (out / publish.ORIGIN).exists()  # else what they are is asked for at the end
    if may_be_kept and (told := made_of()) and (kept := origin.kept(told, out)):
        return Analysis(out, kept["unread"], kept["rows"], is_unchanged=True)
    with workplace(out) as work:
        lake = Lake.of(work / "lake", run=run.name)
        read = intake.read_found(sources, lake, tell=tell)
        read.require_any()
        result = work / "result"
        result.mkdir()
        try:
            rows = read.rows | build(lake, run, database=result / publish.DATABASE, tell=tell)
            tell("writing the result")
            publish.publish(lake, result, anonymize=anonymize, has_report=has_report)
            if told := made_of():
                origin.written(told, result, rows=rows, unread=read.unread)
        except duckdb.Error as error:  # of what is made of the tables: a fault of theirs is an InputError by now
            fault = str(error).partition("\n")[0]
            raise InputError(f"{out}: the result cannot be written ({fault}); check the free space") from error
        publish.replace(result, out)
    return Analysis(out, read.unread, rows)


def build(
    lake: Lake,
    run: Run,
    *,
    wanted: Sequence[Model] | None = None,
    database: Path | None = None,
    tell: Tell = lambda _: None,
) -> dict[str, int]:
    """Make every table of the run from its raw tables, or those `wanted`, with all that they read; row count by table.

    Where a `database` is to be made of them, each is copied there while others are made, always in the same order.
    """
    _require_comparable(lake)
    rows: dict[str, int] = {}
    to_make = {model.name: model for model in (models().values() if wanted is None else wanted)}
    to_copy = deque(sorted(to_make, key=_awaited, reverse=True))
    with connect() as con:
        con.execute(f"set temp_directory = {literal(lake.store.folder / TEMPORARY)}")  # gone with the rest
        for layer in LAYERS:  # before there are two threads: of two that create one at a time, one fails
            con.execute(f"create schema if not exists {layer}")
        for table in TABLES:
            view(f"raw.{table}", lake=lake, con=con)
        with publish.Database(beside(con), database, lake) if database else nullcontext() as copies:
            for name, count in _made_side_by_side(con, to_make, lake, run, tell):
                rows[name] = count
                while copies and to_copy and to_copy[0] in rows:
                    copies.take(to_make[to_copy.popleft()])
    return {name: rows[name] for name in to_make}


def _made_side_by_side(
    con: duckdb.DuckDBPyConnection, to_make: Mapping[str, Model], lake: Lake, run: Run, tell: Tell
) -> Iterator[tuple[str, int]]:
    """Each table's name and row count, as soon as it is made.

    AT_ONCE of them are made at a time, each as soon as all it reads is there, first those that most wait for, each by one thread:
    the bytes are the same whichever is ready first.
    """
    order = TopologicalSorter({name: set(model.reads) & to_make.keys() for name, model in to_make.items()})
    order.prepare()
    idle = [beside(con) for _ in range(AT_ONCE)]
    for each in idle:
        set_variables(each, run)
    ready, making = set(order.get_ready()), dict[Future[int], tuple[Model, duckdb.DuckDBPyConnection]]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            while ready or making:
                while ready and idle:
                    model, own = to_make[max(ready, key=_awaited)], idle.pop()
                    ready.remove(model.name)
                    tell(f"computing {model.name}")
                    making[pool.submit(_make, model, lake=lake, con=own, run=run)] = model, own
                for done in wait(making, return_when=FIRST_COMPLETED).done:
                    model, own = making.pop(done)
                    yield model.name, _made(model, done)
                    idle.append(own)
                    order.done(model.name)
                ready.update(order.get_ready())
        finally:
            for _, own in making.values():  # a fault, or an end from outside: nobody wants the others any more
                own.interrupt()


def _make(model: Model, *, lake: Lake, con: duckdb.DuckDBPyConnection, run: Run) -> int:
    """Make one table, and let those after it read it."""
    rows = make(model, lake=lake, con=con, run=run)
    view(model.name, lake=lake, con=con)
    return rows


def _awaited(name: str) -> tuple[int, str]:
    """How long a chain of tables waits for this one."""
    return _chains()[name], name


@cache
def _chains() -> dict[str, int]:
    """For each table, how many must be made one after the other from it on."""
    lengths: dict[str, int] = {}
    for model in reversed(models().values()):
        lengths[model.name] = 1 + max((lengths[each.name] for each in models().values() if model.name in each.reads), default=0)
    return lengths


def _require_comparable(lake: Lake) -> None:
    """InputError where clients kept more gaps than can be laid beside each other, for that is found out only after hours."""
    if not lake.has("raw.bench_requests"):
        return
    kept = pq.read_metadata(lake.path("raw.bench_requests"))
    columns = [kept.row_group(group).column(index) for group in range(kept.num_row_groups) for index in range(kept.num_columns)]
    gaps = sum(column.num_values for column in columns if column.path_in_schema.startswith("gaps_s."))
    if gaps > MOST_GAPS:
        told = f"the clients' results hold {gaps:,} gaps between chunks; {MOST_GAPS:,} at most are compared in one run"
        raise InputError(f"{told}; give fewer requests, or one level of a sweep after the other")


def _made(model: Model, done: Future[int]) -> int:
    """How many rows the table got. InputError where it could not be made."""
    try:
        return done.result()
    except duckdb.OutOfMemoryException as error:
        raise InputError(
            f"{model.name}: needs more memory than the {MEMORY_LIMIT} that DuckDB may use; set KVPRESSURE_MEMORY_LIMIT "
            "to what is free, or give less at once: a shorter time (--since, --until), or one engine after the other"
        ) from error
    except duckdb.IOException as error:
        fault = str(error).partition("\n")[0]
        raise InputError(f"{model.name}: cannot be written ({fault}); check the free space") from error
    except duckdb.Error as error:
        fault = str(error).partition("\n")[0]
        raise InputError(f"{model.name}: a value in the inputs is beyond its sums ({fault}); please report it") from error


def parse_only(paths: Iterable[Path | Source], out: Path, *, tell: Tell = lambda _: None) -> Intake:
    """Read everything into `<out>/<table>.parquet`; tables that no input fills are left out."""
    with workplace(out) as work:
        read = intake.read_into(paths, work / "tables", skip=out, tell=tell)
        for table in TABLES:  # those of an earlier call go, also where this one has no such table
            (out / f"{table}.parquet").unlink(missing_ok=True)
        for table in sorted((work / "tables").glob("*.parquet")):
            table.replace(out / table.name)
    return read


@contextmanager
def workplace(out: Path, purpose: str = "") -> Iterator[Path]:
    """A folder to work in inside `out`, one for each purpose, gone afterwards; what a killed process left there goes first.

    `out` itself goes too if this made it and nothing came to lie in it.
    """
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob(f"{WORK_PREFIX}*"):
        process = left.name.removeprefix(WORK_PREFIX).partition("-")[0]
        if process.isdecimal() and not is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    work = out / f"{WORK_PREFIX}{os.getpid()}{f'-{purpose}' if purpose else ''}"
    work.mkdir()
    try:
        yield work
    finally:
        with undisturbed():
            shutil.rmtree(work, ignore_errors=True)
            if is_new and not any(out.iterdir()):
                out.rmdir()
