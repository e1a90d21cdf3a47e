"""An engine log read record by record: what the readers of the SGLang, llama.cpp, TensorRT-LLM and LMCache logs share.

Most lines of a log carry no signal. One regular expression of literals tells them by their bytes, and they are only counted. The
others are taken out of whatever a collector wrapped around them (`parsers.log_prefix`) and handed to the engine's own reader,
which answers with rows. A line that has a signal and gave no row is not understood.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from parsers.log_prefix import COLOUR, DATE_TIME, QUOTE, Record, records, shortened
from parsers.source import Account, Sink, Source
from parsers.unix_time import in_utc

COLOURS = re.compile(COLOUR)
ROWS_PER_WRITE = 50_000
TAIL_LINES = 50
LONGEST_PREFIX = 100  # of a line, in which its own time stands
HEAD_LINES = 2_000

LOAD = ("engine_samples", "iteration_steps", "request_lines")  # tables of an engine that is up

Row = tuple[str, dict[str, Any]]  # table, columns
HELD: Row = ("", {})  # of a line that is understood and whose values go into the row of a later one


@dataclass(frozen=True)
class Entry:
    """One record of a log: its message, what stands before it, and the columns its prefix gives (times, process, engine)."""

    message: str
    prefix: str
    columns: dict[str, Any]


@dataclass(frozen=True)
class Grammar:
    """What makes a line worth looking at, where its message begins, and which lines must give a row."""

    literals: re.Pattern[bytes]
    start: re.Pattern[str]
    must_be_understood: re.Pattern[str]


@dataclass
class Rows:
    """Rows of one source on their way to the tables."""

    source: str
    sink: Sink
    waiting: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    count: int = 0
    is_starting: bool = False

    def add(self, line: int, row: Row) -> None:
        """Keep one row of a line."""
        table, columns = row
        if not table:
            return
        self.is_starting = is_starting(table, columns, before=self.is_starting)
        self.waiting.setdefault(table, []).append({"source": self.source, "line": line, **columns})
        self.count += 1
        if self.count >= ROWS_PER_WRITE:
            self.write()

    def take(self, account: Account, found: Sequence[Row], *, is_known: bool = False) -> None:
        """Keep the rows of the line that the account is at, and count it: used, or without a row but known, or not understood."""
        for row in found:
            self.add(account.lines, row)
        if found:
            account.used += 1
        elif is_known:
            account.ignored += 1
        else:
            account.misread(account.lines)

    def write(self) -> None:
        """Hand what is kept to the sink."""
        for table, rows in self.waiting.items():
            self.sink.write_rows(table, rows)
        self.waiting, self.count = {}, 0


def is_starting(table: str, columns: Mapping[str, Any], *, before: bool) -> bool:
    """Whether, with this row, an engine began to start and has neither been ready since nor told of requests."""
    if table in LOAD:
        return False
    event = columns.get("event") if table == "engine_events" else None
    return event == "engine_start" or (before and event != "engine_ready")


def entries(text: str, start: re.Pattern[str]) -> Iterator[Entry]:
    """The records of a physical line that begin as `start` says: usually one, several where writers glued them.

    Engines print what users wrote in quotes: nothing behind the first quote is taken for the start of a record.
    """
    for record in records(text, start):
        quote = QUOTE.search(record.text, record.start, record.end)
        starts = [found.start() for found in start.finditer(record.text, record.start, quote.start() if quote else record.end)]
        shared = _columns(record)
        before = 0
        for at, end in zip(starts, [*starts, record.end][1:], strict=True):
            prefix = record.text[before:at]
            yield Entry(record.text[at:end], prefix, shared | _stamps(prefix))
            before = at


def _columns(record: Record) -> dict[str, Any]:
    """What the record's own prefix and its wrapper say."""
    columns: dict[str, Any] = {"process": record.process, "engine": record.engine, **record.fixed}
    for hole in record.holes:
        with suppress(ValueError):  # a stamp that is no date
            columns[hole.column] = hole.kind.value_of(record.text[hole.start : hole.end])
    return {name: value for name, value in columns.items() if value is not None}


def _stamps(prefix: str) -> dict[str, datetime]:
    """The absolute time in a prefix, which a collector wrote, and the engine's own without a zone."""
    found: dict[str, datetime] = {}
    for stamp in DATE_TIME.finditer(prefix):
        with suppress(ValueError):
            moment = datetime.fromisoformat(stamp[0].replace(",", "."))
            found.setdefault(*(("at_utc", in_utc(moment)) if moment.tzinfo else ("at_local", moment)))
    return found


def read_log(source: Source, sink: Sink, grammar: Grammar, read: Callable[[str], Iterable[Row]]) -> Account:
    """Read a log with an engine's own reader. A file cut in the middle keeps what came before the cut."""
    account, rows = Account(), Rows(source.name, sink)
    tail: deque[bytes] = deque(maxlen=TAIL_LINES)
    with account.kept_to_the_fault(), source.open() as stream:
        for raw in stream:
            account.lines += 1
            tail.append(raw)
            if not grammar.literals.search(raw):
                account.ignored += 1
                continue
            text = shortened(COLOURS.sub("", raw.decode("utf-8", "replace")).rstrip("\r\n"))
            try:
                found = list(read(text))
            except (ValueError, OverflowError):  # a number or a time that no engine has
                account.misread(account.lines)
                continue
            rows.take(account, found, is_known=not found and not grammar.must_be_understood.search(text))
    if rows.is_starting:
        _note_end(rows, account, tail)
    rows.write()
    return account


def _note_end(rows: Rows, account: Account, tail: Sequence[bytes]) -> None:
    """Of a log that ends while an engine starts, the time of its last line: how long a start took that came to nothing."""
    for back, raw in enumerate(reversed(tail)):
        if stamps := _stamps(COLOURS.sub("", raw[:LONGEST_PREFIX].decode("utf-8", "replace"))):
            rows.add(account.lines - back, ("engine_events", stamps | {"event": "log_end"}))
            return


def head_lines(head: bytes) -> list[str]:
    """The first lines of a file, for a detector."""
    return COLOURS.sub("", head.decode("utf-8", "replace")).splitlines()[:HEAD_LINES]


def literals(*texts: str) -> re.Pattern[bytes]:
    """A pattern that finds any of the texts."""
    return re.compile(b"|".join(re.escape(text.encode()) for text in texts))


def local_time(text: str) -> datetime | None:
    """A zone-less wall clock in ISO form; None where it is none."""
    try:
        stamp = datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        return None
    return stamp.replace(tzinfo=None) if stamp.tzinfo is None else None
