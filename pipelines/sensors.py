"""Sensors: a folder that appears under the drop directory, and has come to rest, becomes a run."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from pipelines.partitions import RUNS
from pipelines.resources import Workspace

QUIET_S = float(os.environ.get("KVPRESSURE_QUIET_S", "10"))  # a folder that still changes is still being copied
INTERVAL_S = 15


def settled(drop: Path, *, now: float, quiet_s: float = QUIET_S) -> Iterator[tuple[str, str]]:
    """Each folder under `drop` in which nothing has changed for a while, with a mark that changes when its content does."""
    for folder in sorted(drop.glob("*")) if drop.is_dir() else ():
        if not folder.is_dir() or folder.name.startswith("."):
            continue
        changes = [(path.stat().st_mtime, path.stat().st_size) for path in folder.rglob("*") if path.is_file()]
        latest = max((at for at, _ in changes), default=None)
        if latest is not None and now - latest >= quiet_s:
            yield folder.name, f"{len(changes)}-{sum(size for _, size in changes)}-{latest:.0f}"


def drop_sensor(job_name: str) -> dg.SensorDefinition:
    """The sensor that starts the job for each folder that has settled; again where its content has changed since."""

    @dg.sensor(
        name="drop",
        job_name=job_name,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Turns a new folder under the drop directory into a partition and analyzes it.",
    )
    def sensor(workspace: Workspace) -> dg.SensorResult | dg.SkipReason:
        found = list(settled(Path(workspace.drop), now=time.time()))
        if not found:
            return dg.SkipReason(f"no folder under {workspace.drop} has been left alone for {QUIET_S:.0f} s")
        return dg.SensorResult(
            run_requests=[dg.RunRequest(run_key=f"{name}:{mark}", partition_key=name) for name, mark in found],
            dynamic_partitions_requests=[RUNS.build_add_request([name for name, _ in found])],
        )

    return sensor
