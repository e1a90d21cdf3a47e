"""How much work was done twice: tokens by kind, each with its range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import altair as alt

from pipelines.charts import language
from pipelines.charts.data import Data, Row
from pipelines.charts.figure import WITHIN, Figure, Spec, amount_axis, finished, in_order, layered, named
from pipelines.charts.language import OFFLOAD, PAPER, SOFT, WASTE_KINDS, between, count, percent

QUERY = """\
select
    engine,
    kind,
    tokens_low,
    tokens_best,
    tokens_high,
    share_low,
    share_best,
    share_high,
    gpu_seconds_low,
    gpu_seconds_best,
    gpu_seconds_high,
    cost_low,
    cost_best,
    cost_high,
    method,
    told_by,
    contradiction,
from waste
order by tokens_high desc nulls last, engine, kind
limit 24"""


def figure(data: Data) -> Figure:
    """One bar for each engine and kind: filled to the lowest estimate, faint to the highest, a mark at the best one."""
    rows = data.rows(QUERY)
    known = [_worded(row, rows) for row in rows if row["tokens_high"] is not None]
    known = [row for row in known if row["tokens_high"] > 0] or known[:1]
    figure = Figure(
        key="waste",
        question="How much work was done twice?",
        answer=_answer(known),
        query=QUERY,
        rows=len(rows),
        needs="/metrics scraped during the run for a range; KV events or iteration lines for a narrow one",
        notes=[
            f"{language.word(WASTE_KINDS, row['kind']).name}: cannot be told from these inputs."
            for row in rows
            if row["tokens_best"] is None and row["tokens_high"] is None
        ]
        + [f"{language.word(WASTE_KINDS, row['kind']).name}: {row['contradiction']}" for row in rows if row["contradiction"]],
    )
    if not any(row["tokens_high"] for row in known):
        return figure
    return replace(
        figure, spec=finished(_bars(known), {"rows": [{**row, "place": place} for place, row in enumerate(known)]}, figure.alt)
    )


def _bars(rows: Sequence[Row]) -> Spec:
    base = alt.Chart(named("rows"))
    y = alt.Y("label:N", sort=in_order("place"), title=None, axis=None)
    color = alt.Color("tone:N", scale=None, legend=None)
    x = alt.X("tokens_high:Q", title="tokens", axis=amount_axis(count=5), scale=alt.Scale(zero=True))
    best = [  # Vega warns of marks without data
        base.mark_tick(thickness=5, height=20, color=PAPER.light).encode(x=alt.X("tokens_best:Q"), y=y),
        base.mark_tick(thickness=2.5, height=20).encode(x=alt.X("tokens_best:Q"), y=y, color=color),
    ]
    return layered(
        base.mark_bar(opacity=0.28, height=14, cornerRadiusEnd=2).encode(x=x, y=y, color=color),
        base.mark_bar(height=14, cornerRadiusEnd=2).encode(x=alt.X("tokens_low:Q"), y=y, color=color),
        *(best if any(row["tokens_best"] is not None for row in rows) else ()),
        base.mark_text(
            limit=WITHIN, align="left", baseline="bottom", dy=-14, fontSize=12, fontWeight=600, color=language.INK.light
        ).encode(x=alt.XValue(0), y=y, text=alt.Text("label:N")),
        base.mark_text(limit=WITHIN, align="left", baseline="top", dy=13, fontSize=11.5, color=SOFT.light).encode(
            x=alt.XValue(0), y=y, text=alt.Text("reading:N")
        ),
        height=66 * len(rows),
    )


def _worded(row: Row, rows: Sequence[Row]) -> Row:
    told = language.word(WASTE_KINDS, row["kind"])
    where = f", engine {row['engine']}" if len({each["engine"] for each in rows}) > 1 else ""
    spread = between(row["tokens_low"], row["tokens_high"])
    share = f", {percent(row['share_best'])} of all computed" if row["share_best"] is not None else ""
    share = ", moved and not computed again" if told.event is OFFLOAD else share
    best = count(row["tokens_best"]) if row["tokens_best"] is not None else "best guess not known"
    return {
        **row,
        "label": told.name + where,
        "tone": told.tone.light,
        "reading": f"{best}{f' ({spread})' if spread else ''}{share}",
        "sentence": f"{best}{f' ({spread})' if spread else ''} tokens{share}",
    }


def _answer(rows: Sequence[Row]) -> str:
    told = [f"{row['label']}: {row['sentence']}." for row in rows if row["tokens_best"]]
    if told:
        return " ".join(told[:3])
    if any(row["tokens_best"] is None for row in rows):
        return "The inputs do not tell how much; the range is what is possible at all."
    return "None was found." if rows else ""
