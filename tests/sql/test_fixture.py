"""The `sql` fixture itself: what a reader of the other tests relies on."""

import re

from tests.conftest import PROJECT


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


def test_the_example_of_the_contributing_page_holds(sql):
    page = (PROJECT / "CONTRIBUTING.md").read_text()
    [example] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    made = {}
    exec(example, made)
    [test] = [value for name, value in made.items() if name.startswith("test_")]
    test(sql)
