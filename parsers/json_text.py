"""JSON as tools leave it in files: one document or several, on one line each or spread over many, whole or cut.

Shared by the readers of JSON formats. It knows no format; it finds where values begin and end and says how a text is broken.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator

from parsers.source import LARGEST_DOCUMENT, Account, InputError, Source

LARGEST = 2**53  # of a number; beyond it a double is not exact
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[\s,\x1e]*")  # between documents: white space, the commas of a list cut open, RFC 7464 record separators
_LONGEST_LITERAL = len("-Infinity")
# Half of a surrogate pair, which JSON can escape and no table can hold.
_HALF_PAIR = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


class BrokenJsonError(Exception):
    """A text that stops being JSON. `is_cut` where it would have been, had it not ended."""

    def __init__(self, text: str, at: int, *, is_cut: bool) -> None:
        byte = len(text[:at].encode("utf-8", "replace"))
        super().__init__(f"JSON ends in the middle (byte {byte}); fetch it again" if is_cut else f"not JSON at byte {byte}")
        self.is_cut = is_cut


def read_text(source: Source) -> tuple[str, str | None]:
    """The whole content, and why it ends early where its compressed stream is cut. InputError where it is beyond measure."""
    with source.open(has_lines=False) as stream:
        content, fault = _read_whole(stream, source.name)
    return decoded(content), fault


def read_rest(first: bytes, stream: io.BufferedReader, name: str) -> tuple[str, str | None]:
    """As `read_text`, for a stream of which the first bytes have been read."""
    content, fault = _read_whole(stream, name)
    return decoded(first + content), fault


def _read_whole(stream: io.BufferedReader, name: str) -> tuple[bytes, str | None]:
    parts, size = list[bytes](), 0
    try:
        while part := stream.read1(1 << 20):
            parts.append(part)
            size += len(part)
            if size > LARGEST_DOCUMENT:
                break
    except InputError as fault:
        return b"".join(parts), str(fault)
    if size > LARGEST_DOCUMENT:
        raise InputError(
            f"{name}: over {LARGEST_DOCUMENT >> 20} MiB in one JSON or YAML document, which is read as a whole; "
            "record shorter runs, or without the details of single requests"
        )
    return b"".join(parts), None


def value_at(text: str, position: int) -> tuple[object, int]:
    """The JSON value that begins at a position, and where it ends. BrokenJsonError where there is none."""
    try:
        return _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        end = len(text.rstrip())
        is_cut = error.msg.startswith("Unterminated string") or end - error.pos < _LONGEST_LITERAL
        raise BrokenJsonError(text, end if is_cut else error.pos, is_cut=is_cut) from None
    except (RecursionError, ValueError):  # nested or a number longer than Python takes: no tool writes such a thing
        raise BrokenJsonError(text, position, is_cut=False) from None


def skip_blank(text: str, position: int) -> int:
    """Where the next value would begin."""
    return _BLANK.match(text, position).end()  # type: ignore[union-attr]  # matches anywhere


def documents(text: str) -> Iterator[object]:
    """Each value of a text that holds one after the other. BrokenJsonError after the last whole one where more is there."""
    position = skip_blank(text, 0)
    while position < len(text):
        value, position = value_at(text, position)
        yield value
        position = skip_blank(text, position)


def values_in(source: Source, account: Account) -> Iterator[object]:
    """Each value of a file; what it ends on before its end is the account's error."""
    text, account.error = read_text(source)
    try:
        yield from documents(text)
    except BrokenJsonError as broken:
        account.error = account.error or f"{source.name}: {broken}"


def elements_in(source: Source, account: Account) -> Iterator[object]:
    """The same, with the elements of a list one by one."""
    for value in values_in(source, account):
        yield from value if isinstance(value, list) else [value]


def number(value: object) -> float | None:
    """A number; None for anything else, and for what no engine measures."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST else None


def count(*values: object) -> int | None:
    """The first that is a whole number, and not beyond what any engine counts."""
    return next((value for value in values if type(value) is int and abs(value) < LARGEST), None)


def decode_line(line: bytes) -> object:
    """One line's value; None where it is not JSON (or is `null`, which carries as little)."""
    try:
        return json.loads(decoded(line))
    except (ValueError, RecursionError):
        return None


def decoded(content: bytes) -> str:
    """Text without a byte order mark, and without what is no character."""
    text = content.decode("utf-8-sig", "replace")
    return _HALF_PAIR.sub(r"\\ufffd", text) if "\\ud" in text or "\\uD" in text else text
