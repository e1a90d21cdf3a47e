"""A figure: the question it answers, its answer in a sentence, the chart, and the query whose rows it shows.

Also the few parts that charts share. What does not belong here: any particular question. Charts give altair each channel as its
class (`alt.X2("end")`, `alt.YValue(0)`): a text or `alt.value` it takes some milliseconds to find the class of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import altair as alt

from pipelines.charts import language
from pipelines.charts.data import Row

# with the day where more than 20 h are on show, with milliseconds where less than 5 s are
TIME_FORM = "to_ms - from_ms > 7.2e7 ? '%d %b %H:%M' : to_ms - from_ms < 5e3 ? '%H:%M:%S.%L' : '%H:%M:%S'"
STACK_MARGIN = language.AXIS_EXTENT + 12
WITHIN = alt.ExprRef("width")  # most that a text over a plot may take: what is longer ends in "…"
Spec = dict[str, Any]  # a view as Vega-Lite has it


@dataclass(frozen=True)
class Entry:
    """One entry of a chart's key, which the page writes above it: a name beside a glyph in the name's tone."""

    name: str
    tone: language.Tone
    glyph: str = "■"


@dataclass(frozen=True)
class Figure:
    """One figure of the report. `spec` is None where there is nothing to draw: `needs` then says what would fill it."""

    key: str
    question: str
    answer: str
    query: str
    rows: int
    needs: str
    spec: Spec | None = None
    notes: Sequence[str] = ()
    engines: Sequence[str] = ()  # more than one where the reader chooses which engine is shown
    legend: Sequence[Entry] = ()

    @property
    def alt(self) -> str:
        """What a screen reader says for the chart."""
        return f"Chart. {self.question} {self.answer}"


def finished(  # noqa: PLR0913 - each by its name
    view: alt.Chart | Spec,
    datasets: Mapping[str, Sequence[Row]],
    alt_text: str,
    *,
    params: Iterable[alt.Parameter] = (),
    margin: int = STACK_MARGIN,
    is_linked: bool = True,
) -> Spec:
    """The Vega-Lite specification of a view, with its parameters and its named data in it.

    `margin` is what stacked panels leave of the page's width for their labels; a chart that `is_linked` and has a window of
    time follows the one that the reader chose.
    """
    spec = spec_of(view)
    return spec | {
        "$schema": alt.SCHEMA_URL,
        "description": alt_text,
        "config": language.config(),
        "params": [*spec.get("params", []), *(param_of(each) for each in params)],
        "datasets": {name: [plain(row) for row in rows] for name, rows in datasets.items()},
        "usermeta": {"margin": margin, "linked": is_linked},
    }


def spec_of(view: alt.Chart | Spec) -> Spec:
    """A view as Vega-Lite has it. The tests validate; here it would be half the time."""
    return view if isinstance(view, dict) else view.to_dict(validate=False, context={"top_level": False})


def param_of(param: alt.Parameter) -> Spec:
    """A parameter as Vega-Lite has it."""
    return cast("alt.SchemaBase", param.param).to_dict(validate=False)


def plain(row: Row) -> Row:
    """A row as JSON can hold it; what is not known is left out, which Vega reads as null."""
    return {key: value for key, raw in row.items() if (value := language.finite(raw)) is not None}


def named(name: str) -> alt.NamedData:
    """Reference to one of the datasets given to `finished`."""
    return alt.NamedData(name=name)


def view_window(rows: Sequence[Row], start: str, end: str) -> list[alt.Parameter]:
    """The parameters `from_ms` and `to_ms`: the window of time on show. The page sets them when a reader zooms."""
    starts = [language.finite(row[start]) for row in rows if row[start] is not None]
    ends = [language.finite(row[end]) for row in rows if row[end] is not None]
    low, high = (min(starts), max(ends)) if starts and ends else (0, 1)
    return [alt.param(name="from_ms", value=low), alt.param(name="to_ms", value=max(high, low + 10_000))]


def time_axis(field_name: str, *, labels: bool = True) -> alt.X:
    """The horizontal axis: time of day in UTC over the window on show."""
    return alt.X(
        f"{field_name}:T",
        title=None,
        axis=alt.Axis(
            labelExpr=f"utcFormat(datum.value, {TIME_FORM})",
            tickCount=6,
            labelFlush=True,
            labelBound=2,
            labelOverlap="greedy",
            labelSeparation=8,
            labels=labels,
            ticks=labels,
            grid=True,
        ),
        scale=alt.Scale(type="utc", domainMin=alt.ExprRef("from_ms"), domainMax=alt.ExprRef("to_ms"), nice=False),
    )


def amount_axis(*, extent: int | None = None, values: Sequence[float] | None = None, count: int = 3) -> alt.Axis:
    """An axis of amounts: 0, 500, 1k, 1.5k; each tick with its own prefix. A given extent lines stacked panels up."""
    return alt.Axis(
        labelExpr="format(datum.value, datum.value < 1000 ? '~g' : '~s')",
        minExtent=extent if extent is not None else alt.Undefined,
        maxExtent=extent if extent is not None else alt.Undefined,
        values=values if values is not None else alt.Undefined,
        tickCount=count,
        grid=True,
    )


def layered(*layers: alt.Chart | Spec, height: float) -> Spec:
    """Layers as one view; the page gives it its width. Altair's own way copies each layer again for each view it is put in."""
    return {"layer": [spec_of(layer) for layer in layers], "height": height, "width": 560}


def stacked(*panels: Spec) -> Spec:
    """Panels as one view, the first at the top."""
    return {"vconcat": list(panels)}


def headroom(base: alt.Chart, columns: Sequence[str], *, is_stacked: bool = False) -> alt.Chart:
    """An unseen mark a little above the highest value, so that no peak touches the panel's top. Columns are names of our own."""
    values = [f"(datum['{column}'] || 0)" for column in columns]
    whole = " + ".join(values) if is_stacked else f"max({', '.join(values)})"
    return (
        base.transform_calculate(whole=whole)
        .transform_aggregate(highest="max(whole)")
        .transform_calculate(above="1.06 * datum.highest")
        .mark_point(opacity=0, size=1)
        .encode(y=alt.Y("above:Q", title=None))
    )


def in_order(field_name: str) -> alt.EncodingSortField:
    """Bands in the order of a number in the rows. A list of names would do, but becomes an expression that the browser parses."""
    return alt.EncodingSortField(field=field_name, op="min", order="ascending")


def header(title: str, entries: Sequence[Entry] = ()) -> list[Spec]:
    """A panel's title line: the title at the left, the key of its series at the right."""
    marks = [_text(title, 0, align="left", fontWeight=600)]
    right = 0.0
    for entry in reversed(entries):
        marks.append(_text(entry.name, "width", dx=-right, align="right"))
        right += _width(entry.name) + 5
        marks.append(_text(entry.glyph, "width", dx=-right, align="right", color=entry.tone.light))
        right += 24
    return marks


def _width(text: str) -> float:
    """About what a text takes at the size of a panel's title line, in pixels."""
    narrow, wide = dict.fromkeys("ijl .,'1", 3.4) | dict.fromkeys("ftr", 4.8), dict.fromkeys("mwMW%", 9.9)
    return sum((narrow | wide).get(letter, 7.1) for letter in text)


def _text(text: str, place: float | str, **mark: Any) -> Spec:
    """A text above a panel, at a horizontal place in it."""
    return {
        "data": {"values": [{"one": 1}]},
        "mark": {"type": "text", "text": text, "baseline": "bottom", "fontSize": 12, **mark},
        "encoding": {"x": {"value": place}, "y": {"value": -7}},
    }
