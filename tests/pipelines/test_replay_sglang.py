"""SGLang's scheduler, replayed: held line by line against a real log, and on loads small enough to follow by hand."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.replay.engine import Content, Outcome, Request, StepTime
from pipelines.replay.sglang import NewTokenRatio, Replay, Settings
from tests.conftest import PROJECT

A_STEP = StepTime(base=1.0)
SAMPLE = PROJECT / "sample_traces" / "sglang-0.5.23-retraction" / "server.log.gz"
IGNORING_EOS = PROJECT.parent / "shared" / "engines" / "sglang-0.5.23-cpu" / "c.log"  # the same load, with ignore_eos


def settings(tokens: int = 400, **changed) -> Settings:
    given_settings = {"max_running_requests": 8, "chunked_prefill_size": 64, "page_size": 1, **changed}
    version = given_settings.pop("version", None)
    return Settings.of_version(version, max_total_num_tokens=tokens, **given_settings)


def replay(requests: list[Request], settings_: Settings, step_time: StepTime = A_STEP, **options) -> Outcome:
    return Replay(settings_, step_time, requests, **options).run()


# the real one

LINES = (
    r"(Prefill) batch, #new-seq: (\d+), #new-token: (\d+), #cached-token: (\d+), .*#running-req: (\d+), #queue-req: (\d+)",
    r"(Decode) batch, #running-req: (\d+), #token: (\d+), .*#queue-req: (\d+)",
    r"(Retract) requests. #retracted_reqs: (\d+), #new_tokens_gained: (\d+), #new_token_ratio: ([\d.]+) -> ([\d.]+)",
)


def logged(log: Path) -> Iterator[tuple[str, ...]]:
    """What the engine printed: every prefill batch, every fifth decode step, every retraction."""
    with gzip.open(log, "rt") if log.suffix == ".gz" else log.open(errors="replace") as lines:
        for line in lines:
            for pattern in LINES:
                if found := re.search(pattern, line):
                    yield found.groups()


class Told(Replay):
    """A replay that prints what the engine prints, step by step."""

    def __init__(self, *given_arguments, **options) -> None:
        super().__init__(*given_arguments, **options)
        self.lines: list[tuple[str, ...]] = []

    def _can_jump(self) -> bool:
        return False

    def _line(self, *words: object) -> None:
        self.lines.append(tuple(str(each) for each in words))

    def _prefill(self, batch) -> None:
        tokens = sum(tokens for _, tokens in batch)
        found = sum(each.computed for each, _ in batch if each.computed == each.in_tree and each is not self.continued)
        self._line("Prefill", len(batch), tokens, found, len(self.running), len(self.waiting))
        super()._prefill(batch)

    def _prefill_batch(self):
        self.continued = self._unfinished
        return super()._prefill_batch()

    def _decode(self) -> None:
        super()._decode()
        assert self._context == sum(each.computed + 1 for each in self.running)  # what the next step reads
        if self._decodes % 5 == 0:
            used = self.pool.tokens - self.pool.free - self.pool.evictable
            self._line("Decode", self.decoded, used if self.running else 0, len(self.waiting))

    def _generate(self, steps: int) -> None:
        self.decoded = len(self.running)
        super()._generate(steps)

    def _retract(self) -> None:
        free, ratio, running = self.pool.free, self.ratio.now, len(self.running)
        super()._retract()
        gained = self.pool.free - free
        self._line("Retract", running - len(self.running), gained, f"{ratio:.4f}", f"{self.ratio.now:.4f}")


def recorded_load(came: Sequence[tuple[Sequence[int], int]], *, ignores_eos: bool) -> list[Request]:
    """The load: prompts begin with the same 49 tokens, the second group's with the first's, the fourth asks for the second's
    again. `came`: of each group in which order, and how many before the first step, as its first prefill line says.
    """
    requests = []
    for group, (order, first) in enumerate(came):
        for place, i in enumerate(order):
            prompt, output = ((81, 220), (93, 110), (197, 20), (93, 10))[group]
            parts = (((1, 49), (10 + i, 32), (30 + i, 12)), ((2, 15), (50 + i, 182)))[group == 2]
            blocks = [text * 1000 + i for text, tokens in parts for i in range(tokens)]
            at = 10_000.0 * group + (0.5 if place >= first else 0.0)
            content = Content.of(blocks, 1).until(prompt)
            requests.append(Request(at, prompt, output, content=content, ignores_eos=ignores_eos))
    return requests


RECORDED = settings(900, chunked_prefill_size=256, schedule_conservativeness=0.05, version=(0, 5, 23))
CAME = (((1, 2, 3, 4, 0, 7, 5, 6), 1), ((2, 1, 0, 3, 5, 6, 7, 4), 3), ((0, 2, 1, 3, 4, 5), 1), (range(8), 3))
CAME_IGNORING = (
    ((1, 0, 2, 3, 4, 5, 6, 7), 1),
    ((0, 1, 2, 3, 4, 5, 7, 6), 1),
    ((0, 1, 2, 4, 5, 3), 1),
    ((0, 1, 2, 3, 4, 7, 5, 6), 1),
)


@pytest.mark.parametrize(
    ("log", "came", "ignores_eos", "retracted", "recomputed"),
    [
        # the engine counts the token that each victim had generated last, too: it was not yet computed
        (SAMPLE, CAME, False, 3, 433 - 3),
        pytest.param(
            *(IGNORING_EOS, CAME_IGNORING, True, 0, 0),
            marks=pytest.mark.skipif(not IGNORING_EOS.is_file(), reason="that recording is not here"),
        ),
    ],
)
def test_the_replay_does_what_the_engine_logged_line_by_line(log, came, ignores_eos, retracted, recomputed):
    told = Told(RECORDED, A_STEP, recorded_load(came, ignores_eos=ignores_eos))
    outcome = told.run()
    lines = list(logged(log))
    assert len(lines) >= 200
    assert [pair for pair in zip_longest(lines, told.lines) if pair[0] != pair[1]] == []
    assert (len(outcome.preemptions), outcome.recomputed_tokens) == (retracted, recomputed)


# More servers, each with one thing else: their load (of each request how long an answer it allows and has, and its prompt as runs
# of block numbers), in four groups, each of which came at once, and what they logged.
STEPS = json.loads(gzip.decompress((Path(__file__).parent / "sglang_steps.json.gz").read_bytes()))


@pytest.mark.parametrize("name", STEPS)
def test_so_it_does_with_larger_pages_without_a_cache_and_by_another_policy(name):
    run = STEPS[name]
    requests = []
    for group, load in enumerate(run["load"]):
        for output, spans in load:
            blocks = [number for start, count in spans for number in range(start, start + count)]
            content = Content.of(blocks, 1)
            requests.append(Request(10_000.0 * group, len(blocks), output, content=content, ignores_eos=run["ignores_eos"]))
    told = Told(replace(RECORDED, max_running_requests=10, **run["settings"]), A_STEP, requests)
    told.run()
    lines = [tuple(each) for each in run["lines"]]
    assert len(lines) > 100
    assert [pair for pair in zip_longest(lines, told.lines) if pair[0] != pair[1]] == []


# jumps


class StepByStep(Replay):
    def _can_jump(self) -> bool:
        return False


@given(
    st.lists(
        st.tuples(st.integers(0, 60_000), st.integers(1, 60), st.integers(1, 90), st.integers(0, 9)), min_size=1, max_size=25
    ),
    st.sampled_from([1, 4]),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from(["fcfs", "lpm", "lof"]),
    st.booleans(),
)
def test_jumps_do_the_same_as_step_by_step(load, page, conservativeness, policy, caching):
    # steps take whole milliseconds from some arrival on, so that no other arrival falls on the end of one
    requests = [
        Request(ms / 1000 + i * 1e-5, prompt, output, shared_blocks=min(shared, prompt // page), max_tokens=output + shared)
        for i, (ms, prompt, output, shared) in enumerate(load)
    ]
    given_settings = settings(
        200, page_size=page, schedule_conservativeness=conservativeness, schedule_policy=policy, is_caching=caching
    )
    step_time = StepTime(base=0.05, computed=0.003, generated=0.002, context=0.001)
    player = Replay(given_settings, step_time, requests)
    jumped = player.run()
    stepped = StepByStep(given_settings, step_time, requests).run()
    assert jumped.steps == stepped.steps
    assert [(each.request, each.context_tokens, each.recomputed_tokens) for each in jumped.preemptions] == [
        (each.request, each.context_tokens, each.recomputed_tokens) for each in stepped.preemptions
    ]
    assert jumped.finished_at == pytest.approx(stepped.finished_at)
    for outcome in (jumped, stepped):
        assert sum(count for _, count in outcome.token_gaps) == sum(each.output_tokens - 1 for each in requests)
    # all are answered, and all tokens are accounted for
    assert all(each is not None for each in jumped.finished_at)
    assert player.pool.free + player.pool.evictable == 200
    useful = sum(each.prompt_tokens + each.output_tokens - 1 for each in requests) - jumped.first_hit_tokens
    again = sum(1 for each in jumped.preemptions if each.recomputed_tokens is not None)
    assert jumped.computed_tokens <= useful + jumped.recomputed_tokens + again


# admission


def test_a_request_finds_all_of_its_prompt_but_a_token():
    """That one has to be computed, for there is no answer without. Of blocks it finds whole ones."""
    prompt = Content.of(range(40), 1)
    for load, found in (
        ({"content": prompt}, 39),
        ({"content": Content.of((1, 2), 4).until(6)}, 6),  # as far as it is known
        ({"shared_blocks": 7}, 28),
    ):
        requests = [Request(0, 40, 2, **load), Request(50, 40, 2, **load)]
        outcome = replay(requests, settings(page_size=1 if "content" in load else 4))
        assert outcome.first_hit_tokens == found
        assert outcome.computed_tokens == 2 * (40 + 1) - found


def test_the_ratio_falls_with_decode_steps_and_is_reset_by_idleness():
    ratio = NewTokenRatio(0.5)
    assert ratio.now == pytest.approx(0.35)
    ratio.decay(600)
    assert ratio.now == pytest.approx(0.35 * 0.14)
    ratio.decay(600)
    assert ratio.now == pytest.approx(0.35 * 0.14)
    ratio.reset()
    assert ratio.now == pytest.approx(0.35)
    assert NewTokenRatio(9.0).now == 1.0


def test_admission_counts_on_all_that_a_new_request_may_generate():
    # each may generate 100 and does 20: the pool of 400 has room for three times 10 + 100 + a page
    short = replay([Request(0, 10, 20, max_tokens=100)] * 5, settings())
    assert sorted(each for each in short.started_at if each is not None) == [0.0, 0.0, 0.0, 20.0, 20.0]
    assert not short.preemptions
    assert replay([Request(0, 10, 20)] * 5, settings()).started_at == (0.0,) * 5


def test_of_the_running_ones_admission_counts_on_a_share():
    # the first may generate 300 more: at 1.0 nothing is left for the second, at 0.1 all but 30
    load = [Request(0, 10, 300), Request(5, 50, 60)]
    bold, careful = (replay(load, settings(schedule_conservativeness=each)) for each in (0.1, 9.0))
    assert bold.started_at[1] == 5.0
    assert careful.started_at[1] == careful.finished_at[0]


def test_whoever_ignores_the_end_of_its_text_is_counted_on_in_full_from_0_5_23_on():
    load = [Request(0, 10, 300, ignores_eos=True), Request(5, 50, 60)]
    for version, starts in (((0, 5, 22), 5.0), ((0, 5, 23), 300.0)):
        assert replay(load, settings(schedule_conservativeness=0.1, version=version)).started_at[1] == starts


def test_without_a_cache_requests_of_known_length_are_admitted_by_when_the_others_end():
    # the first two end before the third has grown: together they never need more than the pool
    load = [Request(0, 20, 20, ignores_eos=True), Request(0, 20, 20, ignores_eos=True), Request(0, 20, 80, ignores_eos=True)]
    pool = settings(146, is_caching=False, version=(0, 5, 22))
    assert replay(load, pool).started_at == (0.0, 0.0, 0.0)
    anyone = [Request(each.arrived, each.prompt_tokens, each.output_tokens) for each in load]
    assert replay(anyone, pool).started_at[2] != 0.0


@pytest.mark.parametrize(
    ("version", "prompt", "answers", "tokens"),
    [
        # 20 and 20 of prompts; of 30 steps each the last has to leave a token for each of two
        ((0, 5, 9), 20, (30, 30), 2 * 20 + 2 * 30 + 2 + 1),
        # a page more for each, before it runs
        ((0, 5, 10), 20, (30, 30), 2 * 20 + 2 * 30 + 2 + 1 + 2),
        # a short one is through with what the long one has not yet asked for; its prompt fits to the token
        ((0, 5, 9), 20, (30, 1), 2 * 20 + 30),
    ],
)
def test_so_many_tokens_and_no_fewer_hold_requests_of_known_length(version, prompt, answers, tokens):
    load = [Request(0, prompt, answer, ignores_eos=True) for answer in answers]
    for room, starts in ((tokens, 0.0), (tokens - 1, 30.0)):
        assert replay(load, settings(room, is_caching=False, version=version)).started_at == (0.0, starts)


def test_without_chunks_a_batch_ends_where_a_prompt_would_fill_its_budget():
    unchunked = settings(chunked_prefill_size=None, max_prefill_tokens=64)
    for prompt, starts in ((23, 0.0), (24, 1.0)):
        assert replay([Request(0, 40, 2), Request(0, prompt, 2)], unchunked).started_at == (0.0, starts)


def test_an_answer_is_cut_off_two_tokens_before_it_fills_the_pool():
    outcome = replay([Request(0, 300, 200)], settings())
    assert outcome.finished_at == (5 + (400 - 2 - 300 - 1),)  # five chunks, the last of which gives the first token


def test_no_answer_is_counted_on_with_more_than_4096_tokens():
    load = [Request(0, 10, 3, max_tokens=9000)] * 2
    for room, starts in ((2 * (10 + 1 + 4096) + 1, 0.0), (2 * (10 + 1 + 4096), 3.0)):
        assert replay(load, settings(room)).started_at == (0.0, starts)


def test_slots_are_a_limit_of_their_own():
    outcome = replay([Request(0, 4, 3)] * 2, settings(max_running_requests=1))
    assert outcome.finished_at == (3.0, 6.0)
    assert outcome.computed_tokens == 2 * (4 + 2)
    assert outcome.peak_usage == pytest.approx((4 + 2) / 400)
    assert [cause for cause, _ in outcome.waiting] == ["slots"]


def test_who_waits_for_the_rest_of_a_chunk_waits_for_budget():
    outcome = replay([Request(0, 60, 2)] * 3, settings(1_000))
    assert outcome.started_at == (0.0, 0.0, 1.0)  # of the second prompt four tokens go first
    assert [cause for cause, _ in outcome.waiting] == ["budget"]


def test_a_prompt_longer_than_the_chunk_takes_several_steps_in_which_nobody_decodes():
    outcome = replay([Request(0, 4, 6), Request(2.5, 150, 1)], settings())
    assert outcome.first_token_at == (1.0, 6.0)  # three chunks
    assert outcome.finished_at[0] == 9.0  # two of its five decode steps before them, three after
    assert replay([Request(0, 150, 3)], settings(), StepTime(generated=1.0)).finished_at == (3.0,)  # only the last gives a token
    assert (4.0, 1) in outcome.token_gaps


def test_between_two_tokens_is_what_others_prefill_meanwhile():
    outcome = replay([Request(0, 4, 3), Request(1.5, 4, 3)], settings())
    assert outcome.first_token_at == (1.0, 3.0)
    assert sorted(outcome.token_gaps) == [(1.0, 3), (2.0, 1)]
    assert outcome.peak_running == 2


@pytest.mark.parametrize(("policy", "first"), [("fcfs", 1), ("lof", 2), ("lpm", 3)])
def test_who_is_first_is_a_matter_of_policy(policy, first):
    shared = Content.of(range(40), 1)
    load = [Request(0, 41, 9, content=shared), Request(1, 50, 5), Request(2, 50, 8), Request(3, 50, 5, content=shared)]
    outcome = replay(load, settings(max_running_requests=1, schedule_policy=policy))
    assert min((1, 2, 3), key=lambda i: outcome.started_at[i] or 0) == first


def test_of_those_that_begin_likethe_first_goes_ahead():
    """The others find what it left."""
    for tokens, starts in ((32, (0.0, 3.0, 0.0)), (31, (0.0, 0.0, 3.0))):
        like = Content.of(range(tokens), 1)
        load = [Request(0, 33, 3, content=like), Request(0, 33, 3, content=like), Request(0, 5, 3)]
        assert replay(load, settings(max_running_requests=2, chunked_prefill_size=99, schedule_policy="lpm")).started_at == starts


@pytest.mark.parametrize(("cached", "starts"), [(32, (2.0, 5.0, 2.0)), (33, (2.0, 2.0, 5.0))])
def test_whoever_finds_more_than_32_tokens_in_the_cache_waits_for_nobody_that_begins_like_it(cached, starts):
    first, like = Content.of(range(cached), 1), Content.of(range(80), 1)
    load = [
        Request(0, cached, 1, content=first),
        Request(2, 81, 3, content=like),
        Request(2, 81, 3, content=like),
        Request(2, 5, 3),
    ]
    outcome = replay(load, settings(max_running_requests=2, chunked_prefill_size=999, schedule_policy="lpm"))
    assert outcome.started_at[1:] == starts


def test_more_than_128_that_wait_are_not_sorted_by_their_prefixes():
    """It is first when there are no more than that, at once or after another."""
    shared = Content.of(range(40), 1)
    for others, starts in ((127, 9.0), (128, 10.0)):
        load = [Request(0, 41, 9, content=shared), *[Request(1, 4, 1)] * others, Request(1, 41, 1, content=shared)]
        outcome = replay(load, settings(max_running_requests=1, schedule_policy="lpm"))
        assert outcome.started_at[-1] == starts


def test_before_0_5_18_as_much_is_evicted_as_is_needed_whatever_is_free():
    # two answered requests leave 31 tokens each; 38 are free for the 50 of the third
    load = [Request(0, 30, 2), Request(10, 30, 2), Request(20, 50, 2)]
    for version, evicted in (((0, 5, 18), 31), ((0, 5, 17), 62)):
        assert replay(load, settings(100, version=version)).evictions == evicted


# retraction


def test_whoever_has_generated_least_is_retracted_and_prefilled_again():
    outcome = replay([Request(0, 20, 100), Request(3, 30, 100)], settings(180, schedule_conservativeness=0.0))
    assert [each.request for each in outcome.preemptions] == [1]
    lost = outcome.preemptions[0]
    # its prompt is still in the tree, its answer was freed
    assert lost.context_tokens - 30 == lost.recomputed_tokens
    assert [cause for cause, _ in outcome.waiting] == ["pool"]


def test_before_0_5_4_a_victim_is_counted_on_with_its_whole_answer_again():
    """With what it has generated that may be more than the pool: then it never comes back."""
    load = [Request(0, 20, 100), Request(3, 30, 100)]
    for version, ends, comes_back in (((0, 5, 4), (101.0, 137.0), True), ((0, 5, 3), (101.0, None), False)):
        outcome = replay(load, settings(180, schedule_conservativeness=0.0, version=version))
        assert outcome.finished_at == ends
        assert [(each.request, each.recomputed_tokens is not None) for each in outcome.preemptions] == [(1, comes_back)]


def test_of_equals_the_longest_prompt_is_retracted():
    # the second batch is prefilled before the first has decoded: all have generated as much all along
    load = [Request(0, 40, 60), Request(0.5, 20, 60), Request(0.5, 21, 60)]
    outcome = replay(load, settings(160, schedule_conservativeness=0.0, chunked_prefill_size=41))
    assert [each.request for each in outcome.preemptions] == [0]


def test_before_0_5_2_retraction_goes_on_until_twenty_steps_fit():
    # when the pool is full the victim has 40 tokens, its prompt included some 50; three that are left need 60 for twenty steps
    load = [Request(float(i), 10, 60) for i in range(4)]
    for version, retracted in (((0, 5, 2), 1), ((0, 5, 1), 2)):
        lost = replay(load, settings(200, schedule_conservativeness=0.0, version=version)).preemptions
        assert sum(each.at == lost[0].at for each in lost) == retracted


def test_whoever_outgrows_the_pool_alone_is_aborted_and_the_next_runs_as_if_it_had_not_been():
    # admission counts on 4096 tokens of an answer, and a pool of 313 pages has no room for the 5011 that it is cut off at
    step_time = StepTime(base=1.0, context=0.01)
    after = [Request(0, 10, 300, stream=1), Request(0, 10, 300, stream=1)]
    pool = settings(5023, page_size=16)
    usual = replay(after, pool, step_time, concurrency={1: 1})
    outcome = replay([Request(0, 20, 9000, stream=1), *after], pool, step_time, concurrency={1: 1})
    assert outcome.finished_at[0] is None
    assert (outcome.evictions, outcome.peak_usage) == (0, 1.0)
    assert set(usual.token_gaps) <= set(outcome.token_gaps)


def test_a_request_that_never_fits_is_refused_and_its_client_goes_on():
    outcome = replay([Request(0, 900, 1), Request(0, 4, 1)], settings(), concurrency={0: 1})
    assert outcome.finished_at[0] is None
    assert outcome.finished_at[1] is not None
    outcome = replay([Request(0, 397, 1), Request(0, 398, 1)], settings(400))
    assert [at is not None for at in outcome.finished_at] == [True, False], "a prompt leaves three tokens of the pool at least"


def test_a_share_of_the_pool_is_a_pool_of_its_own():
    assert settings(400).of_pool(0.25) == settings(100)
