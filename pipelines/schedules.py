"""Schedules: the daily job every night, at the hour that the configuration names, and retention once a day."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg

from pipelines import retention
from pipelines.config import Config
from pipelines.resources import DailyJob


def nightly(config: Config, job: Any) -> Any:
    """The schedule that analyzes the day which has just ended; Dagster has no public name for what it takes and makes here."""
    at = config.lake.nightly
    return dg.build_schedule_from_partitioned_job(
        job,
        name="nightly",
        hour_of_day=at.hour,
        minute_of_hour=at.minute,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )


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
        name="retention",
        job=drop_old_days,
        cron_schedule="0 5 * * *",
        execution_timezone=config.lake.timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
