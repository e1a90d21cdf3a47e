"""The command line: arguments in, exit status out. What a command does is in the module it calls.

Heavy modules are imported inside the command that needs them, and Dagster by none, so that `--help`, `sql` and `formats` answer
at once. Exit status: 0 done, 1 `--fail-on` tripped, 2 the call or the input was wrong (one line on stderr).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pipelines.progress import Progress
from pipelines.replay.engines import COUNTED_BY_ENGINE, LEVERS_BY_ENGINE
from pipelines.replay.levers import FIGURES
from pipelines.texttable import printable

DONE, FAIL_ON, WRONG = 0, 1, 2
FAIL_ON_SEVERITY = {"warning": 20, "critical": 60}  # of 100; below 20 a verdict is not worth a word
QUERY_INTERRUPTED = "Query interrupted"  # what DuckDB makes of Ctrl-C while it runs a statement
SMALLEST_RECORDING = 10_000_000  # bytes
SQL_FORMATS = ("table", "csv", "json", "markdown", "parquet")


class CallError(Exception):
    """A call that cannot be carried out as given. One line: what, where, what to do."""


class _Parser(argparse.ArgumentParser):
    """Argument errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, f"kvpressure: {message}; see `{self.prog} --help`\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    from parsers.source import InputError  # a tenth of a second, spent only here

    arguments = build_parser().parse_args(argv)
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


def build_parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    parser = _Parser(
        prog="kvpressure",
        description="Tells KV-cache eviction, preemption and queueing apart in what an LLM inference server left behind.",
        epilog="Exit status: 0 done, 1 --fail-on tripped, 2 the call or the input was wrong.",
    )
    parser.add_argument("--version", action="version", version=f"kvpressure {version('kvpressure')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    analyze = _command(commands, "analyze", _analyze, "read logs, metrics and results of one run and say what happened")
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
        "--timezone", type=_zone, metavar="ZONE", help="zone of log stamps that name none, such as Europe/Berlin"
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
    analyze.add_argument("--anonymize", action="store_true", help="hide names, ids, hosts and paths in what is to be shown")
    analyze.add_argument("--name", type=_name, help="name of the run; the first input's where not given")

    parse = _command(commands, "parse", _parse, "only read: one Parquet file per raw table, and what became of each line")
    _add_inputs(parse)

    what_if = _command(commands, "whatif", _whatif, "replay the recorded requests under another setting")
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
        "--target", metavar="FIGURE=VALUE", help=f"what to reach, such as itl_p99_ms=100; one of {', '.join(FIGURES)}"
    )
    what_if.add_argument("--format", choices=("text", "json"), default="text", help="what to print")

    compare = _command(commands, "compare", _compare, "what one changed variable did, from two analyses or two inputs")
    compare.add_argument("before", type=Path, metavar="BEFORE", help="an output folder of analyze, or the inputs of a run")
    compare.add_argument("after", type=Path, metavar="AFTER", help="the same for the run after the change")
    compare.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the result goes; made where it is missing")
    compare.add_argument("--format", choices=("text", "json"), default="text", help="what to print; json is compare.json")
    compare.add_argument("--fail-on", choices=("regression",), help="exit 1 where a measure surely got worse by over 5 %%")

    _add_daily(commands)

    sql = _command(commands, "sql", _sql, "read-only SQL over an analysis or a lake; a prompt where no query is given")
    sql.add_argument("dir", metavar="DIR", help="an output folder of analyze, or a lake, also s3://BUCKET/PREFIX")
    sql.add_argument("query", nargs="?", help="one or more statements; the last one's result is shown")
    sql.add_argument("--format", choices=SQL_FORMATS, help="table where not given, or by the name of FILE")
    sql.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the result there")

    _add_record(commands)
    _command(commands, "formats", _formats, "what is recognised, and what each input can and cannot tell")
    return parser


def _add_record(commands: argparse._SubParsersAction) -> None:
    record = _command(commands, "record", _record, "keep what a running engine emits, until SIGTERM or Ctrl-C, for analyze")
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


def _add_daily(commands: argparse._SubParsersAction) -> None:
    daily = _command(commands, "daily", _daily, "bring the lake up to date with the files of each engine's day")
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


def _command(
    commands: argparse._SubParsersAction, name: str, run: Callable[[argparse.Namespace], int], what: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    parser.set_defaults(command=run)
    return parser


def _add_inputs(parser: argparse.ArgumentParser, at_least: str = "+") -> None:
    parser.add_argument(
        "paths", nargs=at_least, type=Path, metavar="PATH", help="files or folders, plain or .gz/.zst, in any mix"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the result goes; made where it is missing")


# commands


def _analyze(arguments: argparse.Namespace) -> int:
    from pipelines import analysis, digest, publish
    from pipelines.models import Run

    since, until = (_in_zone(moment, arguments.timezone) for moment in (arguments.since, arguments.until))
    if since and until and since >= until:
        raise CallError(f"--since {since} is not before --until {until}; swap them")
    if not arguments.paths and not arguments.prometheus:
        raise CallError("a PATH or --prometheus URL is required; see `kvpressure analyze --help`")
    if arguments.match and not arguments.prometheus:
        raise CallError("--match chooses among the series of --prometheus URL; give both")
    _require_folder(arguments.out)
    run = Run(
        name=arguments.name or _default_name(arguments.paths or [arguments.out]),
        timezone=arguments.timezone,
        since=since,
        until=until,
        gpu_cost_usd_per_hour=arguments.gpu_cost,
        target_ttft_s=arguments.ttft_target,
        target_gap_s=arguments.gap_target,
    )
    with Progress() as progress:
        paths = [*arguments.paths, *_from_prometheus(arguments, since, until, progress.tell)]
        result = analysis.analyze(
            paths,
            arguments.out,
            run,
            anonymize=arguments.anonymize,
            has_report=not arguments.no_report,
            fresh=arguments.fresh,
            tell=progress.tell,
        )
    _say_unread(result.unread)
    if result.is_unchanged:
        _say("unchanged: nothing made anew; --fresh makes it in any case")
    if arguments.benchmark_report:
        _write_benchmark_report(result.database, arguments.benchmark_report, anonymize=arguments.anonymize)
    if arguments.format == "json":
        sys.stdout.write((result.out / publish.SUMMARY).read_text())
    else:
        screen = {"colour": _has_colour(), "height": _height(digest.HEIGHT), "anonymize": arguments.anonymize}
        print(digest.text(result.database, report=result.report, **screen))
    limit = FAIL_ON_SEVERITY.get(arguments.fail_on)
    return FAIL_ON if limit is not None and digest.worst_severity(result.database) >= limit else DONE


def _write_benchmark_report(database: Path, file: Path, *, anonymize: bool) -> None:
    from pipelines import benchmark_report

    try:
        benchmark_report.write(database, file, anonymize=anonymize)
    except benchmark_report.NoClientResultError as error:
        raise CallError(str(error)) from None


def _from_prometheus(
    arguments: argparse.Namespace, since: str | None, until: str | None, tell: Callable[[str], object]
) -> list[Path]:
    """The folder with what a Prometheus server was asked for; none where none was named."""
    from pipelines import prometheus
    from pipelines.http_source import HttpError

    if not arguments.prometheus:
        return []
    if since is None:
        raise CallError("--prometheus needs --since TIME, the start of the run; --until is now where not given")
    end = datetime.fromisoformat(until) if until else datetime.now(UTC)
    into = arguments.out / prometheus.FOLDER
    try:
        question = prometheus.Question(arguments.prometheus, arguments.match or "", datetime.fromisoformat(since), end)
        fetched = prometheus.fetch(question, into, tell=tell)
    except (prometheus.PrometheusError, HttpError) as error:
        raise CallError(str(error)) from None
    return [fetched.folder]


def _parse(arguments: argparse.Namespace) -> int:
    from pipelines import analysis, digest

    _require_folder(arguments.out)
    with Progress() as progress:
        intake = analysis.parse_only(arguments.paths, arguments.out, tell=progress.tell)
    print(digest.line_accounts(intake))
    print(digest.row_counts(intake, arguments.out))
    intake.require_whole()
    _say_unread(intake.unread)
    return DONE


def _whatif(arguments: argparse.Namespace) -> int:
    from pipelines import cli_whatif
    from pipelines.replay.levers import LeverError
    from pipelines.replay.recorded import NotReplayableError

    try:
        question = cli_whatif.question(arguments.set, arguments.sweep, arguments.target)
        try:
            with Progress() as progress:
                answer = cli_whatif.answer(arguments.paths, question, tell=progress.tell)
        except NotReplayableError as reason:
            if arguments.format == "json":
                sys.stdout.write(cli_whatif.refusal(question, str(reason)))
                return WRONG
            raise CallError(f"no prediction: {reason}") from reason
    except LeverError as error:
        raise CallError(str(error)) from error
    sys.stdout.write((cli_whatif.as_json if arguments.format == "json" else cli_whatif.text)(question, answer))
    return DONE


def _compare(arguments: argparse.Namespace) -> int:
    from pipelines import compare, compare_sides, compare_words

    _require_folder(arguments.out)
    databases = [_analyzed(getattr(arguments, side), arguments.out / side) for side in ("before", "after")]
    comparison = compare.compare(*map(compare_sides.read_side, databases))
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "compare.json").write_text(compare_words.as_json(comparison), encoding="utf-8")
    (arguments.out / "compare.html").write_text(compare_words.page(comparison), encoding="utf-8")
    if arguments.format == "json":
        sys.stdout.write(compare_words.as_json(comparison))
    else:
        print(f"{compare_words.text(comparison)}\n\nPage: {arguments.out / 'compare.html'}")
    return FAIL_ON if arguments.fail_on and comparison.regressions else DONE


def _analyzed(path: Path, out: Path) -> Path:
    """The database of an analysis; where the path holds inputs instead, they are analyzed into `out` first."""
    from pipelines import analysis, publish
    from pipelines.models import Run

    if (path / publish.DATABASE).is_file():
        return path / publish.DATABASE
    if path.name.endswith(".duckdb") and path.is_file():
        return path
    with Progress() as progress:
        result = analysis.analyze([path], out, Run(name=_default_name([path])), tell=progress.tell)
    _say_unread(result.unread)
    return result.database


def _daily(arguments: argparse.Namespace) -> int:
    from pipelines import cli_daily, config, fleet_report

    settings = config.load(arguments.config)
    engines = [settings.engine(name) for name in arguments.engine] or settings.fleet()
    if not engines:
        raise CallError(f"{arguments.config}: no file matches any path of its [[engines]]; check the paths")
    days = cli_daily.days_of(settings, arguments.day, arguments.back)
    with Progress() as progress:
        report = cli_daily.run(settings, engines, days, fresh=arguments.fresh, tell=progress.tell)
    print("\n".join(report.lines()))
    if settings.store.exists(page := fleet_report.name_of(max(days))):
        print(f"Lake: {settings.store.url}\nReport: {settings.store.uri(page)}")
    for fault in report.faults:
        print(f"kvpressure: {printable(fault)}", file=sys.stderr)
    if report.faults:
        return WRONG
    return FAIL_ON if arguments.fail_on and report.alerts else DONE


def _sql(arguments: argparse.Namespace) -> int:
    from pipelines import sqlshell

    try:
        if arguments.output:
            sqlshell.require_outside(arguments.output, arguments.dir)
        with sqlshell.open_read_only(arguments.dir) as con:
            query = arguments.query if arguments.query is not None or sys.stdin.isatty() else sys.stdin.read()
            if query is None:
                sqlshell.Prompt(con).cmdloop()
            else:
                sqlshell.answer(con, query, kind=arguments.format, output=arguments.output)
    except sqlshell.QueryError as error:
        raise CallError(str(error)) from error
    return DONE


def _record(arguments: argparse.Namespace) -> int:
    from pipelines.http_source import HttpError
    from pipelines.record import recorder
    from pipelines.record.kv_stream import MissingLibraryError, NotAnEndpointError
    from pipelines.record.parts import FolderInUseError

    if not (arguments.metrics or arguments.kv_events or arguments.log):
        raise CallError("nothing to record; give --metrics http://HOST:PORT, --kv-events or --log")
    if len(arguments.kv_replay) > len(arguments.kv_events):
        raise CallError("more --kv-replay than --kv-events; give each replay socket after its publisher")
    if len(arguments.metrics) > 1 and (arguments.kv_events or arguments.log):
        raise CallError("several --metrics cannot share --kv-events or --log; run one recorder for each server")
    _require_folder(arguments.out)
    plan = recorder.Plan(
        metrics=tuple(arguments.metrics),
        kv_events=tuple(arguments.kv_events),
        kv_replay=tuple(arguments.kv_replay),
        log=arguments.log,
        interval_s=arguments.interval,
        max_bytes=arguments.max_bytes,
        duration_s=arguments.duration,
    )
    try:
        recorded = recorder.record(plan, arguments.out, _say)
    except (HttpError, MissingLibraryError, NotAnEndpointError, FolderInUseError) as error:
        raise CallError(str(error)) from None
    if not recorded:
        raise CallError(f"nothing came to record into {arguments.out}; is the engine running, and are the addresses right?")
    result = arguments.out.with_name(f"{arguments.out.name}-result")
    print(f"{recorded} in {arguments.out}\nkvpressure analyze {arguments.out} --out {result}")
    return DONE


def _formats(_: argparse.Namespace) -> int:
    from pipelines import digest

    print(digest.formats())
    return DONE


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
        return ZoneInfo(text).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(f"`{text}` is not a time zone; use a name such as Europe/Berlin or UTC") from None


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


def _in_zone(moment: datetime | None, zone: str | None) -> str | None:
    """A time in ISO 8601 with its offset; one that names none is in `--timezone`, or UTC."""
    if moment is None:
        return None
    known = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone) if zone else UTC)
    try:
        return known.astimezone(UTC).isoformat()
    except OverflowError:
        raise CallError(f"{moment.isoformat()} is outside the years 1 to 9999 in UTC; leave the option out") from None


def _default_name(paths: Sequence[Path]) -> str:
    """The first input's name: of the folder, or of the file without its suffixes."""
    first = Path(os.path.realpath(paths[0]))
    return printable(first.name if first.is_dir() else first.name.split(".")[0] or first.name)


def _require_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise CallError(f"{out}: a file, not a folder; give --out a folder")


# words to the caller


def _say_unread(lines: Iterable[str]) -> None:
    for line in lines:
        _say(line)


def _say(message: str) -> None:
    print(f"kvpressure: {printable(message)}", file=sys.stderr, flush=True)


def _wrong(message: str) -> int:
    print(f"kvpressure: {printable(message)}", file=sys.stderr)
    return WRONG


def _leave(*_: object) -> NoReturn:
    """Leave in order, so that the working folder is taken away."""
    sys.exit(_wrong("ended from outside; nothing was written"))


def _has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _height(otherwise: int) -> int:
    """Lines that a terminal shows above its next prompt."""
    return max(20, shutil.get_terminal_size((80, otherwise)).lines - 2) if sys.stdout.isatty() else otherwise


if __name__ == "__main__":
    sys.exit(main())
