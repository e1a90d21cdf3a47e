"""Engines side by side: which one carried the pressure, where there is more than one."""

from __future__ import annotations

from dataclasses import replace

import altair as alt

from pipelines.charts.data import RUN_SPAN, Data
from pipelines.charts.figure import Figure, finished, in_order, layered, named, time_axis, view_window
from pipelines.charts.language import GRID, PREEMPTION, WORK

QUERY = """\
with spans as (
    select min(bucket_at) as first_at, greatest(max(bucket_s), epoch(max(bucket_at) - min(bucket_at)) / 80, 0.001) as step_s,
    from timeline
),

graver as (select engine, max(severity) as severity from verdicts where is_primary group by engine),

hardest as (
    select engine, severity, sum(preemptions) as preempted, max(kv_usage_ratio) as highest,
    from timeline
    left join graver using (engine)
    group by engine, severity
    order by severity desc nulls last, preempted desc nulls last, highest desc nulls last, engine
    limit 24
)

select
    engine,
    any_value(severity) as severity,
    first_at + to_seconds(floor(epoch(bucket_at - first_at) / step_s) * step_s) as step_at,
    step_at + to_seconds(any_value(step_s)) as step_end,
    100 * max(kv_usage_ratio) as kv_usage_percent,
    sum(preemptions) as preemptions,
    max(waiting) as waiting,
from timeline
join hardest using (engine)
cross join spans
group by engine, step_at
order by severity desc nulls last, engine, step_at"""


def figure(data: Data) -> Figure | None:
    """A strip for each engine, darker where its pool is fuller; None where there is one engine."""
    rows = data.rows(QUERY)
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    if len(engines) < 2:
        return None
    number = data.rows("select count(distinct engine) as engines from timeline")[0]["engines"]
    figure = Figure(
        key="engines",
        question="Did every engine carry the same load?",
        answer=f"{number} engines."
        + (f" The {len(engines)} under most pressure are shown, the hardest pressed first." if number > len(engines) else ""),
        query=QUERY,
        rows=len(rows),
        needs="an engine log or /metrics of each engine",
    )
    place = {engine: number for number, engine in enumerate(engines)}
    y = alt.Y("engine:N", title=None, sort=in_order("place"), axis=alt.Axis(labelLimit=130))
    base = alt.Chart(named("rows")).encode(
        x=time_axis("step_at"),
        x2=alt.X2("step_end"),
        y=y,
        tooltip=[
            alt.Tooltip("engine:N", title="Engine"),
            alt.Tooltip("step_at:T", title="Time (UTC)", format="%H:%M:%S"),
            alt.Tooltip("kv_usage_percent:Q", title="KV pool, %", format=".0f"),
            alt.Tooltip("waiting:Q", title="Waiting", format=".0f"),
            alt.Tooltip("preemptions:Q", title="Preemptions", format=".1f"),
        ],
    )
    shade = alt.Color(
        "kv_usage_percent:Q",
        title="KV pool held, %",
        scale=alt.Scale(domain=[0, 100], range=[GRID.light, WORK.light]),
        legend=alt.Legend(gradientLength=120, gradientThickness=8),
    )
    strips = base.mark_rect(clip=True, height=alt.RelativeBandSize(band=0.8)).encode(color=shade)
    feet = base.transform_filter("datum.preemptions > 0").mark_rect(
        clip=True, color=PREEMPTION.tone.light, height=alt.RelativeBandSize(band=0.25), yOffset=5
    )
    has_feet = any(row["preemptions"] for row in rows)  # Vega warns of a layer without data
    chart = layered(strips, *([feet] if has_feet else []), height=22 * len(engines))
    window = view_window(data.rows(RUN_SPAN), "from_at", "to_at")
    notes = ["A mark at the foot of a strip: the engine preempted."] if has_feet else []
    notes += ["Click a strip to see that engine below."]
    placed = [{**row, "place": place[row["engine"]]} for row in rows]
    return replace(figure, notes=notes, spec=finished(chart, {"rows": placed}, figure.alt, params=window))
