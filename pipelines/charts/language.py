"""The visual language: what each colour, word and number form means, in every chart, on the page and in the terminal.

One colour per event, the five of them from Okabe and Ito's set, in a tone for light and one for dark paper. They stay apart for
red-, green- and blue-blind eyes (a test simulates all three), reach 3:1 against their paper, and never stand alone: every use
carries a word beside it. Grey is ordinary work, and everything that looks like one of the five and is not.

Charts are drawn with the light tones; the page swaps them for the dark ones (`dark_tones`), so a chart is described once.
What does not belong here: data, queries, or any particular chart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Tone:
    """One meaning's colour: on light paper, on dark paper, and in a terminal of 256 colours."""

    light: str
    dark: str
    ansi: int


@dataclass(frozen=True)
class Event:
    """One of the five things that can happen to KV memory and to who waits for it."""

    key: str
    name: str
    tone: Tone
    what: str
    who_pays: str
    not_the_same_as: str


INK = Tone("#1B2127", "#E9ECEF", 255)
SOFT = Tone("#57606A", "#A6AFB8", 246)
HAIR = Tone("#D9DDE1", "#343B43", 238)
GRID = Tone("#ECEEF0", "#242A31", 236)
PAPER = Tone("#FFFFFF", "#14171A", 233)
WORK = Tone("#3E4A56", "#C6CED6", 251)  # useful work: tokens generated, requests running
WORK_SOFT = Tone("#AAB4BE", "#5E6A75", 243)  # useful work of the second kind: prompt tokens, prefill
LOOK_ALIKE = Tone("#8A7B6A", "#A89B8B", 138)  # something else that slows answers: none of the five
UNTOLD = Tone("#7FA3BF", "#6F93AF", 110)  # what no input tells: queue or prefill, why an answer paused

PREEMPTION = Event(
    "preemption",
    "Preemption",
    Tone("#B83F00", "#F46A1F", 166),
    "A request that was already answering lost its KV blocks, because the pool was full.",
    "That request: its stream stops, it waits to run again, and what it had is rebuilt.",
    "Prefix eviction, which interrupts nobody; queueing, which is before the first token.",
)
RECOMPUTATION = Event(
    "recomputation",
    "Recomputation",
    Tone("#C0569A", "#D98ABA", 175),
    "Tokens the model had already processed for a request are processed again.",
    "Everyone on the GPU: useful throughput falls while utilization stays high.",
    "Tokens lost: part of what a preempted request lost is found again in the prefix cache.",
)
QUEUEING = Event(
    "queueing",
    "Queueing",
    Tone("#0072B2", "#56B4E9", 32),
    "A request waited before it first ran: for a slot, for KV room, for token budget, or because it was deferred.",
    "That request's time to first token.",
    "An answer that was interrupted after it began.",
)
PREFIX_EVICTION = Event(
    "prefix_eviction",
    "Prefix eviction",
    Tone("#BF8600", "#F5C542", 178),
    "Cached blocks that no active request held were reclaimed before somebody asked for them again.",
    "A later request with that prefix: its prefill is done again. An eviction nobody asks for costs nothing.",
    "Preemption, which takes blocks from a request that is running.",
)
OFFLOAD = Event(
    "offload",
    "Offload and restore",
    Tone("#009E73", "#12A37A", 36),
    "KV state moved to host memory, disk or a peer, and came back.",
    "The link, and the request that waits for the transfer.",
    "Recomputation: bytes are moved, no token is processed again.",
)
EVENTS = (PREFIX_EVICTION, QUEUEING, PREEMPTION, RECOMPUTATION, OFFLOAD)


@dataclass(frozen=True)
class Word:
    """How a key of the tables is written for people, and in which tone it is drawn."""

    name: str
    tone: Tone
    event: Event | None = None

    @property
    def in_a_sentence(self) -> str:
        """The name in small letters; `KV room` keeps its capitals."""
        return self.name if self.name.split(" ")[0][1:].isupper() else self.name[0].lower() + self.name[1:]


VERDICTS = {
    "preemption": Word("Preemption", PREEMPTION.tone, PREEMPTION),
    "queue_max_num_seqs": Word("Queue for a slot", QUEUEING.tone, QUEUEING),
    "queue_kv_capacity": Word("Queue for KV room", QUEUEING.tone, QUEUEING),
    "queue_token_budget": Word("Queue for token budget", QUEUEING.tone, QUEUEING),
    "queue_deferred": Word("Deferred requests", QUEUEING.tone, QUEUEING),
    "queue_unknown": Word("Queue, cause unknown", QUEUEING.tone, QUEUEING),
    "prefix_eviction": Word("Prefix eviction", PREFIX_EVICTION.tone, PREFIX_EVICTION),
    "offload_pressure": Word("Offload pressure", OFFLOAD.tone, OFFLOAD),
    "prefill_interference": Word("Prefill interference", LOOK_ALIKE),
    "decode_slow": Word("Slow decode", LOOK_ALIKE),
    "engine_pause": Word("Engine-wide pause", LOOK_ALIKE),
    "engine_stalled": Word("Engine stalled", LOOK_ALIKE),
    "cold_start": Word("Cold start", LOOK_ALIKE),
    "client_limited": Word("Client-limited", LOOK_ALIKE),
    "imbalance": Word("Imbalance", LOOK_ALIKE),
    "runaway_generation": Word("Runaway generation", LOOK_ALIKE),
    "never_served": Word("Never served", LOOK_ALIKE),
    "healthy": Word("No pressure", WORK_SOFT),
    "insufficient_evidence": Word("Cannot be told", WORK_SOFT),
}
CALM = ("healthy", "insufficient_evidence")
WORTH_COUNTING = 10  # severity of 100 from which a verdict beside the primary one is told, and counted with its like
QUEUE_CAUSES = {
    "max_num_seqs": Word("A slot (max_num_seqs)", QUEUEING.tone, QUEUEING),
    "kv_capacity": Word("KV room", QUEUEING.tone, QUEUEING),
    "token_budget": Word("Token budget", QUEUEING.tone, QUEUEING),
    "deferred": Word("Deferred (LoRA, remote KV, grammar)", QUEUEING.tone, QUEUEING),
    "unknown": Word("Cause not told", QUEUEING.tone, QUEUEING),
}
PAUSE_CAUSES = {
    "preemption": Word("Preemption", PREEMPTION.tone, PREEMPTION),
    "prefill_interference": Word("Prefill interference", LOOK_ALIKE),
    "engine_pause": Word("Engine-wide pause", LOOK_ALIKE),
    "unknown": Word("Cause not told", UNTOLD),
}
WASTE_KINDS = {
    "preemption_recompute": Word("Recomputed after preemption", RECOMPUTATION.tone, RECOMPUTATION),
    "prefix_refill": Word("Refilled after prefix eviction", PREFIX_EVICTION.tone, PREFIX_EVICTION),
    "offload_restore": Word("Restored from offload", OFFLOAD.tone, OFFLOAD),
}


def word(words: dict[str, Word], key: str | None) -> Word:
    """The word for a key; a key that is new here is written plainly and drawn as ordinary grey."""
    return words.get(key or "") or Word((key or "not told").replace("_", " ").capitalize(), WORK_SOFT)


def verdict_word(row: Mapping[str, Any]) -> Word:
    """The word for a row of `verdicts`: of requests that failed, it is not that they queued."""
    told = word(VERDICTS, row.get("verdict"))
    return replace(told, name=row["title"]) if row.get("title") else told


TONES = (INK, SOFT, HAIR, GRID, PAPER, WORK, WORK_SOFT, LOOK_ALIKE, UNTOLD, *(event.tone for event in EVENTS))


def dark_tones() -> dict[str, str]:
    """The dark tone for each light one."""
    return {tone.light: tone.dark for tone in TONES}


# charts

FONT = 'Inter, "Helvetica Neue", "Segoe UI", Roboto, "DejaVu Sans", sans-serif'
AXIS_EXTENT = 46  # pixels kept for the labels of a vertical axis, so that stacked panels share one left edge


def config() -> dict[str, Any]:
    """Vega-Lite configuration: quiet axes, no frame, type at reading size."""
    return {
        "background": "transparent",
        "aria": False,  # the figure has one label; what is inside is for the eye
        "font": FONT,
        "view": {"stroke": None, "continuousHeight": 120},
        "axis": {
            "labelColor": SOFT.light,
            "titleColor": SOFT.light,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "gridColor": GRID.light,
            "domainColor": HAIR.light,
            "tickColor": HAIR.light,
            "tickSize": 4,
            "labelPadding": 5,
        },
        "axisY": {"domain": False, "ticks": False, "tickCount": 3},
        "axisX": {"grid": False},
        "title": {"color": INK.light, "fontSize": 12, "fontWeight": 600, "anchor": "start", "frame": "group", "offset": 8},
        "legend": {
            "labelColor": INK.light,
            "titleColor": SOFT.light,
            "labelFontSize": 11,
            "titleFontWeight": "normal",
            "symbolType": "square",
            "symbolSize": 90,
            "orient": "top",
            "direction": "horizontal",
            "offset": 10,
        },
        "text": {"color": INK.light, "fontSize": 11.5},
        "line": {"strokeWidth": 1.6, "strokeJoin": "round", "strokeCap": "round"},
        "bar": {"discreteBandSize": {"band": 0.7}},
        "concat": {"spacing": 16},
    }


# numbers and times, as people read them

NOT_KNOWN = "not known"
FEW = 3  # of a list that a sentence may hold
NO_INPUT = "no input"
NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=%|(?:ms|s|min|h|k|M|G)\b)")  # the space in `40 ms`: no line should break there


def count(value: float | None) -> str:
    """1,234; a count that is fractional because an interval was split is rounded."""
    return NOT_KNOWN if value is None else f"{math.floor(value + 0.5):,}"  # half up, as SQL rounds


def short(value: float | None) -> str:
    """1.2 k, 38 k, 1.3 M: at most three digits."""
    if value is None:
        return NOT_KNOWN
    for limit, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= 0.9995 * limit:
            scaled = value / limit
            return f"{scaled:.2f}{suffix}" if abs(scaled) < 9.995 else f"{scaled:.{1 if abs(scaled) < 99.95 else 0}f}{suffix}"
    return f"{value:.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.1f}"


def percent(ratio: float | None) -> str:
    """12 %, 1.2 %, 0.03 %."""
    if ratio is None:
        return NOT_KNOWN
    scaled = 100 * ratio
    if scaled == 0 or abs(scaled) >= 9.95:
        return f"{scaled:.0f} %"
    return f"{scaled:.1f} %" if abs(scaled) >= 0.095 else f"{scaled:.2g} %"


def duration(seconds: float | None) -> str:
    """40 ms, 3.4 s, 1 min 20 s, 2 h 5 min."""
    if seconds is None:
        return NOT_KNOWN
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms" if seconds else "0 s"
    if seconds < 99.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 7200:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, rest = divmod(round(seconds / 60), 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def between(low: float | None, high: float | None, form: Any = count) -> str:
    """`49 to 53`; "" where a bound is not known or both read the same."""
    if low is None or high is None or form(low) == form(high):
        return ""
    return f"{form(low)} to {form(high)}"


def estimate(low: float | None, best: float | None, high: float | None, form: Any = count) -> str:
    """`51 (49 to 53)`; `at most 53` or `at least 49` where there is no best guess; "" where nothing is known."""
    if best is None:
        return f"at most {form(high)}" if high is not None else f"at least {form(low)}" if low else ""
    spread = between(low, high, form)
    return f"{form(best)} ({spread})" if spread else form(best)


UNCOUNTED = "count_best is null and coalesce(count_low, 0) = 0"  # rows of `preemptions` of which not even a least number is known


def told_by(row: Mapping[str, Any]) -> str:
    """What told a number, in the words of `sql/lib/words.sql`; analyses made before it had words have only the key."""
    return row.get("told_by") or (row.get("method") or "").replace("_", " ") or NO_INPUT


def reason_untold(row: Mapping[str, Any]) -> str:
    """Why a number is not known, or only bounded; by its name, what the metrics that were recorded lack for it."""
    words = told_by(row)
    if series := row.get("missing_series"):
        return f"the metrics lack {listed(series)}"
    return "no input tells it" if words == NO_INPUT else f"told only by {words}" if row.get("told_by") else words


def wishes(verdicts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What each verdict lacked, each once; with the name and time of the verdict where it is not the run's own."""
    told: set[str] = set()
    for row in verdicts:
        name = verdict_word(row).name
        when = f", {window(row['window_start'], row['window_end'])}" if row["window_start"] else ""
        # of what could not be told, the reason is worth more than what would tell it
        why = f": {row['summary']}" if row["verdict"] == "insufficient_evidence" and row["summary"] else "."
        for wish in row["missing"] or []:
            if wish not in told:
                told.add(wish)
                yield wish if row["is_primary"] else f"{name}{when}{why} {wish}"
                why = "."


def listed(parts: Sequence[str]) -> str:
    """The first few of a list, and how many more there are."""
    more = len(parts) - FEW
    return ", ".join(parts[:FEW]) + (f" and {more} more" if more > 0 else "")


def worst_of_each(verdicts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The worst window of each verdict of each engine, in the order given; `more` is how many others it has."""
    worst: dict[tuple[Any, str], dict[str, Any]] = {}
    for row in verdicts:
        kind = (row["engine"], row["verdict"])
        if kind not in worst:
            worst[kind] = {**row, "more": -1}
        elif (row["severity"] or 0) > (worst[kind]["severity"] or 0):
            worst[kind] |= row
        worst[kind]["more"] += 1
    return list(worst.values())


def how_much(row: Mapping[str, Any]) -> str:
    """Of a row of `worst_of_each`, how severe it was, and when where it held more than once."""
    severity = f"severity {row['severity'] or 0:.0f}"
    if not row["more"]:
        return severity
    times = "once more" if row["more"] == 1 else f"{count(row['more'])} more times"
    return f"{severity}, {window(row['window_start'], row['window_end'])} UTC, and {times}"


def source_name(source: str, engines: Iterable[Mapping[str, Any]]) -> str:
    """What a note on the data is about: a file by its name, an engine as one: its name may be `0`."""
    return f"engine {source}" if any(row["engine"] == source for row in engines) else source


def clock(at: datetime | None) -> str:
    """13:09:42."""
    return NOT_KNOWN if at is None else f"{at:%H:%M:%S}"


def window(start: datetime | None, end: datetime | None) -> str:
    """13:09:42 to 13:10:05, with dates where it spans midnight; 13:09:42 alone where it is an instant."""
    if start is None or end is None:
        return NOT_KNOWN
    form = "%H:%M:%S" if start.date() == end.date() else "%d %b %H:%M:%S"
    told = list(dict.fromkeys((start.strftime(form), end.strftime(form))))
    return " to ".join(told)


def dated(start: datetime | None, end: datetime | None) -> str:
    """1 August 2026, 13:09:42 to 13:10:05 UTC; 1 August 2026, 23:43:46 to 2 August 2026, 00:09:44 UTC where it spans midnight."""
    if start is None or end is None:
        return ""
    if start.date() == end.date():
        return f"{_day(start)}, {window(start, end)} UTC"
    return f"{_day(start)}, {clock(start)} to {_day(end)}, {clock(end)} UTC"


def _day(at: datetime) -> str:
    return f"{at.day} {at:%B %Y}"


def finite(value: Any) -> Any:
    """A value as a chart can hold it: times as epoch milliseconds, floats of six digits, NaN and infinities as None."""
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
