"""The report: one HTML file that needs no network, from one `analysis.duckdb`; and the same in Markdown for a ticket.

The page is `report_page/page.html` with its style and script beside it, made safe by `pipelines.pages`; this module gathers what
it says. No number is computed here that a query in `pipelines.charts` or below does not give.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from altair.utils.schemapi import debug_mode

from pipelines import pages
from pipelines.charts import (
    engines,
    language,
    latencies,
    lengths,
    pauses,
    pool,
    prefixes,
    queues,
    requests,
    sweep,
    timeline,
    waste,
)
from pipelines.charts.bundle import vega
from pipelines.charts.data import Data, Row, first, total
from pipelines.charts.figure import Figure
from pipelines.charts.language import CALM, PREEMPTION, QUEUEING, RECOMPUTATION, between, count, duration, percent, short
from pipelines.pages import sentence

BEHIND_THE_NUMBERS = (  # what stands above the fold, as anyone can ask for it
    ("the verdicts", "from verdicts order by is_primary desc, severity desc, window_start"),
    ("preemptions", "from preemptions order by engine"),
    ("tokens recomputed", "from waste order by kind, engine"),
    ("with a queue", queues.QUERY),
    ("answers paused", pauses.SUMMARY),
)
FIGURES = (  # each has its place in page.html, by its key
    timeline.figure,
    engines.figure,
    waste.figure,
    pauses.figure,
    requests.lanes,
    queues.figure,
    requests.time,
    lengths.figure,
    pool.figure,
    prefixes.figure,
    sweep.figure,
)


@dataclass(frozen=True)
class Number:
    """One key number: what it counts, its value, its range, a remark, and where the range lies on its own scale."""

    label: str
    event: language.Event
    value: str
    spread: str = ""
    remarks: Sequence[str] = ()
    scale: tuple[float, float, float] | None = None  # low, best, high in percent of the widest

    @property
    def is_known(self) -> bool:
        """Whether any input tells it."""
        return self.value != language.NOT_KNOWN


def write_report(analysis: Path, out: Path, *, anonymize: bool = False) -> None:
    """Write the page for `analysis.duckdb` (or the folder it lies in) to the file `out`."""
    with Data.open(analysis, anonymize=anonymize) as data:
        out.write_text(page(data), encoding="utf-8")


def write_markdown(analysis: Path, out: Path, *, anonymize: bool = False) -> None:
    """Write the same verdict, numbers and advice as Markdown, for a ticket."""
    with Data.open(analysis, anonymize=anonymize) as data:
        out.write_text(pages.environment(is_html=False).get_template("summary.md").render(contents(data)), encoding="utf-8")


def page(data: Data) -> str:
    """The whole HTML page."""
    figures = drawn(data)
    scripts = {"vega": vega(), "behaviour": (pages.FOLDER / "page.js").read_text(encoding="utf-8")}
    specs = {each.key: each.spec for each in figures.values() if each.spec is not None}
    return pages.html(
        "page.html",
        contents(data)
        | {
            "figures": figures,
            "pause_causes": pauses.by_cause(data),
            "longest_pauses": pauses.longest(data),
            "sweep_levels": sweep.levels(data),
            "specs": pages.script_json(specs),
            "tones": pages.script_json(language.dark_tones()),
        },
        scripts,
    )


def drawn(data: Data) -> dict[str, Figure]:
    """Every figure by its key."""
    with debug_mode(False):  # the tests validate; here it would be a third of the time
        return {figure.key: figure for figure in (make(data) for make in FIGURES) if figure is not None}


def contents(data: Data) -> dict[str, Any]:
    """What the page and the Markdown summary both say."""
    verdicts = data.rows(
        "from verdicts order by is_primary desc nulls last, severity desc nulls last, window_start, verdict, engine"
    )
    primary = [row for row in verdicts if row["is_primary"]]
    also = [
        row
        for row in verdicts
        if not row["is_primary"] and row["verdict"] not in CALM and (row["severity"] or 0) >= language.WORTH_COUNTING
    ]
    return {
        "run": first(data.rows("from runs")),
        "engines": data.rows("from engines order by engine"),
        "verdict": (primary or verdicts or [None])[0],
        "primary": primary,
        "also": language.worst_of_each(also),
        "windows": [row for row in verdicts if row["window_start"] is not None],
        "numbers": numbers(data),
        "latencies": list(latencies.sentences(data.rows(latencies.QUERY))),
        "behind_the_numbers": BEHIND_THE_NUMBERS,
        "advice": data.rows("from recommendations order by rank, engine"),
        "missing": missing(data, verdicts),
        "events": [(event, seen(data, event, verdicts)) for event in language.EVENTS],
        "look_alikes": {"extent": _look_alike_extent(data, verdicts), "windows": _windows_of(verdicts, None)},
        "waste": data.rows(waste.QUERY),
        "quality": data.rows(
            "from data_quality where flag <> 'not_recognised' "
            "order by severity = 'error' desc, severity = 'warning' desc, flag, source limit 200"
        ),
        "left_out": [row["source"] for row in data.rows("from data_quality where flag = 'not_recognised' order by source")],
        "knees": sweep.knees_of(data),
        "sources": data.rows("select * from sources order by lines_not_understood desc nulls last, source limit 200"),
        "language": language,
        "waste_kinds": language.WASTE_KINDS,
        "verdict_words": language.VERDICTS,
    }


# key numbers


def numbers(data: Data) -> list[Number]:
    """The four numbers above the fold: preemptions, tokens processed again, time queued, answers that preemption paused."""
    return [_preemptions(data), _recomputed(data), _queued(data), _paused(data)]


def _preemptions(data: Data) -> Number:
    rows = data.rows("from preemptions")
    low, best, high = (total(rows, f"count_{bound}") for bound in ("low", "best", "high"))
    told = best if best is not None else high
    remarks = [f"Told by {', '.join(sorted({language.told_by(row) for row in rows}))}"] if rows else []
    if told is None:
        least = language.estimate(low, None, None)
        return Number("Preemptions", PREEMPTION, least or language.NOT_KNOWN, remarks=remarks or ["No input counts them."])
    return Number(
        "Preemptions", PREEMPTION, count(told), spread=between(low, high), remarks=remarks, scale=_scale(low, told, high)
    )


def _recomputed(data: Data) -> Number:
    rows = data.rows("from waste where kind = 'preemption_recompute'")
    low, best, high = (total(rows, f"tokens_{bound}") for bound in ("low", "best", "high"))
    refilled = total(data.rows("from waste where kind = 'prefix_refill'"), "tokens_best")
    remarks = [f"Refilled after prefix eviction, apart from these: {count(refilled)}"] if refilled else []
    if best is None:
        spread = f"{short(low)} to {short(high)}" if low is not None and high is not None else ""
        reason = sentence(language.reason_untold(rows[0] if rows else {}))
        return Number("Tokens recomputed", RECOMPUTATION, language.NOT_KNOWN, spread=spread, remarks=[reason, *remarks])
    if len(rows) == 1 and rows[0]["share_best"] is not None:
        shares = between(rows[0]["share_low"], rows[0]["share_high"], percent)
        remarks = [f"{percent(rows[0]['share_best'])} of all tokens computed{f' ({shares})' if shares else ''}", *remarks]
    remarks += dict.fromkeys(row["contradiction"] for row in rows if row["contradiction"])
    return Number(
        "Tokens recomputed",
        RECOMPUTATION,
        short(best),
        spread=between(low, high, short),
        remarks=remarks,
        scale=_scale(low, best, high),
    )


def _queued(data: Data) -> Number:
    rows = data.rows(queues.QUERY)
    is_told = queues.is_watched(data)
    if not rows:
        value = duration(0) if is_told else language.NOT_KNOWN
        return Number("With a queue", QUEUEING, value, remarks=[] if is_told else ["No input shows the queue over time."])
    remarks = [f"{language.word(language.QUEUE_CAUSES, row['cause']).name}: {duration(row['seconds'])}" for row in rows[:3]]
    return Number("With a queue", QUEUEING, duration(total(rows, "seconds")), remarks=remarks)


def _paused(data: Data) -> Number:
    causes = data.rows(pauses.SUMMARY)
    by_preemption = first([row for row in causes if row["cause"] == "preemption"])
    others = [row for row in causes if row["cause"] != "preemption"]
    words = language.PAUSE_CAUSES
    remarks = [
        f"{language.word(words, row['cause']).name}: {count(row['requests'])} paused, {duration(row['longest_s'])} at most"
        for row in others[:2]
    ]
    label = "Paused by preemption"
    if by_preemption:
        told = f"{duration(by_preemption['total_s'])} in all, {duration(by_preemption['longest_s'])} at most"
        return Number(label, PREEMPTION, count(by_preemption["requests"]), remarks=[told, *remarks])
    if pauses.is_watched(data):
        return Number(label, PREEMPTION, "0", remarks=remarks)
    if pauses.is_none_by_preemption(data):
        return Number(label, PREEMPTION, "0", remarks=["No preemption was counted.", *remarks])
    return Number(label, PREEMPTION, language.NOT_KNOWN, remarks=remarks or ["No input has the time of each token."])


def _scale(low: float | None, best: float | None, high: float | None) -> tuple[float, float, float] | None:
    """Where a range lies on a scale from 0 to its own highest value, in percent."""
    if low is None or best is None or not high or low == high:
        return None
    return (100 * low / high, 100 * best / high, 100.0)


# what could not be told, what was seen


def missing(data: Data, verdicts: Sequence[Row]) -> list[str]:
    """What to record next time, the worst verdict's wish first; each once."""
    wishes = list(language.wishes(verdicts))
    wishes += [
        f"Preemptions could not be counted: {language.reason_untold(row)}."
        for row in data.rows(f"from preemptions where {language.UNCOUNTED}")
    ]
    for row in data.rows("from waste where tokens_best is null order by kind"):
        name = language.word(language.WASTE_KINDS, row["kind"]).name
        wishes.append(f"{name}: {language.reason_untold(row)}.")
    return list(dict.fromkeys(wishes))


def seen(data: Data, event: language.Event, verdicts: Sequence[Row]) -> dict[str, Any]:
    """How much there was of an event, as a sentence, and the windows it was the verdict of."""
    extent = {
        "prefix_eviction": lambda: _tokens(data, "prefix_refill", "refilled after eviction"),
        "queueing": lambda: _queue_extent(data),
        "preemption": lambda: _preemption_extent(data),
        "recomputation": lambda: _tokens(data, "preemption_recompute", "recomputed after preemption"),
        "offload": lambda: _tokens(data, "offload_restore", "restored"),
    }[event.key]()
    return {"extent": extent, "windows": _windows_of(verdicts, event)}


def _tokens(data: Data, kind: str, what: str) -> str:
    rows = data.rows("from waste")
    of_kind = [row for row in rows if row["kind"] == kind]
    low, best, high = (total(of_kind, f"tokens_{bound}") for bound in ("low", "best", "high"))
    if best is None and high is None:
        return "Cannot be told from these inputs."
    if not high:
        return "None seen."
    spread = between(low, high)
    return f"{count(best) if best is not None else 'Unknown number of'} tokens {what}{f' ({spread})' if spread else ''}."


def _queue_extent(data: Data) -> str:
    number = _queued(data)
    if number.is_known and not number.remarks:
        return "None seen."
    return (
        f"{number.value} with a queue. {'; '.join(number.remarks)}".strip()
        if number.is_known
        else "Cannot be told from these inputs."
    )


def _preemption_extent(data: Data) -> str:
    number = _preemptions(data)
    if not number.is_known:
        return "Cannot be told from these inputs."
    return f"{number.value} counted{f' ({number.spread})' if number.spread else ''}." if number.value != "0" else "None counted."


def _look_alike_extent(data: Data, verdicts: Sequence[Row]) -> str:
    """The answers that something else than the five paused; where there are none, whether that is known."""
    words = {key: word.name for key, word in language.PAUSE_CAUSES.items() if word.tone is language.LOOK_ALIKE}
    paused = [row for row in data.rows(pauses.SUMMARY) if row["cause"] in words]
    if paused:
        told = [f"{words[row['cause']]}: {count(row['requests'])} paused, {duration(row['longest_s'])} at most" for row in paused]
        return f"{'; '.join(told)}."
    if _windows_of(verdicts, None):
        return ""
    if all(row["verdict"] == "insufficient_evidence" for row in verdicts):
        return "Cannot be told from these inputs."
    return "None seen." if pauses.is_watched(data) else "None seen; whether answers paused, no input tells."


def _windows_of(verdicts: Iterable[Row], event: language.Event | None) -> list[Row]:
    """The windows of an event's verdicts; with None, of what looks like an event and is not."""
    return [
        row
        for row in verdicts
        if row["window_start"] is not None
        and row["verdict"] not in CALM
        and language.word(language.VERDICTS, row["verdict"]).event is event
    ][:12]
