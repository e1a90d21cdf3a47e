"""Pages that repeat: a recording is the same lines again and again, of which some have a new value.

A page is what lies between two lines that date a scrape. One that has the same series in the same order as the page before it is
compared with that as a whole, and only the lines that changed are looked at: a fraction of the work.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import ne
from typing import Self

from parsers.prometheus_names import number

MAX_LINES = 50_000  # of a page that is remembered
NO_ROW = -1  # of a line without a sample that is kept: one of the garbage collector's, a comment


@dataclass
class Page:
    """A page as it was last seen. `indices` and `values` are those of its samples, in order."""

    lines: list[bytes]
    texts: list[bytes] = field(default_factory=list)  # of each line: what precedes its value
    sizes: list[int] = field(default_factory=list)  # how long that is
    rows: list[int] = field(default_factory=list)  # which of `values` its value is
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
            page.texts.append(before)
            page.sizes.append(len(before))
            page.rows.append(row)
        return page if lines else None

    def turn(self, lines: list[bytes]) -> bool:
        """Become the page of these lines. False, and nothing has changed, where it is not the same but for its values.

        A day has a million lines: what is asked of each of them is asked by `map`, without a step of the interpreter.
        """
        if len(lines) != len(self.lines) or not lines[-1].endswith(b"\n"):
            return False
        is_new = list(map(ne, lines, self.lines))
        new = list(compress(lines, is_new))
        if not all(map(bytes.startswith, new, compress(self.texts, is_new))):
            return False
        try:
            values = [float(line[size:]) for line, size in zip(new, compress(self.sizes, is_new), strict=True)]
        except ValueError:
            return False
        if any(map(math.isnan, values)):
            return False
        for row, value in zip(compress(self.rows, is_new), values, strict=True):
            if row != NO_ROW:
                self.values[row] = value
        self.lines = lines
        return True
