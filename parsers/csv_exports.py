"""Log lines that a log store exported as CSV: which of its columns is the line, which its time, which names the server.

    Date,Host,Service,Message                              Datadog
    "2026-07-01T12:00:00.123Z","node-3","vllm","(APIServer pid=1) INFO 07-01 …"
    _raw,_time,host,index,source,sourcetype                Splunk
    "(APIServer pid=1) INFO 07-01 …","2026-07-01T12:00:00.123+0000",node-3,main,stdout,vllm
    @timestamp,@message,@logStream                         CloudWatch Logs Insights
    2026-07-01 12:00:00.123,(APIServer pid=1) INFO 07-01 …,vllm-0

A record may go over several lines. They come newest first, as a rule; `parsers.bare_streams` puts them in order. The times of
CloudWatch name no zone and are UTC.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from parsers.source import InputError, Source

TEXT_COLUMNS = ("_raw", "@message", "message", "content", "line", "log", "msg", "body")
TIME_COLUMNS = ("_time", "@timestamp", "tsns", "timestamp", "date", "time", "ts")
SERVER_COLUMNS = ("pod_name", "kube_pod_name", "pod", "instance", "@logstream", "host", "hostname", "container_name", "container")
UTC_COLUMNS = frozenset({"@timestamp"})
LONGEST_FIELD = 16 * 1024 * 1024


class Record(NamedTuple):
    """One record: the line, its time as written, the server."""

    text: str
    time: str
    instance: str | None


@dataclass(frozen=True)
class Columns:
    """Where a record has what."""

    text: int
    time: int
    instance: int | None
    is_utc: bool

    def record(self, fields: list[str]) -> Record | None:
        """The record of a row; None for one that has too few fields."""
        if len(fields) <= max(self.text, self.time):
            return None
        time = fields[self.time].strip().removesuffix(" UTC")
        has_zone = not self.is_utc or time.endswith("Z")
        instance = fields[self.instance] if self.instance is not None and len(fields) > self.instance else None
        return Record(fields[self.text].rstrip("\r\n"), time if has_zone else f"{time}Z", instance or None)


def columns_of(head: str) -> Columns | None:
    """The columns of an export that begins so; None for any other text."""
    first = head.lstrip("\ufeff").split("\n", 1)[0]
    try:
        names = [name.strip().lower() for name in next(csv.reader([first]), [])]
    except csv.Error:
        return None
    text, time, instance = (_first(names, wanted) for wanted in (TEXT_COLUMNS, TIME_COLUMNS, SERVER_COLUMNS))
    if text is None or time is None:
        return None
    return Columns(text, time, instance, names[time] in UTC_COLUMNS)


def records_of(columns: Columns, lines: Iterable[str]) -> Iterator[Record | None]:
    """Each record behind the header, None for what is none. The header is the first None."""
    for number, fields in enumerate(csv.reader(lines)):
        yield columns.record(fields) if number else None


def records_in(source: Source, columns: Columns) -> Iterator[Record | None]:
    """The records of a file. InputError where it stops being CSV."""
    usual = csv.field_size_limit(LONGEST_FIELD)  # of the whole process
    with source.open() as stream, io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="") as text:
        try:
            yield from records_of(columns, text)
        except csv.Error as error:
            raise InputError(f"{source.name}: not CSV from some record on ({error}); export it again") from error
        finally:
            csv.field_size_limit(usual)


def _first(names: list[str], wanted: tuple[str, ...]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)
