"""The replay of vLLM's scheduler and block pool, held against the real one step by step.

Each request is given as the engine had it: its lengths, the step before which it came, and the hashes of its blocks. From there
on nothing is random, so the replay has to do what the engine did: preempt the same requests in the same steps, find the same
blocks again, take as many steps. What a replay of a recorded run misses beyond that comes from what it was not told: in which
step a request came, and which prompts begin alike.

Needs the recordings with their truth beside the project (`../shared/truth`); skipped where they are not.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise

import polars as pl
import pytest

from pipelines.replay.kv_events import Emptied, Removed, Stored, by_engine
from pipelines.replay.load import Record
from pipelines.replay.prefixes import blocks_of
from tests.e2e.scheduler_record import BLOCK, SETTINGS, TRUTH, Event, life_of, lives, replayed, stored

pytestmark = pytest.mark.skipif(not TRUTH.is_dir(), reason="the recordings with their truth are not here")


@pytest.mark.parametrize("run", SETTINGS)
def test_the_replay_does_what_the_engine_did_step_by_step(run):
    runs = stored(run)
    for record in lives(run):
        life = life_of(record, runs)
        outcome = replayed(run, life)
        preempted = [(life.arrivals[each.request][0], each.at, each.context_tokens) for each in outcome.preemptions]
        assert sorted(preempted) == sorted(life.preempted)
        assert outcome.recomputed_tokens == life.recomputed
        assert (outcome.steps, outcome.computed_tokens) == (life.steps, life.computed + life.untold)
    assert next(runs, None) is None  # every stored block was somebody's


@pytest.mark.parametrize("run", ["ab-before", "sweep"])
def test_kv_events_tell_whose_blocks_are_whose(run):
    [record] = lives(run)
    life = life_of(record, stored(run))
    names = list(life.lengths)
    [told] = blocks_of([_records(record, names)], _kv_events(run), BLOCK, clock_error_s=0.05)
    whole = {name: life.lengths[name][0] // BLOCK for name in names}
    assert sum(
        list(each[: whole[name]]) == life.hashes.get(name, [])[: whole[name]] for name, each in zip(names, told, strict=True)
    ) > 0.9 * len(names)


def _records(record: Sequence[Event], names: Sequence[str]) -> list[Record]:
    """What a client would have written down that is told of each token when the next step begins."""
    steps = [each for each in record if each["e"] == "step"]
    first: dict[str, float] = {}
    for step, after in pairwise(steps):
        for name, *_ in step["rows"]:
            first.setdefault(name, after["t"])
    ended = {each["id"]: each for each in record if each["e"] == "finish"}
    return [
        Record(ended[name]["arrival"], first[name], ended[name]["t"], ended[name]["prompt"], ended[name]["output"])
        for name in names
    ]


def _kv_events(run: str) -> Iterator[Stored | Removed | Emptied]:
    rows = []
    with gzip.open(TRUTH / run / "kv_events.jsonl.gz", "rt") as lines:
        for line in lines:
            batch = json.loads(line)
            at = datetime.fromtimestamp(batch["batch"][0], UTC)
            for event in batch["batch"][1]:
                parent = event.get("parent_block_hash")
                for block in event.get("block_hashes", ()):
                    rows.append((at, batch["seq"], len(rows), event["type"].removeprefix("Block").lower(), block, parent))
                    parent = block
    columns = ["published_at", "seq", "event_index", "event", "block_hash", "parent_hash"]
    frame = pl.DataFrame(rows, columns, orient="row", infer_schema_length=None)
    frame = frame.with_columns(engine=pl.lit("0"), block_size=BLOCK, medium=pl.lit("GPU"), group_idx=0)
    [(_, events)] = by_engine(frame)
    return events
