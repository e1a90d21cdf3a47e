"""The ladder of evidence: which method answers, what it says, and when nothing can be told."""

import pytest

ENGINE = """
    engine  engine_kind  engine_generation  kv_capacity_tokens  block_size  num_gpu_blocks
    0       vllm         v1                 3200                32          100
"""


def counters(sql, **deltas):
    """One scrape interval of a minute in which each signal grew by so much."""
    rows = [f"0  {signal}  -  12:00:00  12:01:00  {delta}  false" for signal, delta in deltas.items()]
    sql.given(
        "core.counter_intervals", "\n".join(["engine  signal  labels  interval_start  interval_end  delta  is_reset", *rows])
    )


def preemptions(sql, count):
    sql.given(
        "core.preemption_intervals",
        f"""
        engine  interval_start  interval_end  preemptions
        0       12:00:00        12:01:00      {count}
        """,
    )


def steps(sql, *tokens, first=0, at="12:00:30"):
    rows = [f"0  {at}  server.log  {i}  {i + first}  {each}  0" for i, each in enumerate(tokens)]
    sql.given(
        "iteration_steps",
        "\n".join(["engine  stepped_at  source  line  iteration  context_tokens  generation_tokens", *rows]),
    )


def test_iteration_lines_leave_what_was_computed_twice(sql):
    sql.given("core.engines", ENGINE)
    counters(sql, prompt_tokens=100, prefix_hits=32, generation_tokens=20, ttft_s_count=2)
    steps(sql, 68, 10, 8, 50)
    assert (
        sql.rows("core.recompute_iteration_lines")
        == """
        scheduled_tokens  useful_tokens  missing_steps  tokens_low  tokens_best  tokens_high
        136               86.0           0              50.0        50.0         50.0
        """
    )


def test_a_step_without_a_line_widens_the_range(sql):
    sql.given("core.engines", ENGINE)
    counters(sql, prompt_tokens=100, generation_tokens=20, ttft_s_count=2)
    sql.given(
        "iteration_steps",
        """
        engine  stepped_at  source      line  iteration  context_tokens  generation_tokens
        0       12:00:30    server.log  1     1          100             0
        0       12:00:31    server.log  2     3          60              0
        """,
    )
    assert (
        sql.rows("core.recompute_iteration_lines")
        == """
        missing_steps  tokens_low  tokens_best  tokens_high
        1              42.0        122.0        202.0
        """
    )


def test_with_speculative_decoding_iteration_lines_do_not_tell(sql):
    sql.given(
        "core.engines",
        """
        engine  engine_kind  has_speculative_decoding
        0       vllm         true
        """,
    )
    counters(sql, prompt_tokens=100, generation_tokens=20, ttft_s_count=2)
    steps(sql, 68)
    assert sql.rows("core.recompute_iteration_lines") == "engine"


AGAIN = """
    engine  life  again_index  stored_at  kind    blocks  blocks_again  blocks_after_removal  block_size  idle_s  is_tail_full
    0       0     0            12:00:10   resume  4       3             3                     32          0.5     true
    0       0     1            12:00:20   refill  9       6             6                     32          -       false
"""
PUBLISHED = """
    engine  source  line  published_at  seq  event_index  event   block_hash  block_size
    0       kv      1     12:00:01      0    0            stored  1           32
    0       kv      2     12:00:20      1    0            stored  2           32
"""


def test_a_resume_and_a_refill_are_two_kinds_of_waste(sql):
    sql.given("core.engines", ENGINE)
    sql.given("core.blocks_stored_again", AGAIN)
    sql.given("kv_events", PUBLISHED)
    preemptions(sql, 1)
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        resumes_seen  resumes_unseen  recompute_low  recompute_best  recompute_high  refill_best  stored_again
        1             0               127.0          127.0           127.0           192.0        288
        """
    )


def test_a_preemption_that_stored_nothing_cost_part_of_a_block(sql):
    sql.given("core.engines", ENGINE)
    sql.given("core.blocks_stored_again", AGAIN)
    sql.given("kv_events", PUBLISHED)
    preemptions(sql, 2)
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        resumes_unseen  recompute_low  recompute_best  recompute_high
        1               127.0          142.5           158.0
        """
    )


def test_without_a_preemption_counted_a_resume_is_a_refill(sql):
    sql.given("core.engines", ENGINE)
    sql.given("core.blocks_stored_again", AGAIN)
    sql.given("kv_events", PUBLISHED)
    preemptions(sql, 0)
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        resumes_seen  recompute_low  recompute_best  recompute_high  refill_low  refill_best  refill_high
        0             0.0            0.0             0.0             288.0       288.0        288.0
        """
    )


def test_a_v1_log_alone_cannot_tell(sql):
    sql.given("core.engines", ENGINE)
    sql.given("core.counter_intervals", "engine")
    assert (
        sql.rows("marts.preemptions")
        == """
        engine  count_low  count_best  count_high
        0       -          -           -
        """
    )
    assert (
        sql.rows("marts.waste")
        == """
        kind                  tokens_low  tokens_best  tokens_high  method
        preemption_recompute  -           -            -            not_told
        """
    )


def test_a_v0_warning_stands_for_up_to_fifty(sql):
    sql.given("core.engines", ENGINE)
    sql.given(
        "engine_events",
        """
        engine  happened_at  source      line  event                         count
        0       12:00:10     server.log  1     preemption_warning_recompute  1
        0       12:00:40     server.log  2     preemption_warning_recompute  51
        """,
    )
    assert (
        sql.rows("marts.preemptions")
        == """
        engine  count_low  count_high  method
        0       51.0       100.0       v0_log
        """
    )


def test_a_counter_that_did_not_move_is_none_and_not_unknown(sql):
    sql.given("core.engines", ENGINE)
    counters(sql, preemptions=0, generation_tokens=100, prompt_tokens=50, ttft_s_count=1)
    assert (
        sql.rows("marts.preemptions")
        == """
        count_low  count_best  count_high  method
        0.0        0.0         0.0         preemption_counter
        """
    )


def test_ranges_that_do_not_meet_are_a_conflict(sql):
    sql.given(
        "core.recompute_estimates",
        """
        engine  kind                  method                         tokens_low  tokens_high  is_used  is_partial
        0       preemption_recompute  iteration_lines_with_counters  100         110          true     false
        0       preemption_recompute  kv_events                      300         320          false    true
        0       preemption_recompute  replay                         90          200          false    false
        0       prefix_refill         kv_events                      10          20           false    true
        0       prefix_refill         capacity_bound                 30          40           true     false
        """,
    )
    assert (
        sql.rows("core.recompute_conflicts")
        == """
        kind                  method     used
        preemption_recompute  kv_events  iteration_lines_with_counters
        """
    )


def test_a_range_covers_what_contradicts_it_and_the_number_says_so(sql):
    estimates = """
        engine  kind                  method                     tokens_low  tokens_best  tokens_high  is_used
        a       preemption_recompute  retraction_counters_exact  3208        3208         3208         true
        b       preemption_recompute  retraction_counters_exact  400         450          500          true
        c       preemption_recompute  retraction_counters_exact  7           8            9            true
        """
    sql.given("core.recompute_estimates", estimates)
    sql.given(
        "core.recompute_conflicts",
        """
        engine  kind                  method           tokens_low  tokens_high
        a       preemption_recompute  retraction_log   318         510
        a       preemption_recompute  request_records  707         707
        b       preemption_recompute  retraction_log   900         -
        c       prefix_refill         kv_events        100         200
        """,
    )
    assert (
        sql.rows("marts.waste")
        == """
        engine  tokens_low  tokens_best  tokens_high
        a       318.0       3208.0       3208.0
        b       400.0       450.0        -
        c       7.0         8.0          9.0
        """
    )
    said = [row["contradiction"] for row in sql.rows("marts.waste").dicts()]
    assert "(the log's record of each request: 707; retraction lines in the log: 318 to 510)" in said[0]
    assert "(retraction lines in the log: at least 900)" in said[1]
    assert said[2] is None


@pytest.mark.parametrize(("price", "cost"), [(None, "-"), (3.6, "0.01")])
def test_waste_has_a_price_where_there_is_one(sql, price, cost):
    sql.given("core.engines", ENGINE)
    counters(sql, prompt_tokens=900, generation_tokens=101, ttft_s_count=1)
    sql.given(
        "core.recompute_estimates",
        """
        engine  kind                  method  tokens_low  tokens_best  tokens_high  is_used
        0       preemption_recompute  replay  1000        1000         1000         true
        """,
    )
    sql.given("core.token_costs", "engine  token_s_low  token_s_best  token_s_high\n0  0.0005  0.001  0.002")
    sql.run = type(sql.run)("test", gpu_cost_usd_per_hour=36.0 if price else None)
    assert (
        sql.rows("marts.waste")
        == f"""
        tokens_best  share_best  gpu_seconds_best  cost_best
        1000.0       0.5         1.0               {cost}
        """
    )


ESTIMATED = "engine  kind  method  tokens_low  tokens_best  tokens_high  is_used\n"


def test_shares_are_of_all_tokens_and_each_bound_has_its_price_on_each_gpu(alone):
    """900 prompt tokens and 101 generated, one of them with the prompt: 1,000 useful."""
    alone.given("core.engines", "engine  tensor_parallel_size\n0  2")
    alone.given("core.token_costs", "engine  token_s_low  token_s_best  token_s_high  told_by\n0  0.01  0.05  0.1  lines")
    alone.run = type(alone.run)("test", gpu_cost_usd_per_hour=36.0)
    alone.given(
        "core.counter_intervals",
        """
        engine  signal                   labels                  interval_start  interval_end  delta  is_reset
        0       prompt_tokens_by_source  source=local_compute    12:00:10        12:00:20      900    false
        0       prompt_tokens_by_source  source=local_cache_hit  12:00:10        12:00:20      5000   false
        0       prompt_tokens            -                       12:00:10        12:00:20      7000   false
        0       generation_tokens        -                       12:00:10        12:00:20      101    false
        0       ttft_s_count             -                       12:00:10        12:00:20      1      false
        """,
    )
    alone.given("core.requests", "request_key  engine  input_tokens  output_tokens\na  0  99000  9000")
    alone.given(
        "core.recompute_estimates",
        ESTIMATED
        + """0  preemption_recompute  replay     100   250   500   true
             0  preemption_recompute  kv_events  1     2     3     false
             0  prefix_refill         kv_events  0     50    200   true
             0  offload_restore       tier_log   1000  1000  1000  true""",
    )
    assert (
        alone.rows("marts.waste")
        == """
        kind                  share_low  share_best  share_high  gpu_seconds_low  gpu_seconds_best  gpu_seconds_high
        offload_restore       -          -           -           -                -                 -
        preemption_recompute  0.091      0.200       0.333       2.0              25.0              100.0
        prefix_refill         0.000      0.040       0.160       0.0              5.0               40.0
        """
    )
    assert (
        alone.rows("marts.waste")
        == """
        kind                  cost_low  cost_best  cost_high
        offload_restore       -         -          -
        preemption_recompute  0.0200    0.2500     1.0000
        prefix_refill         0.0000    0.0500     0.4000
        """
    )
    assert [row["evidence"] for row in alone.rows("marts.waste").dicts()][1].endswith("GPU time from lines.")


def test_where_only_a_bound_of_a_token_s_price_is_known_there_is_no_best_guess_of_gpu_time(alone):
    alone.given("core.engines", "engine  engine_kind\n0  vllm")
    alone.given("core.token_costs", "engine  token_s_low  token_s_best  token_s_high\n0  0  -  0.002")
    alone.given("core.recompute_estimates", ESTIMATED + "0  preemption_recompute  replay  1000  2000  3000  true")
    assert (
        alone.rows("marts.waste")
        == """
        tokens_best  gpu_seconds_low  gpu_seconds_best  gpu_seconds_high
        2000         0                -                 6.0
        """
    )


def test_without_counters_the_recorded_requests_are_the_useful_tokens(alone):
    """Each is its prompt and its answer less the token that came with the prompt; those that failed gave nothing."""
    alone.given("core.engines", "engine  engine_kind\n0  vllm")
    alone.given(
        "core.requests",
        """
        request_key  engine  input_tokens  output_tokens
        a            0       100           11
        b            0       200           0
        c            0       50            50
        """,
    )
    alone.given("core.recompute_estimates", ESTIMATED + "0  preemption_recompute  kv_events  209  209  209  true")
    assert (
        alone.rows("marts.waste")
        == """
        share_best  gpu_seconds_best  gpu_seconds_high
        0.500       -                 -
        """
    )
