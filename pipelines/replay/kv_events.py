"""KV-cache events -> which blocks were stored a second time, and whether a preempted request or another prompt paid for them.

An engine that publishes KV events says when a full block is registered (`stored`, with the hash of the block before it in its
sequence) and when a reusable block is reclaimed (`removed`). It names no request. A block that is stored again was computed, or
loaded, again. Who paid follows from the order in which one request stores its blocks:

    prefill    its prompt's blocks that no cache had, in one run per scheduled chunk
    growth     one block each `block_size` generated tokens, on top of its last one: its *frontier*
    resume     after a preemption: a run that ends at the frontier it had (or one block above it, where the lost
               sequence was just about to fill that block)

So a run of blocks that reaches the frontier of a sequence is that sequence being rebuilt: `preemption_recompute`. Any other run
over blocks seen before is a prompt that found them gone: `prefix_refill`. A prompt that repeats an earlier one ends at its own
prompt's end, not where the earlier answer ended; a next turn of a conversation passes beyond it.

Invisible here: blocks that are not full (the last of every sequence, so each resume recomputes up to one block more than is
stored), and resumes that found every full block. `sql/core/recompute_kv_events.sql` adds both, with the preemption counter.
Hits and preemptions themselves publish nothing. After a restart or a cleared cache nothing counts as seen before: a cold pool
is not an eviction. Where a window was asked for, as a day is, the events shortly before it are followed and not counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import polars as pl

from pipelines.models import Run, python_model

CHUNK_PAUSE_S = 2.0  # chunks of one prefill follow each other by single steps; a step above this would be an outage of its own


@dataclass(frozen=True)
class Stored:
    """Blocks that one request stored in one step: a chain, each block the child of the one before."""

    at: datetime
    parent: int | None
    hashes: tuple[int, ...]
    block_size: int

    @property
    def last(self) -> int:
        """The block at its end."""
        return self.hashes[-1]


@dataclass(frozen=True)
class Removed:
    """A reusable block was reclaimed."""

    at: datetime
    hash: int


@dataclass(frozen=True)
class Emptied:
    """The pool lost everything: the engine restarted (a new life), or its cache was cleared."""

    at: datetime
    is_restart: bool


Event = Stored | Removed | Emptied


@dataclass(frozen=True)
class StoredAgain:
    """A run of blocks of which some had been stored before, and what it was.

    `kind` is resume, refill or growth (generated text that an earlier request had generated too). `idle_s` is how long the
    rebuilt sequence had stood still. `is_tail_full`: the rebuilt sequence ended with the last block stored, so no partial
    block was recomputed beside them.
    """

    at: datetime
    life: int
    kind: str
    blocks: int
    blocks_again: int
    blocks_after_removal: int
    block_size: int
    idle_s: float | None = None
    is_tail_full: bool = False


@dataclass(eq=False)
class _Sequence:
    """A request as the events show it: its frontier, when it last stored, and the chunks of its prefill so far."""

    frontier: int
    stored_at: datetime
    chunks: list[StoredAgain] = field(default_factory=list)
    is_prefilling: bool = True
    is_rebuilding: bool = False  # of another sequence, as it turned out
    prefilled: Stored | None = None  # the last of its prefill


@dataclass(frozen=True)
class Prompt:
    """A request that stored blocks when it was first computed: the last run of its prefill, and the block its answer reached."""

    prefilled: Stored
    frontier: int


def prompts(events: Iterable[Event]) -> tuple[list[Prompt], dict[int, int | None]]:
    """The requests whose first computation the events show, by time, and each block's parent: one that was stored before it."""
    account = _Account()
    for event in events:
        account.take(event)
    found = [Prompt(each.prefilled, each.frontier) for each in account.begun if each.prefilled and not each.is_rebuilding]
    return sorted(found, key=lambda each: each.prefilled.at), account.parents


def stored_again(events: Iterable[Event]) -> list[StoredAgain]:
    """Every run of blocks stored again, in order of time, told apart."""
    account = _Account()
    for event in events:
        account.take(event)
    return sorted(account.again, key=lambda each: each.at)


class _Account:
    """The pool as the events have shown it so far."""

    def __init__(self) -> None:
        self.life = 0
        self.again: list[StoredAgain] = []
        self.begun: list[_Sequence] = []
        self.parents: dict[int, int | None] = {}
        self._seen: set[int] = set()
        self._copies: Counter[int] = Counter()
        self._frontiers: dict[int, list[_Sequence]] = defaultdict(list)

    def take(self, event: Event) -> None:
        if isinstance(event, Removed):
            self._copies[event.hash] = max(0, self._copies[event.hash] - 1)
        elif isinstance(event, Emptied):
            self._seen.clear()
            self._copies.clear()
            if event.is_restart:
                self.life += 1
                self._frontiers.clear()
        else:
            self._store(event)

    def _store(self, run: Stored) -> None:
        again = sum(each in self._seen for each in run.hashes)
        after_removal = sum(each in self._seen and self._copies[each] == 0 for each in run.hashes)
        if run.parent is None or run.parent in self.parents:  # else a batch was lost, and where the run belongs is not known
            for block, parent in zip(run.hashes, (run.parent, *run.hashes), strict=False):
                self.parents.setdefault(block, parent)
        self._seen.update(run.hashes)
        self._copies.update(run.hashes)
        row = StoredAgain(run.at, self.life, "refill", len(run.hashes), again, after_removal, run.block_size)

        parent = self._latest(run.parent) if run.parent is not None else None
        rebuilt, above = self._rebuilt_by(run)
        if rebuilt is not None and (parent is None or len(run.hashes) > 1 or rebuilt.stored_at > parent.stored_at):
            self._resume(run, rebuilt, parent if self._is_next_chunk(run, parent) else None, above, row)
        elif parent is not None and len(run.hashes) == 1:
            parent.is_prefilling = False
            self._advance(parent, run)
            if again:
                self.again.append(replace(row, kind="growth"))
        else:
            sequence = parent if self._is_next_chunk(run, parent) else None
            if sequence is None:
                sequence = _Sequence(run.last, run.at)
                self._frontiers[sequence.frontier].append(sequence)
                self.begun.append(sequence)
            self._advance(sequence, run)
            sequence.prefilled = run
            sequence.chunks.append(row)
            if again:
                self.again.append(row)

    def _resume(self, run: Stored, sequence: _Sequence, begun: _Sequence | None, above: int, row: StoredAgain) -> None:
        """`run` completes the rebuilding of `sequence`; `begun`, if any, is what earlier steps had rebuilt of it."""
        parts = [row]
        if begun is not None and begun is not sequence:
            parts += begun.chunks
            self.again = [each for each in self.again if not any(each is part for part in begun.chunks)]
            self._frontiers[begun.frontier].remove(begun)
            begun.is_rebuilding = True
        self.again.append(
            replace(
                row,
                kind="resume",
                blocks=sum(each.blocks for each in parts),
                blocks_again=sum(each.blocks_again for each in parts),
                blocks_after_removal=sum(each.blocks_after_removal for each in parts),
                idle_s=(run.at - sequence.stored_at).total_seconds(),
                is_tail_full=above > 0,
            )
        )
        self._advance(sequence, run)
        sequence.is_prefilling = False

    def _rebuilt_by(self, run: Stored) -> tuple[_Sequence | None, int]:
        """The sequence whose frontier the run reaches, and how many blocks it goes beyond it: none, or the one just filled."""
        ends = enumerate(reversed(run.hashes[-2:]))
        found = [(sequence, above) for above, end in ends if (sequence := self._latest(end)) is not None]
        return max(found, key=lambda each: each[0].stored_at, default=(None, 0))

    def _is_next_chunk(self, run: Stored, parent: _Sequence | None) -> bool:
        return parent is not None and parent.is_prefilling and (run.at - parent.stored_at).total_seconds() <= CHUNK_PAUSE_S

    def _latest(self, frontier: int) -> _Sequence | None:
        """Of the sequences that stand at this block, the one that moved last: the others are finished more likely than not."""
        return max(self._frontiers.get(frontier, ()), key=lambda each: each.stored_at, default=None)

    def _advance(self, sequence: _Sequence, run: Stored) -> None:
        self._frontiers[sequence.frontier].remove(sequence)
        if not self._frontiers[sequence.frontier]:
            del self._frontiers[sequence.frontier]
        sequence.frontier, sequence.stored_at = run.last, run.at
        self._frontiers[sequence.frontier].append(sequence)


def events_of(rows: Iterable[Mapping[str, object]]) -> Iterator[Event]:
    """The rows of one engine's events, one per block, put back together into what was stored in one go. Restarts are told."""
    chain: list[int] = []
    first: Mapping[str, object] = {}
    seq: int | None = None

    def flush() -> Iterator[Event]:
        if chain:
            yield Stored(first["published_at"], first["parent_hash"], tuple(chain), first["block_size"])  # type: ignore[arg-type]
        chain.clear()

    for row in rows:
        is_new_batch = row["seq"] != seq
        continues = chain and not is_new_batch and row["event"] == "stored" and row["parent_hash"] == chain[len(chain) - 1]
        if not continues:
            yield from flush()
        if seq is not None and row["seq"] is not None and row["seq"] < seq:  # type: ignore[operator]
            yield Emptied(row["published_at"], is_restart=True)  # type: ignore[arg-type]
        seq = row["seq"]  # type: ignore[assignment]
        if row["event"] == "stored":
            if not chain:
                first = row
            chain.append(row["block_hash"])  # type: ignore[arg-type]
        elif row["event"] == "removed":
            yield Removed(row["published_at"], row["block_hash"])  # type: ignore[arg-type]
        else:
            yield Emptied(row["published_at"], is_restart=False)  # type: ignore[arg-type]
    yield from flush()


EVENTS = ("staging.kv_events_before", "staging.kv_events")


def followed(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The events to follow: those of the window, and before them what the pool was told to hold when it began."""
    return pl.concat([tables[each] for each in EVENTS], how="diagonal")


def by_engine(rows: pl.DataFrame) -> Iterator[tuple[str, Iterator[Event]]]:
    """The events, engine by engine: of the pool it computes in, and of a hybrid model's first group."""
    rows = rows.filter(pl.col("medium").is_null() | pl.col("medium").str.to_uppercase().eq("GPU"))
    rows = rows.filter(pl.col("group_idx").fill_null(0) == pl.col("group_idx").fill_null(0).min().over("engine"))
    # a replayed batch is the same batch
    rows = rows.unique(["engine", "published_at", "seq", "event_index"], maintain_order=True)
    for (engine,), of_engine in rows.sort("published_at", "seq", "event_index").group_by(["engine"], maintain_order=True):
        yield str(engine), events_of(of_engine.iter_rows(named=True))


SCHEMA = {
    "engine": pl.String,
    "again_index": pl.Int64,
    "life": pl.Int64,
    "stored_at": pl.Datetime("us", "UTC"),
    "kind": pl.String,
    "blocks": pl.Int64,
    "blocks_again": pl.Int64,
    "blocks_after_removal": pl.Int64,
    "block_size": pl.Int64,
    "idle_s": pl.Float64,
    "is_tail_full": pl.Boolean,
}


@python_model("core.blocks_stored_again", reads=EVENTS)
def blocks_stored_again(tables: Mapping[str, pl.DataFrame], run: Run) -> pl.DataFrame:
    """Runs of blocks that the KV events show stored a second time within one life of the pool, and who paid for it.

    Only the pool the engine computes in is followed (medium GPU, or not said), and of a hybrid model its first group, so that
    a token is counted once. What was stored shortly before the window is known, and what was stored again there not counted.

    grain: engine, again_index
    column: engine               VARCHAR     | Engine (data-parallel rank) that published the events.
    column: again_index          BIGINT      | Order of the run of blocks among the engine's, from 0.
    column: life                 BIGINT      | Life of the engine's pool, from 0; a restart begins the next.
    column: stored_at            TIMESTAMPTZ | Time of the batch that stored them.
    column: kind                 VARCHAR     | resume (a preempted request rebuilt), refill (another prompt), growth (same again).
    column: blocks               BIGINT      | Blocks stored in the run.
    column: blocks_again         BIGINT      | Of these, stored before in this life.
    column: blocks_after_removal BIGINT      | Of these, gone from the pool in between; two requests computed the rest at once.
    column: block_size           BIGINT      | Tokens in a block.
    column: idle_s               DOUBLE      | resume: how long the rebuilt sequence had stored nothing.
    column: is_tail_full         BOOLEAN     | resume: it ended with the last block stored: nothing partial was recomputed.
    check:  blocks >= blocks_again and blocks_again >= blocks_after_removal | Each is part of the one before.
    """
    rows = []
    since = datetime.fromisoformat(run.since) if run.since else None
    for engine, events in by_engine(followed(tables)):
        again = [each for each in stored_again(events) if since is None or each.at >= since]
        rows += [
            {
                "engine": engine,
                "again_index": index,
                "life": each.life,
                "stored_at": each.at,
                "kind": each.kind,
                "blocks": each.blocks,
                "blocks_again": each.blocks_again,
                "blocks_after_removal": each.blocks_after_removal,
                "block_size": each.block_size,
                "idle_s": each.idle_s,
                "is_tail_full": each.is_tail_full,
            }
            for index, each in enumerate(again)
        ]
    return pl.DataFrame(rows, schema=SCHEMA).sort("engine", "again_index")
