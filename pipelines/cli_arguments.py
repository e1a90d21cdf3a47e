"""The words of the command line: every command with its options, and what may be given for each.

A command names the function of `pipelines.cli_commands` that carries it out. What can be told of one value alone is told here, in
the type of its argument.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from pipelines import cli_commands
from pipelines.cli_commands import FAIL_ON_SEVERITY, WRONG
from pipelines.nearest import meant
from pipelines.replay.engines import COUNTED_BY_ENGINE, LEVERS_BY_ENGINE
from pipelines.replay.levers import FIGURES
from pipelines.zone import NoZoneError, zone_name

SMALLEST_RECORDING = 10_000_000  # bytes
SQL_FORMATS = ("table", "line", "csv", "json", "markdown", "parquet")


class _Parser(argparse.ArgumentParser):
    """Argument errors in one line. What begins like `-05:00` is a value, as a negative number is, and no option."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._negative_number_matcher = re.compile(r"-\d[\d:]*(?:\.\d+)?")

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, f"kvpressure: {message}; see `{self.prog} --help`\n")


class _CommandParser(_Parser):
    """The arguments of one command, options before, between or behind the others: `sql DIR --format csv "select 1"`."""

    _is_intermixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:  # pyright: ignore[reportIncompatibleMethodOverride] - of its overloads this is the one called
        """What argparse makes of them; it asks for this method once more while it sorts them."""
        if self._is_intermixing:
            return super().parse_known_args(args, namespace)
        self._require_known(args or ())
        self._is_intermixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixing = False

    def _require_known(self, words: Sequence[str]) -> None:
        """An error that names an option which there is not, before one that misses what it was to be."""
        options = {option for option in self._option_string_actions if option.startswith("--")}
        for word in takewhile(lambda each: each != "--", words):
            name = word.partition("=")[0]
            if name.startswith("--") and not re.search(r"\s", word) and not any(each.startswith(name) for each in options):
                self.error(f"no option {name}; {meant(name, options, 'these are its options: ' + ', '.join(sorted(options)))}")


def build_parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    parser = _Parser(
        prog="kvpressure",
        description="Tells KV-cache eviction, preemption and queueing apart in what an LLM inference server left behind.",
        epilog="Exit status: 0 done, 1 --fail-on tripped, 2 the call or the input was wrong.",
    )
    parser.add_argument("--version", action="version", version=f"kvpressure {version('kvpressure')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_CommandParser)

    _add_analyze(commands)
    _add_parse(commands)
    _add_whatif(commands)
    _add_compare(commands)
    _add_daily(commands)
    _add_sql(commands)
    _add_record(commands)
    _add_formats(commands)
    return parser


def _add_analyze(commands: argparse._SubParsersAction) -> None:
    analyze = _command(commands, cli_commands.analyze, "read logs, metrics and results of one run and say what happened")
    _add_inputs(analyze, at_least="*")
    analyze.add_argument(
        "--prometheus", metavar="URL", help="server to take the metrics from, of the time of --since and --until"
    )
    analyze.add_argument("--match", metavar="LABELS", help='which of its series, such as \'namespace="prod",pod=~"vllm-.*"\'')
    analyze.add_argument("--format", choices=("text", "json"), default="text", help="what to print; json is summary.json")
    analyze.add_argument(
        "--fail-on", choices=FAIL_ON_SEVERITY, help="exit 1 where a severity reaches 20 (warning) or 60 (critical)"
    )
    analyze.add_argument("--gpu-cost", type=_positive, metavar="USD_PER_HOUR", help="price of the GPUs of one engine")
    analyze.add_argument(
        "--timezone", type=_zone, metavar="ZONE", help="zone of log stamps that name none, such as Europe/Berlin or +05:30"
    )
    analyze.add_argument("--since", type=_moment, metavar="TIME", help="leave out what came before, such as 2026-01-31T12:00")
    analyze.add_argument("--until", type=_moment, metavar="TIME", help="leave out what came after")
    analyze.add_argument(
        "--ttft-target", type=_seconds, metavar="SECONDS", help="time to first token that a sweep is judged by (2)"
    )
    analyze.add_argument("--gap-target", type=_seconds, metavar="SECONDS", help="longest pause that a sweep is judged by (2)")
    analyze.add_argument(
        "--benchmark-report",
        type=Path,
        metavar="FILE",
        help="also write the clients' results as llm-d Benchmark Reports (YAML)",
    )
    analyze.add_argument("--no-report", action="store_true", help="draw nothing: only the tables and summary.json")
    analyze.add_argument("--fresh", action="store_true", help="make it anew, also where a result of the same inputs is there")
    analyze.add_argument(
        "--anonymize",
        action="store_true",
        help="hide names, ids, hosts and paths in what is to be shown; summary.json, database and tables keep them",
    )
    analyze.add_argument("--name", type=_name, help="name of the run; the first input's where not given")


def _add_parse(commands: argparse._SubParsersAction) -> None:
    parse = _command(commands, cli_commands.parse, "only read: one Parquet file per raw table, and what became of each line")
    _add_inputs(parse)


def _add_whatif(commands: argparse._SubParsersAction) -> None:
    what_if = _command(commands, cli_commands.whatif, "replay the recorded requests under another setting")
    what_if.add_argument("paths", nargs="+", type=Path, metavar="DIR", help="an output folder of analyze, or inputs")
    what_if.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"setting to change, such as max_num_seqs=16; may be repeated; {LEVERS_BY_ENGINE}",
    )
    what_if.add_argument(
        "--sweep",
        metavar="NAME=LOW..HIGH",
        help=f"setting to try over a range, such as max_num_seqs=4..64; {COUNTED_BY_ENGINE}",
    )
    what_if.add_argument(
        "--target",
        metavar="FIGURE=VALUE",
        help=f"what to reach with --sweep, or to hold --set against, such as itl_p99_ms=100; one of {', '.join(FIGURES)}",
    )
    what_if.add_argument("--format", choices=("text", "json"), default="text", help="what to print")


def _add_compare(commands: argparse._SubParsersAction) -> None:
    compare = _command(commands, cli_commands.compare, "what one changed variable did, from two analyses or two inputs")
    compare.add_argument("before", type=Path, metavar="BEFORE", help="an output folder of analyze, or the inputs of a run")
    compare.set_defaults(left="no comparison was written")
    compare.add_argument("after", type=Path, metavar="AFTER", help="the same for the run after the change")
    compare.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the result goes; made where it is missing")
    compare.add_argument("--format", choices=("text", "json"), default="text", help="what to print; json is compare.json")
    compare.add_argument("--fail-on", choices=("regression",), help="exit 1 where a measure surely got worse by over 5 %%")


def _add_daily(commands: argparse._SubParsersAction) -> None:
    daily = _command(commands, cli_commands.daily, "bring the lake up to date with the files of each engine's day")
    daily.set_defaults(left="the days that were finished are in the lake, the next call makes the others")
    daily.add_argument("--config", type=Path, default=Path("kvpressure.toml"), metavar="FILE", help="kvpressure.toml")
    daily.add_argument(
        "--day", type=_day, action="append", default=[], help="day to bring up to date; may be repeated; yesterday"
    )
    daily.add_argument(
        "--back", type=int, default=2, metavar="DAYS", help="days before yesterday to look at again for late files (2)"
    )
    daily.add_argument("--engine", action="append", default=[], metavar="NAME", help="only this engine; may be repeated")
    daily.add_argument("--fresh", action="store_true", help="make the days anew, from the files that are there")
    daily.add_argument("--fail-on", choices=("alert",), help="exit 1 where a check of a day does not hold")


def _add_sql(commands: argparse._SubParsersAction) -> None:
    sql = _command(commands, cli_commands.sql, "read-only SQL over an analysis or a lake; a prompt where no query is given")
    sql.add_argument("dir", metavar="DIR", help="an output folder of analyze, or a lake, also s3://BUCKET/PREFIX")
    sql.add_argument(
        "query",
        nargs="?",
        help="one or more statements, the last one's result is shown; or `.tables`, `.schema TABLE`. Without it, lines are taken "
        "as they are typed or piped in: statements that end with `;`, and dot commands, which `.help` lists",
    )
    sql.add_argument(
        "--format",
        choices=SQL_FORMATS,
        help="line has a line for each column, as psql's \\x. Where not given, by the name of FILE, or a table, and line on a "
        "terminal that is too narrow for it",
    )
    sql.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the result there: .csv, .json, .md, .parquet or .txt"
    )


def _add_record(commands: argparse._SubParsersAction) -> None:
    record = _command(commands, cli_commands.record, "keep what a running engine emits, until SIGTERM or Ctrl-C, for analyze")
    record.add_argument(
        "--metrics", action="append", default=[], metavar="URL", help="page to scrape, such as http://localhost:8000; repeatable"
    )
    record.add_argument(
        "--kv-events",
        action="append",
        default=[],
        metavar="ENDPOINT",
        help="ZMQ publisher, such as tcp://localhost:5557; repeatable",
    )
    record.add_argument(
        "--kv-replay", action="append", default=[], metavar="ENDPOINT", help="its replay socket, to fill holes; in the same order"
    )
    record.add_argument("--log", type=Path, metavar="FILE", help="log of the engine, followed across rotation")
    record.add_argument("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="between scrapes (1)")
    record.add_argument("--max-bytes", type=_size, default="2GB", metavar="SIZE", help="of the disk; the oldest goes first (2GB)")
    record.add_argument("--duration", type=_seconds, metavar="SECONDS", help="stop by itself after that")
    record.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where the recording goes; added to where it exists"
    )


def _add_formats(commands: argparse._SubParsersAction) -> None:
    _command(commands, cli_commands.formats, "what is recognised, and what each input can and cannot tell")


def _command(
    commands: argparse._SubParsersAction, run: Callable[[argparse.Namespace], int], what: str
) -> argparse.ArgumentParser:
    """A command, called as the function that carries it out; and what there is `left` where that is interrupted."""
    parser = commands.add_parser(run.__name__, help=what, description=f"{what[0].upper()}{what[1:]}.")
    parser.set_defaults(command=run, left="nothing was written")
    return parser


def _add_inputs(parser: argparse.ArgumentParser, at_least: str = "+") -> None:
    parser.add_argument(
        "paths",
        nargs=at_least,
        type=Path,
        metavar="PATH",
        help="files or folders, plain or .gz/.zst, in any mix; - is standard input",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the result goes; made where it is missing")


# values of arguments


def _positive(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (value := float(text)) < float("inf"):
            return value
    raise argparse.ArgumentTypeError(f"`{text}` is not a price above 0")


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (value := float(text)) < float("inf"):
            return value
    raise argparse.ArgumentTypeError(f"`{text}` is not a number of seconds above 0")


def _size(text: str) -> int:
    """Bytes; 500MB and 2GB are such sizes, too."""
    found = re.fullmatch(r"(\d+)\s*([KMGT]?)B?", text.strip(), re.IGNORECASE)
    size = int(found[1]) * 1000 ** " KMGT".index(found[2].upper() or " ") if found else 0
    if size < SMALLEST_RECORDING:
        raise argparse.ArgumentTypeError(f"`{text}` is not a size of 10MB or more; write it as 500MB or 2GB")
    return size


def _zone(text: str) -> str:
    try:
        return zone_name(text)
    except NoZoneError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is not an ISO 8601 time; write it as 2026-01-31T12:00:00+01:00") from None


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is not a day; write it as 2026-01-31") from None


def _name(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise argparse.ArgumentTypeError("a run's name has at least one character, all of them printable")
    return text.strip()
