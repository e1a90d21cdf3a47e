"""The sample recordings from end to end: the verdict and the numbers that the server's own scheduler wrote down."""

from __future__ import annotations

import pytest

from tests.conftest import SAMPLES, Analyzed

TOKEN_TOLERANCE = 0.05  # with KV events; their blocks are 32 tokens, so a few more are never meant
QUEUE_TOLERANCE_S = 2.0  # two scrapes
WORTH_A_WORD = 20


@pytest.fixture(params=SAMPLES, ids=lambda sample: sample.name)
def told(request, analyze_sample) -> Analyzed:
    return analyze_sample(request.param)


def test_every_line_is_accounted_for_as_expected(told):
    rows = {row["source"]: row for row in told.rows("sources", "format is not null")}
    assert {
        name: {"lines": row["lines"], "used": row["lines_used"], "not_understood": row["lines_not_understood"]}
        for name, row in rows.items()
    } == told.expected["lines"]


def test_every_raw_table_has_its_rows(told):
    rows = {table: count for table, count in told.analysis.rows.items() if "." not in table and table != "sources"}
    assert rows == told.expected["rows"]


def test_the_verdict_is_what_happened(told):
    assert [row["verdict"] for row in told.rows("verdicts", "is_primary")] == [told.expected["verdict"]]
    shown = {row["verdict"] for row in told.rows("verdicts", f"severity >= {WORTH_A_WORD}")}
    assert shown >= set(told.expected["also"])
    assert not shown & set(told.expected["never"])


def test_the_preemptions_are_counted(told):
    [row] = told.rows("preemptions")
    true = told.expected["truth"]["preemptions"]
    assert row["count_low"] <= true <= row["count_high"]
    assert row["count_best"] == pytest.approx(true, abs=1)


@pytest.mark.parametrize("kind", ["preemption_recompute", "prefix_refill"])
def test_the_waste_is_in_its_range_and_close_to_the_best_guess(told, kind):
    true = told.expected["truth"][f"{kind}_tokens"]
    if true is None:
        pytest.skip("not told apart by the recording's truth")
    rows = told.rows("waste", f"kind = '{kind}'")
    if not rows:
        assert true == 0
        return
    assert rows[0]["tokens_low"] <= true <= rows[0]["tokens_high"]
    assert rows[0]["tokens_best"] == pytest.approx(true, rel=TOKEN_TOLERANCE, abs=64)


def test_the_seconds_in_the_queue_are_those_of_the_scheduler(told):
    queued = {row["cause"]: row["seconds"] for row in told.rows("queue_time", "seconds > 0")}
    true = told.expected["truth"]["queue_seconds"]
    if true is None:
        pytest.skip("no scheduler wrote down who waited")
    for cause in {*queued, *true}:
        expected = true.get(cause, 0)
        assert queued.get(cause, 0) == pytest.approx(expected, rel=0.15, abs=QUEUE_TOLERANCE_S), cause


def test_what_the_recording_lacks_is_said(told):
    flags = {row["flag"] for row in told.rows("data_quality")}
    assert flags >= set(told.expected.get("data_quality", []))


def test_each_verdict_has_evidence_and_its_own_window(told):
    [run] = told.rows("runs")
    for row in told.rows("verdicts"):
        assert row["evidence"], row["verdict"]
        assert row["summary"], row["verdict"]
        assert run["started_at"] <= row["window_start"] <= row["window_end"] <= run["ended_at"], row["verdict"]


def test_there_is_something_to_change_and_a_way_to_verify_it(told):
    first = told.rows("recommendations", order="rank")[0]
    assert first["title"]
    assert first["expected_effect"]
    assert first["trade_off"]
    assert first["verify_by"]
