"""What requests waited for before they first ran, by cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import altair as alt

from pipelines.charts import language
from pipelines.charts.data import Data, Row
from pipelines.charts.figure import Figure, Spec, amount_axis, finished, header, layered, named, stacked
from pipelines.charts.language import QUEUE_CAUSES, QUEUEING, SOFT, duration

QUERY = """\
select cause, sum(seconds) as seconds, sum(request_seconds) as request_seconds,
from queue_time
group by cause
having coalesce(sum(seconds), 0) > 0 or coalesce(sum(request_seconds), 0) > 0
order by seconds desc nulls last, cause"""

MEASURES = (
    ("seconds", "Seconds with a queue"),
    ("request_seconds", "Request-seconds before the first run"),
)


def figure(data: Data) -> Figure:
    """Two measures, one below the other: how long there was a queue, and what it cost the requests in it."""
    rows = [
        {
            **row,
            "name": language.word(QUEUE_CAUSES, row["cause"]).name,
            **{f"{column}_said": duration(row[column]) for column, _ in MEASURES},
        }
        for row in data.rows(QUERY)
    ]
    figure = Figure(
        key="queues",
        question="What did requests wait for before they ran?",
        answer=_answer(rows) if rows else ("No queue was seen." if is_watched(data) else ""),
        query=QUERY,
        rows=len(rows),
        needs="an engine log with statistics lines, or /metrics (num_requests_waiting, request_queue_time_seconds)",
    )
    shown = [measure for measure in MEASURES if any(row[measure[0]] for row in rows)]
    if not shown:
        return figure
    chart = stacked(*(_bars(rows, column, title) for column, title in shown)) | {"spacing": 30}
    return replace(figure, spec=finished(chart, {"rows": rows}, figure.alt, margin=14))


def is_watched(data: Data) -> bool:
    """Whether any input shows the waiting queue for longer than an instant, so that none seen means there was none."""
    return bool(
        data.rows(
            "select 1 as one from queue_time where seconds is not null "
            "union select 1 as one from timeline left join engines using (engine) "
            "where waiting is not null and (first_seen_at = last_seen_at) is not true limit 1"
        )
    )


def _bars(rows: Sequence[Row], column: str, title: str) -> Spec:
    known = [row for row in rows if row[column] is not None]
    y = alt.Y("name:N", title=None, sort=[row["name"] for row in rows], axis=None)
    base = alt.Chart(named("rows")).transform_filter(f"isValid(datum.{column})")
    return layered(
        base.mark_bar(height=12, color=QUEUEING.tone.light, cornerRadiusEnd=2).encode(
            x=alt.X(f"{column}:Q", title=None, axis=amount_axis(count=5)), y=y
        ),
        base.mark_text(align="left", baseline="bottom", dy=-9, fontSize=12).encode(x=alt.XValue(0), y=y, text=alt.Text("name:N")),
        base.mark_text(align="right", baseline="bottom", dy=-9, fontSize=12, color=SOFT.light).encode(
            x=alt.XValue("width"), y=y, text=alt.Text(f"{column}_said:N")
        ),
        *header(title),
        height=40 * len(known),
    )


def _answer(rows: Sequence[Row]) -> str:
    told = []
    for row in rows[:3]:
        waits = (
            f", {duration(row['request_seconds'])} summed over the requests until each first ran"
            if row["request_seconds"]
            else ""
        )
        told.append(f"{row['name']}: {duration(row['seconds'])} with a queue{waits}.")
    return " ".join(told)
