"""How far a log's clock is off, as two sides say who saw the same: its request lines, or its statistics lines and the metrics.

    INFO 11-29 13:12:32 … Running: 12 reqs, Waiting: 20 reqs, GPU KV cache usage: 98.3%     every ten seconds, by the log's clock
    vllm:num_requests_running 12, vllm:num_requests_waiting 20, vllm:kv_cache_usage_perc …  every scrape, by that of the metrics

Requests that another source saw too say it to the second. Where there are none, the statistics lines are moved over the scrapes,
and the lag is looked for at which both say the same. It is told only where that is decisive: the load moved, both say nearly the
same at one lag, and clearly not at any other, above all not where the clocks put them. Nothing is moved for it: it is said.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import polars as pl

from pipelines.clock.sightings import FEW
from pipelines.clock.stamps import Reading, absolute

SAME_CLOCK_S = 60.0  # two hosts' clocks closer than this are said to be one, within the error that is told
WITHIN_S = 3900.0  # as far as a load is looked for: an hour, which a zone may be wrong by, and what clocks are off besides
ZONES_APART_S = 26 * 3600.0  # as far as requests are believed: what is off by more is of another day
STEADY_S = 2.0  # what the distances of a request's two stamps may differ by among requests: flooring, and the way to the log
LOAD = ("running", "waiting", "kv_usage_ratio")
FEWEST_CHANGES = 6  # lines that say another load than the one before
MOST_LINES = 60  # that are looked at of one log
MOST_PAGES = 3  # sources of metrics it is held against: more are of a fleet, and each log of one server of it
FINEST_S = 2.0  # steps in which it is moved
COVERED, LOOKED_AT = 0.8, 0.5  # share of the lines beside a scrape: at the lag that is told, and at those it is held against
ALIKE, CLEARLY = 0.7, 0.3  # of an agreement of 1


@dataclass(frozen=True)
class Skew:
    """How many seconds a log's clock is ahead of that of the other inputs (behind, where negative), and what says so."""

    ahead_s: float
    told_by: str


def skew_of(log: str, reading: Reading | None, seen: pl.DataFrame, curves: pl.DataFrame) -> Skew | None:
    """The skew of a log's clock, where something decides it and it is more than two hosts' clocks are apart."""
    for ahead_s, told_by in (
        (by_requests(seen, reading), f"{seen.height} requests that other inputs saw too"),
        (by_load(log, reading, curves), "running, waiting and KV usage as the metrics have them"),
    ):
        if ahead_s is not None:
            return Skew(ahead_s, told_by) if abs(ahead_s) > SAME_CLOCK_S else None
    return None


def by_requests(seen: pl.DataFrame, reading: Reading | None) -> float | None:
    """Seconds that a log is ahead of who else saw its requests; None where these do not say one thing."""
    if seen.height < FEW:
        return None
    apart = (moments(seen, reading) - seen["seen_s"]).drop_nulls()
    middle = apart.median()
    if not isinstance(middle, float):
        return None
    is_steady = (apart - middle).abs().median() <= STEADY_S  # type: ignore[operator]
    return middle if is_steady and abs(middle) <= ZONES_APART_S else None


def by_load(log: str, reading: Reading | None, curves: pl.DataFrame) -> float | None:
    """Seconds that a log is ahead of the metrics, by what both say of the load; None where that is not decisive."""
    said = curves.filter((pl.col("source") == log) & pl.col("is_log"))
    scraped = curves.filter(~pl.col("is_log") & pl.col("name").is_in(LOAD)).partition_by("source", maintain_order=True)
    if said.is_empty() or len(scraped) > MOST_PAGES:
        return None
    pairs = [[each for name in LOAD if (each := _Curve.of(name, said, gauges, reading))] for gauges in scraped]
    pairs = [pair for pair in pairs if len(pair) >= 2 and max(curve.changes for curve in pair) >= FEWEST_CHANGES]
    if any(now.covered >= COVERED and now.alike >= ALIKE for pair in pairs if (now := _agreement(pair, 0.0))):
        return None  # as nearly always: it agrees as it stands
    lags = [lag_s for pair in pairs if (lag_s := _lag(pair)) is not None]
    # of several metrics, which may be of several servers, all that it agrees with must say the same
    return -lags[0] if lags and all(lags) and max(lags) - min(lags) <= SAME_CLOCK_S else None


def _lag(pair: Sequence[_Curve]) -> float | None:
    """How much later than their stamps the lines are where the scrapes say the same; None where no lag is the only one.

    0 where it is less than can be told from none.
    """
    scrape_s = max(curve.scrape_s for curve in pair)
    step_s = max(FINEST_S, min(curve.scrape_s for curve in pair))
    tried = {
        step * step_s: _agreement(pair, step * step_s) for step in range(-int(WITHIN_S / step_s), int(WITHIN_S / step_s) + 1)
    }
    alike = {lag_s: told.alike for lag_s, told in tried.items() if told and told.covered >= LOOKED_AT}
    whole = [lag_s for lag_s, told in tried.items() if told and told.covered >= COVERED]
    best = max(whole, key=lambda lag_s: alike[lag_s], default=None)
    if best is None or alike[best] < ALIKE:
        return None
    width_s = max(SAME_CLOCK_S / 2, 4 * scrape_s)
    is_only_one = all(abs(lag_s - best) <= width_s for lag_s, other in alike.items() if other > alike[best] - CLEARLY)
    if not is_only_one:
        return None
    return best if abs(best) > max(SAME_CLOCK_S, width_s) else 0.0


def moments(rows: pl.DataFrame, reading: Reading | None) -> pl.Series:
    """Epoch seconds of stamps: their own `utc_s`, else `at_local` under the reading."""
    if reading is None:
        return rows["utc_s"]
    return rows["utc_s"].fill_null(absolute(rows["at_local"], reading))


@dataclass(frozen=True)
class _Agreement:
    alike: float  # 1 where all is the same, 0 where scrapes say no more of a line than that it is a usual one
    covered: float  # share of the lines that lie beside a scrape


@dataclass(frozen=True)
class _Curve:
    """One quantity as lines say it and as scrapes do."""

    at_s: Sequence[float]
    values: Sequence[float]
    usual: float  # mean distance of the lines from their median
    changes: int
    scraped_s: Sequence[float]
    scraped: Sequence[float]
    scrape_s: float

    @classmethod
    def of(cls, name: str, said: pl.DataFrame, gauges: pl.DataFrame, reading: Reading | None) -> _Curve | None:
        """The curve of that name; None where one side lacks it or the lines hardly move."""
        lines = said.filter(pl.col("name") == name)
        scrapes = gauges.filter(pl.col("name") == name).sort("utc_at")
        if lines.height < FEW or scrapes.height < FEW:
            return None
        stamps = lines.select(pl.col("local_at").alias("at_local"), (pl.col("utc_at").dt.epoch("us") / 1e6).alias("utc_s"))
        lines = lines.with_columns(moments(stamps, reading).alias("at_s")).drop_nulls("at_s").sort("at_s")
        changes = lines.filter(pl.col("value") != pl.col("value").shift(1)).height
        if lines.height > MOST_LINES:  # those in which the load changed say the most
            lines = lines.filter(pl.col("value") != pl.col("value").shift(1)) if changes >= MOST_LINES else lines
            lines = lines.gather_every(-(-lines.height // MOST_LINES))
        values = lines["value"].to_list()
        middle = median(values) if values else 0.0
        usual = sum(abs(value - middle) for value in values) / len(values) if values else 0.0
        if changes < FEW or not usual:
            return None
        scraped_s = (scrapes["utc_at"].dt.epoch("us") / 1e6).to_list()
        scrape_s = float(scrapes["utc_at"].dt.epoch("us").diff().drop_nulls().median() or 1e6) / 1e6  # type: ignore[arg-type]
        return cls(lines["at_s"].to_list(), values, usual, changes, scraped_s, scrapes["value"].to_list(), scrape_s)

    def held_against_scrapes(self, lag_s: float) -> _Agreement | None:
        """How alike both are where the lines are that much later than their stamps; None where no line meets a scrape."""
        off, met = 0.0, 0
        for at_s, value in zip(self.at_s, self.values, strict=True):
            moment = at_s + lag_s + 0.5  # a stamp is floored to the second
            index = bisect_right(self.scraped_s, moment) - 1
            if index >= 0 and moment - self.scraped_s[index] <= 2 * self.scrape_s:
                off += abs(value - self.scraped[index])
                met += 1
        return _Agreement(1 - off / met / self.usual, met / len(self.values)) if met else None


def _agreement(curves: Sequence[_Curve], lag_s: float) -> _Agreement | None:
    """How alike the least alike curve is; None where one has nothing to be held against."""
    alike, covered = 1.0, 1.0
    for curve in curves:
        told = curve.held_against_scrapes(lag_s)
        if told is None:
            return None
        alike, covered = min(alike, told.alike), min(covered, told.covered)
    return _Agreement(alike, covered)
