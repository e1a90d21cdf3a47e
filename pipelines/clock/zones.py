"""Zone and year of local stamps: a log's by what it shares with the other sources, a result's date by the metrics or the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Any

import polars as pl

from pipelines.clock.origins import DATE_ERROR_S, Origin
from pipelines.clock.sightings import FEW, Rises, tagged
from pipelines.clock.skew import SAME_CLOCK_S, by_requests
from pipelines.clock.stamps import ZONES, Reading, absolute, distinct_zones, in_year, is_leap, known_zone, resolution
from pipelines.models import Run
from pipelines.zone import spoken

LEAP_YEARS_APART = 8  # at most: 1896 and 1904
ALIKE = 0.5  # of what either side says of the load, both say at least so much
A_RIVAL, CLEARLY_LESS = 0.2, 0.8  # of the load shared in the best zone: what makes another worth a look, and what it may share


@dataclass(frozen=True)
class Witnesses:
    """Everything a log can be compared with."""

    sources: pl.DataFrame
    curves: pl.DataFrame
    spans: pl.DataFrame
    lines: pl.DataFrame
    requests: pl.DataFrame
    dates: pl.DataFrame
    placed: Mapping[str, Origin]

    def windows(self) -> list[tuple[float, float]]:
        """First and last second of everything that is on absolute time."""
        timed = self.sources.filter(pl.col("first_utc").is_not_null())
        seconds = [pl.col(name).dt.epoch("us") / 1e6 for name in ("first_utc", "last_utc")]
        windows = list(timed.select(seconds).iter_rows())
        for name, origin in self.placed.items():
            mine = self.requests.filter(pl.col("source") == name)
            first_s, last_s = mine.select(pl.col("sent_s").min(), pl.col("client_last_s").max()).row(0)
            windows.append((first_s + origin.epoch_s, (last_s or first_s) + origin.epoch_s))
        return windows

    def seen_elsewhere(self, log: str) -> pl.DataFrame:
        """Requests of the log that another source saw at a known time: `at_local` or `utc_s`, and `seen_s`."""
        lines = self.lines.filter(pl.col("source") == log)
        by_id = lines.join(self.spans.select("request_id", "arrived_s"), on="request_id").select(
            "at_local", "utc_s", pl.col("arrived_s").alias("seen_s")
        )
        if by_id.height:
            return by_id
        parts = [
            pairs.select("at_local", "utc_s", (pl.col("sent_s") + origin.epoch_s).alias("seen_s"))
            for name, origin in self.placed.items()
            for pairs in tagged(
                self.requests.filter(pl.col("source") == name), lines.filter(pl.col("request_index").is_not_null())
            )
        ]
        return pl.concat(parts) if parts else by_id


def read_logs(logs: pl.DataFrame, witnesses: Witnesses, run: Run) -> dict[str, Reading]:
    """How each log is read. One that nothing places borrows the zone of one that is placed."""
    readings = {row["source"]: _read_log(row, witnesses, run) for row in logs.iter_rows(named=True)}
    sure = next((name for name, reading in sorted(readings.items()) if reading.error_s is not None), None)
    if sure is None:
        return readings
    borrowed = readings[sure]
    return {
        name: Reading(borrowed.zone, reading.base_year, None, f"assumed the zone of {sure}")
        if reading.error_s is None
        else reading
        for name, reading in readings.items()
    }


def _read_log(log: Mapping[str, Any], witnesses: Witnesses, run: Run) -> Reading:
    """Zone and year of one log: as given, by its requests, by its load, by where it overlaps at all; else assumed."""
    ends = ("first_local", "last_undated", "first_dated", "last_local")  # without a year, then with one, each in order
    stamps = pl.Series([log[end] for end in ends if log[end] is not None], dtype=pl.Datetime("us"))
    windows = witnesses.windows()
    zones = (known_zone(run.timezone),) if run.timezone else ZONES
    years, whence = _years(log, windows, witnesses.dates, run)
    options = [Reading(zone, year, None, "") for year in years for zone in distinct_zones(zones, stamps[0], year)]
    resolution_s = resolution(pl.Series([stamp.microsecond / 1e6 for stamp in stamps]))

    def told(how: str) -> str:
        """What told the zone, where it was not given, and the year, where the stamps lack it."""
        if run.timezone:
            return f"zone as given ({spoken(run.timezone)})" + ("" if years == [None] else f", year {how}")
        return f"zone{'' if years == [None] else ' and year'} {how}"

    if (seen := witnesses.seen_elsewhere(str(log["source"])).drop_nulls("at_local")).height:
        # both stamps of an arrival differ by the flooring and the two hosts' clocks; a wrong zone is off by a quarter of an hour
        late = {option: abs(float((absolute(seen["at_local"], option) - seen["seen_s"]).median() or 0.0)) for option in options}  # type: ignore[arg-type]
        best = min(options, key=lambda option: late[option])
        if late[best] <= SAME_CLOCK_S or by_requests(seen, best) is not None:
            return replace(best, error_s=max(resolution_s, late[best]), method=told(f"from {seen.height} request lines"))

    overlaps = {option: _overlap(absolute(stamps, option).to_list(), windows) for option in options}
    possible = [option for option in options if overlaps[option] > 0.0]
    if best := _by_load(str(log["source"]), possible, witnesses.curves):
        method = told("from the running requests it shares with the metrics")
        return replace(best, error_s=resolution_s + 1.0, method=method)
    if len(possible) == 1:
        return replace(possible[0], error_s=resolution_s, method=told("from the only way in which it meets the other sources"))
    if run.timezone:
        best = max(options, key=lambda option: overlaps[option])
        as_given = replace(best, error_s=resolution_s, method=told(f"{'nearest to' if windows else 'from'} {whence}"))
        return as_given if possible else _doubted(as_given, stamps, windows)
    if possible:
        widest = max(overlaps[option] for option in possible)
        best = next((option for option in possible if overlaps[option] >= 0.9 * widest), possible[0])
        return replace(best, method=f"assumed {best.zone}: {len(possible)} zones fit, nothing tells which")
    return Reading("UTC", years[0], None, "assumed UTC" + ("" if years == [None] else f", year from {whence}"))


def _doubted(given: Reading, stamps: pl.Series, windows: Sequence[tuple[float, float]]) -> Reading:
    """A zone that was given and lets the log meet nothing, with doubt where another would let half of it meet another input."""
    half_s = (stamps.max() - stamps.min()).total_seconds() / 2  # type: ignore[operator, union-attr]
    for zone in ZONES:
        if _overlap(absolute(stamps, replace(given, zone=zone)).to_list(), windows) > half_s:
            method = f"{spoken(given.zone)}, as given, in which it meets no other input; in {spoken(zone)} it would"
            return replace(given, error_s=None, method=method)
    return given


def _years(
    log: Mapping[str, Any], windows: Sequence[tuple[float, float]], dates: pl.DataFrame, run: Run
) -> tuple[Sequence[int | None], str]:
    """Years that may stand for the placeholder, likeliest first, and what says so; [None] where all stamps have their own."""
    last = log["last_undated"]
    if last is None:
        return [None], "its own stamps"
    if log["first_dated"] is not None:  # some of its lines have a year, others not
        return _nearest(log, [log["first_dated"], log["last_local"]])[:1], "its own stamps"
    reference = [datetime.fromtimestamp(edge, UTC).replace(tzinfo=None) for window in windows for edge in window]
    for moments, whence in (
        (reference, "the other sources"),
        (dates["date_local"].drop_nulls().to_list(), "the benchmark's date"),
        (_asked_for(run), "the window"),
    ):
        if moments:
            return _nearest(log, moments)[:2], whence
    now = datetime.now(UTC).replace(tzinfo=None)
    past = [now.year + step for step in range(1, -9, -1) if not log["has_leap_day"] or is_leap(now.year + step)]
    return [next(year for year in past if in_year(last, year) <= now)], "today's date"


def _nearest(log: Mapping[str, Any], moments: Sequence[datetime]) -> list[int]:
    """Years that may stand for the placeholder, the one nearest to the middle of the moments first."""
    middle = sorted(moments)[len(moments) // 2]
    near = min(max(middle.year, MINYEAR + LEAP_YEARS_APART), MAXYEAR - 2 * LEAP_YEARS_APART)  # a stamp may be of the years after
    years = range(near - LEAP_YEARS_APART, near + 2)
    possible = [year for year in years if not log["has_leap_day"] or is_leap(year)]
    return sorted(possible, key=lambda year: abs((in_year(log["first_local"], year) - middle).total_seconds()))


def _asked_for(run: Run) -> list[datetime]:
    """The ends of the window asked for: what else says nothing of its year is of the year that was meant."""
    return [datetime.fromisoformat(edge).astimezone(UTC).replace(tzinfo=None) for edge in (run.since, run.until) if edge]


def _overlap(edges: Sequence[float | None], windows: Sequence[tuple[float, float]]) -> float:
    """Seconds for which first to last meets the widest overlapping window; a meeting in one instant counts as a little."""
    known = [edge for edge in edges if edge is not None]
    if len(known) < len(edges):
        return 0.0
    first, last = min(known), max(known)
    return max((min(last + 1, end) - max(first, begin) + 1e-6 for begin, end in windows), default=0.0)


def _by_load(log: str, options: Sequence[Reading], curves: pl.DataFrame) -> Reading | None:
    """The option under which the log and the gauges say the same of the load; None where several do, or none."""
    found = {option: alike for option in options if (alike := _Alike.under(option, log, curves)).shared}
    if not found:
        return None
    best = max(found, key=lambda option: found[option].shared)
    rivals = [alike for option, alike in found.items() if option is not best and alike.shared >= A_RIVAL * found[best].shared]
    is_clear = all(each.shared <= CLEARLY_LESS * found[best].shared and each.ratio <= found[best].ratio for each in rivals)
    return best if found[best].ratio >= ALIKE and is_clear else None


@dataclass(frozen=True)
class _Alike:
    """What a log and the gauges say of the load at the log's lines that the gauges cover, in requests summed over the lines."""

    shared: float = 0.0  # that both say
    every: float = 0.0  # that either says

    @property
    def ratio(self) -> float:
        return self.shared / self.every

    @classmethod
    def under(cls, reading: Reading, log: str, curves: pl.DataFrame) -> _Alike:
        """Of the running and the waiting requests. Lines before the first scrape and after the last are of another time."""
        shared = every = 0.0
        for name in ("running", "waiting"):
            said = curves.filter((pl.col("source") == log) & (pl.col("name") == name) & pl.col("local_at").is_not_null())
            is_gauge = (pl.col("name") == name) & pl.col("utc_at").is_not_null() & (pl.col("source") != log)
            gauge = curves.filter(is_gauge).sort("utc_at")
            if said.height < FEW or gauge.height < FEW:
                continue
            gauge_s = (gauge["utc_at"].dt.epoch("us") / 1e6).to_list()
            values = gauge["value"].to_list()
            reach_s = 2 * float((pl.Series(gauge_s).diff().drop_nulls().median()) or 1.0)  # type: ignore[arg-type]
            for at_s, value in zip(absolute(said["local_at"], reading), said["value"], strict=True):
                if at_s is None or not gauge_s[0] - reach_s <= at_s <= gauge_s[-1] + reach_s:
                    continue
                index = bisect_right(gauge_s, at_s + 0.5) - 1
                other = values[index] if index >= 0 and at_s - gauge_s[index] <= reach_s else 0.0
                shared, every = shared + min(value, other), every + max(value, other)
        return cls(shared, every)


def read_dates(dates: pl.DataFrame, curves: pl.DataFrame, logs: Mapping[str, Reading], run: Run) -> dict[str, Reading]:
    """The zone of the dates that benchmark results carry: as given, by the requests the metrics count in it, else the log's."""
    finished = Rises.of(curves, "finished")
    readings = {}
    for (name,), runs in sorted(dates.filter(pl.col("date_local").is_not_null()).partition_by("source", as_dict=True).items()):
        if run.timezone:
            readings[str(name)] = Reading(known_zone(run.timezone), None, DATE_ERROR_S, f"zone as given ({spoken(run.timezone)})")
            continue
        counted = {}
        if finished:
            for zone in distinct_zones(ZONES, runs["date_local"][0], None):
                ends = absolute(runs["date_local"], Reading(zone, None, None, ""))
                counted[zone] = sum(
                    _ratio(
                        finished.rise[
                            bisect_right(finished.at_s, end - length) : bisect_right(finished.at_s, end + finished.scrape_s)
                        ],
                        completed,
                    )
                    for end, length, completed in zip(ends, runs["duration_s"], runs["completed"], strict=True)
                    if end and length and completed
                ) / len(runs)
        ranked = sorted(counted, key=lambda zone: -counted[zone])
        log = next((reading for _, reading in sorted(logs.items())), None)
        if ranked and counted[ranked[0]] >= 0.8 and counted[ranked[1]] <= 0.8 * counted[ranked[0]]:
            readings[str(name)] = Reading(ranked[0], None, DATE_ERROR_S, "requests finished in the metrics")
        elif log:
            readings[str(name)] = Reading(log.zone, None, None if log.error_s is None else DATE_ERROR_S, "that of the log")
        else:
            readings[str(name)] = Reading("UTC", None, None, "assumed UTC")
    return readings


def _ratio(rises: Sequence[float], completed: float) -> float:
    total = sum(rises)
    return min(total, completed) / max(total, completed, 1.0)
