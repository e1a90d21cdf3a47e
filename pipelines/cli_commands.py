"""What each command does with its arguments: checks what they cannot say alone, calls the module that does it, prints the answer.

A command imports what only it needs, and none imports Dagster, so that `--help`, `sql` and `formats` answer at once. It returns
the exit status, and raises CallError where it cannot be carried out as asked.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from pipelines.progress import Progress
from pipelines.texttable import gathered, printable

DONE, FAIL_ON, WRONG = 0, 1, 2
FIRST_MIDNIGHT = timedelta(hours=14)  # before UTC, in the zone where a day begins first
FAIL_ON_SEVERITY = {"warning": 20, "critical": 60}  # of 100; below 20 a verdict is not worth a word


class CallError(Exception):
    """A call that cannot be carried out as given. One line: what, where, what to do."""


def analyze(arguments: argparse.Namespace) -> int:
    """Read the inputs of one run, and say what happened."""
    from pipelines import analysis, digest, piped, publish
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
    with Progress() as progress, piped.kept(arguments.paths, arguments.out, progress.tell) as given:
        paths = [*given, *_from_prometheus(arguments, since, until, progress.tell)]
        result = analysis.analyze(
            paths,
            arguments.out,
            run,
            anonymize=arguments.anonymize,
            has_report=not arguments.no_report,
            fresh=arguments.fresh,
            tell=progress.tell,
        )
    _say_each(result.unread)
    _say_among_inputs(arguments.paths, arguments.out)
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


def parse(arguments: argparse.Namespace) -> int:
    """Only read: raw tables, and what became of each line."""
    from pipelines import analysis, digest, piped

    _require_folder(arguments.out)
    with Progress() as progress, piped.kept(arguments.paths, arguments.out, progress.tell) as given:
        intake = analysis.parse_only(given, arguments.out, tell=progress.tell)
    print(digest.line_accounts(intake))
    print(digest.row_counts(intake, arguments.out))
    intake.require_any()
    _say_each(intake.unread)
    _say_among_inputs(arguments.paths, arguments.out)
    return DONE


def whatif(arguments: argparse.Namespace) -> int:
    """Replay a run under another setting."""
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


def compare(arguments: argparse.Namespace) -> int:
    """What changed between two runs."""
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
    _say_each(result.unread)
    return result.database


def daily(arguments: argparse.Namespace) -> int:
    """Bring the lake up to date."""
    from pipelines import cli_daily, config, day_inputs, fleet_report

    settings = config.load(arguments.config)
    last = (datetime.now(UTC) + FIRST_MIDNIGHT).date()
    if beyond := [day for day in arguments.day if day > last]:
        raise CallError(f"--day {min(beyond)}: that day has begun nowhere yet; give one up to {last}")
    engines = [settings.engine(name) for name in arguments.engine] or settings.fleet()
    if not engines:
        closed = [day_inputs.refused(folder) for entry in settings.engines for folder in settings.closed(entry)]
        why = closed[0] if closed else "no file matches any path of its [[engines]]; check the paths"
        raise CallError(f"{arguments.config}: {why}")
    days = cli_daily.days_of(settings, arguments.day, arguments.back)
    again = () if arguments.day else days[:-1]
    with Progress() as progress:
        report = cli_daily.run(settings, engines, days, again=again, fresh=arguments.fresh, tell=progress.tell)
    print("\n".join(report.lines()))
    if settings.store.exists(page := fleet_report.name_of(max(days))):
        print(f"Lake: {settings.store.url}\nReport: {settings.store.uri(page)}")
    _say_each(report.faults)
    if report.faults:
        return WRONG
    return FAIL_ON if arguments.fail_on and report.alerts else DONE


def sql(arguments: argparse.Namespace) -> int:
    """Answer queries over an analysis or a lake."""
    from pipelines import sqlprompt, sqlshell

    kind, output = arguments.format, arguments.output
    is_typed = arguments.query is None and sys.stdin.isatty()
    if is_typed and (output or kind == "parquet"):
        raise CallError("a prompt shows results and keeps none; give a query with -o FILE")
    try:
        if output:
            sqlshell.require_outside(output, arguments.dir)
            if kind is None:
                sqlshell.require_known(output)
        with sqlshell.open_read_only(arguments.dir) as con:
            if is_typed:
                sqlprompt.Prompt(con, kind).cmdloop()
            elif arguments.query is None:
                sqlprompt.answer_each(con, sys.stdin, kind=kind, output=output)
            else:
                sqlshell.answer(con, arguments.query, kind=kind, output=output)
    except sqlshell.QueryError as error:
        raise CallError(str(error)) from error
    return DONE


def record(arguments: argparse.Namespace) -> int:
    """Keep what a running engine emits."""
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


def formats(_: argparse.Namespace) -> int:
    """What is recognised."""
    from pipelines import digest

    print(digest.formats())
    return DONE


# what arguments mean


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
    if str(paths[0]) == "-":
        return "stdin"
    first = Path(os.path.realpath(paths[0]))
    return printable(first.name if first.is_dir() else first.name.split(".")[0] or first.name)


def _require_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise CallError(f"{out}: a file, not a folder; give --out a folder")


# words to the caller


def _say_each(lines: Iterable[str]) -> None:
    """Faults, each beginning with what it is about and a colon; what is the same of many is one line."""
    parts = (line.partition(": ") for line in lines)
    for name, sentence in gathered((name, sentence) for name, _, sentence in parts):
        _say(f"{name}: {sentence}")


def _say_among_inputs(paths: Iterable[Path], out: Path) -> None:
    """That the result lies among files that were named: asked for, and yet not what many expect of `--out .`."""
    if any(path.is_file() and path.resolve().parent == out.resolve() for path in paths):
        _say(f"{out}: the result lies there among the inputs; --out {out / 'result'} keeps them apart")


def _say(message: str) -> None:
    print(f"kvpressure: {printable(message)}", file=sys.stderr, flush=True)


def _has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _height(otherwise: int) -> int:
    """Lines that a terminal shows above its next prompt."""
    return max(20, shutil.get_terminal_size((80, otherwise)).lines - 2) if sys.stdout.isatty() else otherwise
