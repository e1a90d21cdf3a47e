"""Assembly of the Dagster definitions, and nothing else: no asset, check or resource is written here."""

from __future__ import annotations

import os

import dagster as dg

from pipelines.assets import model_asset, raw_assets, report_asset
from pipelines.models import models
from pipelines.partitions import RUNS
from pipelines.resources import Workspace
from pipelines.sensors import drop_sensor

EXECUTORS = {"in_process": dg.in_process_executor, "multiprocess": dg.multiprocess_executor}


def build_defs(*, workspace: Workspace | None = None, executor: str | None = None) -> dg.Definitions:
    """A complete code location. The executor is KVPRESSURE_EXECUTOR; in-process where not set, for a step is short."""
    job = dg.define_asset_job("analyze_run", selection=dg.AssetSelection.all(), partitions_def=RUNS)
    return dg.Definitions(
        assets=[raw_assets, *map(model_asset, models().values()), report_asset(list(models().values()))],
        jobs=[job],
        sensors=[drop_sensor(job.name)],
        resources={"workspace": workspace or Workspace.from_environment()},
        executor=EXECUTORS[executor or os.environ.get("KVPRESSURE_EXECUTOR", "in_process")],
    )
