"""How long prompts and answers were, in calm and under pressure: whether the load changed in kind or only in amount."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import altair as alt

from pipelines.charts.data import Data, Row
from pipelines.charts.figure import WITHIN, Figure, amount_axis, finished, in_order, layered, named
from pipelines.charts.language import INK, PAPER, SOFT, WORK, WORK_SOFT, count

QUERY = """\
select engine, scope, requests, part, p50, p90, p99, method,
from (
    select engine, scope, requests, 'prompt' as part, prompt_p50 as p50, prompt_p90 as p90, prompt_p99 as p99, method
    from core.sequence_lengths
    union all
    select engine, scope, requests, 'answer', output_p50, output_p90, output_p99, method
    from core.sequence_lengths
)
where scope in ('calm', 'pressure') and p50 is not null
-- one engine: the one with most requests under pressure
qualify engine = first_value(engine) over (order by scope = 'pressure' desc, requests desc, engine)
order by part = 'answer', scope"""

SCOPES = {"calm": ("in calm", WORK_SOFT), "pressure": ("under pressure", WORK)}
PARTS = {"prompt": "Prompts", "answer": "Answers"}


def figure(data: Data) -> Figure:
    """Prompts and answers, each in calm and under pressure: a bar from the median to the 99th percentile."""
    rows = [
        {
            **row,
            "place": place,
            "label": f"{PARTS[row['part']]} {SCOPES[row['scope']][0]}",
            "reading": f"median {count(row['p50'])}, p90 {count(row['p90'])}, p99 {count(row['p99'])}"
            f" ({count(row['requests'])} request{'' if row['requests'] == 1 else 's'})",
            "tone": SCOPES[row["scope"]][1].light,
        }
        for place, row in enumerate(data.rows(QUERY))
    ]
    several = data.rows("select count(distinct engine) as engines from core.sequence_lengths")[0]["engines"] > 1
    figure = Figure(
        key="lengths",
        question="Were requests longer under pressure than in calm?",
        answer=_answer(rows),
        query=QUERY,
        rows=len(rows),
        needs="the token counts of requests: a benchmark result with details, spans, or the length histograms of /metrics",
        notes=[
            *([f"Engine {rows[0]['engine']} is drawn."] if several and rows else []),
            *(["Lengths are read from histograms: within a bucket they are not known."] if _is_coarse(rows) else []),
        ],
    )
    if not rows:
        return figure
    base = alt.Chart(named("rows"))
    y = alt.Y("label:N", sort=in_order("place"), title=None, axis=None)
    color = alt.Color("tone:N", scale=None, legend=None)
    x = alt.X("p50:Q", title="tokens", axis=amount_axis(count=5), scale=alt.Scale(zero=True))
    chart = layered(
        base.mark_bar(height=4, opacity=0.45).encode(x=x, x2=alt.X2("p99"), y=y, color=color),
        base.mark_bar(height=10).encode(x=x, x2=alt.X2("p90"), y=y, color=color),
        base.mark_tick(thickness=5, height=18, color=PAPER.light).encode(x=alt.X("p50:Q"), y=y),
        base.mark_tick(thickness=2.5, height=18).encode(x=alt.X("p50:Q"), y=y, color=color),
        base.mark_text(limit=WITHIN, align="left", baseline="bottom", dy=-11, fontSize=12, color=INK.light).encode(
            x=alt.XValue(0), y=y, text=alt.Text("label:N")
        ),
        base.mark_text(limit=WITHIN, align="left", baseline="top", dy=11, fontSize=11.5, color=SOFT.light).encode(
            x=alt.XValue(0), y=y, text=alt.Text("reading:N")
        ),
        height=60 * len(rows),
    )
    return replace(figure, spec=finished(chart, {"rows": rows}, figure.alt))


def _is_coarse(rows: Sequence[Row]) -> bool:
    return any(row["method"] == "histograms" for row in rows)


def _answer(rows: Sequence[Row]) -> str:
    told = []
    for part, name in PARTS.items():
        calm, pressed = (
            next((row for row in rows if (row["part"], row["scope"]) == (part, scope)), None) for scope in ("calm", "pressure")
        )
        if calm and pressed:
            told.append(f"{name}: median {count(calm['p50'])} tokens in calm, {count(pressed['p50'])} under pressure.")
    if told:
        return " ".join(told)
    return f"All requests were {SCOPES[rows[0]['scope']][0]}: there is nothing to compare with." if rows else ""
