"""What every test may use: the sample recordings, and one analysis of each that is made when first asked for and only read."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq
import pytest

from parsers.columns import TABLES
from pipelines.analysis import Analysis, analyze, build
from pipelines.digest import Result
from pipelines.duck import connect
from pipelines.intake import read
from pipelines.lake import Lake
from pipelines.models import Run, models
from tests.fleet_days import Fleet
from tests.typed_tables import RUN, Sql

PROJECT = Path(__file__).parent.parent
T = TypeVar("T")
SMALL = PROJECT / "sample_traces" / "llamacpp-b11549-exhaustion"  # what is analyzed fastest
SAMPLES = sorted(path.parent for path in (PROJECT / "sample_traces").glob("*/expected.json"))


@dataclass(frozen=True)
class Analyzed:
    """One sample recording, its analysis, and the lake with every table that this was made of."""

    sample: Path
    analysis: Analysis
    lake: Lake

    @cached_property
    def expected(self) -> dict[str, Any]:
        return json.loads((self.sample / "expected.json").read_text())

    def rows(self, table: str, where: str = "true", order: str = "all") -> list[dict[str, Any]]:
        with Result(self.analysis.database) as result:
            return result.rows(table, where, order)


def read_into(sql: Sql, folder: Path, run: Run = RUN) -> Sql:
    """Tables that are asked for one by one, of the files in a folder: a third of the time of an analysis, which makes all."""
    lake = Lake.of(folder / "lake", run=run.name)
    read([folder], lake, skip=folder / "lake")
    for table in TABLES:
        if lake.has(f"raw.{table}"):
            sql.put(f"raw.{table}", pq.read_table(lake.path(f"raw.{table}")))
    sql.run = run
    return sql


@dataclass(frozen=True)
class Shared:
    """What takes long to make: made once a session, by whichever worker asks first, and read by all. Nobody changes it.

    A fixture of a module would be made again by each worker that gets one of the module's tests.
    """

    folder: Path
    _made: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[Path], T]) -> T:
        """What `make` returns, which can be pickled; it is given a folder of its own, which stays."""
        if name not in self._made:
            folder, finished = self.folder / name, self.folder / f"{name}.pickle"
            with (self.folder / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not finished.exists():
                    shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed to
                    folder.mkdir()
                    finished.write_bytes(pickle.dumps(make(folder)))
            self._made[name] = pickle.loads(finished.read_bytes())
        return self._made[name]


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Shared:
    """What the workers of one session make for each other."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    folder = tmp_path_factory.getbasetemp().parent / session if session else tmp_path_factory.mktemp("shared")
    folder.mkdir(exist_ok=True)
    return Shared(folder)


@contextmanager
def kept_workplace(out: Path) -> Iterator[Path]:
    """A folder beside `out` to work in, which is not taken away."""
    out.mkdir()
    (work := out.parent / "work").mkdir()
    yield work


@pytest.fixture(scope="session")
def analyze_sample(shared) -> Callable[[Path], Analyzed]:
    """The analysis of a sample, made once a session. Read it; do not write below it."""

    def analyze_once(sample: Path) -> Analyzed:
        def make(folder: Path) -> Analyzed:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr("pipelines.analysis.workplace", kept_workplace)
                analysis = analyze([sample], folder / "out", Run(sample.name))
            return Analyzed(sample, analysis, Lake.of(folder / "work" / "lake", run=sample.name))

        return shared.once(f"analyzed-{sample.name}", make)

    return analyze_once


@pytest.fixture(scope="session")
def analyzed(analyze_sample) -> Analyzed:
    """The preemption sample's analysis."""
    return analyze_sample(PROJECT / "sample_traces" / "vllm-0.32-preemption")


@pytest.fixture(scope="session")
def small(shared) -> Analysis:
    """The analysis of SMALL, a run called `small`, without a report. Copy it before changing anything."""
    return shared.once("small", lambda folder: analyze([SMALL], folder / "out", Run("small"), has_report=False))


def of_nothing(root: Path) -> Lake:
    lake = Lake.of(root, run="nothing")
    build(lake, Run("nothing"))
    return lake


@pytest.fixture
def unmodelled(shared, monkeypatch) -> None:
    """The files of a day are read, and its tables are those of nothing: for what asks which day is made and not what it tells."""
    nothing = shared.once("of-nothing", of_nothing)

    def copied(lake: Lake, _: Run, **__: object) -> None:
        for name in models():
            lake.put(name, lambda path, name=name: shutil.copyfile(nothing.path(name), path))

    monkeypatch.setattr("pipelines.analysis.build", copied)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """A day of a fleet to fill by hand."""
    with connect() as con:
        yield Fleet(con)


def pytest_terminal_summary(terminalreporter):
    """Why tests were skipped; the table of public bug reports: case, expected, told, and how many were told right."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped"))
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")
    reports = [
        report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome) if report.when == "call"
    ]
    rows = [(report.passed, value) for report in reports for name, value in report.user_properties if name == "told"]
    if rows:
        terminalreporter.section("public bug reports")
        for passed, row in sorted(rows, key=lambda each: each[1]):
            terminalreporter.write_line(f"{'right' if passed else 'WRONG'}  {row}")
        terminalreporter.write_line(f"{sum(passed for passed, _ in rows)} of {len(rows)} told right")
