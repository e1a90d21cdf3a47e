"""Time in which nothing was seen: until when a bucket's values hold, so that no curve is drawn over a hole.

A log is silent while its server is down or idle, and a scraper that stops leaves nothing: between two buckets that do not follow
each other nobody knows what held. That decision is made here, for the page's charts and for the terminal's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from itertools import groupby, pairwise, zip_longest
from statistics import median_low

from pipelines.charts.data import Row

SKIPPED = 1.5  # buckets that may be missing between two that follow each other: lines of a log drift past one
UNEVEN = 2.0  # usual distances that two buckets may be apart, where what is read comes more rarely than buckets


def held_until(spans: Sequence[tuple[datetime, datetime]]) -> list[datetime]:
    """Until when the values of each bucket (begin, end), in order, hold: the next one's begin, or its own end before a hole."""
    apart = [later - begin for (begin, _), (later, _) in pairwise(spans)]
    usual = median_low(apart) if apart else None
    ends = [
        end if usual and later - end > SKIPPED * (end - begin) and later - begin > UNEVEN * usual else later
        for (begin, end), (later, _) in pairwise(spans)
    ]
    return ends + [end for _, end in spans[-1:]]


def with_holes(rows: Sequence[Row], begin: str, end: str, lines: Collection[str], stacks: Collection[str] = ()) -> list[Row]:
    """The rows of a chart over time, each engine's in order, with two more before each hole and at the end: there it is drawn to.

    The first has the bucket's own values once more, at its end; in the second those of `lines` are unknown, which breaks a line,
    and those of `stacks` are 0, for an area on another can only be nothing. Both have no width, and no other column.
    """
    return [each for _, of in groupby(rows, lambda row: row.get("engine")) for each in _broken([*of], begin, end, lines, stacks)]


def _broken(rows: Sequence[Row], begin: str, end: str, lines: Collection[str], stacks: Collection[str]) -> Iterator[Row]:
    ends = held_until([(row[begin], row[end]) for row in rows])
    for row, until, following in zip_longest(rows, ends, rows[1:]):
        yield row
        if until == row[end] and (following is None or following[begin] > until):
            there = dict.fromkeys(row) | ({"engine": row["engine"]} if "engine" in row else {}) | {begin: row[end], end: row[end]}
            yield there | {column: row[column] for column in (*lines, *stacks)}
            yield there | dict.fromkeys(stacks, 0)
