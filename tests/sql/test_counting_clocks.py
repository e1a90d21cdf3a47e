"""Stamps that count from a start stand where that start was found to be, and are of no calendar."""

CLOCKS = """
    source    clock      zone  base_year  mono_epoch_s   error_s
    load.csv  monotonic  -     -          {start_s}      1
"""
SAMPLES = """
    source    line  at_local             running
    load.csv  2     1970-01-01 00:00:05  3
    load.csv  3     1970-01-02 00:00:05  4
"""


def test_seconds_since_the_start_are_moments_where_it_is_known(sql):
    sql.given("staging.clocks", CLOCKS.format(start_s="1767268800.5"))
    sql.given("raw.engine_samples", SAMPLES)
    assert (
        sql.rows("staging.engine_samples")
        == """
        sampled_at                running
        12:00:05.5                3
        2026-01-02T12:00:05.5Z    4
    """
    )


def test_they_are_no_stamps_of_a_calendar(sql):
    sql.given("raw.engine_samples", SAMPLES)
    sql.given("raw.sources", "source  format\nload.csv  llmservingsim")
    assert (
        sql.rows("staging.clock_sources")
        == """
        source    first_local  last_undated  first_counted_s  last_counted_s
        load.csv  -            -             5                86405
    """
    )


def test_how_long_requests_waited_is_told_by_their_own_records_where_no_histogram_is(sql):
    """Of those that first ran while others waited; then no metrics are asked for to tell it."""
    sql.given(
        "engine_samples",
        """
        engine  source  line  sampled_at  running  waiting  kv_usage_ratio
        0       load    1     12:00:00    4        0        0.5
        0       load    2     12:00:10    4        8        0.99
        0       load    3     12:00:20    4        8        0.99
        0       load    4     12:00:30    4        8        0.99
        0       load    5     12:00:40    4        0        0.5
        """,
    )
    sql.given(
        "core.requests",
        """
        engine  request_key  arrived_at  finished_at  queue_s
        0       a            12:00:05    12:00:55     12
        0       b            12:00:05    12:00:55     45
        0       c            12:00:05    12:00:25     -
        """,
    )
    [queue] = [row for row in sql.rows("marts.spell_facts").dicts() if row["verdict"] == "queue_kv_capacity"]
    assert (queue["queued_s"], queue["queued_requests"], queue["e2e_s"]) == (12, 1, 50)
    [verdict] = [row for row in sql.rows("advice.verdicts").dicts() if row["is_primary"]]
    assert (
        "Requests that first ran in this time had waited 12.00 s each before their first run, 24 % of their whole latency."
        in (verdict["evidence"])
    )
    assert not any("How long each request waited" in each for each in verdict["missing"])
