"""Until when a bucket's values hold, and what is drawn where nothing was seen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pipelines.charts.holes import held_until, with_holes

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


@pytest.mark.parametrize(
    ("begins", "until"),
    [
        ([0, 10, 20], [10, 20, 30]),
        ([0, 10, 30, 40], [10, 30, 40, 50]),  # a line that drifts past a bucket leaves no hole
        ([0, 80, 90], [10, 90, 100]),
        ([0, 60, 120, 180], [60, 120, 180, 190]),  # lines that are rarer than buckets
        ([0, 60, 120, 500], [60, 120, 130, 510]),
        ([0], [10]),
        ([0, 500], [500, 510]),  # nothing says how often there is a line
        ([], []),
    ],
)
def test_a_bucket_holds_until_the_next_but_not_over_a_hole(begins, until):
    assert held_until([(at(begin), at(begin + 10)) for begin in begins]) == [at(end) for end in until]


def test_before_a_hole_and_at_the_end_a_line_ends_and_an_area_falls_to_nothing():
    def bucket(engine: str, begin: int) -> dict:
        return {"engine": engine, "begin": at(begin), "end": at(begin + 10), "line": begin + 1, "part": 5, "bar": 3}

    def drawn_to(engine: str, second: int, line: int) -> list[dict]:
        there = {"engine": engine, "begin": at(second), "end": at(second), "bar": None}
        return [{**there, "line": line, "part": 5}, {**there, "line": None, "part": 0}]

    one, other = ([bucket(engine, begin) for begin in (0, 10, 100)] for engine in "01")
    drawn = with_holes([*one, *other[:2]], "begin", "end", ["line"], ["part"])
    assert drawn == [*one[:2], *drawn_to("0", 20, 11), one[2], *drawn_to("0", 110, 101), *other[:2], *drawn_to("1", 20, 11)]
