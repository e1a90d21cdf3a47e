"""Ten plain situations on which diagnosis tools go wrong, each from a handful of scrapes alone: six recorded, four made here.

The recorded ones lie beside the project (`../shared/scenarios`) and are skipped where they do not.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import read_into
from tests.e2e.case_inputs import Scrapes, loaded, served, steady
from tests.typed_tables import Sql

SCENARIOS = Path(__file__).parents[3] / "shared" / "scenarios"
KV = {"queue_kv_capacity", "preemption", "prefix_eviction"}
RECORDED = {  # file -> the primary verdict, and what must not be told beside it
    "preempt": ("preemption", {"healthy"}),
    "max_num_seqs": ("queue_max_num_seqs", KV | {"healthy"}),
    "full_nopreempt": ("queue_kv_capacity", {"healthy", "preemption"}),
    "idle": ("healthy", {"preemption"}),
    "reset": ("preemption", {"prefix_eviction"}),
    "deferred": ("queue_deferred", KV | {"queue_max_num_seqs"}),
}


def told(folder: Path) -> tuple[set[str], set[str], list[tuple]]:
    """The primary verdicts, all verdicts that matter, and the recommendations."""
    sql = read_into(Sql(), folder)
    verdicts, advice = (sql.rows(f"advice.{table}").dicts() for table in ("verdicts", "recommendations"))
    assert not [row for row in sql.rows("marts.preemptions").dicts() if (row["count_best"] or 0) < 0]
    return (
        {row["verdict"] for row in verdicts if row["is_primary"]},
        {row["verdict"] for row in verdicts if row["severity"] >= 20},
        [(row["title"], row["setting"], row["from_value"], row["to_value"]) for row in advice],
    )


@pytest.mark.skipif(not SCENARIOS.exists(), reason="the recorded scenarios are not here")
@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_scenario_is_told_right(name, tmp_path):
    shutil.copy(SCENARIOS / f"{name}.prom", tmp_path)
    primary, shown, advice = told(tmp_path)
    right, wrong = RECORDED[name]
    assert primary == {right}
    assert not shown & wrong
    if right == "healthy":
        assert advice == []


def prefixes_vanish() -> str:
    """A hit ratio that falls from 80 % to 8 % while active requests hold 55 % of the pool."""
    scrapes = Scrapes()
    for ratio in (0.8, 0.8, 0.6, 0.3, 0.1, 0.08, 0.08):
        scrapes.page(served(200, ttft=0.5, **loaded(running=30, usage=0.55)) | {"prefix_cache_hits_total": 100_000 * ratio})
    return scrapes.text()


def long_ago() -> str:
    """Preemptions of another day: the counter stands at 412."""
    scrapes = Scrapes()
    for page in range(7):
        scrapes.page(served(40, ttft=0.2, **loaded(running=10, usage=0.3)) | {"num_preemptions_total": 412 if page == 0 else 0})
    return scrapes.text()


MADE = {
    "prefixes vanish": (prefixes_vanish(), "prefix_eviction", {"preemption", "queue_kv_capacity"}),
    "long ago": (long_ago(), "healthy", {"preemption"}),
    "prefill in every step": (
        steady(7, served(200, ttft=5, itl=0.9, **loaded(running=20, waiting=1, usage=0.5))),
        "prefill_interference",
        {"preemption", "queue_kv_capacity"},
    ),
    "cold start": (
        steady(7, served(1, ttft=45, itl=0.03, **loaded(running=1, usage=0.02))),
        "cold_start",
        KV | {"queue_max_num_seqs"},
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_a_made_scenario_is_told_right(name, tmp_path):
    text, right, wrong = MADE[name]
    (tmp_path / "metrics.prom").write_text(text)
    primary, shown, _ = told(tmp_path)
    assert primary == {right}
    assert not shown & wrong
