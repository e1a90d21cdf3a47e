"""Logs that share lines: each counts once, and two servers that do alike are not taken for one another."""

import pytest

REPEATS = "staging.repeated_lines"


def samples(sql, **logs):
    """Ten seconds a line: `grab=(first second, first line, running, ...)`."""
    rows = []
    for source, (second, line, *running) in logs.items():
        for step, each in enumerate(running):
            at = second + 10 * step
            rows.append(f"{source}  {line + step}  12:{at // 60:02}:{at % 60:02}  {each}")
    sql.given("raw.engine_samples", "source  line  at_utc  running\n" + "\n".join(rows))


def events(sql, *rows):
    sql.given("raw.engine_events", "source  line  at_utc  event  request_id\n" + "\n".join(rows))


def test_of_two_grabs_that_overlap_the_shared_lines_count_once(sql):
    samples(sql, first=(0, 1, 1, 2, 3, 4), second=(20, 1, 3, 4, 5, 6))
    assert (
        sql.rows(REPEATS)
        == """
        source  first_line  last_line  copy_of
        second  1           2          first
    """
    )
    assert [(row["source"], row["running"]) for row in sql.rows("staging.engine_samples").dicts()] == [
        ("first", 1),
        ("first", 2),
        ("first", 3),
        ("first", 4),
        ("second", 5),
        ("second", 6),
    ]
    [told] = [row["detail"] for row in sql.rows("marts.data_quality").dicts() if row["flag"] == "lines_repeated"]
    assert told == "Its lines 1 to 2 are in first, too; they are counted once."


def test_a_copy_that_ends_earlier_and_one_that_begins_later_are_within_the_whole(sql):
    samples(sql, a=(0, 1, 1, 2, 3), b=(0, 1, 1, 2, 3, 4, 5), c=(20, 7, 3, 4, 5))
    assert (
        sql.rows(REPEATS)
        == """
        source  first_line  last_line  copy_of
        a       1           3          b
        c       7           9          b
    """
    )


def test_of_three_grabs_in_a_row_each_line_counts_once(sql):
    samples(sql, a=(0, 1, 1, 2, 3, 4), b=(20, 1, 3, 4, 5, 6), c=(40, 1, 5, 6, 7, 8))
    told = sql.rows("staging.engine_samples").dicts()
    assert [row["running"] for row in told] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_preemptions_of_a_log_given_twice_in_part_are_not_counted_twice(sql):
    lines = [f"{n + 1}  12:00:0{n}  preemption_warning_recompute  r{n}" for n in range(5)]
    events(sql, *(f"whole  {each}" for each in lines), *(f"part  {each}" for each in lines[:3]))
    assert len(sql.rows("staging.engine_events").dicts()) == 5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((0, 1, 1, 2, 3, 4, 5, 6), (0, 1, 1, 2, 7, 8, 9, 6), id="several lines between differ, which no cut does"),
        pytest.param((0, 1, 1, 2, 3, 4), (30, 1, 4, 9), id="one line alone is alike"),
        pytest.param((0, 1, 1, 2, 3, 4), (10, 1, 1, 2, 3, 4), id="the same load at another time"),
        pytest.param((0, 1, 0, 0, 0, 4), (40, 1, 5, 6), id="they follow one another"),
    ],
)
def test_logs_that_say_different_things_both_count(sql, one, other):
    samples(sql, one=one, other=other)
    assert sql.rows(REPEATS).dicts() == []


def test_two_idle_servers_are_two(sql):
    sql.given(
        "raw.engine_samples",
        """
        source  line  at_utc    instance  running
        a       1     12:00:00  pod-a     0
        a       2     12:00:10  pod-a     0
        a       3     12:00:20  pod-a     0
        b       1     12:00:00  pod-b     0
        b       2     12:00:10  pod-b     0
        b       3     12:00:20  pod-b     0
    """,
    )
    assert sql.rows(REPEATS).dicts() == []
    assert len(sql.rows("staging.engine_samples").dicts()) == 6
