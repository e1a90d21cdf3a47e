"""Comparing two runs: what counts as a change, as the same workload, as a move; and which conclusion each of these allows."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from parsers import sglang_config_lines, vllm_config_lines
from pipelines.charts import language
from pipelines.compare import Comparison, Move, changed, compare
from pipelines.compare_sides import Load, Request, Setting, Side
from pipelines.compare_words import amount, as_json, difference, page, text
from pipelines.duck import connect
from pipelines.kolmogorov import test as kolmogorov_smirnov
from pipelines.resampling import interval, quantile, redraw

SEQUENCES = Setting("32", "admission", is_inferred=False)
POOL = Setting("4608", "derived", is_inferred=False)


def requests(seed: int, *, count: int = 120, scale: float = 1.0, wait_s: float = 0.3) -> list[Request]:
    """A closed-loop load: lengths by the seed, `scale` times as long, first tokens after about `wait_s`."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        prompt, answer = round(scale * rng.randint(50, 300)), rng.randint(100, 400)
        ttft = wait_s * rng.lognormvariate(0, 0.4)
        gaps = [0.006 * rng.lognormvariate(0, 0.3) for _ in range(answer - 1)]
        made.append(Request(prompt, answer, number * 0.2, ttft, ttft + sum(gaps), 0.8 * ttft, max(gaps), gaps, is_failed=False))
    return made


def side(
    *, preemptions: float | None = 0.0, seqs: str = "32", seed: int = 1, more: Mapping[str, Setting] | None = None, **load: float
) -> Side:
    measures = {"fits_95": (None, 10.0, None)}
    if preemptions is not None:
        measures["preemptions"] = (preemptions, preemptions, preemptions)
    settings = {"max_num_seqs": replace(SEQUENCES, value=seqs), "kv_capacity_tokens": POOL} | dict(more or {})
    return Side("run", settings, requests(seed, **load), [Load("vllm_bench", 28, None, 120, 0, 24.0)], measures)


def test_one_setting_less_and_no_preemption_more_supports_the_diagnosis():
    found = compare(side(preemptions=149, seqs="32"), side(preemptions=0, seqs="9", wait_s=0.9))
    assert (found.conclusion, [change.key for change in found.variables]) == ("supports", ["max_num_seqs"])
    assert "149 -> 0" in found.reason
    assert "ttft_p50" in [move.key for move in found.regressions]


@pytest.mark.parametrize(
    ("log", "metrics", "is_same"),
    [
        (("tiny-llama", "['tiny']"), ("tiny", None), True),
        (("tiny-llama", "tiny"), ("tiny-2", None), False),
        (("tiny-llama", "tiny"), ("tiny", "tiny"), False),
        (("tiny-llama", None), ("tiny", None), False),
    ],
)
def test_a_model_that_metrics_call_as_it_is_served_is_that_which_a_log_calls_by_its_path(log, metrics, is_same):
    def named(model: str, served: str | None) -> Side:
        names = {"model": Setting(model, "other", is_inferred=False)}
        return side(more=names | ({"served_model_name": Setting(served, "identity", is_inferred=False)} if served else {}))

    for pair in ((log, metrics), (metrics, log)):
        variables, _ = changed(*(named(*each) for each in pair))
        assert ("model" in [change.key for change in variables]) != is_same


def test_it_supports_it_the_other_way_round_too():
    found = compare(side(preemptions=0, seqs="9"), side(preemptions=149, seqs="32"))
    assert (found.conclusion, "appeared" in found.reason) == ("supports", True)


def test_preemptions_that_stay_although_the_pool_holds_what_runs_refute_it():
    assert compare(side(preemptions=149, seqs="32"), side(preemptions=140, seqs="9")).conclusion == "refutes"


def test_a_step_too_small_to_help_proves_nothing():
    assert compare(side(preemptions=149, seqs="32"), side(preemptions=140, seqs="28")).conclusion == "inconclusive"


def test_more_preemptions_with_more_room_refute_it():
    assert compare(side(preemptions=100, seqs="32"), side(preemptions=200, seqs="16")).conclusion == "refutes"


def test_two_changed_settings_are_not_comparable_and_both_are_named():
    more = (
        {"kv_cache_dtype": Setting("auto", "pool", is_inferred=False)},
        {"kv_cache_dtype": Setting("fp8", "pool", is_inferred=False)},
    )
    found = compare(side(preemptions=149, more=more[0]), side(preemptions=0, seqs="9", more=more[1]))
    assert found.conclusion == "not_comparable"
    assert "kv_cache_dtype auto -> fp8" in found.reason
    assert "max_num_seqs 32 -> 9" in found.reason


def test_another_workload_is_not_comparable_and_says_which_part():
    found = compare(side(preemptions=149), side(preemptions=0, seqs="9", scale=1.6))
    assert (found.conclusion, [drift.what for drift in found.workload if drift.differs]) == ("not_comparable", ["prompt lengths"])
    assert "Prompt lengths: median 180.5 and 289 tokens" in found.reason


def test_another_offered_load_is_another_workload():
    after = replace(side(seqs="9"), loads=[Load("vllm_bench", 14, None, 120, 0, 24.0)])
    found = compare(side(preemptions=149), after)
    assert (found.conclusion, "at most 28 at once before, at most 14 at once after" in found.reason) == ("not_comparable", True)


def test_nothing_changed_is_a_repetition_and_a_setting_of_another_kind_says_nothing_of_the_pool():
    assert compare(side(preemptions=149), side(preemptions=120, seed=1)).conclusion == "inconclusive"
    more = {"enable_chunked_prefill": Setting("true", "other", is_inferred=False)}
    less = {"enable_chunked_prefill": Setting("false", "other", is_inferred=False)}
    assert "no matter of capacity" in compare(side(preemptions=149, more=more), side(preemptions=0, more=less)).reason


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (side(preemptions=149), "the same inputs: all differences are zero by construction"),
        (side(preemptions=120), "the same inputs: what differs is how they were analyzed"),  # with another --since, say
        (side(preemptions=149, seqs="9"), "the same inputs: what differs is how they were analyzed"),
    ],
)
def test_a_run_held_against_itself_is_called_that_at_the_top(after, says):
    before = replace(side(preemptions=149), made_of=("a log", "a scrape"))
    found = compare(before, replace(after, made_of=("a log", "a scrape")))
    assert says in text(found).splitlines()[0]
    assert says in page(found)
    assert not found.regressions
    for other in (("a log",), ()):
        assert "the same inputs" not in text(
            compare(replace(before, made_of=other), replace(after, made_of=("a log", "a scrape")))
        )
    assert "the same inputs" not in text(compare(replace(before, made_of=()), replace(after, made_of=())))


def test_without_a_count_of_preemptions_nothing_is_concluded():
    found = compare(side(preemptions=None), side(preemptions=None, seqs="9"))
    assert (found.conclusion, "record /metrics" in found.reason) == ("inconclusive", True)


def test_ports_names_and_facts_that_follow_are_no_variables_and_an_unexplained_pool_is_one():
    port = {"port": Setting("8000", "identity", is_inferred=False)}, {"port": Setting("8001", "identity", is_inferred=False)}
    variables, _ = changed(side(more=port[0]), side(more=port[1]))
    assert variables == ()
    grown = {"kv_capacity_tokens": replace(POOL, value="9216")}
    variables, following = changed(side(), side(more=grown))
    assert ([change.key for change in variables], following) == (["kv_capacity_tokens"], ())
    memory = (
        {"gpu_memory_utilization": Setting("0.5", "pool", is_inferred=False)},
        {"gpu_memory_utilization": Setting("0.9", "pool", is_inferred=False)},
    )
    variables, following = changed(side(more=memory[0]), side(more=memory[1] | grown))
    assert ([change.key for change in variables], [change.key for change in following]) == (
        ["gpu_memory_utilization"],
        ["kv_capacity_tokens"],
    )


MEASURED = sorted(
    {name for line in (*vllm_config_lines.FACTS, *sglang_config_lines.MEMORY) for name in line.groupindex if "_gib" in name}
)


@pytest.mark.parametrize("key", MEASURED)
def test_memory_that_an_engine_measured_at_its_start_is_no_change_of_anybodys(key):
    with connect() as connection:
        roles = dict(connection.execute("select key, role from setting_roles()").fetchall())
    told = [{key: Setting(value, roles.get(key, "other"), is_inferred=False)} for value in ("0.004", "0.006")]
    variables, following = changed(side(more=told[0]), side(more=told[1]))
    assert variables == ()
    assert [change.key for change in following] == ([key] if key == "kv_cache_memory_gib" else [])  # the pool's, which follows


def test_a_ceiling_that_one_load_reached_and_the_other_did_not_is_no_difference():
    without = replace(side(), settings={"kv_capacity_tokens": POOL, "x": SEQUENCES})
    with_ceiling = replace(
        side(), settings={"kv_capacity_tokens": POOL, "x": SEQUENCES, "max_num_seqs": replace(SEQUENCES, is_inferred=True)}
    )
    assert changed(without, with_ceiling) == ((), ())


def supported() -> Comparison:
    return compare(side(preemptions=149), side(preemptions=0, seqs="9", wait_s=0.9))


def test_the_screen_fits_a_terminal_and_the_page_runs_nothing():
    found = supported()
    assert max(map(len, text(found).splitlines())) <= 80
    assert "max_num_seqs 32 -> 9, nothing else; preemptions 149 -> 0; supports a" in text(found)
    html = page(replace(found, before="<script>alert(1)</script>"))
    assert "<script" not in html
    assert "default-src &#39;none&#39;; script-src &#39;none&#39;" in html
    assert '"conclusion": "supports"' in as_json(found)


def test_a_half_is_rounded_as_the_report_and_the_sentences_of_the_tables_do():
    before, after = side(preemptions=18024.5, seqs="32"), side(preemptions=2.5, seqs="9", wait_s=0.9)
    told = text(compare(before, after))
    assert "18,025" in told
    assert "18,024" not in told
    with connect() as con:
        assert con.sql("select spoken_count(18024.5), spoken_count(2.5)").fetchall() == [("18,025", "3")]
    assert [language.count(18024.5), language.count(2.5)] == ["18,025", "3"]


def test_two_comparisons_of_the_same_are_the_same():
    assert as_json(supported()) == as_json(supported())


# the statistics


def test_the_distance_of_two_samples_is_kolmogorovs():
    same = kolmogorov_smirnov([1, 2, 3, 4], [1, 2, 3, 4])
    apart = kolmogorov_smirnov([1, 2, 3, 4] * 10, [5, 6, 7, 8] * 10)
    assert same is not None
    assert apart is not None
    assert (same.distance, same.p) == (0, 1)
    assert apart.distance == 1
    assert apart.p < 1e-9
    assert kolmogorov_smirnov([], [1.0]) is None


def test_the_same_distribution_is_called_different_no_more_often_than_stated():
    rng = random.Random(7)
    false_alarms = 0
    for _ in range(300):
        old, new = ([rng.lognormvariate(5, 0.5) for _ in range(80)] for _ in range(2))
        tested = kolmogorov_smirnov(old, new)
        false_alarms += tested is not None and tested.p < 0.05
    assert false_alarms <= 0.05 * 300 + 8  # two standard deviations of chance


@pytest.mark.parametrize(("share", "lag"), [(0.5, 0.0), (0.5, 0.6), (0.95, 0.0)])
def test_the_interval_of_a_difference_holds_it_as_often_as_stated(share, lag):
    """Two populations whose difference is known; `lag` makes neighbours alike, as one full pool does."""

    def sample(rng: random.Random, shift: float) -> list[float]:
        drawn, before = [], 0.0
        for _ in range(120):
            before = lag * before + (1 - lag**2) ** 0.5 * rng.gauss(0, 1)
            drawn.append(before + shift)
        return drawn

    def difference(drawn: Sequence[Sequence[float]]) -> float:
        return quantile(drawn[1], share) - quantile(drawn[0], share)

    rng, held, trials = random.Random(3), 0, 80
    for trial in range(trials):
        found = interval(difference, (sample(rng, 0.0), sample(rng, 1.0)), seed=trial)
        held += found is not None and found[0] <= 1.0 <= found[1]
    assert held >= 0.9 * trials - 8  # three standard deviations of chance, and what blocks of five miss of a long memory


def test_a_resample_keeps_neighbours_together_and_small_samples_get_no_interval():
    drawn = redraw(list(range(1000)), random.Random(0))
    assert len(drawn) == 1000
    assert sum(later == (earlier + 1) % 1000 for earlier, later in pairwise(drawn)) >= 880
    assert interval(lambda drawn: sum(drawn[0]), [[1.0, 2.0]], seed=0) is None


def test_a_share_moves_by_points():
    move = Move("kv_usage_mean", "KV usage, mean", "%", "neither", 60.0, 28.5)
    assert (amount(move), difference(move)) == ("60 -> 28.5 %", "-31.5 points")
