"""An analysis from end to end, as plain functions: intake, then every model in order, then publishing.

The command line and the tests call these; the Dagster assets call the same steps one by one. Nothing is known here of what any
table means.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from parsers import InputError
from parsers.columns import TABLES
from pipelines import intake, origin, publish
from pipelines.duck import MEMORY_LIMIT, beside, connect, literal
from pipelines.intake import Intake
from pipelines.lake import Lake
from pipelines.models import Model, Run, make, models, set_variables, view
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
    paths: Iterable[Path],
    out: Path,
    run: Run,
    *,
    anonymize: bool = False,
    has_report: bool = True,
    fresh: bool = False,
    tell: Tell = lambda _: None,
) -> Analysis:
    """Read, model and publish one run into the folder `out`. InputError where nothing given can be read to its end.

    A result that was there before stays until the new one is complete, and stays for good where it is of the same inputs,
    options and program; `fresh` makes it anew in any case.
    """
    sources = intake.find(paths, skip=out)
    tell("looking for what has changed")
    made_of = origin.of(sources, run, anonymize=anonymize, has_report=has_report)
    if made_of and not fresh and (kept := origin.kept(made_of, out)):
        return Analysis(out, kept["unread"], kept["rows"], is_unchanged=True)
    with workplace(out) as work:
        lake = Lake.of(work / "lake", run=run.name)
        read = intake.read_found(sources, lake, tell=tell)
        read.require_whole()
        rows = read.rows | build(lake, run, tell=tell)
        tell("writing the result")
        try:
            publish.publish(lake, work / "result", anonymize=anonymize, has_report=has_report)
            if made_of:
                origin.written(made_of, work / "result", rows=rows, unread=read.unread)
        except duckdb.Error as error:
            fault = str(error).partition("\n")[0]
            raise InputError(f"{out}: the result cannot be written ({fault}); check the free space") from error
        publish.replace(work / "result", out)
    return Analysis(out, read.unread, rows)


def build(lake: Lake, run: Run, *, tell: Tell = lambda _: None) -> dict[str, int]:
    """Make every table of the run from its raw tables; row count by table.

    AT_ONCE of them are made side by side, each as soon as all it reads is there, each by one thread: the bytes are the same
    whichever is ready first.
    """
    _require_comparable(lake)
    rows: dict[str, int] = {}
    order = TopologicalSorter({model.name: set(model.reads) & models().keys() for model in models().values()})
    order.prepare()
    with connect() as con, ThreadPoolExecutor(AT_ONCE) as pool:
        con.execute(f"set temp_directory = {literal(lake.store.folder / TEMPORARY)}")  # gone with the rest
        for table in TABLES:
            view(f"raw.{table}", lake=lake, con=con)
        idle = [beside(con) for _ in range(AT_ONCE)]
        for each in idle:
            set_variables(each, run)
        ready, making = deque(order.get_ready()), dict[Future[int], tuple[Model, duckdb.DuckDBPyConnection]]()
        try:
            while ready or making:
                while ready and idle:
                    model, own = models()[ready.popleft()], idle.pop()
                    tell(f"computing {model.name}")
                    making[pool.submit(make, model, lake=lake, con=own, run=run)] = model, own
                for done in wait(making, return_when=FIRST_COMPLETED).done:
                    model, own = making.pop(done)
                    rows[model.name] = _made(model, done)
                    view(model.name, lake=lake, con=con)
                    idle.append(own)
                    order.done(model.name)
                ready.extend(order.get_ready())
        finally:
            for _, own in making.values():  # a fault, or an end from outside: nobody wants the others any more
                own.interrupt()
    return {name: rows[name] for name in models()}


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


def parse_only(paths: Iterable[Path], out: Path, *, tell: Tell = lambda _: None) -> Intake:
    """Read everything into `<out>/<table>.parquet`; tables that no input fills are left out."""
    with workplace(out) as work:
        read = intake.read_into(paths, work / "tables", skip=out, tell=tell)
        for table in TABLES:  # those of an earlier call go, also where this one has no such table
            (out / f"{table}.parquet").unlink(missing_ok=True)
        for table in sorted((work / "tables").glob("*.parquet")):
            table.replace(out / table.name)
    return read


@contextmanager
def workplace(out: Path) -> Iterator[Path]:
    """A folder to work in inside `out`, gone afterwards; what a killed process left there goes first.

    `out` itself goes too if this made it and nothing came to lie in it.
    """
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob(f"{WORK_PREFIX}*"):
        process = left.name.removeprefix(WORK_PREFIX)
        if process.isdecimal() and not is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    work = out / f"{WORK_PREFIX}{os.getpid()}"
    work.mkdir()
    try:
        yield work
    finally:
        with undisturbed():
            shutil.rmtree(work, ignore_errors=True)
            if is_new and not any(out.iterdir()):
                out.rmdir()
