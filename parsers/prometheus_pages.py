"""Pages that repeat: a recording is the same lines again and again, of which some have a new value.

A page is what lies between two lines that date a scrape. One that has the same series in the same order as the page before it is
compared with that as a whole, and only the lines that changed are looked at: a fraction of the work.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from parsers.prometheus_names import number

MAX_LINES = 50_000  # of a page that is remembered
NO_ROW = -1  # of a line without a sample that is kept: one of the garbage collector's, a comment


@dataclass
class Page:
    """A page as it was last seen. `indices` and `values` are those of its samples, in order."""

    lines: list[bytes]
    places: list[tuple[bytes, int, int]] = field(default_factory=list)  # of each line: what precedes its value, how long, its row
    indices: array[int] = field(default_factory=lambda: array("i"))
    values: array[float] = field(default_factory=lambda: array("d"))

    @classmethod
    def of(cls, lines: Sequence[bytes], index_of: Mapping[bytes, int]) -> Self | None:
        """The page of these lines. None where there are none, or one is neither a known series and its value nor a comment."""
        page = cls(list(lines))
        for line in lines:
            text, space, value_text = line.rpartition(b" ")
            index = index_of.get(text)
            if index is None and not line.startswith(b"#") and not line.isspace():
                return None
            before, row = text + space if space else line, NO_ROW
            if index is not None and index >= 0:
                value, row = number(value_text), len(page.values)
                if value is None or math.isnan(value):
                    return None
                page.indices.append(index)
                page.values.append(value)
            page.places.append((before, len(before), row))
        return page if lines else None

    def turn(self, lines: list[bytes]) -> bool:
        """Become the page of these lines. False, and nothing has changed, where it is not the same but for its values."""
        if len(lines) != len(self.lines) or not lines[-1].endswith(b"\n"):
            return False
        changes = []
        try:
            for line, before, (text, size, row) in zip(lines, self.lines, self.places, strict=True):
                if line != before:
                    value = float(line[size:])
                    if value != value or not line.startswith(text):  # noqa: PLR0124 - NaN, without the call: this loop is the work
                        return False
                    if row != NO_ROW:
                        changes.append((row, value))
        except ValueError:
            return False
        for row, value in changes:
            self.values[row] = value
        self.lines = lines
        return True
