"""Intake: files and folders as given -> the raw tables of one run, and one row of `raw.sources` for each file met.

Here is decided which files are read, what each is called in every later row, and what is said of one that cannot be read.
A file that cannot be read never stops the others. How a format is read is the business of `parsers/`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import parsers
from parsers import Account, Format, InputError, Sink, Source, UnrecognisedFormat
from parsers.columns import TABLES, schema
from parsers.rotated import joined
from pipelines.lake import Lake
from pipelines.prometheus import FOLDER as FETCHED
from pipelines.storage import real

Tell = Callable[[str], object]
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MOST_FILES = 10_000  # a run is some files of each server; more is a folder of something else, or of many runs
OF_OURS = {"analysis.duckdb": "a result", "catalog.duckdb": "a lake"}  # a file that is in each
COMPRESSED_SUFFIXES = (".gz", ".zst")
OWN_REPORT = b"\n    kvpressure:"  # what a benchmark report of ours has below `observability`


@dataclass(frozen=True)
class LeftOut(Source):
    """A file that is an input by its content and lies in the output folder, where only results are looked for."""

    output: Path


@dataclass(frozen=True)
class Outcome:
    """What became of one file. `format` is None where the file was not read at all; then `error` says why, in one line."""

    source: Source
    format: Format | None = None
    account: Account = field(default_factory=Account)
    error: str | None = None
    is_other: bool = False  # some other kind of file, or a second copy: nothing is wrong with leaving it out
    copy_of: str | None = None  # what is read in its place

    @property
    def is_used(self) -> bool:
        """Whether it gave something, be it only what came before a fault."""
        return self.format is not None and self.account.used > 0

    @property
    def is_broken(self) -> bool:
        """Whether it should have been read and was not, or not to its end. A file of another kind is not broken."""
        return self.error is not None and not self.is_other

    def row(self) -> dict[str, object]:
        """Its row of `raw.sources`."""
        return {
            "source": self.source.name,
            "path": _spoken(self.source.given),
            "format": self.format.name if self.format else None,
            "engine_kind": self.format.engine_kind if self.format else None,
            "bytes": _size(self.source.path),
            "lines": self.account.lines,
            "lines_used": self.account.used,
            "lines_ignored": self.account.ignored,
            "lines_not_understood": self.account.not_understood,
            "first_not_understood": self.account.first_not_understood,
            "is_other": self.is_other,
            "copy_of": self.copy_of,
            "error": self.error,
        }


@dataclass(frozen=True)
class Intake:
    """What became of all files of a run, and how many rows each raw table got."""

    outcomes: tuple[Outcome, ...]
    rows: dict[str, int]

    @property
    def unread(self) -> list[str]:
        """Of each file that should have been read, and was not or not to its end, why."""
        return [outcome.error for outcome in self.outcomes if outcome.is_broken and outcome.error]

    def require_any(self) -> None:
        """InputError, in one line, where not one file gave anything. What could be read of a broken one is worth having."""
        if any(outcome.is_used for outcome in self.outcomes):
            return
        for path in (outcome.source.path for outcome in self.outcomes):
            if made := OF_OURS.get(path.name):
                raise InputError(f"{path.parent}: {made} of kvpressure and no input; `kvpressure sql {path.parent}` reads it")
        broken = [outcome for outcome in self.outcomes if outcome.format is not None] or list(self.outcomes)
        first = broken[0].error or ""
        if len(self.outcomes) == 1:
            raise InputError(first)
        raise InputError(f"none of the {len(self.outcomes)} files given could be read; the first: {first}")


def read(paths: Iterable[Path | Source], lake: Lake, *, skip: Path | None = None, tell: Tell = lambda _: None) -> Intake:
    """Read everything below `paths` into the raw tables of the lake's run, each replaced as a whole.

    InputError where a path does not exist or no path leads to a file; what lies below `skip` (the output) is not read.
    """
    return read_found(find(paths, skip=skip), lake, tell=tell)


def read_found(sources: Sequence[Source], lake: Lake, *, tell: Tell = lambda _: None) -> Intake:
    """The same for files that were found already."""
    with lake.store.workplace() as folder:
        intake = read_sources(sources, folder, tell=tell)
        place(folder, lake)
    return intake


def place(folder: Path, lake: Lake) -> None:
    """Move `<folder>/<table>.parquet` into the lake's raw tables; a table without a file gets an empty one."""
    for table in TABLES:
        lake.put(f"raw.{table}", lambda target, made=folder / f"{table}.parquet", name=table: _move(made, target, name))


def read_into(paths: Iterable[Path | Source], folder: Path, *, skip: Path | None = None, tell: Tell = lambda _: None) -> Intake:
    """Read everything below `paths` into `<folder>/<table>.parquet`; a table that got no row has no file."""
    return read_sources(find(paths, skip=skip), folder, tell=tell)


def read_sources(sources: Sequence[Source], folder: Path, *, tell: Tell = lambda _: None) -> Intake:
    """Read these files into `<folder>/<table>.parquet`, each under the name it has."""
    outcomes = []
    with Sink(folder) as sink:
        twin_of = twins(sources)
        for number, source in enumerate(sources, start=1):
            tell(f"reading {source.name} ({number} of {len(sources)})")
            outcomes.append(_read_once(source, sink, twin_of.get(source)))
        sink.write_rows("sources", [outcome.row() for outcome in outcomes])
    pa.default_memory_pool().release_unused()  # DuckDB has its own
    return Intake(tuple(outcomes), dict(sink.rows))


def find(paths: Iterable[Path | Source], *, skip: Path | None = None) -> list[Source]:
    """The files below `paths` in a fixed order, each under a name of its own. Hidden files are left alone.

    A Source is a file that was found already; its name may change. Below `skip` lie results, which are nobody's input: what is an
    input there by its content is LeftOut, so that it is said.
    """
    found: dict[str, Source] = {}
    left_out: dict[str, Source] = {}
    output, is_output = real(skip) if skip else None, False
    for path in paths:
        if isinstance(path, Source):
            unique = _unique(path.name, path.path, taken=found)
            found[unique] = replace(path, name=unique)
            continue
        # what was fetched into the output and is named, unlike what merely lies there
        is_asked_for = output in real(path).parents
        for file, name in _files(path):
            if skip and output and not is_asked_for and real(file).is_relative_to(output):
                is_output = True
                if _is_input(file, output):
                    unique = _unique(_spoken(name), path, taken=found | left_out)
                    left_out[unique] = LeftOut(file, unique, skip)
            else:
                unique = _unique(_spoken(name), path, taken=found)
                found[unique] = Source(file, unique)
            if len(found) > MOST_FILES:
                raise InputError(f"{path}: over {MOST_FILES:,} files; give the folder of one run")
    if not found:
        places = ", ".join(map(str, paths))
        if skip and is_output:
            raise InputError(f"{places}: all of it lies in the output folder {skip}; {_elsewhere(skip)}")
        raise InputError(f"{places}: no file there; give the folder with the server's log, metrics or results")
    return [*joined(list(found.values())), *left_out.values()]


def _is_input(file: Path, output: Path) -> bool:
    """Whether a file in the output is an input by its content. Answers fetched there, Parquet and reports of ours are results."""
    if output / FETCHED in real(file).parents or file.suffix == ".parquet":
        return False
    try:
        source = Source(file, file.name)
        parsers.detect(source)
    except InputError:  # empty, or of another kind, as results are
        return False
    return OWN_REPORT not in source.head()


def _elsewhere(output: Path) -> str:
    return f"give --out a folder of its own, such as {output / 'result'}"


def twins(sources: Sequence[Source]) -> dict[Source, Source]:
    """Files whose content, decompressed, is that of another -> that other one, whose name is the shortest.

    Whole files are compared only where their first 64 KiB agree.
    """
    by_head: dict[bytes, list[Source]] = {}
    for source in sources:
        with suppress(InputError):  # said when it is read
            if source.path.is_file() and not isinstance(source, LeftOut):
                by_head.setdefault(source.head(), []).append(source)
    twin_of = {}
    for alike in by_head.values():
        first_with: dict[bytes, Source] = {}
        for source in sorted(alike, key=lambda each: len(each.name)) if len(alike) > 1 else ():
            first = first_with.setdefault(_digest(source), source)
            if first is not source:
                twin_of[source] = first
    return twin_of


def _read_once(source: Source, sink: Sink, twin: Source | None) -> Outcome:  # noqa: PLR0911 - one for each way it can go
    if twin is not None:
        copy = f"{source.name}: the same content as {twin.name}, which is read; this copy is left out"
        return Outcome(source, error=copy, is_other=True, copy_of=twin.name)
    if isinstance(source, LeftOut):
        where = f"lies in the output folder {source.output}, and what lies there is not read"
        return Outcome(source, error=f"{source.name}: {where}; {_elsewhere(source.output)}")
    if source.path.is_dir():
        return Outcome(source, error=f"{source.name}: a folder that cannot be opened; check its permissions")
    if not source.path.is_file():
        return Outcome(source, error=f"{source.name}: not a regular file; save its content to one")
    try:
        return _parsed(source, *parsers.parse(source, sink))
    except UnrecognisedFormat as error:
        return Outcome(source, error=_one_line(error), is_other=True)
    except InputError as error:
        return Outcome(source, error=_one_line(error))
    except OSError as error:
        if error.errno in NO_ROOM:  # half a table would look whole
            raise
        return Outcome(source, error=f"{source.name}: cannot be read ({error.strerror}); check the disk it is on")
    except Exception as error:  # noqa: BLE001 - a fault of ours in one file must not cost the user the others
        # where it happened and not what it says, which may be of the input
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        fault = f"{source.name}: not read, by a fault of kvpressure ({where}); please report it"
        return Outcome(source, error=_one_line(fault))


def _parsed(source: Source, chosen: Format, account: Account) -> Outcome:
    if printed := _printed(source, chosen, account):
        return Outcome(source, error=_one_line(f"{source.name}: {printed}"), is_other=True)
    error = account.error
    if error and account.used:
        error = f"{error}; what was read of it is used"
    if error is None and account.used == 0:
        nothing = "its one line says nothing" if account.lines == 1 else f"none of its {account.lines} lines says anything"
        what = f"{nothing} of load, cache or requests; was it cut, or the log level raised?"
        error = f"{source.name}: {chosen.title}, but {what}"
    return Outcome(source, chosen, account, _one_line(error) if error else None)


def _printed(source: Source, chosen: Format, account: Account) -> str | None:
    """What a file is of which a line or two looked like a log's, where it is what a benchmark or a script printed."""
    if account.used or account.error is not None:
        return None
    head = source.head()
    return parsers.console_of(head) or parsers.script_of(head, chosen)


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """Each file below `path` (or `path` itself) with its name relative to the folder given."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; check the path")
    if not path.is_dir():
        yield path, path.name
        return
    closed: list[OSError] = []
    for folder, subfolders, names in os.walk(path, onerror=closed.append):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                file = Path(folder, name)
                yield file, file.relative_to(path).as_posix()
    for fault in closed:
        folder = Path(fault.filename)
        if folder == path:
            raise InputError(f"{path}: cannot be opened ({fault.strerror}); check its permissions")
        yield folder, folder.relative_to(path).as_posix()  # said when it is read


def _unique(name: str, given: Path, *, taken: dict[str, Source]) -> str:
    """`name` without its compression suffix; where that is taken, below its folder's name; where that is too, numbered."""
    bare = name
    for suffix in COMPRESSED_SUFFIXES:
        bare = bare.removesuffix(suffix)
    parent = _spoken(given.resolve().name if given.is_dir() else given.resolve().parent.name)
    candidates = [bare, f"{parent}/{bare}"]
    return next((each for each in candidates if each not in taken), None) or next(
        f"{bare} ({number})" for number in range(2, len(taken) + 3) if f"{bare} ({number})" not in taken
    )


def _digest(source: Source) -> bytes:
    """Hash of the whole content; of what can be read of it where it is damaged."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with source.open() as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    except InputError as error:
        digest.update(str(error).encode())
    return digest.digest()


def _move(made: Path, target: Path, table: str) -> None:
    """Bring a table made elsewhere to `target`; one that got no row is written empty."""
    if made.exists():
        made.replace(target)
    else:
        pq.write_table(schema(table).empty_table(), target)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _spoken(path: str) -> str:
    """A path as text that can be written: file systems take bytes that are no characters."""
    return os.fsencode(path).decode("utf-8", "replace")


def _one_line(message: object) -> str:
    return " ".join(str(message).split())
