"""One line of a CSV table as its cells. Tables of measurements hold no cell of several lines, so each line stands for itself."""

from __future__ import annotations

import csv


def cells(line: str) -> list[str]:
    """The cells of a line; none where it is blank or no CSV (a carriage return in the middle, a cell of over 128 KiB)."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []
