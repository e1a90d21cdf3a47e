"""Dagster's Dask executor, able to run what is partitioned by time.

Dask (since 2024.11) looks for tasks in every tuple it is handed; dagster-dask 0.29 hands it the run, a tuple with the definition
of its days inside, which refuses to be looked into (`Iteration is not allowed on @record`). Here Dask is told that a run is a
value. This module goes when dagster-dask does so itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster_dask import dask_executor
from distributed import client


def executor(cluster: Mapping[str, Any]) -> dg.ExecutorDefinition:
    """The executor on a cluster, described as dagster-dask does: `{"local": {"n_workers": 2}}`."""
    looked_into = getattr(client, "parse_input")  # noqa: B009 - the name is none of its public ones

    def parse_input(value: Any) -> Any:
        return value if isinstance(value, dg.DagsterRun) else looked_into(value)

    setattr(client, "parse_input", parse_input)  # noqa: B010
    return dask_executor.configured({"cluster": cluster}, name="dask")
