r"""What a collector wrapped around each line of a text: peeled off, in any nesting, before any format is looked for.

    2026-07-01T12:00:00.123456789Z stdout P (APIServer pid=1) INFO 07-01 …          CRI; P is a part of a line, F its end
    {"log":"(APIServer pid=1) INFO 07-01 …\n","stream":"stdout","time":"2026-07-01T12:00:00.1Z"}     docker json-file
    2026-07-01T12:00:00.123Z (APIServer pid=1) INFO 07-01 …                         kubectl logs --timestamps, docker logs -t
    [pod/vllm-0/server] (APIServer pid=1) INFO 07-01 …                              kubectl logs --prefix
    vllm-1  | (APIServer pid=1) INFO 07-01 …                                        docker compose
    Jul 01 12:00:00 node-3 vllm[812]: (APIServer pid=1) INFO 07-01 …                journald short, syslog (RFC 3164)
    <134>1 2026-07-01T12:00:00.1Z node-3 vllm 812 - - (APIServer pid=1) INFO …      syslog (RFC 5424)
    2026-07-01T12:00:00Z {app="vllm", pod="vllm-0"} (APIServer pid=1) INFO …        logcli
    {"MESSAGE":"(APIServer pid=1) INFO …","__REALTIME_TIMESTAMP":"1782907200123456",…}         journald JSON
    {"message":"(APIServer pid=1) INFO …","timestamp":1782907200123,…}              CloudWatch, Vector, Fluent Bit, Grafana
    {"status":"success","data":{"resultType":"streams","result":[…]}}               Loki's API; also {"events":[…]}
    Date,Host,Service,Message                                                       CSV exports (parsers.csv_exports)

Which wrappers there are is told by the head: each that fits half of its lines is one link of the chain, and what lies below is
looked at again. What comes out are bare texts, one for each server where the wrappers name several, in the order of their times,
each line once however often it was replayed. Where the format below reads a log, each line is given the wrapper's time in front,
`2026-07-01T12:00:00.123456Z (APIServer …`, for it has a zone and a year, which the engine's own stamp lacks.

Nothing is peeled off a text that has no wrapper, and finding that out costs a look at its head.
"""

from __future__ import annotations

import io
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from parsers.columns import PLACEHOLDER_YEAR, schema
from parsers.csv_exports import Columns, columns_of, records_in, records_of
from parsers.json_text import BrokenJsonError, decode_line, documents, read_text
from parsers.source import HEAD_BYTES, Account, InputError, Sink, Source
from parsers.unix_time import in_utc

HEAD_LINES = 400
MOST_WRAPPERS = 6
DOCKER_SPLIT = range(16 * 1024, 16 * 1024 + 16)  # bytes of an entry without its newline that docker cut; a cut letter adds some

COLOUR_SIGNS = ("\x1b[", "#033[", "^[[")
COLOUR = re.compile(r"(?:\x1b|#033|\^\[)\[[0-9;]*m")
RFC3339 = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
OWN_STAMP = re.compile(r"\d\d-\d\d[T ]\d\d:\d\d:\d\d")


class Peeled(NamedTuple):
    """What is under one wrapper of one line, and what the wrapper says."""

    text: str
    at: datetime | None = None  # without a zone where the wrapper has none
    instance: str | None = None
    is_part: bool = False  # the rest of the line follows


Wrapper = Callable[[str], Peeled | None]


# Wrappers in front of a line ------------------------------------------------------------------------------------------------

CRI = re.compile(rf"(?P<time>{RFC3339}) std(?:out|err) (?P<tag>[PF])(?::\S*)? (?P<text>.*)", re.DOTALL)
LOGCLI = re.compile(rf"(?P<time>{RFC3339}) \{{(?P<labels>[^{{}}]*)\}}\s(?P<text>.*)", re.DOTALL)
AWS_TAIL = re.compile(rf"(?P<time>{RFC3339}) (?P<instance>[\w.-]+/[^\s|]*) (?P<text>.*)", re.DOTALL)
SYSLOG = re.compile(
    rf"<\d{{1,3}}>1 (?P<time>{RFC3339}|-) (?P<instance>\S+) \S+ \S+ \S+ (?:-|(?:\[[^\]]*\])+) ?(?:\ufeff)?(?P<text>.*)", re.DOTALL
)
JOURNAL = re.compile(
    rf"(?:<\d{{1,3}}>)?(?:(?P<time>{RFC3339})|(?P<short>[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?)) "
    r"(?P<instance>[\w.-]+) [\w./@-]+(?:\[\d+\])?: (?P<text>.*)",
    re.DOTALL,
)
KUBECTL_PREFIX = re.compile(r"\[pod/(?P<instance>[\w.-]+)/[\w.-]+\] (?P<text>.*)", re.DOTALL)
COMPOSE = re.compile(r"(?P<instance>[A-Za-z0-9][\w.-]*) +\| ?(?P<text>.*)", re.DOTALL)
TIMESTAMP = re.compile(rf"(?P<time>{RFC3339}) (?P<text>.*)", re.DOTALL)
LABEL = re.compile(r"(pod|instance|container|host|hostname)=\"([^\"]*)\"")


def _prefix(pattern: re.Pattern[str]) -> Wrapper:
    """The wrapper that a pattern describes, by the groups it has."""

    def peel(line: str) -> Peeled | None:
        found = pattern.match(line)
        if not found:
            return None
        groups = found.groupdict()
        when = _instant(groups.get("time")) or _short_date(groups.get("short"))
        instance = groups.get("instance")
        if labels := groups.get("labels"):
            instance = _first(dict(LABEL.findall(labels)))
        return Peeled(groups["text"], when, instance, groups.get("tag") == "P")

    return peel


def _instant(text: str | None) -> datetime | None:
    """An absolute time, in UTC."""
    with suppress(ValueError):
        return in_utc(datetime.fromisoformat(text.replace(",", "."))) if text else None
    return None


def _short_date(text: str | None) -> datetime | None:
    """`Jul  1 12:00:00`: no year, no zone."""
    with suppress(ValueError):
        pattern = "%Y %b %d %H:%M:%S.%f" if text and "." in text else "%Y %b %d %H:%M:%S"
        return datetime.strptime(f"{PLACEHOLDER_YEAR} {text}", pattern) if text else None  # noqa: DTZ007 - it has no zone
    return None


# Wrappers that are JSON -----------------------------------------------------------------------------------------------------

TEXT_KEYS = ("log", "MESSAGE", "line", "message", "textPayload")
TIME_KEYS = ("time", "timestamp", "@timestamp", "ts", "date", "_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP")
SERVER_KEYS = ("pod", "pod_name", "instance", "logStreamName", "container_name", "container", "_HOSTNAME", "host", "hostname")
NESTED_KEYS = ("kubernetes", "labels", "stream", "fields")
ENGINE_KEYS = {"asctime", "levelname", "processName", "vllm_process_name"}  # of JSON that the engine's own logging wrote
UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3), (1e8, 1.0))  # a number above the first counts so many to the second


def _json_line(line: str) -> Peeled | None:
    """A line that is a JSON object with the text and its time in it."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return _entry(entry) if isinstance(entry, dict) else None


def _entry(entry: dict[str, Any]) -> Peeled | None:
    """What a JSON object wraps; None where it is no wrapper."""
    if not ENGINE_KEYS.isdisjoint(entry):
        return None
    text = next((_text(entry[key]) for key in TEXT_KEYS if key in entry), None)
    when = next((time for key in TIME_KEYS if (time := _time(entry.get(key)))), None)
    if text is None or when is None:
        return None
    nested: dict[str, Any] = {}
    for key in NESTED_KEYS:
        if isinstance(entry.get(key), dict):
            nested |= entry[key]
    is_part = entry.get("logtag") == "P" or (
        "stream" in entry and "log" in entry and not text.endswith("\n") and len(text.encode("utf-8", "replace")) in DOCKER_SPLIT
    )
    return Peeled(text.rstrip("\r\n"), when, _first(nested) or _first(entry), is_part)


def _text(value: object) -> str | None:
    """A message: journald writes one that is not plain text as its bytes."""
    if isinstance(value, list) and all(isinstance(each, int) and 0 <= each < 256 for each in value):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _time(value: object) -> datetime | None:
    """A time in any of the ways collectors write it."""
    if isinstance(value, str) and not value.isdigit():
        with suppress(ValueError):
            time = datetime.fromisoformat(value.replace(",", "."))
            return in_utc(time) if time.tzinfo else time
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    with suppress(ValueError, OverflowError, OSError):  # beyond any float, or any year
        number = float(value)
        for least, per_second in UNITS:
            if number >= least:
                return datetime.fromtimestamp(round(number / per_second, 6), UTC)
    return None


def _first(labels: dict[str, Any]) -> str | None:
    """The label that names the server best."""
    return next((labels[key] for key in SERVER_KEYS if isinstance(labels.get(key), str)), None)


WRAPPERS: tuple[Wrapper, ...] = (
    *(_prefix(pattern) for pattern in (CRI, LOGCLI, SYSLOG, JOURNAL, AWS_TAIL, KUBECTL_PREFIX, COMPOSE, TIMESTAMP)),
    _json_line,
)


# Whole documents ------------------------------------------------------------------------------------------------------------

STREAMS = re.compile(r'\s*\{\s*"status"\s*:\s*"success"\s*,\s*"data"\s*:\s*\{\s*"resultType"\s*:\s*"streams"')
EVENTS = re.compile(r'\s*\{\s*"events"\s*:\s*\[\s*(?=\{)')
LIST = re.compile(r"\s*\[\s*(?=\{)")
_DECODER = json.JSONDecoder()


def _is_document(head: str) -> bool:
    """Whether the text is one JSON document that holds all lines."""
    if STREAMS.match(head):
        return True
    begins = EVENTS.match(head) or LIST.match(head)
    if not begins:
        return False
    with suppress(ValueError, RecursionError):
        first, _ = _DECODER.raw_decode(head, begins.end())
        return isinstance(first, dict) and _entry(first) is not None
    return False


def _entries_of(document: object) -> Iterator[Peeled | None]:
    """Each line of a document, None for what is none."""
    if isinstance(document, dict) and isinstance(document.get("data"), dict):
        for stream in _dicts(document["data"].get("result")):
            values, labels = stream.get("values"), stream.get("stream")
            for value in values if isinstance(values, list) else ():
                if isinstance(value, list) and len(value) >= 2 and isinstance(value[1], str):
                    yield Peeled(value[1].rstrip("\r\n"), _time(value[0]), _first(labels if isinstance(labels, dict) else {}))
                else:
                    yield None
        return
    entries = document.get("events") if isinstance(document, dict) else document
    for entry in entries if isinstance(entries, list) else ():
        yield _entry(entry) if isinstance(entry, dict) else None


def _dicts(values: object) -> Iterator[dict[str, Any]]:
    return (each for each in (values if isinstance(values, list) else ()) if isinstance(each, dict))


# Finding them, and peeling them off -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """The wrappers of a text, outermost first."""

    wrappers: tuple[Wrapper, ...]
    is_document: bool = False
    columns: Columns | None = None  # of a CSV export

    def __bool__(self) -> bool:
        return self.is_document or self.columns is not None or bool(self.wrappers)


@dataclass
class Peeler:
    """Peels the lines of one file, one after the other; it holds the parts of lines whose end has not come."""

    chain: Chain
    parts: dict[tuple[int, str | None], list[str]] = field(default_factory=dict)  # by the link that split them, and the server

    def peel(self, outer: Peeled) -> Peeled | None:
        """What lies under all wrappers; None for a part. The innermost time counts: it is nearest to the engine."""
        text, at, instance, _ = outer
        for link, wrapper in enumerate(self.chain.wrappers):
            found = wrapper(_without_colour(text))
            if not found:
                continue
            text, at, instance = found.text, _better(found.at, at), found.instance or instance
            if found.is_part or (link, instance) in self.parts:
                parts = self.parts.setdefault((link, instance), [])
                parts.append(text)
                if found.is_part:
                    return None
                text = "".join(self.parts.pop((link, instance)))
        return Peeled(_without_colour(text), at, instance)


def _better(inner: datetime | None, outer: datetime | None) -> datetime | None:
    """The innermost time, unless it lacks the zone that the other has."""
    if inner is None or (inner.tzinfo is None and outer is not None and outer.tzinfo is not None):
        return outer
    return inner


def _without_colour(text: str) -> str:
    return COLOUR.sub("", text) if any(sign in text for sign in COLOUR_SIGNS) else text


def chain_of(head: bytes) -> Chain:
    """The wrappers around the lines of a file that begins so."""
    text = head.decode("utf-8-sig", "replace")
    is_document, columns = _is_document(text), columns_of(text)
    if columns:
        lines = [record.text for record in islice(records_of(columns, io.StringIO(text, newline="")), HEAD_LINES) if record]
    elif is_document:
        document = _whole_part(text)
        lines = [entry.text for entry in document][:HEAD_LINES]
    else:
        lines = text.split("\n")
        lines = (lines[:-1] if len(head) >= HEAD_BYTES else lines)[:HEAD_LINES]
    lines = [line.rstrip("\r") for line in lines if line.strip()]
    found: list[Wrapper] = []
    while lines and len(found) < MOST_WRAPPERS:
        lines = [_without_colour(line) for line in lines]
        under = [([peeled for line in lines if (peeled := wrapper(line))], wrapper) for wrapper in WRAPPERS]
        peeled, wrapper = max(under, key=lambda each: len(each[0]))
        if 2 * len(peeled) < len(lines):
            break
        found.append(wrapper)
        lines = [text for text in _joined(peeled) if text.strip()]
    return Chain(tuple(found), is_document, columns)


def _joined(peeled: Iterable[Peeled]) -> Iterator[str]:
    """The texts, those that were split put together."""
    parts = []
    for each in peeled:
        parts.append(each.text)
        if not each.is_part:
            yield "".join(parts)
            parts = []


def _whole_part(text: str) -> list[Peeled]:
    """The lines of a document that are whole within its head."""
    begins = EVENTS.match(text) or LIST.match(text)
    if begins:
        objects, at = [], begins.end()
        with suppress(ValueError, RecursionError):
            while at < len(text) and text[at] == "{":
                value, at = _DECODER.raw_decode(text, at)
                objects.append(value)
                at = re.compile(r"[\s,]*").match(text, at).end()  # type: ignore[union-attr]  # matches anywhere
        return [entry for entry in _entries_of(objects) if entry]
    values = re.finditer(r'\[\s*"\d+"\s*,\s*("(?:[^"\\]|\\.)*")', text)
    texts = (decode_line(value[1].encode("utf-8", "replace")) for value in values)
    return [Peeled(text) for text in texts if isinstance(text, str)]


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


NO_TIME = -(2**62)
EPOCH, LOCAL_EPOCH = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1)  # noqa: DTZ001 - of times without a zone


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


def unwrap(source: Source, chain: Chain, folder: Path) -> tuple[list[Stream], int, str | None]:
    """The bare streams of a wrapped file, how many lines (or entries) it has, and why it ends early where it does."""
    streams: dict[str | None, Stream] = {}
    peeler = Peeler(chain)
    lines, error, instance = 0, None, None
    try:
        for entry in _entries(source, chain):
            lines += 1
            peeled = peeler.peel(entry) if entry else None
            if not peeled:
                continue
            instance = peeled.instance or instance  # a line that no wrapper names continues the one before it
            if instance not in streams:
                streams[instance] = Stream(instance, (folder / f"{len(streams)}.spool").open("w+b"))
            streams[instance].add(lines, peeled)
    except InputError as fault:
        error = str(fault)
    except BrokenJsonError as broken:
        error = f"{source.name}: {broken}"
    if error and not lines:
        raise InputError(error)
    for stream in streams.values():
        stream.settle()  # a line whose end never came is lost with it
    return list(streams.values()), lines, error


def _entries(source: Source, chain: Chain) -> Iterator[Peeled | None]:
    """Each line of a file as it stands there, or each entry of a document, or each record of an export."""
    if chain.columns:
        for record in records_in(source, chain.columns):
            yield Peeled(record.text, _time(record.time), record.instance) if record else None
        return
    if chain.is_document:
        text, fault = read_text(source)
        for document in documents(text):
            yield from _entries_of(document)
        if fault:
            raise InputError(fault)
        return
    with source.open() as stream:
        for raw in stream:
            yield Peeled(raw.decode("utf-8", "replace").rstrip("\r\n"))


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
