"""Stamps without a zone, and often without a year: how a reading of them (zone, base year) makes them absolute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from parsers import InputError
from parsers.columns import PLACEHOLDER_YEAR
from pipelines.zone import NoZoneError, zone_name

# Every offset some place keeps, UTC first: whole hours by their POSIX names (sign reversed), the others by a place.
ZONES = (
    "UTC",
    *(f"Etc/GMT-{hours}" for hours in range(1, 15)),
    *(f"Etc/GMT+{hours}" for hours in range(1, 13)),
    *("Asia/Kolkata", "Asia/Kathmandu", "Asia/Tehran", "Asia/Kabul", "Asia/Yangon", "Australia/Darwin", "Australia/Adelaide"),
    *("Australia/Lord_Howe", "Australia/Eucla", "Pacific/Chatham", "Pacific/Marquesas", "America/St_Johns"),
)
QUARTER_S = 900  # zones differ by quarters of an hour


@dataclass(frozen=True)
class Reading:
    """How a zone-less stamp is read: its zone, and the year that stands for the placeholder (None where stamps have a year)."""

    zone: str
    base_year: int | None
    error_s: float | None
    method: str


def absolute(stamps: pl.Series, reading: Reading) -> pl.Series:
    """Epoch seconds of local stamps under a reading. A stamp that a change to summer time skips is null."""
    local = pl.col("stamp")
    if reading.base_year is not None:
        year = local.dt.year() + (reading.base_year - PLACEHOLDER_YEAR)
        day = pl.when((local.dt.month() == 2) & (local.dt.day() == 29) & ~_leap(year)).then(28).otherwise(local.dt.day())
        dated = pl.datetime(
            year, local.dt.month(), day, local.dt.hour(), local.dt.minute(), local.dt.second(), local.dt.microsecond()
        )
        local = pl.when(local.dt.year() < PLACEHOLDER_YEAR + 10).then(dated).otherwise(local)
    zoned = local.dt.replace_time_zone(reading.zone, ambiguous="earliest", non_existent="null")
    return pl.DataFrame({"stamp": stamps.cast(pl.Datetime("us"))}).select((zoned.dt.epoch("us") / 1e6).alias("at_s"))["at_s"]


def _leap(year: pl.Expr) -> pl.Expr:
    return (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))


def is_leap(year: int) -> bool:
    """Whether the year has a 29 February."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def in_year(stamp: datetime, base_year: int) -> datetime:
    """The stamp with the placeholder year replaced; 29 February of a common year becomes the 28th."""
    year = base_year + stamp.year - PLACEHOLDER_YEAR
    return (
        stamp.replace(year=year, day=28)
        if (stamp.month, stamp.day) == (2, 29) and not is_leap(year)
        else stamp.replace(year=year)
    )


def known_zone(zone: str) -> str:
    """The zone the caller named, if it is one."""
    try:
        return zone_name(zone)
    except NoZoneError as error:
        raise InputError(f"timezone: {error}") from error


def distinct_zones(zones: Sequence[str], stamp: datetime, base_year: int | None) -> list[str]:
    """The zones that differ at the stamp, the first name of each offset."""
    series = pl.Series([stamp], dtype=pl.Datetime("us"))
    offsets: dict[float, str] = {}
    for zone in zones:
        offsets.setdefault(float(absolute(series, Reading(zone, base_year, None, ""))[0] or 0.0), zone)
    return list(offsets.values())


def resolution(seconds: pl.Series) -> float:
    """What the stamps count in: whole seconds, or milliseconds and finer."""
    return 1.0 if ((seconds - seconds.round(0)).abs().fill_null(0.0) < 5e-4).all() else 1e-3


def zone_ahead(source: Mapping[str, Any]) -> str | None:
    """The zone whose offset lies between a log's own stamps and the absolute times in front of them."""
    if source["local_ahead_s"] is None:
        return None
    ahead = timedelta(seconds=round(source["local_ahead_s"] / QUARTER_S) * QUARTER_S)
    # the placeholder year is whole days away
    moment = source["first_utc"].replace(tzinfo=None)
    offsets = {zone: ZoneInfo(zone).utcoffset(moment) or timedelta() for zone in ZONES}
    return next((zone for zone, offset in offsets.items() if (ahead - offset) % timedelta(days=1) == timedelta()), None)
