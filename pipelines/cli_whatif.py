"""`kvpressure whatif`: a question in, a page of text or JSON out. What a replay is and tells: `pipelines.replay.whatif`."""

from __future__ import annotations

import json
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from parsers import InputError
from pipelines import publish
from pipelines.analysis import build
from pipelines.charts.language import count
from pipelines.duck import connect
from pipelines.intake import read
from pipelines.lake import Lake
from pipelines.models import Run, leading_to, view
from pipelines.nearest import meant
from pipelines.replay import recorded
from pipelines.replay.engines import COUNTED, LEVERS
from pipelines.replay.levers import FIGURES, LeverError
from pipelines.replay.whatif import (
    COUNTS,
    MORE_IS_BETTER,
    Model,
    Prediction,
    Told,
    WhatIf,
    current_value,
    is_met,
    meets,
    smallest_change,
    swept,
)
from pipelines.replay.window import Part, part_of
from pipelines.sqlshell import open_read_only
from pipelines.texttable import aligned, printable

Tell = Callable[[str], object]
COLUMNS = 80
A_RUN = Run("run")
STEPS = "staging.iteration_steps"
WANTED = (*recorded.READS, STEPS, "core.engine_setups", "advice.verdicts")  # the main verdict says which part is replayed
SWEPT_FIGURES = ("preemptions", "duration_s", "output_tokens_per_s", "ttft_p50_ms", "itl_p99_ms")


@dataclass(frozen=True)
class Question:
    """What is asked: settings to change, one to sweep, a figure to reach."""

    changes: dict[str, str]
    sweep: tuple[str, int, int] | None
    target: tuple[str, float] | None


@dataclass(frozen=True)
class Answer:
    """What the replays said. `curve` is the sweep, value by value; `found` the smallest change that reaches the target."""

    what_if: WhatIf
    before: Prediction
    after: Prediction | None
    notes: tuple[str, ...]
    curve: dict[int, Prediction]
    found: int | None


def question(sets: Sequence[str], sweep: str | None, target: str | None) -> Question:
    """The words of the command line as a question. LeverError where they are none."""
    changes = dict(_pair("--set", each) for each in sets)
    for name in changes:
        _known("--set", name, LEVERS)
    asked = None
    if sweep is not None:
        name, value = _pair("--sweep", sweep)
        _known("--sweep", name, COUNTED)
        if not (match := re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", value)) or not 1 <= int(match[1]) <= int(match[2]):
            raise LeverError(f"--sweep {name}={value}: not a range of whole numbers; write it as {name}=4..64")
        asked = (name, int(match[1]), int(match[2]))
    reach = None
    if target is not None:
        name, value = _pair("--target", target)
        _known("--target", name, FIGURES)
        if not re.fullmatch(r"\d{1,12}(\.\d{1,9})?", value):
            raise LeverError(f"--target {name}={value}: not a number")
        reach = (name, float(value))
    if not changes and asked is None and reach is not None:
        raise LeverError(
            f"--target {target}: say with --sweep NAME=LOW..HIGH what may be changed to reach it, "
            "such as --sweep max_num_seqs=4..64"
        )
    if not changes and asked is None:
        raise LeverError("nothing asked: give --set NAME=VALUE or --sweep NAME=LOW..HIGH")
    return Question(changes, asked, reach)


def answer(paths: Sequence[Path], asked: Question, *, tell: Tell = lambda _: None) -> Answer:
    """Replay the run at `paths` as asked. NotReplayableError where nothing would hold, LeverError where the question is none."""
    what_if = WhatIf.of(recording(paths, tell=tell))
    after, notes = None, ()
    if asked.changes:
        tell("replaying the change")
        after, notes = what_if.predict(asked.changes)
    curve: dict[int, Prediction] = {}
    found = None
    if asked.sweep:
        name, low, high = asked.sweep
        current = current_value(what_if, name)

        def ask(value: int) -> Prediction:
            tell(f"replaying {name}={value}")
            return what_if.predict(asked.changes | {name: str(value)})[0]

        curve = {value: ask(value) for value in swept(low, high, current)}
        if asked.target:
            found = smallest_change(ask, curve, current if current is not None else low, *asked.target)
            if found is not None and found not in curve:
                curve = dict(sorted((curve | {found: ask(found)}).items()))
    return Answer(what_if, what_if.recorded(), after, notes, curve, found)


def recording(paths: Sequence[Path], run: Run = A_RUN, *, tell: Tell = lambda _: None) -> recorded.Recording:
    """The run of an analysis folder, or of inputs, which are analyzed first."""
    analyses = [path for path in paths if (path / publish.DATABASE).is_file() or path.name == publish.DATABASE]
    if analyses and len(paths) > 1:
        raise LeverError(
            f"{printable(str(analyses[0]))} is an analysis, and {len(paths)} paths are given: whatif replays one run; give one "
            "output folder of analyze or the inputs of one run (compare takes two)"
        )
    if analyses:
        return _kept(analyses[0])
    with tempfile.TemporaryDirectory(prefix="kvpressure-") as folder:
        lake, database = _analyzed(paths, run, Path(folder) / "whole", tell)
        with _open(database) as con:
            part = _setup(con) or _part(con)
            if part is None:
                return recorded.read(recorded.of_analysis(con), _steps(lake))
        tell("reading the part to be replayed")
        cut = replace(run, since=part.since.isoformat(), until=part.until.isoformat())
        lake, database = _analyzed(paths, cut, Path(folder) / "part", tell)
        with _open(database) as con:
            found = recorded.read(recorded.of_analysis(con), _steps(lake))
        return replace(found, assumed=(*found.assumed, part.told(found.requests)))


def _kept(analysis: Path) -> recorded.Recording:
    """The run of an output folder of analyze. InputError where another version made it, of tables that have changed since."""
    database = analysis if analysis.is_file() else analysis / publish.DATABASE
    with open_read_only(analysis) as con:
        try:
            if part := _part(con):
                raise recorded.NotReplayableError(
                    f"{part.of:,} requests are more than the {part.requests:,} that a replay takes; give the inputs instead of "
                    "the analysis, and the part around the main verdict is replayed, or analyze with --since and --until"
                )
            return recorded.read(recorded.of_analysis(con))
        except (duckdb.CatalogException, duckdb.BinderException, pl.exceptions.ColumnNotFoundError) as error:
            raise InputError(f"{database}: made by another version of kvpressure; analyze its inputs again") from error


def _analyzed(paths: Sequence[Path], run: Run, folder: Path, tell: Tell) -> tuple[Lake, Path]:
    """The inputs, analyzed: lake and database."""
    lake = Lake.of(folder / "lake", run=run.name)
    read(paths, lake, tell=tell).require_any()
    build(lake, run, wanted=leading_to(WANTED), database=folder / publish.DATABASE, tell=tell)
    return lake, folder / publish.DATABASE


@contextmanager
def _open(database: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(database), read_only=True) as con:
        con.execute("set timezone = 'UTC'")
        yield con


MAIN = """
    select engine, verdict, window_start, window_end
    from verdicts
    where is_primary and window_start is not null
    order by severity desc, engine
    limit 1
"""


def _part(con: duckdb.DuckDBPyConnection) -> Part | None:
    """The part of a run that is replayed, where it is too long to be replayed whole."""
    main = con.sql(MAIN).fetchall()
    return part_of(_sent(con), *main[0][1:]) if main else None


def _setup(con: duckdb.DuckDBPyConnection) -> Part | None:
    """The part in which the main verdict's settings held, or what can be replayed of it, where a restart changed them."""
    found = con.sql(f"""
        select verdict, window_start, window_end, coalesce(setup_start, first_seen_at), coalesce(setup_end, last_seen_at)
        from ({MAIN})
        inner join core.engines using (engine)
        inner join core.engine_setups as setups using (engine)
        where engines.was_set_up_anew
            and window_start >= coalesce(setup_start, first_seen_at)
            and window_start < coalesce(setup_end, last_seen_at)
    """).fetchall()
    if not found:
        return None
    *main, since, until = found[0]
    sent = _sent(con)
    inside = [at for at in sent if since <= at < until]
    return part_of(inside, *main) or Part(since, until, main[0], len(inside), len(sent))


def _sent(con: duckdb.DuckDBPyConnection) -> list[datetime]:
    """When the requests were sent, in order."""
    sent = con.sql("select arrived_at from core.requests where arrived_at is not null order by arrived_at").fetchall()
    return [at for (at,) in sent]


def _steps(lake: Lake) -> pl.DataFrame:
    """Iteration lines as steps; only inputs have them, an analysis keeps what follows from them."""
    with connect() as con:
        view(STEPS, lake=lake, con=con)
        return con.sql(f"""
            select context_tokens as prompt_tokens, generation_tokens as generated_tokens, elapsed_ms / 1000 as seconds
            from {STEPS}
            where elapsed_ms > 0 and context_tokens + generation_tokens > 0
            order by stepped_at, iteration
        """).pl()


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise LeverError(f"{option} {printable(text)}: write it as NAME=VALUE")
    return name.strip().replace("-", "_"), value.strip()


def _known(option: str, name: str, names: Sequence[str] | dict[str, Any]) -> None:
    if name not in names:
        listed = f"one of {', '.join(names)}"
        raise LeverError(f"{option} {printable(name)}: not known; {meant(name, names, listed)}")


# text


def text(asked: Question, told: Answer) -> str:
    """The answer on a page of 80 columns."""
    recording = told.what_if.model.recording
    parts = [_paragraph(_load(told.what_if.model)), *(_paragraph(f"Note: {each}.") for each in recording.assumed)]
    parts.append(_check_table(told.what_if))
    if told.after:
        title = ", ".join(f"{name}={value}" for name, value in asked.changes.items())
        parts += [_change_table(title, told.before, told.after), *(_paragraph(f"Note: {each}.") for each in told.notes)]
        parts.append(_paragraph(f"What limits: {_limit(told, told.before)} before, {_limit(told, told.after)} after."))
        if asked.target and not asked.sweep:
            outcome = "met" if meets(told.after, *asked.target) else "not met"
            parts.append(_paragraph(f"Target {_target(asked.target)}: {outcome}."))
    if asked.sweep:
        parts.append(_curve_table(asked.sweep[0], told, asked.target))
        if asked.target:
            parts.append(_paragraph(_found(asked.sweep, asked.target, told)))
    return "\n".join(parts)


def _paragraph(words: str) -> str:
    return textwrap.fill(words, COLUMNS) + "\n"


def _load(model: Model) -> str:
    recording = model.recording
    clients = [client for episode in recording.episodes for client in episode]
    closed = [client.concurrency for client in clients if client.concurrency]
    kinds = []
    if closed:
        kinds.append(f"{len(closed)} that keep{'s' if len(closed) == 1 else ''} {_list(closed)} in flight")
    if len(closed) < len(clients):
        kinds.append(f"{len(clients) - len(closed)} that send{'s' if len(clients) - len(closed) == 1 else ''} by the clock")
    step = model.step_time()
    return (
        f"Replayed: {recording.requests} requests of {len(clients)} client{'' if len(clients) == 1 else 's'} "
        f"({'; '.join(kinds)}). A step takes {1e3 * step.base:.2f} ms, {1e6 * step.computed:.1f} us a token computed, "
        f"{1e6 * step.generated:.0f} us a token generated and {1e6 * step.context:.2f} us a token of context, "
        f"by {recording.calibration.method}; "
        f"stretches lie {recording.calibration.residual:.0%} off that."
    )


def _list(values: Sequence[int]) -> str:
    return ", ".join(str(each) for each in sorted(set(values)))


def _check_table(what_if: WhatIf) -> str:
    rows = [
        [each.name, _value(each.name, each.recorded), _value(each.name, each.replayed), f"{each.miss:.0%}"]
        for each in what_if.checks
    ]
    checked = {each.name for each in what_if.checks}
    rows += [[name, "not told", _value(name, what_if.before.mean(name)), ""] for name in COUNTS if name not in checked]
    return "The run itself, replayed: what it misses is in every interval below.\n" + aligned(
        ["", "recorded", "replayed", "off"], rows, numeric=[False, True, True, True]
    )


def _change_table(title: str, before: Prediction, after: Prediction) -> str:
    rows = []
    for name in FIGURES:
        was, will_be = before.figures[name], after.figures[name]
        rows.append([name, _value(name, was.best), _value(name, will_be.best), _interval(name, will_be)])
    return (
        textwrap.fill(f"With {title}; before is the run as replayed, too, so that what differs is the change:", COLUMNS)
        + "\n"
        + aligned(["", "before", "after", "interval"], rows, numeric=[False, True, True, True])
    )


def _curve_table(name: str, told: Answer, target: tuple[str, float] | None) -> str:
    shown = SWEPT_FIGURES
    if target and target[0] not in shown:
        shown = (*shown[:-1], target[0])
    rows = [
        [str(value), *(_value(figure, each.figures[figure].best) for figure in shown), each.limit or "-"]
        for value, each in told.curve.items()
    ]
    header = ["", *(figure.removeprefix("output_") for figure in shown), "limit"]
    return f"Swept {name}:\n" + aligned(header, rows, numeric=[True] * (len(shown) + 1))


def _found(sweep: tuple[str, int, int], target: tuple[str, float], told: Answer) -> str:
    name, low, high = sweep
    if told.found is None:
        return f"Target {_target(target)}: not met anywhere from {name}={low} to {high}."
    best = told.curve[told.found]
    recording = told.what_if.model.recording
    now = recording.model.value_of(recording.scenario, name, recording.facts)
    figure = best.figures[target[0]]
    met = f"{target[0]} {_value(target[0], figure.best)} ({_interval(target[0], figure)})"
    if str(told.found) == str(now):
        return f"Target {_target(target)}: met as it is, replayed, with {met}." + _not_as_recorded(target, told.what_if)
    return (
        f"Target {_target(target)}: the smallest change that meets it is {name}={told.found}"
        f"{f' (now {now})' if now else ''}, with {met}. Then {_limit(told, best)} limits."
    )


def _not_as_recorded(target: tuple[str, float], what_if: WhatIf) -> str:
    """What is said where the replay of a run meets a target that the run itself missed."""
    recorded = next((each.recorded for each in what_if.checks if each.name == target[0]), None)
    if recorded is None or is_met(recorded, *target):
        return ""
    return (
        f" As recorded it was not, with {_value(target[0], recorded)}: the target lies within what the replay misses. "
        "Ask for a stricter one."
    )


def _target(target: tuple[str, float]) -> str:
    return f"{target[0]} {'>=' if target[0] in MORE_IS_BETTER else '<='} {target[1]:g}"


def _limit(told: Answer, prediction: Prediction) -> str:
    limit, words = prediction.limit, told.what_if.model.recording.model.limits
    return f"{words[limit]} ({prediction.waiting_s[limit]:.1f} s of waiting)" if limit else "nothing that requests wait for"


def _value(name: str, value: float) -> str:
    if name in COUNTS or value >= 1000:
        return count(value)
    return f"{value:.1f}"


def _interval(name: str, told: Told) -> str:
    return f"{_value(name, told.low)} to {_value(name, told.high)}"


# json


def as_json(asked: Question, told: Answer) -> str:
    """The answer as one JSON object."""
    recording = told.what_if.model.recording
    calibration = recording.calibration
    step_time = told.what_if.model.step_time()
    return _json(
        {
            "question": {
                "set": asked.changes,
                "sweep": asked.sweep and {"setting": asked.sweep[0], "low": asked.sweep[1], "high": asked.sweep[2]},
                "target": asked.target and {"figure": asked.target[0], "value": asked.target[1]},
            },
            "reason": None,
            "engine_model": recording.model.name,
            "load": {
                "requests": recording.requests,
                "clients": [
                    {"requests": len(client.records), "concurrency": client.concurrency}
                    for episode in recording.episodes
                    for client in episode
                ],
                "alike_prompts_told_by": recording.told_by,
            },
            "step_time": {
                "base_ms": 1e3 * step_time.base,
                "computed_token_ms": 1e3 * step_time.computed,
                "generated_token_ms": 1e3 * step_time.generated,
                "context_token_ms": 1e3 * step_time.context,
                "method": calibration.method,
                "residual": calibration.residual,
                "scale": told.what_if.model.scale,
            },
            "assumed": list(recording.assumed),
            "self_check": [vars(each) for each in told.what_if.checks],
            "recorded": {name: vars(each) for name, each in recording.measured.items()},
            "before": _prediction(told.before),
            "after": told.after and _prediction(told.after),
            "notes": list(told.notes),
            "curve": [{"value": value, **_prediction(each)} for value, each in told.curve.items()],
            "smallest_change": told.found,
        }
    )


def refusal(asked: Question, reason: str) -> str:
    """The JSON object of a run that gets no prediction."""
    return _json({"question": {"set": asked.changes}, "reason": reason, "before": None, "after": None, "curve": []})


def _prediction(each: Prediction) -> dict[str, Any]:
    return {
        "figures": {name: vars(told) for name, told in each.figures.items()},
        "waiting_s": each.waiting_s,
        "limit": each.limit,
        "peak_kv_usage_ratio": each.peak_usage,
        "peak_running": each.peak_running,
    }


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
