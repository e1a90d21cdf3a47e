"""What the command line prints: an analysis on one screen, the line accounts of a parse, the formats.

The verdict comes first, then its evidence, the run as small curves, cost, victims, remedy, and what could not be told. A screen
is 80 columns wide and as high as the terminal, or 40 lines: where there is more to say, the least of it stays out and the last
line says so. Nothing is computed here that is not in `analysis.duckdb`; the report says the same with pictures, in the same words
and colours (`charts.language`).
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, Self

import duckdb

import parsers
from pipelines.charts import language, latencies
from pipelines.charts.holes import held_until
from pipelines.charts.language import PREEMPTION, QUEUEING, WORK, Tone, between, count, duration, percent
from pipelines.duck import literal
from pipelines.intake import Intake
from pipelines.texttable import aligned, gathered, printable

WIDTH, HEIGHT = 80, 40
CURVE = 44  # columns of a curve
STEPS = "▁▂▃▄▅▆▇█"
WORTH_A_WORD = 20  # severity of 100 from which a verdict beside the primary one is shown
NAMES_SHOWN = 6  # of a list that may be long; the report and the tables have all
JOINED = "\N{NO-BREAK SPACE}"  # between a number and its unit, while lines are made
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
NO_EVENT = ("healthy", "insufficient_evidence")

Row = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """Lines that stay or go together. Those of the highest rank go first; rank 0 stays."""

    rank: int
    lines: Sequence[str]


@dataclass(frozen=True)
class Curve:
    """One quantity of the timeline as a small curve: its column, its tone, what is said of its values, and its scale."""

    label: str
    column: str
    tone: Tone
    reading: Callable[[Sequence[float]], str]
    most: float | None = None  # of a share: its curve tells how full, not only how it went


CURVES = (
    Curve("KV pool", "kv_usage_ratio", WORK, lambda values: f"{percent(max(values))} at most", most=1.0),
    Curve("waiting", "waiting", QUEUEING.tone, lambda values: f"{count(max(values))} at most"),
    Curve("preemptions", "preemptions", PREEMPTION.tone, lambda values: f"{count(sum(values))} in all"),
    Curve("between tokens", "itl_p99_s", WORK, lambda values: f"{duration(max(values))} at most"),
)
VICTIMS = """
    select request_id, sum(paused_s) from core.victims
    where request_id is not null
    group by request_id
    order by 2 desc nulls last, 1
    limit 3
"""
Section = tuple[str, list[Block]]  # its title, or ""; without a block left it is not printed


def text(
    database: Path, *, report: Path | None = None, colour: bool = False, height: int = HEIGHT, anonymize: bool = False
) -> str:
    """One screen for an analysis, so many lines high; `anonymize` leaves out whose requests paid."""
    with Result(database) as result:
        primary = result.rows("verdicts", "is_primary", "severity desc nulls last, engine")
        is_fleet = len(primary) > 1
        hardest = primary[0]["engine"] if primary else None
        sections: list[Section] = [
            ("", list(_verdict(result, primary, colour=colour))),
            ("", list(_curves(result, hardest, is_fleet=is_fleet, colour=colour))),
            ("Work done twice", list(_waste(result))),
            ("Who paid", list(_victims(result, is_named=not anonymize))),
            ("As the client measured", list(_latencies(result))),
            ("Sweep", list(_sweeps(result))),
            ("Change", list(_changes(result, is_fleet=is_fleet))),
            ("Could not be told", list(_untold(result))),
            ("Data quality", list(_quality(result))),
        ]
    kept, left_out = _fitted(sections, height - 2)
    if report is not None and report.exists():
        told = "1 more line of this is" if left_out == 1 else f"{count(left_out)} more lines of this are"
        more = f"\n  {told} in it, and in summary.md beside it." if left_out else ""
        kept.append(f"Report: {report}{more}")  # a path is not broken over lines: it is there to be copied
    return "\n\n".join(kept)


def _fitted(sections: Sequence[Section], room: int) -> tuple[list[str], int]:
    """The sections as text in so many lines, and how many lines stayed out."""
    ranks = sorted({block.rank for _, blocks in sections for block in blocks})
    left_out = 0
    kept = [(title, list(blocks)) for title, blocks in sections]
    while _height(kept) > room and ranks and ranks[-1] > 0:
        worst = [(blocks, place) for _, blocks in kept for place, block in enumerate(blocks) if block.rank == ranks[-1]]
        if not worst:
            ranks.pop()
            continue
        blocks, place = worst[-1]
        left_out += len(blocks.pop(place).lines)
    return [
        "\n".join([*([title] if title else []), *(line for block in blocks for line in block.lines)])
        for title, blocks in kept
        if blocks
    ], left_out


def _height(sections: Iterable[tuple[str, Sequence[Block]]]) -> int:
    """Lines of the sections, and an empty one after each."""
    return sum(bool(title) + 1 + sum(len(block.lines) for block in blocks) for title, blocks in sections if blocks)


def verdict_sentence(database: Path) -> str:
    """The primary verdict of each engine, with its summary, on one line."""
    with Result(database) as result:
        primary = result.rows("verdicts", "is_primary", "severity desc, engine")
    return " ".join(f"{row['verdict']}: {row['summary']}" for row in primary) or "no verdict"


def worst_severity(database: Path) -> float:
    """The highest severity among verdicts that name an event, as it is shown; 0 where there is none."""
    with Result(database) as result:
        return max((round(row["severity"] or 0) for row in result.rows("verdicts") if row["verdict"] not in NO_EVENT), default=0)


class Result:
    """An analysis database, read-only; a table that it does not have has no rows."""

    def __init__(self, database: Path) -> None:
        self._con = duckdb.connect(str(database), read_only=True)
        self._con.execute("set timezone = 'UTC'")
        self._tables = {name for (name,) in self._con.sql("select table_name from duckdb_tables()").fetchall()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._con.close()

    def rows(self, table: str, where: str = "true", order: str = "all") -> list[Row]:
        """Rows of one table as dicts."""
        if table.rpartition(".")[2] not in self._tables:
            return []
        return self._con.sql(f"from {table} where {where} order by {order}").to_arrow_table().to_pylist()

    def ask(self, query: str, *needs: str) -> list[tuple[Any, ...]]:
        """Rows of a query over the tables it needs; none where one of them is not there."""
        return self._con.sql(query).fetchall() if self._tables.issuperset(needs) else []


# sections of the screen


def _verdict(result: Result, primary: Sequence[Row], *, colour: bool) -> Iterator[Block]:
    """The verdict of the run, or of its hardest pressed engine, with its evidence and what else held."""
    if not primary:
        yield Block(0, ["NO VERDICT", "  The inputs tell too little to say what happened."])
        return
    worst, others = primary[0], primary[1:]
    if others:
        kinds = Counter(language.verdict_word(row).in_a_sentence for row in primary)
        told = ", ".join(f"{number:,} {name}" for name, number in kinds.most_common())
        yield Block(0, _wrap(f"{len(primary):,} engines: {told}. The hardest pressed:", indent="  ", first=""))
    yield Block(0, _heading(worst, is_named=bool(others), colour=colour))
    yield Block(0, _wrap(worst["summary"], indent="  "))
    for place, sentence in enumerate(worst["evidence"] or []):
        yield Block(1 if place < 2 else 3, _wrap(sentence, indent="    ", first="  - "))
    for sentence in worst["evidence_against"] or []:
        yield Block(1, _wrap(f"but: {sentence}", indent="    ", first="  - "))
    also = result.rows(
        "verdicts",
        f"not is_primary and severity >= {language.WORTH_COUNTING} and engine is not distinct from {_literal(worst['engine'])}",
        "severity desc, verdict, window_start",
    )
    shown = [row for row in language.worst_of_each(also) if row["severity"] >= WORTH_A_WORD]
    for row in shown[:NAMES_SHOWN]:
        name = language.verdict_word(row).in_a_sentence
        told = f"also {name} ({language.how_much(row)}): {row['summary']}"
        yield Block(2, _wrap(_shortened(told), indent="    ", first="  "))
    for row in others[:NAMES_SHOWN]:
        if row["verdict"] not in NO_EVENT:
            name = language.verdict_word(row).in_a_sentence
            told = f"then engine {row['engine']}: {name}, severity {row['severity']:.0f}: {row['summary']}"
            yield Block(3, _wrap(_shortened(told), indent="    ", first="  "))


def _heading(row: Row, *, is_named: bool, colour: bool) -> list[str]:
    word = language.verdict_word(row)
    where = f"engine {row['engine']}, " if is_named else ""
    severity = f"severity {row['severity']:.0f} of 100, " if row["severity"] is not None else ""
    certain = f"confidence {percent(row['confidence'])}"
    when = _window(row["window_start"], row["window_end"])
    first, *rest = _wrap(f"{word.name.upper()}  ({where}{when}{severity}{certain})", indent="  ", first="")
    return [f"{_tone(word.tone)}{BOLD}{first}{PLAIN}", *rest] if colour else [first, *rest]


def _curves(result: Result, engine: str | None, *, is_fleet: bool, colour: bool) -> Iterator[Block]:
    """The run of one engine as small curves, each from 0 to its own highest value, a share to the whole."""
    rows = result.rows("timeline", f"engine is not distinct from {_literal(engine)}", "bucket_at")
    if len(rows) < 3:
        return
    spans = [(row["bucket_at"], row["bucket_at"] + timedelta(seconds=row["bucket_s"])) for row in rows]
    drawn = [_curve(rows, _places(spans), curve, colour=colour) for curve in CURVES]
    shown = [line for line in drawn if line]
    if shown:
        ends = (spans[0][0], spans[-1][1])
        form = "%H:%M:%S" if ends[0].date() == ends[1].date() else "%d %b %H:%M"
        first, last = (f"{end:{form}}" for end in ends)
        axis = f"  {'':<16}{first}{last:>{CURVE - len(first)}} UTC"
        yield Block(1, [*shown[:3], axis])
        yield Block(3, shown[3:])
        if is_fleet:
            yield Block(3, _wrap(f"Curves of engine {engine}.", indent="  "))


def _places(spans: Sequence[tuple[datetime, datetime]]) -> list[list[int]]:
    """The buckets that each column of a curve shows, by their place: a column is a part of the run's time, and shows a hole."""
    first, last = spans[0][0], spans[-1][1]
    column = (last - first) / CURVE
    shown: list[list[int]] = [[] for _ in range(CURVE)]
    for place, ((begin, _), end) in enumerate(zip(spans, held_until(spans), strict=True)):
        start = min(int((begin - first) / column), CURVE - 1)
        for each in shown[start : max(start + 1, ceil(round((end - first) / column, 6)))]:
            each.append(place)
    return shown


def _curve(rows: Sequence[Row], places: Sequence[Sequence[int]], of: Curve, *, colour: bool) -> str:
    """`label  ▁▂▇█▂  reading`; "" where no input tells it, or where it was nothing throughout."""
    values = [row[of.column] for row in rows]
    known = [value for value in values if value is not None]
    if not known or not max(known):
        return ""
    curve = spark([[values[place] for place in column] for column in places], of.most)
    return f"  {of.label:<16}{f'{_tone(of.tone)}{curve}{PLAIN}' if colour else curve}  {of.reading(known)}"


def spark(columns: Sequence[Sequence[float | None]], most: float | None = None) -> str:
    """A curve, the highest of each column's values as one of eight steps; blank where none is known."""
    known = [max((value for value in column if value is not None), default=None) for column in columns]
    highest = most or max((value for value in known if value is not None), default=0) or 1
    return "".join(" " if value is None else STEPS[round((len(STEPS) - 1) * min(value / highest, 1))] for value in known)


def _waste(result: Result) -> Iterator[Block]:
    """Tokens processed again by kind, over all engines; shares only where one engine's are meant."""
    for row in result.ask(
        """
        select kind, sum(tokens_low), sum(tokens_best), sum(tokens_high),
            sum(gpu_seconds_low), if(count(gpu_seconds_best) = count(*), sum(gpu_seconds_best), null),
            if(count(gpu_seconds_high) = count(*), sum(gpu_seconds_high), null),
            if(count(cost_best) = count(*), sum(cost_best), null), if(count(cost_high) = count(*), sum(cost_high), null),
            if(count(*) = 1, any_value(share_best), null), string_agg(distinct told_by, ', ' order by told_by),
            string_agg(distinct contradiction, ' ' order by contradiction)
        from waste
        where tokens_best is not null and tokens_high > 0
        group by kind
        order by 3 desc, kind
        """,
        "waste",
    ):
        kind, low, best, high, gpu_low, gpu_best, gpu_high, cost, most_cost, share, told_by, contradiction = row
        said = [f"{language.word(language.WASTE_KINDS, kind).name}: {language.estimate(low, best, high)} tokens"]
        said += [f"{percent(share)} of all computed"] if share is not None else []
        said += ["moved and not computed again"] if kind == "offload_restore" else []
        gpu_time = language.estimate(gpu_low, gpu_best, gpu_high, duration)
        price = language.estimate(None, cost, most_cost, "{:,.4f} USD".format)
        said += [f"{gpu_time} of GPU time"] if gpu_time else []
        said += [price] if price else []
        told = f"{', '.join(said)}. Told by {told_by}.{f' {contradiction}' if contradiction else ''}"
        yield Block(1, _wrap(told, indent="    ", first="  "))


def _victims(result: Result, *, is_named: bool) -> Iterator[Block]:
    """Preemptions and who lost most to them, pauses by cause, and time in the queue by cause."""
    for low, best, high, told_by in result.ask(
        """
        select sum(count_low), sum(count_best), sum(count_high), string_agg(distinct told_by, '; ' order by told_by)
        from preemptions
        having coalesce(sum(count_high), sum(count_low)) > 0
        """,
        "preemptions",
    ):
        told = language.estimate(low, best, high)
        why = f" Told by {told_by}." if best is None or between(low, high) else ""
        yield Block(1, _wrap(f"Preemptions: {told}.{why}", indent="    ", first="  "))
    hit = result.ask(VICTIMS, "victims") if is_named else []
    if hit:
        told = ", ".join(f"{name}{f' ({duration(seconds)})' if seconds else ''}" for name, seconds in hit)
        yield Block(3, _wrap(f"Longest stopped by it: {told}.", indent="    ", first="  "))
    pauses = result.ask(
        """
        select cause, count(*), count(distinct (source_file, request_index, request_id)), sum(duration_s), max(duration_s)
        from stalls group by cause order by cause = 'preemption' desc, 4 desc, cause
        """,
        "stalls",
    )
    for place, (cause, pauses_seen, requests, seconds, longest) in enumerate(pauses):
        name = language.word(language.PAUSE_CAUSES, cause).in_a_sentence
        many = f"{_plural(pauses_seen, 'pause')} in {_plural(requests, 'answer')}"
        told = f"Paused, {name}: {many}, {duration(seconds)} in all, the longest {duration(longest)}."
        yield Block(3 if place else 1, _wrap(told, indent="    ", first="  "))
    queued = result.ask(
        "select cause, sum(seconds), sum(request_seconds) from queue_time group by cause having sum(seconds) > 0 order by 2 desc",
        "queue_time",
    )
    for place, (cause, seconds, request_seconds) in enumerate(queued):
        name = language.word(language.QUEUE_CAUSES, cause).in_a_sentence
        waits = f", {duration(request_seconds)} summed over the requests until each first ran" if request_seconds else ""
        yield Block(3 if place else 1, _wrap(f"Queue, {name}: {duration(seconds)}{waits}.", indent="    ", first="  "))


def _changes(result: Result, *, is_fleet: bool) -> Iterator[Block]:
    """What to change: the first recommendation in full, the others by their title."""
    rows = result.rows("recommendations", order="rank, engine")
    if is_fleet:  # the same advice for many engines is one line
        alike = Counter((row["title"], row["setting"]) for row in rows)
        rows = [{**row, "alike": alike.pop(key)} for row in rows if (key := (row["title"], row["setting"])) in alike]
    for number, row in enumerate(rows[:NAMES_SHOWN], start=1):
        setting = f" ({row['setting']}: {row['from_value'] or 'not known'} -> {row['to_value']})" if row["setting"] else ""
        where = f", engine {row['engine']}" if is_fleet else ""
        where += f" and {row['alike'] - 1:,} more" if is_fleet and row["alike"] > 1 else ""
        yield Block(0 if number <= 3 else 3, _wrap(f"{number}. {row['title']}{setting}{where}.", indent="     ", first="  "))
        if number == 1:
            for rank, label, column in (
                (1, "Effect", "expected_effect"),
                (1, "Trade-off", "trade_off"),  # a change is not told without its price
                (3, "Verify", "verify_by"),
            ):
                if row[column]:
                    yield Block(rank, _wrap(_shortened(f"{label}: {row[column]}", 3), indent="     "))


def _latencies(result: Result) -> Iterator[Block]:
    """Latency as clients sum it up, of results that hold no requests."""
    rows = result.rows("core.client_latencies", order="started_at nulls last, source, run_index")
    for told in islice(latencies.sentences(rows), NAMES_SHOWN):
        yield Block(3, _wrap(told, indent="    ", first="  "))


def _sweeps(result: Result) -> Iterator[Block]:
    """Where each sweep bends, and what it could not tell."""
    rows = result.rows("sweep_knee", order="sweep, dimension")
    for row in rows:
        told = f"{row['sweep']}: {row['summary']}" if len(rows) > 1 else row["summary"]
        yield Block(2 if row["knee_level"] is not None else 3, _wrap(_shortened(told, 4), indent="    ", first="  "))
        yield from (Block(4, _wrap(remark, indent="    ")) for remark in row["remarks"] or [])


def _untold(result: Result) -> Iterator[Block]:
    """What the inputs do not carry: what is likely all the same, counts and amounts that are NULL, what to record next time."""
    verdicts = result.rows("verdicts", "len(missing) > 0", "is_primary desc, severity desc, engine, verdict")
    likely = [row for row in verdicts if row["verdict"] == "insufficient_evidence" and row["severity"] and not row["is_primary"]]
    uncounted = result.rows("preemptions", language.UNCOUNTED, "engine")
    of_likely = {row["engine"] for row in likely}
    told = [row["summary"] for row in likely]
    told += [f"Preemptions: {language.reason_untold(row)}." for row in uncounted if row["engine"] not in of_likely]
    told += [
        f"{language.word(language.WASTE_KINDS, row['kind']).name}: {language.reason_untold(row)}."
        for row in result.rows("waste", "tokens_best is null", "kind, engine")
    ]
    told += language.wishes({**row, "summary": None} if row in likely else row for row in verdicts)
    for place, sentence in enumerate(dict.fromkeys(told)):
        yield Block(1 if place < 2 else 4, _wrap(sentence, indent="    ", first="  "))


def _quality(result: Result) -> Iterator[Block]:
    rows = result.rows(
        "data_quality", "flag <> 'not_recognised'", "severity = 'error' desc, severity = 'warning' desc, flag, source"
    )
    engines = result.rows("engines")
    named = [(*_about(row, engines), row["severity"]) for row in rows]
    severities = {sentence: severity for _, sentence, severity in reversed(named)}
    told = gathered((name, sentence) for name, sentence, _ in named)
    for place, (name, sentence) in enumerate(islice(told, 2 * NAMES_SHOWN)):
        rank = {"error": 0, "warning": 2}.get(severities[sentence], 4) + (1 if place >= 2 else 0)
        yield Block(rank, _wrap(_shortened(f"{name}: {sentence}" if name else sentence), indent="    ", first="  "))
    others = [row["source"] for row in result.rows("data_quality", "flag = 'not_recognised'")]
    if others:
        told = f"Of another kind, left out: {', '.join(others[:NAMES_SHOWN])}{', …' if len(others) > NAMES_SHOWN else ''}"
        yield Block(4, _wrap(told, indent="    ", first="  "))


def _about(row: Row, engines: Sequence[Row]) -> tuple[str, str]:
    """A note on the data: what it is about, which may be "", and the sentence without it."""
    source, sentence = row["source"] or "", row["detail"] or row["flag"].replace("_", " ")
    if source and sentence.startswith(f"{source}: "):
        return source, sentence.removeprefix(f"{source}: ")
    return "" if sentence.startswith(source) else language.source_name(source, engines), sentence


# words about what was read


def line_accounts(intake: Intake) -> str:
    """What became of the lines of each file."""
    rows = [
        [
            printable(outcome.source.name),
            outcome.format.name if outcome.format else "-",
            *(
                f"{n:,}"
                for n in (outcome.account.lines, outcome.account.used, outcome.account.ignored, outcome.account.not_understood)
            ),
            str(outcome.account.first_not_understood or ""),
        ]
        for outcome in intake.outcomes
    ]
    names = ["source", "format", "lines", "used", "ignored", "not understood", "first at"]
    return aligned(names, rows, numeric=[False, False, True, True, True, True, True])


def row_counts(intake: Intake, out: Path) -> str:
    """How many rows each table got, and where it lies."""
    rows = [[f"{count:,}", str(out / f"{table}.parquet")] for table, count in sorted(intake.rows.items())]
    return aligned(["rows", "table"], rows, numeric=[True]).rstrip("\n")


def formats() -> str:
    """Every format that is recognised: for which engine and versions, and what it can and cannot tell."""
    blocks = []
    for each in parsers.formats():
        said = [
            ("engine", f"{each.engine_kind or 'any'}, {each.versions}"),
            ("tells", each.can_tell),
            ("does not tell", each.cannot_tell),
        ]
        lines = [f"{each.name}: {each.title}"]
        for label, words in said:
            lines += textwrap.wrap(words, WIDTH, initial_indent=f"  {label:<15}", subsequent_indent=" " * 17)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


# small parts


def _window(start: datetime | None, end: datetime | None) -> str:
    return f"{language.window(start, end)} UTC, " if start is not None and end is not None else ""


def _plural(number: int, noun: str) -> str:
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def _tone(tone: Tone) -> str:
    """What makes a terminal of 256 colours write in a tone."""
    return f"\x1b[38;5;{tone.ansi}m"


def _literal(name: str | None) -> str:
    return "null" if name is None else literal(name)


def _shortened(words: str, lines: int = 2) -> str:
    """Cut so that it fills so many lines at most: where a clause ends, if one ends in the second half."""
    cut = textwrap.shorten(words, lines * (WIDTH - 8), placeholder=" …")
    if not cut.endswith(" …") or words.endswith(" …"):
        return cut
    clause = max(cut.rfind(mark) for mark in (". ", "; ", ", "))
    return f"{cut[:clause]} …" if clause > len(cut) // 2 else cut


def _wrap(words: str | None, *, indent: str, first: str | None = None) -> list[str]:
    unbroken = language.NUMBER_AND_UNIT.sub(JOINED, printable(" ".join((words or "").split())))
    lines = textwrap.wrap(
        unbroken, WIDTH, initial_indent=indent if first is None else first, subsequent_indent=indent, break_on_hyphens=False
    )
    return [line.replace(JOINED, " ") for line in lines]
