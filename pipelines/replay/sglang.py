"""SGLang's scheduler over its token pool and radix cache: a discrete-event replay of a list of requests.

To be read beside SGLang's `srt/managers/scheduler.py` and `schedule_policy.py`. One turn of its loop, in its order:

1. a prefill batch goes first, alone: waiting requests are admitted while slots, chunk and pool last (`_Adder`, its PrefillAdder).
   Admission counts on answers to come: all a new request may generate, and of what the running ones may still generate a share,
   `new_token_ratio`. It falls with every decode step. Where one does not fit, nobody is asked again until a running one is gone
   (`batch_is_full`), and a prompt that the chunk does not hold goes on in the next batch;
2. else the running requests decode, one token each. Where neither free pages nor idle leaves of the cache are left for that,
   requests are retracted: the one with fewest tokens generated first, of those the one with the longest prompt, until the next
   step fits. The ratio jumps to what the rest would have needed.

A retracted request loses all its own tokens, prompt and answer (what the tree has of its prompt stays until it is evicted), goes
to the end of the queue and is prefilled again. Between two events (an end, an arrival, a full pool) nothing changes but time, so
the replay jumps: work goes with requests, not with tokens.

By version: of a retracted request that waits again, what it generated already is not counted on any more (0.5.4); a page is set
aside for each admitted request (0.5.10); retraction went on until twenty steps fitted (before 0.5.2); eviction freed as much as
was needed, whatever was free already (before 0.5.18); requests that ignore the end of the text are counted on in full (0.5.23).

Not modelled: speculative decoding, mixed chunks, priorities, LoRA, disaggregation, hierarchical caches, pipeline parallelism, and
pools of hybrid models. A step of the overlapping scheduler ends requests one step later; that is one in hundreds and left out.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from pipelines.replay import engine
from pipelines.replay.engine import Preemption, Request, StepTime, binned, steps_until
from pipelines.replay.radix import Node, RadixPool, Span, Spans

# what no argument sets, by the names it has in SGLang's environment
INIT_NEW_TOKEN_RATIO, MIN_NEW_TOKEN_RATIO_FACTOR, NEW_TOKEN_RATIO_DECAY_STEPS = 0.7, 0.14, 600
RETRACT_DECODE_STEPS = 20
CLIP_MAX_NEW_TOKENS = 4096
IN_BATCH_PREFIX = 32  # tokens: whoever finds fewer and shares more with one ahead of it in the queue lets that one go first
PREFIX_MATCH_MAX = 128  # waiting requests, above which they are not sorted by their prefixes
IGNORE_EOS_RESERVE_TOKENS = 1

POLICIES = ("fcfs", "lpm", "lof")


@dataclass(frozen=True)
class Settings:
    """What the scheduler is given, by its own names, and its rules as the version has them."""

    max_total_num_tokens: int
    page_size: int
    max_running_requests: int
    chunked_prefill_size: int | None
    max_prefill_tokens: int = 16_384
    schedule_conservativeness: float = 1.0
    schedule_policy: str = "fcfs"
    is_caching: bool = True
    are_answers_discounted: bool = True
    is_page_set_aside: bool = True
    must_many_steps_fit: bool = False
    is_eviction_exact: bool = True
    is_ignored_end_exact: bool = True

    @classmethod
    def of_version(cls, version: tuple[int, ...] | None, **given: float | str | bool | None) -> Settings:
        """Settings with the scheduler's rules as the version has them; the newest known where it is not known."""
        known = version or (99,)
        rules = {
            "are_answers_discounted": known >= (0, 5, 4),
            "is_page_set_aside": known >= (0, 5, 10),
            "must_many_steps_fit": known < (0, 5, 2),
            "is_eviction_exact": known >= (0, 5, 18),
            "is_ignored_end_exact": known >= (0, 5, 23),
        }
        return cls(**{**rules, **given})  # type: ignore[arg-type]

    @property
    def block_size(self) -> int:
        """Tokens that are found in the radix cache together: a page."""
        return self.page_size

    def of_pool(self, share: float) -> Settings:
        """The same with so large a share of the pool."""
        return replace(self, max_total_num_tokens=int(share * self.max_total_num_tokens))

    def replay(
        self,
        step_time: StepTime,
        requests: Sequence[Request],
        *,
        concurrency: Mapping[int, int] | None = None,
        think: float = 0.0,
    ) -> Replay:
        """An engine of these settings with an empty pool, and these requests to come."""
        return Replay(self, step_time, requests, concurrency=concurrency, think=think)


class NewTokenRatio:
    """The share of what running requests may still generate that admission counts on."""

    def __init__(self, schedule_conservativeness: float) -> None:
        self._init = min(INIT_NEW_TOKEN_RATIO * schedule_conservativeness, 1.0)
        self._least = min(self._init * MIN_NEW_TOKEN_RATIO_FACTOR, 1.0)
        self._decay = (self._init - self._least) / NEW_TOKEN_RATIO_DECAY_STEPS
        self.now = self._init

    def decay(self, steps: int = 1) -> None:
        """Decode steps without retraction."""
        self.now = max(self.now - steps * self._decay, self._least)

    def reset(self) -> None:
        """The engine is idle."""
        self.now = self._init

    def after_retraction(self, kept: Sequence[_Sequence]) -> None:
        """What those that were kept have generated, and some steps more, of all they may."""
        generated = sum(each.outputs for each in kept) + RETRACT_DECODE_STEPS * len(kept)
        self.now = min(1.0, generated / (sum(each.max_new_tokens for each in kept) + 1))


class _Sequence:
    """A request under way: its tokens so far, how many are in the pool, and the part of them that the tree has."""

    def __init__(self, index: int, request: Request, settings: Settings, root: Node) -> None:
        self.index = index
        self.request = request
        # the engine cuts off what could never fit
        most = max(1, settings.max_total_num_tokens - 2 - request.prompt_tokens)
        self.max_new_tokens = min(request.max_tokens or request.output_tokens, most)
        self.output_tokens = min(request.output_tokens, self.max_new_tokens)
        self.spans = spans_of(index, request, settings.page_size)
        self.outputs = 0
        self.computed = 0
        self.in_tree = 0
        self.node = root
        self.epoch = 0
        self.last_token_at: float | None = None
        self.lost: Preemption | None = None

    @property
    def tokens(self) -> int:
        return self.request.prompt_tokens + self.outputs


def spans_of(index: int, request: Request, page: int) -> Spans:
    """What a request is made of: what it is known to begin with, and its own."""
    spans: list[Span] = []
    known = 0
    told = request.content
    if told is not None:
        for number in told.blocks:
            tokens = min(told.size, told.tokens - known)
            if spans and spans[-1].start + spans[-1].tokens == number * told.size:  # numbers in a row are one span
                spans[-1] = replace(spans[-1], tokens=spans[-1].tokens + tokens)
            else:
                spans.append(Span(("told", told.size), number * told.size, tokens))
            known += tokens
    elif request.shared_blocks:
        known = request.shared_blocks * page
        spans.append(Span(("shared", request.prefix), 0, known))
    return (*spans, Span(index, known, request.prompt_tokens + request.output_tokens))


class _Adder:
    """Who is admitted to one prefill batch: SGLang's PrefillAdder. Its two offsets are what admission counts on, in tokens."""

    def __init__(self, settings: Settings, pool: RadixPool, running: Sequence[_Sequence], ratio: float) -> None:
        self.batch: list[tuple[_Sequence, int]] = []
        self.unfinished: _Sequence | None = None  # what the chunk did not hold
        self._settings = settings
        self._pool = pool
        self._running = running
        self._ratio = ratio
        self._chunk = inf if settings.chunked_prefill_size is None else settings.chunked_prefill_size
        self._input = settings.max_prefill_tokens
        self._current = 0.0
        self._total = sum(self._still_to_come(each) for each in running)
        self._ends: list[tuple[float, int]] | None = None

    def is_spent(self) -> bool:
        """Whether this batch has no budget left."""
        return self._input <= 0 or self._chunk <= 0

    def is_full(self) -> bool:
        """Whether the pool has no token left that nobody counts on."""
        return self._room - self._total <= 0 or self._room - self._current <= 0

    def go_on(self, sequence: _Sequence) -> None:
        """The next chunk of a prefill that is under way; it has to make progress, whether there is room or not."""
        left = min(self._chunk, int(self._room - self._total))
        tokens = min(sequence.tokens - sequence.computed, left if left > 0 else self._chunk)
        self._take(sequence, int(tokens))

    def add(self, sequence: _Sequence) -> str | None:
        """Admit one more, or say what is short: pool or budget. Its cached prefix is locked, and so is no room for anybody."""
        node, found = self._pool.match(sequence.spans, sequence.tokens - 1)
        self._pool.lock(node)
        short = self._short(sequence, sequence.tokens - found)
        tokens = sequence.tokens - found
        if short is None and self._paged(tokens) > self._chunk:
            tokens = int(self._chunk) // self._settings.page_size * self._settings.page_size
            short = None if tokens > 0 else "budget"
        if short is not None:
            self._pool.unlock(node)
            return short
        sequence.node, sequence.computed, sequence.in_tree = node, found, found
        self._take(sequence, tokens)
        return None

    def _short(self, sequence: _Sequence, tokens: int) -> str | None:
        if not self._settings.is_caching and sequence.request.ignores_eos:
            return None if self._fits_to_the_end(sequence, tokens) else "pool"
        to_come = sequence.max_new_tokens - (sequence.outputs if self._settings.are_answers_discounted else 0)
        aside = self._settings.page_size if self._settings.is_page_set_aside else 0
        if tokens + min(max(to_come, 0), CLIP_MAX_NEW_TOKENS) + aside >= self._room - self._total:
            return "pool"
        return "budget" if self._chunk == inf and self.batch and self._paged(tokens) >= self._input else None

    def _fits_to_the_end(self, sequence: _Sequence, tokens: int) -> bool:
        """add_one_req_ignore_eos: whether all have room until each of them has ended, the shortest first."""
        aside = self._settings.page_size if self._settings.is_page_set_aside else 0
        needed = self._paged(tokens) + aside
        if needed > min(self._room - self._current, self._room - self._total):
            return False
        if self._ends is None:
            self._ends = []
            for each in (*self._running, *(each for each, _ in self.batch)):
                self._expect(each)
        self._expect(sequence)
        room = self._room - self._current - needed
        for i, (left, held) in enumerate(self._ends):
            count = len(self._ends) - i
            if room - left * count <= IGNORE_EOS_RESERVE_TOKENS * count:
                return False
            room += held
        return True

    def _expect(self, sequence: _Sequence) -> None:
        share = 1.0 if sequence.request.ignores_eos else self._ratio
        left = sequence.max_new_tokens * share - sequence.outputs
        if left > 0 and self._ends is not None:
            insort(self._ends, (left, sequence.tokens))

    def _take(self, sequence: _Sequence, tokens: int) -> None:
        is_whole = sequence.computed + tokens >= sequence.tokens
        self.batch.append((sequence, tokens))
        paged = self._paged(tokens) + (self._settings.page_size if self._settings.is_page_set_aside else 0)
        self._total += paged + (min(sequence.max_new_tokens, CLIP_MAX_NEW_TOKENS) if is_whole else 0)
        self._current += paged
        self._input -= self._paged(tokens)
        self._chunk -= self._paged(tokens)
        self.unfinished = None if is_whole else sequence

    def _still_to_come(self, sequence: _Sequence) -> float:
        is_exact = sequence.request.ignores_eos and self._settings.is_ignored_end_exact
        return min(sequence.max_new_tokens - sequence.outputs, CLIP_MAX_NEW_TOKENS) * (1.0 if is_exact else self._ratio)

    @property
    def _room(self) -> int:
        return self._pool.free + self._pool.evictable

    def _paged(self, tokens: int) -> int:
        return -(-tokens // self._settings.page_size) * self._settings.page_size


class Replay(engine.Replay):
    """One engine, from an empty pool, over requests in order of arrival."""

    def __init__(
        self,
        settings: Settings,
        step_time: StepTime,
        requests: Sequence[Request],
        *,
        concurrency: Mapping[int, int] | None = None,
        think: float = 0.0,
    ) -> None:
        super().__init__(step_time, requests, concurrency=concurrency, think=think)
        self.settings = settings
        self.pool = RadixPool(settings.max_total_num_tokens, settings.page_size, is_caching=settings.is_caching)
        self.running: list[_Sequence] = []
        self.waiting: deque[_Sequence] = deque()
        self.ratio = NewTokenRatio(settings.schedule_conservativeness)
        self._unfinished: _Sequence | None = None
        self._is_full = False  # until a running request is gone, nobody is admitted
        self._is_pool_short = False
        self._calendar: list[tuple[int, int, int, _Sequence]] = []  # (decode step, request, epoch, sequence): its last
        self._decodes = 0
        self._decoded_at = 0.0  # the end of the last decode step
        self._context = 0  # tokens that the running requests read in their next step: one more each, step by step

    def _has_work(self) -> bool:
        return bool(self.running or self.waiting or self._unfinished)

    def _never_fits(self, request: Request) -> bool:
        return request.prompt_tokens + 2 >= self.pool.tokens

    def _receive(self, index: int) -> None:
        self.waiting.append(_Sequence(index, self.requests[index], self.settings, self.pool.root))

    def _evictions(self) -> int:
        return self.pool.evicted_tokens // self.settings.page_size

    def _rest(self) -> None:
        self.ratio.reset()

    # steps

    def _step(self) -> None:
        self.step += 1
        if batch := self._prefill_batch():
            self._prefill(batch)
        elif self.running:
            self._decode()
        else:
            self._send_next(self.waiting.popleft().request.stream)  # it fits into no pool, not even an empty one

    def _can_jump(self) -> bool:
        """Pass over the decode steps in which nobody ends, nobody can be admitted and the pool has room."""
        if self._unfinished or not self.running or (self.waiting and not self._is_full) or self._decoded_at != self.now:
            return False
        count = len(self.running)
        steps: float = self._due() - self._decodes - 1
        first = self.step_time.of(count, count, self._context)
        longer = self.step_time.context * count
        if (arrival := self._next_arrival_at()) < inf:
            steps = min(steps, max(1, steps_until(arrival - self.now, first, longer)))
        most = self._steps_with_room(int(steps))
        if most < 1:
            return False
        self._allocate(self._needed(self.running, most))
        mean = first + longer * (most - 1) / 2
        self.step += most
        self._generate(most)
        self.ratio.decay(most)
        self._pass(most * mean)
        self._decoded_at = self.now
        self._gaps[binned(mean)] += most * count
        return True

    def _due(self) -> int:
        """The decode step in which the next running request ends."""
        while self._calendar[0][2] != self._calendar[0][3].epoch:
            heapq.heappop(self._calendar)
        return self._calendar[0][0]

    def _steps_with_room(self, steps: int) -> int:
        """How many of these decode steps the pool has room for, evicting what nobody uses."""
        room = self.pool.free + self.pool.evictable
        if steps < 1 or self._needed(self.running, steps) <= room:
            return steps
        low, high = 0, steps
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._needed(self.running, middle) <= room else (low, middle)
        return low

    def _needed(self, sequences: Sequence[_Sequence], steps: int = 1) -> int:
        """Tokens in the new pages of so many decode steps."""
        page = self.settings.page_size
        if page == 1:
            return steps * len(sequences)
        return sum(-(-(each.computed + steps) // page) + (-each.computed // page) for each in sequences) * page

    def _allocate(self, tokens: int) -> bool:
        """Take so many tokens, if there is room."""
        if not self._has_room(tokens):
            return False
        self.pool.free -= tokens
        self._peak = max(self._peak, 1 - (self.pool.free + self.pool.evictable) / self.pool.tokens)
        return True

    def _has_room(self, tokens: int) -> bool:
        if not self.settings.is_eviction_exact and self.pool.free < tokens:
            self.pool.evict(tokens)
        return self.pool.has_room(tokens)

    def _generate(self, steps: int) -> None:
        for each in self.running:
            each.outputs += steps
            each.computed += steps
        self._decodes += steps
        self._computed += steps * len(self.running)
        self._context += steps * len(self.running)

    def _pass(self, time: float, *, prefilling: int = 0) -> None:
        """Let time pass, and keep what requests wait for meanwhile."""
        self.now += time
        if self.waiting:
            is_full = len(self.running) + prefilling >= self.settings.max_running_requests
            self._waiting_for["slots" if is_full else "pool" if self._is_pool_short else "budget"] += time

    # prefill

    def _prefill_batch(self) -> list[tuple[_Sequence, int]]:
        """get_new_batch_prefill: a chunk that goes on, then waiting requests as long as there is room for them."""
        self._is_full &= bool(self.running)
        if not self._unfinished and (self._is_full or not self.waiting):
            return []
        slots = self.settings.max_running_requests - len(self.running)
        if not self._unfinished and slots <= 0:
            self._is_full = True
            return []
        self._sort()
        adder = _Adder(self.settings, self.pool, self.running, self.ratio.now)
        if self._unfinished:
            adder.go_on(self._unfinished)
        admitted = 0
        for sequence in self.waiting:
            if adder.is_spent():
                break
            if len(adder.batch) >= slots:
                self._is_full = True
                break
            short = adder.add(sequence)
            admitted += short is None
            if short == "pool" or (short is None and adder.is_full()):
                self._is_full = self._is_pool_short = bool(adder.batch or self.running)
            if short or self._is_full:
                break
        for _ in range(admitted):
            self._start(self.waiting.popleft())
        self._unfinished = adder.unfinished
        return adder.batch

    def _sort(self) -> None:
        """calc_priority: the waiting queue in the order that the policy has."""
        policy = self.settings.schedule_policy
        if policy == "lof":
            self.waiting = deque(sorted(self.waiting, key=lambda each: -each.max_new_tokens))
        elif policy == "lpm" and self.settings.is_caching and len(self.waiting) <= PREFIX_MATCH_MAX:
            ahead = RadixPool(sum(each.tokens for each in self.waiting), 1)
            found: dict[int, float] = {}
            for each in self.waiting:
                _, matched = self.pool.match(each.spans, each.tokens)
                found[each.index] = -matched
                if matched <= IN_BATCH_PREFIX:
                    if ahead.match(each.spans, each.tokens)[1] >= IN_BATCH_PREFIX:
                        found[each.index] = inf
                    else:
                        ahead.insert(each.spans, each.tokens)
            self.waiting = deque(sorted(self.waiting, key=lambda each: found[each.index]))

    def _start(self, sequence: _Sequence) -> None:
        if sequence.lost is None:
            self._started[sequence.index] = self.now
            self._first_hits += sequence.computed
        else:
            lost = sequence.lost
            recomputed = max(0, lost.context_tokens - sequence.computed)
            self._preemptions.append(replace(lost, recomputed_tokens=recomputed))
            sequence.lost = None

    def _prefill(self, batch: list[tuple[_Sequence, int]]) -> None:
        page = self.settings.page_size
        pages = [-(-(each.computed + tokens) // page) + (-each.computed // page) for each, tokens in batch]
        self._has_room(sum(tokens for _, tokens in batch) + (len(batch) * page if page > 1 else 0))
        self._allocate(sum(pages) * page)
        self._peak_running = max(self._peak_running, len(self.running) + len(batch))
        scheduled = sum(tokens for _, tokens in batch)
        whole = sum(each.computed + tokens == each.tokens for each, tokens in batch)
        self._computed += scheduled
        self._pass(self.step_time.of(scheduled, whole), prefilling=len(batch))
        for sequence, tokens in batch:
            sequence.computed += tokens
            is_whole = sequence.computed == sequence.tokens
            self._checkpoint(sequence)
            if is_whole:
                self._begin_to_decode(sequence)

    def _begin_to_decode(self, sequence: _Sequence) -> None:
        sequence.outputs += 1
        if self._first[sequence.index] is None:
            self._first[sequence.index] = self.now
        elif sequence.last_token_at is not None:
            self._gaps[self.now - sequence.last_token_at] += 1
        sequence.last_token_at = self.now
        if sequence.outputs >= sequence.output_tokens:
            self._finish(sequence)
            return
        self.running.append(sequence)
        self._context += sequence.computed + 1
        due = self._decodes + sequence.output_tokens - sequence.outputs
        heapq.heappush(self._calendar, (due, sequence.index, sequence.epoch, sequence))

    # decode

    def _decode(self) -> None:
        """update_running_batch: one token for each that runs; where there is no room for that, some are retracted."""
        if self._has_room(self._needed(self.running)):
            self.ratio.decay()
        else:
            self._retract()
        if not self.running:
            return
        self._allocate(self._needed(self.running))
        began = self._decoded_at
        count = len(self.running)
        time = self.step_time.of(count, count, self._context)
        self._generate(1)
        self._pass(time)
        usual = 0
        for each in self.running:
            if each.last_token_at is None or each.last_token_at <= began:
                usual += 1
            else:  # its first decode step: what was prefilled after it is in this gap, and not what was before
                self._gaps[binned(self.now - each.last_token_at)] += 1
            each.last_token_at = None
        if usual:
            self._gaps[binned(self.now - began)] += usual
        self._decoded_at = self.now
        if self._due() <= self._decodes:
            ended = [each for each in self.running if each.outputs >= each.output_tokens]
            self.running = [each for each in self.running if each.outputs < each.output_tokens]
            for each in ended:
                self._context -= each.computed + 1
                self._finish(each)

    def _retract(self) -> None:
        """retract_decode: from the end of the list, which has fewest generated tokens and then the longest prompt last."""
        kept = sorted(self.running, key=lambda each: (each.outputs, -each.request.prompt_tokens), reverse=True)
        retracted: list[_Sequence] = []
        while len(kept) > 1 and not (retracted and self._fits_after_retraction(kept)):
            victim = kept.pop()
            retracted.append(victim)
            self._lose(victim)
            self._has_room(RETRACT_DECODE_STEPS * len(kept))
        if len(kept) == 1 and not self._has_room(self._needed(kept)):
            last = kept.pop()  # it does not fit alone: the engine aborts it
            self.running.remove(last)
            self._context -= last.computed + 1
            self._release(last)
            self._send_next(last.request.stream)
        for victim in retracted:
            self.running.remove(victim)
            self.waiting.append(victim)
        self.running = kept
        self.ratio.after_retraction(kept)
        self._is_full, self._is_pool_short = False, True

    def _fits_after_retraction(self, kept: Sequence[_Sequence]) -> bool:
        if self.settings.must_many_steps_fit:
            return self.pool.free >= RETRACT_DECODE_STEPS * len(kept)
        return self._has_room(self._needed(kept))

    def _lose(self, victim: _Sequence) -> None:
        self._context -= victim.computed + 1
        victim.lost = Preemption(victim.index, self.now, victim.computed)
        victim.last_token_at = victim.last_token_at or self._decoded_at
        victim.epoch += 1
        self._release(victim)

    def _finish(self, sequence: _Sequence) -> None:
        self._checkpoint(sequence)
        self._release(sequence)
        sequence.epoch += 1
        self._is_full = self._is_pool_short = False
        self._finished[sequence.index] = self.now
        self._send_next(sequence.request.stream)

    # the pool

    def _checkpoint(self, sequence: _Sequence) -> None:
        """Give the tree the sequence's full pages; what it had already is free again."""
        if not self.settings.is_caching:
            return
        whole = sequence.computed // self.settings.page_size * self.settings.page_size
        node, had = self.pool.insert(sequence.spans, whole)
        self.pool.free += max(0, had - sequence.in_tree)
        self.pool.lock(node)
        self.pool.unlock(sequence.node)
        sequence.node, sequence.in_tree = node, whole

    def _release(self, sequence: _Sequence) -> None:
        """Free the sequence's own tokens; those of the tree may be evicted."""
        page = self.settings.page_size
        self.pool.free += -(-sequence.computed // page) * page - sequence.in_tree
        self.pool.unlock(sequence.node)
        sequence.node, sequence.computed, sequence.in_tree = self.pool.root, 0, 0
