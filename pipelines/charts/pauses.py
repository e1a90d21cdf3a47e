"""Who paused and for how long: each pause of a stream by when it began, how long it was and what caused it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import altair as alt

from pipelines.charts import language
from pipelines.charts.data import RUN_SPAN, Data, Row
from pipelines.charts.figure import Entry, Figure, finished, named, time_axis, view_window
from pipelines.charts.language import PAUSE_CAUSES, count, duration

QUERY = """\
select
    engine,
    cause,
    started_at,
    started_at + to_seconds(duration_s) as ended_at,
    duration_s,
    source_file,
    request_index,
    request_id,
    tokens_before,
from stalls
where duration_s > 0
order by duration_s desc, started_at, source_file, request_index
limit 1500  -- the longest"""

SUMMARY = """\
select
    cause,
    count(*) as pauses,
    count(distinct (source_file, request_index, request_id)) as requests,
    sum(duration_s) as total_s,
    quantile_cont(duration_s, 0.5) as median_s,
    max(duration_s) as longest_s,
from stalls
group by cause
order by total_s desc nulls last, cause"""

LONGEST = 15
SHAPES = {  # beside colour, for eyes that see none
    "preemption": ("circle", "●"),
    "engine_pause": ("square", "■"),
    "prefill_interference": ("diamond", "◆"),
}
NO_CAUSE = ("triangle-up", "▲")


NEEDS = "a benchmark result with details (vllm bench serve --save-detailed): it holds the time of every token"


def figure(data: Data) -> Figure:
    """Pauses over time, on the time axis of the timeline: zooming there zooms here."""
    rows, causes = data.rows(QUERY), data.rows(SUMMARY)
    figure = Figure(
        key="pauses",
        question="Whose answers paused, and for how long?",
        answer=_answer(causes) if causes else _answer_of_none(data),
        query=QUERY,
        rows=len(rows),
        needs=NEEDS,
        notes=[f"The {len(rows):,} longest of {sum(row['pauses'] for row in causes):,} pauses are drawn."]
        if len(rows) == 1500
        else [],
    )
    if not any(row["started_at"] for row in rows):
        return figure
    worded = [{**row, "name": language.word(PAUSE_CAUSES, row["cause"]).name, "who": _who(row)} for row in rows]
    keys = [row["cause"] for row in causes if row["cause"]]
    words = [language.word(PAUSE_CAUSES, key) for key in keys]
    shapes = [SHAPES.get(key, NO_CAUSE) for key in keys]
    names = [word.name for word in words]
    chart = (
        alt.Chart(named("rows"))
        .mark_point(filled=True, size=46, opacity=0.72, clip=True)
        .encode(
            x=time_axis("started_at"),
            y=alt.Y(
                "duration_s:Q",
                title="pause, s (log)",
                scale=alt.Scale(type="log", nice=True),
                axis=alt.Axis(grid=True, format="~g", values=(ticks := _ticks(rows)), tickCount=len(ticks), titlePadding=10),
            ),
            color=alt.Color("name:N", legend=None, scale=alt.Scale(domain=names, range=[word.tone.light for word in words])),
            shape=alt.Shape("name:N", legend=None, scale=alt.Scale(domain=names, range=[shape for shape, _ in shapes])),
            tooltip=[
                alt.Tooltip("who:N", title="Request"),
                alt.Tooltip("name:N", title="Cause"),
                alt.Tooltip("started_at:T", title="Began (UTC)", format="%H:%M:%S.%L"),
                alt.Tooltip("duration_s:Q", title="Paused, s", format=".3~r"),
                alt.Tooltip("tokens_before:Q", title="Tokens before it"),
            ],
        )
        .properties(height=220, width=560)
    )
    legend = [Entry(word.name, word.tone, glyph) for word, (_, glyph) in zip(words, shapes, strict=True)]
    window = view_window(data.rows(RUN_SPAN), "from_at", "to_at")
    return replace(figure, legend=legend, spec=finished(chart, {"rows": worded}, figure.alt, params=window))


def _ticks(rows: Sequence[Row]) -> list[float]:
    """1, 2, 5 and their tenfolds around the pauses: of its own an axis of logarithms picks some of them and not others."""
    seconds = [row["duration_s"] for row in rows]
    low, high = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
    return [float(f"{step}e{power}") for power in range(low, high + 1) for step in (1, 2, 5)]


def is_watched(data: Data) -> bool:
    """Whether any input tells when each token came, so that no pause seen means none there was."""
    exists = data.con.sql(
        "select 1 from duckdb_columns() where database_name = 'analysis' and schema_name = 'core' and table_name = 'request_gaps'"
    ).fetchall()
    return bool(exists and data.con.sql("select 1 from analysis.core.request_gaps limit 1").fetchall())


def is_none_by_preemption(data: Data) -> bool:
    """Whether it is known that no preemption paused an answer, whatever tells of pauses: none was counted on any engine."""
    counts = data.rows("from preemptions")
    return bool(counts) and all(row["count_high"] == 0 for row in counts)


def by_cause(data: Data) -> list[Row]:
    """Pauses summed by cause, for the table under the chart."""
    return [{**row, "name": language.word(PAUSE_CAUSES, row["cause"]).name} for row in data.rows(SUMMARY)]


def longest(data: Data) -> list[Row]:
    """The longest pauses, for the table under the chart."""
    return [
        {**row, "who": _who(row), "name": language.word(PAUSE_CAUSES, row["cause"]).name} for row in data.rows(QUERY)[:LONGEST]
    ]


def is_told(cause: str | None) -> bool:
    """Whether a pause's cause is known."""
    return cause not in (None, "unknown")


def _who(row: Row) -> str:
    """How a request is named: its id, or the file and its place in it."""
    place = f"{row['source_file']} #{row['request_index']}" if row["request_index"] is not None else (row["source_file"] or "")
    return f"{place} ({row['request_id']})" if place and row["request_id"] else (place or row["request_id"] or "a request")


def _answer_of_none(data: Data) -> str:
    """What is known where no pause was seen; nothing where it is not known."""
    if is_watched(data):
        return "No answer paused."
    return (
        f"None by preemption: no preemption was counted. Other pauses would show in {NEEDS}."
        if is_none_by_preemption(data)
        else ""
    )


def _answer(causes: Sequence[Row]) -> str:
    told = []
    for row in causes[:3]:
        requests = f"{count(row['requests'])} request{'' if row['requests'] == 1 else 's'}"
        by = f"by {language.word(PAUSE_CAUSES, row['cause']).in_a_sentence}" if is_told(row["cause"]) else "for a cause not told"
        told.append(f"{requests} paused {by}, {duration(row['total_s'])} in all, {duration(row['longest_s'])} at most.")
    return " ".join(told)
