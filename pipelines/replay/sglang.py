"""SGLang's scheduler over its token pool and radix cache: a discrete-event replay of a list of requests.

To be read beside SGLang's `srt/managers/scheduler.py` (and `sglang_admission`, beside its `schedule_policy.py`). One turn of its
loop, in its order:

1. a prefill batch goes first, alone: waiting requests are admitted while slots, chunk and pool last (`sglang_admission`).
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
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Unpack

from pipelines.replay import engine
from pipelines.replay.engine import Clients, Preemption, Request, StepTime, binned, steps_until
from pipelines.replay.radix import RadixPool
from pipelines.replay.sglang_admission import RETRACT_DECODE_STEPS, NewTokenRatio, PrefillAdder, Req, Settings

IN_BATCH_PREFIX = 32  # tokens: whoever finds fewer and shares more with one ahead of it in the queue lets that one go first
PREFIX_MATCH_MAX = 128  # waiting requests, above which they are not sorted by their prefixes


class Replay(engine.Replay):
    """One engine, from an empty pool, over requests in order of arrival."""

    def __init__(self, settings: Settings, step_time: StepTime, requests: Sequence[Request], **clients: Unpack[Clients]) -> None:
        super().__init__(step_time, requests, **clients)
        self.settings = settings
        self.pool = RadixPool(settings.max_total_num_tokens, settings.page_size, is_caching=settings.is_caching)
        self.running: list[Req] = []
        self.waiting: deque[Req] = deque()
        self.ratio = NewTokenRatio(settings.schedule_conservativeness)
        self._unfinished: Req | None = None
        self._is_full = False  # until a running request is gone, nobody is admitted
        self._is_pool_short = False
        self._calendar: list[tuple[int, int, int, Req]] = []  # (decode step, request, epoch, sequence): its last
        self._decodes = 0
        self._decoded_at = 0.0  # the end of the last decode step
        self._context = 0  # tokens that the running requests read in their next step: one more each, step by step

    def _has_work(self) -> bool:
        return bool(self.running or self.waiting or self._unfinished)

    def _never_fits(self, request: Request) -> bool:
        return request.prompt_tokens + 2 >= self.pool.tokens

    def _receive(self, index: int) -> None:
        self.waiting.append(Req(index, self.requests[index], self.settings, self.pool.root))

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
            refused = self.waiting.popleft()  # it fits into no pool, not even an empty one
            if refused.lost is not None:
                self._preemptions.append(refused.lost)
            self._send_next(refused.request.stream)

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

    def _needed(self, sequences: Sequence[Req], steps: int = 1) -> int:
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

    def _prefill_batch(self) -> list[tuple[Req, int]]:
        """get_new_batch_prefill: a chunk that goes on, then waiting requests as long as there is room for them."""
        self._is_full &= bool(self.running)
        if not self._unfinished and (self._is_full or not self.waiting):
            return []
        slots = self.settings.max_running_requests - len(self.running)
        if not self._unfinished and slots <= 0:
            self._is_full = True
            return []
        self._sort()
        adder = PrefillAdder(self.settings, self.pool, self.running, self.ratio.now)
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

    def _start(self, sequence: Req) -> None:
        if sequence.lost is None:
            self._started[sequence.index] = self.now
            self._first_hits += sequence.computed
        else:
            lost = sequence.lost
            recomputed = max(0, lost.context_tokens - sequence.computed)
            self._preemptions.append(replace(lost, recomputed_tokens=recomputed))
            sequence.lost = None

    def _prefill(self, batch: list[tuple[Req, int]]) -> None:
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

    def _begin_to_decode(self, sequence: Req) -> None:
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
        retracted: list[Req] = []
        while len(kept) > 1 and not (retracted and self._fits_after_retraction(kept)):
            victim = kept.pop()
            retracted.append(victim)
            self._lose(victim)
            self._has_room(RETRACT_DECODE_STEPS * len(kept))
        if len(kept) == 1 and not self._has_room(self._needed(kept)):
            last = kept.pop()  # it does not fit alone: the engine aborts it
            self.running.remove(last)
            self._context -= last.computed + 1
            last.epoch += 1
            self._release(last)
            self._send_next(last.request.stream)
        for victim in retracted:
            self.running.remove(victim)
            self.waiting.append(victim)
        self.running = kept
        self.ratio.after_retraction(kept)
        self._is_full, self._is_pool_short = False, True

    def _fits_after_retraction(self, kept: Sequence[Req]) -> bool:
        if self.settings.must_many_steps_fit:
            return self.pool.free >= RETRACT_DECODE_STEPS * len(kept)
        return self._has_room(self._needed(kept))

    def _lose(self, victim: Req) -> None:
        self._context -= victim.computed + 1
        victim.lost = Preemption(victim.index, self.now, victim.computed)
        victim.last_token_at = victim.last_token_at or self._decoded_at
        victim.epoch += 1
        self._release(victim)

    def _finish(self, sequence: Req) -> None:
        self._checkpoint(sequence)
        self._release(sequence)
        sequence.epoch += 1
        self._is_full = self._is_pool_short = False
        self._finished[sequence.index] = self.now
        self._send_next(sequence.request.stream)

    # the pool

    def _checkpoint(self, sequence: Req) -> None:
        """Give the tree the sequence's full pages; what it had already is free again."""
        if not self.settings.is_caching:
            return
        whole = sequence.computed // self.settings.page_size * self.settings.page_size
        node, had = self.pool.insert(sequence.spans, whole)
        self.pool.free += max(0, had - sequence.in_tree)
        self.pool.lock(node)
        self.pool.unlock(sequence.node)
        sequence.node, sequence.in_tree = node, whole

    def _release(self, sequence: Req) -> None:
        """Free the sequence's own tokens; those of the tree may be evicted."""
        page = self.settings.page_size
        self.pool.free += -(-sequence.computed // page) * page - sequence.in_tree
        self.pool.unlock(sequence.node)
        sequence.node, sequence.computed, sequence.in_tree = self.pool.root, 0, 0
