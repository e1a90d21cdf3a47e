"""Whose answers paused, and why: the engine's other streams are the witnesses."""

from itertools import pairwise

import pytest

# Four streams that get a token every 20 ms from 12:00:00 on; `ours` is the last admitted. Times are told in steps of the engine.
STEP_S = 0.02
PEERS, OURS = ("a", "b", "c"), "ours"


def arrivals(steps, *, missing=(), held_up=()):
    """When a stream's tokens are read: one each step, but for the steps it did not run in and those held up until a later one."""
    moments = []
    for step in range(steps):
        if any(first <= step < last for first, last in missing):
            continue
        late = next((last for first, last in held_up if first <= step < last), step)
        moments.append(late * STEP_S)
    return moments


def told(sql, streams, *, prompts=(), preemptions=None):
    """The stalls of `ours`, each with its cause; streams are lists of arrival times, prompts are (first token at, tokens)."""
    rows = []
    for index, moments in enumerate([*streams.values(), *([at] for at, _ in prompts)]):
        first, *rest = moments
        gaps = [round(later - earlier, 6) for earlier, later in zip(moments, rest, strict=False)]
        tokens = 100 if index < len(streams) else prompts[index - len(streams)][1]
        rows.append(f"c.json  c.json  0  {index}  12:00:00  {first + 0.1:.6f}  {tokens}  {len(moments)}  0  {gaps}")
    names = "source  source_file  run_index  request_index  sent_at  ttft_s  input_tokens  output_tokens  clock_error_s  gaps_s"
    sql.given("client_requests", "\n".join([names, *rows]))
    if preemptions is not None:
        counted = [f"0  12:00:{start:02}  12:00:{start + 1:02}  {preemptions}" for start in range(20)]
        sql.given("core.preemption_intervals", "\n".join(["engine  interval_start  interval_end  preemptions", *counted]))
    ours = list(streams).index(OURS)
    stalls = [row for row in sql.rows("marts.stalls").dicts() if row["request_index"] == ours]
    return [(row["cause"], row["duration_s"], row["tokens_before"]) for row in stalls]


def crowd(**kinds):
    return {name: arrivals(400, **kinds) for name in PEERS}


def test_a_stream_that_misses_steps_its_peers_had_was_preempted(sql):
    streams = crowd() | {OURS: arrivals(400, missing=[(100, 200)])}
    assert told(sql, streams, preemptions=1) == [("preemption", pytest.approx(101 * STEP_S), 100)]


def test_streams_that_pause_together_were_not_preempted(sql):
    pause = {"missing": [(100, 200)]}
    assert [cause for cause, *_ in told(sql, crowd(**pause) | {OURS: arrivals(400, **pause)}, preemptions=1)] == ["engine_pause"]


def test_tokens_held_up_on_their_way_come_in_a_burst_and_are_no_preemption(sql):
    held = {"held_up": [(100, 200)]}
    assert [cause for cause, *_ in told(sql, crowd(**held) | {OURS: arrivals(400, **held)}, preemptions=1)] == ["engine_pause"]


def test_a_preemption_is_seen_through_a_hold_up_by_the_smaller_burst(sql):
    held = {"held_up": [(100, 200)]}
    streams = crowd(**held) | {OURS: arrivals(400, missing=[(120, 190)], **held)}
    assert [cause for cause, *_ in told(sql, streams, preemptions=1)] == ["preemption"]


def test_an_answer_that_ends_in_the_burst_has_fewer_tokens_without_being_preempted(sql):
    held = {"held_up": [(100, 200)]}
    streams = crowd(**held) | {OURS: arrivals(130, **held)}
    assert [cause for cause, *_ in told(sql, streams, preemptions=1)] == ["engine_pause"]


def test_a_slow_reader_is_not_a_victim(sql):
    streams = crowd() | {OURS: arrivals(400, held_up=[(100, 150)])}
    assert [cause for cause, *_ in told(sql, streams, preemptions=1)] == ["unknown"]


def test_an_engine_that_counts_no_preemption_preempted_nobody(sql):
    streams = crowd() | {OURS: arrivals(400, missing=[(100, 200)])}
    assert [cause for cause, *_ in told(sql, streams, preemptions=0)] == ["unknown"]


def test_without_a_counter_the_other_streams_are_enough(sql):
    streams = crowd() | {OURS: arrivals(400, missing=[(100, 200)])}
    assert [cause for cause, *_ in told(sql, streams)] == ["preemption"]


def test_a_long_prompt_that_ends_the_pause_of_all_is_interference(sql):
    pause = {"missing": [(100, 200)]}
    streams = crowd(**pause) | {OURS: arrivals(400, **pause)}
    # a hundred tokens take a tenth of a second here, so that two thousand take two seconds
    assert [cause for cause, *_ in told(sql, streams, prompts=[(200 * STEP_S, 2000)], preemptions=0)] == ["prefill_interference"]


def test_a_lone_stream_tells_nothing(sql):
    assert [cause for cause, *_ in told(sql, {OURS: arrivals(400, missing=[(100, 200)])}, preemptions=1)] == ["unknown"]


def test_short_gaps_of_a_slow_engine_are_no_pauses(sql):
    assert told(sql, {OURS: [step * 0.3 for step in range(50)]}) == []


def test_what_a_preemption_cost_adds_up(sql):
    told(sql, crowd() | {OURS: arrivals(400, missing=[(100, 200)])}, preemptions=1)
    (row,) = [row for row in sql.rows("marts.stalls").dicts() if row["cause"] == "preemption"]
    assert row["waited_s"] + row["rebuild_s"] + row["delayed_s"] == pytest.approx(row["duration_s"])
    assert row["victim_context_tokens"] == 200
    (victim,) = sql.rows("core.victims").dicts()
    assert (victim["times_preempted"], victim["method"]) == (1, "client_gaps")
    assert victim["paused_s"] == pytest.approx(row["duration_s"])


def test_a_victim_is_found_in_spans_alone_by_its_decode_time(sql):
    spans = [f"0  s  {line}  r{line}  12:00:00  100  101  0.1  2.1  {2.0 if line else 6.0}" for line in range(8)]
    names = "engine  source  line  request_id  arrived_at  input_tokens  output_tokens  ttft_s  e2e_s  decode_s"
    sql.given("spans", "\n".join([names, *spans]))
    counted = [f"0  12:00:{start:02}  12:00:{start + 1:02}  1" for start in range(20)]
    sql.given("core.preemption_intervals", "\n".join(["engine  interval_start  interval_end  preemptions", *counted]))
    assert (
        sql.rows("core.victims")
        == """
        request_id  times_preempted  paused_s  method
        r0          -                4.0       span_decode_time
        """
    )


def test_client_requests_and_spans_meet_once_each_in_order(sql):
    """Equal token counts throughout: what is left is the order, and that a span follows its sending."""
    sql.given(
        "client_requests",
        """
        source  source_file  run_index  request_index  sent_at       ttft_s  latency_s  input_tokens  output_tokens  clock_error_s
        c.json  c.json       0          0              12:00:00      0.5     2.0        8             16             0.01
        c.json  c.json       0          1              12:00:00.001  0.5     2.0        8             16             0.01
        c.json  c.json       0          2              12:00:05      0.5     2.0        8             16             0.01
        """,
    )
    sql.given(
        "spans",
        """
        engine  source  line  request_id  arrived_at    ttft_s  e2e_s  input_tokens  output_tokens
        0       s       1     x           12:00:00.010  0.4     1.9    8             16
        0       s       2     y           12:00:00.012  0.4     1.9    8             16
        0       s       3     z           12:00:09      0.4     1.9    8             16
        """,
    )
    assert (
        sql.rows("core.requests")
        == """
        request_key  request_id  has_client  has_span
        c.json#0#0   x           true        true
        c.json#0#1   y           true        true
        c.json#0#2   -           true        false
        s:3#z        z           false       true
        """
    )


def test_the_index_in_a_request_id_outranks_order(sql):
    sql.given(
        "client_requests",
        """
        source  source_file  run_index  request_index  sent_at       ttft_s  latency_s  input_tokens  output_tokens  clock_error_s
        c.json  c.json       0          0              12:00:00      0.5     2.0        8             16             0.01
        c.json  c.json       0          1              12:00:00.001  0.5     2.0        8             16             0.01
        """,
    )
    sql.given(
        "spans",
        """
        engine  source  line  request_id           arrived_at    ttft_s  e2e_s  input_tokens  output_tokens
        0       s       1     cmpl-bench-ab12-1-0  12:00:00.010  0.4     1.9    8             16
        0       s       2     cmpl-bench-ab12-0-0  12:00:00.012  0.4     1.9    8             16
        """,
    )
    assert (
        sql.rows("core.requests")
        == """
        request_key  request_id
        c.json#0#0   cmpl-bench-ab12-0-0
        c.json#0#1   cmpl-bench-ab12-1-0
        """
    )


@pytest.mark.parametrize(("clock_error_s", "causes"), [(0.01, {"preemption"}), (0.011, {"engine_pause"})])
def test_where_all_of_a_client_s_requests_are_preempted_another_s_show_that_the_engine_went_on(sql, clock_error_s, causes):
    sql.given("staging.engine_names", "engine\n0")
    sql.given("core.preemption_intervals", "engine  interval_start  interval_end  preemptions\n0  12:00:00  12:00:20  4")
    rows = []
    for file, missing in (("batch.json", [(100, 200)]), ("gold.json", [])):
        moments = arrivals(400, missing=missing)
        gaps = [round(later - earlier, 6) for earlier, later in pairwise(moments)]
        rows += [
            f"{file}  {file}  0  {index}  12:00:00  {moments[0] + 0.1:.6f}  100  {len(moments)}  {clock_error_s}  {gaps}"
            for index in range(4)
        ]
    names = "source  source_file  run_index  request_index  sent_at  ttft_s  input_tokens  output_tokens  clock_error_s  gaps_s"
    sql.given("client_requests", "\n".join([names, *rows]))
    assert {row["cause"] for row in sql.rows("marts.stalls").dicts()} == causes
