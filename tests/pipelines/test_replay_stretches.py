"""Which part of a long recording is replayed, and that it stands for all of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pipelines.replay import requests
from pipelines.replay.load import Bucket, Interval
from pipelines.replay.requests import MOST_DESCRIBED, STRETCHES, Seen, Throw, of_counters, stretches, throws
from pipelines.replay.vllm import Settings

SETTINGS = Settings(blocks=300, block_size=16, max_num_seqs=64, max_num_batched_tokens=2048)


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


@pytest.mark.parametrize(
    ("preemptions", "bounds"),
    [
        ([0, 1, 5, 0, 0, 2, 6, 1], [(1, 3), (6, 8)]),  # half of the 15 are reached with the sixth interval
        ([9, 0, 0, 0, 0, 2, 6, 1], [(0, 1), (5, 7)]),  # half are reached with the first
        ([9, 0, 5, 1, 0, 0, 0, 0], [(0, 1), (2, 4)]),
        ([9, 0, 0, 0, 0, 0, 0, 0], [(0, 1), (1, 2)]),  # nothing anywhere in the second part: its first
        ([0, 0, 0, 0, 0, 0, 0, 9], [(6, 8)]),  # half are reached with the last: there is no second part
    ],
)
def test_a_stretch_holds_as_many_requests_as_its_part_may_and_most_of_its_preemptions(monkeypatch, preemptions, bounds):
    monkeypatch.setattr(requests, "MOST_DESCRIBED", 40)
    monkeypatch.setattr(requests, "STRETCHES", 2)
    intervals = [interval(10, count, in_flight=100 + number) for number, count in enumerate(preemptions)]
    assert stretches(intervals, 7) == [
        (intervals[start - 1].in_flight if start else 7, intervals[start:end]) for start, end in bounds
    ]


@pytest.fixture
def thrown(monkeypatch):
    """Replays that go as the counters say, at 100 tokens a preemption of which 150 were lost; and what was asked of them."""
    asked = []

    def throws(*_, hit_share, until, enough):
        counted = until / 1000
        asked.append((hit_share, until, enough))
        return [Throw(int(counted), int(counted), int(150 * counted), int(100 * counted))] * 4

    monkeypatch.setattr(requests, "throws", throws)
    return asked


def counted_in(number, preemptions):
    """An interval that generated a thousand tokens for each of its preemptions."""
    return replace(interval(10, preemptions, in_flight=100 + number), generated=1000.0 * preemptions)


def test_stretches_are_taken_for_the_whole_by_their_preemptions(monkeypatch, thrown):
    monkeypatch.setattr(requests, "MOST_DESCRIBED", 40)
    monkeypatch.setattr(requests, "STRETCHES", 2)
    intervals = [counted_in(*each) for each in enumerate([0, 1, 5, 0, 0, 2, 6, 1])]
    seen = Seen(None, 15.0, None, hit_share=0.25, first_in_flight=7, last_in_flight=1, most_in_an_interval=3.0)
    told = of_counters(SETTINGS, intervals, seen, unseen=3.0)
    assert thrown == [(0.25, 6000, 6000), (0.25, 7000, 6000)]
    assert told.tokens == pytest.approx((0.85 * 1500, 1500, 1.15 * 1500 * 18 / 15))  # 13 of the 15 were in the stretches
    assert told.preemptions == (15, 15, 18)
    assert (told.replayed_preemptions, told.replays) == (pytest.approx(15), 8)


def test_a_recording_replayed_whole_is_asked_for_its_own_count(thrown):
    seen = Seen(None, 15.0, None, hit_share=0.25, first_in_flight=7, last_in_flight=1, most_in_an_interval=3.0)
    told = of_counters(SETTINGS, [counted_in(0, 10), counted_in(1, 5)], seen, unseen=3.0)
    assert thrown == [(0.25, 15_000, 12_000)]
    assert told.tokens == pytest.approx((0.85 * 1500, 1500, 1.15 * 1500 + 3 * 150))
    assert told.preemptions == (15, 15, 18)


@pytest.mark.parametrize(("enough", "made"), [(0, 4), (50, 5), (10**9, 16)])
def test_there_are_four_replays_at_least_and_sixteen_at_most(monkeypatch, enough, made):
    outcome = SimpleNamespace(preemptions=[SimpleNamespace(at=1.0), SimpleNamespace(at=2.0)], lost_tokens=9, recomputed_tokens=5)
    monkeypatch.setattr(requests, "Replay", lambda *_: SimpleNamespace(run=lambda: outcome))
    monkeypatch.setattr(requests, "sharing", lambda drawn, *_, **__: drawn)
    told = throws(SETTINGS, lambda _: [None] * 10, hit_share=0.0, until=1.0, enough=enough)
    assert told == [Throw(1, 2, 9, 5)] * made


@pytest.mark.parametrize("times", [1, 4])
def test_the_stretches_stand_for_the_whole(times):
    intervals = [interval(10, 6.0, in_flight=30)] * (MOST_DESCRIBED // 10 * times)
    counted = sum(each.preemptions for each in intervals)
    seen = Seen(None, counted, None, hit_share=0.0, first_in_flight=30, last_in_flight=0, most_in_an_interval=0.0)
    told = of_counters(SETTINGS, intervals, seen, unseen=0.0)
    low, best, high = (bound / counted for bound in told.tokens)
    assert low <= best <= high
    assert 50 < best < 400, "tokens for each preemption: part of a context of 300, however long the recording"
    assert told.preemptions == pytest.approx((counted,) * 3, rel=0.05)
