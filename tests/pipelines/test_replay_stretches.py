"""Which part of a long recording is replayed, and that it stands for all of it."""

from __future__ import annotations

import pytest

from pipelines.replay.load import Bucket, Interval
from pipelines.replay.requests import MOST_DESCRIBED, STRETCHES, Seen, of_counters, stretches
from pipelines.replay.scheduler import Settings


def interval(finished: int, preemptions: float, in_flight: int = 8) -> Interval:
    lengths = (Bucket(100.0, 200.0, finished),)
    return Interval(150.0 * finished, in_flight, finished, lengths, 150.0 * finished, lengths, 150.0 * finished, preemptions)


def test_a_short_recording_is_replayed_whole():
    intervals = [interval(10, 1.0)] * (MOST_DESCRIBED // 10)
    assert stretches(intervals, 3) == [(3, intervals)]


def test_of_a_long_recording_one_stretch_of_each_part_is_replayed_where_it_preempts_most():
    calm, storm = [interval(50, 0.0, in_flight=2)] * 100, [interval(50, 30.0, in_flight=40)] * 10
    parts = stretches((calm + storm) * STRETCHES, 0)
    assert len(parts) == STRETCHES
    for in_flight, part in parts:
        assert sum(each.preemptions for each in part) == 300, "the storm of the part, all of it"
        assert sum(each.finished for each in part) <= MOST_DESCRIBED // STRETCHES
        assert in_flight in (2, 40), "what was in flight at the scrape before"


@pytest.mark.parametrize("times", [1, 4])
def test_the_stretches_stand_for_the_whole(times):
    intervals = [interval(10, 6.0, in_flight=30)] * (MOST_DESCRIBED // 10 * times)
    counted = sum(each.preemptions for each in intervals)
    seen = Seen(None, counted, None, hit_share=0.0, first_in_flight=30, last_in_flight=0, most_in_an_interval=0.0)
    settings = Settings(blocks=300, block_size=16, max_num_seqs=64, max_num_batched_tokens=2048)
    told = of_counters(settings, intervals, seen, unseen=0.0)
    low, best, high = (bound / counted for bound in told.tokens)
    assert low <= best <= high
    assert 50 < best < 400, "tokens for each preemption: part of a context of 300, however long the recording"
    assert told.preemptions == pytest.approx((counted,) * 3, rel=0.05)
