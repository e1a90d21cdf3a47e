"""The command line: arguments in, exit status out, and every error in one line on stderr.

What can be given is in `pipelines.cli_arguments`, what a command does in `pipelines.cli_commands`. Exit status: 0 done,
1 `--fail-on` tripped, 2 the call or the input was wrong.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from pipelines.cli_arguments import build_parser
from pipelines.cli_commands import DONE, WRONG, CallError
from pipelines.texttable import printable

QUERY_INTERRUPTED = "Query interrupted"  # what DuckDB makes of Ctrl-C while it runs a statement


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    arguments = build_parser().parse_args(argv)
    from parsers.source import InputError  # two tenths of a second, that `--help` does without

    signal.signal(signal.SIGTERM, _leave)
    try:
        return arguments.command(arguments)
    except (InputError, CallError) as error:
        return _wrong(str(error))
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - whoever read the output has gone; nothing to say to them
        return DONE
    except OSError as error:
        what = os.strerror(error.errno) if error.errno else str(error)  # Arrow tells more, and no name
        return _wrong(f"{error.filename or 'output'}: {what.lower()}; check the path and the free space")
    except KeyboardInterrupt:
        return _wrong("interrupted; nothing was written")
    except RuntimeError as error:
        if str(error) != QUERY_INTERRUPTED:
            raise
        return _wrong("interrupted; nothing was written")


def _wrong(message: str) -> int:
    print(f"kvpressure: {printable(message)}", file=sys.stderr)
    return WRONG


def _leave(*_: object) -> NoReturn:
    """Leave in order, so that the working folder is taken away."""
    sys.exit(_wrong("ended from outside; nothing was written"))


if __name__ == "__main__":
    sys.exit(main())
