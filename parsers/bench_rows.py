"""What readers of results and of other untrusted JSON share: values that are what they should be, and the walk through documents.

A client writes whatever its language prints: numbers as text, `Infinity`, zeros for nothing. A value that is no finite number is
null here; what a zero means is for the reader of each format to say. Texts of users are never kept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import pairwise
from typing import Any

from parsers.json_text import values_in
from parsers.source import Account, InputError, Sink, Source

BATCH_REQUESTS = 2_000  # each may hold thousands of gaps
DEEPEST = 32  # levels of an object; a client's summary has four
LARGEST = 2.0**63  # beyond it no clock counts, not even in nanoseconds

_EXCEPTION = re.compile(r"^(?:\w+\.)*([A-Z]\w{0,49}(?:Error|Exception|Timeout|Interrupt|Exit))(?::|$)", re.MULTILINE)
_STATUS_CODE = re.compile(r"\b([45]\d\d)\b")
_REASONS = {status.phrase.lower(): status.phrase for status in HTTPStatus}

Row = dict[str, object]


def real(value: object) -> float | None:
    """A number, also where it was written as text; `inf` stands for no limit, and so does what nothing can have measured."""
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < LARGEST else None


def whole(value: object) -> int | None:
    """A whole number that a double holds exactly."""
    number = real(value)
    return int(number) if number is not None and abs(number) < 2**53 else None


def text(value: object) -> str | None:
    """A text."""
    return value if isinstance(value, str) else None


def reals(value: object) -> list[float] | None:
    """A list of finite numbers; None where one of them is not."""
    if not isinstance(value, list):
        return None
    numbers = [real(each) for each in value]
    return None if None in numbers else numbers  # type: ignore[return-value]


def of(value: object, *keys: str) -> Any:
    """The value at a path of keys; None where one is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def epoch(seconds: float | None) -> datetime | None:
    """A moment given in seconds since 1970; None for what can be no time of a benchmark."""
    return datetime.fromtimestamp(round(seconds, 6), UTC) if seconds is not None and 1e9 < seconds < 1e10 else None


def epoch_ns(nanoseconds: object) -> datetime | None:
    """A moment given in nanoseconds since 1970."""
    number = nanoseconds if isinstance(nanoseconds, int) and not isinstance(nanoseconds, bool) else None
    return epoch(number // 1000 / 1e6) if number is not None else None


def seconds_between(start: object, end: object, per_second: float = 1.0) -> float | None:
    """The time from one number to another that is not before it."""
    first, last = real(start), real(end)
    return (last - first) / per_second if first is not None and last is not None and last >= first else None


def gaps_of(times: Iterable[object], per_second: float = 1.0) -> list[float] | None:
    """The times between moments given in order; None where they are not."""
    moments = [real(each) for each in times]
    if None in moments or len(moments) < 2:
        return None
    gaps = [(later - earlier) / per_second for earlier, later in pairwise(moments)]  # type: ignore[operator]
    return gaps if min(gaps) >= 0 else None


def error_kind(message: str) -> str:
    """What kind of error a text reports: its exception class, its HTTP reason or status, or `other`; never its words."""
    if exceptions := _EXCEPTION.findall(message):
        return exceptions[-1]
    if reason := _REASONS.get(message.strip().lower()):
        return reason
    code = _STATUS_CODE.search(message)
    return f"HTTP {code[1]}" if code else "other"


def numbers_in(value: object, *, but: Iterable[str] = ()) -> str:
    """Every number in an object, JSON of its path (`latency.p99`) to it."""
    return json.dumps(numbers_of(value, but=but))


def numbers_of(value: object, *, but: Iterable[str] = ()) -> dict[str, float]:
    """Every number in an object by its path."""
    return dict(_flat(value, "", frozenset(but)))


def _flat(value: object, path: str, but: frozenset[str], deep: int = 0) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, each in value.items() if deep < DEEPEST else ():
            if key not in but:
                yield from _flat(each, f"{path}.{key}" if path else str(key), but, deep + 1)
    elif isinstance(value, (int, float)) and real(value) is not None:
        yield path, value


def write_requests(sink: Sink, source: str, run_index: int, requests: Iterable[Row], first: int = 0) -> int:
    """Write the requests of a run in batches, numbered from `first`; the number the next would get."""
    batch: list[Row] = []
    index = first
    for request in requests:
        batch.append({"source": source, "run_index": run_index, "request_index": index, **request})
        index += 1
        if len(batch) >= BATCH_REQUESTS:
            sink.write_rows("bench_requests", batch)
            batch = []
    sink.write_rows("bench_requests", batch)
    return index


def read_documents(
    source: Source,
    sink: Sink,
    read: Callable[[Any, int, str, Sink], bool],
    of: Callable[[Source, Account], Iterator[object]] = values_in,
) -> Account:
    """Read each JSON document of a file: `read(document, how many were read before, source, sink)` says whether it is its own.

    InputError where not even the first is whole.
    """
    account = Account()
    for document in of(source, account):
        account.lines += 1
        if read(document, account.used, source.name, sink):
            account.used += 1
        else:
            account.misread(account.lines)
    if account.error and not account.lines:
        raise InputError(account.error)
    return account


def begins_as_json(head: bytes) -> bool:
    """Whether a file may be JSON at all."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))


def has_keys(head: bytes, *keys: str) -> bool:
    """Whether each of the keys stands in a head."""
    return all(re.search(rb'"%s"\s*:' % re.escape(key.encode()), head) for key in keys)
