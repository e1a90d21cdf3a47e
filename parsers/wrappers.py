"""What collectors wrapped around each line of a text: peeled off, in any nesting, before any format is looked for.

    2026-07-01T12:00:00.123456789Z stdout F (APIServer pid=1) INFO 07-01 …     a line in a wrapper (parsers.wrapper_kinds)
    {"status":"success","data":{"resultType":"streams","result":[…]}}          a document of lines (parsers.wrapped_documents)
    Date,Host,Service,Message                                                  a CSV export of lines (parsers.csv_exports)

Which wrappers there are is told by the head: each that fits half of its lines is one link of the chain, and what lies below is
looked at again. What comes out are bare texts (`parsers.bare_streams`), one for each server where the wrappers name several.

Nothing is peeled off a text that has no wrapper, and finding that out costs a look at its head.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path

from parsers.bare_streams import Stream
from parsers.csv_exports import Columns, columns_of, records_in, records_of
from parsers.json_text import BrokenJsonError, documents, read_text
from parsers.source import HEAD_BYTES, InputError, Source
from parsers.wrapped_documents import entries_of, is_document, whole_part
from parsers.wrapper_kinds import WRAPPERS, Peeled, Wrapper, time_of

HEAD_LINES = 400
MOST_WRAPPERS = 6
COLOUR_SIGNS = ("\x1b[", "#033[", "^[[")
COLOUR = re.compile(r"(?:\x1b|#033|\^\[)\[[0-9;]*m")


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
    holds_all, columns = is_document(text), columns_of(text)
    if columns:
        lines = [record.text for record in islice(records_of(columns, io.StringIO(text, newline="")), HEAD_LINES) if record]
    elif holds_all:
        lines = [entry.text for entry in whole_part(text)][:HEAD_LINES]
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
    return Chain(tuple(found), holds_all, columns)


def _joined(peeled: Iterable[Peeled]) -> Iterator[str]:
    """The texts, those that were split put together."""
    parts = []
    for each in peeled:
        parts.append(each.text)
        if not each.is_part:
            yield "".join(parts)
            parts = []


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
            yield Peeled(record.text, time_of(record.time), record.instance) if record else None
        return
    if chain.is_document:
        text, fault = read_text(source)
        for document in documents(text):
            yield from entries_of(document)
        if fault:
            raise InputError(fault)
        return
    with source.open() as stream:
        for raw in stream:
            yield Peeled(raw.decode("utf-8", "replace").rstrip("\r\n"))
