"""Partitions: one per run. A run is one set of inputs that belong together, such as a benchmark or an incident."""

from __future__ import annotations

import dagster as dg

RUNS = dg.DynamicPartitionsDefinition(name="runs")
