"""The run as one small picture, for a chat message, a slide or an asset's page: what held, the pool, requests, preemptions."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from pipelines.charts import language, timeline
from pipelines.charts.data import Data, Row
from pipelines.charts.figure import Spec, finished, stacked, view_window
from pipelines.charts.language import PAPER, SOFT

SHOWN = ("KV pool held by active requests, %", "Requests", "Preemptions")
SHOWN_WITH_HEADLINE = (*SHOWN, "Time to first token, s", "Time between tokens, ms")
WIDTH, HEADLINE_WIDTH = 520, 760
HEADLINE_LETTERS = 96  # in a line above the wider picture
SHARPNESS = 1.6  # pixels of the PNG file for one of the drawing: sharp on a slide


def verdict_png(analysis: Path, *, scale: float = 1.0, anonymize: bool = False) -> bytes:
    """A PNG of the engine with the worst verdict; a line of text where there is nothing to draw."""
    with Data.open(analysis, anonymize=anonymize) as data:
        return vl_convert.vegalite_to_png(_spec(data, SHOWN, WIDTH), scale=scale)


def write_timeline(analysis: Path, png: Path, svg: Path, *, anonymize: bool = False) -> None:
    """The same with the verdict's sentence above it and latencies below, as two files that need nothing else."""
    with Data.open(analysis, anonymize=anonymize) as data:
        drawing = vl_convert.vegalite_to_svg(_spec(data, SHOWN_WITH_HEADLINE, HEADLINE_WIDTH, headline=_headline(data)))
    svg.write_text(drawing, encoding="utf-8")
    png.write_bytes(vl_convert.svg_to_png(drawing, scale=SHARPNESS))


def _spec(data: Data, titles: Sequence[str], width: int, *, headline: alt.TitleParams | None = None) -> dict[str, Any]:
    rows, windows = data.rows(timeline.QUERY), data.rows(timeline.WINDOWS)
    engines = [row["engine"] for row in rows]
    worst = next((window["engine"] for window in windows if window["engine"] in engines), engines[0] if engines else None)
    rows = [row for row in rows if row["engine"] == worst]
    windows = [window for window in windows if window["engine"] == worst]
    shown = [panel for panel in timeline.PANELS if panel.title in titles and timeline.has(rows, panel)]
    panels = [timeline.draw(panel, rows, labels=panel is shown[-1]) for panel in shown]
    ribbon = timeline.verdict_ribbon(windows) if shown else None
    parts = [*([ribbon] if ribbon is not None else []), *panels]
    chart = stacked(*(part | {"width": width} for part in parts or [_empty()]))
    if headline is not None:
        chart["title"] = headline.to_dict()
    spans: list[Row] = [{"at": row["bucket_at"], "to": row["bucket_end"]} for row in rows]
    spans += [{"at": window["window_start"], "to": window["window_end"]} for window in windows]
    params = [alt.param(name="engine", value=worst), *view_window(spans, "at", "to")]
    spec = finished(chart, {"rows": rows, "windows": timeline.worded(windows)}, "The run at a glance.", params=params)
    spec["config"] |= {"background": PAPER.light}
    spec["padding"] = 12
    return spec


def _empty() -> Spec:
    mark = {"type": "text", "text": "No load samples in this run.", "fontSize": 13}
    return {"data": {"values": [{"one": 1}]}, "mark": mark, "height": 60}


def _headline(data: Data) -> alt.TitleParams:
    """The verdict's sentence, and below it the run, its day and its window."""
    told = data.rows("from verdicts order by is_primary desc nulls last, severity desc nulls last, window_start, engine limit 1")
    verdict = told[0] if told else {}
    name = language.verdict_word(verdict or {"verdict": "insufficient_evidence"}).name
    sentence = verdict.get("summary") or "The inputs tell too little to say what happened."
    run = [*(data.rows("from runs")[:1]), {}][0]
    when = filter(None, [language.dated(run.get("started_at"), run.get("ended_at"))])
    return alt.TitleParams(
        textwrap.wrap(f"{name}: {sentence}", HEADLINE_LETTERS)[:3],
        subtitle=" · ".join([run.get("run") or "unnamed run", *when]),
        subtitleColor=SOFT.light,
        fontSize=15,
        subtitleFontSize=12,
        anchor="start",
        offset=18,
    )
