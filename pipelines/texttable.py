"""Rows as text: one value, sentences that are alike, tables and records. Nothing here knows what they mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime


def cell(value: object) -> str:
    """One value as a reader wants it: nothing for NULL, times in ISO 8601 UTC, numbers without noise."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return (
            f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}".rstrip("0").rstrip(".") + "Z" if value.tzinfo else value.isoformat()
        )
    if isinstance(value, float):
        return f"{value:.0f}" if math.isfinite(value) and value == round(value) and abs(value) < 1e15 else f"{value:.6g}"
    if isinstance(value, list):
        return "[" + ", ".join(map(cell, value)) + "]"
    return printable(" ".join(str(value).split("\n")))


def printable(text: str) -> str:
    """`text` with every character that could steer a terminal replaced: names in inputs are not ours to trust."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def gathered(told: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Sentences said of several things by name, each once, in the order they come: of the first, and how many more are alike.

    The sentence stays about one (`Its times rest on …`), so the others stand in brackets.
    """
    names: dict[str, list[str]] = {}
    for name, sentence in told:
        names.setdefault(sentence, []).append(name)
    for sentence, (first, *rest) in names.items():
        yield f"{first} ({len(rest):,} more alike)" if rest else first, sentence


def aligned(names: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: Sequence[bool] = ()) -> str:
    """Columns under their names, two spaces apart; numbers to the right. Ends with a newline; empty where there is no column."""
    if not names:
        return ""
    widths = [max(len(name), *(len(row[index]) for row in rows), 0) for index, name in enumerate(names)]
    right = [*numeric, *[False] * (len(names) - len(numeric))]
    lines = [
        "  ".join(
            value.rjust(width) if is_right else value.ljust(width)
            for value, width, is_right in zip(row, widths, right, strict=True)
        )
        for row in [names, *rows]
    ]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def records(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A line for each column of each row, as psql's expanded display."""
    width = max(map(len, names), default=0)
    lines = []
    for number, row in enumerate(rows, 1):
        title = f"-[ RECORD {number} ]"
        lines.append(title if len(title) > width else title.ljust(width + 1, "-") + "+-")
        lines += [f"{name.ljust(width)} | {value}".rstrip() for name, value in zip(names, row, strict=True)]
    return "".join(f"{line}\n" for line in lines)


def markdown(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A GitHub table."""
    lines = [names, ["---"] * len(names), *([value.replace("|", "\\|") for value in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
