"""The ladder of evidence, rung by rung: what each method says of its inputs, when it has holes, and what answers in the end."""

from dataclasses import replace

import pytest

ENGINE = """
    engine  engine_kind  kv_capacity_tokens  block_size
    0       vllm         10000               16
"""
INPUT_AND_OUTPUT_OF_VICTIMS = ["sglang:num_retracted_input_tokens_total", "sglang:num_retracted_output_tokens_total"]
COUNTED = "engine  signal  labels  interval_start  interval_end  delta  is_reset\n"
FULL = """
    engine  sampled_at  origin   running  kv_usage_ratio
    0       12:00:00    metrics  10       0.95
    0       12:00:10    metrics  9        0.9
    0       12:00:20    metrics  5        0.5
    0       12:00:30    metrics  4        0.49
    0       12:00:40    metrics  0        0.95
"""


@pytest.fixture
def sql(alone):
    return alone


def told(sql, *columns, kind="preemption_recompute"):
    return [
        tuple(row[column] for column in columns) for row in sql.rows("core.recompute_estimates").dicts() if row["kind"] == kind
    ]


def used(sql, *columns, kind="preemption_recompute"):
    return [row[1:] for row in told(sql, "is_used", *columns, kind=kind) if row[0]]


def preemptions(sql, *counts):
    rows = [f"0  12:0{number}:00  12:0{number + 1}:00  {count}  preemption_counter" for number, count in enumerate(counts)]
    sql.given("core.preemption_intervals", "\n".join(["engine  interval_start  interval_end  preemptions  method", *rows]))


def kv_events(sql, **changed):
    known = dict.fromkeys(("recompute_low", "recompute_best", "recompute_high", "refill_low", "refill_best", "refill_high"), 80)
    known |= {
        "lost_batches": 0,
        "is_from_start": True,
        "is_begin_known": True,
        "resumes_seen": 3,
        "resumes_unseen": 2,
        "stored_again": 160,
    } | changed
    sql.given("core.recompute_kv_events", "engine  " + "  ".join(known) + "\n0  " + "  ".join(map(str, known.values())))


def replays(sql, *rows):
    header = "engine  method  tokens_low  tokens_best  tokens_high  preemptions_low  preemptions_best  preemptions_high  reason"
    sql.given("core.recompute_replays", "\n".join([header, *rows]))


@pytest.mark.parametrize(
    ("uncovered", "missing", "answers"), [(5, 5, "iteration_lines_with_counters"), (6, 0, "kv_events"), (0, 6, "kv_events")]
)
def test_iteration_lines_answer_where_nearly_all_steps_have_one(sql, uncovered, missing, answers):
    """A twentieth of what was scheduled may be outside the scrapes, or have no line."""
    sql.given("core.engines", ENGINE)
    sql.given(
        "core.recompute_iteration_lines",
        f"""
        engine  scheduled_tokens  useful_tokens  uncovered_tokens  missing_steps  tokens_low  tokens_best  tokens_high
        0       100               40             {uncovered}       {missing}      50          60           70
        """,
    )
    kv_events(sql)
    assert used(sql, "method") == [(answers,)]
    assert told(sql, "method", "rung", "tokens_low", "tokens_best", "tokens_high")[0] == (
        "iteration_lines_with_counters", 1, 50, 60, 70,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "is_partial", "is_refill_partial", "counts"),
    [
        ({}, False, False, (3, 5, 5)),
        ({"resumes_unseen": "-"}, False, False, (3, 3, 6)),
        ({"lost_batches": 1}, True, True, (3, 5, 5)),
        ({"is_from_start": False}, False, True, (3, 5, 5)),  # who runs is known, what was cached long ago is not
        ({"is_from_start": False, "is_begin_known": False}, True, True, (3, 5, 5)),
    ],
)
def test_kv_events_answer_where_all_of_them_were_kept(sql, changed, is_partial, is_refill_partial, counts):
    sql.given("core.engines", ENGINE)
    kv_events(sql, **changed)
    columns = ("method", "rung", "is_partial", "preemptions_low", "preemptions_best", "preemptions_high")
    assert told(sql, *columns) == [("kv_events", 2, is_partial, *counts), ("not_told", 9, True, None, None, None)]
    assert told(sql, *columns[:3], kind="prefix_refill") == [("kv_events", 2, is_refill_partial)]
    assert used(sql, "method") == [("kv_events",)]


@pytest.mark.parametrize(("caching", "answers"), [("false", ("caching_off", 0, 0, 0)), ("true", ("kv_events", 80, 80, 80))])
def test_what_is_never_kept_for_reuse_is_never_computed_again_for_want_of_it(sql, caching, answers):
    sql.given("core.engines", f"engine  engine_kind  kv_capacity_tokens  block_size  prefix_caching\n0  vllm  100  32  {caching}")
    kv_events(sql)
    assert used(sql, "method", "tokens_low", "tokens_best", "tokens_high", kind="prefix_refill") == [answers]


def test_replays_answer_before_the_bounds_that_counters_give(sql):
    sql.given("core.engines", ENGINE)
    replays(sql, "0  replay  1  2  3  4  5  6  -", "0  preemption_counter  2  3  4  5  6  7  -")
    assert told(sql, "method", "rung", "tokens_low", "tokens_best", "tokens_high", "preemptions_high", "is_used") == [
        ("replay", 3, 1, 2, 3, 6, True),
        ("preemption_counter", 4, 2, 3, 4, 7, False),
        ("not_told", 9, None, None, None, None, False),
    ]


def test_preemptions_that_nothing_replays_lost_at_most_all_that_the_victims_held(sql):
    """An even share of the pool where it was all but full: 975 tokens on average, 1,000 at most."""
    sql.given("core.engines", ENGINE)
    sql.given("core.engine_states", FULL)
    preemptions(sql, 4, 1)
    replays(sql, "0  replay  -  -  -  -  -  -  no requests recorded", "0  preemption_counter  -  -  -  -  -  -  no histograms")
    assert used(sql, "method", "rung", "tokens_low", "tokens_best", "tokens_high", "preemptions_best") == [
        ("preemption_counter", 4, 0, 2437.5, 5000, 5)
    ]
    [(method, assumptions), (untold, _)] = told(sql, "method", "assumptions")
    assert (method, untold) == ("preemption_counter", "not_told")
    assert assumptions.startswith("No replay: no histograms.")
    sql.given("core.engine_states", "engine  sampled_at\n0  12:00:00")
    assert used(sql, "method") == [("not_told",)]
    preemptions(sql, 0, 0)
    assert used(sql, "method", "tokens_low", "tokens_best", "tokens_high") == [("preemption_counter", 0, 0, 0)]


@pytest.mark.parametrize(
    ("kind", "version", "scraped", "missing"),
    [
        ("vllm", "0.32.0", "vllm:num_requests_running", ["vllm:kv_cache_usage_perc", "vllm:num_preemptions_total"]),
        ("vllm", "0.8.5", "vllm:num_preemptions_total", ["vllm:gpu_cache_usage_perc", "vllm:num_requests_running"]),
        ("vllm", "0.8.5", "vllm:num_preemptions", ["vllm:gpu_cache_usage_perc", "vllm:num_requests_running"]),
        ("sglang", "0.5.23", "sglang:realtime_tokens_total", ["sglang:prefill_effective_tokens_total"]),
        ("sglang", "0.5.9", "sglang:token_usage", INPUT_AND_OUTPUT_OF_VICTIMS),
        ("sglang", "0.5.6", "sglang:token_usage", None),
        ("llamacpp", "b11549", "llamacpp:requests_processing", None),
        ("vllm", "0.32.0", "python_gc_objects", None),
    ],
)
def test_the_series_that_metrics_lack_are_named(sql, kind, version, scraped, missing):
    sql.given("core.engines", f"engine  engine_kind  engine_version\n0  {kind}  {version}")
    sql.given("staging.metric_samples", f"engine  sampled_at  name  value\n0  12:00:00  {scraped}  1")
    assert used(sql, "method", "missing_series") == [("not_told", missing)]


def test_metrics_that_lack_nothing_name_nothing(sql):
    """The counter moved, and the pool was never seen full: no series would have told more."""
    sql.given("core.engines", ENGINE)
    names = ("vllm:num_preemptions_total", "vllm:num_requests_running", "vllm:gpu_cache_usage_perc")
    rows = [f"0  12:00:00  {name}  1" for name in names]
    sql.given("staging.metric_samples", "\n".join(["engine  sampled_at  name  value", *rows]))
    assert used(sql, "method", "missing_series") == [("not_told", None)]


def test_what_is_known_of_vllm_s_scheduler_is_not_said_of_sglang(sql):
    sql.given("core.engines", ENGINE.replace("vllm", "sglang"))
    kv_events(sql)
    replays(sql, "0  replay  1  2  3  4  5  6  -")
    assert told(sql, "method") == [("not_told",)]


def test_a_v0_warning_counts_up_to_its_restart(sql):
    """Three lives of 51, 51 and 1; each may have had 49 more. A victim held 950 tokens of the pool in use on average."""
    sql.given("core.engines", ENGINE)
    sql.given("core.engine_states", FULL.replace("0.95", "0.90"))
    sql.given(
        "engine_events",
        """
        engine  happened_at  source  line  event                         count
        0       12:00:10     log     1     preemption_warning_recompute  1
        0       12:00:40     log     2     preemption_warning_recompute  51
        0       12:00:40     log     3     preemption_warning_swap       1
        0       12:00:45     log     4     preemption_warning_swap       51
        0       12:00:50     log     5     preemption_warning_swap       1
        0       12:00:50     log     6     preemption_warning_swap       -
        0       12:00:55     log     7     context_shift                 900
        """,
    )
    columns = ("method", "rung", "tokens_low", "tokens_best", "tokens_high")
    counts = ("preemptions_low", "preemptions_best", "preemptions_high")
    [(method, rung, low, best, high, *counted)] = used(sql, *columns, *counts)
    assert (method, rung, low, high, counted) == ("v0_log", 5, 0, 2_500_000, [103, 176.5, 250])
    assert best == pytest.approx(176.5 * 10_000 * (0.9 / 10 + 0.9 / 9 + 0.5 / 5) / 3)


def test_beside_a_tier_the_share_of_prompts_it_knew_is_what_was_computed_again(sql):
    """Only while it gave prompts back: 600 computed less ten halves of a block, of which 400 in 1,000 were known."""
    sql.given("core.engines", ENGINE.replace("10000", "1000"))
    sql.given(
        "core.counter_intervals",
        COUNTED
        + """0  prompt_tokens_by_source  source=local_compute         12:00:00  12:00:30  350  false
             0  prompt_tokens_by_source  source=external_kv_transfer  12:00:00  12:00:30  390  false
             0  external_prefix_hits     -                            12:00:00  12:00:30  250  false
             0  generation_tokens        -                            12:00:00  12:00:30  150  false
             0  ttft_s_count             pod=a                        12:00:00  12:00:30  3    false
             0  ttft_s_count             pod=b                        12:00:00  12:00:30  1    false
             0  prompt_tokens_by_source  source=local_compute         12:00:30  12:01:00  250  false
             0  external_prefix_hits     pod=a                        12:00:30  12:01:00  90   false
             0  external_prefix_hits     pod=b                        12:00:30  12:01:00  60   false
             0  generation_tokens        -                            12:00:30  12:01:00  50   false
             0  ttft_s_count             -                            12:00:30  12:01:00  6    false
             0  prompt_tokens_by_source  source=local_compute         12:01:00  12:02:00  300  false
             0  external_prefix_hits     -                            12:01:00  12:02:00  0    false
             0  generation_tokens        -                            12:01:00  12:02:00  100  false
             0  ttft_s_count             -                            12:01:00  12:02:00  5    false""",
    )
    columns = ("method", "rung", "tokens_low", "tokens_best", "tokens_high")
    assert used(sql, *columns, kind="prefix_refill") == [("counters_beside_tier", 6, 0, 208, 600)]
    assert used(sql, *columns, kind="offload_restore") == [("external_hit_counter", 1, 400, 400, 400)]


def test_tokens_by_source_tell_what_a_tier_gave_back_where_no_counter_of_hits_does(sql):
    sql.given("core.engines", ENGINE)
    sql.given(
        "core.counter_intervals",
        COUNTED
        + """0  prompt_tokens_by_source  source=local_compute         12:00:00  12:01:00  600  false
             0  prompt_tokens_by_source  source=external_kv_transfer  12:00:00  12:01:00  390  false
             0  prompt_tokens_by_source  source=external_kv_transfer  12:01:00  12:02:00  10   false""",
    )
    sql.given("core.tier_restores", "engine  method  rung  restored_tokens\n0  tier_log  3  77")
    assert told(sql, "method", "tokens_best", "is_partial", "is_used", kind="offload_restore") == [
        ("external_hit_counter", 400, False, True),
        ("tier_log", 77, False, False),
    ]


def test_hits_in_the_cache_were_not_computed_and_so_nothing_was_written_over(sql):
    sql.given("core.engines", ENGINE.replace("10000", "1000"))
    sql.given(
        "core.counter_intervals",
        COUNTED
        + """0  prompt_tokens         -  12:00:00  12:01:00  1500  false
             0  prefix_hits           -  12:00:00  12:01:00  300   false
             0  prefix_hits           -  12:01:00  12:02:00  250   false
             0  generation_tokens     -  12:00:00  12:01:00  100   false""",
    )
    assert used(sql, "method", "tokens_best", "tokens_high", kind="prefix_refill") == [("capacity_bound", None, 50)]


# How often -----------------------------------------------------------------------------------------------------------------


def test_what_the_counter_missed_after_its_last_scrape_is_expected_and_aborted_victims_are_possible(sql):
    sql.given("core.engines", "engine  engine_kind\n0  vllm\n1  vllm\n2  vllm\n3  vllm")
    sql.given(
        "core.preemption_intervals",
        """
        engine  interval_start  interval_end  preemptions  method
        0       12:00:00        12:01:00      3            preemption_counter
        0       12:01:00        12:02:00      2            preemption_counter
        3       12:00:00        12:01:00      1            retraction_log
        """,
    )
    sql.given(
        "core.counter_intervals",
        COUNTED
        + """0  finished  finished_reason=abort  12:00:00  12:01:00  1  false
             0  finished  finished_reason=abort  12:01:00  12:02:00  1  false
             0  finished  finished_reason=stop   12:00:00  12:01:00  7  false
             1  finished  finished_reason=abort  12:00:00  12:01:00  9  false""",
    )
    sql.given("request_lines", "request_id  event\na  aborted")  # of either engine
    sql.given(
        "core.recompute_estimates",
        """
        engine  kind                  method              rung  is_partial  preemptions_low  preemptions_best  preemptions_high
        0       preemption_recompute  replay              3     false       5                6.6               8.2
        0       preemption_recompute  preemption_counter  4     false       5                5                 7
        0       preemption_recompute  kv_events           2     true        1                50                90
        0       preemption_recompute  v0_log              1     false       1                60                95
        0       prefix_refill         kv_events           2     false       1                70                99
        1       preemption_recompute  kv_events           2     true        1                2                 4
        1       preemption_recompute  v0_log              5     false       51               75.5              99.5
        1       prefix_refill         kv_events           1     false       1                2                 4
        2       preemption_recompute  not_told            9     true        -                -                 -
        3       preemption_recompute  replay              3     false       1                1.4               3
        """,
    )
    assert (
        sql.rows("marts.preemptions")
        == """
        engine  count_low  count_best  count_high  method
        0       5.0        7.0         11.0        preemption_counter
        1       51.0       76.0        100.0       v0_log
        2       -          -           -           -
        3       1.0        1.0         3.0         retraction_log
        """
    )


@pytest.mark.parametrize(("running", "best"), [(3, 7), (0, 5)])
def test_what_an_engine_has_counted_when_it_is_idle_is_all_there_is(sql, running, best):
    sql.given("core.engines", "engine  engine_kind\n0  vllm")
    preemptions(sql, 5)
    sql.given(
        "core.engine_states",
        f"engine  sampled_at  origin  running  waiting\n0  12:00:30  metrics  9  3\n0  12:01:00  metrics  {running}  0",
    )
    sql.given(
        "core.recompute_estimates",
        """
        engine  kind                  method  rung  is_partial  preemptions_low  preemptions_best  preemptions_high
        0       preemption_recompute  replay  3     false       5                7                 9
        """,
    )
    assert [row["count_best"] for row in sql.rows("marts.preemptions").dicts()] == [best]


@pytest.mark.parametrize(
    ("column", "why"), [("uncounted_from", "ends before the load does"), ("uncounted_to", "begins after the load does")]
)
def test_counters_that_leave_out_a_part_of_the_load_tell_the_least(sql, column, why):
    sql.given("core.engines", "engine  engine_kind\n0  vllm")
    preemptions(sql, 5)
    sql.given("core.seen_loads", f"engine  {column}\n0  12:01:00")
    sql.given("core.counter_intervals", COUNTED + "0  queue_s_sum  -  12:00:00  12:01:00  1.5  false")
    sql.given("core.queue_states", "engine  sampled_at  scrape_s  waiting  cause\n0  12:02:00  10  20  kv_capacity")
    sql.given(
        "core.recompute_estimates",
        """
        engine  kind                  method              rung  is_used  tokens_low  tokens_best  tokens_high
        0       preemption_recompute  preemption_counter  4     true     100         200          300
        """,
    )
    assert (
        sql.rows("marts.preemptions")
        == f"""
        count_low  count_best  count_high  told_by
        5.0        -           -           the preemption counter of /metrics, which {why}
        """
    )
    assert (
        sql.rows("marts.waste")
        == f"""
        tokens_low  tokens_best  tokens_high  told_by
        100         -            -            the preemption counter of /metrics, which {why}
        """
    )
    assert [(row["seconds"], row["request_seconds"]) for row in sql.rows("marts.queue_time").dicts()] == [(10, None)]


@pytest.mark.parametrize(("last_at", "best"), [("12:00:30", 7), ("12:01:00", 5)])
def test_what_a_replay_foretells_beyond_the_time_asked_for_is_not_counted(sql, last_at, best):
    sql.given("core.engines", "engine  engine_kind\n0  vllm")
    preemptions(sql, 5)
    sql.given("core.seen_loads", f"engine  last_at\n0  {last_at}")
    sql.given(
        "core.recompute_estimates",
        """
        engine  kind                  method  rung  is_partial  preemptions_low  preemptions_best  preemptions_high
        0       preemption_recompute  replay  3     false       5                7                 9
        """,
    )
    sql.run = replace(sql.run, until="2026-01-01T12:01:00Z")
    [row] = sql.rows("marts.preemptions").dicts()
    assert row["count_best"] == best
    assert ("a replay of what its last scrape left unfinished" in row["told_by"]) == (best > 5)


def test_with_one_engine_the_log_s_aborted_requests_are_its_own(sql):
    sql.given("core.engines", "engine  engine_kind\n0  vllm")
    preemptions(sql, 1)
    sql.given("core.counter_intervals", COUNTED + "0  finished  finished_reason=abort  12:00:00  12:01:00  1  false")
    sql.given(
        "request_lines",
        """
        request_id  event
        a           aborted
        a           aborted
        b           aborted
        c           started
        """,
    )
    assert (
        sql.rows("marts.preemptions")
        == """
        count_low  count_best  count_high
        1.0        1.0         4.0
        """
    )
