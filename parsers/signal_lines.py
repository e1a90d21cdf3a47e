"""The lines of a log that carry a signal, found without looking at the others one by one.

In a production log one line in a hundred says something of the load; the rest are access lines. Splitting them all, or asking
each whether it holds a signal, costs more than everything done with the few that do. So a chunk is taken as one text: one pass
at nearly the speed of memory finds every occurrence of any literal, another marks the newlines with a bit each, and only the
lines around an occurrence are copied out; their numbers are the bits before them.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

NEWLINE = ord("\n")


def signal_lines(chunk: bytearray, size: int, literals: Sequence[str]) -> tuple[int, list[int], list[str]]:
    """How many lines the first `size` bytes hold, and the numbers (from 0) and texts, newline and all, of those with a literal.

    A literal holds no newline. Bytes that are no text become the replacement character.
    """
    filled = memoryview(chunk)[:size]
    newlines = _newlines(filled)
    numbers: list[int] = []
    texts: list[str] = []
    lines, end = 0, 0
    for place in _occurrences(filled, literals):
        if place < end:  # in the line taken last
            continue
        start = max(chunk.rfind(b"\n", end, place) + 1, end)
        if start > end:
            lines += newlines.slice(end, start - end).true_count
        end = chunk.find(b"\n", place, size) + 1 or size
        numbers.append(lines)
        texts.append(str(filled[start:end], "utf-8", "replace"))
        lines += 1
    lines += newlines.slice(end).true_count + (end < size and chunk[size - 1] != NEWLINE)
    return lines, numbers, texts


def _newlines(chunk: memoryview) -> pa.BooleanArray:
    """Which bytes are newlines."""
    octets = pl.Series(pa.Array.from_buffers(pa.uint8(), len(chunk), [None, pa.py_buffer(chunk)]))
    return (octets == NEWLINE).to_arrow()


def _occurrences(chunk: memoryview, literals: Sequence[str]) -> list[int]:
    """Where in the chunk a literal begins, in order; of two that overlap, the first."""
    # The chunk is the first of two strings, for Polars takes a column of one value for a constant and would copy it.
    offsets = pa.array([0, len(chunk), len(chunk)], pa.int64()).buffers()[1]
    texts = pl.Series(pa.LargeStringArray.from_buffers(2, offsets, pa.py_buffer(chunk)))
    # leftmost search has a vectorised prefilter, the default none
    return texts.str.find_many(list(literals), leftmost=True)[0].to_list()
