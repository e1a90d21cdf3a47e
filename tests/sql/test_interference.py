"""How many slow gaps the victims of preemption can account for, interval by interval."""


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
