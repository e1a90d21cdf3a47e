"""The engine's log, followed across its rotation, without what users wrote.

How far it has been copied is written down *before* each piece is appended, with the size of the recording before and after it. A
recorder that was killed therefore goes on at the very line it was at: no line is lost, none is there twice. A log that was
rotated while no recorder ran is found again by its inode and its first bytes: inodes are given away again.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from parsers.rotated import base_of
from pipelines.record.journal import Journal
from pipelines.record.parts import Parts
from pipelines.record.scrub import LONGEST_LINE, scrubbed

POSITION = ".log-position.json"
PIECE = 1 << 20
HEAD = 1024
POLL_S = 0.5


@dataclass(frozen=True)
class Position:
    """A piece of the log on its way into the recording: where it lies in the log, and what it makes of the recording."""

    inode: int
    head: str
    start: int
    end: int
    part: int
    size_before: int
    size_after: int


class LogTail:
    """Follows one log file."""

    def __init__(self, log: Path, parts: Parts, journal: Journal) -> None:
        self.lines = 0
        self._log, self._parts, self._journal = log, parts, journal
        self._position_file = parts.path.with_name(POSITION)
        self._file: BinaryIO | None = None
        self._at = 0
        self._is_said_missing = self._is_said_unwritten = False

    def run(self, stop: threading.Event) -> None:
        """Copy what is there, then what comes, until told to stop."""
        self._resume()
        while True:
            is_last = stop.is_set()
            self._follow()
            if is_last:
                break
            stop.wait(POLL_S)
        if self._file:
            self._file.close()
        self._parts.close()

    def _follow(self) -> None:
        """Copy all whole lines there are now, over rotations."""
        while True:
            file = self._file or self._open(self._log)
            if file is None:
                return
            is_rotated = self._is_rotated(file)  # asked before reading on: what is written until then is read, too
            if not self._copy(file, with_unfinished=is_rotated) or not is_rotated:
                return
            self._leave_file()

    def _open(self, path: Path, at: int = 0) -> BinaryIO | None:
        try:
            self._file = path.open("rb")
        except OSError as fault:
            if not self._is_said_missing:
                self._journal.tell(f"{path}: cannot be opened ({(fault.strerror or str(fault)).lower()}); waiting for it")
            self._is_said_missing = True
            return None
        self._at, self._is_said_missing = at, False
        return self._file

    def _leave_file(self) -> None:
        if self._file:
            self._file.close()
        self._file = None

    def _is_rotated(self, file: BinaryIO) -> bool:
        """Whether the path leads to another file by now. A file cut to less than was read of it begins anew."""
        mine = os.fstat(file.fileno())
        if mine.st_size < self._at:
            self._journal.write(
                "log_lost", "the log was emptied in place: what it got since the last look is lost", subject=self._log.name
            )
            self._at = 0
        try:
            current = self._log.stat()
        except OSError:  # between the two halves of a rotation
            return False
        return (current.st_dev, current.st_ino) != (mine.st_dev, mine.st_ino)

    def _copy(self, file: BinaryIO, *, with_unfinished: bool) -> bool:
        """Copy whole lines up to the end of the file; whether all of them could be written."""
        while True:
            file.seek(self._at)
            piece = file.read(PIECE)
            end = piece.rfind(b"\n") + 1
            if not end and (len(piece) == PIECE or with_unfinished):
                end = len(piece)  # a line longer than any engine writes, or one that nobody will end
            if not end:
                return True
            lines = [scrubbed(line) for line in _lines_of(piece[:end])]
            if not self._write(file, b"".join(line + b"\n" for line in lines), end):
                return False
            self.lines += len(lines)

    def _write(self, file: BinaryIO, data: bytes, length: int) -> bool:
        end = self._at + length
        inode, head = os.fstat(file.fileno()).st_ino, _head_of(file, end)
        try:
            self._parts.reserve(len(data))
            before = self._parts.size
            position = Position(inode, head, self._at, end, self._parts.number, before, before + len(data))
            _write_position(self._position_file, position)
            self._parts.append(data)
        except OSError as fault:
            if not self._is_said_unwritten:
                self._journal.tell(
                    f"{self._parts.path}: cannot be written ({(fault.strerror or str(fault)).lower()}); trying again"
                )
            self._is_said_unwritten = True
            return False
        self._at, self._is_said_unwritten = end, False
        return True

    def _resume(self) -> None:
        """Go on where an earlier recorder was, in whatever file that is by now."""
        if (position := _read_position(self._position_file)) is None:
            return
        done = position.end
        if position.part == self._parts.number and self._parts.size < position.size_after:
            self._parts.truncate(min(position.size_before, self._parts.size))
            done = position.start
        ours, later = self._rotated_since(position)
        if ours is None:
            self._journal.write(
                "log_lost", "the log was rotated away while no recorder ran; its rest is lost", subject=self._log.name
            )
            return
        for number, path in enumerate([ours, *later]):
            file = self._open(path, 0 if number else done)
            if file and not path.samefile(self._log):
                self._copy(file, with_unfinished=True)
                self._leave_file()

    def _rotated_since(self, position: Position) -> tuple[Path | None, list[Path]]:
        """The file the position is in, and the files that came between it and the log of now."""
        siblings = []
        for path in self._log.parent.iterdir():
            if path != self._log and base_of(path.name) != self._log.name:
                continue
            with suppress(OSError), path.open("rb") as file:
                stat = os.fstat(file.fileno())
                is_ours = stat.st_ino == position.inode and _head_of(file, position.end) == position.head
                siblings.append((stat.st_mtime_ns, path, is_ours))
        siblings.sort()
        ours = next((index for index, (_, _, is_ours) in enumerate(siblings) if is_ours), None)
        if ours is None:
            return None, []
        path = siblings[ours][1]
        if path == self._log:
            return path, []
        return path, [later for _, later, _ in siblings[ours + 1 :] if later != self._log and later.suffix not in (".gz", ".zst")]


def _head_of(file: BinaryIO, limit: int) -> str:
    """What tells a log from another in its place: its first bytes, of those up to `limit`."""
    return hashlib.blake2b(os.pread(file.fileno(), min(limit, HEAD), 0), digest_size=16).hexdigest()


def _lines_of(piece: bytes) -> Iterator[bytes]:
    for line in piece.removesuffix(b"\n").split(b"\n"):
        yield line if len(line) < PIECE - 1 else line[:LONGEST_LINE]


def _write_position(path: Path, position: Position) -> None:
    making = path.with_suffix(".new")
    making.write_text(json.dumps(asdict(position)))
    making.rename(path)


def _read_position(path: Path) -> Position | None:
    with suppress(OSError, ValueError, TypeError):
        return Position(**json.loads(path.read_text()))
    return None
