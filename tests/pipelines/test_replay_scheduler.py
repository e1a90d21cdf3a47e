"""The scheduler's replay, on loads small enough to follow by hand and large enough to measure."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.replay.engine import PROGRESS, Content, Outcome, Request, StepTime
from pipelines.replay.vllm import Replay, Settings


def settings(blocks: int = 100, **changed) -> Settings:
    return Settings(**{"blocks": blocks, "block_size": 4, "max_num_seqs": 8, "max_num_batched_tokens": 64, **changed})


def replay(requests: list[Request], given: Settings | None = None, step_time: StepTime = PROGRESS, **options) -> Outcome:
    return Replay(given or settings(), step_time, requests, **options).run()


def test_one_request_takes_one_step_a_token():
    outcome = replay([Request(0, 10, 5)], step_time=StepTime(base=1.0))
    assert outcome.steps == 5
    assert outcome.computed_tokens == 10 + 4
    assert outcome.first_token_at == (1.0,)
    assert outcome.finished_at == (5.0,)


def test_a_step_takes_the_longer_the_more_context_it_reads():
    outcome = replay([Request(0, 10, 5), Request(100, 10, 5)], step_time=StepTime(context=1.0))
    assert outcome.first_token_at == (0.0, 100.0)  # a prompt is computed, not read
    assert outcome.finished_at == (11.0 + 12.0 + 13.0 + 14.0, 100.0 + 11.0 + 12.0 + 13.0 + 14.0)


class StepByStep(Replay):
    def _can_jump(self) -> bool:
        return False


@given(st.lists(st.tuples(st.floats(0, 40), st.integers(1, 60), st.integers(1, 90)), min_size=1, max_size=25))
def test_jumps_pass_the_same_time_as_step_by_step(load):
    requests = [Request(*each) for each in load]
    step_time = StepTime(base=0.05, computed=0.003, generated=0.002, context=0.001)
    jumped = Replay(settings(blocks=60), step_time, requests).run()
    stepped = StepByStep(settings(blocks=60), step_time, requests).run()
    assert jumped.steps == stepped.steps
    assert jumped.finished_at == pytest.approx(stepped.finished_at)
    in_jumps, in_steps = (sum(time * count for time, count in each.token_gaps) for each in (jumped, stepped))
    assert in_jumps == pytest.approx(in_steps, rel=1e-3)


def test_a_prompt_longer_than_the_budget_takes_several_steps():
    outcome = replay([Request(0, 150, 3)], step_time=StepTime(base=1.0))
    assert outcome.first_token_at == (3.0,)
    # of these only the last gives a token
    assert replay([Request(0, 150, 3)], step_time=StepTime(generated=1.0)).finished_at == (3.0,)


def test_the_request_admitted_last_is_preempted_and_computed_again():
    # 5 blocks hold two prompts of 8 and one block more: whoever was first takes it, then the other must go
    outcome = replay([Request(0, 8, 6), Request(0, 8, 6)], settings(blocks=5))
    assert [each.request for each in outcome.preemptions] == [1]
    lost = outcome.preemptions[0]
    assert lost.context_tokens == 8
    # its tail was taken for the survivor's growth; the head of its prompt was still there
    assert lost.recomputed_tokens == 4
    assert outcome.computed_tokens == 2 * (8 + 5) + 4
    assert [cause for cause, _ in outcome.waiting] == ["pool"]


def test_whoever_fits_to_the_last_block_is_admitted_and_ends():
    assert replay([Request(0, 8, 1)] * 2, settings(blocks=4)).started_at == (0.0, 0.0)
    assert not replay([Request(0, 8, 5)] * 2, settings(blocks=6)).preemptions


def test_without_caching_all_is_computed_again():
    outcome = replay([Request(0, 8, 6), Request(0, 8, 6)], settings(blocks=5, is_caching=False))
    assert outcome.recomputed_tokens == outcome.lost_tokens == 8


def test_a_shared_prefix_is_computed_once():
    requests = [Request(0, 12, 2, shared_blocks=2), Request(50, 12, 2, shared_blocks=2)]
    assert replay(requests).first_hit_tokens == 8
    # of a block that is known in part nobody knows that it is the same
    begun = Content.of((1, 2), 4).until(6)
    assert replay([Request(0, 12, 2, content=begun), Request(50, 12, 2, content=begun)]).first_hit_tokens == 4


def test_slots_are_a_limit_of_their_own():
    outcome = replay([Request(0, 4, 3)] * 2, settings(max_num_seqs=1), StepTime(base=1.0))
    assert outcome.finished_at == (3.0, 6.0)
    assert not outcome.preemptions


def test_a_client_with_a_limit_sends_the_next_request_when_one_ends():
    outcome = replay([Request(0, 4, 3)] * 3, step_time=StepTime(base=1.0), concurrency={0: 1})
    assert outcome.started_at == (0.0, 3.0, 6.0)


def test_a_request_that_never_fits_is_refused():
    outcome = replay([Request(0, 200, 201), Request(0, 200, 200)])
    assert outcome.finished_at[0] is None
    assert outcome.finished_at[1] is not None


def test_before_0_19_1_a_prefill_may_begin_that_does_not_fit_whole():
    assert Settings.of_version(
        (0, 19, 0), blocks=1, block_size=1, max_num_seqs=1, max_num_batched_tokens=1
    ) != Settings.of_version((0, 19, 1), blocks=1, block_size=1, max_num_seqs=1, max_num_batched_tokens=1)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=25),
    st.integers(26, 60),
    st.booleans(),
    st.booleans(),
)
def test_every_request_ends_and_every_token_is_accounted_for(lengths, blocks, must_fit, caching):
    requests = [Request(float(i), prompt, output, shared_blocks=shared) for i, (prompt, output, shared) in enumerate(lengths)]
    given_settings = settings(blocks, must_whole_sequence_fit=must_fit, is_caching=caching)
    player = Replay(given_settings, PROGRESS, requests)
    outcome = player.run()
    assert all(each is not None for each in outcome.finished_at)
    assert player.pool.free_blocks == blocks
    assert sum(count for _, count in outcome.token_gaps) == sum(each.output_tokens - 1 for each in requests)
    if must_fit:
        useful = sum(each.prompt_tokens + each.output_tokens - 1 for each in requests) - outcome.first_hit_tokens
        assert outcome.computed_tokens == useful + outcome.recomputed_tokens


class Counted(Replay):
    made = 0

    def _step(self) -> None:
        self.made += 1
        super()._step()


def test_steps_inside_blocks_are_passed_over_while_somebody_waits_for_the_pool_too():
    player = Counted(settings(), PROGRESS, [Request(0, 210, 190), Request(0, 200, 150)])
    outcome = player.run()
    assert outcome.started_at[1] == outcome.finished_at[0]
    assert player.made < outcome.steps / 3


def test_work_grows_with_requests_not_with_tokens():
    rng = Random(1)
    requests = [Request(i * 270.0, rng.randint(100, 1500), rng.randint(100, 500)) for i in range(200)]
    few = Replay(Settings(9000, 16, 256, 8192), PROGRESS, requests).run()
    coarse = Replay(Settings(9000 // 8, 128, 256, 8192), PROGRESS, requests).run()
    assert few.steps == coarse.steps or abs(few.steps - coarse.steps) < 0.1 * few.steps
