"""vLLM's scheduler over the block pool: a discrete-event replay of a list of requests.

To be read beside vLLM's `v1/core/sched/scheduler.py`. What a step does, in its order:

1. running requests first, in order of admission, each one token further (a prefill: its next chunk), a new block where it
   crosses a block boundary. Where the pool has none left the victim is the request admitted last, until the block is found;
2. in a step without preemption, waiting requests, first come first served, head of line only: the cached prefix is looked up,
   the whole sequence so far must fit (from 0.19.1 on; before, its first chunk) above the watermark (0.24.0), a slot and token
   budget must be left;
3. each sequence that is wholly computed gets one token; one that has all its tokens gives its blocks back.

A victim keeps its generated tokens, goes to the head of the waiting queue and is computed again from the first block that the
cache has lost. Between two events (a block boundary, an end, an arrival) nothing changes but time, so the replay jumps: work
goes with blocks, not with tokens.

Not modelled: speculative decoding, KV connectors, hybrid pools, LoRA slots, priorities, pipeline parallelism. A step of the
asynchronous scheduler ends requests one step later; that is one step in hundreds and left out.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Unpack

from pipelines.replay import engine
from pipelines.replay.engine import Clients, Preemption, Request, StepTime, binned, steps_until
from pipelines.replay.pool import BlockPool, Key


@dataclass(frozen=True)
class Settings:
    """What the scheduler is given. `blocks` are the usable ones, one less than the engine reports (its null block)."""

    blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    is_caching: bool = True
    must_whole_sequence_fit: bool = True
    watermark_blocks: int = 0
    is_unhashed_first: bool = True

    @classmethod
    def of_version(cls, version: tuple[int, ...] | None, **given: int | bool) -> Settings:
        """Settings with the scheduler's rules as the version has them; as the newest has them where it is not known."""
        rules = version and {"must_whole_sequence_fit": version >= (0, 19, 1), "is_unhashed_first": version >= (0, 23)}
        return cls(**{**(rules or {}), **given})  # type: ignore[arg-type]

    def of_pool(self, share: float) -> Settings:
        """The same with so large a share of the pool."""
        return replace(self, blocks=int(share * self.blocks))


@dataclass(eq=False)
class _Sequence:
    """A request under way: its tokens so far, how many are computed, its blocks."""

    index: int
    request: Request
    outputs: int = 0
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    held: int = 0  # of these, the leading ones whose content the pool knows
    order: int = 0
    epoch: int = 0
    decoding_since: int | None = None  # the step that ended its prefill, while it decodes
    tokens_then: int = 0
    last_token_at: float = 0.0  # of a victim
    lost: Preemption | None = None

    @property
    def tokens(self) -> int:
        return self.request.prompt_tokens + self.outputs


class Replay(engine.Replay):
    """One engine, from an empty pool, over requests in order of arrival."""

    def __init__(self, settings: Settings, step_time: StepTime, requests: Sequence[Request], **clients: Unpack[Clients]) -> None:
        super().__init__(step_time, requests, **clients)
        self.settings = settings
        self.pool = BlockPool(settings.blocks, is_caching=settings.is_caching, is_unhashed_first=settings.is_unhashed_first)
        self.running: list[_Sequence] = []
        self.waiting: deque[_Sequence] = deque()
        self._calendar: list[tuple[int, int, int, _Sequence]] = []  # (step, admission order, epoch, sequence)
        self._came_due: list[_Sequence] = []  # in this step
        self._prefilling: list[_Sequence] = []
        self._decoding = 0
        self._context = 0  # tokens that the decoding sequences read in their next step: one more each, step by step
        self._admissions = 0
        self._is_blocked = False

    def _has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def _never_fits(self, request: Request) -> bool:
        return ceil((request.prompt_tokens + request.output_tokens) / self.settings.block_size) > self.settings.blocks

    def _receive(self, index: int) -> None:
        self.waiting.append(_Sequence(index, self.requests[index]))
        if len(self.waiting) == 1:
            self._is_blocked = False

    def _evictions(self) -> int:
        return self.pool.evictions

    # steps

    def _can_jump(self) -> bool:
        """Pass over the steps in which every running request only decodes inside its block; whether there were any."""
        if self._prefilling or not self.running or (self.waiting and not self._is_stuck()):
            return False
        due = self._calendar[0][0] if self._calendar else inf
        steps = due - self.step - 1
        first = self.step_time.of(self._decoding, self._decoding, self._context)
        longer = self.step_time.context * self._decoding  # than the step before it: all contexts grow by one
        if (arrival := self._next_arrival_at()) < inf:
            steps = min(steps, max(1, steps_until(arrival - self.now, first, longer)))
        if steps < 1:
            return False
        mean = first + longer * (steps - 1) / 2
        self.step += int(steps)
        self._computed += int(steps) * self._decoding
        self._context += int(steps) * self._decoding
        self._pass(steps * mean)
        self._gaps[binned(mean)] += int(steps) * self._decoding
        return True

    def _pass(self, time: float, *, is_pool_short: bool = False) -> None:
        """Let time pass, and keep what requests wait for meanwhile."""
        self.now += time
        if self.waiting:
            is_full = len(self.running) >= self.settings.max_num_seqs
            self._waiting_for["slots" if is_full else "pool" if self._is_blocked or is_pool_short else "budget"] += time

    def _is_stuck(self) -> bool:
        return self._is_blocked or len(self.running) >= self.settings.max_num_seqs

    def _step(self) -> None:
        self.step += 1
        self._came_due.clear()
        budget = self.settings.max_num_batched_tokens
        decoded, preempted = self._schedule_running(budget)
        scheduled = decoded
        chunks = self._continue_prefills(budget - scheduled)
        scheduled += sum(tokens for _, tokens in chunks)
        if not (preempted or self._is_stuck()):
            admitted = self._admit(budget - scheduled)
            scheduled += sum(tokens for _, tokens in admitted)
            chunks += admitted
        self._peak = max(self._peak, self.pool.usage)
        self._peak_running = max(self._peak_running, len(self.running))
        self._computed += scheduled
        generated = decoded + sum(each.computed + tokens == each.tokens for each, tokens in chunks)
        time = self.step_time.of(scheduled, generated, self._context)
        self._pass(time, is_pool_short=preempted)
        if decoded:
            self._gaps[binned(time)] += decoded
        self._context += self._decoding
        self._after(chunks)

    def _schedule_running(self, budget: int) -> tuple[int, bool]:
        """Blocks for decoding requests that cross a boundary in this step, oldest first; tokens, and whether any was lost."""
        preempted = False
        for sequence in self._due():
            if sequence.decoding_since is None:
                continue  # a victim of this very step
            if self._tokens_in_step(sequence) > len(sequence.blocks) * self.settings.block_size:
                while self.pool.free_blocks == 0:
                    preempted = True
                    victim = self.running[-1]
                    self._preempt(victim)
                    if victim is sequence:
                        break
                if sequence.decoding_since is None:
                    continue
                self._grow(sequence, 1)
        return min(budget, self._decoding), preempted

    def _due(self) -> Iterator[_Sequence]:
        """The sequences with an event in this step, in admission order; each is entered again for its next one."""
        while self._calendar and self._calendar[0][0] <= self.step:
            _, _, epoch, sequence = heapq.heappop(self._calendar)
            if epoch == sequence.epoch:
                self._came_due.append(sequence)
                yield sequence
                if epoch == sequence.epoch:
                    self._enter(sequence)

    def _tokens_in_step(self, sequence: _Sequence) -> int:
        """Tokens of a decoding sequence that are computed once this step is done."""
        return sequence.tokens_then + self.step - (sequence.decoding_since or 0)

    def _enter(self, sequence: _Sequence) -> None:
        """Put the next boundary or the end of a decoding sequence, whichever comes first, into the calendar."""
        since, base = sequence.decoding_since or 0, sequence.tokens_then
        room = len(sequence.blocks) * self.settings.block_size
        boundary = since + room - base + 1
        end = since + sequence.request.prompt_tokens + sequence.request.output_tokens - 1 - base
        if end > self.step or boundary > self.step:
            due = min(each for each in (boundary, end) if each > self.step)
            heapq.heappush(self._calendar, (due, sequence.order, sequence.epoch, sequence))

    def _continue_prefills(self, budget: int) -> list[tuple[_Sequence, int]]:
        """The next chunk of each prefill that one budget did not hold; its blocks were not set aside when it was admitted."""
        chunks = []
        for sequence in list(self._prefilling):
            tokens = min(budget, sequence.tokens - sequence.computed)
            need = self._blocks_for(sequence.computed + tokens) - len(sequence.blocks)
            while sequence in self._prefilling and need > self.pool.free_blocks:
                self._preempt(self.running[-1])
            if tokens > 0 and sequence in self._prefilling:
                self._grow(sequence, need)
                self._hold(sequence, sequence.computed + tokens)
                budget -= tokens
                chunks.append((sequence, tokens))
        return [(sequence, tokens) for sequence, tokens in chunks if sequence in self._prefilling]

    def _admit(self, budget: int) -> list[tuple[_Sequence, int]]:
        """Admit from the head of the waiting queue while budget, slots and blocks last."""
        admitted = []
        while self.waiting and budget > 0 and len(self.running) < self.settings.max_num_seqs:
            sequence = self.waiting[0]
            hit = self.pool.cached_prefix(self._keys(sequence, 0, (sequence.tokens - 1) // self.settings.block_size))
            cached = len(hit) * self.settings.block_size
            tokens = min(budget, sequence.tokens - cached)
            must_fit = sequence.tokens if self.settings.must_whole_sequence_fit else cached + tokens
            need = self._blocks_for(must_fit) - len(hit) + self.pool.idle(hit)
            watermark = self.settings.watermark_blocks if self.running else 0
            if need + watermark > self.pool.free_blocks:
                self._is_blocked = True
                break
            self.waiting.popleft()
            self._start(sequence, hit, cached)
            self._grow(sequence, self._blocks_for(cached + tokens) - len(hit))
            self._hold(sequence, cached + tokens)
            budget -= tokens
            admitted.append((sequence, tokens))
        return admitted

    def _start(self, sequence: _Sequence, hit: list[int], cached: int) -> None:
        self.pool.touch(hit)
        sequence.blocks, sequence.held = list(hit), len(hit)
        sequence.computed = cached
        sequence.order = self._admissions
        self._admissions += 1
        self.running.append(sequence)
        self._prefilling.append(sequence)
        if sequence.lost is None and self._started[sequence.index] is None:
            self._started[sequence.index] = self.now
            self._first_hits += cached
        elif sequence.lost is not None:
            lost = sequence.lost
            recomputed = max(0, lost.context_tokens - cached)
            self._preemptions.append(Preemption(lost.request, lost.at, lost.context_tokens, recomputed))
            sequence.lost = None

    def _after(self, chunks: list[tuple[_Sequence, int]]) -> None:
        """The step's outputs: prefills that are complete begin to decode, sequences that have all their tokens end."""
        for sequence, tokens in chunks:
            sequence.computed += tokens
            if sequence.computed < sequence.tokens:
                continue
            self._prefilling.remove(sequence)
            sequence.decoding_since, sequence.tokens_then = self.step, sequence.computed
            self._decoding += 1
            self._context += sequence.computed + 1
            sequence.outputs += 1
            if self._first[sequence.index] is None:
                self._first[sequence.index] = self.now
            else:
                self._gaps[self.now - sequence.last_token_at] += 1
            if sequence.outputs < sequence.request.output_tokens:
                self._enter(sequence)
            else:
                self._came_due.append(sequence)
        for sequence in sorted((each for each in self._came_due if self._is_at_end(each)), key=lambda each: each.order):
            self._finish(sequence)

    def _is_at_end(self, sequence: _Sequence) -> bool:
        if sequence.decoding_since is None:
            return False
        return self._tokens_in_step(sequence) + 1 >= sequence.request.prompt_tokens + sequence.request.output_tokens

    def _finish(self, sequence: _Sequence) -> None:
        self._hold(sequence, self._tokens_in_step(sequence))
        self._context -= self._tokens_in_step(sequence) + 1  # of the step that is not to come
        self._release(sequence)
        self._finished[sequence.index] = self.now
        self._send_next(sequence.request.stream)

    def _preempt(self, victim: _Sequence) -> None:
        computed = victim.computed
        if victim.decoding_since is not None:
            self._context -= self._tokens_in_step(victim)
            computed = self._tokens_in_step(victim) - 1  # this step's token is not computed any more
            victim.outputs = computed + 1 - victim.request.prompt_tokens
            victim.last_token_at = self.now
        self._hold(victim, computed)
        self._release(victim)
        lost = Preemption(victim.index, self.now, computed)
        victim.lost = lost
        self.waiting.appendleft(victim)

    def _release(self, sequence: _Sequence) -> None:
        self.pool.free(sequence.blocks)
        sequence.blocks = []
        sequence.computed = 0
        self._decoding -= sequence.decoding_since is not None
        sequence.decoding_since = None
        sequence.epoch += 1
        self.running.remove(sequence)
        if sequence in self._prefilling:
            self._prefilling.remove(sequence)
        self._is_blocked = False

    # blocks

    def _blocks_for(self, tokens: int) -> int:
        return ceil(tokens / self.settings.block_size)

    def _grow(self, sequence: _Sequence, count: int) -> None:
        if count > 0:
            sequence.blocks += self.pool.take(count)

    def _hold(self, sequence: _Sequence, computed: int) -> None:
        """Give the full blocks their content: as they are allocated for a prompt; for generated text, before they are freed."""
        full = computed // self.settings.block_size
        for block, key in zip(sequence.blocks[sequence.held : full], self._keys(sequence, sequence.held, full), strict=True):
            self.pool.hold(block, key)
        sequence.held = full

    def _keys(self, sequence: _Sequence, first: int, end: int) -> Iterator[Key]:
        request, size = sequence.request, self.settings.block_size
        told = request.content
        known = told.tokens // size if told else 0
        for position in range(first, end):
            if told and position < known:
                yield told.key((position + 1) * size)
            else:
                yield (-1 - request.prefix, position) if position < request.shared_blocks else (sequence.index, position)
