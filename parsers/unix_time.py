"""Unix stamps, whose unit every tool chooses anew, as the microseconds the tables keep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_SCALES = ((1e11, 1_000_000, 1), (1e14, 1_000, 1), (1e17, 1, 1), (1e20, 1, 1_000))  # 1970 to 5138 in each unit


def unix_microseconds(stamp: float) -> int | None:
    """Microseconds since 1970 of a stamp in seconds, milli-, micro- or nanoseconds, told by its size; None for no such stamp."""
    for limit, factor, divisor in _SCALES:
        if 0 <= stamp < limit:
            return stamp * factor // divisor if isinstance(stamp, int) else round(stamp * factor / divisor)
    return None  # before or beyond any engine's clock, or NaN


def in_utc(time: datetime) -> datetime:
    """A time with a zone, in UTC. ValueError where that is not in the years 1 to 9999."""
    try:
        return time.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None


def seconds_later(time: datetime, seconds: float) -> datetime | None:
    """A time so much later; None where there is no such time."""
    try:
        return time + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None
