"""How well each rung of the ladder of evidence does on the recordings whose truth is known: the README's table.

    python -m tests.e2e.accuracy        # measures and writes the table into README.md

The recordings lie beside the project (`../shared/truth`); a rung is what answered, by its method's name.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.test_waste_truth import INPUTS, THINNED, TRUTH, evidence, told, truth

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- accuracy: begin -->\n", "<!-- accuracy: end -->\n"
INPUTS_IN_WORDS = {
    "iteration_lines_with_counters": "metrics and iteration lines in the log",
    "kv_events": "metrics and KV events",
    "replay": "metrics and the clients' per-request results or spans",
    "preemption_counter": "metrics alone",
}


@dataclass(frozen=True)
class Measure:
    """One recording seen through one level of evidence; shares are of the true tokens."""

    method: str
    true_tokens: int
    low: float
    best: float
    high: float

    @property
    def error(self) -> float:
        return abs(self.best - self.true_tokens) / self.true_tokens

    @property
    def width(self) -> float:
        return (self.high - self.low) / self.true_tokens

    @property
    def held(self) -> bool:
        return self.low <= self.true_tokens <= self.high


def measures() -> list[Measure]:
    """Every recording at every level of evidence, all scrapes."""
    found = []
    for run in sorted(path.name for path in TRUTH.iterdir()):
        for level in INPUTS:
            with tempfile.TemporaryDirectory() as folder:
                _, waste = told(evidence(run, level, THINNED["every scrape"], Path(folder, "run")))
            found.append(Measure(waste["method"], truth(run)[1], waste["tokens_low"], waste["tokens_best"], waste["tokens_high"]))
    return found


def table(found: list[Measure]) -> str:
    """The table, one row a rung, surest first. Recordings without preemption are told apart: there the answer must be 0."""
    by_method: dict[str, list[Measure]] = defaultdict(list)
    for each in found:
        if each.true_tokens:
            by_method[each.method].append(each)
    rows = [
        "| rung | needs | recordings | error of the best estimate, median (largest) | width of the range, median | range held |",
        "|---|---|---|---|---|---|",
    ]
    for method, needs in INPUTS_IN_WORDS.items():
        each = by_method[method]
        if each:
            errors = [one.error for one in each]
            rows.append(
                f"| `{method}` | {needs} | {len(each)} | {statistics.median(errors):.1%} ({max(errors):.1%}) "
                f"| {statistics.median(one.width for one in each):.0%} | {sum(one.held for one in each)} of {len(each)} |",
            )
    calm = [one for one in found if not one.true_tokens]
    rows.append(
        f"| any | no preemption happened | {len(calm)} | told 0 in {sum(one.best == 0 for one in calm)} of {len(calm)} "
        f"| | {sum(one.held for one in calm)} of {len(calm)} |",
    )
    return "\n".join(rows) + "\n"


def written() -> str:
    """The table as the README has it."""
    return README.read_text().split(BEGIN)[1].split(END)[0]


if __name__ == "__main__":
    before, _, rest = README.read_text().partition(BEGIN)
    README.write_text(before + BEGIN + table(measures()) + END + rest.split(END)[1])
