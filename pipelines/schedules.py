"""Schedules: the daily job every night, and retention once a day.

The night begins half an hour after midnight, in the lake's zone: what a collector still held at midnight has arrived by then, and
what comes later is found by the sensor.
"""

from datetime import UTC, datetime
from typing import Any

import dagster as dg

from pipelines import retention
from pipelines.config import Config
from pipelines.resources import DailyJob

MINUTE = 30  # after midnight


def nightly(job: Any) -> Any:
    """The schedule that analyzes the day which has just ended; Dagster has no public name for what it takes and makes here."""
    return dg.build_schedule_from_partitioned_job(job, name="nightly", hour_of_day=0, minute_of_hour=MINUTE)


@dg.op
def drop_old(context: dg.OpExecutionContext, daily_job: DailyJob) -> None:
    """Take away the days that are older than `retention_days`."""
    config = daily_job.load()
    dropped = retention.drop_old(config, config.day_of(datetime.now(UTC)))
    context.log.info("dropped %s", ", ".join(map(str, dropped)) or "nothing")


@dg.job(description="Takes away the days that are older than `retention_days`.")
def drop_old_days() -> None:
    """The job around the one op."""
    drop_old()


def retention_schedule(config: Config) -> dg.ScheduleDefinition:
    """Retention, after the night's work."""
    return dg.ScheduleDefinition(
        name="retention", job=drop_old_days, cron_schedule="0 5 * * *", execution_timezone=config.lake.timezone
    )
