"""How much of the slow gaps prompts can have caused, and how many of them victims of preemption, interval by interval."""


def test_a_victim_that_still_waits_ends_its_gap_in_a_later_interval(sql):
    """Nobody waits from before at 12:00:15; then as many as the queue holds, and at most those preempted since it was empty."""
    sql.given(
        "core.histogram_intervals",
        """
        engine  signal  interval_start  interval_end  above  le    delta
        0       itl_s   12:00:00        12:00:15      0      0.01  99
        0       itl_s   12:00:15        12:00:30      0      0.01  99
        0       itl_s   12:00:30        12:00:45      0      0.01  99
        0       itl_s   12:00:45        12:01:00      0      0.01  99
        0       itl_s   12:01:00        12:01:15      0      0.01  99
        1       itl_s   12:00:00        12:00:15      0      0.01  99
        """,
    )
    sql.given(
        "core.counter_intervals",
        """
        engine  signal       interval_start  interval_end  delta
        0       preemptions  12:00:00        12:00:15      9
        0       preemptions  12:00:15        12:00:30      1
        0       preemptions  12:00:30        12:00:45      0
        0       preemptions  12:00:45        12:01:00      2
        0       preemptions  12:01:00        12:01:15      1
        """,
    )
    sql.given(
        "core.engine_states",
        """
        engine  sampled_at  waiting
        0       12:00:00    5
        0       12:00:15    7
        0       12:00:30    12
        0       12:00:45    0
        0       12:01:00    8
        1       12:00:00    3
        """,
    )
    assert (
        sql.rows("core.interference_intervals")
        == """
        engine  interval_end  preemptions  most_resumes
        0       12:00:15      9            9
        0       12:00:30      1            8
        0       12:00:45      0            10
        0       12:01:00      2            2
        0       12:01:15      1            3
        1       12:00:15      -            -
        """
    )


def test_prompts_cost_no_more_than_they_did_when_the_engine_computed_most_of_them(sql):
    """In both intervals four gaps of 0.25 s in 1.04 s of gaps; in the second 1,500 tokens, a quarter of the first's 6,000."""
    sql.given(
        "core.histogram_intervals",
        """
        engine  signal  interval_start  interval_end  above  le    delta
        0       itl_s   12:00:00        12:00:15      0      0.01  8
        0       itl_s   12:00:00        12:00:15      0.2    0.3   4
        0       itl_s   12:00:15        12:00:30      0      0.01  8
        0       itl_s   12:00:15        12:00:30      0.2    0.3   4
        """,
    )
    sql.given(
        "core.counter_intervals",
        """
        engine  signal         interval_start  interval_end  delta
        0       itl_s_sum      12:00:00        12:00:15      1.04
        0       itl_s_sum      12:00:15        12:00:30      1.04
        0       prompt_tokens  12:00:00        12:00:15      6000
        0       prompt_tokens  12:00:15        12:00:30      1500
        """,
    )
    assert (
        sql.rows("core.interference_intervals")
        == """
        engine  interval_end  slow_gaps  median_gap_s  lost_s  prompt_tokens
        0       12:00:15      4          0.0075        0.97    6000
        0       12:00:30      4          0.0075        0.26    1500
        """
    )
