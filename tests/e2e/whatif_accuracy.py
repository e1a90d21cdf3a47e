"""How well a what-if does on the recordings whose truth is known: the tables of docs/whatif.md.

    python -m tests.e2e.whatif_accuracy        # measures and writes the tables into docs/whatif.md

From client results, log and metrics alone. The recordings lie beside the project (`../shared/truth`).
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

from pipelines.cli_whatif import recording
from pipelines.models import Run
from pipelines.replay.engine import Outcome
from pipelines.replay.recorded import NotReplayableError, Recording
from pipelines.replay.whatif import Told, WhatIf
from tests.e2e.scheduler_record import TRUTH, Life, events, life_of, lives, replayed, stored

PROJECT = Path(__file__).parents[2]
DOCUMENT = PROJECT / "docs" / "whatif.md"
BEGIN, END = "<!-- accuracy: begin -->\n", "<!-- accuracy: end -->\n"
LEVELS = {24: 120, 32: 160, 48: 240}  # requests of the sweep's levels that preempt
BEFORE_C24 = "2026-11-29T13:28:39+00:00"
PREEMPTED = ("ab-before", "iteration-lines", "preempt", "restart", "sweep")
CHANCES = 20  # replays that are told all but in which of two steps each request came
FIGURES = ("preemptions", "recomputed_tokens", "queue_s", "duration_s")


@cache
def of(run: str) -> Recording:
    return recording(inputs(run))


@cache
def what_if(run: str) -> WhatIf:
    return WhatIf.of(of(run))


@cache
def calm_levels() -> WhatIf:
    """The sweep as far as nothing was preempted: its levels up to 16."""
    calm = [each for each in inputs("sweep") if each.stem not in {f"client-c{level}" for level in LEVELS}]
    return WhatIf.of(recording(calm, Run("calm", until=BEFORE_C24)))


def inputs(run: str, clients: str = "client-*.json") -> list[Path]:
    return [*sorted((TRUTH / run).glob(clients)), TRUTH / run / "server.log", TRUTH / run / "prometheus.json.gz"]


@cache
def truth(run: str) -> dict[str, float]:
    """Preemptions, tokens computed again, seconds in which somebody waited, and what the clients took."""
    found = dict.fromkeys(("preemptions", "recomputed_tokens", "queue_s"), 0.0)
    before = None
    for event in events(run):
        if event["e"] == "preempt":
            found["preemptions"] += 1
        elif event["e"] == "step":
            found["recomputed_tokens"] += sum(row[3] for row in event["rows"])
            if before is not None and before["wait"]:
                found["queue_s"] += min(event["t"] - before["t"], 1.0)
            before = event
    return found | {"duration_s": of(run).measured["duration_s"].best}


@cache
def preempted_by_level() -> Counter[int]:
    """Preemptions in the sweep's levels, in truth."""
    phases = {each["name"]: each for each in json.loads((TRUTH / "sweep" / "phases.json").read_text())["phases"]}
    true: Counter[int] = Counter()
    for event in events("sweep"):
        if event["e"] == "preempt":
            true.update(level for level in LEVELS if phases[f"c{level}"]["start"] <= event["t"] <= phases[f"c{level}"]["end"])
    return true


# tables


def tables() -> str:
    """The runs themselves, runs made again under another setting, and what is left to chance when all else is told."""
    return f"{_reproduced()}\n{_foretold()}\n{_chance()}"


def _reproduced() -> str:
    rows = [
        "| recording | preemptions | tokens computed again | seconds with a queue | duration in s | intervals that hold |",
        "|---|---|---|---|---|---|",
    ]
    for run in sorted(path.name for path in TRUTH.iterdir()):
        try:
            told = what_if(run)
        except NotReplayableError as reason:
            rows.append(f"| {run} | not replayed: {str(reason).split(':')[0]} | | | | |")
            continue
        true, figures = truth(run), told.recorded().figures
        held = sum(figures[name].low <= true[name] <= figures[name].high for name in FIGURES)
        rows.append(_row(run, *(_cell(true[name], figures[name].best) for name in FIGURES), f"{held} of {len(FIGURES)}"))
    return "\n".join(rows) + "\n"


def _foretold() -> str:
    rows = [
        "| asked of | question | figure | in truth | foretold | off | interval | holds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    slots, _ = what_if("ab-before").predict({"max_num_seqs": "9"})
    real = of("ab-after").measured
    rows += [
        _foretold_row("ab-before", "`max_num_seqs=9`", name, real[name].best, slots.figures[name])
        for name in ("preemptions", "queue_s", "duration_s", "ttft_p50_ms", "itl_p99_ms")
    ]
    for level, requests in LEVELS.items():
        told, _ = calm_levels().predict({"concurrency": str(level), "requests": str(requests)})
        question = f"`concurrency={level}`"
        rows.append(
            _foretold_row("sweep, up to 16", question, "preemptions", preempted_by_level()[level], told.figures["preemptions"])
        )
    return "\n".join(rows) + "\n"


def _chance() -> str:
    rows = [
        "| recording | preemptions | told all | all but the step | tokens computed again, told all | all but the step |",
        "|---|---|---|---|---|---|",
    ]
    for run in PREEMPTED:
        runs = stored(run)
        told = [life_of(record, runs) for record in lives(run)]
        exact = [replayed(run, life) for life in told]
        moved = [[replayed(run, life, moved=Random(f"{seed} {i}")) for i, life in enumerate(told)] for seed in range(CHANCES)]
        groups = _levels(told[0]) if run == "sweep" else {run: None}
        for name, members in groups.items():
            of_engine, (count, tokens) = _counted(told, exact, members)
            throws = [_counted(told, each, members)[1] for each in moved]
            counts = f"{fmean(each for each, _ in throws):.0f} ± {pstdev([each for each, _ in throws]):.0f}"
            again = f"{fmean(each for _, each in throws):,.0f} ± {pstdev([each for _, each in throws]):,.0f}"
            rows.append(_row(name, _number(of_engine), _number(count), counts, _number(tokens), again))
    return "\n".join(rows) + "\n"


def _levels(life: Life) -> dict[str, set[str]]:
    """The requests of the sweep's levels that preempt: those of one level came after the last of the one before had ended."""
    phases = {each["name"]: each for each in json.loads((TRUTH / "sweep" / "phases.json").read_text())["phases"]}
    ended = {each["id"]: each["t"] for each in events("sweep") if each["e"] == "finish"}
    return {
        f"sweep, level {level}": {
            name for name in life.lengths if phases[f"c{level}"]["start"] <= ended[name] <= phases[f"c{level}"]["end"]
        }
        for level in LEVELS
    }


def _counted(lives_told: list[Life], outcomes: list[Outcome], members: set[str] | None) -> tuple[float, tuple[float, float]]:
    """Preemptions of these requests in truth; then those, and the tokens computed again, that the replay made of them."""
    of_engine, count, tokens = 0, 0, 0
    for life, outcome in zip(lives_told, outcomes, strict=True):
        of_engine += sum(members is None or name in members for name, _, _ in life.preempted)
        lost = [each for each in outcome.preemptions if members is None or life.arrivals[each.request][0] in members]
        count += len(lost)
        tokens += sum(each.recomputed_tokens or 0 for each in lost)
    return of_engine, (count, tokens)


def _foretold_row(run: str, question: str, name: str, true: float, told: Told) -> str:
    holds = "yes" if told.low <= true <= told.high else "no"
    interval = f"{_number(told.low)} to {_number(told.high)}"
    return _row(run, question, name, _number(true), _number(told.best), _off(true, told.best), interval, holds)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(true: float, told: float) -> str:
    return f"{_number(true)}, replayed {_number(told)}" + (f" ({_off(true, told)})" if true else "")


def _off(true: float, told: float) -> str:
    return f"{told / true - 1:+.0%}" if true else "-"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def written() -> str:
    """What the document says now."""
    return DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    made = tables()
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(before + BEGIN + made + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
