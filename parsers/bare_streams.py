"""Bare lines, once their wrappers are off: in the order of their times, each once, and each with its place in the file given.

A log may be saved newest first, out of order, or in parts that were replayed. What is parsed is the lines of one server in order,
each once however often it was replayed. Where the format below reads a log, each line is given the wrapper's time in front,
`2026-07-01T12:00:00.123456Z (APIServer …`, for it has a zone and a year, which the engine's own stamp lacks. What is parsed of a
bare line is put back to the line of the file that it came from.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby, pairwise
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from parsers.columns import schema
from parsers.source import HEAD_BYTES, Account, Sink
from parsers.wrapper_kinds import Peeled

OWN_STAMP = re.compile(r"\d\d-\d\d[T ]\d\d:\d\d:\d\d")
NO_TIME = -(2**62)
EPOCH, LOCAL_EPOCH = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1)  # noqa: DTZ001 - of times without a zone


@dataclass
class Stream:
    """The bare lines of one server, spooled to a file, with the time and the place of each."""

    instance: str | None
    spool: BinaryIO
    times: array[int] = field(default_factory=lambda: array("q"))  # microseconds; NO_TIME where there is none
    lines: array[int] = field(default_factory=lambda: array("q"))  # in the file given, from 1
    offsets: array[int] = field(default_factory=lambda: array("q", [0]))
    has_zone: bytearray = field(default_factory=bytearray)
    _order: list[int] | None = None  # positions of the lines kept, where that is not all of them as they came

    def add(self, line: int, peeled: Peeled) -> None:
        """Keep a line; an entry of several lines is several."""
        for each in peeled.text.split("\n"):
            self.has_zone.append(peeled.at is None or peeled.at.tzinfo is not None)
            self.times.append(_microseconds(peeled.at) if peeled.at else NO_TIME)
            self.lines.append(line)
            self.spool.write(each.encode("utf-8", "replace") + b"\n")
            self.offsets.append(self.spool.tell())

    def settle(self) -> None:
        """Bring the lines into the order of their times, and keep one of each that was replayed."""
        if not all(self.has_zone):  # without a year, January lies before December
            return
        times = _filled(self.times)
        falls = sum(later < earlier for earlier, later in pairwise(times))
        repeats = sum(later == earlier for earlier, later in pairwise(times))
        if not falls and not repeats:
            return
        order: Sequence[int] = range(len(times))
        if 2 * falls > len(times) - repeats:  # log stores answer with the newest first
            order = range(len(times) - 1, -1, -1)
        order = sorted(order, key=times.__getitem__)
        self._order = [index for _, group in groupby(order, times.__getitem__) for index in self._once(list(group))]

    def _once(self, group: list[int]) -> list[int]:
        """Of lines with one time, each text once. Where the time is of whole seconds that takes a whole second seen again."""
        time = self.times[group[0]]
        if len(group) == 1 or time == NO_TIME or len(group) == len(self.lines):
            return group
        first: dict[bytes, list[int]] = {}
        for index in group:
            first.setdefault(self.text(index), []).append(index)
        is_replay = time % 1_000_000 or len({len(same) for same in first.values()}) == 1
        return [same[0] for same in first.values()] if is_replay else group

    def text(self, index: int) -> bytes:
        """The line spooled at a position."""
        self.spool.seek(self.offsets[index])
        return self.spool.read(self.offsets[index + 1] - self.offsets[index])

    def positions(self) -> Iterable[int]:
        """Where the stream's lines were spooled, in their order."""
        return self._order if self._order is not None else range(len(self.lines))

    def stamp(self, index: int, text: bytes) -> bytes:
        """The time to put before a line, if any: one without a zone only where the line has no stamp of its own."""
        time = self.times[index]
        if time == NO_TIME or (not self.has_zone[index] and OWN_STAMP.search(text[:200].decode("utf-8", "replace"))):
            return b""
        stamp = datetime.fromtimestamp(time // 1_000_000, UTC).replace(tzinfo=None).isoformat()
        zone = "Z" if self.has_zone[index] else ""
        return f"{stamp}.{time % 1_000_000:06}{zone} ".encode()

    def bare(self, *, is_stamped: bool) -> Iterator[bytes]:
        """The lines, each with its wrapper's time in front where asked for."""
        self.spool.flush()
        in_order = self._order is None
        if in_order:
            self.spool.seek(0)
        for index in self.positions():
            text = self.spool.readline() if in_order else self.text(index)
            if is_stamped and (stamp := self.stamp(index, text)):
                text = stamp + text.replace(b"\r", b"\r" + stamp)  # what follows a carriage return is a record of its own
            yield text

    def head(self, *, is_stamped: bool) -> bytes:
        """What a detector may look at."""
        head = bytearray()
        for text in self.bare(is_stamped=is_stamped):
            head += text
            if len(head) >= HEAD_BYTES:
                break
        return bytes(head[:HEAD_BYTES])

    def origins(self) -> array[int]:
        """For each line of the stream, its line in the file given."""
        return array("q", (self.lines[index] for index in self.positions()))


def _microseconds(time: datetime) -> int:
    since = time - (EPOCH if time.tzinfo else LOCAL_EPOCH)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _filled(times: array[int]) -> array[int]:
    """The times, with that of the line before where there is none."""
    filled, before = array("q"), NO_TIME
    for time in times:
        before = before if time == NO_TIME else time
        filled.append(before)
    return filled


def take_in(whole: Account, part: Account, origins: Sequence[int]) -> None:
    """Add the account of a bare text, whose n-th line is line `origins[n - 1]` of the file given, to that of the file."""
    whole.lines, whole.used = whole.lines + part.lines, whole.used + part.used
    whole.ignored, whole.not_understood = whole.ignored + part.ignored, whole.not_understood + part.not_understood
    whole.error = whole.error or part.error
    if part.first_not_understood:
        first = origins[part.first_not_understood - 1]
        whole.first_not_understood = min(first, whole.first_not_understood or first)


class PlacedSink(Sink):
    """Passes rows on with the line of the file given instead of that of the bare text, and with the server the wrapper named."""

    def __init__(self, inner: Sink, origins: array[int], instance: str | None) -> None:
        super().__init__(inner.folder)
        self._inner, self._instance = inner, instance
        self._origins = pa.Array.from_buffers(pa.int64(), len(origins), [None, pa.py_buffer(origins)])

    def write(self, table: str, batch: pa.RecordBatch | pa.Table) -> None:
        """As `Sink.write`."""
        rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        if "line" in rows.schema.names and rows.num_rows:
            at = rows.schema.get_field_index("line")
            places = pa.chunked_array([pa.array([line - 1 for line in rows.column(at).to_pylist()], pa.int64())])
            rows = rows.set_column(at, "line", pc.take(self._origins, places))
        if self._instance and "instance" in schema(table).names:
            at = rows.schema.get_field_index("instance")
            if at < 0:
                rows = rows.append_column("instance", pa.repeat(self._instance, rows.num_rows))
            else:
                rows = rows.set_column(at, "instance", pc.fill_null(rows.column(at).cast(pa.string()), self._instance))
        self._inner.write(table, rows)
