"""Time zones as a caller names them: names, offsets, and what is neither."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import polars as pl
import pytest

from pipelines import zone
from pipelines.clock.stamps import ZONES, zone_ahead
from pipelines.duck import connect
from pipelines.zone import NoZoneError, spoken, zone_name

WINTER, SUMMER = datetime(2026, 1, 15, 12, tzinfo=UTC), datetime(2026, 7, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize("day", [WINTER, SUMMER, datetime(2023, 7, 1, tzinfo=UTC)])
@pytest.mark.parametrize("quarters", range(-12 * 4, 14 * 4 + 1))
def test_an_offset_is_the_zone_that_keeps_it_all_year_or_is_no_zone(quarters, day):
    sign, minutes = "-" if quarters < 0 else "+", abs(quarters) * 15
    text = f"{sign}{minutes // 60:02}:{minutes % 60:02}"
    offset = timedelta(minutes=15 * quarters)
    kept_now = {name for name in ZONES if day.astimezone(ZoneInfo(name)).utcoffset() == offset}
    if name := _name_or_none(text):
        assert day.astimezone(ZoneInfo(name)).utcoffset() == offset
    else:
        assert minutes % 60
        with pytest.raises(NoZoneError, match="|".join(kept_now) or "no place|half a year"):
            zone_name(text)


def _name_or_none(text):
    with suppress(NoZoneError):
        return zone_name(text)
    return None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *(("+01:00", "Etc/GMT-1"), ("-0500", "Etc/GMT+5"), ("+00", "UTC"), ("-00:00", "UTC"), ("+1", "Etc/GMT-1")),
        *(("+05:30", "Asia/Kolkata"), ("+0545", "Asia/Kathmandu"), ("UTC+2", "Etc/GMT-2"), ("GMT-09:30", "Pacific/Marquesas")),
        *(("Europe/Berlin", "Europe/Berlin"), ("UTC", "UTC"), ("CET", "CET"), ("Etc/GMT+5", "Etc/GMT+5")),
    ],
)
def test_a_zone_may_be_a_name_or_an_offset(text, name):
    assert zone_name(text) == name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CEST", "abbreviation, no time zone; use the name Europe/Berlin, or an offset such as"),
        ("cest", "use the name Europe/Berlin"),
        ("IST", "use the name Asia/Kolkata, Asia/Jerusalem or Europe/Dublin"),
        ("-02:30", "half a year only, wherever it is; use the name America/St_Johns"),
        ("+05:20", "offset of no place"),
        ("-13:00", "offset of no place"),
        ("+15", "offset of no place"),
        ("Europe/Brelin", "did you mean `Europe/Berlin`"),
        ("localtime", "use a name such as Europe/Berlin or UTC, or an offset such as +01:00"),
        ("", "use a name such as"),
        ("../etc/passwd", "is not a time zone"),
    ],
)
def test_what_is_no_zone_is_told_with_what_to_write(text, told):
    with pytest.raises(NoZoneError, match=told.replace("+", r"\+")) as error:
        zone_name(text)
    assert "\n" not in str(error.value)


def test_every_name_that_is_taken_is_known_wherever_a_zone_goes():
    """By DuckDB and by polars, which bring a database of their own, as by zoneinfo; and what is proposed is a name."""
    stamp = SUMMER.replace(tzinfo=None)
    with connect() as con:
        for name in sorted(zone._names()):
            own = stamp.replace(tzinfo=ZoneInfo(name)).timestamp()
            assert con.execute("select epoch(timezone(?, ?))", [name, stamp]).fetchone() == (own,), name
            assert pl.Series([stamp]).dt.replace_time_zone(name).dt.epoch("s")[0] == own, name
    proposed = [*zone._ALL_YEAR.values(), *zone._HALF_A_YEAR.values(), *zone._ABBREVIATED.values()]
    names = {name for text in proposed for name in text.replace(" or ", ", ").split(", ")}
    assert names <= available_timezones()
    assert not zone._ABBREVIATED.keys() & zone._names()


def test_a_zone_is_spoken_of_as_people_write_it():
    assert [spoken(name) for name in ("Etc/GMT-2", "Etc/GMT+5", "Asia/Kolkata", "Etc/GMT")] == [
        "UTC+2",
        "UTC-5",
        "Asia/Kolkata",
        "Etc/GMT",
    ]


@pytest.mark.parametrize(("hours", "name"), [(0, "UTC"), (5.5, "Asia/Kolkata"), (-2.5, "America/St_Johns"), (-8, "Etc/GMT+8")])
@pytest.mark.parametrize("days", [0, -9496])
def test_the_zone_of_stamps_that_stand_beside_absolute_times(hours, name, days):
    """Half hours too; the placeholder year is whole days away."""
    assert zone_ahead({"local_ahead_s": days * 86400 + hours * 3600 - 0.4, "first_utc": SUMMER}) == name
    assert zone_ahead({"local_ahead_s": None, "first_utc": SUMMER}) is None
    assert zone_ahead({"local_ahead_s": 3600.0, "first_utc": datetime.max.replace(tzinfo=UTC)}) == "Etc/GMT-1"
