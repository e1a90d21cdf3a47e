"""What the command line prints: an analysis on one screen, the line accounts of a parse, the formats.

The verdict comes first, then its evidence, cost, victims, remedy, and what could not be told. Nothing is computed here that is
not in `analysis.duckdb`; the report says the same with pictures.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import duckdb

import parsers
from pipelines.duck import literal
from pipelines.intake import Intake
from pipelines.texttable import aligned, printable

WIDTH = 80
WORTH_A_WORD = 20  # severity of 100 from which a verdict beside the primary one is shown
ROWS_SHOWN = 6  # of a list that may be long; the report and the tables have all
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
NO_EVENT = ("healthy", "insufficient_evidence")

Row = dict[str, Any]


def text(database: Path, *, report: Path | None = None, colour: bool = False) -> str:
    """One screen for an analysis."""
    with Result(database) as result:
        sections = [
            *(
                _engine(result, primary, colour=colour)
                for primary in result.rows("verdicts", "is_primary", "severity desc, engine")
            ),
            _section("Waste", map(_waste, result.rows("waste", "tokens_best is not null and tokens_high > 0"))),
            _section("Who paid", _victims(result)),
            _section("Sweep", _sweeps(result)),
            _section("Change", _changes(result)),
            _section("Could not be told", _untold(result)),
            _section("Data quality", _quality(result)),
        ]
    if report is not None and report.exists():
        sections.append(f"Report: {report}")
    return "\n\n".join(section for section in sections if section)


def verdict_sentence(database: Path) -> str:
    """The primary verdict of each engine, with its summary, on one line."""
    with Result(database) as result:
        primary = result.rows("verdicts", "is_primary", "severity desc, engine")
    return " ".join(f"{row['verdict']}: {row['summary']}" for row in primary) or "no verdict"


def worst_severity(database: Path) -> float:
    """The highest severity among verdicts that name an event; 0 where there is none."""
    with Result(database) as result:
        return max((row["severity"] or 0 for row in result.rows("verdicts") if row["verdict"] not in NO_EVENT), default=0)


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

    @property
    def has_many_engines(self) -> bool:
        """Whether an engine must be named."""
        return len(self.rows("engines")) > 1

    def rows(self, table: str, where: str = "true", order: str = "all") -> list[Row]:
        """Rows of one table as dicts."""
        if table not in self._tables:
            return []
        return self._con.sql(f"from {table} where {where} order by {order}").to_arrow_table().to_pylist()

    def ask(self, query: str, *needs: str) -> list[tuple[Any, ...]]:
        """Rows of a query over the tables it needs; none where one of them is not there."""
        return self._con.sql(query).fetchall() if self._tables.issuperset(needs) else []


# sections of the screen


def _engine(result: Result, primary: Row, *, colour: bool) -> str:
    """The primary verdict of one engine with its evidence, and what else held."""
    title = primary["verdict"].replace("_", " ").upper()
    where = f"engine {primary['engine']}, " if result.has_many_engines else ""
    when = _window(primary["window_start"], primary["window_end"])
    heading = f"{title}  ({where}{when}severity {primary['severity']:.0f} of 100, confidence {primary['confidence']:.0%})"
    lines = [f"{BOLD}{heading}{PLAIN}" if colour else heading, *_wrap(primary["summary"], indent="  ")]
    for sentence in primary["evidence"] or []:
        lines += _wrap(sentence, indent="    ", first="  - ")
    for sentence in primary["evidence_against"] or []:
        lines += _wrap(f"but: {sentence}", indent="    ", first="  - ")
    also = result.rows(
        "verdicts",
        f"not is_primary and severity >= {WORTH_A_WORD} and engine = {literal(primary['engine'])}",
        "severity desc, verdict",
    )
    for row in also[:ROWS_SHOWN]:
        lines += _wrap(f"also {row['verdict'].replace('_', ' ')}: {row['summary']}", indent="    ", first="  ")
    return "\n".join(lines)


def _section(title: str, lines: Iterable[str]) -> str:
    """A title and its lines, wrapped; nothing where there are no lines."""
    wrapped = [part for line in lines for part in _wrap(line.strip(), indent="     ", first=_indent(line))]
    return "\n".join([title, *wrapped]) if wrapped else ""


def _waste(row: Row) -> str:
    tokens = _range(row["tokens_low"], row["tokens_best"], row["tokens_high"], "{:,.0f}")
    said = [f"{row['kind'].replace('_', ' ')}: {tokens} tokens"]
    if row["share_best"] is not None:
        said.append(f"{_range(row['share_low'], row['share_best'], row['share_high'], '{:.1%}')} of all tokens computed")
    if row["gpu_seconds_best"] is not None:
        said.append(f"{_range(row['gpu_seconds_low'], row['gpu_seconds_best'], row['gpu_seconds_high'], '{:,.1f}')} GPU seconds")
    if row["cost_best"] is not None:
        said.append(f"{_range(row['cost_low'], row['cost_best'], row['cost_high'], '{:,.4f}')} USD")
    return ", ".join(said)


def _victims(result: Result) -> Iterator[str]:
    """Preemptions, pauses by cause, and time in the queue by cause."""
    for row in result.rows("preemptions", "count_high > 0"):
        yield f"preemptions: {_range(row['count_low'], row['count_best'], row['count_high'], '{:,.0f}')}"
    pauses = result.ask(
        """
        select cause, count(*), count(distinct (source_file, request_index, request_id)), sum(duration_s), max(duration_s)
        from stalls group by cause order by 4 desc, cause
        """,
        "stalls",
    )
    for cause, count, requests, total, longest in pauses:
        said = f"{count} pauses in {requests} requests, {total:,.1f} s in all, the longest {longest:.1f} s"
        yield f"paused by {cause.replace('_', ' ')}: {said}"
    queued = result.ask(
        "select cause, sum(seconds), sum(request_seconds) from queue_time group by cause having sum(seconds) > 0 order by 2 desc",
        "queue_time",
    )
    for cause, seconds, request_seconds in queued:
        of_requests = f", {request_seconds:,.1f} request-seconds before a first token" if request_seconds else ""
        yield f"queue behind {cause.replace('_', ' ')}: {seconds:,.1f} s{of_requests}"


def _changes(result: Result) -> Iterator[str]:
    """What to change: the first recommendation in full, the others by their title."""
    rows = result.rows("recommendations", order="rank, engine")
    for number, row in enumerate(rows, start=1):
        setting = f" ({row['setting']}: {row['from_value'] or 'not known'} -> {row['to_value']})" if row["setting"] else ""
        where = f", engine {row['engine']}" if result.has_many_engines else ""
        yield f"{number}. {row['title']}{setting}{where}."
        if number == 1:
            for label, column in (("Effect", "expected_effect"), ("Trade-off", "trade_off"), ("Verify", "verify_by")):
                if row[column]:
                    yield f"   {label}: {row[column]}"


def _sweeps(result: Result) -> Iterator[str]:
    """Where each sweep bends, and what it could not tell."""
    rows = result.rows("sweep_knee", order="sweep, dimension")
    for row in rows:
        yield f"{row['sweep']}: {row['summary']}" if len(rows) > 1 else row["summary"]
        yield from (f"  {remark}" for remark in row["remarks"])


def _untold(result: Result) -> Iterator[str]:
    """What the inputs do not carry: counts and amounts that are NULL, and what to record next time."""
    for row in result.rows("preemptions", "count_best is null"):
        yield f"preemptions: {row['method'] or 'no input counts them'}"
    for row in result.rows("waste", "tokens_best is null"):
        yield f"{row['kind'].replace('_', ' ')}: {row['method'] or 'no input tells it'}"
    missing = [
        sentence for row in result.rows("verdicts", order="is_primary desc, severity desc") for sentence in row["missing"] or []
    ]
    yield from dict.fromkeys(missing)


def _quality(result: Result) -> Iterator[str]:
    rows = result.rows(
        "data_quality", "flag <> 'not_recognised'", "severity = 'error' desc, severity = 'warning' desc, flag, source"
    )
    others = [row["source"] for row in result.rows("data_quality", "flag = 'not_recognised'")]
    if others:
        yield f"of another kind, left out: {', '.join(others[:ROWS_SHOWN])}{', …' if len(others) > ROWS_SHOWN else ''}"
    for row in rows[:ROWS_SHOWN]:
        where = f"{row['source']}: " if row["source"] and not (row["detail"] or "").startswith(row["source"]) else ""
        yield f"{where}{row['detail'] or row['flag'].replace('_', ' ')}"
    if len(rows) > ROWS_SHOWN:
        yield f"and {len(rows) - ROWS_SHOWN} more in the table data_quality"


# words about what was read


def unread(intake: Intake) -> list[str]:
    """A line for each file that was recognised but broken or cannot be read, and one for all that are simply something else."""
    return [outcome.error for outcome in intake.outcomes if outcome.is_broken and outcome.error]


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


def _range(low: float | None, best: float | None, high: float | None, form: str) -> str:
    """`best (low to high)`, or `best` where the range has no width."""
    told = [form.format(value) for value in (low, best, high) if value is not None]
    if len(set(told)) <= 1:
        return told[0] if told else "not known"
    bounds = f"{form.format(low) if low is not None else '?'} to {form.format(high) if high is not None else '?'}"
    return f"{form.format(best)} ({bounds})" if best is not None else bounds


def _window(start: datetime | None, end: datetime | None) -> str:
    if start is None or end is None:
        return ""
    return (
        f"{start:%H:%M:%S} to {end:%H:%M:%S} UTC, " if start.date() == end.date() else f"{start:%F %H:%M} to {end:%F %H:%M} UTC, "
    )


def _indent(line: str) -> str:
    """Two spaces, and those the line itself begins with."""
    return "  " + " " * (len(line) - len(line.lstrip()))


def _wrap(words: str | None, *, indent: str, first: str | None = None) -> list[str]:
    return textwrap.wrap(
        printable(" ".join((words or "").split())),
        WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
    )
