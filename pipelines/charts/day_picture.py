"""One small picture of a fleet's day: which engines were hit, and how badly. For an asset's page or a message."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import altair as alt
import vl_convert

from pipelines.charts.figure import finished, layered, named
from pipelines.charts.language import PAPER, VERDICTS, word

SHOWN = 12  # engines
WIDTH, STEP = 320, 20


def day_png(day: date, verdicts: Sequence[tuple[str, str, float]], *, scale: float = 1.0) -> bytes:
    """A PNG of the engines whose primary verdict (engine, verdict, severity) is the most severe, worst first."""
    worst = sorted(verdicts, key=lambda each: (-each[2], each[0]))[:SHOWN]
    rows: list[dict[str, Any]] = [
        {"engine": engine, "severity": severity, "name": word(VERDICTS, verdict).name, "tone": word(VERDICTS, verdict).tone.light}
        for engine, verdict, severity in worst
    ]
    base = alt.Chart(named("rows")).encode(y=alt.Y("engine:N", sort=None, title=None))
    bars = base.mark_bar().encode(
        x=alt.X("severity:Q", scale=alt.Scale(domain=[0, 100]), title="Severity of the day's verdict, of 100"),
        color=alt.Color("tone:N", scale=None),
    )
    names = base.mark_text(align="left", dx=4).encode(x=alt.X("severity:Q"), text=alt.Text("name:N"))
    title = f"Which engines were hit on {day}?"
    chart = layered(bars, names, height=STEP * max(len(rows), 1)) | {"width": WIDTH, "title": title}
    spec = finished(chart, {"rows": rows}, title)
    spec["config"] |= {"background": PAPER.light}
    spec["padding"] = {"left": 12, "top": 12, "bottom": 12, "right": 120}
    return vl_convert.vegalite_to_png(spec, scale=scale)
