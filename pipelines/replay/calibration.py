"""Step time from what a run recorded of itself: its own part, and parts for each token computed, generated, read as context.

What is fitted is a sum over stretches of an answer, not single gaps. Between two of its tokens an answer saw `steps` steps, and
in them the engine generated so many tokens for everybody, read so many of their contexts and computed so many of prompts; of all
steps together

    seconds = base * steps + computed * (prompt tokens + generated tokens) + generated * generated tokens + context * tokens read

holds exactly where a step's time is linear, whatever the network did to single chunks. Four unknowns, none negative, by least
absolute distance: stretches in which the engine stood still do not count for more than others.

Evidence, best first: iteration lines (each is a step; what passes between two of them, the gaps between tokens tell), chunks as
the client read them, whole requests. Single gaps then tell how steps scatter around that line (`noise`): a percentile of
inter-token latency is as much scatter as it is load.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations, pairwise
from math import ceil
from random import Random
from statistics import median

import polars as pl

from pipelines.replay.engine import StepTime
from pipelines.replay.load import Progress, Record

STRETCH = 8  # gaps: long against the jitter of one, short against changes of load
AT_ONCE = 0.3  # of an answer's mean gap: a shorter one is no step but late reading
SHORTEST = 4  # gaps of a stretch: in fewer, the jitter of one is what is seen
ENOUGH = 8  # stretches below which four unknowns are guesses
SAMPLED = 4_000  # stretches and gaps looked at: more narrow nothing
REFINEMENTS = 8
PARTS = 4  # of a step's time
ROUNDING = 1e-12  # of all squares: a smaller difference is none
BLOCKS, ALTERNATIVES, SAMPLED_AGAIN = 16, 6, 500
NOISE_AT = (
    *(each / 40 + 0.0125 for each in range(39)),
    0.98,
    0.9875,
    0.9925,
    0.9965,
    0.999,
)  # quantiles kept, closer in the tail


@dataclass(frozen=True)
class Stretch:
    """Steps in a row, how long they took, and what the engine did in them: prompt tokens computed, tokens generated, and tokens
    of the decoding requests' contexts read, step by step.
    """

    steps: float
    seconds: float
    prompt_tokens: float
    generated_tokens: float
    context_tokens: float = 0.0


@dataclass(frozen=True)
class Calibration:
    """Step time, the same from other halves of the evidence (`alternatives`), how far stretches lie off it (relative, in the
    median), how single steps scatter (weight, ratio), and what it rests on.
    """

    step_time: StepTime
    alternatives: tuple[StepTime, ...]
    residual: float
    noise: tuple[tuple[float, float], ...]
    method: str
    stretches: int


@dataclass(frozen=True)
class Prefills:
    """Prompt tokens computed over time, first computations and resumes."""

    times: tuple[float, ...]
    tokens: tuple[float, ...]

    @classmethod
    def of(cls, events: Sequence[tuple[float, float]]) -> Prefills:
        """From (time of the token that followed, tokens computed for it)."""
        ordered = sorted(events)
        return cls(tuple(time for time, _ in ordered), (0.0, *accumulate(tokens for _, tokens in ordered)))

    def between(self, start: float, end: float) -> float:
        """Tokens computed for tokens that came after `start` and until `end`."""
        return self.tokens[bisect_right(self.times, end)] - self.tokens[bisect_right(self.times, start)]


@dataclass(frozen=True)
class Evidence:
    """What a run recorded of its steps.

    `chunks`: stream, chunk_index, gap_s, at_s, prompt_tokens, tokens_per_chunk. `pauses`: stream, chunk_index, is_resume.
    `steps`, of iteration lines: prompt_tokens, generated_tokens, seconds. `computed_share` of prompt tokens were not found in the
    cache, `resumed_share` of the tokens a victim held were computed again.
    """

    records: Sequence[Record]
    chunks: pl.DataFrame
    pauses: pl.DataFrame
    steps: pl.DataFrame
    computed_share: float
    resumed_share: float


def calibrate(evidence: Evidence) -> Calibration | None:
    """Step time of a run by the best evidence there is; None where there is too little of any."""
    chunks, pauses = evidence.chunks, evidence.pauses
    prefills = _prefills(evidence)
    running = Running.of(_spells(chunks, pauses) if chunks.height else _answers(evidence.records))
    gaps = _stretches(chunks, pauses, prefills, running) if chunks.height else []
    if evidence.steps.height >= ENOUGH:
        stretches, method = _with_time_between(_iterations(evidence, running), gaps), "iteration lines"
    elif chunks.height:
        stretches, method = gaps, "gaps between tokens"
    else:
        stretches = _whole_requests(evidence.records, evidence.computed_share, running)
        method = "time per token of whole requests"
    if len(stretches) < ENOUGH:
        return None
    step_time, residual = fit(stretches)
    # what a client sees of a step has the network in it, so its own gaps say best how tokens scatter
    noise = _noise(step_time, chunks, pauses, prefills, running) if chunks.height else ((1.0, 1.0),)
    return Calibration(step_time, _alternatives(stretches, step_time), residual, noise, method, len(stretches))


def _alternatives(stretches: Sequence[Stretch], whole: StepTime) -> tuple[StepTime, ...]:
    """Step times from halves of the evidence, each scaled to say the same of all of it: what the whole leaves open."""
    size = ceil(len(stretches) / BLOCKS)
    blocks = [stretches[i : i + size] for i in range(0, len(stretches), size)]
    total = sum(_seconds(whole, each) for each in stretches)
    found = []
    for draw in range(ALTERNATIVES):
        chosen = Random(draw).sample(blocks, max(1, len(blocks) // 2))  # noqa: S311 (the same evidence gives the same answer)
        half = [each for block in chosen for each in block]
        part, _ = fit(half[:: max(1, len(half) // SAMPLED_AGAIN)])
        scale = total / (sum(_seconds(part, each) for each in stretches) or total)
        found.append(part.times(scale))
    return tuple(found)


def fit(stretches: Sequence[Stretch]) -> tuple[StepTime, float]:
    """Step time of the stretches, and how far they lie off it: the median distance, relative to the time foretold.

    Least absolute distance, each relative to the time foretold, by least squares with weights that are refined: an engine that
    stands still for a second does not tilt the line, and short steps of few requests count as much as long ones of many.
    """
    step_time = _least_squares(stretches, [1.0] * len(stretches))
    for _ in range(REFINEMENTS):
        weights = []
        for each in stretches:
            foretold = max(_seconds(step_time, each), 0.1 * each.seconds)
            distance = max(abs(each.seconds - foretold) / foretold, 0.01)
            weights.append(each.steps / (distance * foretold**2))
        step_time = _least_squares(stretches, weights)
    off = sorted(abs(each.seconds / max(_seconds(step_time, each), 1e-9) - 1) for each in stretches)
    return step_time, off[len(off) // 2]


def _seconds(step_time: StepTime, each: Stretch) -> float:
    computed = each.prompt_tokens + each.generated_tokens
    return step_time.base * (each.steps - 1) + step_time.of(computed, each.generated_tokens, each.context_tokens)


def _least_squares(stretches: Sequence[Stretch], weights: Sequence[float]) -> StepTime:
    """The four parts, none negative: of all subsets of parts, the one that fits best with all its parts positive."""
    rows = [
        (
            each.steps,
            each.prompt_tokens + each.generated_tokens,
            each.generated_tokens,
            each.context_tokens,
            each.seconds,
            weight,
        )
        for each, weight in zip(stretches, weights, strict=True)
    ]
    products = [[sum(row[i] * row[j] * row[-1] for row in rows) for j in range(PARTS + 1)] for i in range(PARTS + 1)]
    total = products[PARTS][PARTS]
    best, least = [0.0] * PARTS, total
    for size in range(1, PARTS + 1):
        for chosen in combinations(range(PARTS), size):
            found = _solve([[products[i][j] for j in chosen] for i in chosen], [products[i][PARTS] for i in chosen])
            if found is None or min(found) < 0:
                continue
            parts = [found[chosen.index(i)] if i in chosen else 0.0 for i in range(PARTS)]
            left = total - sum(parts[i] * products[i][PARTS] for i in range(PARTS))  # at a least-squares point
            if left < least - ROUNDING * total:  # of two that fit alike, the one with fewer parts, or the earlier ones
                best, least = parts, left
    return StepTime(*best)


def _solve(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Gauss with pivots; None where the columns depend on each other."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    scale = [abs(row[i]) for i, row in enumerate(rows)]
    size = len(rows)
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        if abs(rows[pivot][i]) <= 1e-9 * scale[i]:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(size):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [value - factor * above for value, above in zip(rows[k], rows[i], strict=True)]
    return [rows[i][size] / rows[i][i] for i in range(size)]


def _prefills(evidence: Evidence) -> Prefills:
    """What was computed before a first token, and before the token that ended a pause."""
    chunks = evidence.chunks
    if not chunks.height:
        return Prefills.of([])
    first = chunks.filter(pl.col("chunk_index") == 0).select("at_s", tokens=pl.col("prompt_tokens") * evidence.computed_share)
    held = pl.col("prompt_tokens") + pl.col("chunk_index") * pl.col("tokens_per_chunk")
    resumed = chunks.join(evidence.pauses.filter("is_resume"), on=("stream", "chunk_index"), how="semi").select(
        "at_s", tokens=held * evidence.resumed_share
    )
    return Prefills.of(list(pl.concat([first, resumed]).drop_nulls().iter_rows()))


def _with_time_between(lines: Sequence[Stretch], gaps: Sequence[Stretch]) -> list[Stretch]:
    """Iteration lines with what passes from one step to the next: a line tells the model's own time, and the engine schedules and
    hands on tokens besides.
    """
    if len(lines) < ENOUGH or len(gaps) < ENOUGH:
        return list(lines)
    own, _ = fit(lines)
    between = max(0.0, median((each.seconds - _seconds(own, each)) / each.steps for each in gaps))
    return [replace(each, seconds=each.seconds + between * each.steps) for each in lines]


def _stretches(chunks: pl.DataFrame, pauses: pl.DataFrame, prefills: Prefills, running: Running) -> list[Stretch]:
    """Answers cut into stretches, and where they were away.

    A client that reads late gets a long gap and then, all at once, what it missed. Gaps of no length belong to the one before
    them, so that together they are steps and time again.
    """
    away = pauses.filter("is_resume").with_columns(is_away=True).drop("is_resume")
    of_stream = pl.col("gap_s").mean().over("stream")
    cut = (
        chunks.filter(pl.col("chunk_index") > 0)
        .join(away, on=("stream", "chunk_index"), how="left")
        .sort("stream", "chunk_index")
        .with_columns(pl.col("is_away").fill_null(value=False), is_read_on_time=pl.col("gap_s") >= AT_ONCE * of_stream)
        .with_columns(
            part=pl.col("is_away").cum_sum().over("stream"),
            stretch=pl.col("is_read_on_time").cum_sum().over("stream") // STRETCH,
        )
        .filter(~pl.col("is_away"))
        .group_by("stream", "part", "stretch")
        .agg(
            pl.len().alias("gaps"),
            pl.col("gap_s").sum().alias("seconds"),
            pl.col("at_s").max().alias("end"),
            pl.col("tokens_per_chunk").first(),
        )
        .filter((pl.col("gaps") >= SHORTEST) & (pl.col("seconds") > 0))
        .sort("stream", "part", "stretch")
    )
    return [
        _stretch(row["gaps"] * row["tokens_per_chunk"], row["end"] - row["seconds"], row["end"], prefills, running)
        for row in _thinned(cut).iter_rows(named=True)
    ]


def _stretch(steps: float, start: float, end: float, prefills: Prefills, running: Running) -> Stretch:
    count, context = running.mean(start, end)
    return Stretch(steps, end - start, prefills.between(start, end), steps * count, steps * context)


@dataclass(frozen=True)
class Spell:
    """A time in which an answer was under way without a pause, and its tokens, prompt and all, at both ends."""

    start: float
    end: float
    tokens: float
    tokens_then: float


@dataclass(frozen=True)
class Running:
    """Answers under way over time, and all their tokens: what each step reads from the KV cache.

    Counted this way and not by chunks received: a client that reads late sees a longer stretch with more chunks in it, and that
    is no property of the engine. At `times` count, tokens and their growth change; `counted` and `read` are their integrals.
    """

    times: tuple[float, ...]
    counts: tuple[int, ...]
    tokens: tuple[float, ...]
    growths: tuple[float, ...]
    counted: tuple[float, ...]
    read: tuple[float, ...]

    @classmethod
    def of(cls, spells: Iterable[Spell]) -> Running:
        """The sum over the spells; the tokens of each grow evenly."""
        turns = []
        for each in spells:
            seconds = each.end - each.start
            growth = (each.tokens_then - each.tokens) / seconds if seconds > 0 else 0.0
            turns.append((each.start, 1, each.tokens, growth))
            turns.append((each.end, -1, -each.tokens - growth * seconds, -growth))
        rows = []
        count, tokens, growth, counted, read = 0, 0.0, 0.0, 0.0, 0.0
        before = 0.0
        for time, one, held, faster in sorted(turns):
            passed = time - before if rows else 0.0
            counted += count * passed
            read += (tokens + growth * passed / 2) * passed
            tokens += growth * passed + held
            count, growth, before = count + one, growth + faster, time
            rows.append((time, count, tokens, growth, counted, read))
        return cls(*zip(*rows, strict=True)) if rows else cls((), (), (), (), (), ())

    def mean(self, start: float, end: float) -> tuple[float, float]:
        """Answers and their tokens, over a time in which at least the answer that asks is under way."""
        if end <= start:
            return 1.0, self.at(start)
        (counted, read), (counted_then, read_then) = self._until(start), self._until(end)
        return max(1.0, (counted_then - counted) / (end - start)), max(0.0, (read_then - read) / (end - start))

    def at(self, time: float) -> float:
        """Tokens of the answers under way."""
        i = bisect_right(self.times, time) - 1
        return 0.0 if i < 0 else max(0.0, self.tokens[i] + self.growths[i] * (time - self.times[i]))

    def _until(self, time: float) -> tuple[float, float]:
        i = bisect_right(self.times, time) - 1
        if i < 0:
            return 0.0, 0.0
        passed = time - self.times[i]
        read = self.read[i] + (self.tokens[i] + self.growths[i] * passed / 2) * passed
        return self.counted[i] + self.counts[i] * passed, read


def _spells(chunks: pl.DataFrame, pauses: pl.DataFrame) -> list[Spell]:
    """Answers from their first token, or the one that ended a pause, to their last, or the one before a pause."""
    away = pauses.filter("is_resume").with_columns(is_away=True).drop("is_resume")
    held = pl.col("prompt_tokens") + (pl.col("chunk_index") + 1) * pl.col("tokens_per_chunk")
    parts = (
        chunks.join(away, on=("stream", "chunk_index"), how="left")
        .sort("stream", "chunk_index")
        .with_columns(part=pl.col("is_away").fill_null(value=False).cum_sum().over("stream"))
        .group_by("stream", "part")
        .agg(
            pl.col("at_s").min().alias("start"),
            pl.col("at_s").max().alias("end"),
            held.min().alias("tokens"),
            held.max().alias("tokens_then"),
        )
        .sort("stream", "part")
    )
    return [Spell(*row) for row in parts.select("start", "end", "tokens", "tokens_then").iter_rows()]


def _answers(records: Sequence[Record]) -> list[Spell]:
    """Whole answers: who was away, nobody wrote down."""
    return [
        Spell(each.first_token_s, each.finished_s, each.prompt_tokens + 1, each.prompt_tokens + each.output_tokens)
        for each in records
    ]


def _iterations(evidence: Evidence, running: Running) -> list[Stretch]:
    """Iteration lines, some together. They do not tell the contexts read: the answers do, when as much was generated."""
    progress = Progress.of(evidence.records)
    together = (
        evidence.steps.with_row_index()
        .group_by(pl.col("index") // STRETCH, maintain_order=True)
        .agg(pl.len().alias("steps"), pl.col("seconds", "prompt_tokens", "generated_tokens").sum())
        .with_columns(done=pl.col("generated_tokens").cum_sum() - pl.col("generated_tokens") / 2)
    )
    generated = float(together["generated_tokens"].sum())
    scale = progress.tokens[-1] / generated if generated and progress.tokens else 0.0
    return [
        Stretch(
            row["steps"],
            row["seconds"],
            row["prompt_tokens"],
            row["generated_tokens"],
            row["steps"] * running.at(progress.when(row["done"] * scale)),
        )
        for row in _thinned(together).iter_rows(named=True)
    ]


def _noise(
    step_time: StepTime, chunks: pl.DataFrame, pauses: pl.DataFrame, prefills: Prefills, running: Running
) -> tuple[tuple[float, float], ...]:
    """Single gaps over the step they should have been, at quantiles: how steps, and the way to the client, scatter."""
    gaps = _thinned(chunks.filter(pl.col("chunk_index") > 0).join(pauses, on=("stream", "chunk_index"), how="anti"))
    # chunks of one step reach the client within a fraction of a step of each other, in any order
    slack = 0.3 * (gaps["gap_s"].median() or 0.0)  # type: ignore[operator]
    ratios = []
    for at, gap in zip(gaps["at_s"], gaps["gap_s"], strict=True):
        count, context = running.mean(at - gap - slack, at + slack)
        usual = step_time.of(count + prefills.between(at - gap + slack, at + slack), count, context)
        if usual > 0:
            ratios.append(gap / usual)
    return _quantiles(ratios)


def _quantiles(ratios: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """(weight, ratio) at NOISE_AT, each standing for the values up to halfway to its neighbours."""
    if not ratios:
        return ((1.0, 1.0),)
    ordered = sorted(ratios)
    edges = [0.0, *((low + high) / 2 for low, high in pairwise(NOISE_AT)), 1.0]
    return tuple(
        (edges[i + 1] - edges[i], ordered[min(int(at * len(ordered)), len(ordered) - 1)]) for i, at in enumerate(NOISE_AT)
    )


def _whole_requests(records: Sequence[Record], computed_share: float, running: Running) -> list[Stretch]:
    """Requests from first to last token, where nobody wrote down the tokens between."""
    progress = Progress.of(records)
    prefills = Prefills.of([(each.first_token_s, each.prompt_tokens * computed_share) for each in records])
    long_enough = [each for each in records if each.output_tokens > 1 and each.finished_s > each.first_token_s]
    return [
        Stretch(
            each.output_tokens - 1,
            each.finished_s - each.first_token_s,
            prefills.between(each.first_token_s, each.finished_s),
            progress.at(each.finished_s) - progress.at(each.first_token_s),
            (each.output_tokens - 1) * running.mean(each.first_token_s, each.finished_s)[1],
        )
        for each in long_enough[:: max(1, len(long_enough) // SAMPLED)]
    ]


def _thinned(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.gather_every(max(1, rows.height // SAMPLED))
