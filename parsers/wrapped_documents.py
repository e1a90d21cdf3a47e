"""Documents that hold all lines of a log: what log stores answer with, and what their consoles save.

    {"status":"success","data":{"resultType":"streams","result":[{"stream":{…},"values":[["1782907200123000000","…"],…]}]}}   Loki
    {"events":[{"timestamp":1782907200123,"message":"…","logStreamName":"…"},…]}                     aws logs get-log-events
    [{"textPayload":"…","timestamp":"2026-07-01T12:00:00.1Z"},…]                                     any list of such entries

An entry is wrapped as a line of JSON is (`parsers.wrapper_kinds`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from parsers.json_text import decode_line
from parsers.wrapper_kinds import Peeled, entry_of, server_of, time_of

STREAMS = re.compile(r'\s*\{\s*"status"\s*:\s*"success"\s*,\s*"data"\s*:\s*\{\s*"resultType"\s*:\s*"streams"')
EVENTS = re.compile(r'\s*\{\s*"events"\s*:\s*\[\s*(?=\{)')
LIST = re.compile(r"\s*\[\s*(?=\{)")
_DECODER = json.JSONDecoder()


def is_document(head: str) -> bool:
    """Whether the text is one JSON document that holds all lines."""
    if STREAMS.match(head):
        return True
    begins = EVENTS.match(head) or LIST.match(head)
    if not begins:
        return False
    with suppress(ValueError, RecursionError):
        first, _ = _DECODER.raw_decode(head, begins.end())
        return isinstance(first, dict) and entry_of(first) is not None
    return False


def entries_of(document: object) -> Iterator[Peeled | None]:
    """Each line of a document, None for what is none."""
    if isinstance(document, dict) and isinstance(document.get("data"), dict):
        for stream in _dicts(document["data"].get("result")):
            values, labels = stream.get("values"), stream.get("stream")
            for value in values if isinstance(values, list) else ():
                if isinstance(value, list) and len(value) >= 2 and isinstance(value[1], str):
                    yield Peeled(
                        value[1].rstrip("\r\n"), time_of(value[0]), server_of(labels if isinstance(labels, dict) else {})
                    )
                else:
                    yield None
        return
    entries = document.get("events") if isinstance(document, dict) else document
    for entry in entries if isinstance(entries, list) else ():
        yield entry_of(entry) if isinstance(entry, dict) else None


def whole_part(text: str) -> list[Peeled]:
    """The lines of a document that are whole within its head."""
    begins = EVENTS.match(text) or LIST.match(text)
    if begins:
        objects, at = [], begins.end()
        with suppress(ValueError, RecursionError):
            while at < len(text) and text[at] == "{":
                value, at = _DECODER.raw_decode(text, at)
                objects.append(value)
                at = re.compile(r"[\s,]*").match(text, at).end()  # type: ignore[union-attr]  # matches anywhere
        return [entry for entry in entries_of(objects) if entry]
    values = re.finditer(r'\[\s*"\d+"\s*,\s*("(?:[^"\\]|\\.)*")', text)
    texts = (decode_line(value[1].encode("utf-8", "replace")) for value in values)
    return [Peeled(text) for text in texts if isinstance(text, str)]


def _dicts(values: object) -> Iterator[dict[str, Any]]:
    return (each for each in (values if isinstance(values, list) else ()) if isinstance(each, dict))
