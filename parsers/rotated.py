"""A log that was rotated, read as the one text it was: `server.log.2.gz`, then `server.log.1`, then `server.log`.

What names the parts is the writer's rotation, never their content: a number that grows with age (logrotate), a date (logrotate
with `dateext`, kubelet), or a number that grows with time (`kvpressure record`, whatever it records). A set has the name of its
newest part, and its lines are counted through.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from parsers.source import InputError, Source

# server.log.1 · server.log-20261129 · 0.log.20261129-131307; only of what is called a log, for pages of metrics are numbered too
_LOG_PART = r"(?P<base>.*log[^/]*?)(?:\.(?P<age>\d{1,4})|[.-](?P<date>20\d{6}(?:-\d{6}|\d{2,6})?))"
# metrics.txt.part-000001, as `kvpressure record` cuts whatever it writes
_RECORDER_PART = r"(?P<whole>.*)\.part-(?P<number>\d{6})"
_ROTATED = re.compile(f"{_LOG_PART}|{_RECORDER_PART}", re.IGNORECASE)


@dataclass(frozen=True)
class RotatedSource(Source):
    """The newest part, and those before it from the oldest on."""

    earlier: tuple[Source, ...] = ()

    def open(self, *, has_lines: bool = True) -> io.BufferedReader:
        """The content of all parts, one behind the other."""
        parts = [*self.earlier, Source(self.path, self.name)]
        return io.BufferedReader(_Chained(parts, has_lines=has_lines), 1 << 20)


class _Chained(io.RawIOBase):
    """Sources as one stream. A part whose last line is not ended is ended, so that no two lines become one."""

    def __init__(self, parts: Sequence[Source], *, has_lines: bool) -> None:
        self._parts, self._has_lines = iter(parts), has_lines
        self._stream = next(self._parts).open(has_lines=has_lines)
        self._is_ended = True
        self._fault: InputError | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not (data := self._part(len(buffer))):
            following = next(self._parts, None)
            if following is None:
                if self._fault:
                    raise self._fault
                return 0
            self._stream.close()
            self._stream = following.open(has_lines=self._has_lines)
            if not self._is_ended:
                data = b"\n"
                break
        self._is_ended = data.endswith(b"\n")
        buffer[: len(data)] = data
        return len(data)

    def _part(self, size: int) -> bytes:
        """The next bytes of the part at hand. One that is cut ends there; that it was is said when all have been read."""
        try:
            return self._stream.read1(size)
        except InputError as fault:
            self._fault = fault
            return b""

    def close(self) -> None:
        self._stream.close()
        super().close()


def base_of(name: str) -> str | None:
    """What the newest part of the set is called that a file of this name is a part of; None where the name is no part's."""
    part = _ROTATED.fullmatch(name)
    return (part["base"] or part["whole"]) if part else None


def joined(sources: Sequence[Source]) -> list[Source]:
    """The sources, those that are parts of one rotated log as one, in the place of the newest."""
    by_name = {source.name: source for source in sources}
    older: dict[str, list[tuple[tuple[int, str], Source]]] = {}
    for source in sources:
        base, part = base_of(source.name), _ROTATED.fullmatch(source.name)
        if part and base and base in by_name and _is_readable(source):
            older.setdefault(base, []).append(((-int(part["age"] or 0), part["date"] or part["number"] or ""), source))
    taken = {source.name for parts in older.values() for _, source in parts}
    return [
        RotatedSource(source.path, source.name, tuple(each for _, each in sorted(older[source.name], key=lambda part: part[0])))
        if source.name in older
        else source
        for source in sources
        if source.name not in taken
    ]


def _is_readable(source: Source) -> bool:
    """Whether a part can be opened and is not empty; one that is broken is said of itself."""
    with suppress(InputError):
        return source.path.is_file() and bool(source.head())
    return False
