"""The recording's own account, `recording.jsonl`: when it ran, and what of the engine it could not keep.

    {"recorder":"kvpressure 0.1.0","at":1795957926.692,"event":"started","detail":"metrics every 1 s, KV events, log"}
    {"recorder":"kvpressure 0.1.0","at":1795958011.004,"event":"resumed","since":1795957990.69,"detail":"…"}

Each line is an event, its time, and where something is missing the time it is missing from (`since`, until `at`) and how much.
`analyze` reads it as any other file (`parsers.recording_journal`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version

from pipelines.record.parts import Parts

RECORDER = f"kvpressure {version('kvpressure')}"


class Journal:
    """Writes events, from any thread."""

    def __init__(self, parts: Parts, tell: Callable[[str], object]) -> None:
        self._parts, self.tell = parts, tell  # `tell` says to whoever watches what they can still mend
        self._mutex = threading.RLock()  # closing a part may drop another, which is an event of its own

    def write(
        self, event: str, detail: str, *, subject: str | None = None, since: float | None = None, count: int | None = None
    ) -> None:
        """Add one event. A disk too full for it is said where the data is missing, too."""
        entry = {"recorder": RECORDER, "at": round(time.time(), 6), "event": event, "subject": subject}
        entry |= {"since": since and round(since, 6), "count": count, "detail": detail}
        line = json.dumps({key: value for key, value in entry.items() if value is not None}, separators=(",", ":"))
        with self._mutex, suppress(OSError):
            self._parts.append(line.encode() + b"\n")

    def close(self) -> None:
        """Nothing more will be written."""
        self._parts.close()
