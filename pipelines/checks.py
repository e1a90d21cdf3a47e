"""Checks: what must hold in every table of every run, as queries that count the rows which break it.

A check comes from the header of a model (`grain:` gives the key, `check:` a condition on each row) or from the short lists
here, which look across tables. A condition that is NULL holds: not known is not wrong. Nothing here knows Dagster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import duckdb

from pipelines.models import Model

_WORDS = {">=": "ge", "<=": "le", "<>": "ne", "!=": "ne", "=": "eq", ">": "gt", "<": "lt"}


@dataclass(frozen=True)
class Check:
    """One rule on one table. `failing` is a query whose one number is the count of rows that break it."""

    name: str
    table: str
    meaning: str
    failing: str
    reads: tuple[str, ...]
    is_smell: bool = False  # worth a look, not necessarily wrong


RAW_CHECKS = (
    Check(
        "every_line_is_accounted_for",
        "raw.sources",
        "Used, ignored and not understood lines add up to the lines of the file.",
        "select count(*) from raw.sources where lines <> lines_used + lines_ignored + lines_not_understood",
        ("raw.sources",),
    ),
    Check(
        "lines_are_understood",
        "raw.sources",
        "Not more than one line in a hundred looks like a signal and does not follow its grammar.",
        "select count(*) from raw.sources where lines_not_understood > 0.01 * lines",
        ("raw.sources",),
        is_smell=True,
    ),
    Check(
        "every_file_is_read",
        "raw.sources",
        "Every file that was given was recognised and read to its end.",
        "select count(*) from raw.sources where error is not null",
        ("raw.sources",),
        is_smell=True,
    ),
)


def of_model(model: Model) -> tuple[Check, ...]:
    """The checks a model's header asks for, and those that look across tables from it."""
    key = ", ".join(model.grain)
    unique = Check(
        "key_is_unique",
        model.name,
        f"One row per {key}.",
        f"select count(*) from (select {key} from {model.name} group by all having count(*) > 1)",
        (model.name,),
    )
    documented = [
        Check(name, model.name, meaning, f"select count(*) from {model.name} where not ({condition})", (model.name,))
        for name, (condition, meaning) in zip(_names(each for each, _ in model.checks), model.checks, strict=True)
    ]
    return (unique, *documented, *(check for check in ACROSS if check.table == model.name))


def failing_rows(check: Check, con: duckdb.DuckDBPyConnection) -> int:
    """How many rows break the check; the tables it reads must be on the connection."""
    return con.sql(check.failing).fetchall()[0][0]


def _names(conditions: Iterable[str]) -> list[str]:
    """A condition as a name: `preemptions >= 0` -> `preemptions_ge_0`; numbered where two come out alike."""
    names: list[str] = []
    for condition in conditions:
        words = re.sub("|".join(_WORDS), lambda sign: f" {_WORDS[sign.group()]} ", condition)
        name = re.sub(r"\W+", "_", words).strip("_").lower()[:80]
        names.append(f"{name}_{names.count(name) + 1}" if name in names else name)
    return names


ACROSS: tuple[Check, ...] = ()
