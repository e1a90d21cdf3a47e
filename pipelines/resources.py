"""Resources: where inputs are dropped, where the lake lies, and what the operator says that no input says."""

import os
from pathlib import Path
from typing import Self

import dagster as dg

from pipelines.config import Config, load
from pipelines.lake import Lake
from pipelines.models import Run


class DailyJob(dg.ConfigurableResource):
    """The configuration of the daily job; read anew by each step, so that a change needs no restart of what runs."""

    config: str

    def load(self) -> Config:
        """The configuration as it is now."""
        return load(Path(self.config))


class Workspace(dg.ConfigurableResource):
    """The folders of one installation: a run's inputs are in `<drop>/<run>/`, its results in `<lake>/results/<run>/`."""

    drop: str
    lake: str
    timezone: str | None = None
    gpu_cost_usd_per_hour: float | None = None

    @classmethod
    def from_environment(cls) -> Self:
        """KVPRESSURE_DROP, KVPRESSURE_LAKE, KVPRESSURE_TIMEZONE and KVPRESSURE_GPU_COST, below `.kvpressure/` where not set."""
        return cls(
            drop=os.environ.get("KVPRESSURE_DROP", ".kvpressure/drop"),
            lake=os.environ.get("KVPRESSURE_LAKE", ".kvpressure/lake"),
            timezone=os.environ.get("KVPRESSURE_TIMEZONE"),
            gpu_cost_usd_per_hour=float(os.environ["KVPRESSURE_GPU_COST"]) if "KVPRESSURE_GPU_COST" in os.environ else None,
        )

    def inputs(self, run: str) -> Path:
        """What was dropped for the run."""
        return Path(self.drop) / run

    def tables(self, run: str) -> Lake:
        """The run's part of the lake."""
        return Lake.of(self.lake, run=run)

    def results(self, run: str) -> Path:
        """Where what a reader gets is published."""
        return Path(self.lake) / "results" / run

    def parameters(self, run: str) -> Run:
        """The run as the models see it."""
        return Run(run, timezone=self.timezone, gpu_cost_usd_per_hour=self.gpu_cost_usd_per_hour)
