"""Whether two samples can be of one distribution: the two-sample Kolmogorov-Smirnov test. Nothing here knows what is sampled."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Test:
    """The largest distance between two empirical distributions, and the chance of one as large among samples of the same."""

    distance: float
    p: float


def test(first: Sequence[float], second: Sequence[float]) -> Test | None:
    """Compare two samples; None where one is empty. With ties, as lengths have them, the p-value errs upwards."""
    if not first or not second:
        return None
    a, b = sorted(first), sorted(second)
    distance = max(abs(bisect_right(a, value) / len(a) - bisect_right(b, value) / len(b)) for value in {*a, *b})
    root = math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    # Stephens' correction makes the limit distribution serve for samples of a few dozen
    return Test(distance, _tail((root + 0.12 + 0.11 / root) * distance))


def _tail(x: float) -> float:
    """Chance that Kolmogorov's limit distribution exceeds x."""
    if x < 0.2:  # the series alternates too slowly there, and is 1 to twelve digits
        return 1.0
    return min(1.0, max(0.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * x * x) for k in range(1, 101))))
