"""Storage: a folder on this machine, or a prefix in an object store, behind the few operations that a lake needs.

    Store.at("/var/lib/kvpressure")      Store.at("s3://bucket/kvpressure")

A file appears whole or not at all: in a folder it is written beside the lake under `_tmp/` and renamed, in an object store it is
put in one request. So a reader never meets half a file, and a process killed at any moment leaves only what `sweep` takes away.
Credentials and endpoints of object stores come from their own environment variables (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …).
Nothing here knows what is in a file.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import duckdb

from parsers.source import InputError

TEMPORARY = "_tmp"


def real(path: Path) -> Path:
    """The path without its links; unlike `resolve` it does not mind links that lead in a circle."""
    return Path(os.path.realpath(path))


@dataclass(frozen=True)
class Store:
    """One root and everything below it; names are relative to it, with `/`. `url` is an absolute path, or has a scheme."""

    url: str

    @classmethod
    def at(cls, url: str | Path) -> Self:
        """The store at a path or URL."""
        text = str(url)
        return cls(text.rstrip("/") if "://" in text else str(Path(text).absolute()))

    @property
    def is_remote(self) -> bool:
        """Whether it lies in an object store."""
        return "://" in self.url

    @property
    def folder(self) -> Path:
        """The root as a folder. InputError where it lies in an object store."""
        if self.is_remote:
            raise InputError(f"{self.url}: this needs a folder on this machine; give one")
        return Path(self.url)

    def uri(self, name: str) -> str:
        """What DuckDB reads the file by."""
        return f"{self.url}/{name}"

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return bool(self._ask("isfile", self.uri(name))) if self.is_remote else Path(self.uri(name)).is_file()

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None where there is none."""
        try:
            if self.is_remote:
                return bytes(self._ask("cat_file", self.uri(name)))
            return Path(self.uri(name)).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, pattern: str) -> list[str]:
        """Files whose name matches a glob, sorted: `*` stops at `/`, `**` does not."""
        if self.is_remote:
            root = self.url.split("://", 1)[1] + "/"
            listed = self._ask("glob", self.uri(pattern), detail=True)
            found = (name.removeprefix(root) for name, each in listed.items() if each["type"] == "file")
        else:
            # of a folder that may be listed and not looked into, Path.is_file() raises
            files = (path for path in Path(self.url).glob(pattern) if os.path.isfile(path))  # noqa: PTH113
            found = (path.relative_to(self.url).as_posix() for path in files)
        depth = pattern.count("/")
        return sorted(name for name in found if "**" in pattern or name.count("/") == depth)

    def put(self, name: str, write: Callable[[Path], object]) -> None:
        """Let `write` make the file under a temporary name, then give it its own. What was there before is replaced."""
        with self.workplace() as folder:
            made = folder / "made"
            write(made)
            if self.is_remote:
                self._ask("put_file", str(made), self.uri(name))
            else:
                target = Path(self.uri(name))
                target.parent.mkdir(parents=True, exist_ok=True)
                made.replace(target)

    def put_bytes(self, name: str, content: bytes) -> None:
        """The same for content at hand."""
        self.put(name, lambda path: path.write_bytes(content))

    def delete(self, name: str) -> None:
        """Take away a file, or a folder with all below it; nothing happens where there is none."""
        if self.is_remote:
            if self._ask("exists", self.uri(name)):
                self._ask("rm", self.uri(name), recursive=True)
        elif Path(self.uri(name)).is_dir():
            shutil.rmtree(self.uri(name), ignore_errors=True)
        else:
            Path(self.uri(name)).unlink(missing_ok=True)

    @contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        """A file as one on this machine, for as long as it is needed."""
        if not self.is_remote:
            yield Path(self.uri(name))
            return
        with self.workplace() as folder:
            self._ask("get_file", self.uri(name), str(folder / Path(name).name))
            yield folder / Path(name).name

    @contextmanager
    def workplace(self) -> Iterator[Path]:
        """A folder to work in, gone afterwards; on the lake's file system, so that what is made there can be renamed into it."""
        root = Path(tempfile.gettempdir()) if self.is_remote else Path(self.url) / TEMPORARY
        root.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{socket.gethostname()}.{os.getpid()}.", dir=root))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def sweep(self) -> None:
        """Take away what processes of this machine left behind when they were killed."""
        if self.is_remote:
            return
        root = Path(self.url) / TEMPORARY
        for left in root.glob(f"{socket.gethostname()}.*"):
            process = left.name.rsplit(".", 2)[1]
            if process.isdecimal() and not is_alive(int(process)):
                shutil.rmtree(left, ignore_errors=True)

    def open_on(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let a connection read what `uri` names; once more does no harm."""
        if self.is_remote and self.url.split("://", 1)[0] not in con.list_filesystems():
            con.register_filesystem(self._files())

    def stat(self, name: str) -> str | None:
        """A mark that changes when the file does, without reading it; None where there is no such file."""
        try:
            if self.is_remote:
                told = self._ask("info", self.uri(name))
                return f"{told['size']}-{told.get('ETag') or told.get('LastModified')}"
            told = Path(self.uri(name)).stat()
        except FileNotFoundError:
            return None
        return f"{told.st_size}-{told.st_mtime_ns}-{told.st_ino}"

    def modified_at(self, name: str) -> float:
        """When the file was last written, in epoch seconds."""
        if self.is_remote:
            return float(self._ask("modified", self.uri(name)).timestamp())
        return Path(self.uri(name)).stat().st_mtime

    def _ask(self, what: str, *given: Any, **named: Any) -> Any:
        """One operation of the object store. InputError where it cannot be reached or refuses; FileNotFoundError stays one."""
        try:
            return getattr(self._files(), what)(*given, **named)
        except (InputError, FileNotFoundError):
            raise
        except PermissionError as error:
            raise InputError(f"{self.url}: refuses access ({_first_line(error)}); check its credentials and rights") from None
        except Exception as error:  # noqa: BLE001 - each kind of object store has exceptions of its own
            why = f"{type(error).__name__}: {_first_line(error)}"
            raise InputError(f"{self.url}: the object store fails ({why}); check its address, credentials and bucket") from None

    def _files(self) -> Any:
        scheme = self.url.split("://", 1)[0]
        try:
            import fsspec  # noqa: PLC0415 - only object stores need it

            return fsspec.filesystem(scheme, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise InputError(f"{self.url}: {scheme}:// is not supported here; pip install 'kvpressure[{scheme}]'") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no reason given"])[0]


def is_alive(process: int) -> bool:
    """Whether a process of this machine still runs."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep SIGINT and SIGTERM back until the end of the block; only the main thread is sent them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = {each: signal.signal(each, lambda number, _: held.append(number)) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if held:
        signal.raise_signal(held[0])
