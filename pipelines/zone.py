"""Time zones as a caller names them, on the command line, in `kvpressure.toml` or in the environment: which there are.

A zone is kept as a name of the time zone database, for that is what DuckDB, polars, zoneinfo and Dagster all know. An offset is
taken for the zone that has it all year: `+02:00` is Etc/GMT-2 (POSIX turns the sign round), `+05:30` is Asia/Kolkata.
"""

from __future__ import annotations

import re
from functools import cache
from zoneinfo import available_timezones

from pipelines.nearest import meant

NO_PLACES = {"Factory", "localtime", "posixrules"}  # names that come with the database, and that no other library knows
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d?)(?::?([0-5]\d))?", re.ASCII)
# what is no whole hour, by a place whose clocks have shown it all year since the first of these engines ran
_ALL_YEAR = {
    "+03:30": "Asia/Tehran",
    "+04:30": "Asia/Kabul",
    "+05:30": "Asia/Kolkata",
    "+05:45": "Asia/Kathmandu",
    "+06:30": "Asia/Yangon",
    "+08:45": "Australia/Eucla",
    "+09:30": "Australia/Darwin",
    "-09:30": "Pacific/Marquesas",
}
_HALF_A_YEAR = {
    "-03:30": "America/St_Johns",
    "-02:30": "America/St_Johns",
    "+10:30": "Australia/Adelaide or Australia/Lord_Howe",
    "+12:45": "Pacific/Chatham",
    "+13:45": "Pacific/Chatham",
}
# abbreviations as logs and people write them; each is of half a year only, or of several places
_ABBREVIATED = {
    "CEST": "Europe/Berlin",
    "EEST": "Europe/Athens",
    "WEST": "Europe/Lisbon",
    "BST": "Europe/London",
    "MSK": "Europe/Moscow",
    "EDT": "America/New_York",
    "CDT": "America/Chicago",
    "CST": "America/Chicago or Asia/Shanghai",
    "MDT": "America/Denver",
    "PDT": "America/Los_Angeles",
    "PST": "America/Los_Angeles",
    "BRT": "America/Sao_Paulo",
    "IST": "Asia/Kolkata, Asia/Jerusalem or Europe/Dublin",
    "JST": "Asia/Tokyo",
    "KST": "Asia/Seoul",
    "HKT": "Asia/Hong_Kong",
    "SGT": "Asia/Singapore",
    "AEST": "Australia/Sydney or Australia/Brisbane",
    "AEDT": "Australia/Sydney",
    "NZST": "Pacific/Auckland",
    "NZDT": "Pacific/Auckland",
}


class NoZoneError(ValueError):
    """A text that names no zone. Its message is one line: what it is instead, and what to write."""


def zone_name(text: str) -> str:
    """The name of the zone that a text means: itself, or the zone that keeps an offset. NoZoneError where there is none."""
    if text in _names():
        return text
    if offset := _OFFSET.fullmatch(text):
        return _of_offset(offset[1], int(offset[2]), offset[3] or "00", text)
    if places := _ABBREVIATED.get(text.upper()):
        raise NoZoneError(f"`{text}` is an abbreviation, no time zone; use the name {places}, or an offset such as +02:00")
    hint = meant(text, _names(), "use a name such as Europe/Berlin or UTC, or an offset such as +01:00")
    raise NoZoneError(f"`{text}` is not a time zone; {hint}")


def spoken(zone: str) -> str:
    """A zone as people write it: Etc/GMT-2 is UTC+2."""
    hours = zone.removeprefix("Etc/GMT")
    return zone if hours == zone or not hours else f"UTC{hours.translate(str.maketrans('+-', '-+'))}"


def _of_offset(sign: str, hours: int, minutes: str, text: str) -> str:
    told = f"{sign}{hours:02}:{minutes}"
    if minutes == "00" and hours <= (14 if sign == "+" else 12):
        return f"Etc/GMT{'-' if sign == '+' else '+'}{hours}" if hours else "UTC"
    if place := _ALL_YEAR.get(told):
        return place
    if place := _HALF_A_YEAR.get(told):
        raise NoZoneError(f"`{text}` is kept for half a year only, wherever it is; use the name {place}")
    raise NoZoneError(f"`{text}` is the offset of no place; use a name such as Europe/Berlin or UTC, or an offset such as +01:00")


@cache
def _names() -> frozenset[str]:
    return frozenset(available_timezones() - NO_PLACES)
