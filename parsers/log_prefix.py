r"""What stands in front of a log message: process, time, level, file, in whatever format a user chose.

    INFO 01-23 06:33:37 metrics.py:396] Avg prompt …                                              0.2.7 to 0.7.3
    INFO 07-28 06:40:59 [loggers.py:118] Engine 000: Avg …                                        0.8.0 on
    (EngineCore_DP1 pid=41) [node3] INFO 02-02 18:25:03 [core.py:96] …                            VLLM_LOGGING_PREFIX inside
    (APIServer pid=1) INFO 11-29 13:05:07 [loggers.py:335] …                                      0.31 on
    HOST vllm[361991]: INFO 09-22 23:46:42 metrics.py:351] …                                      journald in front
    2026-07-01T12:00:00.123456Z INFO 07-01 12:00:00 [loggers.py:118] …                            a collector's time
    2024-12-23 18:28:10 - vllm.engine.metrics - INFO - Avg prompt …                               a user's logging format
    {"asctime": "2026-11-29 13:05:26,201", …, "process": 14672, "message": "Engine 000: …"}       JSON logging

What collectors wrap around a line is peeled off before (`parsers.wrappers`); of it there is at most the time in front.
`records` finds each record of a physical line: usually one, none in a progress bar, several where writers glued them. It says
where the message lies and where the stamps lie (as holes, for `parsers.line_shapes`), and never copies what a user wrote.

Engines print what users wrote in quotes, so nothing behind the first quote of a line is taken for the start of a record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from parsers.line_shapes import Hole, Kind

# \x1b[0;36m, and as it looks behind JSON (\u001b[), rsyslog (#033[) and `cat -v` (^[[).
COLOUR = r"(?:\x1b|\\u001[bB]|#033|\^\[)\[[0-9;]*m"

# (EngineCore_DP0 pid=41) · (VllmWorker rank=1 pid=77)
PROCESS = re.compile(r"\(([A-Za-z_][\w-]*(?: rank=\d+)? pid=\d+)\)")
# EngineCore_DP1 pid=41 · Worker_DP1_TP0 pid=43 · EngineCore_0 pid=612
PROCESS_ENGINE = re.compile(r"(?:_DP|^EngineCore_)(\d+)")
# INFO 01-23 06:33:37 metrics.py:396] · INFO 07-28 06:40:59 [v1/metrics/loggers.py:118] · INFO [kv_cache_utils.py:1319]
HEADER = re.compile(
    r"(?:\([A-Za-z_][\w-]*(?: rank=\d+)? pid=\d+\) )*"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:(?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d) )?\[?[\w./-]+:\d+\] ?"
)
# 2024-12-23 18:28:10 · 2026-07-01T12:00:00.123456789Z
DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?P<zone>Z|[+-]\d\d:?\d\d)?")
# 12-23 18:28:10, in a user's format
SHORT_STAMP = re.compile(r"(?<![\d-])\d\d-\d\d \d\d:\d\d:\d\d")
# What a message in a user's format may follow: "… - INFO - ", "…] ", "INFO:vllm.engine.metrics:", a time, or nothing.
BEFORE_MESSAGE = re.compile(r"(?:^|[\]:|>-]\s*|\d\d\s+)$")
QUOTE = re.compile("[\"']")

# What is looked at of a longer line, from its start and its end: what users wrote is in the middle, and some patterns take time
# that grows with the square of the length.
LONGEST_START, LONGEST_END = 28 * 1024, 4 * 1024

MESSAGE_KEYS, TIME_KEYS = ("message", "msg", "event"), ("asctime", "timestamp", "time", "ts", "@timestamp")


@dataclass(frozen=True)
class Record:
    """One record: its message is `text[start:end]`; `holes` are the stamps in `text`, `fixed` the columns its prefix names.

    `is_verbatim` says that `text` is the physical line, so that positions in it hold for the next line of the same shape too.
    """

    text: str
    start: int
    end: int
    process: str | None = None
    engine: str | None = None
    holes: tuple[Hole, ...] = ()
    fixed: dict[str, Any] = field(default_factory=dict)
    is_verbatim: bool = True

    @property
    def message(self) -> str:
        """The message alone."""
        return self.text[self.start : self.end]


def shortened(line: str) -> str:
    """The line without the middle that nothing is looked for in; nearly always the line."""
    is_long = len(line) > LONGEST_START + LONGEST_END
    return f"{line[:LONGEST_START]} {line[-LONGEST_END:]}" if is_long else line


def records(line: str, signal: re.Pattern[str]) -> Iterator[Record]:
    """Every record of a physical line. `signal` finds the start of a message in a format no header tells."""
    if (brace := line.find('{"')) >= 0 and line.rstrip().endswith("}"):
        unwrapped = _from_json(line, brace)
        if unwrapped is not None:
            yield from unwrapped
            return
    start = 0
    for piece in line.split("\r"):  # a progress bar redraws with \r; the record is one of the segments
        yield from _in_text(line, start, start + len(piece), signal)
        start += len(piece) + 1


def _in_text(text: str, start: int, end: int, signal: re.Pattern[str]) -> Iterator[Record]:
    """Records of `text[start:end]`, which holds no wrapper and no carriage return."""
    quote = QUOTE.search(text, start, end)
    limit = quote.start() if quote else end
    headers = list(HEADER.finditer(text, start, limit))
    if not headers:
        yield _without_header(text, start, end, limit, signal)
        return
    before = start
    for i, header in enumerate(headers):
        message_end = headers[i + 1].start() if i + 1 < len(headers) else end
        own_stamp = (Hole(*header.span("stamp"), "at_local", Kind.STAMP),) if header["stamp"] else ()
        stamps = _stamps(text, before, header.start(), takes_local=not own_stamp)
        yield _record(text, (before, header.end(), message_end), (*stamps, *own_stamp))
        before = message_end


def _without_header(text: str, start: int, end: int, limit: int, signal: re.Pattern[str]) -> Record:
    """The record of a text in a user's own format, or with none at all, such as a line of a traceback."""
    found = signal.search(text, start, limit)
    if found and BEFORE_MESSAGE.search(text[start : found.start()]):
        return _record(text, (start, found.start(), end), _stamps(text, start, found.start()))
    message = start
    while process := PROCESS.match(text, message, end):
        message = process.end() + text.startswith(" ", process.end())
    return _record(text, (start, message, end), ())


def _record(text: str, span: tuple[int, int, int], holes: tuple[Hole, ...]) -> Record:
    """The record whose prefix, message and end lie at `span`."""
    before, start, end = span
    processes = PROCESS.findall(text, before, start)  # a worker inside an engine has two; the last one wrote the line
    process = processes[-1] if processes else None
    return Record(text, start, end, process, process_engine(process), holes)


def process_engine(process: str | None) -> str | None:
    """Data-parallel rank a process name carries: `EngineCore_DP1 pid=41` -> `1`."""
    rank = PROCESS_ENGINE.search(process) if process else None
    return str(int(rank[1])) if rank else None


def _stamps(text: str, start: int, end: int, *, takes_local: bool = True) -> tuple[Hole, ...]:
    """Stamps in a prefix: an absolute one for `at_utc`, and a local one for `at_local` where the header has none of its own."""
    holes: dict[str, Hole] = {}
    for found in DATE_TIME.finditer(text, start, end):
        column = "at_utc" if found["zone"] else "at_local"
        if column == "at_utc" or takes_local:
            holes.setdefault(column, Hole(*found.span(), column, Kind.INSTANT if column == "at_utc" else Kind.DATE_TIME))
    if takes_local and not holes and (found := SHORT_STAMP.search(text, start, end)):
        holes["at_local"] = Hole(*found.span(), "at_local", Kind.STAMP)
    return tuple(sorted(holes.values(), key=lambda hole: hole.start))


def _from_json(line: str, brace: int) -> list[Record] | None:
    """The record that JSON logging wrote; None where it is none."""
    try:
        entry = json.loads(line[brace:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    text = _first_text(entry, MESSAGE_KEYS)
    if text is None:
        return None
    text = text.rstrip("\r\n")
    when = _first_text(entry, TIME_KEYS)
    stamp = DATE_TIME.fullmatch(when) if when else None
    name, pid = entry.get("vllm_process_name") or entry.get("processName"), entry.get("process")
    process = f"{name} pid={pid}" if isinstance(name, str) and isinstance(pid, int) else None
    record = Record(text, 0, len(text), process, process_engine(process))
    return [_relocate(record, line, stamp, _stamps(line, 0, brace, takes_local=False))]


def _relocate(record: Record, line: str, stamp: re.Match[str] | None, before: tuple[Hole, ...]) -> Record:
    """A record of a JSON line with its positions in that line, where the text stands there unescaped; else with its own."""
    offset = line.find(record.text)
    column, kind = ("at_utc", Kind.INSTANT) if stamp and stamp["zone"] else ("at_local", Kind.DATE_TIME)
    taken = {hole.column for hole in before}
    if offset < 0:
        told = [(hole.column, hole.kind, line[hole.start : hole.end]) for hole in before]
        if stamp and column not in taken:
            told.append((column, kind, stamp[0]))
        fixed = {}
        for name, of_kind, text in told:
            with suppress(ValueError):  # a stamp that is no date
                fixed[name] = of_kind.value_of(text)
        return replace(record, fixed={**record.fixed, **fixed}, is_verbatim=False)
    holes = list(before)
    if stamp and column not in taken:
        at = line.find(stamp[0])
        holes.append(Hole(at, at + len(stamp[0]), column, kind))
    holes.sort(key=lambda hole: hole.start)
    return replace(record, text=line, start=record.start + offset, end=record.end + offset, holes=tuple(holes))


def _first_text(entry: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of the keys that holds a text."""
    return next((entry[key] for key in keys if isinstance(entry.get(key), str)), None)
