"""The run on one time axis: what held when, the pool, the requests, preemptions, latencies and tokens, panel below panel.

All panels share one window of time and one pointer. A panel whose quantity no input carries is left out and named below the
chart, with what would fill it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    headroom,
    layered,
    named,
    param_of,
    spec_of,
    stacked,
    time_axis,
    view_window,
)
from pipelines.charts.holes import with_holes
from pipelines.charts.language import PREEMPTION, QUEUEING, RECOMPUTATION, SOFT, WORK, WORK_SOFT, Tone

QUERY = """\
with graver as (select engine, max(severity) as severity from verdicts where is_primary group by engine),

hardest as (  -- the engines under most pressure, in at most some 4,800 buckets together
    select
        engine,
        severity,
        sum(preemptions) as preempted,
        max(kv_usage_ratio) as highest,
        min(bucket_at) as first_at,
        max(bucket_s) as bucket_s,
        epoch(max(bucket_at) - min(bucket_at)) as long_s,
    from timeline
    left join graver using (engine)
    group by engine, severity
    order by severity desc nulls last, preempted desc nulls last, highest desc nulls last, engine
    limit 24
),

spans as (
    select engine, severity, first_at, greatest(bucket_s, long_s / greatest(200, 4800 / count(*) over ()), 0.001) as step_s,
    from hardest
),

buckets as (
    select timeline.*, severity, step_s, first_at + to_seconds(floor(epoch(bucket_at - first_at) / step_s) * step_s) as step_at,
    from timeline
    join spans using (engine)
)

select
    engine,
    step_at as bucket_at,
    step_at + to_seconds(any_value(step_s)) as bucket_end,
    100 * max(kv_usage_ratio) as kv_usage_percent,
    avg(running) as running,
    max(waiting) as waiting,
    sum(preemptions) as preemptions,
    max(ttft_p50_s) as ttft_p50_s,
    max(ttft_p99_s) as ttft_p99_s,
    1000 * max(itl_p50_s) as itl_p50_ms,
    1000 * max(itl_p99_s) as itl_p99_ms,
    avg(generation_tokens_per_s) as generation_tokens_per_s,
    avg(prompt_tokens_per_s) as prompt_tokens_per_s,
    avg(recomputed_tokens_per_s) as recomputed_tokens_per_s,
    100 * avg(prefix_hit_ratio) as prefix_hit_percent,
    100 * avg(gpu_util_ratio) as gpu_percent,
    100 * avg(useful_token_ratio) as useful_percent,
from buckets
group by engine, severity, step_at
order by severity desc nulls last, engine, step_at"""

WINDOWS = """\
select engine, verdict, window_start, window_end, severity, confidence, is_primary, summary, title
from verdicts
where window_start is not null and (is_primary or severity > 0 or verdict = 'healthy')
order by coalesce(is_primary, false) desc, severity desc nulls last, window_start, engine, verdict
limit 400"""

# of engines whose KV usage was told, but never measured
BLIND = """\
select detail
from data_quality
where flag = 'kv_usage_stuck_at_zero'
order by source
limit 1"""


@dataclass(frozen=True)
class Series:
    """One quantity of a panel: its column, its name in the panel's key, its tone, and how it is drawn."""

    column: str
    name: str
    tone: Tone
    mark: str = "line"  # line, dashed, area, bar, stack


@dataclass(frozen=True)
class Panel:
    """One strip of the timeline: a quantity with its unit, its series, and what would fill it where no input does."""

    title: str
    series: tuple[Series, ...]
    needs: str
    height: int = 74
    percent: bool = False


POOL = Panel(
    "KV pool held by active requests, %",
    (Series("kv_usage_percent", "held", WORK, "area"),),
    "an engine log or /metrics",
    74,
    percent=True,
)
PANELS = (
    POOL,
    Panel(
        "Requests",
        (Series("running", "running", WORK), Series("waiting", "waiting", QUEUEING.tone)),
        "an engine log or /metrics",
    ),
    Panel("Preemptions", (Series("preemptions", "preempted", PREEMPTION.tone, "bar"),), "the counters of /metrics", 48),
    Panel(
        "Time to first token, s",
        (Series("ttft_p99_s", "p99", WORK), Series("ttft_p50_s", "median", SOFT, "dashed")),
        "/metrics histograms, spans or a benchmark result with details",
    ),
    Panel(
        "Time between tokens, ms",
        (Series("itl_p99_ms", "p99", WORK), Series("itl_p50_ms", "median", SOFT, "dashed")),
        "/metrics histograms or a benchmark result with details",
    ),
    Panel(
        "Tokens/s",
        (
            Series("recomputed_tokens_per_s", "repeated", RECOMPUTATION.tone, "stack"),
            Series("prompt_tokens_per_s", "prompt", WORK_SOFT, "stack"),
            Series("generation_tokens_per_s", "generated", WORK, "stack"),
        ),
        "an engine log or /metrics",
        84,
    ),
    Panel(
        "Busy and useful, %",
        (Series("useful_percent", "useful tokens", WORK), Series("gpu_percent", "GPU busy", SOFT, "dashed")),
        "GPU utilization (DCGM or nvidia-smi) beside /metrics",
        48,
        percent=True,
    ),
)
DASH = [3, 2]
MATTERS = 20  # severity of 100 from which a window is shaded
OPTIONAL = ("Busy and useful, %",)  # not missed where no input carries it


def figure(data: Data) -> Figure:
    """The timeline of every engine, one engine on show at a time."""
    rows = data.rows(QUERY)
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    windows = [window for window in data.rows(WINDOWS) if window["engine"] in engines or not engines]
    shown = [panel for panel in PANELS if has(rows, panel)]
    absent = [panel for panel in PANELS if panel not in shown and panel.title not in OPTIONAL]
    figure = Figure(
        key="timeline",
        question="What happened, and when?",
        answer=_answer(rows, windows),
        query=QUERY,
        rows=len(rows),
        needs="an engine log with statistics lines, or /metrics scraped during the run",
        notes=[_untold(panel, data) for panel in absent] if rows else [],
        engines=engines,
    )
    if not rows or not shown:
        return figure
    return _with_spec(figure, shown, rows, windows, data.rows(RUN_SPAN))


def _untold(panel: Panel, data: Data) -> str:
    """Why a panel is left out, and what would fill it."""
    name = panel.title.split(",", maxsplit=1)[0]
    if panel is POOL and (blind := data.rows(BLIND)):
        return f"{name}: {blind[0]['detail']}"
    return f"{name}: not in the inputs; {panel.needs} would fill it."


def _with_spec(
    figure: Figure, shown: Sequence[Panel], rows: Sequence[Row], windows: Sequence[Row], span: Sequence[Row]
) -> Figure:
    engine = alt.param(name="engine", value=figure.engines[0])
    brush = alt.selection_interval(
        name="brush",
        encodings=["x"],
        mark=alt.BrushConfig(fill=SOFT.light, fillOpacity=0.18, stroke=SOFT.light),
        translate=False,
        zoom=False,
    )
    pointer = alt.selection_point(name="pointer", on="pointerover", clear="pointerout", fields=["bucket_at"], empty=False)
    panels = [draw(panel, rows, pointer=pointer, labels=panel is shown[-1]) for panel in shown]
    ribbon = verdict_ribbon(windows)
    bands = [_band(panel) for panel in shown]
    chart = stacked(*([ribbon] if ribbon is not None else []), *panels)
    chart["params"] = [{**param_of(each), "views": bands} for each in (pointer, brush)]  # the same in all panels: what links them
    drawn = {each.column: each.mark for panel in shown for each in panel.series if each.mark != "bar"}
    lines, stacks = ([column for column in drawn if (drawn[column] == "stack") is wanted] for wanted in (False, True))
    broken = with_holes(rows, "bucket_at", "bucket_end", lines, stacks)
    datasets = {"rows": broken, "windows": _for_every_engine(worded(windows), rows)}
    spec = finished(chart, datasets, figure.alt, params=[engine, *view_window(span, "from_at", "to_at")])
    return replace(figure, spec=spec)


def draw(panel: Panel, rows: Sequence[Row], *, pointer: alt.Parameter | None = None, labels: bool = False) -> Spec:
    """One panel: the shaded windows, its series, its key, and the pointer's band across all panels."""
    of_engine = "datum.engine === engine"
    base = alt.Chart(named("rows")).transform_filter(of_engine)
    x = time_axis("bucket_at", labels=labels)
    layers: list[alt.Chart | Spec] = [_shade(of_engine, labels=labels)]
    parts = [series for series in panel.series if series.mark == "stack" and _has(rows, series)]
    layers += [_stack(base, parts, x)] if parts else []
    known = [series for series in panel.series if _has(rows, series)]
    layers += [_series(base, series, x, panel, rows) for series in known if series.mark != "stack"]
    layers += [headroom(base, [series.column for series in known], is_stacked=bool(parts))] if not panel.percent else []
    layers += _title(panel, known, rows)
    if pointer is not None:
        band = base.mark_rect(clip=True, color=language.INK.light).encode(
            x=x,
            x2=alt.X2("bucket_end"),
            y=alt.YValue(0),
            y2=alt.Y2Value(panel.height),
            opacity=alt.OpacityValue(0, condition={"param": pointer.name, "empty": False, "value": 0.1}),
            tooltip=_tooltip(rows),
        )
        layers.append(spec_of(band) | {"name": _band(panel)})
    return layered(*layers, height=panel.height)


def _band(panel: Panel) -> str:
    """The name of the layer that pointer and brush act on."""
    return f"band of {panel.title}"


def _title(panel: Panel, known: Sequence[Series], rows: Sequence[Row]) -> list[Spec]:
    """The panel's title line: with a key where it can hold several series, and a word where all of them are nothing."""
    some = {series.column for series in known if any(row[series.column] for row in rows)}
    # a line of nothing is seen, an area is not
    seen = [series for series in known if series.column in some or series.mark != "stack"]
    title = panel.title if some else f"{panel.title}: none"
    entries = [Entry(each.name, each.tone, "╌" if each.mark == "dashed" else "■") for each in seen or known]
    return header(title, entries if len(panel.series) > 1 else ())


def _series(base: alt.Chart, series: Series, x: alt.X, panel: Panel, rows: Sequence[Row]) -> alt.Chart:
    is_flat = not any(row[each.column] for row in rows for each in panel.series)
    fixed = [0, 104] if panel.percent else [0, 1] if is_flat else None
    scale = alt.Scale(domain=fixed) if fixed else alt.Scale(zero=True, nice=True)
    y = alt.Y(
        f"{series.column}:Q",
        title=None,
        scale=scale,
        axis=amount_axis(
            extent=language.AXIS_EXTENT,
            values=[0, 50, 100] if panel.percent else [0] if is_flat else None,
            count=2 if panel.height < 60 else 3,
        ),
    )
    tone = series.tone.light
    marks = {
        "line": lambda: base.mark_line(color=tone, clip=True, point=alt.OverlayMarkDef(size=9, color=tone, filled=True)),
        "dashed": lambda: base.mark_line(color=tone, clip=True, strokeWidth=1.3, strokeDash=DASH, strokeCap="butt"),
        "area": lambda: base.mark_area(
            clip=True, color=tone, opacity=0.22, line={"color": tone, "strokeWidth": 1.6}, interpolate="step-after"
        ),
        "bar": lambda: base.mark_rect(color=tone, clip=True),
    }
    chart = marks[series.mark]()
    if series.mark == "bar":
        return chart.encode(x=x, x2=alt.X2("bucket_end"), y=y, y2=alt.Y2Datum(0))
    return chart.encode(x=x, y=y)


def _stack(base: alt.Chart, parts: Sequence[Series], x: alt.X) -> alt.Chart:
    columns: list[str | alt.FieldName] = [series.column for series in parts]
    return (
        base.transform_fold(columns, as_=["part", "tokens_per_s"])
        .transform_calculate(order=f"indexof({columns[::-1]}, datum.part)")  # column names are our own
        .mark_area(clip=True, interpolate="step-after")
        .encode(
            x=x,
            y=alt.Y("tokens_per_s:Q", title=None, stack="zero", axis=amount_axis(extent=language.AXIS_EXTENT)),
            color=alt.Color(
                "part:N", legend=None, scale=alt.Scale(domain=columns, range=[series.tone.light for series in parts])
            ),
            order=alt.Order("order:Q"),
        )
    )


def _shade(of_engine: str, *, labels: bool) -> alt.Chart:
    """Faint bands where a verdict held that costs somebody something."""
    return (
        alt.Chart(named("windows"))
        .transform_filter(of_engine)
        .transform_filter("datum.is_shaded")
        .mark_rect(clip=True, opacity=0.08)
        .encode(
            x=time_axis("window_start", labels=labels),
            x2=alt.X2("window_end"),
            color=alt.Color("tone:N", scale=None, legend=None),
        )
    )


def verdict_ribbon(windows: Sequence[Row]) -> Spec | None:
    """One lane for each verdict that held, worst first."""
    lanes = list(dict.fromkeys(language.verdict_word(window).name for window in windows))
    if not lanes:
        return None
    bars = (
        alt.Chart(named("windows"))
        .transform_filter("datum.engine === engine")
        .mark_bar(clip=True, height=9, cornerRadius=2)
        .encode(
            x=time_axis("window_start", labels=False),
            x2=alt.X2("window_end"),
            y=alt.Y("name:N", title=None, sort=lanes, axis=None),
            color=alt.Color("tone:N", scale=None, legend=None),
            tooltip=[
                alt.Tooltip("name:N", title="Verdict"),
                alt.Tooltip("summary:N", title="Summary"),
                alt.Tooltip("window_start:T", title="From (UTC)", format="%H:%M:%S"),
                alt.Tooltip("window_end:T", title="To (UTC)", format="%H:%M:%S"),
                alt.Tooltip("severity:Q", title="Severity (0 to 100)", format=".0f"),
            ],
        )
    )
    names = (
        alt.Chart(named("windows"))
        .transform_filter("datum.engine === engine")
        .transform_aggregate(first="min(window_start)", groupby=["name"])
        .mark_text(align="left", baseline="bottom", dy=-6, fontSize=11.5)
        .encode(x=alt.XValue(0), y=alt.Y("name:N", sort=lanes, axis=None), text=alt.Text("name:N"))
    )
    return layered(bars, names, height=27 * len(lanes))


def worded(windows: Sequence[Row]) -> list[Row]:
    """Each window with its verdict's name and tones, and whether it is shaded: the worst one where several overlap."""
    shaded: list[Row] = []
    for window in windows:
        is_event = window["verdict"] not in language.CALM and (window["severity"] or 0) >= MATTERS
        if is_event and window["window_end"] and not any(_overlap(window, other) for other in shaded):
            shaded.append(window)
    return [
        {
            **window,
            "name": (told := language.verdict_word(window)).name,
            "tone": told.tone.light,
            "is_shaded": window in shaded,
        }
        for window in windows
    ]


def _for_every_engine(windows: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """The windows, and one of no length for each engine that has none to shade: Vega warns of a layer without data."""
    shaded = {window["engine"] for window in windows if window["is_shaded"]}
    lacking = {row["engine"]: row["bucket_at"] for row in reversed(rows) if row["engine"] not in shaded}
    model = windows[0] if windows else {"name": "", "tone": WORK_SOFT.light}
    none = [
        {"engine": engine, "name": model["name"], "tone": model["tone"], "window_start": at, "window_end": at, "is_shaded": True}
        for engine, at in lacking.items()
    ]
    return [*windows, *none]


def _overlap(one: Row, other: Row) -> bool:
    is_same = one["engine"] == other["engine"]
    return is_same and one["window_start"] < other["window_end"] and other["window_start"] < one["window_end"]


def _tooltip(rows: Sequence[Row]) -> list[alt.Tooltip]:
    """Everything known of the bucket under the pointer."""
    said = (
        ("bucket_at:T", "Time (UTC)", "%H:%M:%S"),
        ("kv_usage_percent:Q", "KV pool, %", ".1f"),
        ("running:Q", "Running", ".1f"),
        ("waiting:Q", "Waiting", ".1f"),
        ("preemptions:Q", "Preemptions", ".1f"),
        ("ttft_p99_s:Q", "TTFT p99, s", ".3~r"),
        ("itl_p99_ms:Q", "Between tokens p99, ms", ".3~r"),
        ("generation_tokens_per_s:Q", "Generated, tokens/s", ",.0f"),
        ("prompt_tokens_per_s:Q", "Prompt, tokens/s", ",.0f"),
        ("recomputed_tokens_per_s:Q", "Repeated, tokens/s", ",.0f"),
        ("prefix_hit_percent:Q", "Prefix hits, %", ".1f"),
    )
    known = {column for row in rows for column, value in row.items() if value is not None}
    return [
        alt.Tooltip(shorthand, title=title, format=form) for shorthand, title, form in said if shorthand.split(":")[0] in known
    ]


def has(rows: Sequence[Row], panel: Panel) -> bool:
    """Whether any input carries what the panel shows."""
    return any(_has(rows, series) for series in panel.series)


def _has(rows: Sequence[Row], series: Series) -> bool:
    return any(row[series.column] is not None for row in rows)


def _answer(rows: Sequence[Row], windows: Sequence[Row]) -> str:
    events = [window for window in windows if window["verdict"] not in language.CALM]
    if not rows:
        return ""
    if not events:
        return "No pressure in any window."
    told = events[0]  # the verdict of the run, or the worst of its windows where none is its verdict
    name = language.verdict_word(told).name
    again = sum(each["verdict"] == told["verdict"] for each in events) - 1
    more = f", and {'once more' if again == 1 else f'{again} more times'}" if again else ""
    others = dict.fromkeys(each["verdict"] for each in events if each["verdict"] != told["verdict"])
    beside = ", ".join(language.word(language.VERDICTS, each).in_a_sentence for each in others)
    when = language.window(told["window_start"], told["window_end"])
    return f"{name}, {when} UTC{more}.{f' Beside it: {beside}.' if beside else ''}"
