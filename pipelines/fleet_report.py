"""The fleet's page: one HTML file a day, without script or network, from the fleet's tables of that day and of the weeks before.

It answers what a morning meeting asks: how many engines were under pressure, which waste most, which turned and what else changed
with them, what is outside what it used to be. Every list on it is bounded, so a day of a thousand engines is a page as well; the
rest is a query away. What a number means is said in `sql/fleet/`; here nothing is computed but what is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import duckdb

from pipelines import daily, pages
from pipelines.charts import language
from pipelines.charts.language import CALM, count, duration, percent
from pipelines.checks import DAY_CHECKS, judged
from pipelines.config import Config

TEMPLATE = "fleet.html"
MOST_WASTEFUL, MOST_TURNED, MOST_EPISODES, MOST_UNUSUAL, MOST_ENGINES = 10, 10, 20, 20, 100  # rows of each list
REPEATED = "coalesce(recomputed_tokens_best, 0) + coalesce(refilled_tokens_best, 0)"
# a log tells tokens, and no time that they took
BY_WASTE = "wasted_gpu_seconds_best desc nulls last, repeated_tokens desc, severity desc, run, engine"
Row = dict[str, Any]

MEASURES = {  # column of fleet.engine_days -> what it is called, and how its values read
    "severity": ("severity", count),
    "pressure_hours": ("time under pressure", lambda hours: duration(3600 * hours)),
    "preemptions_best": ("preemptions", count),
    "recompute_share_best": ("share recomputed", percent),
    "wasted_gpu_seconds_best": ("GPU time wasted", duration),
    "queue_seconds": ("time with a queue", duration),
    "ttft_p50_s": ("median time to first token", duration),
    "itl_p99_s": ("99th percentile of inter-token latency", duration),
    "prompt_tokens": ("prompt tokens", language.short),
    "generation_tokens": ("tokens generated", language.short),
    "mean_running": ("requests running", language.short),
}


def name_of(day: date) -> str:
    """Where the page of a day lies in the lake."""
    return f"fleet/report/day={day.isoformat()}/report.html"


def publish(con: duckdb.DuckDBPyConnection, config: Config, day: date) -> None:
    """Write the page of a day into the lake, from views `days.*`, `history.*` and `fleet.*` of it."""
    told = page(con, day, *daily.without_day(config, day), not_judged(con, config.thresholds))
    config.store.put_bytes(name_of(day), told.encode())


def not_judged(con: duckdb.DuckDBPyConnection, thresholds: object) -> list[tuple[str, list[str]]]:
    """Each check whose limit could not be held against some engines of the day, and these; from the views `days.*` of it."""
    unknown = {check.name: judged(check, con, check.limit_of(thresholds))[1] for check in DAY_CHECKS}
    return [(name, engines) for name, engines in unknown.items() if engines]


def page(
    con: duckdb.DuckDBPyConnection,
    day: date,
    lacking: Sequence[tuple[str, str]] = (),
    absent: int = 0,
    unheld: Sequence[tuple[str, Sequence[str]]] = (),
) -> str:
    """The page, from views `fleet.*` of the day and `history.engine_days` of the days before.

    `lacking` are names of engines and what was missing of them or could not be read; `absent` of them have no day at all.
    `unheld` are checks whose limit could not be held against the engines named.
    """
    engines = _rows(con, f"select *, {REPEATED} as repeated_tokens from fleet.engine_days order by {BY_WASTE}")
    changes = _rows(con, "from fleet.changes")
    trends = _rows(con, "from fleet.trends where is_unusual order by not is_workload desc, run, engine, measure")
    totals = _rows(con, "from fleet.totals order by dimension <> 'fleet', dimension, engines_under_pressure desc, member")
    return pages.html(
        TEMPLATE,
        {
            "day": day,
            "title": _title(totals, absent),
            "numbers": _numbers(totals, absent),
            "lacking": lacking,
            "wasteful": [row for row in engines if row["repeated_tokens"] or row["wasted_gpu_seconds_best"]][:MOST_WASTEFUL],
            "widest": max((row["wasted_gpu_seconds_best"] or 0 for row in engines), default=0),
            "turned": _turned(changes),
            "most_turned": MOST_TURNED,
            "unusual": [_unusual(row) for row in trends if not row["is_workload"]][:MOST_UNUSUAL],
            "episodes": _rows(con, f"from fleet.episodes order by position limit {MOST_EPISODES}"),
            "groups": totals[1:],
            "calendar": _calendar(con, day),
            "untold": [row for row in engines if row["verdict"] in (None, "insufficient_evidence")],
            "unheld": unheld,
            "engines": engines,
            "named": _named(engines),
            "verdicts": language.VERDICTS,
        },
    )


def _rows(con: duckdb.DuckDBPyConnection, query: str) -> list[Row]:
    return con.sql(query).to_arrow_table().to_pylist()


def _named(engines: Iterable[Row]) -> Any:
    """How an engine is called: its name, and its rank where the server has several."""
    ranks: dict[str, int] = {}
    for row in engines:
        ranks[row["run"]] = ranks.get(row["run"], 0) + 1
    return lambda row: row["run"] if ranks.get(row["run"], 1) == 1 else f"{row['run']} / {row['engine']}"


def _title(totals: Sequence[Row], absent: int) -> str:
    if not totals:
        return "No engine's day is in the lake."
    whole = totals[0]
    number = whole["engines_under_pressure"]
    verb = "were" if number > 1 else "was"
    told = f"{count(number) if number else 'None'} of {_engines(whole['engines'])} {verb} under pressure"
    untold = [f"{count(whole['engines_not_told'])} cannot be told"] if whole["engines_not_told"] else []
    unseen = [f"of {count(absent)} more nothing was seen"] if absent else []
    return "; ".join([told, *untold, *unseen]) + "."


def _engines(number: int) -> str:
    return "1 engine" if number == 1 else f"{count(number)} engines"


def _numbers(totals: Sequence[Row], absent: int) -> list[dict[str, str]]:
    """The day's key numbers: what it is, its value, and a remark."""
    if not totals:
        return []
    whole = totals[0]
    known = f"of the {_engines(whole['engines_known'])} for which it is known" if whole["engines_known"] else ""
    is_part = 0 < whole["engines_counted"] < whole["engines"]
    counted = f"of the {_engines(whole['engines_counted'])} for which they are known" if is_part else ""
    low, best, high = (whole[f"wasted_gpu_seconds_{end}"] for end in ("low", "best", "high"))
    spread = language.between(low, high, duration) if best is not None else ""
    wasted = duration(best) if best is not None else language.estimate(low, best, high, duration) or duration(None)
    cost = whole["wasted_cost_best"]
    tokens = language.between(whole["recomputed_tokens_low"], whole["recomputed_tokens_high"], language.short)
    return [
        _number("Under pressure", _hours(whole["pressure_hours"]), f"of {_hours(whole['observed_hours'])} observed"),
        _number("Preemptions", count(whole["preemptions_best"]), counted),
        _number("Recomputed tokens", language.short(whole["recomputed_tokens_best"]), tokens),
        _number("GPU time wasted", wasted, ", ".join(filter(None, (spread, known)))),
        *(
            [_number("That cost", f"${cost:,.2f}" if cost >= 0.995 else f"${cost:.2g}", "recomputation and refill together")]
            if cost is not None
            else []
        ),
        _number("Cannot be told", _engines(whole["engines_not_told"]), "whose inputs do not show it"),
        *([_number("Not seen", _engines(absent), "what is lacking is said below")] if absent else []),
    ]


def _number(label: str, value: str, remark: str) -> dict[str, str]:
    return {"label": label, "value": value, "remark": remark}


def _hours(hours: float | None) -> str:
    return duration(None if hours is None else 3600 * hours)


def _turned(changes: Sequence[Row]) -> list[dict[str, Any]]:
    """Each engine whose verdict turned, with what else changed that day: into trouble before out of it, the explained first."""
    others: dict[tuple[str, str], list[Row]] = {}
    for row in changes:
        if row["kind"] != "verdict":
            others.setdefault((row["run"], row["engine"]), []).append(row)
    turns = [{"row": row, "others": others.get((row["run"], row["engine"]), [])} for row in changes if row["kind"] == "verdict"]
    return sorted(turns, key=lambda turn: (turn["row"]["after"] in CALM, not turn["others"], turn["row"]["run"]))


def _unusual(row: Row) -> dict[str, Any]:
    name, said = MEASURES[row["measure"]]
    return row | {"name": name, "value_said": said(row["value"]), "usual_said": said(row["usual"])}


def _calendar(con: duckdb.DuckDBPyConnection, day: date) -> dict[str, Any]:
    """The last weeks, an engine a line: its verdict of each day; the worst lines first, at most MOST_ENGINES."""
    seen = _rows(
        con,
        """
        select day, run, engine, verdict, severity from history.engine_days
        union all
        select day, run, engine, verdict, severity from fleet.engine_days
        order by run, engine, day
        """,
    )
    lines: dict[tuple[str, str], dict[date, Mapping[str, Any]]] = {}
    for row in seen:
        lines.setdefault((row["run"], row["engine"]), {})[row["day"]] = row
    first = min((row["day"] for row in seen), default=day)
    worst = sorted(lines, key=lambda key: (-sum(each["severity"] or 0 for each in lines[key].values()), key))
    days = [first + timedelta(days=each) for each in range((day - first).days + 1)]
    return {
        "days": days,
        "lines": [
            {"run": run, "engine": engine, "cells": [lines[run, engine].get(each) for each in days]}
            for run, engine in worst[:MOST_ENGINES]
        ],
        "left_out": max(0, len(lines) - MOST_ENGINES),
    }
