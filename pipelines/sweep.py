"""Where a sweep bends: the knee, the practical cache limit, and the levels that would tell them more closely.

The knee is the level after which more load stops buying tokens and costs more in tail latency than it gains in useful
throughput, each as a ratio. That is where throughput over tail latency is highest (Kleinrock's power), of the levels after which
throughput falls behind the load: as long as it rises in proportion nothing bends, however a tail of milliseconds multiplies.
How sure that is, is asked of the requests by drawing them again (`pipelines.resampling`). The practical cache limit needs no
estimate: the highest level below the first one in which running requests lost their KV blocks. What does not belong here: making
the levels (sql/marts/sweep_levels.sql), or drawing them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from random import Random
from typing import NamedTuple

import polars as pl

from pipelines.models import Run, python_model
from pipelines.resampling import LEVEL, quantile, redraw, resamples

SEED = 20
TAIL = 0.95  # of the longest waits of requests; sql/marts/sweep_levels.sql has the same
NAMES = {"concurrency": "concurrency", "rate": "request rate"}
FEWEST_LEVELS = 3  # two points bend nowhere
MOST_ADDED = 3  # levels proposed between two
IN_PROPORTION = 0.9  # log of the throughput's ratio over that of the load's, from which a step buys what it asks for

_SCHEMA = {
    "run": pl.String,
    "sweep": pl.String,
    "dimension": pl.String,
    "levels": pl.List(pl.Float64),
    "knee_level": pl.Float64,
    "knee_before": pl.Float64,
    "knee_low": pl.Float64,
    "knee_high": pl.Float64,
    "first_preempted_level": pl.Float64,
    "cache_limit_low": pl.Float64,
    "cache_limit_high": pl.Float64,
    "predicted_level": pl.Float64,
    "predicted_on_average": pl.Float64,
    "met_target_level": pl.Float64,
    "levels_to_add": pl.List(pl.Float64),
    "summary": pl.String,
    "remarks": pl.List(pl.String),
    "method": pl.String,
}


@dataclass(frozen=True)
class Request:
    """What a knee needs of one request."""

    output_tokens: float
    latency_s: float
    longest_wait_s: float


@dataclass(frozen=True)
class Level:
    """One level, its repetitions together. Preemptions are None where nothing counts them."""

    at: float
    useful: float | None
    tail_s: float | None
    in_flight: float | None
    preempted_low: float | None
    preempted_high: float | None
    met_target_share: float | None
    sent_share: float | None
    target_ttft_s: float
    target_gap_s: float
    requests: tuple[Request, ...]


class Point(NamedTuple):
    """What a knee is told by: a level's load, useful throughput and tail latency."""

    at: float
    useful: float
    tail_s: float


class Room(NamedTuple):
    """Sequences that the engines have room for; None where that is not known."""

    predicted: float | None = None  # in the pool, 95 % of the time
    on_average: float | None = None
    slots: float | None = None  # at once, by their own arguments


@python_model(
    "marts.sweep_knee",
    reads=("marts.sweep_levels", "core.sweep_requests", "core.pool_demand", "core.client_sums", "core.engines"),
)
def sweep_knee(tables: Mapping[str, pl.DataFrame], run: Run) -> pl.DataFrame:
    """Where a sweep bends, one row for each sweep and what it raised: the knee, the practical cache limit, and what to add.

    The knee is the level beyond which throughput falls behind the load and gains less than it costs in tail latency: of the
    levels whose next step does not raise throughput in proportion, that with the most useful tokens per second per second of tail
    latency. It needs three levels. Its interval holds it in 90 % of resamples of the requests; where the inputs are sums there is
    none, and the knee lies between its level and the next. The practical cache limit lies between the highest level below all
    preemption and the lowest with some.

    grain: run, sweep, dimension
    column: run                   VARCHAR   | The analyzed run.
    column: sweep                 VARCHAR   | Name of the sweep.
    column: dimension             VARCHAR   | concurrency or rate: what was raised.
    column: levels                DOUBLE[]  | Levels measured, in order.
    column: knee_level            DOUBLE    | Level after which throughput gains less than it costs; NULL of fewer than three.
    column: knee_before           DOUBLE    | The next level measured: the bend is not above it. NULL where none is.
    column: knee_low              DOUBLE    | Lowest knee_level in 90 % of the resamples; NULL where there are only sums.
    column: knee_high             DOUBLE    | Highest knee_level: the bend may lie between it and the next level measured.
    column: first_preempted_level DOUBLE    | Lowest level that surely preempted; NULL where none did, or it cannot be told.
    column: cache_limit_low       DOUBLE    | Highest level below all preemption; NULL if the lowest preempted, or none can tell.
    column: cache_limit_high      DOUBLE    | Lowest level with preemption; NULL where there was none.
    column: predicted_level       DOUBLE    | Concurrency above which lengths overflow the pool 5 % of the time; NULL if unknown.
    column: predicted_on_average  DOUBLE    | Concurrency at which the mean need of the lengths is the pool.
    column: met_target_level      DOUBLE    | Highest level up to which nine in ten requests met the latency target.
    column: levels_to_add         DOUBLE[]  | Levels that would narrow the knee or the limit down.
    column: summary               VARCHAR   | All of it in sentences.
    column: remarks               VARCHAR[] | Where the sweep stopped too early, skipped something, or what it could not tell.
    column: method                VARCHAR   | requests or sums: what the knee is of.
    check:  knee_low <= knee_level and knee_level <= knee_high | An interval holds its estimate.
    check:  cache_limit_low < cache_limit_high | The limit lies between two levels.
    """
    requests = _requests(tables["core.sweep_requests"])
    room = Room(*_predicted(tables["core.pool_demand"]), _slots(tables["core.engines"]))
    unexported = {name for row in tables["core.client_sums"].iter_rows(named=True) for name in row["unexported"] or []}
    rows = []
    ordered = tables["marts.sweep_levels"].sort("sweep", "dimension", "level", "source", "run_index").iter_rows(named=True)
    for (sweep, dimension), of_dimension in groupby(ordered, key=lambda row: (row["sweep"], row["dimension"])):
        levels = [_level(at, list(repeats), requests) for at, repeats in groupby(of_dimension, key=lambda row: row["level"])]
        limits = room if dimension == "concurrency" else Room()
        known = told(levels, dimension, room=limits, unexported=unexported)
        rows.append({"run": run.name, "sweep": sweep, "dimension": dimension, **known})
    return pl.DataFrame(rows, schema=_SCHEMA)


def told(
    levels: Sequence[Level],
    dimension: str,
    *,
    room: Room = Room(),  # noqa: B008 - never changed
    unexported: Iterable[str] = (),
) -> dict[str, object]:
    """Everything a sweep tells, as a row of `marts.sweep_knee` without its key."""
    knee = knee_of(levels)
    spread = knee_interval(levels) if knee is not None else None
    if spread and knee is not None:
        spread = (min(spread[0], knee), max(spread[1], knee))
    limit = cache_limit(levels)
    slots = room.slots if room.slots is not None and room.slots <= levels[-1].at else None  # where they are what binds
    following = dict(pairwise(level.at for level in levels))
    to_add, remarks = _gaps(levels, dimension, knee, limit, slots)
    if "kv_usage_ratio" in unexported:
        remarks.append(
            "KV usage reads 0 at every level although requests ran: it was never exported (the report asked for a metric that the"
            " server does not have), which is not the same as an empty pool."
        )
    row: dict[str, object] = {
        "levels": [level.at for level in levels],
        "knee_level": knee,
        "knee_before": following.get(knee) if knee is not None else None,
        "knee_low": spread[0] if spread else None,
        "knee_high": spread[1] if spread else None,
        "first_preempted_level": limit.high,
        "cache_limit_low": limit.low,
        "cache_limit_high": limit.high,
        "predicted_level": room.predicted,
        "predicted_on_average": room.on_average,
        "met_target_level": _met_target(levels),
        "levels_to_add": to_add,
        "remarks": remarks,
        "method": "requests" if all(level.requests for level in levels) else "sums",
    }
    return row | {"summary": _summary(levels, dimension, row, slots)}


# the knee


def knee_of(levels: Sequence[Level]) -> float | None:
    """The level after which throughput stops following the load; None for fewer than three levels with both numbers."""
    points = [Point(level.at, level.useful, level.tail_s) for level in levels if level.useful and level.tail_s]
    return _bend(points) if len(points) >= FEWEST_LEVELS else None


def _bend(points: Sequence[Point]) -> float:
    """Of the levels whose next step buys less than it asks for, and the last: that with the most power, the lowest of several."""
    bends = [point for point, after in pairwise(points) if not _is_in_proportion(point, after)]
    return -max((point.useful / point.tail_s, -point.at) for point in [*bends, points[-1]])[1]


def _is_in_proportion(point: Point, after: Point) -> bool:
    return math.log(after.useful / point.useful) >= IN_PROPORTION * math.log(after.at / point.at)


def knee_interval(levels: Sequence[Level], *, seed: int = SEED, confidence: float = LEVEL) -> tuple[float, float] | None:
    """The levels that are the knee in `confidence` of the resamples. None where a level has no requests to draw again."""
    if len(levels) < FEWEST_LEVELS or not all(level.requests and level.in_flight for level in levels):
        return None
    rng = Random(seed)  # noqa: S311 - repeatable on purpose
    count = resamples(sum(len(level.requests) for level in levels))
    knees = []
    for _ in range(count):
        points = [_point(level.at, redraw(level.requests, rng), level.in_flight or 0) for level in levels]
        if known := [point for point in points if point is not None]:
            knees.append(_bend(known))
    if not knees:
        return None
    ordered = sorted(knees)
    cut = int((1 - confidence) / 2 * len(ordered))  # levels are steps: an end lies on one, never between two
    return ordered[cut], ordered[len(ordered) - 1 - cut]


def _point(at: float, requests: Sequence[Request], in_flight: float) -> Point | None:
    """A level with these requests. By Little's law they take the sum of their latencies over the number in flight."""
    seconds = sum(each.latency_s for each in requests) / in_flight
    tail = quantile([each.longest_wait_s for each in requests], TAIL)
    return Point(at, sum(each.output_tokens for each in requests) / seconds, tail) if seconds > 0 and tail > 0 else None


# the limit


@dataclass(frozen=True)
class Limit:
    """Where state stops staying resident: above `low`, at or below `high`. Both None where nothing counts preemptions."""

    low: float | None
    high: float | None


def cache_limit(levels: Sequence[Level]) -> Limit:
    """Between the highest level below which, and in which, surely nothing was preempted, and the lowest with surely something."""
    counted = [level for level in levels if level.preempted_low is not None and level.preempted_high is not None]
    high = next((level.at for level in counted if (level.preempted_low or 0) > 0), None)
    low = None
    for level in counted:
        if (level.preempted_high or 0) > 0:
            break
        low = level.at
    return Limit(low, high)


def _met_target(levels: Sequence[Level]) -> float | None:
    met = None
    for level in levels:
        if level.met_target_share is None or level.met_target_share < 0.9:
            break
        met = level.at
    return met


# the levels to add


def _gaps(
    levels: Sequence[Level], dimension: str, knee: float | None, limit: Limit, slots: float | None
) -> tuple[list[float], list[str]]:
    """Levels that would tell more, and in words why."""
    ats = [level.at for level in levels]
    is_whole = dimension == "concurrency"
    counted = [level for level in levels if level.preempted_low is not None]
    to_add: list[float] = []
    remarks: list[str] = []
    if len(ats) < FEWEST_LEVELS:
        remarks.append(f"{len(ats)} levels bend nowhere: a knee needs {FEWEST_LEVELS} or more.")
        to_add += between(ats[0], ats[-1], is_whole=is_whole)
    if limit.high is not None:
        to_add += between(limit.low or 0.0, limit.high, is_whole=is_whole)
        if limit.low is None:
            remarks.append(f"The sweep began too high: the lowest level, {_said(dimension, ats[0])}, already preempted.")
    elif counted and slots is not None:
        remarks.append(f"The cache limit lies beyond max_num_seqs ({slots:g}): to find it, raise that before the concurrency.")
    elif counted:
        remarks.append(f"The sweep stopped before the cache limit: nothing was preempted up to {_said(dimension, ats[-1])}.")
        to_add += above(ats[-1], is_whole=is_whole)
    else:
        remarks.append("No input counts preemptions, and so none tells the cache limit: record /metrics beside the sweep.")
    if knee is not None and knee == ats[-1]:
        remarks.append(
            f"The sweep stopped too early for a knee: its highest level, {_said(dimension, ats[-1])}, still buys tokens."
        )
        to_add += above(ats[-1], is_whole=is_whole)
    elif knee is not None:
        following = ats[ats.index(knee) + 1]
        to_add += between(knee, following, is_whole=is_whole)
        if knee == ats[0]:
            remarks.append(f"How far below the knee lies cannot be told: {_said(dimension, ats[0])} is the lowest level.")
            to_add += between(0, knee, is_whole=is_whole)[-1:]
    slow = [level.at for level in levels if level.sent_share is not None and level.sent_share < 0.95]
    if slow:
        remarks.append(
            f"From {_said(dimension, slow[0])} on the client sent less than 95 % of the rate asked for: these levels are lower"
            " than they say."
        )
    return sorted(set(to_add) - set(ats)), remarks


def between(low: float, high: float, *, is_whole: bool) -> list[float]:
    """Up to three levels that part the space between two evenly; none where nothing lies between."""
    parts = [low + (high - low) * part / (MOST_ADDED + 1) for part in range(1, MOST_ADDED + 1)]
    return _rounded(parts, low, high, is_whole=is_whole)


def above(highest: float, *, is_whole: bool) -> list[float]:
    """Half as much again, and twice as much."""
    return _rounded([1.5 * highest, 2 * highest], highest, math.inf, is_whole=is_whole)


def _rounded(parts: Iterable[float], low: float, high: float, *, is_whole: bool) -> list[float]:
    told = {float(round(part)) if is_whole else float(f"{part:.3g}") for part in parts}
    return sorted(part for part in told if low < part < high)


# words


def _summary(levels: Sequence[Level], dimension: str, row: Mapping[str, object], slots: float | None) -> str:
    by_level = {level.at: level for level in levels}
    said = [f"{len(levels)} levels of {NAMES[dimension]}, {levels[0].at:g} to {levels[-1].at:g}."]
    knee, before = row["knee_level"], row["knee_before"]
    if isinstance(knee, float):
        sure = _sure(levels, row["knee_low"], row["knee_high"])
        if isinstance(before, float):
            # at the lowest level already: what would have told that it bends no earlier was not measured
            place = f"below {_said(dimension, before)}" if knee == levels[0].at else f"between {_said(dimension, knee, before)}"
            said.append(f"The knee lies {place}{sure}: {_step(by_level[knee], by_level[before])}")
        else:
            said.append(f"No knee up to {_said(dimension, knee)}{sure}.")
    low, high = row["cache_limit_low"], row["cache_limit_high"]
    if high is not None and low is not None:
        said.append(f"The practical cache limit lies between {_said(dimension, low, high)}: nothing was preempted up to {low:g}.")
    elif high is not None:
        said.append(f"The practical cache limit lies below {_said(dimension, high)}, the lowest level that surely preempted.")
    elif low is not None and slots is not None:
        said.append(f"Nothing was preempted: no more than {slots:g} run at once (max_num_seqs), and more clients only wait.")
    elif low is not None:
        said.append(f"The practical cache limit lies above {_said(dimension, low)}: no level up to it preempted.")
    if row["predicted_level"] is not None:
        said.append(
            f"Lengths and pool alone predict {row['predicted_level']:g} sequences (more overflow the pool over 5 % of the time),"
            f" and {row['predicted_on_average']:.1f} where the mean need fills it."
        )
    if any(level.met_target_share is not None for level in levels):
        target = f"a first token within {levels[0].target_ttft_s:g} s and no pause over {levels[0].target_gap_s:g} s"
        met = row["met_target_level"]
        said.append(
            f"Nine in ten requests met the target ({target}) up to {_said(dimension, met)}."
            if met is not None
            else f"Nine in ten requests met the target ({target}) at no level."
        )
    if row["levels_to_add"]:
        said.append(f"Levels to add: {', '.join(f'{each:g}' for each in row['levels_to_add'])}.")  # type: ignore[union-attr]
    return " ".join(said)


def _sure(levels: Sequence[Level], low: object, high: object) -> str:
    """The interval, as the knee is told: the bend lies between a level and the next, so the interval ends at the next, too."""
    if low is None:
        return ""
    beyond = next((level.at for level in levels if isinstance(high, float) and level.at > high), None)
    return f" ({100 * LEVEL:.0f} % interval: {low:g} {'or more' if beyond is None else f'to {beyond:g}'})"


def _step(knee: Level, after: Level) -> str:
    """What the first step beyond the knee gained and cost."""
    if not (knee.useful and after.useful and knee.tail_s and after.tail_s):
        return "beyond it tail latency rises faster than useful throughput."
    gain, cost = after.useful / knee.useful - 1, after.tail_s / knee.tail_s
    times = f"{cost:.0f}" if cost >= 10 else f"{cost:.1f}"
    gained = f"{'raises' if gain > 0 else 'lowers'} useful throughput by {abs(100 * gain):.0f} %"
    return f"the step from {knee.at:g} to {after.at:g} {gained} and multiplies the tail of the longest wait by {times}."


def _said(dimension: object, *levels: object) -> str:
    """Levels with their unit: concurrency 16 and 24, or 0.5 and 0.6 requests/s."""
    told = " and ".join(f"{level:g}" for level in levels)
    return f"concurrency {told}" if dimension == "concurrency" else f"{told} requests/s"


# rows


def _requests(frame: pl.DataFrame) -> dict[tuple[str, int], list[Request]]:
    """The completed requests of each result, in the order in which they came."""
    found: dict[tuple[str, int], list[Request]] = {}
    for row in frame.sort("arrived_at", "request_index", nulls_last=True).iter_rows(named=True):
        if not row["is_failed"] and row["output_tokens"] and row["latency_s"] and row["longest_wait_s"] is not None:
            request = Request(row["output_tokens"], row["latency_s"], row["longest_wait_s"])
            found.setdefault((row["source"], row["run_index"]), []).append(request)
    return found


def _level(at: float, rows: Sequence[Mapping], requests: Mapping[tuple[str, int], list[Request]]) -> Level:
    """The repetitions of a level as one: preemptions add up, the others are means."""
    drawn = tuple(request for row in rows for request in requests.get((row["source"], row["run_index"]), []))
    return Level(
        at=at,
        useful=_mean(row["useful_tokens_per_s"] for row in rows),
        tail_s=quantile([each.longest_wait_s for each in drawn], TAIL) if drawn else _mean(row["tail_s"] for row in rows),
        in_flight=_mean(row["in_flight"] for row in rows),
        preempted_low=_sum(row["preemptions_low"] for row in rows),
        preempted_high=_sum(row["preemptions_high"] for row in rows),
        met_target_share=_mean(row["met_target_share"] for row in rows),
        sent_share=_mean(row["sent_share"] for row in rows),
        target_ttft_s=rows[0]["target_ttft_s"],
        target_gap_s=rows[0]["target_gap_s"],
        requests=drawn,
    )


def _predicted(frame: pl.DataFrame) -> tuple[float | None, float | None]:
    """Sequences that fit 95 % of the time and on average, over all engines together; None where one's pool is not known."""
    rows = [row for row in frame.iter_rows(named=True) if row["scope"] == "run" and row["fits_on_average"] is not None]
    fits = _sum(row["fits_95"] for row in rows)
    return (float(fits) if fits is not None else None), _sum(row["fits_on_average"] for row in rows)


def _slots(engines: pl.DataFrame) -> float | None:
    """Requests that all engines together run at once, by their own arguments; None where one does not say."""
    is_said = engines["max_num_seqs_source"] == "argument"
    return _sum(limit if said else None for limit, said in zip(engines["max_num_seqs"], is_said, strict=True))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return sum(value for value in known if value is not None) if known and None not in known else None
