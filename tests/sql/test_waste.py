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
    engine  life  stored_at  kind    blocks  blocks_again  blocks_after_removal  block_size  idle_s  is_tail_full
    0       0     12:00:10   resume  4       3             3                     32          0.5     true
    0       0     12:00:20   refill  9       6             6                     32          -       false
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
        1             0               127.0          127.0           127.0           192.0        288.0
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
    lines = [f"0  12:00:{i % 60:02}  log  {i}  {i}  {i}  0  {10 + i}" for i in range(100)]  # a millisecond a token
    sql.given(
        "iteration_steps",
        "\n".join(["engine  stepped_at  source  line  iteration  context_tokens  generation_tokens  elapsed_ms", *lines]),
    )
    sql.run = type(sql.run)("test", gpu_cost_usd_per_hour=36.0 if price else None)
    assert (
        sql.rows("marts.waste")
        == f"""
        tokens_best  share_best  gpu_seconds_best  cost_best
        1000.0       0.5         1.0               {cost}
        """
    )


ESTIMATED = "engine  kind  method  tokens_low  tokens_best  tokens_high  is_used\n"


def test_shares_are_of_all_tokens_and_an_average_token_s_time_is_the_most_it_can_cost(alone):
    """900 prompt tokens and 101 generated, one of them with the prompt: 1,000 useful. Of the intervals only the first was busy
    throughout and computed: 100 tokens in 10 s on two GPUs.
    """
    alone.given("core.engines", "engine  tensor_parallel_size\n0  2")
    alone.run = type(alone.run)("test", gpu_cost_usd_per_hour=36.0)
    rows = [
        f"0  {signal}  {labels}  12:00:{start}  12:00:{start + 10}  {delta}  false"
        for start, (local, generated, stepped) in {10: (40, 60, 10), 20: (855, 36, 10), 30: (0, 0, 5), 40: (5, 5, 0)}.items()
        for signal, labels, delta in [
            ("prompt_tokens_by_source", "source=local_compute", local),
            ("prompt_tokens_by_source", "source=local_cache_hit", 5000),
            ("prompt_tokens", "-", 7000),
            ("generation_tokens", "-", generated),
            ("iteration_tokens_count", "-", stepped),
        ]
    ]
    rows.append("0  ttft_s_count  -  12:00:10  12:00:20  1  false")
    alone.given(
        "core.counter_intervals", "\n".join(["engine  signal  labels  interval_start  interval_end  delta  is_reset", *rows])
    )
    states = [
        f"0  12:00:{second}  metrics  {running}" for second, running in zip((10, 20, 30, 40, 50), (1, 2, 0, 1, 1), strict=True)
    ]
    alone.given("core.engine_states", "\n".join(["engine  sampled_at  origin  running", *states]))
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
        preemption_recompute  0.091      0.200       0.333       0.0              50.0              100.0
        prefix_refill         0.000      0.040       0.160       0.0              10.0              40.0
        """
    )
    assert (
        alone.rows("marts.waste")
        == """
        kind                  cost_low  cost_best  cost_high
        offload_restore       -         -          -
        preemption_recompute  0.0000    0.5000     1.0000
        prefix_refill         0.0000    0.1000     0.4000
        """
    )


@pytest.mark.parametrize(
    ("first", "intervals", "seconds"),
    [
        (10_000, 10, (1.0, 2.0, 6.0)),  # 10 ms a step and 1 ms a token, of 50,000 tokens in 100 s
        (10_000, 9, (0.0, 3.673, 5.510)),  # of 49,000 in 90 s: too few to tell a slope from
        (5_000, 10, (0.0, 2.667, 4.0)),  # 2 ms a token would be more than an average one takes, 1.33 ms
    ],
)
def test_a_token_costs_what_one_more_in_a_step_does_where_busy_intervals_tell(alone, first, intervals, seconds):
    alone.given("core.engines", "engine  engine_kind\n0  vllm")
    rows, states = [], ["0  12:00:00  metrics  3"]
    for number, steps in enumerate([500, 100, 200, 300, 400, 500, 600, 700, 800, 900][:intervals]):
        tokens = first - 10 * steps if first == 10_000 else first + 5 * steps
        start, end = (f"12:{second // 60:02}:{second % 60:02}" for second in (10 * number, 10 * number + 10))
        for signal, labels, delta in [
            ("iteration_tokens_count", "pod=a", steps - 40),
            ("iteration_tokens_count", "pod=b", 40),
            ("generation_tokens", "pod=a", 150),
            ("generation_tokens", "pod=b", 250),
            ("prompt_tokens", "pod=a", 100),
            ("prompt_tokens", "pod=b", tokens - 500),
        ]:
            rows.append(f"0  {signal}  {labels}  {start}  {end}  {delta}  false")
        states.append(f"0  {end}  metrics  3")
    alone.given(
        "core.counter_intervals", "\n".join(["engine  signal  labels  interval_start  interval_end  delta  is_reset", *rows])
    )
    alone.given("core.engine_states", "\n".join(["engine  sampled_at  origin  running", *states]))
    alone.given("core.recompute_estimates", ESTIMATED + "0  preemption_recompute  replay  1000  2000  3000  true")
    [row] = alone.rows("marts.waste").dicts()
    assert [row[f"gpu_seconds_{bound}"] for bound in ("low", "best", "high")] == pytest.approx(seconds, rel=1e-3)


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


def test_iteration_lines_say_what_a_token_costs_and_busy_time_what_it_costs_at_most(alone):
    """A millisecond by the lines, a tenth of a second by the clock; and a share is at most all of it."""
    alone.given("core.engines", "engine  engine_kind\n0  vllm")
    alone.given(
        "core.counter_intervals",
        """
        engine  signal                  labels  interval_start  interval_end  delta  is_reset
        0       iteration_tokens_count  -       12:00:00        12:00:10      10     false
        0       prompt_tokens           -       12:00:00        12:00:10      60     false
        0       generation_tokens       -       12:00:00        12:00:10      40     false
        """,
    )
    alone.given("core.engine_states", "engine  sampled_at  running\n0  12:00:00  1\n0  12:00:10  1")
    lines = [f"0  12:00:01  log  {i}  {i}  {i}  {2 * i}  {10 + 3 * i}" for i in range(100)]
    lines.append("0  12:00:01  log  100  100  9999  0  -")
    alone.given(
        "iteration_steps",
        "\n".join(["engine  stepped_at  source  line  iteration  context_tokens  generation_tokens  elapsed_ms", *lines]),
    )
    alone.given("core.recompute_estimates", ESTIMATED + "0  prefix_refill  kv_events  1000  2000  3000  true")
    assert (
        alone.rows("marts.waste")
        == """
        share_low  share_best  share_high  gpu_seconds_low  gpu_seconds_best  gpu_seconds_high
        1          1           1           1.000            2.000             300.000
        """
    )


def test_steps_that_all_took_as_long_tell_no_price_of_a_token(alone):
    """Two intervals of one step each: 100 tokens in 8 s, none of them cheaper than another."""
    alone.given("core.engines", "engine  engine_kind\n0  vllm")
    rows = [
        f"0  {signal}  -  12:00:0{start}  12:00:0{start + 4}  {delta}  false"
        for start in (0, 4)
        for signal, delta in (("iteration_tokens_count", 1), ("prompt_tokens", 30), ("generation_tokens", 20))
    ]
    alone.given(
        "core.counter_intervals", "\n".join(["engine  signal  labels  interval_start  interval_end  delta  is_reset", *rows])
    )
    alone.given("core.engine_states", "engine  sampled_at  running\n0  12:00:00  1\n0  12:00:04  1\n0  12:00:08  1")
    lines = [f"0  12:00:01  log  {i}  {i}  {i}  0  10" for i in range(100)]
    alone.given(
        "iteration_steps",
        "\n".join(["engine  stepped_at  source  line  iteration  context_tokens  generation_tokens  elapsed_ms", *lines]),
    )
    alone.given("core.recompute_estimates", ESTIMATED + "0  prefix_refill  kv_events  10  10  10  true")
    assert (
        alone.rows("marts.waste")
        == """
        share_best  gpu_seconds_low  gpu_seconds_best  gpu_seconds_high
        0.1000      0.00             0.80              0.80
        """
    )
