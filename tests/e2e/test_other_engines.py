"""What is said of engines that retract or fail requests instead of preempting them: in the words of the first sentence."""

from pathlib import Path

import pytest

from pipelines.analysis import analyze
from pipelines.cli_whatif import recording
from pipelines.digest import Result, text
from pipelines.models import Run
from pipelines.replay.recorded import NotReplayableError
from tests.conftest import PROJECT

SAMPLES = PROJECT / "sample_traces"
OFFLOAD = PROJECT.parent / "shared" / "truth" / "offload"


def test_every_token_that_sglang_computed_again_is_told_exactly(analyze_sample):
    told = analyze_sample(SAMPLES / "sglang-0.5.23-retraction")
    [waste] = told.rows("waste", "kind = 'preemption_recompute'")
    assert (waste["tokens_low"], waste["tokens_best"], waste["tokens_high"]) == (433, 433, 433)
    assert waste["method"] == "retraction_counters_exact"


def test_the_queue_behind_retractions_is_told_as_waiting_to_run_again(analyze_sample):
    told = analyze_sample(SAMPLES / "sglang-0.5.18-retraction-storm")
    queues = told.rows("verdicts", "verdict = 'queue_kv_capacity'")
    assert any("preempted requests waited among them to run again, 20 times" in row["summary"] for row in queues)
    [waste] = told.rows("waste", "kind = 'preemption_recompute'")
    assert waste["tokens_low"] <= 21_452 <= waste["tokens_high"]  # what the author measured for the same load


def test_requests_that_failed_for_lack_of_kv_are_the_verdict_though_the_metrics_look_healthy(analyze_sample):
    told = analyze_sample(SAMPLES / "llamacpp-b11549-exhaustion")
    [verdict] = told.rows("verdicts", "is_primary")
    assert verdict["summary"].startswith("24 of 24 requests FAILED for lack of KV cache")
    assert verdict["severity"] >= 90
    advice = {row["setting"]: row for row in told.rows("recommendations")}
    assert advice.keys() == {"parallel", "ctx_size"}
    share = "Each of 3 requests then has 682 tokens of the cache, where each of 4 had 512; how many they need, no input tells."
    assert advice["parallel"]["expected_effect"] == share


def test_requests_that_failed_are_nowhere_called_a_queue(analyze_sample):
    told = analyze_sample(SAMPLES / "llamacpp-b11549-exhaustion").analysis
    said = "Requests failed for lack of KV room"
    assert (told.out / "summary.md").read_text().startswith(f"# {said}: ")
    assert text(told.database, report=told.report).startswith(said.upper())
    assert "Queue for KV room" not in told.report.read_text()


def test_engines_are_named_and_sized_by_what_they_say_of_themselves(analyze_sample):
    for sample, kind, capacity in (
        ("sglang-0.5.23-retraction", "sglang", 900),
        ("llamacpp-b11549-exhaustion", "llamacpp", 2048),
    ):
        [engine] = analyze_sample(SAMPLES / sample).rows("engines")
        assert (engine["engine_kind"], engine["kv_capacity_tokens"]) == (kind, capacity)


def test_preemptions_that_only_a_log_tells_are_told_by_the_log(analyze_sample):
    [preemptions] = analyze_sample(SAMPLES / "sglang-0.5.18-retraction-storm").rows("preemptions")
    assert preemptions["told_by"] == "retraction lines in the log"


def test_a_pool_no_line_states_is_sized_by_the_tokens_it_holds(analyze_sample):
    [engine] = analyze_sample(SAMPLES / "sglang-0.5.18-retraction-storm").rows("engines")
    assert abs(engine["kv_capacity_tokens"] - 87_552) < 0.01 * 87_552


@pytest.fixture
def offload(shared) -> Path:
    """The analysis of a recording whose engine has a KV connector."""

    def make(folder: Path) -> Path:
        inputs = [path for path in OFFLOAD.iterdir() if path.name.split(".")[0] not in ("truth", "phases", "facts")]
        return analyze(inputs, folder / "out", Run("offload"), has_report=False).database

    return shared.once("offload", make)


@pytest.mark.skipif(not OFFLOAD.is_dir(), reason="the recordings with their truth are not beside this checkout")
def test_what_came_back_from_another_tier_is_told_as_restored_and_as_nothing_else(offload):
    """The engine counted 35,456 tokens from its external tier, and computed at most 2,568 that it had known before."""
    with Result(offload) as result:
        waste = {row["kind"]: row for row in result.rows("waste")}
    restored = waste["offload_restore"]
    assert (restored["tokens_low"], restored["tokens_best"], restored["tokens_high"]) == (35_456, 35_456, 35_456)
    assert waste["preemption_recompute"]["tokens_high"] == 0
    assert waste["prefix_refill"]["tokens_best"] <= 2_568


@pytest.mark.skipif(not OFFLOAD.is_dir(), reason="the recordings with their truth are not beside this checkout")
def test_a_run_with_a_connector_is_not_replayed_and_the_reason_names_it(offload):
    with pytest.raises(NotReplayableError, match="ExampleConnector"):
        recording([offload])
