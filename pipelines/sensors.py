"""Sensors: a folder that appears under the drop directory, and has come to rest, becomes a run; late files bring back a day."""

import hashlib
import os
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg

from pipelines import daily
from pipelines.config import Config
from pipelines.partitions import RUNS
from pipelines.resources import DailyJob, Workspace

QUIET_S = float(os.environ.get("KVPRESSURE_QUIET_S", "10"))  # a folder that still changes is still being copied
INTERVAL_S = 15
LATE_INTERVAL_S = 300


def settled(drop: Path, *, now: float, quiet_s: float = QUIET_S) -> Iterator[tuple[str, str]]:
    """Each folder under `drop` in which nothing has changed for a while, with a mark that changes when its content does."""
    for folder in filter(Path.is_dir, _visible(drop)):
        changes = [(path.stat().st_mtime, path.stat().st_size) for path in folder.rglob("*") if path.is_file()]
        latest = max((at for at, _ in changes), default=None)
        if latest is not None and now - latest >= quiet_s:
            yield folder.name, f"{len(changes)}-{sum(size for _, size in changes)}-{latest:.0f}"


def never_runs(drop: Path) -> Iterator[str]:
    """What lies under `drop` and will not become a run, and what to do about it."""
    for path in _visible(drop):
        if path.is_file():
            yield f"{path.name} lies loose, and a run is a folder: put it into one"
        elif path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
            yield f"{path.name} cannot be opened: check its permissions"


def _visible(drop: Path) -> list[Path]:
    return sorted(path for path in drop.glob("*") if not path.name.startswith(".")) if drop.is_dir() else []


def drop_sensor(job_name: str) -> dg.SensorDefinition:
    """The sensor that starts the job for each folder that has settled; again where its content has changed since."""

    @dg.sensor(
        name="drop",
        job_name=job_name,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Turns a new folder under the drop directory into a partition and analyzes it.",
    )
    def sensor(context: dg.SensorEvaluationContext, workspace: Workspace) -> dg.SensorResult | dg.SkipReason:
        drop = Path(workspace.drop)
        found, never = list(settled(drop, now=time.time())), list(never_runs(drop))
        for each in never:
            context.log.warning(each)
        if not found:
            none = f"no folder under {drop} has been left alone for {QUIET_S:.0f} s"
            return dg.SkipReason("; ".join([none, *never]))
        return dg.SensorResult(
            run_requests=[dg.RunRequest(run_key=f"{name}:{mark}", partition_key=name) for name, mark in found],
            dynamic_partitions_requests=[RUNS.build_add_request([name for name, _ in found])],
        )

    return sensor


def stale(config: Config, now: datetime) -> Iterator[tuple[str, date, str]]:
    """Group, day and mark of each day with files that are not in the lake yet, up to `late_days` back; the mark is theirs.

    Yesterday is the schedule's, unless it has been done: then what came since is late.
    """
    yesterday = config.day_of(now) - timedelta(days=1)
    for group in config.groups:
        engines = config.fleet(group)
        for day in (yesterday - timedelta(days=back) for back in range(config.lake.late_days, -1, -1)):
            if config.lake.first_day and day < config.lake.first_day:
                continue
            marks = [mark for engine in engines if (mark := daily.stale_mark(config, engine, day, is_due=day < yesterday))]
            if marks:
                yield group, day, "-".join(marks)


def late_sensor(job_name: str, tables: dict[str, list[dg.AssetKey]]) -> dg.SensorDefinition:
    """The sensor that makes a group's day again where files of it came late, and with it the fleet's. `tables` is by group."""

    @dg.sensor(
        name="late_files",
        job_name=job_name,
        minimum_interval_seconds=LATE_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Makes a day again for which files came after it was analyzed, or that never was.",
    )
    def sensor(daily_job: DailyJob) -> dg.SensorResult | dg.SkipReason:
        config = daily_job.load()
        requests = [
            dg.RunRequest(
                run_key=f"{group}:{day}:{hashlib.blake2b(mark.encode(), digest_size=8).hexdigest()}",
                partition_key=day.isoformat(),
                asset_selection=[*tables[group], *tables["fleet"]],
            )
            for group, day, mark in stale(config, datetime.now(UTC))
        ]
        return dg.SensorResult(run_requests=requests) if requests else dg.SkipReason("every file is in the lake")

    return sensor
