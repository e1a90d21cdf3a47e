"""Whom SGLang admits: what its scheduler is given, the requests under way, what is counted on, and the batch that comes of it.

To be read beside SGLang's `srt/managers/schedule_policy.py`: `Req` and `PrefillAdder` are its own, `NewTokenRatio` its
`new_token_ratio`. When a batch is made, and what follows from it, is `sglang`'s.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from pipelines.replay.engine import Preemption, Request
from pipelines.replay.radix import Node, RadixPool, Span, Spans

# what no argument sets, by the names it has in SGLang's environment
INIT_NEW_TOKEN_RATIO, MIN_NEW_TOKEN_RATIO_FACTOR, NEW_TOKEN_RATIO_DECAY_STEPS = 0.7, 0.14, 600
RETRACT_DECODE_STEPS = 20
CLIP_MAX_NEW_TOKENS = 4096
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
        """Settings with the scheduler's rules as the version has them; as the newest has them where it is not known."""
        rules = version and {
            "are_answers_discounted": version >= (0, 5, 4),
            "is_page_set_aside": version >= (0, 5, 10),
            "must_many_steps_fit": version < (0, 5, 2),
            "is_eviction_exact": version >= (0, 5, 18),
            "is_ignored_end_exact": version >= (0, 5, 23),
        }
        return cls(**{**(rules or {}), **given})  # type: ignore[arg-type]

    @property
    def block_size(self) -> int:
        """Tokens that are found in the radix cache together: a page."""
        return self.page_size

    def of_pool(self, share: float) -> Settings:
        """The same with so large a share of the pool."""
        return replace(self, max_total_num_tokens=int(share * self.max_total_num_tokens))


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

    def after_retraction(self, kept: Sequence[Req]) -> None:
        """What those that were kept have generated, and some steps more, of all they may."""
        generated = sum(each.outputs for each in kept) + RETRACT_DECODE_STEPS * len(kept)
        self.now = min(1.0, generated / (sum(each.max_new_tokens for each in kept) + 1))


class Req:
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
        """Prompt and answer so far."""
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


class PrefillAdder:
    """Who is admitted to one prefill batch: SGLang's PrefillAdder. Its two offsets are what admission counts on, in tokens."""

    def __init__(self, settings: Settings, pool: RadixPool, running: Sequence[Req], ratio: float) -> None:
        self.batch: list[tuple[Req, int]] = []
        self.unfinished: Req | None = None  # what the chunk did not hold
        self._settings = settings
        self._pool = pool
        self._running = running
        self._ratio = ratio
        self._chunk = inf if settings.chunked_prefill_size is None else settings.chunked_prefill_size
        self._input = settings.max_prefill_tokens
        self._current = 0.0
        self._total = self._still_to_come(running)
        self._ends: list[tuple[float, int]] | None = None

    def is_spent(self) -> bool:
        """Whether this batch has no budget left."""
        return self._input <= 0 or self._chunk <= 0

    def is_full(self) -> bool:
        """Whether the pool has no token left that nobody counts on."""
        return self._room - self._total <= 0 or self._room - self._current <= 0

    def go_on(self, sequence: Req) -> None:
        """The next chunk of a prefill that is under way; it has to make progress, whether there is room or not."""
        left = min(self._chunk, int(self._room - self._total))
        tokens = min(sequence.tokens - sequence.computed, left if left > 0 else self._chunk)
        self._take(sequence, int(tokens))

    def add(self, sequence: Req) -> str | None:
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

    def _short(self, sequence: Req, tokens: int) -> str | None:
        if not self._settings.is_caching and sequence.request.ignores_eos:
            return None if self._fits_to_the_end(sequence, tokens) else "pool"
        to_come = sequence.max_new_tokens - (sequence.outputs if self._settings.are_answers_discounted else 0)
        aside = self._settings.page_size if self._settings.is_page_set_aside else 0
        if tokens + min(max(to_come, 0), CLIP_MAX_NEW_TOKENS) + aside >= self._room - self._total:
            return "pool"
        return "budget" if self._chunk == inf and self.batch and self._paged(tokens) >= self._input else None

    def _fits_to_the_end(self, sequence: Req, tokens: int) -> bool:
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

    def _expect(self, sequence: Req) -> None:
        share = 1.0 if sequence.request.ignores_eos else self._ratio
        left = sequence.max_new_tokens * share - sequence.outputs
        if left > 0 and self._ends is not None:
            insort(self._ends, (left, sequence.tokens))

    def _take(self, sequence: Req, tokens: int) -> None:
        is_whole = sequence.computed + tokens >= sequence.tokens
        self.batch.append((sequence, tokens))
        paged = self._paged(tokens) + (self._settings.page_size if self._settings.is_page_set_aside else 0)
        self._total += paged + (min(sequence.max_new_tokens, CLIP_MAX_NEW_TOKENS) if is_whole else 0)
        self._current += paged
        self._input -= self._paged(tokens)
        self._chunk -= self._paged(tokens)
        self.unfinished = None if is_whole else sequence

    def _still_to_come(self, running: Sequence[Req]) -> float:
        """What the running ones are counted on to generate yet. Asked for each batch: a loop, and no call for each of them."""
        tokens = 0.0
        for each in running:
            left = min(each.max_new_tokens - each.outputs, CLIP_MAX_NEW_TOKENS)
            is_exact = each.request.ignores_eos and self._settings.is_ignored_end_exact
            tokens += left if is_exact else left * self._ratio
        return tokens

    @property
    def _room(self) -> int:
        return self._pool.free + self._pool.evictable

    def _paged(self, tokens: int) -> int:
        return -(-tokens // self._settings.page_size) * self._settings.page_size
