"""The command line: arguments in, exit status out, and every error in one line on stderr.

What can be given is in `pipelines.cli_arguments`, what a command does in `pipelines.cli_commands`. Exit status: 0 done,
1 `--fail-on` tripped, 2 the call or the input was wrong.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as `typing` has it, which takes time to import
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import TextIO


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status. What it needs is imported within, so that Ctrl-C meanwhile is one line, too."""
    left = "nothing was written"
    sys.stdout = sys.stdout or _nowhere()  # there is none where the caller closed it
    try:
        arguments = _understood(argv)
        left = arguments.left
        _load_undisturbed()
        return _carried_out(arguments)
    except KeyboardInterrupt:
        return _wrong(f"interrupted; {left}")
    except RuntimeError as error:
        from pipelines.duck import INTERRUPTED

        if str(error) != INTERRUPTED:
            raise
        return _wrong(f"interrupted; {left}")


def _understood(argv: Sequence[str] | None) -> argparse.Namespace:
    from pipelines.cli_arguments import build_parser

    try:
        return build_parser().parse_args(argv)
    except SystemExit:  # of `--help`, whose reader may have gone
        _let_go_if_closed()
        raise


def _load_undisturbed() -> None:
    """Import what nearly every command needs; an interrupt waits for it: DuckDB, met by one as it starts, ends the process."""
    import signal

    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        import duckdb  # noqa: F401
        import pyarrow as pa  # noqa: F401 - two tenths of a second together, that `--help` does without
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


def _carried_out(arguments: argparse.Namespace) -> int:
    import signal

    from parsers.source import InputError
    from pipelines.cli_commands import DONE, CallError

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_wrong(f"ended from outside; {arguments.left}")))  # takes the work away
    try:
        status = arguments.command(arguments)
        sys.stdout.flush()  # here, where a fault is still told in one line: at exit, Python would have words of its own
    except (InputError, CallError) as error:
        return _wrong(str(error))
    except BrokenPipeError:
        _let_go_if_closed()
        return DONE
    except OSError as error:
        what = os.strerror(error.errno) if error.errno else str(error)  # Arrow tells more, and no name
        _let_go_if_closed()
        return _wrong(f"{error.filename or 'output'}: {what.lower()}; check the path and the free space")
    return status


def _let_go_if_closed() -> None:
    """Say no more to a reader who has gone, or to a full disk: what waits to be written would be a fault again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = _nowhere()


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - until the process ends


def _wrong(message: str) -> int:
    from pipelines.cli_commands import WRONG
    from pipelines.texttable import printable

    print(f"kvpressure: {printable(message)}", file=sys.stderr)
    return WRONG


if __name__ == "__main__":
    sys.exit(main())
