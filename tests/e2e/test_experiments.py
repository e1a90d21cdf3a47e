"""Experiments that were really run: a sweep over concurrency, one setting changed, and two published sweeps.

Needs the recordings beside the project (`../shared`); skipped where they are not.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from pipelines import publish, sweep
from pipelines.analysis import build
from pipelines.cli import main
from pipelines.compare import compare
from pipelines.compare_sides import Setting, Side, read_side
from pipelines.compare_words import headline
from pipelines.duck import connect
from pipelines.intake import read
from pipelines.lake import Lake
from pipelines.models import Run, leading_to, materialize, models
from pipelines.resampling import interval, quantile, redraw

SHARED = Path(__file__).parents[3] / "shared"
EVIDENCE = ("server.log", "prometheus.json.gz", "spans.jsonl*", "client-*.json")
PUBLISHED = {
    "stages": "reallogs/bench_results/inference_perf_kubecon/vllm__*.json",
    "table": "reallogs/sglang_logs/*sweep*.csv",
}

OF_A_SWEEP = ("marts.sweep_levels", "marts.sweep_knee", "core.sweep_requests", "marts.data_quality")

pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="the recordings are not here")


def evidence(name: str, folder: Path) -> Path:
    """What is kept of a recording, in a folder of its own."""
    folder.mkdir()
    patterns = [PUBLISHED[name]] if name in PUBLISHED else [f"truth/{name}/{pattern}" for pattern in EVIDENCE]
    for path in (path for pattern in patterns for path in SHARED.glob(pattern)):
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def modelled(shared) -> Callable[[str], Lake]:
    """The lake of a recording with the tables of its sweep, and what these stand on."""

    def made(name: str, folder: Path) -> Lake:
        lake = Lake.of(folder / "lake", run=name)
        read([evidence(name, folder / name)], lake)
        with connect() as con:
            for model in leading_to(OF_A_SWEEP):
                materialize(model, lake=lake, con=con, run=Run(name))
        return lake

    return lambda name: shared.once(f"sweep-{name}", partial(made, name))


@pytest.fixture
def database(shared) -> Callable[[str], Path]:
    """The database of a recording's analysis."""

    def analyzed(name: str) -> Path:
        def make(folder: Path) -> Path:
            lake = Lake.of(folder / "lake", run=name)
            read([evidence(name, folder / name)], lake)
            build(lake, Run(name), database=folder / publish.DATABASE)
            return folder / publish.DATABASE

        return shared.once(f"experiment-{name}", make)

    return analyzed


def knee(lake: Lake) -> dict:
    return pl.read_parquet(lake.path("marts.sweep_knee")).row(0, named=True)


def levels(lake: Lake) -> pl.DataFrame:
    return pl.read_parquet(lake.path("marts.sweep_levels")).sort("level")


# a sweep


@pytest.mark.drill
def test_the_eight_levels_are_found_and_preempt_from_24_on(modelled):
    found = levels(modelled("sweep"))
    assert found["level"].to_list() == [1, 2, 4, 8, 16, 24, 32, 48]
    assert found["preemptions_high"].to_list()[:5] == [0] * 5
    assert all(preempted > 0 for preempted in found["preemptions_low"].to_list()[5:])
    assert found["requests"].to_list() == [16, 16, 20, 40, 80, 120, 160, 240]


@pytest.mark.drill
def test_the_practical_cache_limit_lies_between_16_and_24_and_levels_between_are_proposed(modelled):
    found = knee(modelled("sweep"))
    assert (found["cache_limit_low"], found["cache_limit_high"]) == (16, 24)
    assert {18, 20, 22} <= set(found["levels_to_add"])
    assert 13 <= found["predicted_level"] <= found["predicted_on_average"] <= 24
    assert found["knee_low"] <= found["knee_level"] <= found["knee_high"] <= 24


@pytest.mark.drill
def test_the_interval_of_the_knee_holds_over_resamples_of_the_recording(modelled):
    """The recording stands for the population; samples of it are what a shorter experiment would have seen."""
    lake = modelled("sweep")
    requests = sweep._requests(pl.read_parquet(lake.path("core.sweep_requests")))
    whole = [sweep._level(row["level"], [row], requests) for row in levels(lake).iter_rows(named=True)]
    truth, held, trials = sweep.knee_of(whole), 0, 40
    for trial in range(trials):
        rng = random.Random(trial)
        drawn = [replace(level, requests=tuple(redraw(level.requests, rng))) for level in whole]
        found = sweep.knee_interval(drawn, seed=trial)
        held += found is not None and found[0] <= truth <= found[1]
    assert held >= 0.9 * trials - 4  # two standard deviations of chance


def test_the_published_table_bends_between_half_and_six_tenths_of_a_request_per_second(modelled):
    found = knee(modelled("table"))
    assert (found["knee_level"], found["knee_before"]) == (0.5, 0.6)
    assert (found["cache_limit_low"], found["cache_limit_high"]) == (0.5, 0.6)
    assert found["levels"] == [0.5, 0.6, 0.8, 1, 2, 4, 8]


def test_the_published_stages_never_exported_kv_usage(modelled):
    lake = modelled("stages")
    found, told = levels(lake), knee(lake)
    assert found["kv_usage_max"].null_count() == found["preemptions"].null_count() == len(found) == 7
    assert "never exported" in " ".join(told["remarks"])
    assert (told["knee_level"], told["knee_before"], told["cache_limit_high"]) == (92.19, 122.59, None)
    flags = pl.read_parquet(lake.path("marts.data_quality")).filter(pl.col("flag") == "kv_usage_never_exported")
    assert len(flags) == 8  # the stages and their summary


# one thing changed


@pytest.fixture
def sides(database) -> tuple[Side, Side]:
    return read_side(database("ab-before")), read_side(database("ab-after"))


@pytest.mark.drill
def test_fewer_sequences_alone_support_the_diagnosis_and_have_their_price(sides):
    found = compare(*sides)
    assert [(change.key, change.before, change.after) for change in found.variables] == [("max_num_seqs", "32", "9")]
    assert found.conclusion == "supports"
    said = headline(found)
    for figures in (
        "max_num_seqs 32 -> 9, nothing else; preemptions 149 -> 0; supports a cache-capacity diagnosis",
        "p99 inter-token latency 50 -> 18 ms",
        "price: median TTFT 1.6 -> 3.5 s, duration 17.5 -> 25.5 s",
    ):
        assert figures in said
    assert {"ttft_p50", "duration"} <= {move.key for move in found.regressions}


@pytest.mark.drill
def test_the_command_says_the_same_and_a_regression_is_its_exit_status(database, tmp_path, capsys):
    runs = [str(database(name).parent) for name in ("ab-before", "ab-after")]
    assert main(["compare", *runs, "--out", str(tmp_path)]) == 0
    assert "SUPPORTS A CACHE-CAPACITY DIAGNOSIS" in capsys.readouterr().out
    assert main(["compare", *runs, "--out", str(tmp_path), "--fail-on", "regression", "--format", "json"]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compare.html", "compare.json"]
    assert (tmp_path / "compare.json").read_text() == capsys.readouterr().out


@pytest.mark.drill
def test_a_second_changed_setting_or_another_workload_is_not_comparable(sides):
    before, after = sides
    second = replace(after, settings={**after.settings, "kv_cache_dtype": Setting("fp8", "pool", is_inferred=False)})
    found = compare(before, second)
    assert (found.conclusion, "kv_cache_dtype auto -> fp8" in found.reason) == ("not_comparable", True)
    longer = [replace(each, input_tokens=2 * (each.input_tokens or 0)) for each in after.requests]
    found = compare(before, replace(after, requests=longer))
    assert (found.conclusion, "Prompt lengths" in found.reason) == ("not_comparable", True)


@pytest.mark.drill
def test_the_intervals_of_differences_hold_over_resamples_of_the_recordings(sides):
    times = [[each.ttft_s for each in side.completed] for side in sides]
    for share in (0.5, 0.9):
        truth, held, trials = quantile(times[1], share) - quantile(times[0], share), 0, 50
        for trial in range(trials):
            rng = random.Random(trial)
            found = interval(
                lambda drawn, share=share: quantile(drawn[1], share) - quantile(drawn[0], share),
                [redraw(side, rng) for side in times],
                seed=trial,
            )
            held += found is not None and found[0] <= truth <= found[1]
        assert held >= 0.9 * trials - 5, share


@pytest.mark.drill
def test_a_stated_target_is_what_the_levels_are_judged_by(modelled, tmp_path):
    lake = Lake.of(tmp_path, run="sweep")
    shutil.copytree(modelled("sweep").store.folder, tmp_path, dirs_exist_ok=True)
    with connect(threads=1) as con:
        for name in ("marts.sweep_levels", "marts.sweep_knee"):
            materialize(models()[name], lake=lake, con=con, run=Run("sweep", target_ttft_s=4.0, target_gap_s=4.0))
    assert knee(lake)["met_target_level"] > (knee(modelled("sweep"))["met_target_level"] or 0)
    assert "a first token within 4 s and no pause over 4 s" in knee(lake)["summary"]
