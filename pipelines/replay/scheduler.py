"""The engine's scheduler over the block pool: a discrete-event replay of a list of requests.

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
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, frexp, inf, ldexp, sqrt

from pipelines.replay.pool import BlockPool, Key

GAP_BINS = 2**13  # of the time between tokens, up to its double


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
        """Settings with the scheduler's rules as the version has them; the newest known where it is not known."""
        known = version or (99,)
        return cls(**{"must_whole_sequence_fit": known >= (0, 19, 1), "is_unhashed_first": known >= (0, 23), **given})  # type: ignore[arg-type]


@dataclass(frozen=True)
class StepTime:
    """What one engine step adds to the clock: a part of its own, a part for each token computed, one for each token generated,
    and one for each token of context that a decoding request reads from the KV cache for its next.

    So the clock counts seconds. With a part for tokens generated alone it counts those (`PROGRESS`): arrivals are then given as
    the tokens the engine had generated when they came. That clock needs no calibration and cannot drift from what was observed,
    so it is the one to re-enact a recorded load with.
    """

    base: float = 0.0
    computed: float = 0.0
    generated: float = 0.0
    context: float = 0.0

    def of(self, computed: float, generated: float, context: float = 0.0) -> float:
        """How far a step moves the clock."""
        return self.base + self.computed * computed + self.generated * generated + self.context * context

    def times(self, factor: float) -> StepTime:
        """The same, slower by a factor."""
        return StepTime(self.base * factor, self.computed * factor, self.generated * factor, self.context * factor)


PROGRESS = StepTime(generated=1.0)


@dataclass(frozen=True)
class Request:
    """One request of the replay. `stream` names the client it belongs to; `shared_blocks` blocks of its prompt are the same for
    all requests of one `prefix`. Where it is known what its leading blocks hold, `blocks` say it instead.
    """

    arrived: float
    prompt_tokens: int
    output_tokens: int
    stream: int = 0
    prefix: int = 0
    shared_blocks: int = 0
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Preemption:
    """A running request lost its blocks. `recomputed_tokens` is None where it never came back."""

    request: int
    at: float
    context_tokens: int
    recomputed_tokens: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What the replay did."""

    ended_at: float
    steps: int
    computed_tokens: int
    first_hit_tokens: int
    preemptions: tuple[Preemption, ...]
    started_at: tuple[float | None, ...]
    first_token_at: tuple[float | None, ...]
    finished_at: tuple[float | None, ...]
    evictions: int
    peak_usage: float
    sent_at: tuple[float | None, ...] = ()  # when each request reached the engine
    token_gaps: tuple[tuple[float, int], ...] = ()  # (time from a token to the next of the same request, how often)
    waiting: tuple[tuple[str, float], ...] = ()  # (what requests waited for: slots, pool or budget, how long any did)
    peak_running: int = 0

    @property
    def recomputed_tokens(self) -> int:
        """Tokens computed again after preemptions."""
        return sum(each.recomputed_tokens or 0 for each in self.preemptions)

    @property
    def lost_tokens(self) -> int:
        """Tokens that victims held when they were preempted."""
        return sum(each.context_tokens for each in self.preemptions)


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


class Replay:
    """One engine, from an empty pool, over requests in order of arrival.

    `concurrency` limits the requests of each stream in flight, as a load generator does: the next is sent `think` after one ends,
    not before its own arrival. Streams without an entry are open: their requests arrive when they arrive.
    """

    def __init__(
        self,
        settings: Settings,
        step_time: StepTime,
        requests: Sequence[Request],
        *,
        concurrency: dict[int, int] | None = None,
        think: float = 0.0,
    ) -> None:
        self.settings = settings
        self.step_time = step_time
        self.requests = requests
        self.pool = BlockPool(settings.blocks, is_caching=settings.is_caching, is_unhashed_first=settings.is_unhashed_first)
        self.now = 0.0
        self.step = 0
        self.running: list[_Sequence] = []
        self.waiting: deque[_Sequence] = deque()
        self._limits = concurrency or {}
        self._think = think
        self._returns: list[tuple[float, int]] = []  # (when, request) that a client sends next, each in flight already
        self._in_flight = dict.fromkeys(self._limits, 0)
        self._held: dict[int, deque[int]] = {stream: deque() for stream in self._limits}
        self._arrivals = sorted(range(len(requests)), key=lambda i: (requests[i].arrived, i))
        self._next_arrival = 0
        self._calendar: list[tuple[int, int, int, _Sequence]] = []  # (step, admission order, epoch, sequence)
        self._came_due: list[_Sequence] = []  # in this step
        self._prefilling: list[_Sequence] = []
        self._decoding = 0
        self._context = 0  # tokens that the decoding sequences read in their next step: one more each, step by step
        self._admissions = 0
        self._is_blocked = False
        self._computed = self._first_hits = 0
        self._peak = 0.0
        self._peak_running = 0
        self._gaps: dict[float, int] = defaultdict(int)  # many steps take about the same time: not one entry a step
        self._waiting_for: dict[str, float] = defaultdict(float)
        self._preemptions: list[Preemption] = []
        self._sent: list[float | None] = [None] * len(requests)
        self._started: list[float | None] = [None] * len(requests)
        self._first: list[float | None] = [None] * len(requests)
        self._finished: list[float | None] = [None] * len(requests)

    def run(self) -> Outcome:
        """Replay to the end of the last request."""
        while self._is_work_left():
            self._arrive()
            if not (self.running or self.waiting):
                self.now = self._next_arrival_at()
                continue
            if not self._can_jump():
                self._step()
        return Outcome(
            ended_at=self.now,
            steps=self.step,
            computed_tokens=self._computed,
            first_hit_tokens=self._first_hits,
            preemptions=tuple(self._preemptions),
            started_at=tuple(self._started),
            first_token_at=tuple(self._first),
            finished_at=tuple(self._finished),
            evictions=self.pool.evictions,
            peak_usage=self._peak,
            sent_at=tuple(self._sent),
            token_gaps=tuple(self._gaps.items()),
            waiting=tuple(sorted(self._waiting_for.items())),
            peak_running=self._peak_running,
        )

    # arrivals

    def _is_work_left(self) -> bool:
        return bool(self.running or self.waiting or self._returns or self._next_arrival < len(self._arrivals))

    def _next_arrival_at(self) -> float:
        listed = self.requests[self._arrivals[self._next_arrival]].arrived if self._next_arrival < len(self._arrivals) else inf
        return min(listed, self._returns[0][0]) if self._returns else listed

    def _arrive(self) -> None:
        while self._next_arrival_at() <= self.now:
            if self._returns and self._returns[0][0] <= self.now:
                self._reach_engine(heapq.heappop(self._returns)[1])
                continue
            index = self._arrivals[self._next_arrival]
            stream = self.requests[index].stream
            self._next_arrival += 1
            limit = self._limits.get(stream)
            if limit is not None and self._in_flight[stream] >= limit:
                self._held[stream].append(index)
            else:
                if limit is not None:
                    self._in_flight[stream] += 1
                self._reach_engine(index)

    def _reach_engine(self, index: int) -> None:
        request = self.requests[index]
        if self._never_fits(request):  # the engine refuses it at once
            self._send_next(request.stream)
            return
        self._sent[index] = self.now
        self.waiting.append(_Sequence(index, request))
        if len(self.waiting) == 1:
            self._is_blocked = False

    def _send_next(self, stream: int) -> None:
        """A request of the stream has come back: its client sends the next."""
        if stream not in self._limits:
            return
        if self._held[stream]:
            heapq.heappush(self._returns, (self.now + self._think, self._held[stream].popleft()))
        else:
            self._in_flight[stream] -= 1

    def _never_fits(self, request: Request) -> bool:
        return ceil((request.prompt_tokens + request.output_tokens) / self.settings.block_size) > self.settings.blocks

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
            steps = min(steps, max(1, _steps_until(arrival - self.now, first, longer)))
        if steps < 1:
            return False
        mean = first + longer * (steps - 1) / 2
        self.step += int(steps)
        self._computed += int(steps) * self._decoding
        self._context += int(steps) * self._decoding
        self._pass(steps * mean)
        self._gaps[_binned(mean)] += int(steps) * self._decoding
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
            self._gaps[_binned(time)] += decoded
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
        request = sequence.request
        for position in range(first, end):
            if position < len(request.blocks):
                yield request.blocks[position]
            else:
                yield (-1 - request.prefix, position) if position < request.shared_blocks else (sequence.index, position)


def _binned(time: float) -> float:
    """The time to a ten-thousandth of itself: with the contexts it changes at every step, and there are many steps."""
    mantissa, exponent = frexp(time)
    return ldexp(round(mantissa * GAP_BINS) / GAP_BINS, exponent)


def _steps_until(time: float, first: float, longer: float) -> float:
    """How many steps pass until then: the first takes `first`, each `longer` than the one before it."""
    usual = first - longer / 2  # the sum of k steps is k * usual + k * k * longer / 2
    return ceil(2 * time / (usual + sqrt(usual**2 + 2 * longer * time))) if usual > 0 else inf
