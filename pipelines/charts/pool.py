"""Who held the KV pool: active requests, blocks kept for reuse, nobody; as far as the inputs tell these apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import altair as alt

from pipelines.charts import language
from pipelines.charts.data import RUN_SPAN, Data, Row
from pipelines.charts.figure import Entry, Figure, amount_axis, finished, header, layered, named, time_axis, view_window
from pipelines.charts.holes import with_holes
from pipelines.charts.language import GRID, HAIR, WORK, WORK_SOFT, Tone, percent

QUERY = """\
with busiest as (  -- one engine: the one that preempted most, then the fullest
    select engine
    from pool_use
    left join (select engine, sum(preemptions) as preempted from timeline group by engine) using (engine)
    group by engine, preempted
    order by preempted desc nulls last, avg(active_ratio) desc nulls last, engine
    limit 1
),

spans as (
    select min(bucket_at) as first_at, greatest(max(bucket_s), epoch(max(bucket_at) - min(bucket_at)) / 400, 0.001) as step_s,
    from pool_use
    join busiest using (engine)
)

select
    engine,
    first_at + to_seconds(floor(epoch(bucket_at - first_at) / step_s) * step_s) as step_at,
    step_at + to_seconds(any_value(step_s)) as step_end,
    100 * avg(active_ratio) as active,
    100 * avg(reusable_ratio) as reusable,
    100 * avg(free_ratio) as free,
    case when avg(reusable_ratio) is null then 100 - 100 * avg(active_ratio) end as rest,
from pool_use
join busiest using (engine)
cross join spans
group by engine, step_at
order by step_at"""

PARTS: dict[str, tuple[str, Tone]] = {
    "active": ("Active requests", WORK),
    "reusable": ("Kept for reuse", WORK_SOFT),
    "free": ("Free", GRID),
    "rest": ("Reusable or free: not told apart", HAIR),
}


def figure(data: Data) -> Figure:
    """Shares of one engine's pool, stacked to the whole of it."""
    rows = data.rows(QUERY)
    parts = [part for part in PARTS if any(row[part] is not None for row in rows)]
    several = data.rows("select count(distinct engine) as engines from pool_use")[0]["engines"] > 1
    figure = Figure(
        key="pool",
        question="Who held the KV pool?",
        answer=_answer(rows),
        query=QUERY,
        rows=len(rows),
        needs="an engine log or /metrics for what is active; KV events (--kv-events-config) from the engine's start for the rest",
        notes=[
            *([f"Engine {rows[0]['engine']} is drawn."] if several and rows else []),
            *(
                ["What is kept for reuse and what is free: not told apart; KV events (--kv-events-config) would."]
                if "rest" in parts
                else []
            ),
        ],
        legend=[Entry(*PARTS[part]) for part in parts],
    )
    if not parts:
        return replace(figure, legend=())
    chart = layered(_stack(parts), *header("Share of the KV pool, %"), height=110)
    window = view_window(data.rows(RUN_SPAN), "from_at", "to_at")
    shown = with_holes(rows, "step_at", "step_end", (), parts)
    return replace(figure, spec=finished(chart, {"rows": shown}, figure.alt, params=window))


def _stack(parts: Sequence[str]) -> alt.Chart:
    columns: list[str | alt.FieldName] = list(parts)
    tooltip = [
        alt.Tooltip("step_at:T", title="Time (UTC)", format="%H:%M:%S"),
        *(alt.Tooltip(f"{part}:Q", title=f"{PARTS[part][0]}, %", format=".0f") for part in parts),
    ]
    return (
        alt.Chart(named("rows"))
        .transform_fold(columns, as_=["part", "percent"])
        .transform_filter("isValid(datum.percent)")
        .transform_calculate(order=f"indexof({columns}, datum.part)")  # column names are our own
        .mark_area(clip=True, interpolate="step-after")
        .encode(
            x=time_axis("step_at"),
            y=alt.Y(
                "percent:Q",
                title=None,
                stack="zero",
                scale=alt.Scale(domain=[0, 100]),
                axis=amount_axis(extent=language.AXIS_EXTENT, values=[0, 50, 100]),
            ),
            color=alt.Color(
                "part:N", legend=None, scale=alt.Scale(domain=columns, range=[PARTS[part][1].light for part in parts])
            ),
            order=alt.Order("order:Q"),
            tooltip=tooltip,
        )
    )


def _answer(rows: Sequence[Row]) -> str:
    active = [row["active"] for row in rows if row["active"] is not None]
    if not active:
        return ""
    told = f"Active requests held {_mean(active)} of it on average and {percent(max(active) / 100)} at most"
    reusable, free = ([row[part] for row in rows if row[part] is not None] for part in ("reusable", "free"))
    if not reusable:
        return f"{told}."
    return f"{told}; {_mean(reusable)} was kept for reuse and {_mean(free)} was free, on average."


def _mean(values: Sequence[float]) -> str:
    return percent(sum(values) / len(values) / 100)
