"""The estimate from replays, without a replay: what counts, what is held between bounds, and when there is none."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from pipelines.replay.load import Bucket, Interval, Progress
from pipelines.replay.requests import (
    Seen,
    Throw,
    _buckets,
    _described_by,
    _intervals,
    _line_at,
    _unlike,
    _why_not,
    estimate,
    settings_of,
    whole_requests,
)

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
ENGINE = {
    "engine": "0", "engine_kind": "vllm", "engine_generation": "v1", "engine_version": "0.32.0", "num_gpu_blocks": 129,
    "kv_capacity_tokens": 4096, "block_size": 32, "max_num_seqs": 16, "max_num_batched_tokens": 512, "max_model_len": 2048,
    "prefix_caching": None, "has_speculative_decoding": False, "kv_connector": None,
    "was_set_up_anew": False,
}  # fmt: skip
SEEN = Seen(AT, 7.0, 1000.0, 0.0, 0, 0, 3.0)


def throw(preemptions, tokens, *, seen=None, lost=None):
    return Throw(preemptions if seen is None else seen, preemptions, tokens if lost is None else lost, tokens)


def test_tokens_are_read_off_the_line_at_the_count():
    made = [throw(8, 800), throw(10, 1000), throw(12, 1200)]
    told = estimate(made, counted=11, model_error=0.1)
    assert told.tokens == pytest.approx((990, 1100, 1100))  # no more than each preemption can have lost
    assert told.preemptions == (11, 11, 11)
    assert (told.replayed_preemptions, told.replays) == (10, 3)


def test_the_range_is_what_the_replays_scatter_and_the_model_misses():
    made = [throw(10, 900, lost=5000), throw(10, 1100, lost=5000)]
    low, best, high = estimate(made, counted=10, model_error=0.1).tokens
    half = (300**2 + 100**2) ** 0.5
    assert (low, best, high) == pytest.approx((1000 - half, 1000, 1000 + half))


def test_without_a_count_the_replays_speak_for_themselves():
    made = [throw(8, 800, lost=4000), throw(12, 1200, lost=4000)]
    told = estimate(made, counted=None, model_error=0.1)
    half = (600**2 + 100**2) ** 0.5
    assert told.tokens == pytest.approx((1000 - half, 1000, 1000 + half))
    assert told.preemptions == pytest.approx((10 - 6.3246, 10, 10 + 6.3246), abs=1e-3)


def test_what_came_after_the_last_scrape_is_as_sure_as_a_replay():
    made = [throw(12, 1200, seen=10, lost=9000), throw(14, 1400, seen=10, lost=9000)]
    told = estimate(made, counted=10, model_error=0.1, unseen=2)
    assert told.preemptions == pytest.approx((10, 13, 13 + (3**2 + 0.6**2) ** 0.5 + 2))
    assert told.tokens[:2] == pytest.approx((1300 - (300**2 + 130**2) ** 0.5, 1300))
    assert told.tokens[2] > 1300 + 2 * 600  # each preemption nobody saw may have lost the most that one lost


def test_a_replay_that_counts_otherwise_is_believed_less():
    flat = [throw(10, 1000, lost=9000), throw(12, 1000, lost=9000)]
    low, best, _ = estimate(flat, counted=11, model_error=0.0).tokens
    assert (low, best) == (1000, 1000)
    low, best, high = estimate(flat, counted=22, model_error=0.0).tokens
    assert best > 1000
    assert low < best < high


def test_half_of_what_another_count_would_change_is_not_known():
    """On a flat line 1,000 tokens at any count; by the count it would be 12.5 / 11 of them."""
    told = estimate([throw(10, 1000, lost=9000), throw(12, 1000, lost=9000)], counted=12.5, model_error=0.0)
    half = 1000 * 1.5 / 11 / 2
    assert told.tokens == pytest.approx((1000 - half, 1000, 1000 + half))
    assert estimate([throw(0, 5), throw(0, 15)], counted=50, model_error=0.0).tokens == (0, 10, 10)  # none was replayed


def test_a_line_never_falls_and_never_outgrows_a_preemption_s_share():
    assert _line_at([10, 12], [1000, 900], 11)[0] == 950  # it does not fall: the mean
    assert _line_at([10, 12], [100, 1000], 12)[0] == pytest.approx(600)  # at most proportional: 550 / 11 each
    assert _line_at([0, 0], [5, 15], 3) == (10, 5)
    assert _line_at([10, 12], [1000, 1200], 11) == pytest.approx((1100, 0))
    assert _line_at([10, 12], [1000, 1200], 12) == pytest.approx((1200, 0))
    assert _line_at([10, 10], [900, 1100], 10) == (1000, 100)
    assert _line_at([8, 12], [1000, 1000], 14) == (1000, 0)  # as far off as replays lie
    assert _line_at([8, 12], [1000, 1000], 15)[0] == 1500  # farther: a share for each


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"engine_kind": None}, None),
        ({"engine_kind": "sglang"}, "the scheduler of this engine is not modelled"),
        ({"engine_generation": "v0"}, "the scheduler of this engine is not modelled"),
        ({"has_speculative_decoding": True}, "speculative decoding and KV connectors are not modelled"),
        ({"kv_connector": "X"}, "speculative decoding and KV connectors are not modelled"),
        ({"num_gpu_blocks": None}, None),
        ({"kv_capacity_tokens": None}, None),
        ({"num_gpu_blocks": None, "kv_capacity_tokens": None}, "the size of the KV pool is not known"),
    ],
)
def test_an_engine_that_is_not_modelled_gets_no_estimate(changed, reason):
    assert _why_not("preemption_counter", ENGINE | changed, SEEN, [], 5) == reason


def test_no_estimate_without_requests_a_count_or_all_of_the_load():
    requests = records(2)
    assert _why_not("replay", ENGINE, SEEN, [], 0) == "no requests recorded"
    assert _why_not("preemption_counter", ENGINE, SEEN, [], 0) == "no histograms of request lengths"
    silent = Seen(AT, None, 1000.0, 0.0, 0, 0, 0.0)
    assert _why_not("preemption_counter", ENGINE, silent, [], 5) == "num_preemptions_total is not exported"
    none = Seen(AT + timedelta(hours=1), 0.0, 20.0, 0.0, 0, 0, 0.0)
    assert _why_not("replay", ENGINE, none, requests, 2) == "no preemption was counted"
    busy = Seen(AT + timedelta(hours=1), 0.0, 20.0, 0.0, 0, 1, 0.0)
    early = Seen(AT - timedelta(hours=1), 0.0, 20.0, 0.0, 0, 0, 0.0)
    assert _why_not("replay", ENGINE, busy, requests, 2) is None
    assert _why_not("replay", ENGINE, early, requests, 2) is None  # requests came after the last scrape
    assert "others were there" in (_why_not("replay", ENGINE, SEEN, requests, 2) or "")
    assert _why_not("preemption_counter", ENGINE, SEEN, requests, 2) is None
    assert _why_not("replay", ENGINE, Seen(AT, 7.0, 22.0, 0.0, 0, 0, 0.0), requests, 2) is None  # nine in ten are enough


def test_lengths_that_only_sums_tell_are_none_to_replay():
    known = Interval(100, 2, 3, (Bucket(10, 20, 3),), 45, (Bucket(5, 10, 3),), 20, 1)
    assert _described_by([known, replace(known, prompts=()), replace(known, outputs=())]) == 3


def test_a_replay_that_preempts_nobody_where_the_engine_did_says_nothing_of_tokens():
    never, some = (estimate([throw(count, 100 * count)] * 4, counted=7.0, model_error=0.1) for count in (0, 5))
    assert "preempts nobody" in (_unlike(never, SEEN) or "")
    assert _unlike(some, SEEN) is None
    assert _unlike(never, replace(SEEN, preemptions=0.0)) is None


def test_requests_sent_after_the_last_scrape_are_seen_by_nobody():
    seen = Seen(AT + timedelta(seconds=0.5), 7.0, 1000.0, 0.0, 0, 0, 3.0)
    early, late = records(1)[0], replace(records(1)[0], arrived_s=AT.timestamp() + 1)
    assert not seen.ends_before([early])
    assert seen.ends_before([early, late])
    assert not Seen(None, 7.0, 1000.0, 0.0, 0, 0, 3.0).ends_before([late])


def test_where_the_metrics_end_is_told_in_tokens_the_requests_had_generated():
    half = Seen(AT + timedelta(seconds=1.5), 7.0, 1000.0, 0.0, 0, 0, 3.0)
    assert half.progress_of(records(2)) == pytest.approx(Progress.of(records(2)).at(AT.timestamp() + 1.5))
    assert 2 < (half.progress_of(records(2)) or 0) < 20
    assert half.progress_of([]) is None
    assert Seen(None, 7.0, 1000.0, 0.0, 0, 0, 3.0).progress_of(records(2)) is None


def test_settings_are_the_engine_s_own_or_vllm_s_defaults():
    told = settings_of(ENGINE)
    assert (told.blocks, told.block_size, told.max_num_seqs, told.max_num_batched_tokens) == (128, 32, 16, 512)
    assert told.is_caching
    assert not settings_of(ENGINE | {"prefix_caching": False}).is_caching
    bare = dict.fromkeys(("num_gpu_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "engine_version"))
    told = settings_of(ENGINE | bare)
    assert (told.blocks, told.block_size, told.max_num_seqs, told.max_num_batched_tokens) == (255, 16, 1024, 2048)


def requests_table(*rows):
    columns = ("request_key", "arrived_at", "first_token_at", "finished_at", "input_tokens", "output_tokens", "is_failed")
    unsaid = dict.fromkeys(("source", "run_index", "max_tokens", "ignores_eos"))
    return pl.DataFrame([dict(zip(columns, row, strict=True)) | unsaid for row in rows])


def records(count):
    rows = [(f"r{i}", AT, AT + timedelta(seconds=1), AT + timedelta(seconds=2), 100, 10, None) for i in range(count)]
    return [record for _, record in whole_requests(requests_table(*rows))]


def test_only_requests_that_ran_to_their_end_are_replayed_by_arrival():
    first, last = AT + timedelta(seconds=5), AT + timedelta(seconds=9)
    whole = ("late", AT + timedelta(seconds=1), first, last, 100, 10, False)
    table = requests_table(
        whole, ("early", AT, first, last, 90, 9, None), ("failed", AT, first, last, 90, 9, True),
        ("silent", AT, first, last, 90, 0, None), ("empty", AT, first, last, 0, 9, None), ("cut", AT, first, None, 90, 9, None),
        ("least", AT + timedelta(seconds=2), first, first, 1, 1, None),
    )  # fmt: skip
    found = [record for _, record in whole_requests(table)]
    assert [(each.prompt_tokens, each.output_tokens) for each in found] == [(90, 9), (100, 10), (1, 1)]
    assert found[1].arrived_s == AT.timestamp() + 1
    assert (found[1].first_token_s, found[1].finished_s) == (first.timestamp(), last.timestamp())


def test_what_the_metrics_saw():
    counters = pl.DataFrame(
        [
            {"signal": "preemptions", "labels": "", "delta": 2.0, "interval_end": AT},
            {"signal": "preemptions", "labels": "", "delta": 5.0, "interval_end": AT + timedelta(seconds=9)},
            {"signal": "generation_tokens", "labels": "", "delta": 90.0, "interval_end": AT},
            {"signal": "prompt_tokens", "labels": "", "delta": 200.0, "interval_end": AT},
            {"signal": "prefix_hits", "labels": "", "delta": 50.0, "interval_end": AT},
        ]
    )
    moments = (AT, AT + timedelta(seconds=1), AT + timedelta(seconds=2))
    states = pl.DataFrame({"sampled_at": moments[::-1], "running": [1, None, 3], "waiting": [0, 4, 2]})
    seen = Seen.of(counters, states)
    assert seen == Seen(AT + timedelta(seconds=9), 7.0, 90.0, 0.25, 5, 1, 5.0)
    by_source = pl.DataFrame(
        [
            {"signal": "prompt_tokens_by_source", "labels": "source=local_cache_hit", "delta": 30.0, "interval_end": AT},
            {"signal": "prompt_tokens_by_source", "labels": "source=local_compute", "delta": 70.0, "interval_end": AT},
        ]
    )
    assert Seen.of(pl.concat([counters, by_source]), states.clear()).hit_share == 0.3
    nothing = Seen.of(counters.clear(), states.clear())
    assert nothing == Seen(None, None, None, 0.0, 0, 0, 0.0)


def test_buckets_stand_for_themselves_and_end_where_the_model_does():
    inf = float("inf")
    assert _buckets([(0.0, 10.0, 3.0), (20.0, 50.0, 4.0)], 40.0) == (Bucket(0.0, 10.0, 3), Bucket(20.0, 40.0, 4))
    assert _buckets([(0.0, 10.0, 1.0), (10.0, inf, 2.0)], inf) == (Bucket(0.0, 10.0, 1), Bucket(10.0, 20.0, 2))
    assert _buckets([(0.0, inf, 3.0)], inf) == (Bucket(0.0, 2.0, 3),)
    assert _buckets([(0.0, 10.0, 5.0), (10.0, 20.0, -3.0), (20.0, 30.0, 2.0), (30.0, 40.0, 4.0)], 99.0) == (
        Bucket(0.0, 10.0, 5),
        Bucket(30.0, 40.0, 3),
    )


def test_an_interval_needs_tokens_and_a_load():
    later = AT + timedelta(seconds=15)
    names = {"generation_tokens": 90.0, "request_prompt_tokens_count": 2.0, "request_prompt_tokens_sum": 70.0}
    counters = pl.DataFrame([{"signal": name, "labels": "", "delta": value, "interval_end": AT} for name, value in names.items()])
    unseen = counters.with_columns(interval_end=pl.lit(later))
    histograms = pl.DataFrame(
        [
            {"signal": "request_prompt_tokens", "interval_end": AT, "above": above, "le": above + 50.0, "delta": 1.0}
            for above in (0.0, 50.0)
        ]
    )
    states = pl.DataFrame({"sampled_at": [AT], "running": [3], "waiting": [2]})
    [found] = _intervals(pl.concat([counters, unseen]), histograms, states, ENGINE)
    assert (found.generated, found.in_flight, found.finished, found.prompt_tokens, found.output_tokens) == (90.0, 5, 2, 70.0, 0.0)
    assert found.prompts == (Bucket(0.0, 50.0, 1), Bucket(50.0, 100.0, 1))
    assert found.outputs == ()
