"""Counters: what grew between two scrapes, what a restart, a late series and two sources make of it, and what waited for what."""

from dataclasses import replace

import pytest


def scrapes(sql, text):
    sql.given("staging.metric_samples", text)


def test_a_counter_is_what_it_grew_by_and_a_fall_counts_from_nothing(sql):
    scrapes(
        sql,
        """
        engine  sampled_at  name                        labels  value
        0       12:00:00    vllm:num_preemptions_total  -       920
        0       12:00:15    vllm:num_preemptions_total  -       920
        0       12:00:30    vllm:num_preemptions_total  -       925
        0       12:00:45    vllm:num_preemptions_total  -       4
        """,
    )
    assert (
        sql.rows("core.counter_intervals")
        == """
        engine  signal       interval_start  interval_end  delta  is_reset
        0       preemptions  12:00:00        12:00:15      0      false
        0       preemptions  12:00:15        12:00:30      5      false
        0       preemptions  12:00:30        12:00:45      4      true
        """
    )


def test_a_series_that_appears_later_grew_from_nothing_since_the_scrape_before(sql):
    """A labelled counter exists from its first event on; the first scrape of all is no interval."""
    scrapes(
        sql,
        """
        engine  sampled_at  name                        labels  value
        0       12:00:00    vllm:num_preemptions_total  a=1     7
        0       12:00:15    vllm:num_preemptions_total  a=1     7
        0       12:00:15    vllm:num_preemptions_total  a=2     3
        1       12:00:07    vllm:num_preemptions_total  a=1     9
        1       12:00:22    vllm:num_preemptions_total  a=1     11
        """,
    )
    assert (
        sql.rows("core.counter_intervals")
        == """
        engine  labels  interval_start  interval_end  delta
        0       a=1     12:00:00        12:00:15      0
        0       a=2     12:00:00        12:00:15      3
        1       a=1     12:00:07        12:00:22      2
        """
    )


def test_only_what_ends_within_the_window_counts(sql):
    sql.run = replace(sql.run, since="2026-01-01T12:00:20Z")
    scrapes(
        sql,
        """
        engine  sampled_at  name                        labels  value
        0       12:00:00    vllm:num_preemptions_total  -       1
        0       12:00:15    vllm:num_preemptions_total  -       2
        0       12:00:30    vllm:num_preemptions_total  -       4
        """,
    )
    assert (
        sql.rows("core.counter_intervals")
        == """
        interval_start  interval_end  delta
        12:00:15        12:00:30      2
        """
    )


INTERVALS = """
    engine  signal             labels  interval_start  interval_end  delta  is_reset
    0       preemptions        a=1     12:00:00        12:00:15      2      false
    0       preemptions        a=2     12:00:00        12:00:15      3      false
    0       generation_tokens  -       12:00:00        12:00:15      900    false
"""


def events(sql, *rows):
    header = "engine  happened_at  event  request_id  count"
    sql.given("staging.engine_events", "\n".join([header, *rows]))


def test_preemptions_come_from_the_counter_over_all_its_series(sql):
    sql.given("core.counter_intervals", INTERVALS)
    events(sql, "0  12:00:03  retraction  -  4", "0  12:00:04  context_shift  -  40")
    assert (
        sql.rows("core.preemption_intervals")
        == """
        engine  interval_start  interval_end  preemptions
        0       12:00:00        12:00:15      5
        """
    )


def test_a_log_that_says_as_many_says_them_to_the_second(sql):
    sql.given("core.counter_intervals", INTERVALS)
    events(sql, "0  12:00:03  retraction  -  2", "0  12:00:03  retraction  -  1", "0  12:00:09  retraction  -  2")
    assert (
        sql.rows("core.preemption_intervals")
        == """
        engine  interval_start  interval_end  preemptions  method
        0       12:00:03        12:00:04      3            retraction_log
        0       12:00:09        12:00:10      2            retraction_log
        """
    )


def test_a_log_that_says_fewer_than_the_counter_in_all_was_cut(sql):
    more = INTERVALS + "    0       preemptions        a=1     12:00:15        12:00:30      2      false\n"
    sql.given("core.counter_intervals", more)
    events(sql, "0  12:00:03  retraction  -  6")
    assert (
        sql.rows("core.preemption_intervals")
        == """
        engine  interval_start  interval_end  preemptions  method
        0       12:00:00        12:00:15      5            preemption_counter
        0       12:00:15        12:00:30      2            preemption_counter
        """
    )


def test_a_log_that_would_have_said_it_says_that_there_was_none(sql):
    """SGLang prints each retraction, so its silence is a 0; vLLM V1 prints none, so its silence is nothing."""
    sql.given(
        "core.engines",
        """
        engine  engine_kind
        0       sglang
        1       vllm
        2       llamacpp
        3       sglang
        4       sglang
        5       -
        """,
    )
    states = "engine  sampled_at  origin  running  waiting\n"
    for engine, origin in ((0, "log"), (1, "log"), (2, "log"), (3, "metrics"), (5, "log")):
        states += f"{engine}  12:00:00  {origin}  1  0\n{engine}  12:00:40  {origin}  1  0\n"
    sql.given("core.engine_states", states + "4  12:00:00  log  1  0")
    sql.given("core.counter_intervals", "engine")
    events(sql)
    assert (
        sql.rows("core.preemption_intervals")
        == """
        engine  interval_start  interval_end  preemptions  method
        0       12:00:00        12:00:40      0            retraction_log
        2       12:00:00        12:00:40      0            no_preemption
        """
    )


@pytest.mark.parametrize(("read_as", "intervals"), [("sglang_api_json", 0), ("sglang_engine_log", 1)])
def test_a_server_asked_for_its_load_says_nothing_of_retractions(sql, read_as, intervals):
    sql.given("core.engines", "engine  engine_kind\n0  sglang")
    sql.given("core.engine_states", "engine  sampled_at  origin\n0  12:00:00  log\n0  12:00:40  log")
    sql.given("core.counter_intervals", "engine")
    sql.given("raw.sources", f"source  format\nloads.jsonl  {read_as}")
    sql.given("staging.engine_samples", "engine  sampled_at  source  line\n0  12:00:00  loads.jsonl  1")
    events(sql)
    assert len(sql.rows("core.preemption_intervals").dicts()) == intervals


def test_requests_that_say_they_were_preempted_are_the_last_resort(sql):
    sql.given("core.counter_intervals", INTERVALS)
    events(sql, "1  12:00:03  retraction  -  2")
    sql.given(
        "staging.spans",
        """
        engine  request_id  arrived_at  ended_at  ttft_s  preemptions
        0       a           12:00:00    12:00:09  1       7
        1       a           12:00:00    12:00:09  1       7
        2       a           12:00:00    12:00:09  2       1
        2       b           12:00:01    12:00:09  -       2
        2       c           12:00:01    12:00:20  1       0
        2       d           12:00:05    12:00:06  9       1
        2       e           12:00:05    12:00:14  1       1
        2       f           12:00:02    12:00:09  7       5
        """,
    )
    assert (
        sql.rows("core.preemption_intervals")
        == """
        engine  interval_start  interval_end  preemptions  method
        0       12:00:00        12:00:15      5            preemption_counter
        1       12:00:03        12:00:04      2            retraction_log
        2       12:00:01        12:00:09      3            request_records
        2       12:00:06        12:00:14      1            request_records
        """
    )


def test_waits_are_shared_out_over_their_causes_by_who_waited(sql):
    sql.given(
        "core.queue_states",
        """
        engine  sampled_at  cause         scrape_s  waiting
        0       12:00:00    kv_capacity   10        3
        0       12:00:10    kv_capacity   5         2
        0       12:00:15    max_num_seqs  20        1
        1       12:00:00    unknown       4         1
        2       12:00:00    unknown       4         1
        3       12:00:00    unknown       0         1
        """,
    )
    sql.given(
        "core.counter_intervals",
        """
        engine  signal       labels  interval_start  interval_end  delta  is_reset
        0       queue_s_sum  -       12:00:00        12:00:15      50     false
        0       queue_s_sum  -       12:00:15        12:00:30      70     false
        0       preemptions  -       12:00:15        12:00:30      70     false
        1       preemptions  -       12:00:15        12:00:30      70     false
        """,
    )
    sql.given(
        "staging.spans",
        """
        engine  request_id  arrived_at  queue_s
        0       a           12:00:00    900
        1       b           12:00:00    2
        1       c           12:00:00    3
        """,
    )
    assert (
        sql.rows("marts.queue_time")
        == """
        run   engine  cause         seconds  request_seconds
        test  0       kv_capacity   15       80
        test  0       max_num_seqs  20       40
        test  1       unknown       4        5
        test  2       unknown       4        -
        test  3       unknown       -        -
        """
    )


def test_where_no_sample_shows_a_queue_its_time_is_the_union_of_the_waits_that_spans_tell(alone):
    """Of overlapping waits one reaches beyond the next; who did not wait adds nothing. Engine 1 was sampled, and showed none."""
    alone.given(
        "staging.spans",
        """
        engine  request_id  arrived_at  queue_s
        0       a           12:00:00    10
        0       b           12:00:02    3
        0       c           12:00:08    4
        0       d           12:00:20    1
        0       e           12:00:30    0
        0       f           12:00:40    -
        1       g           12:00:00    5
        """,
    )
    alone.given("core.engine_states", "engine  sampled_at  waiting\n0  12:00:00  -\n1  12:00:00  0")
    assert (
        alone.rows("marts.queue_time")
        == """
        run   engine  cause    seconds  request_seconds
        test  0       unknown  13       18
        """
    )


def test_sums_and_counts_of_histograms_are_counters_in_our_unit(sql):
    """A sum is in the exposed unit and is brought to ours; a count has none. The first scrape of a series is no reset."""
    scrapes(
        sql,
        """
        engine  sampled_at  name                                    labels  value
        0       12:00:00    vllm:time_to_first_token_seconds_sum    -       2
        0       12:00:00    vllm:time_to_first_token_seconds_count  -       4
        0       12:00:15    vllm:time_to_first_token_seconds_sum    -       5
        0       12:00:15    vllm:time_to_first_token_seconds_count  -       6
        0       12:00:15    vllm:num_preemptions_total              -       3
        0       12:00:15    vllm:num_requests_running               -       3
        """,
    )
    assert (
        sql.rows("core.counter_intervals")
        == """
        signal        interval_end  delta  is_reset
        preemptions   12:00:15      3      false
        ttft_s_count  12:00:15      2      false
        ttft_s_sum    12:00:15      3      false
        """
    )


SERVED = "vllm:generation_tokens_total"


@pytest.mark.parametrize(
    ("after", "why"),
    [(0, "restarted: its counters fell"), (500, "as it was: the engine may have been idle meanwhile")],
)
def test_an_engine_that_was_not_scraped_for_hours_is_unknown_and_not_stalled(sql, after, why):
    """Counters that stand still are a stall while somebody looks: for a minute and a half here, then for eight hours unseen."""
    samples = [
        (f"12:{second // 60:02}:{second % 60:02}", 500 if second >= 30 else 100 * second // 15) for second in range(0, 121, 15)
    ]
    samples += [(f"20:00:{second:02}", after + 10 * second) for second in range(0, 60, 15)]
    rows = [
        f"0  {at}  {name}  -  {value}"
        for at, served in samples
        for name, value in ((SERVED, served), ("vllm:num_requests_running", 3), ("vllm:num_requests_waiting", 0))
    ]
    scrapes(sql, "\n".join(["engine  sampled_at  name  labels  value", *rows]))
    assert (
        sql.rows("core.spells")
        == """
        engine  verdict         window_start  window_end
        0       engine_stalled  12:00:30      12:02:00
    """
    ), why
