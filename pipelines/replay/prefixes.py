"""Which requests begin alike: each recorded request with the blocks that the engine stored for it, as KV events tell them.

Where there are none, the trace that a run was made from may tell it (`traces`).

An event names no request. But a request's blocks are stored when it is first computed, between its sending and its first token,
and the last of its prompt's full blocks is as deep in its chain as the prompt is long. Of several requests that both hold for,
the one whose first token came next is meant; where they came in one step, they are alike for the pool.

A prompt of which the cache had all blocks but the last, or all of them, stores one block, or none until its answer fills one. Who
stored a single block is told by when it was due.

The client's clock is known to some hundredths of a second, and a step is shorter. So it is set by the events first: to where most
first tokens follow a prompt's last block at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil

import polars as pl

from pipelines.models import Run, python_model
from pipelines.replay.kv_events import EVENTS, Event, Prompt, by_engine, followed, prompts
from pipelines.replay.load import Record
from pipelines.replay.traces import by_trace
from pipelines.replay.window import MOST_REQUESTS

AT_ONCE_S = 0.01  # from the step that stores a prompt's last block to its first token at the client
STEP_S = 1.0  # the longest step after which it is still its first token
NEAREST = 50  # requests looked at, to either side of when a single block was stored
LOOKED_AT, LEAST = 500, 20  # prompts by which the clients' clocks are set: of all of them, and of each
MOST_OFF_S = 2.0  # a clock that may be off by more is not set by steps of some milliseconds


@dataclass(frozen=True)
class _Chain:
    """The blocks of a request that stored some: those of its prompt, and with those of its answer."""

    at: float
    prompt: int
    hashes: tuple[int, ...]
    is_single: bool


def blocks_of(
    clients: Sequence[Sequence[Record]], events: Iterable[Event], block_size: int, clock_error_s: float
) -> list[list[tuple[int, ...]]]:
    """For each record of each client the blocks of its prompt and answer, by hash; none where no event is its own.

    `clock_error_s` is by how much the clients' clocks may be off.
    """
    chains = list(_chains(events, block_size))
    looked_at = max(LEAST, LOOKED_AT // max(1, len(clients)))
    on_time = [_on_time(records, _late(chains, records, clock_error_s, looked_at)) for records in clients]
    owners = _Owners([each for records in on_time for each in records], block_size)
    for chain in chains:
        if not chain.is_single:
            owners.give_by_prompt(chain)
    owners.expect_single_blocks()
    for chain in chains:
        if chain.is_single:
            owners.give_by_time(chain)
    hashes = iter(owners.hashes())
    return [[next(hashes) for _ in records] for records in clients]


class _Owners:
    """The records, and the blocks that are known to be theirs."""

    def __init__(self, records: Sequence[Record], block_size: int) -> None:
        self._records = records
        self._block_size = block_size
        self._found: dict[int, tuple[int, ...]] = {}
        self._as_long: dict[int, list[int]] = defaultdict(list)  # by full blocks of the prompt, in order of first tokens
        self._due: dict[int, list[tuple[float, int]]] = defaultdict(list)  # by depth, when a single block is stored
        for i in sorted(range(len(records)), key=lambda i: records[i].first_token_s):
            self._as_long[records[i].prompt_tokens // block_size].append(i)

    def hashes(self) -> list[tuple[int, ...]]:
        """For each record those of its blocks."""
        return [self._found.get(i, ()) for i in range(len(self._records))]

    def give_by_prompt(self, chain: _Chain) -> None:
        """To the request whose first token came next; of several at once to one whose answer is as long, too."""
        of_length = self._as_long[chain.prompt]
        start = bisect_left(of_length, chain.at - AT_ONCE_S, key=lambda i: self._records[i].first_token_s)
        able: list[int] = []
        until = chain.at + STEP_S
        for i in islice(of_length, start, None):
            if self._records[i].first_token_s > until:
                break
            if i not in self._found and self._records[i].arrived_s <= chain.at + AT_ONCE_S:
                until = until if able else self._records[i].first_token_s + AT_ONCE_S
                able.append(i)
        if able:
            self._give(min(able, key=lambda i: abs(self._blocks(i) - len(chain.hashes))), chain)

    def expect_single_blocks(self) -> None:
        """Of those that have no blocks yet: with their prompt, or as their answer grows on a prompt that was found whole."""
        for i, each in enumerate(self._records):
            if i in self._found:
                continue
            depth = each.prompt_tokens // self._block_size
            self._due[depth].append((each.first_token_s, i))
            share = ((depth + 1) * self._block_size - each.prompt_tokens) / each.output_tokens
            if share <= 1:
                self._due[depth + 1].append((each.first_token_s + share * (each.finished_s - each.first_token_s), i))
        for of_depth in self._due.values():
            of_depth.sort()

    def give_by_time(self, chain: _Chain) -> None:
        """To the request under way that was due to store a single block next to that time."""
        of_depth = self._due[chain.prompt]
        middle = bisect_left(of_depth, (chain.at, 0))
        able = [
            (abs(at - chain.at), i)
            for at, i in of_depth[max(0, middle - NEAREST) : middle + NEAREST]
            if i not in self._found
            and self._records[i].arrived_s - AT_ONCE_S <= chain.at <= self._records[i].finished_s + AT_ONCE_S
        ]
        if able:
            self._give(min(able)[1], chain)

    def _give(self, i: int, chain: _Chain) -> None:
        # what is beyond its end was stored by an equal request that came later
        self._found[i] = chain.hashes[: self._blocks(i)]

    def _blocks(self, i: int) -> int:
        """Full blocks of prompt and answer; the last token of an answer is never computed."""
        return (self._records[i].prompt_tokens + self._records[i].output_tokens - 1) // self._block_size


def _late(chains: Sequence[_Chain], records: Sequence[Record], clock_error_s: float, looked_at: int) -> float:
    """By how much the clock that the records' times are of is late: of those that fit as well the least."""
    first_tokens = sorted(each.first_token_s for each in records)
    begin = bisect_left(chains, first_tokens[0] - clock_error_s - AT_ONCE_S, key=lambda chain: chain.at)
    end = bisect_left(chains, first_tokens[-1] + clock_error_s + AT_ONCE_S, key=lambda chain: chain.at)
    ends = [chain.at for chain in chains[begin : end : max(1, (end - begin) // looked_at)]]
    steps = ceil(clock_error_s / (AT_ONCE_S / 2))

    def followed(late: float) -> int:
        return sum(
            bisect_left(first_tokens, end + late + AT_ONCE_S) > bisect_left(first_tokens, end + late - AT_ONCE_S / 2)
            for end in ends
        )

    return max((each * AT_ONCE_S / 2 for each in range(-steps, steps + 1)), key=lambda late: (followed(late), -abs(late)))


def _on_time(records: Sequence[Record], late_s: float) -> list[Record]:
    return [
        replace(
            each,
            arrived_s=each.arrived_s - late_s,
            first_token_s=each.first_token_s - late_s,
            finished_s=each.finished_s - late_s,
        )
        for each in records
    ]


def _chains(events: Iterable[Event], block_size: int) -> Iterator[_Chain]:
    of_prompts, parents = prompts(events)
    for each in of_prompts:
        hashes = _chain(each, parents)
        if hashes and each.prefilled.block_size == block_size:
            prompt = hashes.index(each.prefilled.last) + 1
            yield _Chain(each.prefilled.at.timestamp(), prompt, hashes, is_single=len(each.prefilled.hashes) == 1 < prompt)


def _chain(prompt: Prompt, parents: dict[int, int | None]) -> tuple[int, ...]:
    """From its first block on; none where a batch that held one of them was lost."""
    hashes = []
    block: int | None = prompt.frontier
    while block is not None:
        if block not in parents:
            return ()
        hashes.append(block)
        block = parents[block]
    return tuple(reversed(hashes)) if prompt.prefilled.last in hashes else ()


SCHEMA = {
    "request_key": pl.String,
    "told_by": pl.String,
    "source": pl.String,
    "block_size": pl.Int64,
    "tokens": pl.Int64,
    "blocks": pl.List(pl.Int64),
}
TIMES = ("arrived_at", "first_token_at", "finished_at")


@python_model("core.request_blocks", reads=("core.requests", *EVENTS, "raw.workload_requests"))
def request_blocks(tables: Mapping[str, pl.DataFrame], run: Run) -> pl.DataFrame:  # noqa: ARG001
    """What each request begins with, block by block: requests that begin alike begin with the same blocks.

    KV events tell it of prompt and answer, in blocks of the engine; a request trace that the run was made from tells it of the
    prompt, in blocks of its own. A run of more requests than a replay takes has none by KV events, for only that needs them, nor
    has one whose clocks are off by seconds.

    grain: request_key, told_by
    column: request_key VARCHAR  | Request, one whose blocks are told.
    column: told_by     VARCHAR  | kv_events or request_trace.
    column: source      VARCHAR  | The trace; NULL for KV events.
    column: block_size  BIGINT   | Tokens in a block.
    column: tokens      BIGINT   | Tokens the blocks tell; the last block of a trace may not be full.
    column: blocks      BIGINT[] | Its blocks from the first on: a number is the same content after the same, by one teller.
    check:  told_by in ('kv_events', 'request_trace') | Nobody else tells.
    """
    requests = tables["core.requests"]
    rows = [*_by_events(requests, followed(tables)), *by_trace(requests, tables["raw.workload_requests"])]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("request_key", "told_by")


def _by_events(requests: pl.DataFrame, events: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    complete = requests.drop_nulls([*TIMES, "input_tokens", "output_tokens"]).filter(pl.col("output_tokens") > 0)
    sizes = events["block_size"].drop_nulls().unique()
    clock_error_s = float(max(complete["clock_error_s"].drop_nulls(), default=0.0))
    if not 0 < complete.height <= MOST_REQUESTS or len(sizes) != 1 or sizes[0] < 1 or clock_error_s > MOST_OFF_S:
        return
    keys, clients = [], []
    for _, of_client in complete.sort("arrived_at", "request_key").group_by(["source", "run_index"], maintain_order=True):
        keys += of_client["request_key"].to_list()
        seconds = of_client.select(*(pl.col(each).dt.epoch("us") / 1e6 for each in TIMES), "input_tokens", "output_tokens")
        clients.append([Record(*row) for row in seconds.iter_rows()])
    stored = sorted((event for _, of_engine in by_engine(events) for event in of_engine), key=lambda each: each.at)
    told = [each for blocks in blocks_of(clients, stored, sizes[0], clock_error_s) for each in blocks]
    numbers: dict[int, int] = {}
    for key, blocks in zip(keys, told, strict=True):
        if blocks:
            numbered = [numbers.setdefault(block, len(numbers)) for block in blocks]
            yield key, "kv_events", None, sizes[0], len(blocks) * sizes[0], numbered
