"""Ranges against what the engine's own scheduler recorded, with few of the scrapes. With all of them: test_accuracy.py.

Needs the recordings with their truth beside the project (`../shared/truth`); skipped where they are not.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.conftest import read_into
from tests.typed_tables import Sql

TRUTH = Path(__file__).parents[3] / "shared" / "truth"
PREEMPTING = ("ab-before", "iteration-lines", "preempt", "restart")
INPUTS = {
    "full": ("server.log", "spans.jsonl*", "kv_events.jsonl*", "client-*.json"),
    "no-kv-events": ("server.log", "spans.jsonl*", "client-*.json"),
    "metrics": ("server.log",),
}
THINNED: dict[str, Callable[[int], bool]] = {
    "every scrape": lambda _: True,
    "every 5th": lambda i: i % 5 == 0,
    "every 15th": lambda i: i % 15 == 0,
    "two thirds": lambda i: random.Random(i).random() > 1 / 3,
}

pytestmark = pytest.mark.skipif(not TRUTH.exists(), reason="the recordings with their truth are not here")


def text(path: Path) -> str:
    packed = path.with_name(f"{path.name}.gz")
    return gzip.decompress(packed.read_bytes()).decode() if packed.exists() else path.read_text()


def truth(run: str) -> tuple[int, int]:
    """Preemptions, and tokens recomputed."""
    events = [json.loads(line) for line in text(TRUTH / run / "truth.jsonl").splitlines()]
    recomputed = sum(row[3] for each in events if each["e"] == "step" for row in each["rows"])
    return sum(each["e"] == "preempt" for each in events), recomputed


def evidence(run: str, level: str, keep: Callable[[int], bool], folder: Path) -> Path:
    folder.mkdir()
    for pattern in INPUTS[level]:
        for path in (TRUTH / run).glob(pattern):
            shutil.copy(path, folder)
    metrics = json.loads(text(TRUTH / run / "prometheus.json"))
    times = sorted({time for series in metrics["data"]["result"] for time, _ in series["values"]})
    kept = {time for i, time in enumerate(times) if keep(i)}
    for series in metrics["data"]["result"]:
        series["values"] = [sample for sample in series["values"] if sample[0] in kept]
    (folder / "prometheus.json").write_text(json.dumps(metrics))
    return folder


def told(folder: Path) -> tuple[dict, dict]:
    """The rows of preemptions and of recompute waste."""
    sql = read_into(Sql(), folder)
    [waste] = [row for row in sql.rows("marts.waste").dicts() if row["kind"] == "preemption_recompute"]
    return sql.rows("marts.preemptions").dicts()[0], waste


def thinned() -> Iterator[object]:
    """Each recording with each level of inputs and each way to lose scrapes; but for one of each recording, these are drills."""
    for at, (run, level, scrapes) in enumerate(product(PREEMPTING, INPUTS, ("every 15th", "two thirds"))):
        yield pytest.param(run, level, scrapes, marks=[] if at % 7 == 0 else pytest.mark.drill)


@pytest.mark.parametrize(("run", "level", "scrapes"), [*thinned()])
def test_the_ranges_hold_the_truth_with_few_scrapes(run, level, scrapes, tmp_path):
    count, tokens = truth(run)
    preemptions, waste = told(evidence(run, level, THINNED[scrapes], tmp_path / "run"))
    assert preemptions["count_low"] <= count <= preemptions["count_high"]
    assert waste["tokens_low"] <= tokens <= waste["tokens_high"]
