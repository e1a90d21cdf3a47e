"""A comparison in words: one screen for a terminal, `compare.json`, and a page. Nothing is judged or computed here."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from pipelines import pages
from pipelines.charts.language import count, listed
from pipelines.compare import ALPHA, Change, Comparison, Move, told
from pipelines.digest import WIDTH
from pipelines.resampling import LEVEL
from pipelines.texttable import aligned, printable

SCHEMA_VERSION = 1
TITLES = {
    "supports": "Supports a cache-capacity diagnosis",
    "refutes": "Refutes a cache-capacity diagnosis",
    "inconclusive": "Proves nothing about cache capacity",
    "not_comparable": "Not comparable",
}
MOST_CHANGES = 12
DIRECTIONS = {"better": "better", "worse": "worse", "unclear": "?", "moved": "moved", "not tested": ""}
PRICED = ("itl_p99", "ttft_p50", "duration", "useful_tokens_per_s", "latency_p50")  # what a sentence can carry


def text(comparison: Comparison) -> str:
    """One screen."""
    return "\n\n".join(
        section
        for section in (
            sameness(comparison),
            f"{TITLES[comparison.conclusion].upper()}\n{_wrap(headline(comparison))}\n{_wrap(comparison.reason)}",
            _section("Changed", changes(comparison)),
            _section("Workload", workload(comparison)),
            _moves(comparison),
        )
        if section
    )


def sameness(comparison: Comparison) -> str:
    """Whether both sides are one run; empty where they are two."""
    if not comparison.has_same_inputs:
        return ""
    if comparison.variables or any(move.before != move.after for move in comparison.moves):
        return "Both sides have the same inputs: what differs is how they were analyzed."
    return "Both sides have the same inputs: all differences are zero by construction."


def headline(comparison: Comparison) -> str:
    """What changed and what pressure did; of two that can be compared, also what was gained and what it cost."""
    said = [_variables(comparison)]
    preemptions = comparison.move("preemptions")
    if preemptions is not None:
        said.append(f"preemptions {amount(preemptions)}")
    if comparison.conclusion in ("supports", "refutes"):
        said.append(f"{TITLES[comparison.conclusion][0].lower()}{TITLES[comparison.conclusion][1:]}")
    if comparison.conclusion == "not_comparable":
        return f"{'; '.join(said)}."
    moved = [move for key in PRICED if (move := comparison.move(key)) is not None]
    gains = [f"{_name(move)} {amount(move)}" for move in moved if move.direction == "better"]
    price = [f"{_name(move)} {amount(move)}" for move in moved if move.is_regression]
    said += [", ".join(gains)] if gains else []
    said += [f"price: {', '.join(price)}"] if price else []
    return f"{'; '.join(said)}."


def _variables(comparison: Comparison) -> str:
    if not comparison.variables:
        return "nothing changed that is stated"
    is_alone = len(comparison.variables) == 1 and comparison.conclusion != "not_comparable"
    only = ", nothing else" if is_alone else ""
    return listed([f"{change.key} {told(change)}" for change in comparison.variables]) + only


def changes(comparison: Comparison) -> list[str]:
    """Each variable, and what follows from them on one line."""
    lines = [_change(change) for change in comparison.variables[:MOST_CHANGES]] or ["nothing that either engine states"]
    if len(comparison.variables) > MOST_CHANGES:
        lines.append(f"and {len(comparison.variables) - MOST_CHANGES} more, in compare.json")
    if comparison.following:
        lines.append(f"and so: {listed([f'{change.key} {told(change)}' for change in comparison.following])}")
    return lines


def _change(change: Change) -> str:
    roles = {"pool": "how much KV state fits", "admission": "how much may be asked of the pool at once"}
    role = f" ({roles[change.role]})" if change.role in roles else ""
    return f"{change.key}: {told(change)}{role}{', inferred from load' if change.is_inferred else ''}"


def workload(comparison: Comparison) -> list[str]:
    """Each property of the workload, those that differ first."""
    ordered = sorted(comparison.workload, key=lambda drift: not drift.differs)
    return [f"{drift.what}{' DIFFER' if drift.differs else ''}: {drift.finding}" for drift in ordered] or [
        "not known: a side has no requests whose lengths and times are known"
    ]


def table(comparison: Comparison) -> list[list[str]]:
    """One line for each measure: name, before, after, difference with its interval, and which way it went."""
    return [
        [move.name, figure(move, move.before), figure(move, move.after), difference(move), DIRECTIONS[move.direction]]
        for move in comparison.moves
    ]


def _moves(comparison: Comparison) -> str:
    names = ["Moved", "before", "after", f"difference ({100 * LEVEL:.0f} %)", ""]
    lines = aligned(names, table(comparison), numeric=[False, True, True, True, False]).splitlines()
    return "\n".join([lines[0], *(f"  {line}"[:WIDTH] for line in lines[1:])]) if comparison.moves else ""


def difference(move: Move) -> str:
    """`-31 ms (-46 to -12)`; without an interval the difference alone."""
    change = _signed(move, move.after - move.before)
    if move.low is None or move.high is None or move.low == move.high:
        return change
    return f"{change} ({_signed(move, move.low, bare=True)} to {_signed(move, move.high, bare=True)})"


def amount(move: Move) -> str:
    """`50 -> 18 ms`: one unit for both, where they can share one."""
    scale, unit = _scale(move)
    return f"{_digits(move.before * scale, unit)} -> {_digits(move.after * scale, unit)}{unit}"


def figure(move: Move, value: float) -> str:
    """One value of a move with its unit."""
    scale, unit = _scale(move)
    return f"{_digits(value * scale, unit)}{unit}"


def _signed(move: Move, value: float, *, bare: bool = False) -> str:
    scale, unit = _scale(move)
    told = " points" if move.unit == "%" else unit  # of a share, as -31.5 % might be of what it was
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{_digits(abs(value) * scale, unit)}{'' if bare else told}"


def _scale(move: Move) -> tuple[float, str]:
    """Factor and unit in which both ends of a move are told: milliseconds where both are below half a second."""
    if move.unit == "s":
        return (1000, " ms") if max(abs(move.before), abs(move.after)) < 0.5 else (1, " s")
    return 1, f" {move.unit}" if move.unit == "%" else move.unit


def _digits(value: float, unit: str) -> str:
    """Two or three digits that carry something; tenths of a millisecond do not, from ten on."""
    if value == round(value) or abs(value) >= (10 if unit == " ms" else 100):
        return count(value)
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def _name(move: Move) -> str:
    spoken = {
        "itl_p99": "p99 inter-token latency",
        "ttft_p50": "median TTFT",
        "duration": "duration",
        "useful_tokens_per_s": "useful throughput",
        "latency_p50": "median latency",
    }
    return spoken.get(move.key, move.name)


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, *(_wrap(line, indent="    ") for line in lines)])


def _wrap(words: str, *, indent: str = "  ") -> str:
    return "\n".join(
        textwrap.wrap(printable(words), WIDTH, initial_indent="  ", subsequent_indent=indent, break_on_hyphens=False)
    )


def as_json(comparison: Comparison) -> str:
    """`compare.json`: the whole comparison with its rules."""
    moved = [
        asdict(move) | {"ratio": move.ratio, "direction": move.direction, "is_regression": move.is_regression}
        for move in comparison.moves
    ]
    whole: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kvpressure_version": version("kvpressure"),
        "before": comparison.before,
        "after": comparison.after,
        "conclusion": comparison.conclusion,
        "headline": headline(comparison),
        "reason": comparison.reason,
        "has_same_inputs": comparison.has_same_inputs,
        "variables": [asdict(change) for change in comparison.variables],
        "following": [asdict(change) for change in comparison.following],
        "workload": [asdict(drift) for drift in comparison.workload],
        "moves": moved,
        "regressions": [move.key for move in comparison.regressions],
        "alpha": ALPHA,
        "interval": LEVEL,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def page(comparison: Comparison) -> str:
    """One HTML file that asks for nothing and runs nothing."""
    return pages.html(
        "compare.html",
        {
            "comparison": comparison,
            "title": TITLES[comparison.conclusion],
            "sameness": sameness(comparison),
            "headline": headline(comparison),
            "changes": changes(comparison),
            "workload": workload(comparison),
            "rows": list(zip(comparison.moves, table(comparison), strict=True)),
            "bars": bars(comparison),
            "level": f"{100 * LEVEL:.0f} %",
        },
    )


def bars(comparison: Comparison) -> list[dict[str, Any]]:
    """Before and after of each measure as shares of the larger, for the page's bars."""
    rows = []
    for move in comparison.moves:
        most = max(abs(move.before), abs(move.after))
        rows.append(
            {
                "move": move,
                "before": 100 * abs(move.before) / most if most else 0,
                "after": 100 * abs(move.after) / most if most else 0,
            }
        )
    return rows
