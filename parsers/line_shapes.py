"""Lines of one shape, read together: an engine prints the same few shapes of line over and over.

    (APIServer pid=1) INFO 11-29 13:06:38 [loggers.py:335] Engine 000: … Running: 15 reqs, Waiting: 3 reqs, …
                           ^^^^^^^^^^^^^^                                          ^^               ^
A line that was read slowly says where its values lie: its holes. The text between them is the line's `Shape`, and every other
line of that shape has its values at the same places, so Polars reads all of them column by column. A line whose text between
the holes differs by one byte, or whose value is not what the hole takes, is not of the shape and goes back to be read slowly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import polars as pl

from parsers.columns import PLACEHOLDER_YEAR
from parsers.unix_time import in_utc

NO_DIGIT = "[^0-9.]"  # a cast alone would take 1e5, -3 and inf, which no engine prints


class Kind(Enum):
    """What a hole takes."""

    STAMP = "11-29 13:06:38"  # no year: it gets PLACEHOLDER_YEAR
    DATE_TIME = "2026-11-29 13:05:26,201"  # a wall clock
    INSTANT = "2026-07-01T12:00:00.123456789Z"  # an absolute time
    COUNT = "17"
    REAL = "6103.1"
    PERCENT = "99.7"  # becomes a ratio
    ID = "cmpl-bench-fda5f269-0-0"  # anything without a space
    ANYTHING = "a text that is not kept"

    @property
    def is_fixed_width(self) -> bool:
        """Whether every value is as long as the one the shape was learned from."""
        return self in (Kind.STAMP, Kind.DATE_TIME, Kind.INSTANT)

    def value_of(self, text: str) -> Any:
        """The value of one text; None where it is no number that a table holds. ValueError for a time there is not."""
        match self:
            case Kind.STAMP:
                return datetime.fromisoformat(f"{PLACEHOLDER_YEAR}-{text}")
            case Kind.DATE_TIME | Kind.INSTANT:
                time = datetime.fromisoformat(text.replace(",", "."))
                return in_utc(time) if self is Kind.INSTANT else time
            case Kind.COUNT:
                number = int(text)
                return number if number < 2**63 else None
            case Kind.REAL | Kind.PERCENT:
                number = float(text) / (100 if self is Kind.PERCENT else 1)
                return number if math.isfinite(number) else None
            case _:
                return text

    def values_of(self, texts: pl.Expr) -> pl.Expr:  # noqa: PLR0911 - one for each kind
        """The values of many texts; null where a text is not what the hole takes (a NaN too: the slow reader knows better)."""
        match self:
            case Kind.STAMP:
                return (f"{PLACEHOLDER_YEAR}-" + texts).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)
            case Kind.DATE_TIME:
                plain = texts.str.replace("T", " ", literal=True).str.replace(",", ".", literal=True)
                return plain.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
            case Kind.INSTANT:
                return texts.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%#z", time_unit="us", time_zone="UTC", strict=False)
            case Kind.COUNT:
                return pl.when(~texts.str.contains(NO_DIGIT)).then(texts.cast(pl.Int64, strict=False))
            case Kind.REAL | Kind.PERCENT:
                number = texts.cast(pl.Float64, strict=False) / (100 if self is Kind.PERCENT else 1)
                return pl.when(~texts.str.contains(NO_DIGIT)).then(number)
            case Kind.ID:
                return pl.when(~texts.str.contains(" ", literal=True) & (texts != "")).then(texts)
            case _:
                return texts


@dataclass(frozen=True)
class Hole:
    """Where a value lies in a line, the column it goes to ("" where it is not kept), and what it is."""

    start: int
    end: int
    column: str
    kind: Kind


@dataclass(frozen=True)
class Shape:
    """The text a line begins with, then each hole with the text that follows it; table and columns common to all its lines."""

    table: str
    fixed: tuple[tuple[str, Any], ...]
    begins: str
    holes: tuple[tuple[str, Kind, int, str], ...]  # column, kind, width, text that follows

    @classmethod
    def of(cls, text: str, table: str, fixed: dict[str, Any], holes: tuple[Hole, ...]) -> Shape | None:
        """The shape of a line; None where it has no stamp to tell it by, or two holes touch. `text` ends in its newline."""
        ordered = sorted(holes, key=lambda hole: hole.start)
        if not ordered or not ordered[0].kind.is_fixed_width:
            return None
        ends = [*(hole.start for hole in ordered[1:]), len(text)]
        after = [text[hole.end : end] for hole, end in zip(ordered, ends, strict=True)]
        if not all(after) or any(hole.end > end for hole, end in zip(ordered, ends, strict=True)):
            return None
        return cls(
            table,
            tuple(fixed.items()),
            text[: ordered[0].start],
            tuple((hole.column, hole.kind, hole.end - hole.start, follows) for hole, follows in zip(ordered, after, strict=True)),
        )

    def read(self, lines: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows of the lines (columns `line`, `text`) that are of this shape, and the lines that are not."""
        text = lines["text"]
        (_, _, width, follows), *_ = self.holes
        rest = text.str.slice(len(self.begins) + width)
        begins = text.str.starts_with(self.begins) & rest.str.starts_with(follows)
        if not begins.any():
            return lines.clear().select("line"), lines
        others, is_split = [], not begins.all()
        if is_split:  # a copy of 200 bytes a line is worth avoiding where all lines are of the shape
            others, lines, rest = [lines.filter(~begins)], lines.filter(begins), rest.filter(begins)
        stamp = lines["text"].str.slice(len(self.begins), width)
        values, is_whole = self._cut(stamp, rest.str.slice(len(follows)))
        rows = lines.select("line").with_columns(values)
        if not is_whole.all():
            others, rows = [lines.filter(~is_whole), *others], rows.filter(is_whole)
        return rows, pl.concat(others) if others else lines.clear()

    def _cut(self, stamp: pl.Series, rest: pl.Series) -> tuple[list[pl.Series], pl.Series]:
        """The values in each hole, and whether the line is of this shape to its end; `rest` is what follows the stamp."""
        texts = {self.holes[0][0]: stamp}
        kinds = {self.holes[0][0]: self.holes[0][1]}
        for i, (column, kind, width, follows) in enumerate(self.holes[1:], 2):
            text = rest
            if kind is Kind.ANYTHING and i == len(self.holes):
                rest = rest.clear().extend_constant("", len(rest))
            elif kind.is_fixed_width:
                text, rest = rest.str.slice(0, width), rest.str.slice(width)
                begins = rest.str.starts_with(follows)
                rest = rest.str.slice(len(follows)).set(~begins, None)
            else:
                parts = rest.str.splitn(follows, 2).struct
                text, rest = parts.field("field_0"), parts.field("field_1")
            if column:
                texts[column], kinds[column] = text, kind
        values = pl.DataFrame(texts).select(kind.values_of(pl.col(column)).alias(column) for column, kind in kinds.items())
        is_whole = values.select(pl.all_horizontal(pl.all().is_not_null())).to_series() & (rest == "")
        return values.get_columns(), is_whole.fill_null(value=False)
