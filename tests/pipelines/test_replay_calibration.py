"""Step times told from what a run recorded: found again where they are known, and its evidence counted by hand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import polars as pl
import pytest

from pipelines.replay.calibration import (
    NOISE_AT,
    Evidence,
    Prefills,
    Running,
    Spell,
    Stretch,
    _answers,
    _iterations,
    _noise,
    _prefills,
    _quantiles,
    _spells,
    _stretches,
    _thinned,
    _whole_requests,
    calibrate,
    fit,
)
from pipelines.replay.engine import StepTime
from pipelines.replay.load import Record
from tests.whatif_runs import STEP_TIME


def test_step_time_is_found_again_through_noise_and_outages():
    rng = Random(3)
    stretches = []
    for _ in range(400):
        steps, running, prompt = rng.randint(4, 16), rng.randint(1, 40), rng.choice((0, 0, rng.randint(50, 2000)))
        generated = steps * running
        seconds = STEP_TIME.base * steps + STEP_TIME.computed * (prompt + generated) + STEP_TIME.generated * generated
        outage = 0.7 if rng.random() < 0.05 else 0.0
        stretches.append(Stretch(steps, seconds * rng.uniform(0.9, 1.1) + outage, prompt, generated))
    found, residual = fit(stretches)
    assert found.base == pytest.approx(STEP_TIME.base, rel=0.1)
    assert found.computed == pytest.approx(STEP_TIME.computed, rel=0.1)
    assert found.generated == pytest.approx(STEP_TIME.generated, rel=0.1)
    assert residual < 0.1


CHUNKS = {"stream": pl.Int64, "chunk_index": pl.Int64, "gap_s": pl.Float64, "at_s": pl.Float64, "prompt_tokens": pl.Float64}
CHUNKS |= {"tokens_per_chunk": pl.Float64}
PAUSES = {"stream": pl.Int64, "chunk_index": pl.Int64, "is_resume": pl.Boolean}
LONG = StepTime(base=0.004, computed=0.00004, generated=0.0001, context=0.0000003)


def evidence(*, between: float = 0.0, lines: bool = False, chunks: bool = True) -> Evidence:
    """Four rounds of answers to prompts of 100 to 4,000 tokens, in each some more of them at once: as the client reads them, and
    as iteration lines. `between` passes after each step, and no line tells it.
    """
    rng, now, stream = Random(5), 0.0, 0
    chunk_rows, step_rows, written = [], [], []
    for at_once in (2, 5, 9, 4):
        answers = [(stream + i, rng.randint(100, 4000), rng.randint(60, 200)) for i in range(at_once)]
        stream += at_once
        last, began = dict.fromkeys((each for each, _, _ in answers), now), now
        for step in range(max(output for _, _, output in answers)):
            under_way = [each for each in answers if step < each[2]]
            prompts = sum(prompt for _, prompt, _ in under_way) if step == 0 else 0
            context = sum(prompt + step for _, prompt, _ in under_way) if step else 0
            decoded = len(under_way) if step else 0
            seconds = LONG.of(prompts or decoded, len(under_way), context)
            now += seconds + between
            step_rows.append((prompts, decoded, seconds))
            for name, prompt, output in under_way:
                chunk_rows.append((name, step, now - last[name] if step else 0.0, now, float(prompt), 1.0))
                last[name] = now
                if step == output - 1:
                    written.append(Record(began, next(row[3] for row in chunk_rows if row[:2] == (name, 0)), now, prompt, output))
    read = pl.DataFrame(chunk_rows if chunks else [], CHUNKS, orient="row")
    no_pauses = pl.DataFrame(schema=PAUSES)
    steps = pl.DataFrame(step_rows if lines else [], ["prompt_tokens", "generated_tokens", "seconds"], orient="row")
    return Evidence(written, read, no_pauses, steps, computed_share=1.0, resumed_share=1.0)


@pytest.mark.parametrize(
    ("given", "method", "within", "between"),
    [
        (evidence(), "gaps between tokens", 0.02, 0.0),
        (evidence(between=0.002, lines=True), "iteration lines", 0.05, 0.002),
        (evidence(between=0.002, lines=True, chunks=False), "iteration lines", 0.05, 0.0),
        (evidence(chunks=False), "time per token of whole requests", 0.1, 0.0),
    ],
)
def test_what_a_step_takes_for_the_context_it_reads_is_told_from_its_own_part(given, method, within, between):
    """`between` passes from step to step too, and only the gaps tell it."""
    found = calibrate(given)
    assert found is not None
    assert found.method == method
    assert len(found.alternatives) == 6
    assert sum(weight * ratio for weight, ratio in found.noise) == pytest.approx(1, rel=2 * within)
    for running, context in ((2, 1_000), (4, 16_000), (9, 2_000), (9, 36_000)):
        true = LONG.of(running, running, context) + between
        assert found.step_time.of(running, running, context) == pytest.approx(true, rel=within)
        assert [each.of(running, running, context) for each in found.alternatives] == pytest.approx([true] * 6, rel=4 * within)


def test_no_part_of_a_step_takes_less_than_nothing():
    shrinking = [Stretch(10, 1.0 - 0.01 * running, 0, 10 * running) for running in range(1, 50)]
    found, _ = fit(shrinking)
    assert min(vars(found).values()) >= 0


def test_one_part_alone_may_explain_it_all():
    found, residual = fit([Stretch(steps, 0.5 * steps, 0, 0) for steps in range(4, 12)])
    assert (found.base, found.computed, found.generated, found.context, residual) == pytest.approx((0.5, 0, 0, 0, 0))


def test_without_prompts_a_token_takes_what_it_takes_to_compute_one():
    """Whether it is computing or generating that takes the time cannot be told; then a prompt's tokens take as long."""
    found, _ = fit([Stretch(10, 5 + 0.1 * running, 0, 10 * running) for running in range(1, 50)])
    assert (found.base, found.computed, found.generated) == pytest.approx((0.5, 0.01, 0))


# what was under way


def test_answers_under_way_and_their_tokens_are_means_over_time():
    running = Running.of([Spell(0, 10, 100, 110), Spell(5, 10, 50, 55)])
    assert [running.at(time) for time in (-1, 0, 7, 10)] == [0, 100, 107 + 52, 0]
    read = 105 * 10 + 52.5 * 5
    assert running.mean(0, 10) == pytest.approx((1.5, read / 10))
    assert running.mean(6, 8) == pytest.approx((2, 107 + 52))
    assert running.mean(-5, 10) == pytest.approx((1, read / 15))
    assert running.mean(7, 7) == (1, 107 + 52)
    assert Running.of([Spell(0, 0.5, 100, 110)]).at(0.25) == 105


def test_prompts_are_computed_for_the_token_that_follows():
    prefills = Prefills.of([(3.0, 30.0), (1.0, 10.0), (3.0, 5.0)])
    assert [prefills.between(*each) for each in ((0, 1), (1, 3), (0, 9), (3, 9))] == [10, 35, 45, 0]


# evidence by hand


def paused(*, late: float = 0.0) -> Evidence:
    """An answer of 20 chunks of two tokens to a prompt of 100, one a second from 10.0 on, and away for five before the twelfth.
    The client read the fifth `late`, and then the sixth.
    """
    gaps = [0.0, *[1.0] * 3, 1.0 + late, 1.0 - late, *[1.0] * 5, 5.0, *[1.0] * 8]
    chunks = [(7, i, gap, 10.0 + sum(gaps[: i + 1]), 100.0, 2.0) for i, gap in enumerate(gaps)]
    pauses = pl.DataFrame([(7, 11, True)], PAUSES, orient="row")
    read = pl.DataFrame(chunks, CHUNKS, orient="row")
    return Evidence([], read, pauses, pl.DataFrame(), computed_share=0.5, resumed_share=0.25)


def test_an_answer_that_was_away_is_two_and_what_it_held_is_computed_again():
    given = paused()
    assert _spells(given.chunks, given.pauses) == [Spell(10, 20, 102, 122), Spell(25, 33, 124, 140)]
    assert _prefills(given) == Prefills((10.0, 25.0), (0.0, 50.0, 50.0 + 0.25 * (100 + 2 * 11)))


@pytest.mark.parametrize(("late", "gaps"), [(0.0, [7, 4, 4]), (1.0, [8, 5])])
def test_what_is_read_late_and_then_at_once_is_in_one_stretch(late, gaps):
    """Seven gaps, for the first chunk has none, then eight each, the pause being none of them; three are too few."""
    given = paused(late=late)
    running = Running.of(_spells(given.chunks, given.pauses))
    stretches = _stretches(given.chunks, given.pauses, _prefills(given), running)
    assert [(each.steps, each.seconds, each.prompt_tokens, each.generated_tokens) for each in stretches] == [
        (2 * each, each, 0, 2 * each) for each in gaps
    ]


def test_steps_scatter_as_single_gaps_do_where_nobody_was_away():
    given = paused()
    running = Running.of(_spells(given.chunks, given.pauses))
    noise = _noise(StepTime(base=0.5), given.chunks, given.pauses, _prefills(given), running)
    assert {ratio for _, ratio in noise} == {2.0}


def test_noise_is_kept_at_quantiles_that_stand_for_as_much_as_lies_around_them():
    kept = _quantiles([each / 1000 for each in range(1000)])
    assert [ratio for _, ratio in kept] == pytest.approx(NOISE_AT, abs=6e-4)
    assert min(weight for weight, _ in kept) > 0
    assert sum(weight for weight, _ in kept) == pytest.approx(1)
    assert sum(weight * ratio for weight, ratio in kept) == pytest.approx(0.5, abs=1e-3)
    assert _quantiles([]) == ((1.0, 1.0),)


def test_iteration_lines_read_the_contexts_of_answers_as_far_as_these():
    """Lines tell of requests that nobody wrote down: of 32 tokens in two lots, 17 are of the one that somebody did."""
    written = [Record(0, 0, 16, 100, 17)]
    lines = pl.DataFrame({"prompt_tokens": [0] * 16, "generated_tokens": [2] * 16, "seconds": [0.1] * 16})
    given = replace(paused(), records=written, steps=lines)
    first, second = _iterations(given, Running.of(_answers(written)))
    assert (first.steps, first.generated_tokens) == (8, 16)
    assert (first.seconds, first.context_tokens) == pytest.approx((0.8, 8 * (100 + 8 * 17 / 32)))
    assert second.context_tokens == pytest.approx(8 * (100 + 24 * 17 / 32))


def test_of_a_long_run_4000_gaps_are_looked_at_from_all_of_it():
    kept = _thinned(pl.DataFrame({"gap": range(8_000)}))["gap"]
    assert (kept.len(), kept[0], kept[-1]) == (4_000, 0, 7_998)


def test_whole_requests_tell_a_step_where_they_have_more_than_one_token():
    written = [Record(0, 10, 20, 100, 11), Record(0, 12, 12.5, 40, 1), Record(0, 14, 14, 60, 9)]
    assert _answers(written)[:2] == [Spell(10, 20, 101, 111), Spell(12, 12.5, 41, 41)]
    running = Running.of(_answers(written[:1]))
    [told] = _whole_requests(written, 0.5, running)
    # in its ten seconds its own ten tokens, and all of the two others, whose prompts were computed in half
    assert (told.steps, told.seconds, told.prompt_tokens, told.generated_tokens) == (10, 10, 0.5 * (40 + 60), 10 + 1 + 9)
    assert told.context_tokens == pytest.approx(10 * 106)
