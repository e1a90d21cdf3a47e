"""Standard input as an input: `kubectl logs POD | kvpressure analyze - --out DIR`.

An input is read more than once (what it is, what it says, whether it is the same again), and a pipe can be read once: so it is
kept in a file beside the result until the work is done. Its rows call it `stdin`, and its path is `-`, as it was given.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from parsers import InputError, Source
from pipelines.analysis import Tell, workplace

STDIN, NAME = Path("-"), "stdin"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Piped(Source):
    """What came through standard input, in a file of ours."""

    @property
    def given(self) -> str:
        """The path as it was given, which is not where it lies."""
        return str(STDIN)


@contextmanager
def kept(paths: Sequence[Path], out: Path, tell: Tell) -> Iterator[list[Path | Source]]:
    """The paths, with what comes through standard input in the place of `-`. InputError where nothing can come."""
    if STDIN not in paths:
        yield list(paths)
        return
    if paths.count(STDIN) > 1:
        raise InputError("-: standard input can be read once; give `-` once")
    if sys.stdin is None or sys.stdin.isatty():
        what = "closed" if sys.stdin is None else "a terminal"
        raise InputError(f"-: standard input is {what}; pipe a log or a metrics page into it, or give a file")
    with workplace(out, NAME) as folder:
        piped = Piped(folder / NAME, NAME)
        try:
            _keep(piped.path, tell)
        except OSError as error:
            error.filename = error.filename or str(out)  # of a write that failed it is not known
            raise
        yield [piped if path == STDIN else path for path in paths]


def _keep(file: Path, tell: Tell) -> None:
    size = 0
    pipe = sys.stdin.fileno()
    with file.open("wb") as kept_in:
        # a read may be taken up again after a signal, as libraries set it; to wait for something to read never is
        while select.select([pipe], [], []) and (chunk := os.read(pipe, CHUNK_BYTES)):
            size += kept_in.write(chunk)
            tell(f"reading standard input to its end, {size / 1e6:,.1f} MB")
