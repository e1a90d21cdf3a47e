"""What a result was made of, kept beside it, so that the same again is reported from what is there.

    <out>/origin.json       hash of each input, the options, what made it, and the hash of each file of the result; written last

A result is taken for what it says only where every input, option and byte of the program is that of its origin, and every file of
it has the hash it was written with: one that was cut, touched or half replaced is made anew. A changed input makes it all anew,
for what an analysis says rests on all of them together; over many days it is `pipelines.contents` that reads each file once.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from stat import S_ISREG
from threading import Thread
from typing import Any

from parsers import Source
from parsers.rotated import RotatedSource
from pipelines.contents import source_hash
from pipelines.models import Run
from pipelines.publish import ORIGIN, artefacts

MADE_BY = (
    "altair",
    "duckdb",
    "polars",
    "pyarrow",
    "sqlglot",
    "tzdata",
    "vl-convert-python",
    "zstandard",
)  # besides our own source
SCHEMA_VERSION = 1
PIECE_BYTES = 1 << 20

Origin = dict[str, Any]


@dataclass(frozen=True)
class Input:
    """A file as it was before anything was read of it; None for the size of one that is no plain file, such as a pipe."""

    source: str
    given: str
    path: Path
    size: int | None


def inputs(sources: Iterable[Source]) -> list[Input]:
    """The files of an analysis that is about to begin."""
    parts = [(source, [*source.earlier, source] if isinstance(source, RotatedSource) else [source]) for source in sources]
    return [Input(source.name, part.given, part.path, _size(part.path)) for source, of_source in parts for part in of_source]


def of(inputs: Iterable[Input], run: Run, *, anonymize: bool, has_report: bool) -> Origin | None:
    """The origin of a result that is made of these; None where an input cannot be told to be the same again."""
    told_inputs = []
    for each in inputs:
        content = _hash_of_input(each)
        if content is None:
            return None
        told_inputs.append({"source": each.source, "path": each.given, "content": content})
    options = asdict(run) | {"anonymize": anonymize, "has_report": has_report}
    told = {"schema_version": SCHEMA_VERSION, "code": code_version(), "options": options, "inputs": told_inputs}
    return json.loads(json.dumps(told))


def begin(inputs: Sequence[Input], run: Run, *, anonymize: bool, has_report: bool) -> Callable[[], Origin | None]:
    """`of`, told when it is asked for: looked for meanwhile, while the inputs are read, and given up where the process ends.

    An input that grows is taken as it was at first, so that the next look finds it changed.
    """
    found: Future[Origin | None] = Future()

    def look() -> None:
        try:
            found.set_result(of(inputs, run, anonymize=anonymize, has_report=has_report))
        except BaseException as fault:  # noqa: BLE001 - raised where it is asked for
            found.set_exception(fault)

    Thread(target=look, daemon=True).start()
    return found.result


def written(origin: Origin, folder: Path, *, rows: Mapping[str, int], unread: Iterable[str]) -> None:
    """Put the origin beside the files of a result in the folder, with what they are and what was said of the inputs."""
    files = {name: _hash(folder / name) for name in artefacts(folder)}
    told = origin | {"rows": dict(rows), "unread": list(unread), "files": files}
    told["origin"] = _hash_of(told)
    (folder / ORIGIN).write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def kept(origin: Origin, out: Path) -> Origin | None:
    """What the result in `out` says of itself, where it is of this origin and whole; else None."""
    with suppress(OSError, ValueError, AttributeError, KeyError, TypeError):  # not there, or cut, or of something else
        told = json.loads((out / ORIGIN).read_text(encoding="utf-8"))
        if told.pop("origin") == _hash_of(told) and all(told[key] == value for key, value in origin.items()):
            files = told["files"]
            if files and sorted(files) == artefacts(out) and all(_hash(out / name) == files[name] for name in files):
                return told
    return None


def made_of(database: Path) -> tuple[str, ...]:
    """Hashes that tell what an analysis was made of, in any order and by any name; its own, where no origin lies beside it."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads((database.parent / ORIGIN).read_text(encoding="utf-8"))
        return tuple(sorted(each["content"] for each in told["inputs"]))
    return (_hash(database),)


@cache
def code_version() -> str:
    """A hash of the program and of the libraries that a result depends on."""
    versions = [f"python {sys.version}"]
    for name in MADE_BY:
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    made_by = hashlib.blake2b("\n".join(versions).encode(), digest_size=8).hexdigest()
    return f"{source_hash(['parsers', 'sql', 'pipelines'])}-{made_by}"


def _size(path: Path) -> int | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size if S_ISREG(status.st_mode) else None


def _hash_of_input(each: Input) -> str | None:
    if each.size is None:
        return None
    digest, left = _digest(), each.size
    try:
        with each.path.open("rb") as file:
            while left and (piece := file.read(min(left, PIECE_BYTES))):
                digest.update(piece)
                left -= len(piece)
    except OSError:
        return None
    return digest.hexdigest()


def _hash_of(told: Origin) -> str:
    return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=16).hexdigest()


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, _digest).hexdigest()


def _digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=16)
