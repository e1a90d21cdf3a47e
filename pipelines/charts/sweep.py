"""What did more load buy, and what did it cost: a sweep's levels on one axis, with the knee and the practical cache limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import altair as alt

from pipelines.charts.data import Data, Row
from pipelines.charts.figure import Entry, Figure, Spec, amount_axis, finished, header, layered, named, stacked
from pipelines.charts.language import AXIS_EXTENT, INK, PREEMPTION, WORK, Tone

FEWEST_LEVELS = 3  # of fewer there is nothing to see that the table does not say
PANEL_HEIGHT = 74

QUERY = """\
select
    sweep,
    dimension,
    level,
    avg(useful_tokens_per_s) as useful_tokens_per_s,
    avg(goodput_per_s) as goodput_per_s,
    avg(tail_s) as tail_s,
    avg(ttft_p50_s) as ttft_p50_s,
    avg(ttft_p99_s) as ttft_p99_s,
    avg(itl_p99_s) as itl_p99_s,
    max(longest_gap_s) as longest_gap_s,
    100 * max(kv_usage_max) as kv_usage_percent,
    avg(running) as running,
    avg(waiting) as waiting,
    sum(preemptions) as preemptions,
    avg(recomputed_share) as recomputed_share,
    sum(requests) as requests,
from sweep_levels
group by sweep, dimension, level
order by sweep, dimension, level"""
KNEES = "from sweep_knee order by sweep, dimension"


@dataclass(frozen=True)
class Panel:
    """One measure over the levels."""

    title: str
    column: str
    tone: Tone
    is_bar: bool = False
    most: float | None = None  # of the axis, where a share has one


PANELS = (
    Panel("Useful tokens per second", "useful_tokens_per_s", WORK),
    Panel("Longest wait of a request, s", "tail_s", WORK),
    Panel("KV pool held at most, %", "kv_usage_percent", WORK, most=100),
    Panel("Preemptions", "preemptions", PREEMPTION.tone, is_bar=True),
)


def figure(data: Data) -> Figure | None:
    """One panel for each measure, the levels below each other; None where there is no sweep of three levels or more."""
    rows, knees = levels(data), knees_of(data)
    if len(rows) < FEWEST_LEVELS or not knees:
        return None
    knee = knees[0]
    figure = Figure(
        key="sweep",
        question="What did more load buy, and what did it cost?",
        answer=knee["summary"] or "",
        query=QUERY,
        rows=len(data.rows(QUERY)),
        needs="results of one client at three or more levels of load",
        notes=[
            "Longest wait: the 95th percentile over the requests, the 99th where a result holds only sums.",
            *(knee["remarks"] or []),
            *([f"{len(knees)} sweeps are in these inputs; {knee['sweep']} is drawn."] if len(knees) > 1 else []),
        ],
        legend=[
            *([Entry("the knee", INK, "┆")] if knee["knee_level"] is not None else []),
            *([Entry("where the practical cache limit lies", PREEMPTION.tone)] if knee["cache_limit_high"] is not None else []),
        ],
    )
    shown = [panel for panel in PANELS if any(row[panel.column] is not None for row in rows)]
    panels = [_panel(panel, rows, knee, is_last=panel is shown[-1]) for panel in shown]
    datasets = {"rows": rows, "marks": [_marks(knee, rows)]}
    return replace(figure, spec=finished(stacked(*panels), datasets, figure.alt, is_linked=False))


def levels(data: Data) -> list[Row]:
    """The levels of the sweep that is drawn: the first."""
    rows = data.rows(QUERY)
    return [row for row in rows if (row["sweep"], row["dimension"]) == (rows[0]["sweep"], rows[0]["dimension"])]


def knees_of(data: Data) -> list[Row]:
    """What each sweep tells."""
    return data.rows(KNEES)


def _panel(panel: Panel, rows: Sequence[Row], knee: Row, *, is_last: bool) -> Spec:
    unit = "requests at once" if knee["dimension"] == "concurrency" else "requests per second"
    x = alt.X(
        "level:Q",
        title=unit if is_last else None,
        scale=alt.Scale(type="log", base=2, nice=False, padding=14),
        axis=alt.Axis(
            values=[row["level"] for row in rows], format="~g", labels=is_last, ticks=is_last, labelOverlap="greedy", grid=False
        ),
    )
    y = alt.Y(
        f"{panel.column}:Q",
        title=None,
        axis=amount_axis(extent=AXIS_EXTENT),
        scale=alt.Scale(zero=True, domainMax=panel.most if panel.most is not None else alt.Undefined),
    )
    base = alt.Chart(named("rows")).encode(
        x=x,
        y=y,
        tooltip=[
            alt.Tooltip("level:Q", title=unit.capitalize(), format="~g"),
            alt.Tooltip("useful_tokens_per_s:Q", title="Useful tokens/s", format=",.0f"),
            alt.Tooltip("tail_s:Q", title="Longest wait, s", format=".3~g"),
            alt.Tooltip("kv_usage_percent:Q", title="KV pool, %", format=".0f"),
            alt.Tooltip("preemptions:Q", title="Preemptions", format=",.0f"),
        ],
    )
    marks, layers = alt.Chart(named("marks")), []
    if (
        knee["cache_limit_high"] is not None
    ):  # what has no place is no layer: the browser would complain of a scale without extent
        limit = marks.mark_rect(color=PREEMPTION.tone.light, opacity=0.14)
        layers.append(limit.encode(x=alt.X("limit_from:Q"), x2=alt.X2("limit_to")))
    if knee["knee_level"] is not None:
        layers.append(marks.mark_rule(color=INK.light, strokeDash=[3, 3]).encode(x=alt.X("knee:Q")))
    if panel.is_bar:
        layers.append(base.mark_bar(size=16, color=panel.tone.light))
    else:
        layers += [
            base.mark_line(color=panel.tone.light),
            base.mark_point(filled=True, opacity=1, size=34, color=panel.tone.light),
        ]
    return layered(*layers, *header(panel.title), height=PANEL_HEIGHT)


def _marks(knee: Row, rows: Sequence[Row]) -> Row:
    """Where the knee and the limit are drawn. A limit below the lowest level begins at it."""
    high = knee["cache_limit_high"]
    low = knee["cache_limit_low"] if knee["cache_limit_low"] is not None else rows[0]["level"]
    return {"knee": knee["knee_level"], "limit_from": low if high is not None else None, "limit_to": high}
