"""Would the other recordings have told how wrong one is? The table of `docs/estimates.md`, by leaving one out.

    python -m tests.e2e.left_out        # measures and writes the table into docs/estimates.md

The estimates from replays have a range that the replays' own scatter gives, and MODEL_ERROR for what a replay does not model.
Of each recording with preemptions it is asked how far its best estimate is off, whether the largest miss among the *other*
recordings would have covered it, and the smallest model error with which its range holds the truth, with few scrapes too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipelines.replay import requests
from pipelines.replay.requests import MODEL_ERROR, Estimate
from tests.conftest import read_into
from tests.e2e.test_waste_truth import PREEMPTING, THINNED, evidence, truth
from tests.typed_tables import Sql

DOCUMENT = Path(__file__).parents[2] / "docs" / "estimates.md"
BEGIN, END = "<!-- left out: begin -->\n", "<!-- left out: end -->\n"
RUNS = (*PREEMPTING, "sweep")
STEPS = 1000  # a model error is looked for in steps of a tenth of a percent


@dataclass(frozen=True)
class Need:
    """One recording estimated by one method: how far its best estimate is off, and the model error its range needs."""

    run: str
    method: str
    scrapes: str
    error: float
    needed: float


def needs() -> list[Need]:
    """Every recording with preemptions, by both methods, with all and with few scrapes."""
    found = []
    for run in RUNS:
        _, tokens = truth(run)
        for scrapes, keep in THINNED.items():
            with tempfile.TemporaryDirectory() as folder, _estimates_again() as again:
                given = evidence(run, "no-kv-events", keep, Path(folder, "run"))
                rows = read_into(Sql(), given).rows("core.recompute_replays").dicts()
                methods = sorted((row["method"] for row in rows if row["reason"] is None), reverse=True)
            for method, estimate in zip(methods, again, strict=True):  # `replay` is made first
                best = estimate(0.0).tokens[1]
                found.append(Need(run, method, scrapes, best / tokens - 1, _smallest(estimate, tokens)))
    return found


@contextmanager
def _estimates_again() -> Iterator[list[Callable[[float], Estimate]]]:
    """Of each estimate made meanwhile, how it comes out with another model error."""
    again: list[Callable[[float], Estimate]] = []
    estimate = requests.estimate

    def noted(throws, *, model_error, **known):
        again.append(lambda error: estimate(throws, model_error=error, **known))
        return estimate(throws, model_error=model_error, **known)

    requests.estimate = noted
    try:
        yield again
    finally:
        requests.estimate = estimate


def _smallest(estimate: Callable[[float], Estimate], tokens: int) -> float:
    """The smallest model error with which the range holds so many tokens."""
    for step in range(STEPS + 1):
        low, _, high = estimate(step / STEPS).tokens
        if low <= tokens <= high:
            return step / STEPS
    return float("inf")


def table(found: list[Need]) -> str:
    """One row a method and recording."""
    rows = [
        "| method, model error | recording | off by | most of others | covers it | off with few scrapes | model error needed |",
        "|---|---|--:|--:|---|--:|--:|",
    ]
    for method, model_error in MODEL_ERROR.items():
        of_method = [each for each in found if each.method == method]
        whole = {each.run: each.error for each in of_method if each.scrapes == "every scrape"}
        for run, error in whole.items():
            others = max(abs(miss) for other, miss in whole.items() if other != run)
            of_run = [each for each in of_method if each.run == run]
            worst = max((each.error for each in of_run), key=abs)
            is_covered = "yes" if abs(error) <= others else "no"
            rows.append(
                f"| `{method}`, {model_error:.0%} | {run} | {error:+.1%} | {others:.1%} | {is_covered} "
                f"| {worst:+.1%} | {max(each.needed for each in of_run):.1%} |"
            )
    return "\n".join(rows) + "\n"


def written() -> str:
    """The table as the document has it."""
    return DOCUMENT.read_text().split(BEGIN)[1].split(END)[0]


if __name__ == "__main__":
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(before + BEGIN + table(needs()) + END + rest.split(END)[1])
