"""Zone and year of local stamps: a log's by what it shares with the other sources, a result's date by the metrics or the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl

from parsers.columns import PLACEHOLDER_YEAR
from pipelines.clock.origins import DATE_ERROR_S, Origin
from pipelines.clock.sightings import FEW, Rises, tagged
from pipelines.clock.stamps import ZONES, Reading, absolute, distinct_zones, in_year, is_leap, known_zone, resolution
from pipelines.models import Run

SAME_CLOCK_S = 60.0  # two hosts' wall clocks further apart than this are not taken for the same zone


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
        """Requests of the log that another source saw at a known time: `at_local`, `seen_s`."""
        lines = self.lines.filter((pl.col("source") == log) & pl.col("at_local").is_not_null())
        by_id = lines.join(self.spans.select("request_id", "arrived_s"), on="request_id").select(
            "at_local", pl.col("arrived_s").alias("seen_s")
        )
        if by_id.height:
            return by_id
        parts = [
            pairs.select("at_local", (pl.col("sent_s") + origin.epoch_s).alias("seen_s"))
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


def _read_log(log: Mapping[str, datetime | float | bool | None], witnesses: Witnesses, run: Run) -> Reading:
    """Zone and year of one log: as given, by its requests, by its load, by where it overlaps at all; else assumed."""
    stamps = pl.Series([log["first_local"], log["last_local"]], dtype=pl.Datetime("us"))
    windows = witnesses.windows()
    zones = known_zone(run.timezone) if run.timezone else ZONES
    options = [
        Reading(zone, year, None, "")
        for year in _years(log, stamps, windows, witnesses.dates, run)
        for zone in distinct_zones(zones, stamps[0], year)
    ]
    resolution_s = resolution(pl.Series([stamp.microsecond / 1e6 for stamp in stamps if stamp]))
    given = f"zone as given ({run.timezone}), year" if run.timezone else "zone and year"

    if (seen := witnesses.seen_elsewhere(str(log["source"]))).height:
        # both stamps of an arrival differ by the flooring and the two hosts' clocks; a wrong zone is off by a quarter of an hour
        late = {option: abs(float((absolute(seen["at_local"], option) - seen["seen_s"]).median() or 0.0)) for option in options}  # type: ignore[arg-type]
        best = min(options, key=lambda option: late[option])
        if late[best] <= SAME_CLOCK_S:
            return Reading(best.zone, best.base_year, max(resolution_s, late[best]), f"{given} from {seen.height} request lines")

    overlaps = {option: _overlap(absolute(stamps, option).to_list(), windows) for option in options}
    possible = [option for option in options if overlaps[option] > 0.0]
    alike = {option: _likeness(str(log["source"]), option, witnesses.curves) for option in possible}
    likeness = {option: value for option, value in alike.items() if value is not None}
    ranked = sorted(likeness, key=lambda option: -likeness[option])
    if ranked and likeness[ranked[0]] >= 0.5 and (len(ranked) == 1 or likeness[ranked[1]] <= 0.8 * likeness[ranked[0]]):
        return Reading(
            ranked[0].zone,
            ranked[0].base_year,
            resolution_s + 1.0,
            f"{given} from the running requests it shares with the metrics",
        )
    if len(possible) == 1:
        return Reading(
            possible[0].zone, possible[0].base_year, resolution_s, f"{given}: the only one in which it meets the other sources"
        )
    if run.timezone:
        best = max(options, key=lambda option: overlaps[option])
        return Reading(
            best.zone, best.base_year, resolution_s, f"zone as given ({run.timezone}), year nearest to the other sources"
        )
    if possible:
        widest = max(overlaps[option] for option in possible)
        best = next((option for option in possible if overlaps[option] >= 0.9 * widest), possible[0])
        return Reading(best.zone, best.base_year, None, f"assumed {best.zone}: {len(possible)} zones fit, nothing tells which")
    whence = (
        "the other sources"
        if windows
        else "the benchmark's date"
        if _dates_known(witnesses.dates)
        else "the window"
        if _asked_for(run)
        else "today's date"
    )
    return Reading("UTC", options[0].base_year, None, f"assumed UTC, year from {whence}")


def _dates_known(dates: pl.DataFrame) -> bool:
    return dates["date_local"].drop_nulls().len() > 0


def _years(
    log: Mapping[str, object], stamps: pl.Series, windows: Sequence[tuple[float, float]], dates: pl.DataFrame, run: Run
) -> Sequence[int | None]:
    """Years that may stand for the placeholder, likeliest first; [None] where the stamps have their own."""
    first, last = stamps[0], stamps[1]
    if first.year >= PLACEHOLDER_YEAR + 10:
        return [None]
    reference = [datetime.fromtimestamp(edge, UTC).replace(tzinfo=None) for window in windows for edge in window]
    reference = reference or dates["date_local"].drop_nulls().to_list() or _asked_for(run)
    span = range(-5, 2)
    if reference:
        middle = sorted(reference)[len(reference) // 2]
        near = [middle.year + step for step in span if not log["has_leap_day"] or is_leap(middle.year + step)]
        return sorted(near, key=lambda year: abs((in_year(first, year) - middle).total_seconds()))[:2]
    now = datetime.now(UTC).replace(tzinfo=None)
    past = [now.year + step for step in range(1, -9, -1) if not log["has_leap_day"] or is_leap(now.year + step)]
    return [next(year for year in past if in_year(last, year) <= now)]


def _asked_for(run: Run) -> list[datetime]:
    """The ends of the window asked for: what else says nothing of its year is of the year that was meant."""
    return [datetime.fromisoformat(edge).astimezone(UTC).replace(tzinfo=None) for edge in (run.since, run.until) if edge]


def _overlap(edges: Sequence[float | None], windows: Sequence[tuple[float, float]]) -> float:
    """Seconds for which first to last meets the widest overlapping window; a meeting in one instant counts as a little."""
    first, last = edges
    if first is None or last is None:
        return 0.0
    return max((min(last + 1, end) - max(first, begin) + 1e-6 for begin, end in windows), default=0.0)


def _likeness(log: str, reading: Reading, curves: pl.DataFrame) -> float | None:
    """How alike the log's running and waiting requests are to the gauges under a reading, 0 to 1; None where either is silent."""
    shared = every = 0.0
    for name in ("running", "waiting"):
        said = curves.filter((pl.col("source") == log) & (pl.col("name") == name) & pl.col("local_at").is_not_null())
        gauge = curves.filter((pl.col("name") == name) & pl.col("utc_at").is_not_null() & (pl.col("source") != log)).sort(
            "utc_at"
        )
        if said.height < FEW or gauge.height < FEW:
            continue
        gauge_s = (gauge["utc_at"].dt.epoch("us") / 1e6).to_list()
        values = gauge["value"].to_list()
        reach_s = 2 * float((pl.Series(gauge_s).diff().drop_nulls().median()) or 1.0)  # type: ignore[arg-type]
        for at_s, value in zip(absolute(said["local_at"], reading), said["value"], strict=True):
            index = bisect_right(gauge_s, (at_s or 0.0) + 0.5) - 1
            other = values[index] if index >= 0 and at_s - gauge_s[index] <= reach_s else 0.0
            shared, every = shared + min(value, other), every + max(value, other)
    return shared / every if every else None


def read_dates(dates: pl.DataFrame, curves: pl.DataFrame, logs: Mapping[str, Reading], run: Run) -> dict[str, Reading]:
    """The zone of the dates that benchmark results carry: as given, by the requests the metrics count in it, else the log's."""
    finished = Rises.of(curves, "finished")
    readings = {}
    for (name,), runs in sorted(dates.filter(pl.col("date_local").is_not_null()).partition_by("source", as_dict=True).items()):
        if run.timezone:
            readings[str(name)] = Reading(known_zone(run.timezone)[0], None, DATE_ERROR_S, f"zone as given ({run.timezone})")
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
