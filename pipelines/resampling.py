"""Intervals by resampling: what a number could as well have been, had other requests of the same kind come.

Requests that run side by side share their fate (one full pool stops many of them), so single requests are not drawn, but
blocks of neighbours in the order in which they came: the circular block bootstrap of Politis and Romano, with blocks of the
cube root of the sample. Everything is seeded; the same input gives the same interval. Nothing here knows a metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

RESAMPLES = 400
DRAWS = 2_000_000  # of one sample, all resamples together: larger samples are resampled less often, and need it less
FEWEST_RESAMPLES = 60
LEVEL = 0.90  # of every interval

T = TypeVar("T")


def resamples(size: int) -> int:
    """How many times a sample of this size is drawn again."""
    return max(FEWEST_RESAMPLES, min(RESAMPLES, DRAWS // max(1, size)))


def redraw(sample: Sequence[T], rng: Random) -> list[T]:
    """One resample of the same size, in blocks of neighbours; the last neighbour of the last one is the first."""
    size = len(sample)
    if size < 2:
        return list(sample)
    block = max(1, round(size ** (1 / 3)))
    drawn: list[T] = []
    while len(drawn) < size:
        start = rng.randrange(size)
        drawn += sample[start : start + block]
        if start + block > size:
            drawn += sample[: start + block - size]
    return drawn[:size]


def interval(
    statistic: Callable[[Sequence[Sequence[T]]], float | None], samples: Sequence[Sequence[T]], *, seed: int, level: float = LEVEL
) -> tuple[float, float] | None:
    """Where a statistic of several samples, each drawn again on its own, lies in `level` of the resamples.

    None where one of them is too small to say anything of others like it, or the statistic has no value.
    """
    if any(len(sample) < 5 for sample in samples):
        return None
    rng = Random(seed)  # noqa: S311 - repeatable on purpose
    count = min(resamples(len(sample)) for sample in samples)
    values = [value for _ in range(count) if (value := statistic([redraw(sample, rng) for sample in samples])) is not None]
    return (quantile(values, (1 - level) / 2), quantile(values, (1 + level) / 2)) if values else None


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile of unordered values, between the two neighbours as SQL's quantile_cont has it. ValueError for none."""
    if not values:
        raise ValueError("no values have no quantile")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
