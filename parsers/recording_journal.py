"""What `kvpressure record` says of its own recording: `recording.jsonl`.

    {"recorder":"kvpressure 0.1.0","at":1795957926.692,"event":"started","detail":"metrics of 1 server(s) every 1 s, the log"}
    {"recorder":"kvpressure 0.1.0","at":1795958011.004,"event":"resumed","since":1795957990.69,"detail":"…"}
    {"recorder":"kvpressure 0.1.0","at":1795958031.1,"event":"scrapes_missed","subject":"http://127.0.0.1:8000/metrics",
     "since":1795958021.1,"count":9,"detail":"connection refused; is it running, on that port?"}

Each line becomes a row of `recordings`: what happened, and what is missing since when. It says nothing of the engine.
"""

from __future__ import annotations

import re
from typing import Any

from parsers import Format
from parsers.bench_rows import text
from parsers.json_text import decode_line
from parsers.source import Account, Sink, Source
from parsers.unix_time import unix_microseconds

_HEAD = re.compile(rb'\s*\{"recorder":"kvpressure [^"]*","at":')

_INT64 = range(2**63)


def parse(source: Source, sink: Sink) -> Account:
    """Read one file into the sink."""
    account, rows = Account(), []
    with account.kept_to_the_fault(), source.open() as stream:
        for line in stream:
            account.lines += 1
            row = _row(decode_line(line))
            if row is None:
                account.misread(account.lines)
            else:
                account.used += 1
                rows.append({"source": source.name, "line": account.lines, **row})
    sink.write_rows("recordings", rows)
    return account


def _row(entry: Any) -> dict[str, object] | None:
    """The row of one entry; None where it is none."""
    if not isinstance(entry, dict) or not isinstance(entry.get("event"), str) or (at := _time(entry.get("at"))) is None:
        return None
    count = entry.get("count")
    return {
        "at_utc": at,
        "event": entry["event"],
        "subject": text(entry.get("subject")),
        "since_utc": _time(entry.get("since")),
        "count": count if type(count) is int and count in _INT64 else None,
        "detail": text(entry.get("detail")),
    }


def _time(value: object) -> int | None:
    return unix_microseconds(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def detect(head: bytes) -> float:
    """A line that names its recorder."""
    return 0.95 if _HEAD.match(head) else 0.0


FORMAT = Format(
    name="recording_journal",
    title="Journal of `kvpressure record`",
    engine_kind=None,
    versions="kvpressure 0.1",
    can_tell="when the recorder ran, and what it could not keep",
    cannot_tell="anything of the engine",
    tables=("recordings",),
    detect=detect,
    parse=parse,
)
