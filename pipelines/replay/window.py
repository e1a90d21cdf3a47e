"""Which part of a long run is replayed: as many requests as a replay takes in a minute, around the window of its main verdict.

A day of requests is mostly alike; where it was pressed is what a setting is changed for. So the part is chosen by the verdict,
not by the clock, and begins before it: the replay starts with an empty pool.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

MOST_REQUESTS = 20_000


@dataclass(frozen=True)
class Part:
    """The part that is replayed, what it is around, and how many requests it has of how many."""

    since: datetime
    until: datetime
    verdict: str
    requests: int
    of: int

    def told(self, replayed: int) -> str:
        """The choice in words; `replayed` is how many requests ended in that time."""
        times = f"{self.since:%Y-%m-%d %H:%M:%S} to {self.until:%Y-%m-%d %H:%M:%S} UTC"
        return (
            f"{replayed:,} of the {self.of:,} requests are replayed, those that ended from {times}, around the main verdict "
            f"({self.verdict.replace('_', ' ')}); what was recorded is of that time alone"
        )


def part_of(sent: Sequence[datetime], verdict: str, start: datetime, end: datetime, *, most: int = MOST_REQUESTS) -> Part | None:
    """The part of the requests `sent` (in order) around a verdict from `start` to `end`; None where all can be replayed."""
    if len(sent) <= most:
        return None
    first, last = bisect_left(sent, start), bisect_left(sent, end)
    inside = min(last - first, most)
    before = max((most - inside) // 2, most // 10)  # for the pool to fill
    begin = max(0, min(first - before, len(sent) - most))
    return Part(sent[begin], sent[min(begin + most, len(sent)) - 1], verdict, most, len(sent))
