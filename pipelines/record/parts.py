"""Files of a recording: appended to, cut into parts that are compressed when full, the oldest thrown away above a limit.

    metrics.txt               what is being written
    metrics.txt.part-000002.gz   what was before it; `analyze` reads a file and its parts as the one text they were

Whole lines go to the file in one write each, so that a killed recorder loses nothing it had, and a disk that is full leaves no
half of a line behind. Only one recorder may write to a folder.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import os
import re
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SMALLEST_PART, LARGEST_PART = 64 * 1024, 32 * 1024 * 1024
TAIL_BYTES = 1024 * 1024
PARTS_IN_LIMIT = 16  # parts of each file that fit within its share of the limit
LOCK = ".lock"
LOG = "server.log"
SETTINGS_PART = f"{LOG}.part-000001"
_PART = re.compile(r"(?P<base>.+)\.part-(?P<number>\d{6})(?P<gz>\.gz)?")


class FolderInUseError(Exception):
    """Another recorder writes to the folder."""


class Parts:
    """One file of a recording and its earlier parts."""

    def __init__(self, path: Path, part_bytes: int, on_full: Callable[[], object] = lambda: None) -> None:
        self.path, self._part_bytes, self._on_full = path, part_bytes, on_full
        self.number = max((number for number, _ in _parts_of(path)), default=0)  # of the latest closed part
        self.size = 0
        self._file: io.FileIO | None = None
        if path.exists() or self.number:
            self.size = self._opened().tell()
            if torn := self.size - _end_of_last_line(path):
                self.truncate(self.size - torn)

    def reserve(self, count: int) -> None:
        """Begin a new part where `count` more bytes would not fit into this one."""
        if self.size and self.size + count > self._part_bytes:
            self._close_part()

    def append(self, lines: bytes) -> None:
        """Write whole lines. OSError where they cannot be; then none of them is in the file."""
        self.reserve(len(lines))
        file, written = self._opened(), 0
        try:
            while written < len(lines):
                written += file.write(memoryview(lines)[written:])
        except OSError:
            self.truncate(self.size)
            raise
        self.size += written

    def truncate(self, size: int) -> None:
        """Take back what was written after `size` bytes of the part at hand; a first part of nothing is no file."""
        self._opened().truncate(size)
        self.size = size
        if not size and not self.number:
            self.close()
            self.path.unlink()

    def tail(self) -> bytes:
        """The last lines written, of the part before where this one has none yet."""
        if self.size:
            with self.path.open("rb") as file:
                file.seek(max(self.size - TAIL_BYTES, 0))
                return file.read()
        closed = _parts_of(self.path)
        if not closed:
            return b""
        with gzip.open(closed[-1][1], "rb") as packed:
            return packed.read()[-TAIL_BYTES:]

    def close(self) -> None:
        """Nothing more will be written."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def _opened(self) -> io.FileIO:
        """The file, made when there is something to write: one that stays empty would look like something broken."""
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        return self._file

    def _close_part(self) -> None:
        self.close()
        part = self.path.with_name(f"{self.path.name}.part-{self.number + 1:06}")
        self.path.rename(part)
        self._opened()  # closed parts are read with the file they belong to
        self.size, self.number = 0, self.number + 1
        compress(part)
        self._on_full()


class Folder:
    """The folder of a recording: its lock, its files, and the limit they all share."""

    def __init__(self, path: Path, max_bytes: int, files: int, on_dropped: Callable[[str, float], object]) -> None:
        self.path, self._max_bytes = path, max_bytes
        self._part_bytes = min(max(max_bytes // (PARTS_IN_LIMIT * max(files, 1)), SMALLEST_PART), LARGEST_PART)
        self._on_dropped = on_dropped
        self._mutex = threading.Lock()
        path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path / LOCK, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise FolderInUseError(f"{path}: another recorder writes there; stop it, or give a folder of its own") from error
        self._tidy()

    def parts(self, name: str) -> Parts:
        """The file called `name`, to be written on."""
        return Parts(self.path / name, self._part_bytes, self.keep_within_limit)

    def keep_within_limit(self) -> None:
        """Throw away the oldest parts until all files together are within the limit. The first part of a log stays.

        A log begins with the engine's settings, which nothing after it repeats.
        """
        dropped = []
        with self._mutex:
            files = [(file, stat) for file in self.path.iterdir() if (stat := _stat(file))]
            excess = sum(stat.st_size for _, stat in files) + self._part_bytes - self._max_bytes  # room for the next part
            closed = [(stat.st_mtime, file, stat.st_size) for file, stat in files if _PART.fullmatch(file.name)]
            for modified, file, size in sorted(each for each in closed if not each[1].name.startswith(SETTINGS_PART)):
                if excess <= 0:
                    break
                file.unlink()
                dropped.append((file.name, modified))
                excess -= size
        for name, modified in dropped:
            self._on_dropped(name, modified)

    def close(self) -> None:
        """Let another recorder in."""
        os.close(self._lock)

    def _tidy(self) -> None:
        """Finish what a killed recorder was at: compressing a part."""
        for file in sorted(self.path.iterdir()):
            part = _PART.fullmatch(file.name.removeprefix("."))
            if part and file.name.startswith("."):
                file.unlink()
            elif part and not part["gz"]:
                compress(file)


def compress(part: Path) -> None:
    """Replace a closed part by its compressed form. A fault in between leaves one of the two whole."""
    done, making = part.with_name(f"{part.name}.gz"), part.with_name(f".{part.name}.gz")
    if not done.exists():
        stat = part.stat()
        with part.open("rb") as plain, gzip.open(making, "wb", compresslevel=6) as packed:
            shutil.copyfileobj(plain, packed, 1 << 20)
        os.utime(making, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        making.rename(done)
    part.unlink()


def _parts_of(path: Path) -> list[tuple[int, Path]]:
    """Closed parts of a file, from the first on."""
    found = ((_PART.fullmatch(file.name), file) for file in path.parent.iterdir())
    return sorted((int(part["number"]), file) for part, file in found if part and part["base"] == path.name)


def _stat(file: Path) -> os.stat_result | None:
    """None where another thread has just renamed or removed the file."""
    with suppress(FileNotFoundError):
        return file.stat()
    return None


def _end_of_last_line(path: Path) -> int:
    """Where the last whole line ends."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        while position:
            start = max(position - 65536, 0)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            position = start
    return 0
