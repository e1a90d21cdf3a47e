"""An analysis from end to end, as plain functions: intake, then every model in order, then publishing.

The command line and the tests call these; the Dagster assets call the same steps one by one. Nothing is known here of what any
table means.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from parsers import InputError
from parsers.columns import TABLES
from pipelines import publish
from pipelines.duck import connect
from pipelines.intake import Intake, read, read_into
from pipelines.lake import Lake
from pipelines.models import Run, make, models, set_variables, view
from pipelines.storage import is_alive

Tell = Callable[[str], object]
WORK_PREFIX = ".kvpressure-"


@dataclass(frozen=True)
class Analysis:
    """A finished analysis: what was read, where the result lies, and the rows of each table made."""

    out: Path
    intake: Intake
    rows: dict[str, int]

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
    tell: Tell = lambda _: None,
) -> Analysis:
    """Read, model and publish one run into the folder `out`. InputError where nothing given can be read to its end.

    A result that was there before stays until the new one is complete.
    """
    with workplace(out) as work:
        lake = Lake.of(work / "lake", run=run.name)
        intake = read(paths, lake, skip=out, tell=tell)
        intake.require_whole()
        rows = build(lake, run, tell=tell)
        tell("writing the result")
        try:
            publish.publish(lake, work / "result", anonymize=anonymize, has_report=has_report)
        except duckdb.Error as error:
            fault = str(error).partition("\n")[0]
            raise InputError(f"{out}: the result cannot be written ({fault}); check the free space") from error
        publish.replace(work / "result", out)
    return Analysis(out, intake, intake.rows | rows)


def build(lake: Lake, run: Run, *, tell: Tell = lambda _: None) -> dict[str, int]:
    """Make every table of the run from its raw tables; row count by table."""
    rows = {}
    with connect() as con:
        set_variables(con, run)
        for table in TABLES:
            view(f"raw.{table}", lake=lake, con=con)
        for model in models().values():
            tell(f"computing {model.name}")
            try:
                rows[model.name] = make(model, lake=lake, con=con, run=run)
                view(model.name, lake=lake, con=con)
            except duckdb.Error as error:
                fault = str(error).partition("\n")[0]
                raise InputError(f"{model.name}: a value in the inputs is beyond its sums ({fault}); please report it") from error
    return rows


def parse_only(paths: Iterable[Path], out: Path, *, tell: Tell = lambda _: None) -> Intake:
    """Read everything into `<out>/<table>.parquet`; tables that no input fills are left out."""
    with workplace(out) as work:
        intake = read_into(paths, work / "tables", skip=out, tell=tell)
        for table in TABLES:  # those of an earlier call go, also where this one has no such table
            (out / f"{table}.parquet").unlink(missing_ok=True)
        for table in sorted((work / "tables").glob("*.parquet")):
            table.replace(out / table.name)
    return intake


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
        shutil.rmtree(work, ignore_errors=True)
        if is_new and not any(out.iterdir()):
            out.rmdir()
