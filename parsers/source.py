"""An input file and where its rows go: opening, decompression, and the line account. Knows no format.

`Source` is one file as given, plain, gzip or zstd (told by its first bytes, never by its name). `Sink` takes record batches
and keeps them as Parquet, so that a parse of any size needs the memory of one batch. `Account` is the promise that no line is
lost: every line of a file is used, ignored on purpose, or not understood.
"""

from __future__ import annotations

import gzip
import io
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from parsers.columns import schema
from parsers.encodings import as_utf8

HEAD_BYTES = 64 * 1024
ZSTD_STEPS = (256, 16 * 1024)  # compressed bytes taken at a time; a byte can become 32 KiB, and hardly ever becomes 64
LONGEST_LINE = 64 << 20  # bytes; the longest that a server or client writes is a batch of events, some MB
LARGEST_DOCUMENT = 1 << 30  # bytes of JSON or YAML in one piece; reading it takes several times as much memory
MOST_GROWTH, UNCHECKED_GROWTH = 500, 256 << 20  # logs grow up to a hundredfold; small files may grow as they like
NEAR = 64 * 1024  # from the end of a chunk, where its last newline is nearly always
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class InputError(Exception):
    """An input that cannot be read. Its message is one line: what, where, what to do next."""


class UnrecognisedFormat(InputError):  # noqa: N818 - named by the condition
    """No format claims the file's content."""


@dataclass(frozen=True)
class Source:
    """One file to read. `name` is what rows call it: the path below the folder given, without .gz or .zst."""

    path: Path
    name: str

    @property
    def given(self) -> str:
        """Its path as the caller gave it."""
        return str(self.path)

    @property
    def compression(self) -> str | None:
        """`gzip`, `zstd` or None, by the first bytes. InputError where the file cannot be opened."""
        try:
            with self.path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            raise InputError(f"{self.name}: cannot be opened ({error.strerror}); check its permissions") from error
        if magic.startswith(GZIP_MAGIC):
            return "gzip"
        return "zstd" if magic.startswith(ZSTD_MAGIC) else None

    def open(self, *, has_lines: bool = True) -> io.BufferedReader:
        """The file's content, decompressed, recoded from UTF-16, and without the NULs that a rotation leaves in front of a log.

        A stream cut in the middle raises InputError on the read that meets the cut, and so does a line beyond LONGEST_LINE
        where there are lines: a document may be one, and whoever reads it as a whole minds its size.
        """
        compression = self.compression
        raw: io.RawIOBase = io.FileIO(self.path)
        if compression:
            size = self.path.stat().st_size
            stream = gzip.GzipFile(fileobj=raw) if compression == "gzip" else _ZstdFile(raw)  # type: ignore[arg-type]
            raw = _Guarded(stream, self.name, max(UNCHECKED_GROWTH, MOST_GROWTH * size), raw)
        return io.BufferedReader(_Bounded(as_utf8(raw), self.name, LONGEST_LINE if has_lines else math.inf), 1 << 20)

    def head(self) -> bytes:
        """The first 64 KiB of the content: what a detector may look at. InputError where the file is empty or broken there."""
        head = b""
        with self.open(has_lines=False) as stream:
            try:
                while len(head) < HEAD_BYTES and (part := stream.read1(HEAD_BYTES - len(head))):
                    head += part
            except InputError:
                if not head:
                    raise
        if not head.strip():
            raise InputError(f"{self.name}: empty; check that whatever writes it was running and had permission to")
        return head


class _ZstdFile:
    """Reads zstd frames one after the other; unlike the library's own reader it does not take a cut frame for a whole one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._frame = file, zstandard.ZstdDecompressor().decompressobj()
        self._input, self._output, self._within_frame = b"", b"", False
        self._step = ZSTD_STEPS[0]

    def read1(self, size: int) -> bytes:
        while not self._output:
            if self._frame.eof:
                self._input, self._frame = self._frame.unused_data, zstandard.ZstdDecompressor().decompressobj()
            data, self._input = self._input or self._file.read(self._step), b""
            if not data:
                if self._within_frame:
                    raise EOFError
                return b""
            self._output = self._frame.decompress(data)
            self._step = ZSTD_STEPS[len(self._output) < 64 * len(data)]
            self._within_frame = not self._frame.eof
        part, self._output = self._output[:size], self._output[size:]
        return part

    def close(self) -> None:
        self._file.close()


class _Guarded(io.RawIOBase):
    """A decompressing stream whose faults become InputError, once all that came before the fault has been read."""

    def __init__(self, stream: gzip.GzipFile | _ZstdFile, name: str, most: int, file: io.RawIOBase) -> None:
        self._stream, self._name, self._left, self._file = stream, name, most, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if self._left < 0:
            raise InputError(
                f"{self._name}: grows to over {MOST_GROWTH} times its size, as no log does; if it is one, decompress it first"
            )
        try:
            data = self._stream.read1(len(buffer))  # read() would drop what it has when it meets the fault
        except EOFError as error:
            raise InputError(f"{self._name}: compressed file ends early; copy it again") from error
        except (OSError, zlib.error, zstandard.ZstdError) as error:
            raise InputError(f"{self._name}: compressed data is damaged ({error}); copy it again") from error
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        self._file.close()
        super().close()


class _Bounded(io.RawIOBase):
    """A stream that ends in InputError where a line is longer than any is."""

    def __init__(self, stream: io.RawIOBase, name: str, longest_line: float) -> None:
        self._stream, self._name, self._longest_line = stream, name, longest_line
        self._is_at_start, self._unbroken = True, 0  # bytes since the last newline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if self._unbroken > self._longest_line:
            raise InputError(f"{self._name}: a line of over {LONGEST_LINE >> 20} MiB, as no log has; is it text at all?")
        size = self._stream.readinto(buffer) or 0
        while self._is_at_start and size:
            begins = bytes(buffer[:size]).lstrip(b"\0")
            buffer[: len(begins)] = begins
            self._is_at_start = not begins
            size = len(begins) or self._stream.readinto(buffer) or 0
        end = self._last_newline(buffer, size)
        self._unbroken = self._unbroken + size if end < 0 else size - end - 1
        return size if self._unbroken <= self._longest_line else end + 1 or self.readinto(buffer)

    def _last_newline(self, buffer: Any, size: int) -> int:
        near = max(0, size - NEAR)
        end = bytes(buffer[near:size]).rfind(b"\n")
        return end + near if end >= 0 else bytes(buffer[:near]).rfind(b"\n")

    def close(self) -> None:
        self._stream.close()
        super().close()


@dataclass
class Account:
    """What became of each line of one file: used + ignored + not_understood = lines, always (`balanced` says so)."""

    lines: int = 0
    used: int = 0
    ignored: int = 0
    not_understood: int = 0
    first_not_understood: int | None = None
    error: str | None = None

    @property
    def balanced(self) -> bool:
        """Whether each line is accounted for exactly once."""
        return self.lines == self.used + self.ignored + self.not_understood

    @contextmanager
    def kept_to_the_fault(self) -> Iterator[None]:
        """Keep what is read here of a file that turns out to be damaged. InputError where not even a line came before that."""
        try:
            yield
        except InputError as fault:
            if not self.lines:
                raise
            self.error = str(fault)

    def misread(self, line: int) -> None:
        """Count line number `line` (from 1) as one that looks like a signal and does not follow its grammar."""
        self.not_understood += 1
        if self.first_not_understood is None or line < self.first_not_understood:
            self.first_not_understood = line


@dataclass
class Sink:
    """Takes rows of raw tables and appends them to `<folder>/<table>.parquet`; use as a context manager.

    A batch is written while the next is read. An OSError of that, such as a full disk, is raised by the next call, or at the end.
    """

    folder: Path
    rows: dict[str, int] = field(default_factory=dict)
    _writers: dict[str, pq.ParquetWriter] = field(default_factory=dict)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _writing: Future[None] | None = None  # one batch at a time, so that no more than that is kept

    def write(self, table: str, batch: pa.RecordBatch | pa.Table) -> None:
        """Append a batch. Columns missing from it are null; a column the table does not have is a KeyError.

        A text of the table's first batch that comes as a dictionary is stored as one.
        """
        wanted = schema(table)
        unknown = set(batch.schema.names) - set(wanted.names)
        if unknown:
            raise KeyError(f"{table} has no column {', '.join(sorted(unknown))}")
        if batch.num_rows == 0:
            return
        have = set(batch.schema.names)
        if table not in self._writers:
            self.folder.mkdir(parents=True, exist_ok=True)
            stored = pa.schema([_as_it_comes(f, batch.schema) for f in wanted])
            self._writers[table] = pq.ParquetWriter(self.folder / f"{table}.parquet", stored, compression="zstd")
        stored = self._writers[table].schema
        columns = [batch.column(f.name).cast(f.type) if f.name in have else pa.nulls(batch.num_rows, f.type) for f in stored]
        self._await_writing()
        self._writing = self._thread.submit(self._writers[table].write_table, pa.Table.from_arrays(columns, schema=stored))
        self.rows[table] = self.rows.get(table, 0) + batch.num_rows

    def write_rows(self, table: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Append rows given as dicts: for tables of few rows. Same rules as `write`."""
        if rows:
            wanted = schema(table)
            names = {name for row in rows for name in row}
            fields = [f for f in wanted if f.name in names]
            unknown = names - set(wanted.names)
            if unknown:
                raise KeyError(f"{table} has no column {', '.join(sorted(unknown))}")
            wanted = pa.schema(fields)
            try:
                made = pa.Table.from_pylist([dict(row) for row in rows], schema=wanted)
            except (pa.ArrowException, OverflowError, TypeError, ValueError):  # rare, so looked for only then
                kinds = {each.name: each.type for each in fields}
                held = [{name: _holdable(value, kinds[name]) for name, value in row.items()} for row in rows]
                made = pa.Table.from_pylist(held, schema=wanted)
            self.write(table, made)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown()
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        if failed is None:
            self._await_writing()

    def _await_writing(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def _as_it_comes(column: pa.Field, batch: pa.Schema) -> pa.Field:
    """A text column as the dictionary that it is in a batch; any other as it is."""
    index = batch.get_field_index(column.name)
    is_dictionary = index >= 0 and pa.types.is_dictionary(batch.types[index])
    return column.with_type(batch.types[index]) if is_dictionary else column


def _holdable(value: Any, kind: pa.DataType) -> Any:
    """A value as a column can hold it: text without half characters; null for what is no number, or is beyond 64 bits."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if pa.types.is_string(kind) else None
    if pa.types.is_list(kind):
        return [_holdable(each, kind.value_type) for each in value] if isinstance(value, (list, tuple)) else None
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None
    return value


def lines_of(stream: io.BufferedIOBase, chunk_bytes: int = 8 << 20) -> Iterator[tuple[bytearray, int]]:
    """Chunks of whole lines (the last may lack its newline), each a buffer and how much of it: what a vectorised parser works on.

    Each chunk lies where the one before it lay and is gone once the next is asked for: fresh memory would cost as much as the
    reading. Memory is bounded by the chunk, or twice the longest line where that is longer. Where the stream is cut, the whole
    lines before the cut are passed on, then its InputError; the cut line is not.
    """
    buffer, size = bytearray(chunk_bytes), 0
    try:
        while got := stream.readinto1(memoryview(buffer)[size:]):
            size += got
            if size < len(buffer):
                continue
            if whole := buffer.rfind(b"\n") + 1:
                yield buffer, whole
                size = len(rest := buffer[whole:])
                buffer[:size] = rest
            else:
                buffer = buffer.ljust(2 * size)
    except InputError:
        if whole := buffer.rfind(b"\n", 0, size) + 1:
            yield buffer, whole
        raise
    if size:
        yield buffer, size
