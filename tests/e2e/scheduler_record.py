"""What an engine's scheduler wrote down of itself, as the requests of a replay: when each came and what its blocks hold.

From `truth.jsonl` of the recordings beside the project, and their KV events. With these a replay is told everything there is.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pipelines.replay.engine import Content, Outcome, Request, StepTime
from pipelines.replay.vllm import Replay, Settings

TRUTH = Path(__file__).parents[3] / "shared" / "truth"
BLOCK, BUDGET = 32, 2048
SETTINGS = {  # blocks the engine was started with, and its slots
    "ab-after": (144, 9),
    "ab-before": (144, 32),
    "iteration-lines": (128, 28),
    "preempt": (128, 32),
    "restart": (128, 32),
    "sweep": (160, 48),
}
Event = dict[str, Any]


@dataclass
class Life:
    """What one engine did from its start to its end: its requests as they came, its preemptions and totals."""

    arrivals: list[tuple[str, int]] = field(default_factory=list)  # request, and the step before which it came
    lengths: dict[str, tuple[int, int]] = field(default_factory=dict)
    hashes: dict[str, list[int]] = field(default_factory=dict)
    preempted: list[tuple[str, int, int]] = field(default_factory=list)  # request, step, tokens it held
    found: dict[str, int] = field(default_factory=dict)  # tokens of its prompt that the cache had
    recomputed: int = 0
    computed: int = 0
    steps: int = 0

    @property
    def untold(self) -> int:
        """Tokens found by requests too short to ever store a block: what they found, no event tells."""
        return sum(tokens for name, tokens in self.found.items() if name not in self.hashes)


def events(run: str) -> Iterator[Event]:
    """The record, line by line."""
    packed = TRUTH / run / "truth.jsonl.gz"
    with gzip.open(packed, "rt") if packed.exists() else (TRUTH / run / "truth.jsonl").open() as lines:
        yield from map(json.loads, lines)


def lives(run: str) -> Iterator[list[Event]]:
    """The scheduler's record, cut where the engine began anew."""
    life: list[Event] = []
    for event in events(run):
        if event["e"] == "step" and event["i"] == 0 and any(each["e"] == "step" for each in life):
            yield life
            life = []
        life.append(event)
    yield life


def stored(run: str) -> Iterator[list[int]]:
    """The runs of blocks in the order in which requests stored them, each with all blocks before it in its sequence."""
    parents: dict[int, int | None] = {}
    with gzip.open(TRUTH / run / "kv_events.jsonl.gz", "rt") as lines:
        for line in lines:
            for event in json.loads(line)["batch"][1]:
                if event["type"] == "BlockStored":
                    parent = event["parent_block_hash"]
                    for each in event["block_hashes"]:
                        parents[each] = parent
                        parent = each
                    chain = []
                    while parent is not None:
                        chain.append(parent)
                        parent = parents[parent]
                    yield chain[::-1]


def decode_steps(record: Sequence[Event]) -> Iterator[tuple[int, int, float]]:
    """Steps without a prompt: requests running, tokens of context they read, and seconds to the next step."""
    contexts: dict[str, int] = {}
    before: tuple[int, int, float] | None = None
    for event in record:
        if event["e"] != "step":
            contexts.pop(event["id"], None)
            continue
        if before:
            yield before[0], before[1], event["t"] - before[2]
        contexts = {name: held + 1 for name, held in contexts.items()}
        contexts |= {name: cached + scheduled for name, cached, scheduled, _, _ in event["rows"]}
        is_decode = not event["rows"] and event["tok"] == len(contexts) > 0
        before = (len(contexts), sum(contexts.values()), event["t"]) if is_decode else None


def life_of(record: Sequence[Event], runs: Iterator[list[int]]) -> Life:
    """Follow the record: who is computed how far, who therefore stored which run of blocks, and who must have come when."""
    life = Life()
    life.lengths = {each["id"]: (each["prompt"], each["output"]) for each in record if each["e"] == "finish"}
    computed: dict[str, int] = {}
    tokens = {name: prompt for name, (prompt, _) in life.lengths.items()}
    started: list[str] = []
    came: list[int] = []
    waiting = 0
    lost: list[Event] = []  # in the step that is recorded next
    for event in record:
        if event["e"] == "step":
            life.steps += 1
            life.computed += event["tok"]
            rows = {name: (cached, scheduled) for name, cached, scheduled, _, _ in event["rows"]}
            life.recomputed += sum(again for *_, again, _ in event["rows"])
            in_step = {
                name: (held, min(BUDGET, max(1, tokens[name] - held))) for name, held in computed.items() if name not in rows
            }
            for name, (held, scheduled) in (in_step | rows).items():
                if (held + scheduled) // BLOCK > held // BLOCK:
                    life.hashes[name] = max(next(runs), life.hashes.get(name, []), key=len)
                computed[name] = held + scheduled
            started += [name for name in rows if name not in started]
            life.found |= {name: cached for name, (cached, _) in rows.items() if name not in life.found}
            came += [event["i"]] * (event["wait"] - waiting - len(lost) + len(rows))
            life.preempted += [(each["id"], event["i"], each["computed"]) for each in lost]
            waiting, lost = event["wait"], []
        elif event["e"] == "preempt":
            del computed[event["id"]]
            tokens[event["id"]] = event["prompt"] + event["output"]
            lost.append(event)
        else:
            del computed[event["id"]]
    life.arrivals = list(zip(started, came, strict=True))
    return life


def replayed(run: str, life: Life, *, moved: Random | None = None) -> Outcome:
    """The life again: told everything, or everything but in which of two steps a request came."""
    blocks, slots = SETTINGS[run]
    requests = [
        Request(
            step + (2 * moved.random() if moved else 0.0),
            *life.lengths[name],
            content=Content.of(life.hashes.get(name, ()), BLOCK),
        )
        for name, step in life.arrivals
    ]
    settings = Settings(blocks=blocks - 1, block_size=BLOCK, max_num_seqs=slots, max_num_batched_tokens=BUDGET)
    return Replay(settings, StepTime(base=1.0), requests).run()
