"""What-if against what the engine's own scheduler recorded: the run itself, and runs that were made under other settings.

From client results, log and metrics alone. Needs the recordings with their truth beside the project (`../shared/truth`); skipped
where they are not.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli_whatif import recording
from pipelines.models import Run
from pipelines.replay.recorded import NotReplayableError, Recording
from pipelines.replay.whatif import WhatIf

TRUTH = Path(__file__).parents[3] / "shared" / "truth"
pytestmark = pytest.mark.skipif(not TRUTH.is_dir(), reason="the recordings with their truth are not here")

REPRODUCED = ("ab-before", "iteration-lines", "preempt", "queue-kv", "queue-seqs", "restart")
LEVELS = {24: 120, 32: 160, 48: 240}  # requests of the sweep's levels that preempt


@cache
def of(run: str) -> Recording:
    return recording(inputs(run))


def inputs(run: str, clients: str = "client-*.json") -> list[Path]:
    return [*sorted((TRUTH / run).glob(clients)), TRUTH / run / "server.log", TRUTH / run / "prometheus.json.gz"]


def events(run: str) -> Iterator[dict[str, Any]]:
    packed = TRUTH / run / "truth.jsonl.gz"
    with gzip.open(packed, "rt") if packed.exists() else (TRUTH / run / "truth.jsonl").open() as lines:
        yield from map(json.loads, lines)


def truth(run: str) -> dict[str, float]:
    """Preemptions, tokens computed again, and seconds in which somebody waited."""
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
    return found


@pytest.mark.parametrize("run", REPRODUCED)
def test_the_recorded_run_is_reproduced(run):
    told = WhatIf.of(of(run))
    true = truth(run)
    replayed = {name: told.before.mean(name) for name in (*true, "duration_s")}
    assert replayed["recomputed_tokens"] == pytest.approx(true["recomputed_tokens"], rel=0.10, abs=64)
    assert replayed["preemptions"] == pytest.approx(true["preemptions"], rel=0.15, abs=2)
    assert replayed["queue_s"] == pytest.approx(true["queue_s"], rel=0.15, abs=1)
    assert replayed["duration_s"] == pytest.approx(of(run).measured["duration_s"].best, rel=0.10)
    figures = told.recorded().figures
    for name, value in true.items():
        assert figures[name].low <= value <= figures[name].high, name


def test_fewer_slots_are_foretold_from_the_run_before():
    """The same load was run again under nine slots. Its machine was a tenth slower per step; the interval has room for that."""
    told, _ = WhatIf.of(of("ab-before")).predict({"max_num_seqs": "9"})
    real = of("ab-after").measured
    assert told.figures["preemptions"].best == 0
    assert told.limit == "slots"
    for name in ("queue_s", "duration_s", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms"):
        assert told.figures[name].best == pytest.approx(real[name].best, rel=0.25), name
        assert told.figures[name].low <= real[name].best <= told.figures[name].high, name


def test_preemption_is_foretold_from_levels_that_had_none():
    phases = {each["name"]: each for each in json.loads((TRUTH / "sweep" / "phases.json").read_text())["phases"]}
    true: Counter[int] = Counter()
    for event in events("sweep"):
        if event["e"] == "preempt":
            true.update(level for level in LEVELS if phases[f"c{level}"]["start"] <= event["t"] <= phases[f"c{level}"]["end"])
    calm = [each for each in inputs("sweep") if each.stem not in {f"client-c{level}" for level in LEVELS}]
    what_if = WhatIf.of(recording(calm, Run("calm", until="2026-11-29T13:28:39+00:00")))  # after c16, before c24
    assert what_if.model.recording.measured["preemptions"].best == 0
    for level, requests in LEVELS.items():
        told, _ = what_if.predict({"concurrency": str(level), "requests": str(requests)})
        assert told.figures["preemptions"].low <= true[level] <= told.figures["preemptions"].high
        # at 24 the pool is only just too small: there a few tokens more or less in the answers decide
        assert told.figures["preemptions"].best == pytest.approx(true[level], rel=0.35 if level == 24 else 0.25)


def test_a_run_with_a_connector_gets_a_reason():
    with pytest.raises(NotReplayableError, match="ExampleConnector"):
        of("offload")
