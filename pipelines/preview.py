"""What Dagster shows of a finished run without the report: the verdict in a sentence and a small picture of the timeline."""

from __future__ import annotations

import base64
from pathlib import Path

import altair as alt
import polars as pl
import vl_convert

from pipelines.digest import Result

WIDTH, PANEL_HEIGHT = 420, 60
PANELS = (("kv_usage_ratio", "KV usage"), ("waiting", "waiting"), ("preemptions", "preemptions"))


def verdict_sentence(database: Path) -> str:
    """The primary verdict of each engine, with its summary."""
    with Result(database) as result:
        primary = result.rows("verdicts", "is_primary", "severity desc, engine")
    return " ".join(f"{row['verdict']}: {row['summary']}" for row in primary) or "no verdict"


def timeline_png(database: Path) -> str:
    """KV usage, waiting requests and preemptions on one time axis, as a base64 PNG small enough for a metadata entry."""
    names = ", ".join(name for name, _ in PANELS)
    with Result(database) as result:
        rows = result.ask(f"select bucket_at, engine, {names} from timeline order by engine, bucket_at", "timeline")
    frame = pl.DataFrame(
        rows, schema=["bucket_at", "engine", *(name for name, _ in PANELS)], orient="row", infer_schema_length=None
    )
    return base64.b64encode(vl_convert.vegalite_to_png(_chart(frame).to_json(), scale=1)).decode()


def _chart(frame: pl.DataFrame) -> alt.VConcatChart:
    long = frame.with_columns(pl.col("bucket_at").cast(pl.String), pl.col([name for name, _ in PANELS]).cast(pl.Float64))
    base = alt.Chart(alt.Data(values=long.to_dicts())).mark_line(interpolate="step-after")
    panels = [
        base.encode(
            x=alt.X("bucket_at:T", title=None),
            y=alt.Y(f"{name}:Q", title=title),
            color=alt.Color("engine:N", legend=None),
        ).properties(width=WIDTH, height=PANEL_HEIGHT)
        for name, title in PANELS
    ]
    return alt.vconcat(*panels).configure_axis(labelFontSize=9, titleFontSize=9)
