"""What each way to tell recomputed tokens makes of its inputs: edges of the scrapes, restarts, holes, and who paid."""

import pytest

from tests.typed_tables import Sql

ENGINE = """
    engine  engine_kind  kv_capacity_tokens  block_size
    0       vllm         10000               32
"""
COUNTED = "engine  signal  labels  interval_start  interval_end  delta  is_reset\n"
STEPPED = "engine  stepped_at  source  line  iteration  context_tokens  generation_tokens\n"
AGAIN = (
    "engine  life  again_index  stored_at  kind  blocks  blocks_again  blocks_after_removal  block_size  idle_s  is_tail_full\n"
)
PUBLISHED = """
    engine  source  line  published_at  seq  event_index  event   block_hash  block_size
    0       kv      1     12:00:01      0    0            stored  1           32
    0       kv      1     12:00:01      0    1            stored  3           16
    0       kv      2     12:00:20      1    0            stored  2           16
"""


@pytest.fixture
def sql():
    """One model at a time, but for what rules a preemption out."""
    return Sql(is_made=lambda table: table == "core.resumes")


# Iteration lines ------------------------------------------------------------------------------------------------------------


def test_steps_outside_the_scrapes_at_their_edge_or_in_a_restart_widen_the_range(sql):
    sql.given("core.engines", ENGINE)
    sql.given(
        "core.counter_intervals",
        """
        engine  signal                   labels                                interval_start  interval_end  delta  is_reset
        0       prompt_tokens_by_source  source=local_compute                  12:00:00        12:01:00      40     false
        0       prompt_tokens_by_source  source=local_compute,pod=b            12:00:00        12:01:00      20     false
        0       prompt_tokens_by_source  source=local_cache_hit                12:00:00        12:01:00      40     false
        0       prompt_tokens            -                                     12:00:00        12:01:00      100    false
        0       generation_tokens        -                                     12:00:00        12:01:00      20     false
        0       ttft_s_count             -                                     12:00:00        12:01:00      2      false
        0       finished                 finished_reason=stop                  12:00:00        12:01:00      2      false
        0       finished                 finished_reason=length                12:00:00        12:01:00      9      false
        0       prompt_tokens            -                                     12:01:00        12:02:00      50     false
        0       generation_tokens        -                                     12:01:00        12:02:00      10     true
        0       ttft_s_count             -                                     12:01:00        12:02:00      1      false
        0       finished                 finished_reason=stop                  12:01:00        12:02:00      1      false
        0       preemptions              -                                     12:02:00        12:03:00      1      false
        """,
    )
    sql.given(
        "iteration_steps",
        STEPPED
        + """0  12:00:00    log  1  1  5   0
             0  12:00:30    log  2  3  60  10
             0  12:01:00    log  3  4  29  1
             0  12:01:30    log  4  0  43  0
             0  12:02:00    log  5  1  8   0
             0  12:02:01    log  6  0  3   0
             0  12:02:01.5  log  7  2  0   2""",
    )
    # three lives; seven steps of 23 tokens on average and two without a line: 100 + 46 - 78 recomputed, 16 + 46 off; three
    # requests that stopped by themselves ran on for a step
    assert (
        sql.rows("core.recompute_iteration_lines")
        == """
        scheduled_tokens  useful_tokens  uncovered_tokens  missing_steps  tokens_low  tokens_best  tokens_high
        100               78.0           10                2              3.0         74.8         191.0
        """
    )


def test_hits_in_any_cache_are_not_computed(sql):
    sql.given("core.engines", ENGINE)
    sql.given(
        "core.counter_intervals",
        COUNTED
        + """0  prompt_tokens         -  12:00:00  12:01:00  100  false
             0  prefix_hits           -  12:00:00  12:01:00  32   false
             0  external_prefix_hits  -  12:00:00  12:01:00  8    false
             0  generation_tokens     -  12:00:00  12:01:00  20   false
             0  ttft_s_count          -  12:00:00  12:01:00  2    false""",
    )
    sql.given("iteration_steps", STEPPED + "0  12:00:30  log  1  1  68  10")
    assert (
        sql.rows("core.recompute_iteration_lines")
        == """
        useful_tokens  tokens_low  tokens_best  tokens_high
        78.0           0.0         0.0          0.0
        """
    )


def test_without_counters_of_prompts_and_first_tokens_steps_do_not_tell(sql):
    """Engine 0 lacks first tokens, engine 1 prompts; engine 2 has both, each in an interval of its own."""
    sql.given(
        "core.counter_intervals",
        COUNTED
        + """0  prompt_tokens      -  12:00:00  12:01:00  100  false
             0  generation_tokens  -  12:00:00  12:01:00  20   false
             1  ttft_s_count       -  12:00:00  12:01:00  2    false
             1  generation_tokens  -  12:00:00  12:01:00  20   false
             2  prompt_tokens      -  12:00:00  12:01:00  100  false
             2  generation_tokens  -  12:00:00  12:01:00  20   false
             2  ttft_s_count       -  12:01:00  12:02:00  2    false
             2  generation_tokens  -  12:01:00  12:02:00  20   false""",
    )
    sql.given("iteration_steps", STEPPED + "\n".join(f"{engine}  12:00:30  log  1  1  68  10" for engine in range(3)))
    assert (
        sql.rows("core.recompute_iteration_lines")
        == """
        engine  scheduled_tokens
        2       78
        """
    )


def test_where_every_interval_has_a_restart_steps_do_not_tell(sql):
    sql.given(
        "core.counter_intervals",
        COUNTED
        + """0  prompt_tokens      -  12:00:00  12:01:00  100  true
             0  generation_tokens  -  12:00:00  12:01:00  20   true
             0  ttft_s_count       -  12:00:00  12:01:00  2    true""",
    )
    sql.given("iteration_steps", STEPPED + "0  12:00:30  log  1  1  168  10")
    assert sql.rows("core.recompute_iteration_lines") == "engine"


# KV events ------------------------------------------------------------------------------------------------------------------


def again(sql, *rows, events=PUBLISHED):
    sql.given("core.engines", ENGINE)
    sql.given("core.blocks_stored_again", AGAIN + "\n".join(f"0  0  {index}  {row}" for index, row in enumerate(rows)))
    sql.given("kv_events", events)


def preemptions(sql, *rows):
    sql.given("core.preemption_intervals", "\n".join(["engine  interval_start  interval_end  preemptions", *rows]))


REFILL = "12:00:20  refill  9  6  6  32  -  false"


def test_without_a_counter_each_resume_is_one_and_as_many_may_be_unseen(sql):
    again(sql, "12:00:10  resume  4  3  3  32  0.5  true", "12:00:12  resume  2  1  1  32  3  false", REFILL)
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        resumes_seen  resumes_unseen  recompute_low  recompute_best  recompute_high  refill_low  refill_high  stored_again
        2             -               191.0          206.0           284.0           192.0       192.0        320
        """
    )


@pytest.mark.parametrize(
    ("states", "requests", "seen"),
    [
        ("12:00:05  0.9\n0  12:00:15  0.9", "12:00:00  12:00:09", 2),
        ("12:00:05  0.4\n0  12:00:15  0.3", "12:00:00  12:00:09", 0),  # a pool that had room preempts nobody
        ("12:00:05  0.4", "12:00:00  12:00:09", 2),  # one sample is too few to say so
        ("12:00:05  0.9\n0  12:00:15  0.9", "12:00:00  12:00:01", 1),  # nobody took three seconds
    ],
)
def test_without_a_counter_what_cannot_have_been_a_preemption_is_a_prompt_that_ends_there(sql, states, requests, seen):
    again(sql, "12:00:10  resume  4  3  3  32  0.5  true", "12:00:12  resume  2  1  1  32  3  false")
    sql.given("core.engine_states", f"engine  sampled_at  kv_usage_ratio\n0  {states}")
    sql.given("core.requests", f"engine  arrived_at  finished_at\n0  {requests}")
    [row] = sql.rows("core.recompute_kv_events").dicts()
    assert row["resumes_seen"] == seen
    assert row["refill_best"] == {2: 0, 1: 32, 0: 128}[seen]


def test_of_a_tier_whose_counters_are_in_no_input_all_may_have_been_loaded(sql):
    again(sql, REFILL)
    sql.given("core.engines", "engine  kv_connector\n0  OffloadingConnector")
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        refill_low  refill_best  refill_high
        0           96           192
        """
    )


def test_of_resumes_within_the_counter_s_window_the_shortest_stops_are_its_preemptions(sql):
    """The one beyond the window is taken for one and is not sure; the one that stood still for longer may be one."""
    again(
        sql,
        "12:00:05  resume  2  2  2  32  3.0  true",
        "12:00:50  resume  4  3  3  32  0.5  true",
        "12:00:55  resume  1  1  1  32  4.0  true",
        "12:01:30  resume  3  1  1  32  9.0  true",
        REFILL,
    )
    preemptions(sql, "0  12:00:00  12:00:20  1", "0  12:00:40  12:01:00  0")
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        resumes_seen  resumes_unseen  recompute_low  recompute_best  recompute_high  refill_low  refill_best  refill_high
        2             0               126.0          222.0           318.0           192.0       288.0        320.0
        """
    )


def test_beyond_the_counter_s_window_as_many_resumes_are_unseen_as_within(sql):
    again(
        sql,
        "12:00:05  resume  2  2  2  32  3.0  true",
        "12:00:50  resume  4  3  3  32  0.5  true",
        "12:01:30  resume  3  1  1  32  9.0  true",
    )
    preemptions(sql, "0  12:00:00  12:00:20  2", "0  12:00:40  12:01:00  1")
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        resumes_seen  resumes_unseen  recompute_low  recompute_best  recompute_high  refill_best
        3             2               189.00         308.25          347.50          0
        """
    )


def test_where_nothing_was_stored_again_a_preemption_cost_part_of_a_block(sql):
    again(sql)
    preemptions(sql, "0  12:00:00  12:01:00  1")
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        resumes_seen  resumes_unseen  recompute_low  recompute_best  recompute_high  refill_low  refill_high  stored_again
        0             1               0.0            15.5            31.0            0           0            0
        """
    )


def test_a_resume_outside_of_a_window_without_a_preemption_is_possible_and_not_more(sql):
    again(sql, "12:01:30  resume  3  1  1  32  9.0  true")
    preemptions(sql, "0  12:00:00  12:01:00  0")
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        resumes_seen  recompute_best  recompute_high  refill_low  refill_best
        0             0.0             96.0            0           32
        """
    )


def test_where_no_resume_was_seen_within_the_window_none_is_added_beyond_it(sql):
    again(sql, "12:01:30  resume  3  1  1  32  9.0  true")
    preemptions(sql, "0  12:00:00  12:01:00  1")
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        resumes_seen  resumes_unseen  recompute_best
        1             1               110.5
        """
    )


def test_a_resume_at_the_edge_of_the_counter_s_window_is_within(sql):
    again(sql, "12:00:00  resume  2  2  2  32  3.0  true", "12:01:00  resume  4  3  3  32  0.5  true")
    preemptions(sql, "0  12:00:00  12:01:00  1")
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        resumes_seen  recompute_low  recompute_high
        1             127.0          191.0
        """
    )


def test_the_last_blocks_of_many_resumes_average_out(sql):
    """Of 48 that stored nothing each had none to 31 tokens, together half of it give or take three of their deviations."""
    again(sql, "12:00:10  resume  4  3  3  32  0.5  true")
    preemptions(sql, "0  12:00:00  12:01:00  49")
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        resumes_seen  resumes_unseen  recompute_low  recompute_best  recompute_high
        1             48              679.0          871.0           1063.0
        """
    )


def test_a_victim_that_needed_the_block_itself_had_filled_its_last_one(sql):
    """One in four, of ten with four running and of three more whose interval began with four, so of the unseen; at most, none."""
    again(sql, "12:00:10  resume  4  3  3  32  0.5  true")
    preemptions(sql, "0  12:00:00  12:00:30  10", "0  12:00:30  12:01:00  3")
    sql.given("core.engine_states", "engine  sampled_at  running\n0  12:00:30  4\n0  12:01:00  2")
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        resumes_seen  resumes_unseen  recompute_low  recompute_best     recompute_high
        1             12              170.5          266.5           409
        """
    )


def test_batches_that_were_lost_widen_the_range_upwards(sql):
    """Three of the six from 3 to 8 are missing: as many as are there, each of which may have held twice as much."""
    events = """
        engine  source  line  published_at  seq  event_index  event   block_hash  block_size
        0       kv      1     12:00:01      3    0            stored  1           32
        0       kv      1     12:00:01      3    1            stored  3           -
        0       kv      2     12:00:20      5    0            stored  2           16
        0       kv      3     12:00:21      8    0            removed  2          -
    """
    again(sql, "12:00:10  resume  4  3  3  32  0.5  true", REFILL, events=events)
    preemptions(sql, "0  12:00:00  12:01:00  1")
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        first_event_at  last_event_at  lost_batches  is_from_start  recompute_best  recompute_high  refill_best  refill_high
        12:00:01        12:00:21       3             false          127.0           381.0           192.0        576.0
        """
    )


@pytest.mark.parametrize(
    ("before", "is_begin_known"), [("engine  seq", False), ("engine  seq\n0  1\n0  2", True), ("engine  seq\n0  0\n0  1", False)]
)
def test_events_before_the_window_tell_how_it_begins_where_none_is_lost_between(sql, before, is_begin_known):
    again(sql, events="engine  source  line  published_at  seq  event  block_size\n0  kv  1  12:00:01  3  stored  32")
    if "\n" in before:
        header, *rows = before.splitlines()
        stamped = [f"{row}  11:59:5{number}" for number, row in enumerate(rows)]
        sql.given("staging.kv_events_before", "\n".join([f"{header}  published_at", *stamped]))
    assert (
        sql.rows("core.recompute_kv_events")
        == f"""
        is_from_start  is_begin_known
        false          {str(is_begin_known).lower()}
    """
    )


def test_what_a_tier_gave_back_is_among_the_blocks_stored_again(sql):
    again(sql, REFILL)
    hits = [
        "0  external_prefix_hits  -  12:00:00  12:01:00  60  false",
        "0  external_prefix_hits  -  12:01:00  12:02:00  40  false",
    ]
    sql.given("core.counter_intervals", COUNTED + "\n".join(hits))
    assert (
        sql.rows("core.recompute_kv_events")
        == """
        is_from_start  refill_low  refill_best  refill_high
        true           0.0         46.0         92.0
        """
    )


# Retractions ----------------------------------------------------------------------------------------------------------------


def retracted(sql, *events):
    sql.given("engine_events", "\n".join(["engine  happened_at  event  count", *events]))


def test_a_retraction_log_prices_victims_by_their_share_of_the_full_pool(sql):
    """Where the log says what a retraction freed, that is the answer, and the share only its upper bound."""
    sql.given(
        "core.engines",
        """
        engine  engine_kind  kv_capacity_tokens
        0       sglang       10000
        1       sglang       10000
        2       sglang       10000
        """,
    )
    sql.given(
        "core.engine_states",
        """
        engine  sampled_at  origin  running  kv_usage_ratio
        0       12:00:00    log     10       0.95
        0       12:00:10    log     9        0.9
        0       12:00:20    log     1        0.89
        0       12:00:30    log     0        0.95
        1       12:00:00    log     10       0.95
        1       12:00:10    log     9        0.9
        """,
    )
    freed = "{}  12:00:0{}  retraction_freed_tokens  {}"
    retracted(
        sql,
        "0  12:00:01  retraction  2",
        "0  12:00:02  retraction  1",
        "0  12:00:03  context_shift  9",
        "1  12:00:01  retraction  3",
        freed.format(1, 1, 900),
        freed.format(1, 2, 100),
        "2  12:00:01  retraction  3",
        freed.format(2, 1, 1000),
    )
    preemptions(sql, *(f"{engine}  12:00:01  12:00:03  3" for engine in range(3)))
    assert (
        sql.rows("core.recompute_retractions")
        == """
        engine  method          rung  tokens_low  tokens_best  tokens_high  preemptions_best
        0       retraction_log  4     0           2193.75      2925         3
        1       retraction_log  3     800         1000         2925         3
        2       retraction_log  3     800         1000         1200         3
        """
    )


def test_none_logged_is_none_where_each_would_have_been(sql):
    sql.given(
        "core.engines",
        """
        engine  engine_kind
        0       sglang
        1       llamacpp
        2       vllm
        3       sglang
        """,
    )
    preemptions(sql, *(f"{engine}  12:00:00  12:01:00  {int(engine == 3)}" for engine in range(4)))
    assert (
        sql.rows("core.recompute_retractions")
        == """
        engine  method         rung  tokens_low  tokens_best  tokens_high  preemptions_high
        0       no_preemption  3     0           0            0            0
        1       no_preemption  3     0           0            0            0
        """
    )
    assert [row["assumptions"].split()[0] for row in sql.rows("core.recompute_retractions").dicts()] == ["The", "llama.cpp"]


def test_what_prefill_computed_is_new_or_for_a_victim_and_never_less_than_none(sql):
    sql.given(
        "core.counter_intervals",
        COUNTED
        + """0  realtime_tokens           mode=prefill_compute  12:00:00  12:01:00  900  false
             0  realtime_tokens           mode=decode           12:00:00  12:01:00  500  false
             0  prefill_effective_tokens  mode=input            12:00:00  12:01:00  600  false
             0  prefill_effective_tokens  mode=device_hit       12:00:00  12:01:00  50   false
             0  realtime_tokens           mode=prefill_compute  12:01:00  12:02:00  100  false
             1  realtime_tokens           mode=prefill_compute  12:00:00  12:01:00  90   false
             1  prefill_effective_tokens  mode=input            12:00:00  12:01:00  100  false
             2  realtime_tokens           mode=prefill_compute  12:00:00  12:01:00  90   false
             2  retracted_input_tokens    -                     12:00:00  12:01:00  90   false""",
    )
    preemptions(sql, "0  12:00:00  12:01:00  2", "0  12:01:00  12:02:00  1")
    assert (
        sql.rows("core.recompute_retractions")
        == """
        engine  method                     rung  tokens_low  tokens_best  tokens_high  preemptions_low
        0       retraction_counters_exact  1     400         400          400          3
        1       retraction_counters_exact  1     0           0            0            -
        """
    )


def test_a_victim_s_output_is_processed_again_and_of_its_prompt_none_to_all(sql):
    sql.given(
        "core.counter_intervals",
        COUNTED
        + """0  retracted_input_tokens   tp_rank=0  12:00:00  12:01:00  200  false
             0  retracted_input_tokens   tp_rank=0  12:01:00  12:02:00  67   false
             0  retracted_output_tokens  tp_rank=0  12:00:00  12:01:00  300  false
             0  retracted_output_tokens  tp_rank=0  12:01:00  12:02:00  57   false
             1  retracted_output_tokens  tp_rank=0  12:00:00  12:01:00  300  false""",
    )
    assert (
        sql.rows("core.recompute_retractions")
        == """
        engine  method                    rung  is_partial  tokens_low  tokens_best  tokens_high
        0       retracted_tokens_counter  2     false       357         490.5        624
        """
    )


def test_records_of_requests_bound_what_their_victims_had_done(sql):
    sql.given(
        "spans",
        """
        engine  request_id  input_tokens  output_tokens  preemptions  requeue_s
        0       a           100           10             1            5
        0       b           50            30             2            2.5
        0       c           900           900            0            9
        """,
    )
    assert (
        sql.rows("core.recompute_retractions")
        == """
        engine  method           rung  tokens_low  tokens_best  tokens_high
        0       request_records  5     0           135          270
        """
    )
    [row] = sql.rows("core.recompute_retractions").dicts()
    assert row["evidence"] == "3 retraction(s) of 2 request(s), which waited 7.5 s in all to run again."


# Refills from counters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "told"),
    [
        ("-", []),  # that all of it would have fitted is not known either
        (1000, [("capacity_bound", 0, None, 1, "Without")]),
        (1001, [("pool_never_full", 0, 0, 0, "All")]),
    ],
)
def test_nothing_is_evicted_before_the_pool_was_written_full(sql, capacity, told):
    sql.given(
        "core.counter_intervals",
        COUNTED
        + """0  prompt_tokens      -  12:00:00  12:01:00  900  false
             0  generation_tokens  -  12:00:00  12:01:00  101  false""",
    )
    sql.given("core.engines", f"engine  engine_kind  kv_capacity_tokens\n0  vllm  {capacity}")
    columns = ("method", "tokens_low", "tokens_best", "tokens_high", "assumptions")
    rows = [
        [row[name] for name in columns] for row in sql.rows("core.recompute_estimates").dicts() if row["kind"] == "prefix_refill"
    ]
    assert [(*numbers, assumptions.split()[0]) for *numbers, assumptions in rows] == told


# Replays --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "is_replayed"), [("fcfs", True), ("priority", False)])
def test_who_is_preempted_by_priority_a_replay_cannot_tell(sql, policy, is_replayed):
    sql.given("core.engines", ENGINE.replace("10000", "2048 "))  # two requests outgrow it
    sql.given("core.engine_settings", f"engine  key  value_text\n0  scheduling_policy  {policy}\n1  scheduling_policy  priority")
    sql.given("core.counter_intervals", COUNTED + "0  preemptions  -  12:00:00  12:01:00  2  false")
    times = "arrived_at  first_token_at  finished_at"
    sql.given(
        "core.requests",
        f"engine  request_key  {times}  input_tokens  output_tokens\n"
        + "\n".join(f"0  {key}  12:00:01  12:00:02  12:00:20  900  300" for key in "ab"),
    )
    [replay] = [row for row in sql.rows("core.recompute_replays").dicts() if row["method"] == "replay"]
    assert (replay["reason"] is None) == is_replayed
    assert is_replayed or replay["reason"].startswith("priority scheduling")
