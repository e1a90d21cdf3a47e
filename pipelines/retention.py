"""Retention: what a lake keeps no longer. Days older than asked, and the rows of contents that no day is made of any more."""

from __future__ import annotations

from datetime import date, timedelta

from pipelines.config import Config
from pipelines.partition import days, manifests


def drop_old(config: Config, today: date) -> list[date]:
    """Take away the days that are older than `retention_days`, oldest first, and return them. None where nothing is limited."""
    store, keep = config.store, config.lake.retention_days
    dropped = [each for each in days(store) if keep is not None and each < today - timedelta(days=keep)]
    for day in dropped:
        names = store.names(f"days/*/day={day.isoformat()}/**/*") + store.names(f"f*/*/day={day.isoformat()}/**/*")
        names.append(f"fleet/_done/day={day.isoformat()}.json")  # or the day, made again, would count as reduced
        # fetched/ and fleet/ have the day in one place; the manifests go last, so that a job killed here drops the rest next time
        for name in sorted(names, key=lambda each: (each.startswith("days/_done/"), each)):
            store.delete(name)
    for name in store.names("days/_lacking/day=*/engine=*.json"):  # of a day of which no engine had anything
        if keep is not None and name.split("/")[2].removeprefix("day=") < (today - timedelta(days=keep)).isoformat():
            store.delete(name)
    if dropped:
        _drop_unused(config)
    return dropped


def _drop_unused(config: Config) -> None:
    store = config.store
    used = {each.content for day in days(store) for manifest in manifests(store, day).values() for each in manifest.inputs}
    for name in store.names("raw/*/content.json"):
        if name.split("/")[1] not in used:
            store.delete(name)
            store.delete(name.rpartition("/")[0])
