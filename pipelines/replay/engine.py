"""What the replays of all engines share: the load, the clock, the clients that send, and what comes of it.

A `Replay` is one engine from an empty pool over a list of requests. What its scheduler does in a step is its own module's to say:
`vllm` and `sglang`. Here is what does not depend on it: who sends when, how time passes, what is kept of it.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, frexp, inf, ldexp, sqrt
from typing import Protocol, Self, TypedDict, Unpack

GAP_BINS = 2**13  # of the time between tokens, up to its double


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
class Content:
    """What the leading `tokens` of a request are, as far as it is known: blocks of `size` tokens, the last perhaps not full.

    A block's number stands for itself and all before it: requests that begin alike begin with the same numbers. The blocks are
    of whoever wrote them down, a trace of 512 tokens as well as the engine's own of 16.
    """

    blocks: tuple[int, ...]
    size: int
    tokens: int

    @classmethod
    def of(cls, blocks: Sequence[int], size: int) -> Content:
        """Of full blocks."""
        return cls(tuple(blocks), size, len(blocks) * size)

    def until(self, tokens: int) -> Content:
        """The same, cut after so many tokens."""
        return self if tokens >= self.tokens else Content(self.blocks[: ceil(tokens / self.size)], self.size, tokens)

    def key(self, end: int) -> tuple[int, int, int]:
        """What tells a block that ends there from every other: it and all before it are known by the number at its end."""
        number = (end - 1) // self.size
        return self.blocks[number], end - number * self.size, self.size


@dataclass(frozen=True)
class Request:
    """One request of the replay. `stream` names the client it belongs to; `shared_blocks` blocks of its prompt are the same for
    all requests of one `prefix`. Where it is known what it begins with, `content` says it instead.

    `max_tokens` is how long an answer it allows; None where it is as long as the answer. `ignores_eos`: it goes on until then.
    """

    arrived: float
    prompt_tokens: int
    output_tokens: int
    stream: int = 0
    prefix: int = 0
    shared_blocks: int = 0
    content: Content | None = None
    max_tokens: int | None = None
    ignores_eos: bool = False


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


class EngineSettings(Protocol):
    """What every scheduler is given: enough to share its prefixes out, and to ask the same of a smaller pool."""

    @property
    def block_size(self) -> int:
        """Tokens that are found in the prefix cache together."""
        ...

    @property
    def is_caching(self) -> bool:
        """Whether there is a prefix cache."""
        ...

    def of_pool(self, share: float) -> Self:
        """The same with so large a share of the pool."""
        ...


class Clients(TypedDict, total=False):
    """How a load is sent. `concurrency` limits the requests of each stream in flight, as a load generator does: the next is sent
    `think` after one ends, not before its own arrival. Streams without an entry are open: their requests arrive when they arrive.
    """

    concurrency: Mapping[int, int] | None
    think: float


class Replay(ABC):
    """One engine, from an empty pool, over requests in order of arrival."""

    def __init__(self, step_time: StepTime, requests: Sequence[Request], **clients: Unpack[Clients]) -> None:
        self.step_time = step_time
        self.requests = requests
        self.now = 0.0
        self.step = 0
        self._limits = clients.get("concurrency") or {}
        self._think = clients.get("think", 0.0)
        self._returns: list[tuple[float, int]] = []  # (when, request) that a client sends next, each in flight already
        self._in_flight = dict.fromkeys(self._limits, 0)
        self._held: dict[int, deque[int]] = {stream: deque() for stream in self._limits}
        self._arrivals = sorted(range(len(requests)), key=lambda i: (requests[i].arrived, i))
        self._next_arrival = 0
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
        while self._has_work() or self._returns or self._next_arrival < len(self._arrivals):
            self._arrive()
            if not self._has_work():
                self._rest()
                self.now = self._next_arrival_at()
            elif not self._can_jump():
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
            evictions=self._evictions(),
            peak_usage=self._peak,
            sent_at=tuple(self._sent),
            token_gaps=tuple(self._gaps.items()),
            waiting=tuple(sorted(self._waiting_for.items())),
            peak_running=self._peak_running,
        )

    # what the engine's own module says

    @abstractmethod
    def _has_work(self) -> bool:
        """Whether requests are running or waiting."""

    @abstractmethod
    def _never_fits(self, request: Request) -> bool:
        """Whether the engine refuses it at once."""

    @abstractmethod
    def _receive(self, index: int) -> None:
        """The request joins the waiting queue."""

    @abstractmethod
    def _can_jump(self) -> bool:
        """Pass over the steps in which nothing changes but time; whether there were any."""

    @abstractmethod
    def _step(self) -> None:
        """One step of the engine."""

    @abstractmethod
    def _evictions(self) -> int:
        """Blocks whose content the pool lost."""

    def _rest(self) -> None:  # noqa: B027 (most engines do nothing)
        """Nothing runs or waits: what the engine does then."""

    # clients

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
        if self._never_fits(request):
            self._send_next(request.stream)
            return
        self._sent[index] = self.now
        self._receive(index)

    def _send_next(self, stream: int) -> None:
        """A request of the stream has come back: its client sends the next."""
        if stream not in self._limits:
            return
        if self._held[stream]:
            heapq.heappush(self._returns, (self.now + self._think, self._held[stream].popleft()))
        else:
            self._in_flight[stream] -= 1


def binned(time: float) -> float:
    """The time to a ten-thousandth of itself: with the contexts it changes at every step, and there are many steps."""
    mantissa, exponent = frexp(time)
    return ldexp(round(mantissa * GAP_BINS) / GAP_BINS, exponent)


def steps_until(time: float, first: float, longer: float) -> float:
    """How many steps pass until then: the first takes `first`, each `longer` than the one before it."""
    usual = first - longer / 2  # the sum of k steps is k * usual + k * k * longer / 2
    return ceil(2 * time / (usual + sqrt(usual**2 + 2 * longer * time))) if usual > 0 else inf
