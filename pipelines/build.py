"""Assembly of the Dagster definitions, and nothing else: no asset, check or resource is written here."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from parsers import InputError
from pipelines import config as configuration
from pipelines.assets import model_asset, raw_assets, report_asset
from pipelines.config import Config
from pipelines.day_assets import fleet_assets, group_assets
from pipelines.models import models
from pipelines.resources import DailyJob, Workspace
from pipelines.schedules import drop_old_days, nightly, retention_schedule
from pipelines.sensors import drop_sensor, late_sensor

Environment = Mapping[str, str]


def build_defs(
    *, workspace: Workspace | None = None, executor: str | None = None, config: Config | None = None
) -> dg.Definitions:
    """A complete code location: runs dropped by hand, and the daily job where there is a configuration.

    The executor is KVPRESSURE_EXECUTOR; in-process where not set, for a step is short.
    """
    chosen = executor_named(executor or os.environ.get("KVPRESSURE_EXECUTOR", "in_process"), os.environ)
    by_hand = [raw_assets, *map(model_asset, models().values()), report_asset(list(models().values()))]
    runs = dg.Definitions(
        assets=by_hand,
        jobs=[dg.define_asset_job("analyze_run", selection=dg.AssetSelection.assets(*by_hand))],
        sensors=[drop_sensor("analyze_run")],
        resources={"workspace": workspace or Workspace.from_environment()},
        executor=chosen,
    )
    config = config or _configured()
    return runs if config is None else dg.Definitions.merge(runs, daily_defs(config))


def daily_defs(config: Config) -> dg.Definitions:
    """The daily job of a configuration."""
    groups = {group: group_assets(config, group) for group in config.groups}
    fleet = fleet_assets(config)
    job = dg.define_asset_job(
        "daily",
        selection=dg.AssetSelection.assets(*groups.values(), fleet),
        description="A day of every engine, then of the fleet, then the catalog.",
    )
    tables = {name: list(assets.keys) for name, assets in {**groups, "fleet": fleet}.items()}
    return dg.Definitions(
        assets=[*groups.values(), fleet],
        jobs=[job, drop_old_days],
        schedules=[nightly(config, job), retention_schedule(config)],
        sensors=[late_sensor(job.name, tables)],
        resources={"daily_job": DailyJob(config=str(config.path.absolute()))},
    )


def executor_named(name: str, environment: Environment) -> dg.ExecutorDefinition:
    """One of EXECUTORS. InputError where it is none of these, or needs a package that is not installed."""
    if name not in EXECUTORS:
        raise InputError(f"KVPRESSURE_EXECUTOR is `{name}`; it should be {_listed(list(EXECUTORS))}")
    return EXECUTORS[name](environment)


def _dask(environment: Environment) -> dg.ExecutorDefinition:
    """On the scheduler at KVPRESSURE_DASK, or on workers of this machine."""
    scheduler = environment.get("KVPRESSURE_DASK")
    workers = int(environment.get("KVPRESSURE_DASK_WORKERS", "2"))
    cluster = {"existing": {"address": scheduler}} if scheduler else {"local": {"n_workers": workers, "threads_per_worker": 1}}
    return _from("pipelines.dask_steps", "executor", "cluster")(cluster)


# name -> what makes it, given the environment
EXECUTORS: Mapping[str, Callable[[Environment], dg.ExecutorDefinition]] = {
    "in_process": lambda _: dg.in_process_executor,
    "multiprocess": lambda _: dg.multiprocess_executor,
    "dask": _dask,
    "k8s": lambda _: _from("dagster_k8s", "k8s_job_executor", "kubernetes"),
}


def _from(module: str, name: str, extra: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise InputError(f"KVPRESSURE_EXECUTOR needs {error.name}; pip install 'kvpressure[{extra}]'") from error


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _configured() -> Config | None:
    """The configuration at KVPRESSURE_CONFIG, or in this folder; None where neither is there."""
    path = os.environ.get("KVPRESSURE_CONFIG")
    if path is None and not Path(configuration.FILE).is_file():
        return None
    return configuration.load(Path(path or configuration.FILE))
