"""Sweeps: which results belong to one, what a level's share of the engine's counters is, where the knee and the limit lie."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pipelines.sweep import Level, Request, Room, above, between, cache_limit, knee_interval, knee_of, told

RUNS = """
    source  run_index  client      model  started_at  ended_at  duration_s  max_concurrency  request_rate  completed
    a.json  0          vllm_bench  m      12:00:00    12:00:10  10          8                -             40
    b.json  0          vllm_bench  m      12:00:20    12:00:30  10          16               -             80
    c.json  0          vllm_bench  m      12:01:00    12:01:10  10          32               -             90
"""


STAGE = '{"latency.time_to_first_token.p99": 0.04}'


def report(kv_usage: float) -> str:
    return f'{{"kv_cache_usage_percentage.p99": {kv_usage}, "num_preemptions_total.mean": 0}}'


def test_results_at_several_levels_are_a_sweep_and_each_level_is_counted_until_the_next_begins(sql):
    sql.given("client_runs", RUNS)
    assert (
        sql.rows("core.sweep_runs")
        == """
        source  dimension    level  window_end  counted_until
        a.json  concurrency  8      12:00:10    12:00:20
        b.json  concurrency  16     12:00:30    12:00:45
        c.json  concurrency  32     12:01:10    12:01:25
    """
    )


def test_results_at_one_level_are_none_and_what_varies_more_is_the_level(sql):
    sql.given(
        "client_runs",
        """
        source  run_index  client  model  max_concurrency  request_rate
        a       0          one     m      8                -
        b       0          one     m      8                -
        c       0          two     m      8                0.5
        d       0          two     m      8                0.6
        e       0          two     m      16               0.8
        """,
    )
    assert (
        sql.rows("core.sweep_runs")
        == """
        source  dimension  level
        c       rate       0.5
        d       rate       0.6
        e       rate       0.8
    """
    )


LOADS = """
    source  run_index  client      model  started_at  max_concurrency  completed  failed  total_input_tokens  total_output_tokens
    a.json  0          vllm_bench  m      12:00:00    8                100        0       100000              20000
    b.json  0          vllm_bench  m      12:01:00    16               100        0       {}                  {}
    c.json  0          vllm_bench  m      12:02:00    32               100        {}      100000              {}
"""


@pytest.mark.parametrize(
    ("given", "levels"),
    [
        ((100000, 20000, 0, 20000), [8, 16, 32]),
        ((120000, 20000, 0, 17000), [8, 16, 32]),  # by less than a quarter
        ((200000, 20000, 0, 20000), [8, 32]),  # prompts twice as long
        ((100000, 20000, 0, 8000), [8, 16]),  # answers cut to less than half
        ((100000, 20000, 30, 8000), [8, 16, 32]),  # where requests failed, answers tell nothing
        (("-", "-", 0, 8000), [8, 16]),  # one without lengths joins the first
    ],
)
def test_levels_of_one_sweep_send_requests_of_the_same_lengths(sql, given, levels):
    sql.given("client_runs", LOADS.format(*given))
    assert [row["level"] for row in sql.rows("core.sweep_runs").dicts()] == levels


def test_two_clients_of_other_lengths_are_two_loads_and_no_sweep(sql):
    """Two uniform spreads of prompts, 180 and 300 in the middle, tell apart what their few requests' chance would not."""
    sql.given(
        "client_runs",
        """
        source  run_index  client      model  started_at  max_concurrency  completed
        a.json  0          vllm_bench  m      12:00:00    30               40
        b.json  0          vllm_bench  m      12:02:00    24               40
        """,
    )
    lengths = {"a.json": range(36, 324, 7), "b.json": range(60, 540, 12)}
    rows = [f"{name} 0 {place} {tokens}" for name, each in lengths.items() for place, tokens in enumerate(each)]
    sql.given("staging.client_requests", "\n".join(["source  run_index  request_index  input_tokens", *rows]).replace(" ", "  "))
    assert sql.rows("core.sweep_runs").dicts() == []


def test_two_sweeps_in_one_folder_are_told_apart_by_their_lengths(sql):
    sql.given(
        "client_runs",
        """
        source  run_index  client      model  max_concurrency  completed  total_input_tokens  total_output_tokens
        a.json  0          vllm_bench  m      8                100        100000              20000
        b.json  0          vllm_bench  m      8                100        800000              20000
        c.json  0          vllm_bench  m      16               100        100000              20000
        d.json  0          vllm_bench  m      16               100        800000              20000
        """,
    )
    assert (
        sql.rows("core.sweep_runs")
        == """
        sweep                                                 level  source
        vllm_bench m, prompts of 1,000 tokens, answers of 200     8      a.json
        vllm_bench m, prompts of 1,000 tokens, answers of 200     16     c.json
        vllm_bench m, prompts of 8,000 tokens, answers of 200     8      b.json
        vllm_bench m, prompts of 8,000 tokens, answers of 200     16     d.json
    """
    )


@pytest.mark.parametrize(
    ("start", "clock_error_s", "levels"),
    [("12:00:08.5", "-", []), ("12:00:09", "-", [8.0, 16.0]), ("12:00:07", 1, [8.0, 16.0]), ("12:00:06.9", 1, [])],
)
def test_clients_that_ran_at_the_same_time_are_no_levels(sql, start, clock_error_s, levels):
    """A tenth of the shorter one's ten seconds may be common, and what the two clocks may be off by."""
    sql.given(
        "client_runs",
        f"""
        source  run_index  client      model  started_at  ended_at  duration_s  max_concurrency  request_rate  clock_error_s
        a.json  0          vllm_bench  m      12:00:00    12:00:10  10          8                -             {clock_error_s}
        a.copy  0          vllm_bench  m      12:00:00    12:00:10  10          8                -             {clock_error_s}
        b.json  0          vllm_bench  m      {start}     12:00:30  20          16               -             {clock_error_s}
        """,
    )
    assert sorted({row["level"] for row in sql.rows("core.sweep_runs").dicts()}) == levels


def test_preemptions_of_an_interval_that_spans_two_levels_may_be_of_either(sql):
    sql.given("client_runs", RUNS)
    sql.given(
        "core.preemption_intervals",
        """
        engine  interval_start  interval_end  preemptions
        0       12:00:00        12:00:15      0
        0       12:00:15        12:00:25      10
        0       12:00:25        12:00:40      6
        """,
    )
    assert (
        sql.rows("marts.sweep_levels")
        == """
        level  preemptions_low  preemptions  preemptions_high
        8      0                5.0          10
        16     6                11.0         16
        32     -                -            -
    """
    )


def test_a_report_whose_kv_usage_is_zero_in_every_stage_never_had_it(sql):
    sql.given(
        "client_runs",
        f"""
        source  run_index  client  request_rate  aggregates
        v/stage_0_lifecycle_metrics.json  0  inference_perf  1  {STAGE}
        v/stage_1_lifecycle_metrics.json  0  inference_perf  30  {STAGE}
        v/stage_0_prometheus_metrics.json  0  inference_perf_prometheus  -  {report(kv_usage=0)}
        v/stage_1_prometheus_metrics.json  0  inference_perf_prometheus  -  {report(kv_usage=0)}
        """,
    )
    assert (
        sql.rows("core.client_sums")
        == """
        source                            kv_usage_ratio  preemptions  unexported
        v/stage_0_lifecycle_metrics.json  -               -            [kv_usage_ratio, preemptions]
        v/stage_1_lifecycle_metrics.json  -               -            [kv_usage_ratio, preemptions]
    """
    )
    assert (
        sql.rows("core.sweep_runs")
        == """
        sweep  level
        v      1
        v      30
    """
    )


def test_what_a_report_says_is_the_most_of_its_engines_load_has_columns_in_our_unit(sql):
    most = '{"engine.kv_cache_usage.max": 92.5, "engine.running_requests.max": 62, "engine.waiting_requests.max": 25}'
    sql.given("client_runs", f"source  run_index  client  aggregates\nr.yaml  0  tool  {most}\ns.yaml  0  tool  -")
    assert (
        sql.rows("core.client_sums")
        == """
        source  kv_usage_ratio  most_running  most_waiting  waiting
        r.yaml  0.925           62            25            -
        s.yaml  -               -             -             -
        """
    )


def test_a_report_that_shows_a_pool_in_use_is_believed_when_it_counts_no_preemption(sql):
    sql.given(
        "client_runs",
        f"""
        source  run_index  client  request_rate  aggregates
        v/stage_0_lifecycle_metrics.json  0  inference_perf  1  {STAGE}
        v/stage_0_prometheus_metrics.json  0  inference_perf_prometheus  -  {report(kv_usage=0.4)}
        """,
    )
    assert (
        sql.rows("core.client_sums")
        == """
        source                            kv_usage_ratio  preemptions
        v/stage_0_lifecycle_metrics.json  0.4             0
    """
    )


def test_sums_of_other_clients_are_known_by_their_names_and_units(sql):
    sql.given(
        "client_runs",
        """
        source  run_index  client  request_rate  aggregates
        a       0          guidellm    2  {"time_to_first_token_ms.successful.percentiles.p99": 1500}
        b       0          inferencex  4  {"p99_ttft": 2.5, "output_throughput": 60}
        """,
    )
    assert (
        sql.rows("core.client_sums")
        == """
        source  ttft_p99_s  output_tokens_per_s
        a       1.5         -
        b       2.5         60
    """
    )


@pytest.mark.parametrize(
    ("second", "low", "best"),
    [('{"retractions": 7, "ttft_p50_s": 1}', "4", "11"), ('{"retractions": null, "ttft_p50_s": 1}', "4", "-")],
)
def test_preemptions_that_a_table_counts_are_the_engines_in_its_own_words(sql, second, low, best):
    """A column that a level leaves empty is not known there, and the sum with it is not."""
    first = '{"retractions": 4, "max_token_usage": 0.99}'
    low = low if best == "-" else best
    sql.given(
        "client_runs",
        f"""
        source  run_index  client       request_rate  completed  aggregates
        t.csv   0          sweep_table  0.5           120        {first}
        t.csv   1          sweep_table  0.6           120        {second}
        """,
    )
    assert (
        sql.rows("marts.preemptions")
        == f"""
        engine  count_low  count_best  count_high  told_by
        0       {low}      {best}      {best}      what the client's table counts at each level
    """
    )
    (blind,) = sql.rows("advice.verdicts").dicts()
    assert "sglang:num_retracted_requests_total" in blind["missing"][0]
    assert not any("vllm" in wish or "--kv-events-config" in wish for wish in blind["missing"])


def test_tables_without_an_engines_own_words_are_taken_for_the_common_one(sql):
    sql.given(
        "client_runs",
        """
        source  run_index  client       request_rate  completed  aggregates
        t.csv   0          sweep_table  0.5           120        {"ttft_p50_s": 1}
        """,
    )
    assert sql.rows("marts.preemptions").dicts() == []
    (blind,) = sql.rows("advice.verdicts").dicts()
    assert "vllm:num_preemptions_total" in blind["missing"][0]


def test_latency_summed_up_is_told_of_results_of_which_nothing_better_is(sql):
    """Not of one that has its requests, of levels of a sweep, or of one that completed none."""
    sql.given(
        "client_runs",
        """
        source     run_index  client      model  max_concurrency  completed  failed  aggregates
        d/a.json   0          vllm_bench  one    8                640        -       {"median_ttft": 109.8, "p99_tpot": 0.26}
        d/b.json   0          vllm_bench  two    8                10         2       {"median_ttft_ms": 200}
        d/c.json   0          vllm_bench  three  8                10         0       {"median_ttft_ms": 200}
        d/d.json   0          vllm_bench  three  16               10         0       {"median_ttft_ms": 300}
        d/e.json   0          vllm_bench  four   8                0          5       {"median_ttft_ms": 0}
        d/f.json   0          vllm_bench  five   8                5          0       {"output_throughput": 60}
        """,
    )
    sql.given(
        "staging.client_requests",
        """
        source    run_index  request_index  ttft_s
        d/a.json  0          0              -
        d/b.json  0          0              0.2
        """,
    )
    assert (
        sql.rows("core.client_latencies")
        == """
        source_file  completed  failed  ttft_p50_s  ttft_p99_s  itl_p50_s  itl_p99_s
        a.json       640        -       109.8       -           -          0.26
    """
    )


# the knee, the limit and what to add, which are Python


def level(at: float, useful: float, tail_s: float, preempted: float | tuple[float, float] | None = 0.0, **more: object) -> Level:
    low, high = preempted if isinstance(preempted, tuple) else (preempted, preempted)
    plain = {"in_flight": None, "met_target_share": None, "sent_share": None, "requests": ()}
    return Level(
        at=at,
        useful=useful,
        tail_s=tail_s,
        preempted_low=low,
        preempted_high=high,
        target_ttft_s=2,
        target_gap_s=2,
        **plain | more,
    )


def test_the_knee_is_where_throughput_per_tail_latency_is_highest():
    levels = [level(1, 100, 1), level(2, 190, 1.1), level(4, 300, 1.3), level(8, 330, 2.6, 5.0)]
    assert knee_of(levels) == 4
    assert knee_of(levels[:2]) is None


def test_a_step_that_raises_throughput_as_much_as_the_load_is_no_knee():
    """The published stages: 49 % more load buys 49 % more tokens up to 92.19 requests/s, the next third 11 %."""
    told_of = [(1, 64, 0.04), (31.4, 1943, 0.044), (61.79, 3821, 0.057), (92.19, 5694, 0.182), (122.59, 6317, 3.2)]
    levels = [level(*each) for each in told_of]
    assert knee_of(levels) == 92.19
    row = told(levels[:-1], "rate")
    assert (row["knee_level"], row["knee_before"]) == (92.19, None)
    assert "No knee up to 92.19 requests/s." in str(row["summary"])
    assert any("92.19 requests/s, still buys tokens" in each for each in row["remarks"])


def certain(at: float, rate: float, wait_s: float) -> Level:
    """A level of which every resample is alike: an interval of one level."""
    return level(at, rate, wait_s, requests=(Request(rate / at, 1.0, wait_s),) * 20, in_flight=at)


@pytest.mark.parametrize(
    ("waits", "words"),
    [
        ((1, 1, 1, 9), "The knee lies between concurrency 4 and 8 (90 % interval: 4 to 8): "),
        ((1, 1, 1, 1), "No knee up to concurrency 8 (90 % interval: 8 or more)."),
    ],
)
def test_the_interval_told_of_the_knee_is_on_the_scale_of_its_place(waits, words):
    rates = (50.0, 90.0, 150.0, 160.0)
    levels = [certain(at, rate, wait) for at, rate, wait in zip((1.0, 2.0, 4.0, 8.0), rates, waits, strict=True)]
    assert words in str(told(levels, "concurrency")["summary"])


def test_a_knee_at_the_lowest_level_has_no_lower_end():
    """Two levels bracket it only where one below them was measured: it is not said to lie between the lowest and the next."""
    row = told([level(0.5, 1026, 0.07), level(0.6, 1095, 16.2), level(0.7, 1132, 47)], "rate")
    assert (row["knee_level"], row["knee_before"]) == (0.5, 0.6)
    assert "The knee lies below 0.6 requests/s: the step from 0.5 to 0.6 raises useful throughput by 7 %" in str(row["summary"])
    assert "How far below the knee lies cannot be told: 0.5 requests/s is the lowest level." in row["remarks"]


def test_the_interval_told_of_the_knee_holds_the_place_told_where_resamples_bend_lower():
    """The client's own duration says level 4, its requests drawn again say level 2: the interval reaches from 2 to beyond 4."""
    levels = [certain(1.0, 50.0, 1), certain(2.0, 90.0, 1), certain(4.0, 150.0, 3), certain(8.0, 200.0, 30)]
    levels[2] = replace(levels[2], useful=900.0)
    assert "between concurrency 4 and 8 (90 % interval: 2 to 8)" in str(told(levels, "concurrency")["summary"])


def test_the_limit_is_told_only_where_it_is_sure():
    assert cache_limit([level(8, 1, 1), level(16, 1, 1, 9.0)]).low == 8
    limit = cache_limit([level(8, 1, 1), level(16, 1, 1, (0.0, 4.0)), level(24, 1, 1, 9.0)])
    assert (limit.low, limit.high) == (8, 24)
    assert cache_limit([level(8, 1, 1, None), level(16, 1, 1, None)]).high is None


@pytest.mark.parametrize(
    ("levels", "adds", "remark"),
    [
        ([level(8, 90, 1), level(16, 170, 1.1), level(32, 175, 4, 60.0)], [20, 24, 28], None),
        ([level(8, 90, 1), level(16, 170, 1.1), level(32, 320, 1.2)], [48, 64], "stopped before the cache limit"),
        ([level(8, 90, 1, 1.0), level(16, 95, 3, 50.0), level(32, 96, 6, 90.0)], [2, 4, 6, 10, 12, 14], "began too high"),
        ([level(4, 90, 1), level(5, 170, 1.1), level(6, 175, 4, 60.0)], [], None),
    ],
)
def test_the_levels_to_add_lie_where_the_sweep_left_a_gap(levels, adds, remark):
    row = told(levels, "concurrency")
    assert row["levels_to_add"] == adds
    assert remark is None or remark in " ".join(row["remarks"])


def test_levels_between_two_are_whole_where_they_count_requests():
    assert between(16, 24, is_whole=True) == [18, 20, 22]
    assert between(0.5, 0.6, is_whole=False) == [0.525, 0.55, 0.575]
    assert between(15, 16, is_whole=True) == []
    assert above(48, is_whole=True) == [72, 96]


def test_the_interval_of_the_knee_holds_it_as_often_as_stated():
    """A population whose knee is known: at 16, and not by much. Over many small samples of it the interval must hold 16."""
    shape = {4: (0.004, 0.9), 8: (0.004, 1.0), 16: (0.0045, 1.4), 32: (0.009, 3.2)}

    def sample(rng: random.Random, size: int) -> list[Level]:
        drawn = []
        for at, (per_token, wait) in shape.items():
            tokens = [rng.randint(100, 400) for _ in range(size)]
            requests = tuple(Request(n, n * per_token * at**0.5, wait * rng.lognormvariate(0, 0.2)) for n in tokens)
            drawn.append(level(at, 0, 0, requests=requests, in_flight=float(at)))
        return drawn

    def knee(levels: list[Level]) -> float:
        found = knee_interval(levels, confidence=0.0)
        assert found is not None
        return found[0]

    truth = knee(sample(random.Random(0), 4000))
    held = 0
    for trial in range(60):
        found = knee_interval(sample(random.Random(trial + 1), 40), seed=trial)
        held += found is not None and found[0] <= truth <= found[1]
    assert held >= 0.9 * 60 - 5  # five are two standard deviations of chance


@pytest.mark.parametrize(("slots", "added"), [(None, [8, 14, 19, 36, 48]), (48, [8, 14, 19, 36, 48]), (4, [8, 14, 19])])
def test_more_clients_than_slots_are_not_asked_for(slots, added):
    levels = [replace(level(at, 100 * at, 0.1), preempted_low=0, preempted_high=0) for at in (3, 24)]
    row = told(levels, "concurrency", room=Room(slots=slots))
    assert row["levels_to_add"] == added
    assert ("The cache limit lies beyond max_num_seqs (4)" in " ".join(row["remarks"])) == (slots == 4)
    assert ("no more than 4 run at once" in row["summary"]) == (slots == 4)
