"""What a load generator's result cannot tell is said, with what it does to the answer."""

import pytest


def test_each_limit_of_a_result_is_a_row(sql):
    sql.given(
        "staging.client_runs",
        """
        source  run_index  client        completed  duration_s  request_rate  max_concurrency
        a       0          sglang_bench  2          1           -             8
        b       0          guidellm      20         10          4             -
        c       0          vllm_bench    0          1           -             -
        d       0          aiperf        1          1           -             -
        """,
    )
    sql.given(
        "staging.client_requests",
        """
        source  request_index  sent_at   client_queue_s  ttft_s  gaps_s      gap_kind        is_failed
        a       0              -         -               1       [0.1, 0.1]  smoothed_token  false
        a       1              -         -               1       [0.1, 0.1]  smoothed_token  false
        b       0              12:00:00  0.1             1       -           -               false
        c       0              12:00:00  -               -       -           -               true
        d       0              12:00:00  0.1             1       [0.1]       chunk           false
        """,
    )
    assert (
        sql.rows("marts.data_quality")
        == """
        source  flag                    severity  count
        a       client_queue_hidden     warning   8
        a       gaps_smoothed           warning   2
        a       no_arrival_times        warning   2
        b       client_behind_its_rate  warning   1
        c       failed_requests         warning   1
        c       zeros_without_requests  warning   1
        b       gaps_not_kept           info      1
        b       requests_left_out       info      19
        """
    )


def test_settings_that_a_client_did_not_scrape_are_missed(sql):
    sql.given(
        "raw.sources",
        """
        source  format
        m       aiperf_server_metrics
        """,
    )
    assert (
        sql.rows("marts.data_quality")
        == """
        source  flag                  severity
        m       no_clock              error
        m       settings_not_scraped  info
        """
    )


def test_a_counter_that_aiperf_held_at_zero_after_a_restart_is_missed(sql):
    sql.given(
        "raw.sources",
        """
        source  format
        m       aiperf_server_parquet
        """,
    )
    sql.given(
        "core.counter_intervals",
        """
        engine  signal       name                         labels  interval_start  interval_end  delta  is_reset
        0       preemptions  vllm:num_preemptions_total   a       12:00:00        12:00:01      0      true
        """,
    )
    assert (
        sql.rows("marts.data_quality")
        == """
        source  flag                   severity
        m       no_clock               error
        m       counter_reset_clamped  warning
        m       settings_not_scraped   info
        """
    )


def test_what_a_recorder_could_not_keep_is_said(sql):
    sql.given(
        "raw.recordings",
        """
        source  at_utc    event           subject  since_utc  count  detail
        j       12:00:00  started         -        -          -      metrics
        j       12:01:00  resumed         -        12:00:50   -      metrics
        j       12:03:00  resumed         -        12:02:00   -      metrics
        j       12:04:00  scrapes_missed  http     12:03:50   10     refused
        j       12:05:00  log_lost        engine   -          -      emptied
        j       12:06:00  part_dropped    metrics  12:00:30   -      thrown
        j       12:07:00  stopped         -        -          -      SIGTERM
        """,
    )
    assert (
        sql.rows("marts.data_quality")
        == """
        source   flag                  severity  count
        engine   log_lines_lost        warning   1
        http     engine_not_answering  warning   10
        j        recorder_was_down     warning   2
        metrics  recording_trimmed     info      1
        """
    )


def test_requests_that_were_turned_away_are_in_no_figure(sql):
    rows = [
        "0  rejections  reason=max_num_queued_reqs  12:00:00  12:00:10  3  false",
        "1  rejections  -  12:00:00  12:00:10  0  false",
    ]
    sql.given(
        "core.counter_intervals", "\n".join(["engine  signal  labels  interval_start  interval_end  delta  is_reset", *rows])
    )
    assert (
        sql.rows("marts.data_quality")
        == """
        source  flag               severity  count
        0       rejected_requests  warning   3
        """
    )


@pytest.mark.parametrize(
    ("method", "is_said"), [("assumed UTC, year from today's date", True), ("321 counters between scrapes", False)]
)
def test_a_zone_that_was_assumed_names_the_option_that_states_it(sql, method, is_said):
    sql.given("staging.clocks", f"source  clock  method\nserver.log  local  {method}")
    [row] = sql.rows("marts.data_quality").dicts()
    assert ("--timezone" in row["detail"]) == is_said


@pytest.mark.parametrize(
    ("given", "requests", "again"),
    [
        ("s0 s1 sum", 30, [("v/summary_lifecycle_metrics.json", 30, "v/stage_0_lifecycle_metrics.json")]),
        ("s0 sum", 30, [("v/stage_0_lifecycle_metrics.json", 10, "v/summary_lifecycle_metrics.json")]),  # a stage was not copied
        ("sum", 30, []),
        ("s0 s1 other", 60, []),  # the sum of another run
    ],
)
def test_requests_of_stages_and_of_their_sum_are_counted_once(sql, given, requests, again):
    results = {
        "s0": "v/stage_0_lifecycle_metrics.json  0  inference_perf  9   1",
        "s1": "v/stage_1_lifecycle_metrics.json  0  inference_perf  20  0",
        "sum": "v/summary_lifecycle_metrics.json  0  inference_perf  29  1",
        "other": "w/summary_lifecycle_metrics.json  0  inference_perf  29  1",
    }
    rows = [results[name] for name in given.split()]
    sql.given("raw.bench_runs", "\n".join(["source  run_index  client  completed  failed", *rows]))
    sql.given("raw.sources", "\n".join(["source  format", *(f"{row.split()[0]}  inference_perf_json" for row in rows)]))
    told = [(row["source"], row["requests"], row["held_in"]) for row in sql.rows("staging.repeated_results").dicts()]
    assert told == again
    assert [row["requests"] for row in sql.rows("core.unjudged_inputs").dicts()] == [requests]
    flagged = [row["source"] for row in sql.rows("marts.data_quality").dicts() if row["flag"] == "requests_repeated"]
    assert flagged == [source for source, *_ in again]


def test_a_recorder_that_did_not_reach_the_engine_is_why_nothing_is_told(sql):
    sql.given("raw.sources", "source  format  lines_used\nrecording.jsonl  recording_journal  3\nserver.log  vllm_engine_log  7")
    sql.given(
        "raw.recordings",
        """
        source           line  at_utc    event           subject            since_utc  count  detail
        recording.jsonl  1     12:00:00  started         -                  -          -      metrics
        recording.jsonl  2     12:01:00  scrapes_missed  http://a/metrics   12:00:00   50     timed out
        recording.jsonl  3     12:01:10  scrapes_missed  http://a/metrics   12:01:01   5      connection refused; is it running?
        """,
    )
    sql.given("raw.engine_config", "source  line  key  value_text\nserver.log  1  engine_version  0.32.0")
    [row] = sql.rows("advice.verdicts").dicts()
    assert row["summary"].startswith("The recorder did not reach the engine: ")
    assert "recording.jsonl: 55 scrapes of http://a/metrics failed (connection refused; is it running)." in row["evidence"]
    assert row["missing"][0].startswith("Start the engine, or correct the address, and record again")
    assert not any("carry no time" in each for each in row["evidence"] if each.startswith("recording"))


@pytest.mark.parametrize(("ahead_s", "told"), [(420, "7 min 0 s ahead of"), (-90, "90 s behind")])
def test_a_skewed_clock_is_said_with_its_size_and_side(sql, ahead_s, told):
    sql.given(
        "staging.clocks", f"source  clock  ahead_s  error_s  method\nserver.log  local  {ahead_s}  {abs(ahead_s)}  9 requests"
    )
    [row] = sql.rows("marts.data_quality").dicts()
    assert (row["flag"], row["severity"], row["count"]) == ("clock_skew", "warning", abs(ahead_s))
    assert row["detail"].startswith(f"Its clock is {told} that of the other inputs, as 9 requests say.")
