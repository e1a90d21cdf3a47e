"""What-if against what the engine's own scheduler recorded: the run itself, and runs that were made under other settings.

From client results, log and metrics alone. Needs the recordings with their truth beside the project (`../shared/truth`); skipped
where they are not.
"""

from __future__ import annotations

from statistics import median

import pytest

from tests.e2e import whatif_accuracy
from tests.e2e.scheduler_record import decode_steps, lives
from tests.e2e.whatif_accuracy import FIGURES, LEVELS, TRUTH, calm_levels, of, preempted_by_level, truth, what_if

pytestmark = pytest.mark.skipif(not TRUTH.is_dir(), reason="the recordings with their truth are not here")

REPRODUCED = ("preempt",)
REPRODUCED_TOO = (
    "ab-after", "ab-before", "iteration-lines", "prefill-interference", "prefix-evict", "queue-kv", "queue-seqs", "restart",
)  # fmt: skip
# the sweep as a whole, and what is not reproduced: in the tables of accuracy, which `make drills` holds


@pytest.mark.parametrize("run", [*REPRODUCED, *(pytest.param(run, marks=pytest.mark.drill) for run in REPRODUCED_TOO)])
def test_the_recorded_run_is_reproduced(run):
    true, told = truth(run), what_if(run).before
    assert told.mean("recomputed_tokens") == pytest.approx(true["recomputed_tokens"], rel=0.10, abs=64)
    assert told.mean("preemptions") == pytest.approx(true["preemptions"], rel=0.15, abs=2)
    assert told.mean("queue_s") == pytest.approx(
        true["queue_s"], rel=0.15, abs=1
    )  # prefill-interference waits for two steps only
    assert told.mean("duration_s") == pytest.approx(true["duration_s"], rel=0.10)
    figures = what_if(run).recorded().figures
    for name in FIGURES:
        assert figures[name].low <= true[name] <= figures[name].high, name


@pytest.mark.drill
@pytest.mark.parametrize("running", [range(1, 2), range(2, 4), range(4, 7), range(7, 9)])
def test_a_step_is_foretold_whether_few_or_many_read_their_contexts(running):
    """Prompts of thousands of tokens: a fit without contexts foretold a third for one request running, 1.7 times for four."""
    step_time = of("prefill-interference").calibration.step_time
    [record] = lives("prefill-interference")
    ratios = [
        seconds / step_time.of(count, count, context)
        for count, context, seconds in decode_steps(record)
        if count in running and seconds < 1
    ]
    assert len(ratios) > 20
    assert median(ratios) == pytest.approx(1, abs=0.15)


@pytest.mark.drill
def test_fewer_slots_are_foretold_from_the_run_before():
    """The same load was run again under nine slots, on a slower machine: there steps of the very same work took 5.5 to 7.5 ms in
    one recording. The number of steps is foretold to one in a thousand, and the interval has room.
    """
    told, _ = what_if("ab-before").predict({"max_num_seqs": "9"})
    real = of("ab-after").measured
    assert told.figures["preemptions"].best == 0
    assert told.limit == "slots"
    for name in ("queue_s", "duration_s", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms"):
        assert told.figures[name].best == pytest.approx(real[name].best, rel=0.25), name
        assert told.figures[name].low <= real[name].best <= told.figures[name].high, name


@pytest.mark.drill
def test_preemption_is_foretold_from_levels_that_had_none():
    assert calm_levels().model.recording.measured["preemptions"].best == 0
    for level, requests in LEVELS.items():
        told, _ = calm_levels().predict({"concurrency": str(level), "requests": str(requests)})
        true = preempted_by_level()[level]
        assert told.figures["preemptions"].low <= true <= told.figures["preemptions"].high, level
        # at 24 the pool is only just too small, and that level's answers happened to be a twentieth shorter than those before
        # it: replayed with its own it is 99 ± 6 for 95 (docs/whatif.md)
        assert told.figures["preemptions"].best == pytest.approx(true, rel=0.35 if level == 24 else 0.25), level


@pytest.mark.drill
def test_the_accuracy_tables_are_as_measured():
    assert whatif_accuracy.tables() == whatif_accuracy.written()
