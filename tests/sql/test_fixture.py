"""The `sql` fixture itself: what a reader of the other tests relies on."""


def test_a_table_is_given_and_asked_in_the_same_form(sql):
    sql.given(
        "raw.sources",
        """
        source       format           lines  error
        server.log   vllm_engine_log  12     -
        broken.json  -                0      broken.json: ends early
        """,
    )
    sql.given(
        "counter_intervals",
        """
        engine  signal       interval_end  delta
        0       preemptions  12:00:15      4
        """,
    )
    assert (
        sql.rows("marts.runs")
        == """
        run   clock_error_s
        test  -
        """
    )
