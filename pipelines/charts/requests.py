"""Where the time of requests went, and what each did around the worst episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import altair as alt

from pipelines.charts import language
from pipelines.charts.data import Data, Row
from pipelines.charts.figure import Entry, Figure, finished, in_order, layered, named, time_axis, view_window
from pipelines.charts.language import (
    HAIR,
    LOOK_ALIKE,
    PREEMPTION,
    QUEUEING,
    RECOMPUTATION,
    UNTOLD,
    WORK,
    WORK_SOFT,
    Tone,
    count,
    duration,
    percent,
)

PARTS: dict[str, tuple[str, Tone]] = {
    "queue": ("Queued", QUEUEING.tone),
    "first": ("To first token (queue and prefill not told apart)", HAIR),
    "prefill": ("Prefill", WORK_SOFT),
    "decode": ("Streaming", WORK),
    "paused": ("Paused by preemption", PREEMPTION.tone),
    "rebuild": ("Rebuilding what preemption took", RECOMPUTATION.tone),
    "slowed": ("Paused, another cause", LOOK_ALIKE),
    "untold": ("Paused, cause not told", UNTOLD),
}
PAUSES = ("paused", "rebuild", "slowed", "untold")
LEAST_SEEN = 0.002  # of the axis: what is shorter is no pixel wide, and not in the key

TIME_QUERY = """\
with paused as (
    select
        source_file,
        request_index,
        request_id,
        sum(duration_s) filter (where cause = 'preemption') as away_s,
        least(sum(rebuild_s) filter (where cause = 'preemption'), away_s) as rebuild_s,
        sum(duration_s) filter (where cause not in ('preemption', 'unknown')) as slowed_s,
        sum(duration_s) filter (where coalesce(cause, 'unknown') = 'unknown') as untold_s,
    from stalls
    group by all
),

requests as (
    select
        requests.queue_s,
        requests.prefill_s,
        case when requests.queue_s is null then requests.ttft_s end as first_s,
        coalesce(
            requests.decode_s,
            epoch(requests.finished_at - requests.first_token_at),
            epoch(requests.finished_at - requests.arrived_at) - requests.ttft_s
        ) as streaming_s,
        least(coalesce(paused.away_s, 0), streaming_s) as away_s,
        least(coalesce(paused.rebuild_s, 0), away_s) as rebuild_s,
        least(coalesce(paused.slowed_s, 0), streaming_s - away_s) as slowed_s,
        least(coalesce(paused.untold_s, 0), streaming_s - away_s - slowed_s) as untold_s,
    from core.requests
    left join paused
        on paused.source_file is not distinct from requests.source_file
        and paused.request_index is not distinct from requests.request_index
        and paused.request_id is not distinct from requests.request_id
    where not coalesce(requests.is_failed, false)
),

ranked as (
    select
        *,
        coalesce(queue_s, 0) + coalesce(prefill_s, 0) + coalesce(first_s, 0) + streaming_s as whole_s,
        ntile(10) over (order by whole_s) as tenth,
    from requests
    where streaming_s is not null
)

select
    tenth,
    count(*) as requests,
    avg(whole_s) as whole_s,
    avg(queue_s) as queue,
    avg(first_s) as first,
    avg(prefill_s) as prefill,
    avg(streaming_s - away_s - slowed_s - untold_s) as decode,
    avg(away_s - rebuild_s) as paused,
    avg(rebuild_s) as rebuild,
    avg(slowed_s) as slowed,
    avg(untold_s) as untold,
from ranked
group by tenth
order by tenth"""

LANES_QUERY = """\
with episode as (  -- the worst window that has requests to show, 40 s around its peak at most
    select
        engine,
        greatest(window_start, coalesce(peak_at, window_start) - interval 20 seconds) - interval 2 seconds as from_at,
        least(window_end, coalesce(peak_at, window_start) + interval 20 seconds) + interval 2 seconds as to_at,
    from verdicts
    where verdict not in ('healthy', 'insufficient_evidence') and window_start is not null
    order by coalesce(is_primary, false) desc, severity desc nulls last, window_start
    limit 1
),

requests as (
    select
        requests.*,
        coalesce(source_file || ' #' || request_index, request_id, request_key) as lane,
        from_at,
        to_at,
    from core.requests
    join episode on arrived_at < to_at and coalesce(finished_at, arrived_at) > from_at
        and (requests.engine is null or requests.engine = episode.engine)
),

pauses as (
    select
        requests.lane,
        stalls.cause,
        stalls.started_at,
        stalls.started_at + to_seconds(stalls.duration_s) as ended_at,
        case when stalls.cause = 'preemption' then stalls.rebuild_s end as rebuild_s,
    from stalls
    join requests
        on stalls.source_file is not distinct from requests.source_file
        and stalls.request_index is not distinct from requests.request_index
        and stalls.request_id is not distinct from requests.request_id
    where stalls.started_at < to_at and stalls.started_at + to_seconds(stalls.duration_s) > from_at
),

lanes as (  -- those who paused longest, and as many who streamed on
    select
        lane,
        min(arrived_at) as arrived_at,
        coalesce(any_value(paused_s), 0) as paused_s,
        count(*) over () as of_requests,
        count(*) filter (where any_value(paused_s) > 0) over () as of_paused,
        row_number() over (
            partition by coalesce(any_value(paused_s), 0) > 0
            order by
                any_value(paused_s) desc,
                max(epoch(least(finished_at, to_at) - greatest(first_token_at, from_at))) desc nulls last,
                lane
        ) as place,
    from requests
    left join (
        select lane, sum(epoch(ended_at - started_at)) as paused_s,
        from pauses
        where cause = 'preemption'
        group by lane
    ) using (lane)
    group by lane
    qualify place <= 20
),

parts as (
    select
        lane,
        case when queue_s is null then 'first' else 'prefill' end as part,
        arrived_at + to_seconds(coalesce(queue_s, 0)) as started_at,
        coalesce(first_token_at, arrived_at + to_seconds(ttft_s)) as ended_at,
    from requests
    union all
    select lane, 'queue', arrived_at, arrived_at + to_seconds(queue_s) from requests where queue_s > 0
    union all
    select lane, 'decode', coalesce(first_token_at, arrived_at + to_seconds(ttft_s)), finished_at from requests
    union all
    select
        lane,
        case when cause = 'preemption' then 'paused' when coalesce(cause, 'unknown') = 'unknown' then 'untold' else 'slowed' end,
        started_at,
        ended_at,
    from pauses
    union all  -- what was lost is computed again at the end of the pause
    select lane, 'rebuild', ended_at - to_seconds(rebuild_s), ended_at from pauses where rebuild_s > 0
)

select
    lane,
    lanes.arrived_at,
    lanes.paused_s,
    lanes.of_requests,
    lanes.of_paused,
    part,
    greatest(started_at, from_at) as started_at,
    least(ended_at, to_at) as ended_at,
    from_at,
    to_at,
from parts
join lanes using (lane)
cross join episode
where ended_at > from_at and started_at < to_at
order by lanes.arrived_at, lane, part in ('paused', 'slowed', 'untold'), part = 'rebuild', started_at
limit 2000"""


def time(data: Data) -> Figure:
    """Mean seconds a request spent in each state, from the fastest tenth of the requests to the slowest."""
    rows = data.rows(TIME_QUERY)
    figure = Figure(
        key="request-time",
        question="Where did the time of slow requests go?",
        answer=_time_answer(rows),
        query=TIME_QUERY,
        rows=len(rows),
        needs="per-request times: spans (--otlp-traces-endpoint) or a benchmark result with details",
    )
    most = max((row["whole_s"] for row in rows), default=0)
    parts = [part for part in PARTS if any((row.get(part) or 0) > LEAST_SEEN * most for row in rows)]
    if not parts:
        return figure
    tenths = [{**row, "group": f"{10 * row['tenth'] - 10}–{10 * row['tenth']}"} for row in rows]  # noqa: RUF001 - a range
    long = [
        {"group": row["group"], "part": PARTS[part][0], "seconds": row[part], "requests": row["requests"], "order": number}
        for row in tenths
        for number, part in enumerate(parts)
        if row[part]
    ]
    chart = (
        alt.Chart(named("rows"))
        .mark_bar(width=alt.RelativeBandSize(band=0.78))
        .encode(
            x=alt.X(
                "group:N",
                sort=[row["group"] for row in tenths],
                title="requests from fastest to slowest, %",
                axis=alt.Axis(labelAngle=0, labelOverlap="greedy", labelSeparation=6),
            ),
            y=alt.Y("seconds:Q", title="mean seconds a request", stack="zero", axis=alt.Axis(grid=True, tickCount=5)),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=[PARTS[part][0] for part in parts], range=[PARTS[part][1].light for part in parts]),
                legend=None,
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("group:N", title="Requests, %"),
                alt.Tooltip("part:N", title="Part"),
                alt.Tooltip("seconds:Q", title="Mean, s", format=".3~r"),
                alt.Tooltip("requests:Q", title="Requests"),
            ],
        )
        .properties(height=240, width=560)
    )
    legend = [Entry(*PARTS[part]) for part in parts]
    return replace(figure, legend=legend, spec=finished(chart, {"rows": long}, figure.alt))


def lanes(data: Data) -> Figure:
    """One lane for each request around the worst episode: queued, prefilled, streaming, paused."""
    rows = data.rows(LANES_QUERY)
    names = list(dict.fromkeys(row["lane"] for row in rows))
    figure = Figure(
        key="lanes",
        question="Who was stopped in the worst episode, and who streamed on?",
        answer=_lanes_answer(rows, names) if rows or _has_episode(data) else "Nothing was under pressure: there is no episode.",
        query=LANES_QUERY,
        rows=len(rows),
        needs="per-request times: a benchmark result with details, best together with spans (--otlp-traces-endpoint)",
    )
    if not rows:
        return figure
    parts = [part for part in PARTS if any(row["part"] == part for row in rows)]
    least_s = LEAST_SEEN * (rows[0]["to_at"] - rows[0]["from_at"]).total_seconds()
    seen = [p for p in parts if any(r["part"] == p and (r["ended_at"] - r["started_at"]).total_seconds() > least_s for r in rows)]
    place = {name: number for number, name in enumerate(names)}
    worded = [
        {
            **row,
            "place": place[row["lane"]],
            "name": PARTS[row["part"]][0],
            "is_pause": row["part"] in PAUSES,
        }
        for row in rows
    ]
    y = alt.Y(
        "lane:N",
        sort=in_order("place"),
        title=None,
        axis=alt.Axis(labelLimit=130, labelFontSize=10, labelOverlap="greedy", grid=False),
    )
    scale = alt.Scale(domain=[PARTS[part][0] for part in parts], range=[PARTS[part][1].light for part in parts])
    base = alt.Chart(named("rows")).encode(
        x=time_axis("started_at"),
        x2=alt.X2("ended_at"),
        y=y,
        color=alt.Color("name:N", scale=scale, legend=None),
        tooltip=[
            alt.Tooltip("lane:N", title="Request"),
            alt.Tooltip("name:N", title="Part"),
            alt.Tooltip("started_at:T", title="From (UTC)", format="%H:%M:%S.%L"),
            alt.Tooltip("ended_at:T", title="To (UTC)", format="%H:%M:%S.%L"),
        ],
    )
    bars = [
        base.transform_filter(f"datum.is_pause === {str(is_pause).lower()}").mark_bar(
            height=alt.RelativeBandSize(band=0.62), clip=True
        )
        for is_pause in (False, True)  # pauses over the streaming they interrupt
        if any(row["is_pause"] is is_pause for row in worded)
    ]
    chart, window = layered(*bars, height=15 * len(names)), view_window(rows, "from_at", "to_at")
    spec = finished(chart, {"rows": worded}, figure.alt, params=window, is_linked=False)  # its window is the episode's own
    return replace(figure, legend=[Entry(*PARTS[part]) for part in seen], spec=spec)


def _time_answer(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    slowest = rows[-1]
    parts = sorted(((slowest[part] or 0, PARTS[part][0]) for part in PARTS if part in slowest), reverse=True)
    share, name = parts[0][0] / slowest["whole_s"] if slowest["whole_s"] else None, parts[0][1][0].lower() + parts[0][1][1:]
    return f"The slowest tenth took {duration(slowest['whole_s'])} on average: {percent(share)} of it {name}."


def _has_episode(data: Data) -> bool:
    calm = ", ".join(f"'{verdict}'" for verdict in language.CALM)  # names of our own
    return not data.rows("from verdicts") or bool(data.rows(f"from verdicts where verdict not in ({calm}) limit 1"))


def _lanes_answer(rows: Sequence[Row], names: Sequence[str]) -> str:
    """How many were there and how many preemption paused; not all of either are drawn."""
    if not rows:
        return ""
    window = language.window(rows[0]["from_at"], rows[0]["to_at"])
    number, paused = rows[0]["of_requests"], rows[0]["of_paused"]
    requests = f"{count(number)} request{'' if number == 1 else 's'}"
    which = ": those paused longest, and others" if paused else ""
    drawn = f" {count(len(names))} of them are drawn{which}." if len(names) < number else ""
    return f"{window} UTC: preemption paused {count(paused) if paused else 'none'} of {requests}.{drawn}"
