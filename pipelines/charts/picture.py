"""One small picture of a run, for a chat message, a slide or an asset's page: what held, the pool, the requests, preemptions."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import vl_convert

from pipelines.charts import timeline
from pipelines.charts.data import Data
from pipelines.charts.figure import finished, view_window
from pipelines.charts.language import PAPER

SHOWN = ("KV pool held by active requests, %", "Requests", "Preemptions")
WIDTH = 520


def verdict_png(analysis: Path, *, scale: float = 1.0, anonymize: bool = False) -> bytes:
    """A PNG of the engine with the worst verdict; a line of text where there is nothing to draw."""
    with Data.open(analysis, anonymize=anonymize) as data:
        rows, windows = data.rows(timeline.QUERY), data.rows(timeline.WINDOWS)
    worst = next((window["engine"] for window in windows), rows[0]["engine"] if rows else None)
    rows = [row for row in rows if row["engine"] == worst]
    windows = [window for window in windows if window["engine"] == worst]
    shown = [panel for panel in timeline.PANELS if panel.title in SHOWN and timeline.has(rows, panel)]
    panels = [timeline.draw(panel, rows, labels=panel is shown[-1]) for panel in shown]
    ribbon = timeline.verdict_ribbon(windows)
    parts = [*([ribbon] if ribbon is not None else []), *panels]
    if not parts:
        empty = alt.Chart(alt.InlineData(values=[{"one": 1}])).mark_text(text="No load samples in this run.", fontSize=13)
        return vl_convert.vegalite_to_png(finished(empty.properties(width=WIDTH, height=60), {}, "Nothing to draw."), scale=scale)
    spans = [{"at": row["bucket_at"], "to": row["bucket_end"]} for row in rows]
    spans += [{"at": window["window_start"], "to": window["window_end"]} for window in windows]
    chart = alt.vconcat(*(part.properties(width=WIDTH) for part in parts)).add_params(
        alt.param(name="engine", value=worst), *view_window(spans, "at", "to")
    )
    spec = finished(chart, {"rows": rows, "windows": timeline.worded(windows)}, "The run at a glance.")
    spec["config"] |= {"background": PAPER.light}
    spec["padding"] = 12
    return vl_convert.vegalite_to_png(spec, scale=scale)
