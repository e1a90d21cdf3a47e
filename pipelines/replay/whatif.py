"""What another setting would have done: the recorded requests, replayed under it.

First the run itself is replayed and held against what was measured of it. That fixes the one thing the calibration leaves open,
the scale of the step time (`Model.of`), and it shows how far off a replay of this engine under this load is: what it misses of
the recorded figures is the least uncertainty of every prediction, and a run it does not reproduce gets none (`why_not`).

A replay is one throw of a chaotic game: two requests in another order, and another victim is chosen. So each scenario is
replayed several times with what is not known drawn anew (the order within a step, which prompts begin alike, what other halves of
the evidence say of step time), and what is told is the mean. Nothing is done per token: times of tokens are kept as how many had
which gap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot
from random import Random
from statistics import fmean, median, pstdev

from pipelines.replay.engine import Outcome, Request, StepTime
from pipelines.replay.levers import FIGURES, Scenario
from pipelines.replay.load import Record, sharing
from pipelines.replay.recorded import Client, Episode, Measured, NotReplayableError, Recording
from pipelines.replay.requests import MODEL_ERROR

COUNTS = ("preemptions", "recomputed_tokens")
MORE_IS_BETTER = ("output_tokens_per_s",)
COUNTED_FROM = {"preemptions": 5.0, "recomputed_tokens": 1000.0, "queue_s": 1.0}  # below, a relative difference means nothing

THROWS = range(3, 10)
REQUESTS_IN_ALL = 3_000  # replayed requests after which more throws narrow nothing: many requests average out
SPREADS = 2.0  # of the throws, and of stretches around the step time, each way
LARGEST_MISS = 0.35  # of a recorded figure: a replay that misses more has not understood the run
BEYOND = 1.25  # times the recorded peak of running requests: further out, nothing recorded vouches for the step time
SWEEP_POINTS = 9


@dataclass(frozen=True)
class Told:
    """A predicted figure and its interval."""

    low: float
    best: float
    high: float


@dataclass(frozen=True)
class Prediction:
    """What a scenario did in the replays, and what limits it: how long requests waited for what."""

    scenario: Scenario
    figures: dict[str, Told]
    waiting_s: dict[str, float]
    peak_usage: float
    peak_running: int

    @property
    def limit(self) -> str | None:
        """What requests wait for longest: slots, pool or budget; None where nothing waits for a hundredth of the time."""
        longest = max(self.waiting_s, key=lambda each: self.waiting_s[each], default=None)
        is_short = longest is None or self.waiting_s[longest] < 0.01 * self.figures["duration_s"].best
        return None if is_short else longest


@dataclass(frozen=True)
class Throws:
    """The figures of each throw, and what all of them together show."""

    figures: tuple[dict[str, float], ...]
    waiting_s: dict[str, float]
    peak_usage: float
    peak_running: int

    def mean(self, name: str) -> float:
        """Over the throws."""
        return fmean(each[name] for each in self.figures)

    def spread(self, name: str) -> float:
        """Over the throws."""
        return pstdev(each[name] for each in self.figures)

    def of_one_preemption(self, name: str) -> float:
        """What a single preemption adds to a count. Where there are few, that one comes or stays away is no more than chance."""
        preemptions = self.mean("preemptions")
        return self.mean(name) / preemptions if preemptions else 0.0


@dataclass(frozen=True)
class Model:
    """A recording with what makes its replay keep its own time: the step time's scale, and the way between client and engine."""

    recording: Recording
    scale: float = 1.0
    overhead_s: float = 0.0

    def step_time(self, throw: int = 0) -> StepTime:
        """Step time, scaled to the run: in the first throw as fitted, then as parts of the evidence have it."""
        calibration = self.recording.calibration
        fitted = calibration.alternatives[throw % len(calibration.alternatives)] if throw else calibration.step_time
        return fitted.times(self.scale)

    @classmethod
    def of(cls, recording: Recording) -> Model:
        """Scale the step time so that the replayed answers take as long as the recorded ones, and see what first tokens take
        beyond the engine.
        """
        model = cls(recording)
        for _ in range(3):
            by_episode = replays(model, recording.scenario, 0)
            outcomes = [outcome for episode in by_episode for outcome in episode]
            replayed = _answer_seconds(outcomes) + model.overhead_s * recording.requests
            if replayed <= 0:
                raise NotReplayableError("the replay ends no request: no recorded one fits the KV pool")
            model = replace(
                model,
                scale=model.scale * _recorded_answer_seconds(recording) / replayed,
                overhead_s=_overhead_s(recording, by_episode, 2 * model.step_time().of(1, 1)),
            )
        return model


def _overhead_s(recording: Recording, by_episode: Sequence[Sequence[Outcome]], at_once: float) -> float:
    """What a first token takes beyond the engine, by the requests that a replay starts at once.

    Their median, where most are: else it is an accident which of the recorded ones were, and the least of them has to do.
    """
    beyond = []
    for episode, outcomes in zip(recording.episodes, by_episode, strict=True):
        if len(outcomes) == 1:  # with replicas a request's place is not its own
            records = [each for client in episode for each in client.records]
            outcome = outcomes[0]
            for each, sent, started, first in zip(
                records, outcome.sent_at, outcome.started_at, outcome.first_token_at, strict=True
            ):
                if sent is not None and started is not None and first is not None and started - sent <= at_once:
                    beyond.append(each.first_token_s - each.arrived_s - (first - sent))
    if not beyond:
        return 0.0
    return max(0.0, median(beyond) if len(beyond) > recording.requests / 2 else min(beyond))


@dataclass(frozen=True)
class SelfCheck:
    """One recorded figure and the replay's: what the replay misses is a share of the larger of both.

    `is_within` where the replay's lies in the range in which the recorded one is known.
    """

    name: str
    recorded: float
    replayed: float
    miss: float
    is_within: bool = False


# replays


def replays(model: Model, scenario: Scenario, throw: int) -> list[list[Outcome]]:
    """One throw: the outcomes of each episode, one a replica."""
    rng = Random(throw)  # noqa: S311 (the same question gets the same answer)
    return [_replayed(model, episode, scenario, rng, throw) for episode in _asked(model.recording.episodes, scenario, rng)]


def _asked(episodes: Sequence[Episode], scenario: Scenario, rng: Random) -> Sequence[Episode]:
    """The episodes; where the client is asked about, one with a client as asked for."""
    if scenario.concurrency is None and scenario.requests is None:
        return episodes
    records = [each for episode in episodes for client in episode for each in client.records]
    count = scenario.requests or len(records)
    drawn: list[Record] = [] if scenario.requests else records
    while len(drawn) < count:
        drawn += rng.sample(records, min(len(records), count - len(drawn)))
        records = [replace(each, content=None) for each in records]  # drawn again it is another request of that length
    closed = [client for episode in episodes for client in episode if client.concurrency]
    most = scenario.concurrency or max((client.concurrency or 0 for client in closed), default=0)
    if not most:
        raise NotReplayableError(
            "requests can be drawn anew only for a client that keeps a number in flight: set concurrency, too"
        )
    think_s = fmean(client.think_s for client in closed) if closed else 0.0
    return [(Client(tuple(replace(each, arrived_s=0.0) for each in drawn), most, think_s),)]


def _replayed(model: Model, episode: Episode, scenario: Scenario, rng: Random, throw: int) -> list[Outcome]:
    """An episode from its first request to its last token, on each replica."""
    step_time = model.step_time(throw)
    usual_step = step_time.of(1, 1)
    began = min(client.started_s for client in episode)
    requests: list[Request] = []
    limits: dict[int, int] = {}
    for stream, client in enumerate(episode):
        limit = client.concurrency and max(1, round(client.concurrency * scenario.arrival_rate))
        start = (client.started_s - began) / scenario.arrival_rate
        for i, each in enumerate(client.records):
            if limit is None:
                arrived = (each.arrived_s - began) / scenario.arrival_rate + rng.random() * usual_step
            elif i < limit:  # sent at once, and read by the engine in any order within a step
                arrived = start + rng.random() * usual_step
            else:
                arrived = start + usual_step * (1 + i / len(client.records))
            prompt = min(each.prompt_tokens, scenario.max_prompt_tokens or each.prompt_tokens)
            output = min(each.output_tokens, scenario.max_tokens or each.output_tokens)
            requests.append(
                Request(
                    arrived,
                    prompt,
                    output,
                    stream=stream,
                    content=each.content and (each.content if prompt == each.prompt_tokens else each.content.until(prompt)),
                    max_tokens=min(each.max_tokens or output, scenario.max_tokens or each.max_tokens or output),
                    ignores_eos=bool(each.ignores_eos),
                )
            )
        if limit is not None:
            limits[stream] = limit
    block_size = scenario.settings.block_size
    shared = sharing(requests, rng, hit_share=scenario.hit_share, block_size=block_size, families=2 ** (throw % 3))
    think_s = max((client.think_s for client in episode), default=0.0) + model.overhead_s
    replay, outcomes = model.recording.model.replay, []
    for replica in range(scenario.replicas):
        dealt = shared[replica :: scenario.replicas]
        share = {
            stream: max(1, limit // scenario.replicas + (replica < limit % scenario.replicas)) for stream, limit in limits.items()
        }
        if dealt:
            outcomes.append(replay(scenario.settings, step_time, dealt, concurrency=share, think=think_s).run())
    return outcomes


def throws(model: Model, scenario: Scenario) -> Throws:
    """Replay a scenario several times."""
    made: list[dict[str, float]] = []
    waiting: dict[str, list[float]] = {}
    peak_usage, peak_running, replayed = 0.0, 0, 0
    while len(made) < THROWS.start or (len(made) < THROWS.stop - 1 and replayed < REQUESTS_IN_ALL):
        by_episode = replays(model, scenario, len(made))
        outcomes = [outcome for episode in by_episode for outcome in episode]
        made.append(_figures(model, by_episode))
        for cause in ("slots", "pool", "budget"):
            waiting.setdefault(cause, []).append(sum(dict(each.waiting).get(cause, 0.0) for each in outcomes))
        peak_usage = max(peak_usage, *(each.peak_usage for each in outcomes))
        peak_running = max(peak_running, *(each.peak_running for each in outcomes))
        replayed += sum(len(each.finished_at) for each in outcomes)
    return Throws(tuple(made), {cause: fmean(each) for cause, each in waiting.items()}, peak_usage, peak_running)


def _figures(model: Model, by_episode: Sequence[Sequence[Outcome]]) -> dict[str, float]:
    outcomes = [outcome for episode in by_episode for outcome in episode]
    waits = sorted(each + model.overhead_s for each in _first_token_waits(outcomes))
    duration = sum(max(each.ended_at for each in episode) for episode in by_episode)
    tokens = sum(n for each in outcomes for _, n in each.token_gaps) + len(waits)
    middle, tail = _gap_quantiles([gap for each in outcomes for gap in each.token_gaps], model, (0.5, 0.99))
    return {
        "preemptions": float(sum(len(each.preemptions) for each in outcomes)),
        "recomputed_tokens": float(sum(each.recomputed_tokens for each in outcomes)),
        "queue_s": sum(seconds for each in outcomes for _, seconds in each.waiting),
        "duration_s": duration,
        "output_tokens_per_s": tokens / duration if duration else 0.0,
        "ttft_p50_ms": 1e3 * _quantile(waits, 0.5),
        "ttft_p99_ms": 1e3 * _quantile(waits, 0.99),
        "itl_p50_ms": 1e3 * middle,
        "itl_p99_ms": 1e3 * tail,
    }


def _first_token_waits(outcomes: Iterable[Outcome]) -> list[float]:
    return [
        first - sent
        for each in outcomes
        for first, sent in zip(each.first_token_at, each.sent_at, strict=True)
        if first is not None and sent is not None
    ]


def _answer_seconds(outcomes: Iterable[Outcome]) -> float:
    """From sending to last token, summed over the requests."""
    return sum(
        end - sent
        for each in outcomes
        for end, sent in zip(each.finished_at, each.sent_at, strict=True)
        if end is not None and sent is not None
    )


def _recorded_answer_seconds(recording: Recording) -> float:
    return sum(
        each.finished_s - each.arrived_s for episode in recording.episodes for client in episode for each in client.records
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def _gap_quantiles(gaps: Sequence[tuple[float, int]], model: Model, shares: Sequence[float]) -> list[float]:
    """Quantiles of the time between tokens: steps with their scatter, and pauses, which are sums of steps and scatter little."""
    longest_step = max((time for time, count in gaps if count > 1), default=0.0)
    binned: dict[float, float] = {}
    for time, count in gaps:
        if time > 0:
            center = _binned(time)
            binned[center] = binned.get(center, 0.0) + count
    spread: dict[float, float] = {}
    for time, count in binned.items():
        is_step = time <= longest_step
        fitted = time / model.scale if is_step else time  # the scatter is around the step time as it was fitted
        for weight, ratio in model.recording.calibration.noise if is_step else ((1.0, 1.0),):
            spread[fitted * ratio] = spread.get(fitted * ratio, 0.0) + count * weight
    total = sum(spread.values())
    ordered = sorted(spread.items())
    cumulative, reached = [], 0.0
    for _, weight in ordered:
        reached += weight
        cumulative.append(reached)
    return [ordered[min(bisect_left(cumulative, share * total), len(ordered) - 1)][0] if ordered else 0.0 for share in shares]


def _binned(time: float) -> float:
    digits = f"{time:.2e}"  # three digits are finer than any step time is known
    return float(digits)


# what is told


@dataclass(frozen=True)
class WhatIf:
    """A run that can be asked: its model, how well it reproduces itself, and the recorded scenario as replayed."""

    model: Model
    checks: tuple[SelfCheck, ...]
    before: Throws

    @classmethod
    def of(cls, recording: Recording) -> WhatIf:
        """Calibrate, replay the run itself, and refuse where it is not reproduced. NotReplayableError says why."""
        model = Model.of(recording)
        before = throws(model, recording.scenario)
        checks = tuple(
            _check(name, recording.measured[name], before.mean(name)) for name in FIGURES if name in recording.measured
        )
        told = cls(model, checks, before)
        if reason := why_not(checks, model.scale):
            raise NotReplayableError("; or else ".join((reason, *(f"it is not so that {each}" for each in recording.guesses))))
        return told

    def predict(self, changes: Mapping[str, str]) -> tuple[Prediction, tuple[str, ...]]:
        """The figures under the changes, and the sentences that the levers leave. LeverError where one makes no sense."""
        recording = self.model.recording
        scenario, notes = recording.model.applied(recording.scenario, changes, recording.facts)
        return self._told(throws(self.model, scenario), scenario), notes

    def recorded(self) -> Prediction:
        """The run itself, as replayed: what `predict` is to be compared with."""
        return self._told(self.before, self.model.recording.scenario)

    def _told(self, made: Throws, scenario: Scenario) -> Prediction:
        misses = {each.name: each.miss for each in self.checks}
        is_beyond = made.peak_running > BEYOND * self.before.peak_running
        figures = {}
        for name in FIGURES:
            best = made.mean(name)
            error = hypot(misses.get(name, 0.0), MODEL_ERROR["replay"])
            if name not in COUNTS:  # a matter of step time as well: what its fit leaves, and what the run's own scale adds
                error = hypot(error, SPREADS * self.model.recording.calibration.residual, self.model.scale - 1)
            half = hypot(SPREADS * made.spread(name), best * error * (2 if is_beyond else 1))
            if name in COUNTS:
                half = max(half, made.of_one_preemption(name))
            least, most = min(each[name] for each in made.figures), max(each[name] for each in made.figures)
            figures[name] = Told(max(0.0, min(best - half, least)), best, max(best + half, most))
        if figures["preemptions"].high == 0 and made.peak_usage > 1 - MODEL_ERROR["replay"]:
            figures |= self._at_the_brim(scenario, figures)
        return Prediction(scenario, figures, made.waiting_s, made.peak_usage, made.peak_running)

    def _at_the_brim(self, scenario: Scenario, figures: Mapping[str, Told]) -> dict[str, Told]:
        """The counts of a pool that was nearly full and held: as much as the model may be off would have been too much for it."""
        tight = replace(scenario, settings=scenario.settings.of_pool(1 - MODEL_ERROR["replay"]))
        found = _figures(self.model, replays(self.model, tight, 0))
        return {name: replace(figures[name], high=max(figures[name].high, found[name])) for name in COUNTS}


def _check(name: str, measured: Measured, replayed: float) -> SelfCheck:
    recorded, least = measured.best, COUNTED_FROM.get(name, 0.0)
    larger = max(recorded, replayed, least)
    miss = abs(recorded - replayed) / larger if larger else 0.0
    return SelfCheck(name, recorded, replayed, miss, is_within=measured.low <= replayed <= measured.high)


def why_not(checks: Sequence[SelfCheck], scale: float) -> str | None:
    """Why this run gets no prediction; None where the replay reproduces it."""
    missed = [each for each in checks if each.name in DECIDING and each.miss > LARGEST_MISS and not each.is_within]
    if missed:
        what = ", ".join(f"{each.name} {spoken(each.recorded)} recorded and {spoken(each.replayed)} replayed" for each in missed)
        return f"the replay does not reproduce the run ({what}): something acts here that it does not model"
    if not 0.5 < scale < 2:
        return f"the steps of this run take {scale:.1f} times what the gaps between its tokens say: something else takes the time"
    return None


def spoken(value: float) -> str:
    """18,937 and, below a thousand, 8.7: a mean of few replays is no finer than that."""
    return f"{value:,.{0 if value >= 1000 else 1}f}".removesuffix(".0")


DECIDING = ("preemptions", "recomputed_tokens", "queue_s", "duration_s")


# sweeps and targets


def swept(low: int, high: int, current: int | None) -> list[int]:
    """Values to try between two, even on a scale of ratios, the current one among them."""
    if high - low < SWEEP_POINTS:
        values = set(range(low, high + 1))
    else:
        values = {round(low * (high / low) ** (i / (SWEEP_POINTS - 1))) for i in range(SWEEP_POINTS)}
    return sorted(values | ({current} if current is not None and low <= current <= high else set()))


def meets(prediction: Prediction, name: str, target: float) -> bool:
    """Whether the figure, by its best estimate, is at the target or on its good side."""
    return is_met(prediction.figures[name].best, name, target)


def is_met(value: float, name: str, target: float) -> bool:
    """Whether a value of the figure is at the target or on its good side."""
    return value >= target if name in MORE_IS_BETTER else value <= target


def smallest_change(
    ask: Callable[[int], Prediction], tried: Mapping[int, Prediction], current: int, name: str, target: float
) -> int | None:
    """The value nearest to the current one that meets the target: of those tried, then nearer by halves."""
    good = sorted((value for value in tried if meets(tried[value], name, target)), key=lambda value: abs(value - current))
    if not good:
        return None
    found = good[0]
    between = [value for value in tried if min(current, found) <= value <= max(current, found) and value != found]
    bad = min(between, key=lambda value: abs(value - found), default=current)
    while abs(found - bad) > 1:
        middle = (found + bad) // 2
        if meets(ask(middle), name, target):
            found = middle
        else:
            bad = middle
    return found


def current_value(what_if: WhatIf, name: str) -> int | None:
    """The recorded value of a setting, where it is a whole number."""
    recording = what_if.model.recording
    value = recording.model.value_of(recording.scenario, name, recording.facts)
    return int(value) if value is not None and value.isdigit() else None
