"""Whether cached prefixes were found, and whether they were reclaimed too early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import altair as alt

from pipelines.charts import language
from pipelines.charts.data import RUN_SPAN, Data, Row
from pipelines.charts.figure import (
    Entry,
    Figure,
    Spec,
    amount_axis,
    finished,
    header,
    layered,
    named,
    stacked,
    time_axis,
    view_window,
)
from pipelines.charts.holes import with_holes
from pipelines.charts.language import PREFIX_EVICTION, WORK, WORK_SOFT, count, percent

QUERY = """\
with spans as (
    select min(bucket_at) as first_at, greatest(max(bucket_s), epoch(max(bucket_at) - min(bucket_at)) / 400, 0.001) as step_s,
    from timeline
),

hits as (
    select
        first_at + to_seconds(floor(epoch(bucket_at - first_at) / step_s) * step_s) as step_at,
        step_at + to_seconds(any_value(step_s)) as step_end,
        100 * avg(prefix_hit_ratio) as prefix_hit_percent,
        100 * max(kv_usage_ratio) as kv_usage_percent,
    from timeline
    cross join spans
    group by step_at
),

evicted as (  -- in buckets of its own
    select
        first_at + to_seconds(floor(epoch(bucket_at - first_at) / step_s) * step_s) as step_at,
        step_at + to_seconds(max(greatest(evictions.bucket_s, step_s))) as step_end,
        sum(evicted_tokens) as evicted_tokens,
        sum(refilled_tokens) as refilled_tokens,
    from evictions
    cross join spans
    group by step_at
)

select
    step_at as bucket_at,
    step_end as bucket_end,
    prefix_hit_percent,
    kv_usage_percent,
    null as evicted_tokens,
    null as refilled_tokens,
from hits
union all
select step_at, step_end, null, null, evicted_tokens, refilled_tokens,
from evicted
order by bucket_at, prefix_hit_percent"""


WATCHED = "select 1 as one from waste where kind = 'prefix_refill' and method like 'kv_events%' limit 1"
RESTORED = (
    "select 1 as one from waste where kind = 'offload_restore' and tokens_best > 0 limit 1"  # KV events tell it from no refill
)


def figure(data: Data) -> Figure:
    """Hit ratio above, reclaimed and refilled tokens below, on the time axis of the timeline."""
    rows = data.rows(QUERY)
    has = {
        column: any(row[column] is not None for row in rows)
        for column in ("prefix_hit_percent", "evicted_tokens", "refilled_tokens")
    }
    is_watched = has["evicted_tokens"] or bool(data.rows(WATCHED))
    evicted = sum(row["evicted_tokens"] or 0 for row in rows)
    refilled = sum(row["refilled_tokens"] or 0 for row in rows)
    again = "restored or refilled" if data.rows(RESTORED) else "refilled"
    figure = Figure(
        key="prefixes",
        question="Were cached prefixes still there when they were asked for?",
        answer=_answer(rows, evicted, refilled, again) if is_watched else _hits(rows),
        query=QUERY,
        rows=len(rows),
        needs="/metrics (prefix_cache_queries_total and _hits_total) for hits; KV events (--kv-events-config) for evictions",
        notes=[]
        if is_watched or not rows
        else ["Reclaimed blocks: not in the inputs; KV events (--kv-events-config) would fill it."],
    )
    panels = []
    has_load = has["prefix_hit_percent"] and any(row["kv_usage_percent"] is not None for row in rows)
    is_last = not (evicted or refilled)
    if has["prefix_hit_percent"]:
        x = time_axis("bucket_at", labels=is_last and not has_load)
        line = (
            alt.Chart(named("rows"))
            .transform_filter("!isValid(datum.evicted_tokens)")  # those rows are buckets of their own
            .mark_line(color=WORK.light, clip=True, point=alt.OverlayMarkDef(size=9, color=WORK.light, filled=True))
            .encode(x=x, y=_y("prefix_hit_percent", percent_scale=True), tooltip=_tooltip())
        )
        panels.append(layered(line, *header("Looked-up tokens found in cache, %"), height=90))
    if has_load:
        panels.append(_load(time_axis("bucket_at", labels=is_last)))
    if evicted or refilled:
        panels.append(_reclaimed(time_axis("bucket_at"), again))
    if not panels:
        return figure
    window = view_window(data.rows(RUN_SPAN), "from_at", "to_at")
    of_blocks = [row for row in rows if row["evicted_tokens"] is not None]
    of_hits = [row for row in rows if row["evicted_tokens"] is None]
    shown = with_holes(of_hits, "bucket_at", "bucket_end", ("prefix_hit_percent", "kv_usage_percent")) + of_blocks
    return replace(figure, spec=finished(stacked(*panels), {"rows": shown}, figure.alt, params=window))


def _load(x: alt.X) -> Spec:
    """The pool below the hits: cached prefixes go when active requests need their blocks."""
    area = (
        alt.Chart(named("rows"))
        .transform_filter("!isValid(datum.evicted_tokens)")
        .mark_area(
            clip=True, color=WORK.light, opacity=0.22, line={"color": WORK.light, "strokeWidth": 1.6}, interpolate="step-after"
        )
        .encode(x=x, y=_y("kv_usage_percent", percent_scale=True), tooltip=_tooltip())
    )
    return layered(area, *header("KV pool held by active requests, %"), height=60)


def _reclaimed(x: alt.X, again: str) -> Spec:
    """Tokens in reclaimed blocks as faint bars, the part that was asked for again in front."""
    base = alt.Chart(named("rows"))
    return layered(
        base.mark_rect(color=WORK_SOFT.light, opacity=0.6, clip=True).encode(
            x=x, x2=alt.X2("bucket_end"), y=_y("evicted_tokens"), y2=alt.Y2Datum(0), tooltip=_tooltip()
        ),
        base.mark_rect(color=PREFIX_EVICTION.tone.light, clip=True).encode(
            x=x, x2=alt.X2("bucket_end"), y=_y("refilled_tokens"), y2=alt.Y2Datum(0), tooltip=_tooltip()
        ),
        *header("Tokens", [Entry("reclaimed", WORK_SOFT), Entry(again, PREFIX_EVICTION.tone)]),
        height=90,
    )


def _y(column: str, *, percent_scale: bool = False) -> alt.Y:
    scale = alt.Scale(domain=[0, 104]) if percent_scale else alt.Scale(zero=True, nice=True)
    axis = amount_axis(extent=language.AXIS_EXTENT, values=[0, 50, 100] if percent_scale else None)
    return alt.Y(f"{column}:Q", title=None, scale=scale, axis=axis)


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("bucket_at:T", title="Time (UTC)", format="%H:%M:%S"),
        alt.Tooltip("prefix_hit_percent:Q", title="Found, %", format=".1f"),
        alt.Tooltip("kv_usage_percent:Q", title="KV pool, %", format=".1f"),
        alt.Tooltip("evicted_tokens:Q", title="Reclaimed, tokens", format=",.0f"),
        alt.Tooltip("refilled_tokens:Q", title="Refilled, tokens", format=",.0f"),
    ]


def _hits(rows: Sequence[Row]) -> str:
    ratios = [row["prefix_hit_percent"] for row in rows if row["prefix_hit_percent"] is not None]
    if not ratios:
        return ""
    return f"Between {percent(min(ratios) / 100)} and {percent(max(ratios) / 100)} of looked-up tokens were found."


def _answer(rows: Sequence[Row], evicted: float, refilled: float, again: str) -> str:
    gone = f"{count(evicted)} tokens of cached blocks were reclaimed" if evicted else "No cached block was reclaimed"
    asked = f", {count(refilled)} of them asked for again and {again}." if evicted else "."
    return f"{_hits(rows)} {gone}{asked}".strip()
