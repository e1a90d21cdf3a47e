"""Contents: what one file said, read once and known by the hash of what is in it, whatever it is called.

    <lake>/raw/<hash>/<raw table>.parquet      its rows
    <lake>/raw/<hash>/content.json             what it is and which times it covers, written last
    <lake>/_state/engine=<engine>.json         which hash a path had when it was last looked at; may be thrown away

A file that is renamed, compressed, copied or comes a second time is the content it was: nothing is read again, nothing changes.
One that has grown knows which contents it begins with. Nothing here decides what belongs to a day.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

from parsers import InputError, Source
from parsers.columns import LOGGED_SINCE, PLACEHOLDER_YEAR, schema
from parsers.rotated import base_of
from pipelines import intake
from pipelines.patterns import Found
from pipelines.storage import Store

Tell = Callable[[str], object]
LOCAL_REACH = timedelta(hours=14)  # how far from UTC a clock of no known zone may be
_TIMES = ("at_utc", "start_at", "end_at", "at_local", "date_local")


@dataclass(frozen=True)
class Content:
    """What is known of one content. Times are ISO 8601; `first_local` and `last_local` are of clocks that name no zone."""

    digest: str
    name: str  # under which it was first met, without what compression and rotation add
    bytes: int
    lines: int
    format: str | None
    error: str | None
    first_utc: str | None
    last_utc: str | None
    first_local: str | None
    last_local: str | None
    rows: Mapping[str, int]
    extends: tuple[str, ...] = ()
    parsers: str = ""

    @property
    def is_timed(self) -> bool:
        """Whether anything in it says when."""
        return self.first_utc is not None or self.first_local is not None

    @property
    def is_log(self) -> bool:
        """Whether it is of a log, whose parts, once rotated, are one text."""
        return "log" in (self.format or "")

    def covers(self, since: datetime, until: datetime, zone: str | None) -> bool:
        """Whether some of its times lie in the window."""
        return any(first < until and last >= since for first, last in self.spans(since, zone))

    def ends_before(self, moment: datetime, zone: str | None) -> bool:
        """Whether everything in it was before."""
        return self.is_timed and all(last < moment for _, last in self.spans(moment, zone))

    def spans(self, near: datetime, zone: str | None) -> list[tuple[datetime, datetime]]:
        """First and last of its absolute stamps and of its local ones; a year that is missing is the one nearest to `near`."""
        spans = []
        if self.first_utc and self.last_utc:
            spans.append((_moment(self.first_utc), _moment(self.last_utc)))
        if self.first_local and self.last_local:
            first, last = (_placed(text, near, zone) for text in (self.first_local, self.last_local))
            slack = timedelta() if zone else LOCAL_REACH
            spans.append((min(first, last) - slack, last + slack))
        return spans


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _placed(text: str, near: datetime, zone: str | None) -> datetime:
    local = datetime.fromisoformat(text)
    place = ZoneInfo(zone or "UTC")
    if local.year >= PLACEHOLDER_YEAR + 10:
        return local.replace(tzinfo=place).astimezone(UTC)
    candidates = []
    for year in (near.year - 1, near.year, near.year + 1):
        try:
            candidates.append(local.replace(year=year, tzinfo=place).astimezone(UTC))
        except ValueError:  # 29 February
            continue
    return min(candidates, key=lambda each: abs(each - near), default=near)


class Contents:
    """The contents of one engine's files, learned as they are asked for."""

    def __init__(self, lake: Store, engine: str, tell: Tell = lambda _: None) -> None:
        self._lake, self._tell = lake, tell
        self._state_name = f"_state/engine={quote(engine, safe='')}.json"
        state = json.loads(lake.read(self._state_name) or b"{}")
        self._seen: dict[str, list[str]] = state.get("seen", {})  # path -> its mark, its hash
        self._lengths: dict[str, int] = state.get("lengths", {})  # hash -> bytes
        self._before = json.dumps([self._seen, self._lengths], sort_keys=True)
        self._extends: dict[str, tuple[str, ...]] = {}  # of what was hashed just now
        self._unopened: dict[str, str] = {}  # path -> why; tried anew each time: rights change nothing that marks a file
        self._known: dict[str, Content] = {}

    def learn(self, found: Iterable[Found]) -> dict[str, Content]:
        """The contents of these files by the hash, each once; what is new is read."""
        by_digest: dict[str, list[Found]] = {}
        for each in found:
            if digest := self._digest(each):
                by_digest.setdefault(digest, []).append(each)
        return {digest: self._content(digest, same) for digest, same in sorted(by_digest.items())}

    def digest_of(self, found: Found) -> str | None:
        """The hash a file had when it was learned; None where it could not be opened."""
        return None if found.uri in self._unopened else self._seen.get(found.uri, ("", None))[1]

    def fault(self, found: Found) -> str | None:
        """Why nothing of a file that was learned could be read; None where something could."""
        digest = self.digest_of(found)
        content = self.kept(digest) if digest else None
        return self._unopened.get(found.uri) or (content.error if content and not content.is_timed else None)

    def kept(self, digest: str) -> Content | None:
        """A content whose rows are kept, whether its file is still there or not."""
        if digest not in self._known:
            told = self._lake.read(f"raw/{digest}/content.json")
            if told is None:
                return None
            self._known[digest] = _content(json.loads(told))
        return self._known[digest]

    def table(self, content: Content, table: str) -> str:
        """Name of a raw table's file in the lake."""
        return f"raw/{content.digest}/{table}.parquet"

    def save(self) -> None:
        """Keep what was seen, for the next time to be quick."""
        if json.dumps([self._seen, self._lengths], sort_keys=True) != self._before:
            state = {"seen": self._seen, "lengths": self._lengths}
            self._lake.put_bytes(self._state_name, json.dumps(state, indent=1, sort_keys=True).encode())

    def _digest(self, found: Found) -> str | None:
        mark = found.store.stat(found.name)
        if mark is None:  # gone since it was listed
            return None
        seen = self._seen.get(found.uri)
        if seen and seen[0] == mark and seen[1]:
            return seen[1]
        try:
            with found.store.fetched(found.name) as path:
                digest, size, extends = _hashed(Source(path, found.name), self._lengths)
        except (InputError, OSError) as error:
            self._tell(str(error))
            self._unopened[found.uri] = " ".join(str(error).split())
            return None
        self._seen[found.uri], self._lengths[digest] = [mark, digest], size
        self._extends[digest] = extends
        return digest

    def _content(self, digest: str, same: list[Found]) -> Content:
        known = self.kept(digest)
        if known and known.parsers == parsers_version():
            return known
        first = min(same, key=lambda each: (each.store.modified_at(each.name), each.uri))
        extends = self._extends.get(digest, known.extends if known else ())
        name = known.name if known else bare_name(Path(first.name).name)
        self._tell(f"reading {first.uri}")
        with first.store.fetched(first.name) as path, self._lake.workplace() as folder:
            content = replace(_parsed(Source(path, name), folder), digest=digest, bytes=self._lengths[digest], extends=extends)
            _write_sources(folder / "sources.parquet", content)
            for table in sorted(content.rows):
                self._lake.put(self.table(content, table), (folder / f"{table}.parquet").replace)
            self._lake.put_bytes(f"raw/{digest}/content.json", json.dumps(asdict(content), indent=1).encode())
        self._known[digest] = content
        return content


def bare_name(name: str) -> str:
    """A file's name without its compression and without what rotation added."""
    for suffix in intake.COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return base_of(name) or name


@cache
def parsers_version() -> str:
    """A hash of the parsers' source: contents read by another are read again."""
    return source_hash(["parsers"])


def source_hash(names: Iterable[str]) -> str:
    """A hash of the source of packages (every file in them that is not compiled) and modules."""
    digest = hashlib.blake2b(digest_size=8)
    for name in names:
        origin = Path(str(getattr(find_spec(name), "origin", "")))
        root = origin.parent
        in_it = [each for each in root.rglob("*") if each.is_file()] if origin.stem == "__init__" else [origin]
        for path in sorted(each for each in in_it if "__pycache__" not in each.parts):
            digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _content(told: dict[str, Any]) -> Content:
    told["extends"] = tuple(told["extends"])
    return Content(**told)


def _hashed(source: Source, lengths: Mapping[str, int]) -> tuple[str, int, tuple[str, ...]]:
    """Hash and size of the decompressed content, and which of the known contents it begins with.

    A file that is cut is what can be read of it, so that the whole one, copied again, begins with it and takes its place.
    """
    digest, size, extends = hashlib.blake2b(digest_size=16), 0, []
    marks = sorted({(length, known) for known, length in lengths.items() if length})
    for chunk in _chunks(source):
        view = memoryview(chunk)
        while marks and marks[0][0] <= size + len(view):
            length, known = marks.pop(0)
            digest.update(view[: length - size])
            view, size = view[length - size :], length
            if digest.hexdigest() == known:
                extends.append(known)
        digest.update(view)
        size += len(view)
    whole = digest.hexdigest()
    return whole, size, tuple(each for each in extends if each != whole)


def _chunks(source: Source) -> Iterator[bytes]:
    """The content in pieces; of a damaged file what can be read, and the fault where that is nothing."""
    is_empty = True
    with source.open() as stream:
        try:
            while chunk := stream.read1(1 << 20):
                yield chunk
                is_empty = False
        except InputError as error:
            if is_empty:
                yield str(error).encode()


def _parsed(source: Source, folder: Path) -> Content:
    """Read one file into the folder; its hash and size are not known here."""
    read = intake.read_sources([source], folder)
    [outcome] = read.outcomes
    first_utc, last_utc, first_local, last_local = _times(folder, read.rows)
    return Content(
        digest="",
        name=source.name,
        bytes=0,
        lines=outcome.account.lines,
        format=outcome.format.name if outcome.format else None,
        error=outcome.error,
        first_utc=first_utc,
        last_utc=last_utc,
        first_local=first_local,
        last_local=last_local,
        rows=dict(sorted(read.rows.items())),
        parsers=parsers_version(),
    )


def _write_sources(path: Path, content: Content) -> None:
    """Let the row of the file say nothing of where it lay and how it was packed: that is not of its content."""
    [row] = pq.read_table(path).to_pylist()
    pq.write_table(pa.Table.from_pylist([row | {"path": content.name, "bytes": content.bytes}], schema=schema("sources")), path)


def _times(folder: Path, rows: Mapping[str, int]) -> tuple[str | None, str | None, str | None, str | None]:
    """First and last absolute and local time of the tables in a folder, from their files' statistics."""
    utc: list[datetime] = []
    local: list[datetime] = []
    for table in rows:
        metadata = pq.read_metadata(folder / f"{table}.parquet")
        for group in range(metadata.num_row_groups):
            for index in range(metadata.num_columns):
                column = metadata.row_group(group).column(index)
                told = column.statistics
                if column.path_in_schema in _TIMES and told is not None and told.has_min_max:
                    ends = (told.min, told.max)
                    if not column.path_in_schema.endswith("_local"):
                        utc.extend(ends)
                    elif told.min.year >= LOGGED_SINCE:  # a clock that counts from a start says nothing of the day
                        local.extend(ends)
        if table == "bench_runs":  # its date is that of its end
            ran = pq.read_table(folder / f"{table}.parquet", columns=["date_local", "duration_s"]).to_pylist()
            local += [each["date_local"] - timedelta(seconds=each["duration_s"] or 0) for each in ran if each["date_local"]]
    edges = [str(edge(times)) if times else None for times in (utc, local) for edge in (min, max)]
    return edges[0], edges[1], edges[2], edges[3]
