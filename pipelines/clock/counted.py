"""Clocks that count from a start: when that start was, so that their stamps are moments.

    t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct        5.0,5798.0,970.0,40,12,100.0
    0.00.083.425 I slot print_timing: …                                    llama.cpp: minutes, seconds, milli- and microseconds

Distances hold in any case. The start is told by the load: requests that others saw at known times must be in the house when this
clock says so; else by the settings that were written beside it, which name the start of the run. Else it is assumed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

import polars as pl

from pipelines.clock.origins import Origin
from pipelines.clock.sightings import FEW
from pipelines.models import Run

COARSEST = 4000  # starts that are tried at first
SAMPLES = 300  # that a start is tried on
ALIKE = 0.8  # share of the load seen by either that both must show at once
RIVAL = 0.9  # of the best share, from which another start is as good


@dataclass(frozen=True)
class House:
    """Requests in the house over time, as those saw it who know the time."""

    arrived_s: Sequence[float]
    left_s: Sequence[float]

    @classmethod
    def of(cls, spans: pl.DataFrame) -> House:
        """By spans that have both ends."""
        whole = spans.drop_nulls(["arrived_s", "server_last_s"])
        return cls(whole["arrived_s"].sort().to_list(), whole["server_last_s"].sort().to_list())

    def at(self, moment_s: float) -> int:
        """How many there were."""
        return bisect_right(self.arrived_s, moment_s) - bisect_right(self.left_s, moment_s)

    def likeness(self, load: Sequence[tuple[float, float]], start_s: float) -> float:
        """How alike the load is to this where its clock began then, 0 to 1."""
        pairs = [(self.at(start_s + second), value) for second, value in load]
        every = sum(max(pair) for pair in pairs)
        return sum(min(pair) for pair in pairs) / every if every else 0.0


def starts(
    sources: pl.DataFrame,
    curves: pl.DataFrame,
    spans: pl.DataFrame,
    stated: pl.DataFrame,
    run: Run,
) -> dict[str, Origin]:
    """The start of each source whose clock counts from one. `stated`: each source, its format, and the moment that it names."""
    house = House.of(spans)
    windows = sources.drop_nulls("first_utc").select(pl.col("first_utc").dt.epoch("us") / 1e6)["first_utc"]
    formats = dict(stated.select("source", "format").iter_rows())
    moments = stated.drop_nulls("at_s").select("source", "format", "at_s").rows()
    found = {}
    for name in sources.filter(pl.col("first_counted_s").is_not_null())["source"].sort():
        beside = [
            (source, at_s)
            for source, form, at_s in moments
            if form == formats.get(name) and PurePosixPath(source).parent == PurePosixPath(name).parent
        ]
        found[name] = _by_load(_load(curves, name), house) or _stated(beside) or _assumed(windows.min(), run)
    return found


def _load(curves: pl.DataFrame, source: str) -> list[tuple[float, float]]:
    """Requests running and waiting, by the seconds of the source's clock."""
    mine = curves.filter(
        (pl.col("source") == source) & pl.col("local_at").is_not_null() & pl.col("name").is_in(["running", "waiting"])
    )
    sums = mine.group_by((pl.col("local_at").dt.epoch("us") / 1e6).alias("second")).agg(pl.col("value").sum()).sort("second")
    return list(sums.iter_rows())


def _by_load(load: Sequence[tuple[float, float]], house: House) -> Origin | None:
    """The one start under which the load is that of the requests others saw; None where none is, or several are."""
    if len(load) < FEW or len(house.arrived_s) < FEW:
        return None
    step_s = float(pl.Series([second for second, _ in load]).diff().drop_nulls().median() or 1.0)  # type: ignore[arg-type]
    low, high = house.arrived_s[0] - load[-1][0], house.left_s[-1] - load[0][0]
    apart_s = max(step_s / 2, (high - low) / COARSEST)
    some = load[:: max(1, len(load) // SAMPLES)]
    tried = {low + apart_s * step: 0.0 for step in range(int((high - low) / apart_s) + 1)}
    tried = {start_s: house.likeness(some, start_s) for start_s in tried}
    coarse = max(tried, key=lambda start_s: tried[start_s])
    near = {coarse + apart_s * step / 10: 0.0 for step in range(-10, 11)}
    near = {start_s: house.likeness(some, start_s) for start_s in near}
    best = max(near.values())
    rivals = [alike for start_s, alike in tried.items() if abs(start_s - coarse) > 4 * max(step_s, apart_s)]
    if best < ALIKE or max(rivals, default=0.0) > RIVAL * best:
        return None
    plateau = [start_s for start_s, alike in near.items() if alike >= best - 1e-9]
    return Origin(
        (plateau[0] + plateau[-1]) / 2, max(step_s, apart_s), best, "requests in the house, as their own times have them"
    )


def _stated(beside: Sequence[tuple[str, float]]) -> Origin | None:
    """The start that the settings beside it name; None where none do, or several that differ."""
    if len({at_s for _, at_s in beside}) != 1:
        return None
    source, at_s = beside[0]
    return Origin(at_s, 1.0, 0.0, f"start of the run in {PurePosixPath(source).name}")


def _assumed(others_s: object, run: Run) -> Origin:
    """With the other inputs, or the time asked for; else the first day of all."""
    if isinstance(others_s, float):
        start_s, when = others_s, "taken to be when the other inputs begin"
    elif run.since:
        start_s, when = datetime.fromisoformat(run.since).timestamp(), "taken to be the begin of the time asked for"
    else:
        start_s, when = 0.0, "told as of 1 January 1970"
    return Origin(start_s, 0.0, 0.0, f"its clock counts from a start that nothing tells, {when}", is_assumed=True)
