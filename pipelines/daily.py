"""The daily job as plain functions: one engine's day, from the files that cover it to its tables in the lake.

`analyze_day` is what the command line, a cron job and the Dagster asset call. A day is analyzed as one run with the day as its
window, whatever number of files it is in: rotated, cut at a restart, late. What crosses midnight belongs to the day it ends in,
so a day is done once it is over: nothing that comes later changes it, unless it is of that day. A day whose inputs and whose code
are those of its manifest is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from parsers import InputError
from parsers.columns import COLUMNS, TABLES
from pipelines import analysis, day_inputs, fetched
from pipelines.charts.language import listed
from pipelines.config import Config, Engine, EngineSettings
from pipelines.contents import Contents, source_hash
from pipelines.day_inputs import Lack, Window
from pipelines.duck import connect, literal
from pipelines.lake import Lake
from pipelines.models import Run, models
from pipelines.partition import Manifest, days, finished, keep_lacks, kept_lacks, publish, read_manifest, seen, withdraw
from pipelines.publish import tables

Tell = Callable[[str], object]
MISSING = "every_engine_is_there"  # a check beside those of `checks`: of what is not in the lake
MADE, UNCHANGED, EMPTY, WITHDRAWN = "made", "unchanged", "empty", "withdrawn"
CODE = (  # what the bytes of a day depend on beside its inputs
    "parsers",
    "sql",
    "pipelines.clock",
    "pipelines.replay",
    *(f"pipelines.{name}" for name in ("sweep", "kolmogorov", "resampling", "models", "duck", "contents", "day_inputs", "daily")),
)


@dataclass(frozen=True)
class Outcome:
    """What became of one engine's day; there is no manifest where no file covers it."""

    engine: str
    day: date
    status: str
    manifest: Manifest | None
    lack: Lack = Lack()  # noqa: RUF009 - frozen


def meanings(table: str) -> dict[str, str]:
    """What the columns of a day's table mean."""
    name = tables()[table]
    known = dict(models()[name].columns) if name in models() else {each: COLUMNS[each].meaning for each in TABLES[table]}
    return known | {"day": "The day, in the lake's zone.", "run": "The engine, as the configuration names it."}


def analyze_day(config: Config, engine: Engine, day: date, *, fresh: bool = False, tell: Tell = lambda _: None) -> Outcome:
    """Bring one engine's day in the lake up to date with the files there are. `fresh` makes it anew in any case.

    A file that is gone, or is something else by now, takes nothing away, since its rows are kept. `fresh` takes only what is
    there: where that is nothing, the day leaves the lake.
    """
    store, window, contents = config.store, Window.of(config, engine, day), Contents(config.store, engine.name, tell)
    fetched.bring(config, engine, day, tell=tell)
    roles = day_inputs.choose(config, engine, day, contents)
    contents.save()
    settings = engine.settings
    parameters = {"timezone": settings.timezone, "day_timezone": config.lake.timezone, "gpu_cost": settings.gpu_cost}
    before = read_manifest(store, engine.name, day)
    done = None if fresh else before
    lack = day_inputs.unread(engine, day, contents, before, has_others=bool(roles))
    if done:
        is_of_this_code = (done.code, done.parameters) == (code_version(), parameters)
        if done.tables and is_of_this_code and day_inputs.accounts_for(done, roles, contents, window):
            return Outcome(engine.name, day, UNCHANGED, done, lack)
        roles |= day_inputs.still_kept(done, roles, contents)
    if not roles and lack.how:
        return Outcome(engine.name, day, EMPTY, before, lack)
    if not roles:
        if before:
            withdraw(store, engine.name, day)
        return Outcome(
            engine.name, day, WITHDRAWN if before else EMPTY, None, Lack(day_inputs.lack(engine, day), is_of_day=False)
        )
    found = day_inputs.pieces(roles, contents, window)
    tell(f"{engine.name} on {day}: {len(found)} inputs")
    used, found_in = tuple(piece.used for piece in found), None if settings.name else engine.group
    manifest = Manifest(day.isoformat(), engine.name, code_version(), parameters, used, found_in)
    with store.workplace() as folder, TemporaryDirectory(prefix="kvpressure-") as work:
        run = Run(
            engine.name,
            timezone=settings.timezone,
            since=window.since.isoformat(),
            until=window.until.isoformat(),
            gpu_cost_usd_per_hour=settings.gpu_cost,
        )
        lake = Lake.of(work, run=engine.name)
        day_inputs.lay_out(found, window, contents, store=store, lake=lake)
        analysis.build(lake, run, tell=tell)
        return Outcome(engine.name, day, MADE, publish(store, manifest, _dated(lake, run, day, folder)), lack)


def analyze_all(
    config: Config, engines: Iterable[Engine], day: date, *, fresh: bool = False, tell: Tell = lambda _: None
) -> list[Outcome]:
    """A day of several engines, one after the other: what became of each. A fault stops only its engine."""
    outcomes = []
    for engine in engines:
        try:
            outcomes.append(analyze_day(config, engine, day, fresh=fresh, tell=tell))
        except InputError as error:
            outcomes.append(Outcome(engine.name, day, EMPTY, None, Lack(str(error), is_fault=True)))
    keep_lacks(config.store, day, {each.engine: each.lack.how for each in outcomes})
    return outcomes


def lacking(config: Config, outcomes: Iterable[Outcome], *, is_again: bool = False) -> list[Outcome]:
    """Those of which something is to be told.

    On a day that is looked at again for late files, that is nothing which was told in its own night, or was so before there was
    an engine. Of engines that are retired, nothing is missed.
    """
    told = [each for each in outcomes if each.lack.how]
    settings = {each.engine: config.engine(each.engine).settings for each in told}
    return [each for each in told if each.lack.is_of_day or not (is_again or settings[each.engine].has_retired(each.engine))]


def faults(lacking: Iterable[Outcome]) -> list[str]:
    """A line for each engine's day of which there are files and none that can be read."""
    return [f"{each.engine} on {each.day}: {each.lack.how}" for each in lacking if each.lack.is_fault]


def missing(config: Config, day: date, outcomes: Iterable[Outcome], groups: Collection[str]) -> list[tuple[str, str]]:
    """What breaks MISSING: the group, and in one sentence which of its engines lack what, and what to do.

    Of the groups given, engines are missed too that only their files name and that have none left, and those entries whose paths
    are to name the engines and match nothing at all.
    """
    lacking = _alike(config, {each.engine: each.lack.how for each in outcomes})
    known = [engine.settings for engine in config.fleet()]
    for entry, name, lack in _vanished(config, day):
        if entry.group in groups:
            lacking.setdefault((entry.group, lack), []).append(name)
            known.append(entry)
    found = [(group, f"{listed(names)}: {lack}") for (group, lack), names in lacking.items()]
    return found + [
        (entry.group, _unnamed(config, entry)) for entry in config.engines if entry.group in groups and entry not in known
    ]


def _unnamed(config: Config, entry: EngineSettings) -> str:
    """Why an entry whose paths are to name its engines has none."""
    if closed := config.closed(entry):
        return "; ".join(day_inputs.refused(folder) for folder in closed)
    return f"no file matches {', '.join(entry.paths)}, which is to name the engines; check the paths in {config.path}"


def without_day(config: Config, day: date) -> tuple[list[tuple[str, str]], int]:
    """Engines of which the lake misses input of a day, with what is lacking, and how many of them have no day at all.

    As far as it is known from when their day was last looked at; engines that are retired lack nothing.
    """
    wanted = {each.name for each in config.fleet() if not each.settings.has_retired(each.name)}
    told = {name: lack for name, lack in kept_lacks(config.store, day).items() if name in wanted}
    told |= {name: lack for _, name, lack in _vanished(config, day)}
    absent = (wanted | set(told)) - finished(config.store, day).keys()
    untold = dict.fromkeys(sorted(absent - told.keys()), "its day has not been made")
    found = _alike(config, told | untold)
    return [(listed(names), lack) for (_, lack), names in found.items()], len(absent)


def _alike(config: Config, lacks: Mapping[str, str]) -> dict[tuple[str, str], list[str]]:
    """Engines of a group that lack the same, together."""
    groups = {engine.name: engine.group for engine in config.fleet()}
    alike: dict[tuple[str, str], list[str]] = {}
    for name, lack in lacks.items():
        alike.setdefault((groups.get(name, ""), lack), []).append(name)
    return alike


def _vanished(config: Config, day: date) -> Iterator[tuple[EngineSettings, str, str]]:
    """Engines that no file names any more and the lake has of the days before, as far back as files are waited for.

    Each with the entry in whose paths it was found, and why it is missed. One whose name the configuration had is missed no
    longer once it is taken out there.
    """
    store, within = config.store, timedelta(days=config.lake.late_days)
    last = {name: each for each in days(store) if day - within <= each < day for name in seen(store, each)}
    for name in sorted(last.keys() - {each.name for each in config.fleet()} - set(seen(store, day))):
        told = read_manifest(store, name, last[name])
        entries = [each for each in config.engines if told and not each.name and each.group == told.found_in]
        if entries and not any(each.has_retired(name) for each in entries):
            paths = ", ".join(path for each in entries for path in each.paths)
            was = f"no file of {paths} names it any more, and the lake has it until {last[name]}"
            yield entries[0], name, f"{was}; check that its data still arrives, or add its name to `retired` in {config.path}"


def stale_mark(config: Config, engine: Engine, day: date, *, is_due: bool) -> str | None:
    """A mark of the files of an engine's day that are not in the lake; None where they are, or it is neither made nor due."""
    window, contents = Window.of(config, engine, day), Contents(config.store, engine.name)
    done = read_manifest(config.store, engine.name, day)
    if done is None and not is_due:
        return None
    roles = day_inputs.choose(config, engine, day, contents)
    contents.save()
    if not roles or (done and done.tables and day_inputs.accounts_for(done, roles, contents, window)):
        return None
    return "-".join(roles)


def _dated(lake: Lake, run: Run, day: date, folder: Path) -> dict[str, Path]:
    """The tables to publish as files in the folder, each with its day and run in front."""
    made = {}
    with connect() as con:
        for table, name in tables().items():
            source = literal(lake.uri(name))
            run_column = "" if "run" in pq.read_schema(lake.path(name)).names else f", {literal(run.name)} as run"
            made[table] = folder / f"{table}.parquet"
            con.execute(
                f"copy (select date '{day}' as day{run_column}, * from read_parquet({source}, hive_partitioning = false)) "
                f"to {literal(made[table])} (format parquet, compression zstd)"
            )
    return made


@cache
def code_version() -> str:
    """A hash of everything that a day's bytes depend on beside its inputs and what its engine's configuration says."""
    return source_hash(CODE)
