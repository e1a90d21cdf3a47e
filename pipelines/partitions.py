"""Partitions: one per run, a set of inputs that belong together, such as a benchmark or an incident; and one per day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg

from pipelines.config import Config

RUNS = dg.DynamicPartitionsDefinition(name="runs")
DAYS_SHOWN = 90  # where neither `first_day` nor `retention_days` says how far back days go


def days_of(config: Config) -> dg.DailyPartitionsDefinition:
    """The days of a lake, in its own zone, from its first to yesterday."""
    kept = timedelta(days=config.lake.retention_days or DAYS_SHOWN)
    first = config.lake.first_day or config.day_of(datetime.now(UTC)) - kept
    return dg.DailyPartitionsDefinition(start_date=first.isoformat(), timezone=config.lake.timezone)
