"""The fleet's page: what it says of a day, what it leaves out, and that nothing in a name can break out of it."""

from __future__ import annotations

from datetime import date

from pipelines import fleet_report
from pipelines.config import Thresholds
from tests.fleet_days import Fleet

DAY = date(2026, 1, 1)
HOSTILE = "<img/src=x/onerror=alert(1)>"


def page(fleet: Fleet) -> str:
    fleet.rows("fleet.totals")
    return fleet_report.page(fleet.con, DAY)


def test_the_page_says_who_was_under_pressure_and_what_changed_on_the_day_it_turned(fleet):
    fleet.given("history.engine_days", "day  run  engine  verdict  severity\n2025-12-31  chat-0  0  healthy  0")
    fleet.given("history.settings", "day  run  engine  key  value_text\n2025-12-31  chat-0  0  max_num_seqs  64")
    fleet.given("fleet.settings", "day  run  engine  key  value_text\n2026-01-01  chat-0  0  max_num_seqs  256")
    fleet.given(
        "fleet.engine_days",
        """
        day         run     engine  engine_group  verdict     severity  wasted_gpu_seconds_best  pressure_hours  observed_hours
        2026-01-01  chat-0  0       chat          preemption  60        7200                     2               24
        2026-01-01  chat-1  0       chat          healthy     0         0                        0               24
        """,
    )
    said = page(fleet).replace("\N{NO-BREAK SPACE}", " ")
    assert "1 of 2 engines was under pressure." in said
    assert "<code>64</code> to <code>256</code>" in said
    assert "2 h of 48 h observed" in said.replace('</p><p class="remark">', " ")
    assert said.count('scope="row" class="break">chat-0') == 1
    assert said.count('scope="row" class="break">chat-1') == 0  # who wastes nothing is not among those who waste most


def test_an_engine_whose_waste_has_no_gpu_time_is_among_those_that_waste(fleet):
    """A log tells retractions and their tokens; how long these took, metrics alone. Who cannot be judged is not at ease."""
    fleet.given(
        "fleet.engine_days",
        """
        day         run     engine  verdict                severity  recomputed_tokens_best  wasted_gpu_seconds_high
        2026-01-01  chat-0  0       preemption             72        18644                   -
        2026-01-01  chat-1  0       insufficient_evidence  0         -                       -
        2026-01-01  chat-2  0       preemption             60        5000                    6.6
        """,
    )
    said = page(fleet).replace("\N{NO-BREAK SPACE}", " ")
    assert "2 of 3 engines were under pressure; 1 cannot be told." in said
    assert "at most 6.6 s" in said
    assert said.count('scope="row" class="break">chat-0') == 1
    assert "18.6 k" in said
    assert "Nothing was wasted" not in said


def test_engines_of_which_nothing_was_seen_are_named_with_what_is_lacking(fleet):
    fleet.given("fleet.engine_days", "day  run  engine  verdict  severity\n2026-01-01  chat-0  0  preemption  60")
    fleet.rows("fleet.totals")
    said = fleet_report.page(fleet.con, DAY, [("search, alert", "no file matches logs/*")], 2)
    assert "1 of 1 engine was under pressure; of 2 more nothing was seen." in said.replace("\N{NO-BREAK SPACE}", " ")
    assert "<strong>search, alert</strong>: no file matches logs/*." in said
    assert "For none: each engine" not in said
    assert "For none: each engine" in page(fleet)


def test_checks_that_could_not_be_judged_are_named_with_their_engines(fleet):
    fleet.given("fleet.engine_days", "day  run  engine  verdict  severity\n2026-01-01  chat-0  0  preemption  60")
    fleet.rows("fleet.totals")
    assert "could not be judged" not in page(fleet)
    many = [f"chat-{each}" for each in range(22)]
    said = fleet_report.page(fleet.con, DAY, unheld=[("recompute_share", many), ("clocks_agree", ["chat-0"])])
    assert "<code>recompute_share</code>: not judged of chat-0, chat-1, chat-2" in said
    assert "chat-9 and 12 more." in said.replace("\N{NO-BREAK SPACE}", " ")
    assert "<code>clocks_agree</code>: not judged of chat-0." in said


def test_a_limit_that_no_input_tells_the_figure_of_is_held_against_nobody(fleet):
    fleet.given("days.preemptions", "run  engine  count_low  count_best\nchat-0  0  -  -\nchat-1  0  3  3\nchat-2  0  900  -")
    fleet.given("days.runs", "run  started_at  ended_at\nchat-2  2026-01-01 12:00:00  2026-01-01 13:00:00")
    fleet.given("days.waste", "run  engine  kind  share_best\nchat-1  0  preemption_recompute  -")
    fleet.given("days.data_quality", "run  flag  severity\nchat-3  clock_assumed  warning")
    fleet.given("days.sources", "run  source\n")
    limits = Thresholds(preemptions_per_hour=100, recompute_share=None)
    assert fleet_report.not_judged(fleet.con, limits) == [("clocks_agree", ["chat-3"]), ("preemptions_per_hour", ["chat-0"])]
    assert ("recompute_share", ["chat-1"]) in fleet_report.not_judged(fleet.con, Thresholds(recompute_share=0.1))


def test_a_name_is_text_and_the_page_has_no_script(fleet):
    fleet.given(
        "fleet.engine_days",
        f"day  run  engine  engine_group  verdict  severity  summary\n2026-01-01  {HOSTILE}  0  {HOSTILE}  -  -  {HOSTILE}",
    )
    said = page(fleet)
    assert HOSTILE not in said
    assert "&lt;img/src=x" in said
    assert "<script" not in said


def test_a_large_fleet_is_a_bounded_page(fleet):
    rows = "\n".join(f"2026-01-01  engine-{each}  0  preemption  60  10" for each in range(3000))
    fleet.given("fleet.engine_days", f"day  run  engine  verdict  severity  wasted_gpu_seconds_best\n{rows}")
    said = page(fleet)
    assert "3,000 engines" in said
    assert "2,900 calmer engines are left out" in said
    assert len(said) < 200_000
