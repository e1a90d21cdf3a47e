"""Recomputed tokens, by replaying the load over the pool: `replay` of recorded requests, `preemption_counter` of described ones.

One replay is one throw of a chaotic game: two requests in another order, and another victim is chosen. So the load is replayed
several times, each time with what is not known drawn anew, and the preemptions the engine counted pick the answer: over the
replays, tokens are a straight line over preemptions, read at the count. How far the replays lie off that line is the game's own
spread; what the replay does not model comes on top (MODEL_ERROR).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import hypot
from random import Random
from statistics import fmean, pstdev

import polars as pl

from pipelines.models import Run, python_model
from pipelines.replay.engine import PROGRESS, Content, Outcome
from pipelines.replay.load import Bucket, Draw, Interval, Progress, Record, described, observed, sharing
from pipelines.replay.vllm import Replay, Settings
from pipelines.replay.vllm_settings import BY_PRIORITY, is_by_priority, settings_of

Row = Mapping[str, object]

# What the replay leaves out: the asynchronous scheduler's lag, which prompts really begin alike, the order within one step. A
# resume finds up to one block more or less for each of them, and contexts are of the order of ten blocks: a tenth. Lengths
# known only by their bucket double what is not known of a context.
MODEL_ERROR = {"replay": 0.10, "preemption_counter": 0.15}
SPREADS = 3.0  # of the replays around their line, each way
REPLAYS = range(4, 17)
MOST_DESCRIBED = 3_000  # requests that counters describe and a replay plays; of a longer recording, STRETCHES of it are played
STRETCHES = 4
REQUESTS_IN_ALL = 12_000  # replayed requests after which more replays no longer narrow anything: many requests average out


@dataclass(frozen=True)
class Throw:
    """What one replay gave: within the time that the counters cover, and in all."""

    preemptions_seen: int
    preemptions: int
    lost_tokens: int
    recomputed_tokens: int


@dataclass(frozen=True)
class Estimate:
    """Recomputed tokens and preemptions, each with its range."""

    tokens: tuple[float, float, float]
    preemptions: tuple[float, float, float]
    replayed_preemptions: float
    replays: int


def throws(
    settings: Settings, draw: Draw, *, hit_share: float, until: float | None = None, enough: int = REQUESTS_IN_ALL
) -> list[Throw]:
    """Replay the load several times, until `enough` requests were.

    `until` ends what the counters cover, in tokens generated; None where they cover all.
    """
    made: list[Throw] = []
    replayed = 0
    while len(made) < REPLAYS.start or (len(made) < REPLAYS.stop - 1 and replayed < enough):
        rng = Random(len(made))  # noqa: S311 (the same evidence gives the same answer)
        requests = sharing(draw(rng), rng, hit_share=hit_share, block_size=settings.block_size, families=2 ** (len(made) % 3))
        made.append(_throw(Replay(settings, PROGRESS, requests).run(), until))
        replayed += len(requests)
    return made


def _throw(outcome: Outcome, until: float | None) -> Throw:
    seen = sum(until is None or each.at <= until for each in outcome.preemptions)
    return Throw(seen, len(outcome.preemptions), outcome.lost_tokens, outcome.recomputed_tokens)


def estimate(made: Sequence[Throw], *, counted: float | None, model_error: float, unseen: float = 0.0) -> Estimate:
    """What the replays say, given that the engine counted so many preemptions (None: it did not say).

    `unseen` preemptions, at most, happened to requests that nothing recorded.
    """
    seen = [each.preemptions_seen for each in made]
    tokens = [each.recomputed_tokens for each in made]
    every = [each.preemptions for each in made]
    if counted is None:
        best, spread, count = fmean(tokens), pstdev(tokens), fmean(every)
        beyond = hypot(SPREADS * pstdev(every), 2 * model_error * count)
        off = 0.0
    else:
        best, spread = _line_at(seen, tokens, counted)
        tail = [each.preemptions - each.preemptions_seen for each in made]
        # what came after the counters' end is as sure as a replay without a count, and requests may have come that none saw
        count, beyond = counted + fmean(tail), hypot(SPREADS * pstdev(tail), 2 * model_error * fmean(tail)) + unseen
        # a replay that counts otherwise than the engine did is believed less: half of what its count would change
        proportional = best if not fmean(seen) else fmean(tokens) * (counted + fmean(tail)) / (fmean(seen) + fmean(tail))
        off = abs(proportional - best) / 2
    half = hypot(SPREADS * spread, off, model_error * best)  # they have nothing to do with each other
    most_lost = max((each.lost_tokens / each.preemptions for each in made if each.preemptions), default=0.0)
    count_high = count + beyond
    return Estimate(
        tokens=(max(0.0, best - half), best, max(best, min(best + half + unseen * most_lost, most_lost * count_high))),
        preemptions=(counted if counted is not None else max(0.0, count - beyond), count, count_high),
        replayed_preemptions=fmean(every),
        replays=len(made),
    )


def of_counters(settings: Settings, intervals: Sequence[Interval], seen: Seen, *, unseen: float) -> Estimate:
    """What replays of the load that the counters describe say.

    A day may have hundreds of thousands of requests, and replaying them all would say no more of what a preemption costs. So of a
    long recording the stretches that hold most preemptions are played, one of each part of it, and stand for the rest.
    """
    parts = stretches(intervals, seen.first_in_flight)
    is_whole = len(parts) == 1
    counted = seen.preemptions if is_whole else sum(each.preemptions for _, part in parts for each in part)
    share = (seen.preemptions or 0.0) / counted if counted and not is_whole else 1.0
    told = []
    for in_flight, part in parts:
        until, enough = sum(each.generated for each in part), REQUESTS_IN_ALL // len(parts)
        made = throws(settings, described(part, in_flight), hit_share=seen.hit_share, until=until, enough=enough)
        of_part = counted if is_whole else sum(each.preemptions for each in part)
        beyond = unseen if is_whole else 0.0
        told.append(estimate(made, counted=of_part, model_error=MODEL_ERROR["preemption_counter"], unseen=beyond))
    if is_whole:
        return told[0]
    low, best, high = (share * sum(each.tokens[bound] for each in told) for bound in range(3))
    all_of_them = seen.preemptions or 0.0
    return Estimate(
        tokens=(low, best, high * (1 + unseen / all_of_them) if all_of_them else high),
        preemptions=(all_of_them, all_of_them, all_of_them + unseen),
        replayed_preemptions=share * sum(each.replayed_preemptions for each in told),
        replays=sum(each.replays for each in told),
    )


def stretches(intervals: Sequence[Interval], in_flight: int) -> list[tuple[int, Sequence[Interval]]]:
    """The parts of a recording to replay, each with the requests in flight when it begins: all of it, where it is short.

    Else the recording is cut into parts of equally many preemptions, and of each the stretch with most of them is taken.
    """
    if sum(each.finished for each in intervals) <= MOST_DESCRIBED:
        return [(in_flight, intervals)]
    total, before, bounds = sum(each.preemptions for each in intervals), 0.0, [0]
    for number, each in enumerate(intervals):
        before += each.preemptions
        if len(bounds) < STRETCHES and before >= total * len(bounds) / STRETCHES:
            bounds.append(number + 1)
    found = []
    for first, last in pairwise([*bounds, len(intervals)]):
        start, end = _densest(intervals[first:last], MOST_DESCRIBED // STRETCHES)
        if end > start:
            begins_with = intervals[first + start - 1].in_flight if first + start else in_flight
            found.append((begins_with, intervals[first + start : first + end]))
    return found


def _densest(intervals: Sequence[Interval], most: int) -> tuple[int, int]:
    """The bounds of the run of intervals with at most so many finished requests (or one interval) that has most preemptions."""
    best, bounds, start, finished, preempted = -1.0, (0, 0), 0, 0, 0.0
    for number, each in enumerate(intervals):
        finished += each.finished
        preempted += each.preemptions
        while finished > most and start < number:
            finished -= intervals[start].finished
            preempted -= intervals[start].preemptions
            start += 1
        if preempted > best:
            best, bounds = preempted, (start, number + 1)
    return bounds


def _line_at(counts: Sequence[float], tokens: Sequence[float], count: float) -> tuple[float, float]:
    """The replays' tokens at that count, on the straight line of tokens over counts, and how far they lie off it.

    Its slope is held between none and proportional: a preemption more cannot save tokens, nor cost more than the usual one.
    """
    count_mean, mean = fmean(counts), fmean(tokens)
    variance = fmean((each - count_mean) ** 2 for each in counts)
    if not count_mean:
        return mean, pstdev(tokens)
    covariance = fmean((each - count_mean) * (value - mean) for each, value in zip(counts, tokens, strict=True))
    proportional = mean / count_mean
    slope = min(max(covariance / variance, 0.0), proportional) if variance else proportional
    # far from where the replays lie their own scatter says nothing: there it is one more preemption, one more share
    if abs(count - count_mean) > 2 * variance**0.5:
        slope = proportional
    off = [value - mean - slope * (each - count_mean) for each, value in zip(counts, tokens, strict=True)]
    return max(0.0, mean + slope * (count - count_mean)), pstdev(off)


SCHEMA = {
    "engine": pl.String,
    "method": pl.String,
    "tokens_low": pl.Float64,
    "tokens_best": pl.Float64,
    "tokens_high": pl.Float64,
    "preemptions_low": pl.Float64,
    "preemptions_best": pl.Float64,
    "preemptions_high": pl.Float64,
    "replayed_preemptions": pl.Float64,
    "replays": pl.Int64,
    "requests": pl.Int64,
    "reason": pl.String,
}
READS = (
    "core.engines",
    "core.engine_settings",
    "core.requests",
    "core.counter_intervals",
    "core.histogram_intervals",
    "core.engine_states",
)
LENGTHS = ("request_prompt_tokens", "request_generation_tokens")
COUNTED = ("preemptions", "generation_tokens", *(f"{length}_{part}" for length in LENGTHS for part in ("count", "sum")))
RECORDED = (
    *("request_key", "source", "run_index", "arrived_at", "first_token_at", "finished_at"),
    *("input_tokens", "output_tokens", "max_tokens", "ignores_eos"),
)
NOT_TOLD: Mapping[str, Content] = {}
FOUND = ("prompt_tokens", "prompt_tokens_by_source", "cached_prompt_tokens", "prefix_hits")  # in the prefix cache, or not
SEEN = (*COUNTED, *FOUND)  # of the counters, what `Seen` reads


@python_model(
    "core.recompute_replays",
    reads=READS,
    only={"core.counter_intervals": f"signal in {SEEN}", "core.histogram_intervals": f"signal in {LENGTHS}"},
)
def recompute_replays(tables: Mapping[str, pl.DataFrame], run: Run) -> pl.DataFrame:  # noqa: ARG001
    """Recomputed tokens as a replay of the recorded load over the engine's block pool gives them.

    Two ways to know the load: requests that a client or spans recorded (replay), or counters, gauges and histograms that
    describe them (preemption_counter). Where the engine counted no preemption, nothing is replayed.

    grain: engine, method
    column: engine               VARCHAR | Engine.
    column: method               VARCHAR | replay or preemption_counter.
    column: tokens_low           DOUBLE  | Least recomputed tokens; NULL where there was no replay.
    column: tokens_best          DOUBLE  | Expected recomputed tokens.
    column: tokens_high          DOUBLE  | Most recomputed tokens.
    column: preemptions_low      DOUBLE  | Least preemptions: those counted.
    column: preemptions_best     DOUBLE  | Preemptions counted and, after the last scrape, expected.
    column: preemptions_high     DOUBLE  | Most preemptions.
    column: replayed_preemptions DOUBLE  | Preemptions the replays had of themselves, on average: how well the run is reproduced.
    column: replays              BIGINT  | Replays made.
    column: requests             BIGINT  | Requests in the load.
    column: reason               VARCHAR | Why there is no replay; NULL where there is one.
    check:  tokens_low <= tokens_best and tokens_best <= tokens_high | A range holds its best estimate.
    """
    rows = []
    of_each = ("counter_intervals", "engine_states", "requests", "histogram_intervals", "engine_settings")
    counters_of, states_of, requests_of, histograms_of, said_of = (_by_engine(tables[f"core.{each}"]) for each in of_each)
    for engine in tables["core.engines"].iter_rows(named=True):
        name = engine["engine"]
        counters, states = counters_of(name), states_of(name)
        said = dict(said_of(name).select("key", "value_text").iter_rows())
        seen = Seen.of(counters, states)
        records = [record for _, record in whole_requests(requests_of(name))]
        intervals = _intervals(counters, histograms_of(name), states, engine)
        for method, size, draw, until in (
            ("replay", len(records), observed(records), seen.progress_of(records)),
            ("preemption_counter", _described_by(intervals), described(intervals, seen.first_in_flight), None),
        ):
            reason = _why_not(method, engine, seen, records, size) or (BY_PRIORITY if is_by_priority(said) else None)
            row = {"engine": name, "method": method, "requests": size, "reason": reason}
            if reason is None:
                unseen = seen.most_in_an_interval if method == "preemption_counter" and seen.last_in_flight else 0.0
                if method == "preemption_counter":
                    told = of_counters(settings_of(engine, said), intervals, seen, unseen=unseen)
                else:
                    made = throws(settings_of(engine, said), draw, hit_share=seen.hit_share, until=until)
                    told = estimate(made, counted=seen.preemptions, model_error=MODEL_ERROR[method])
                row["reason"] = _unlike(told, seen)
                if row["reason"] is None:
                    row |= dict(zip(("tokens_low", "tokens_best", "tokens_high"), told.tokens, strict=True))
                    row |= dict(zip(("preemptions_low", "preemptions_best", "preemptions_high"), told.preemptions, strict=True))
                    row |= {"replayed_preemptions": told.replayed_preemptions, "replays": told.replays}
            rows.append(row)
    return pl.DataFrame(rows, schema=SCHEMA).sort("engine", "method")


@dataclass(frozen=True)
class Seen:
    """What the metrics of one engine saw: the window they cover, and totals in it. None for what they do not export."""

    until: datetime | None
    preemptions: float | None
    generated: float | None
    hit_share: float
    first_in_flight: int
    last_in_flight: int
    most_in_an_interval: (
        float  # preemptions; where the last scrape saw work left, the time to the next could have brought as many
    )

    @classmethod
    def of(cls, counters: pl.DataFrame, states: pl.DataFrame) -> Seen:
        """Totals over the recording."""
        totals = {
            row["signal"]: row["delta"] for row in counters.group_by("signal").agg(pl.col("delta").sum()).iter_rows(named=True)
        }
        by_source = totals.get("prompt_tokens_by_source")
        labels = pl.col("labels").fill_null("")
        cached = counters.filter(
            pl.col("signal").eq("prompt_tokens_by_source") & labels.str.contains("local_cache_hit")
            if by_source
            else pl.col("signal").eq("cached_prompt_tokens") & ~labels.str.contains("cache_source=total")  # the sum of the others
        )
        hits = cached["delta"].sum() if by_source or cached.height else totals.get("prefix_hits", 0.0)
        prompts = by_source or totals.get("prompt_tokens") or 0.0
        in_flight = [row["running"] + row["waiting"] for row in states.sort("sampled_at").iter_rows(named=True) if _is_load(row)]
        return cls(
            until=counters["interval_end"].max() if counters.height else None,  # type: ignore[arg-type]
            preemptions=totals.get("preemptions"),
            generated=totals.get("generation_tokens"),
            hit_share=min(1.0, float(hits) / float(prompts)) if prompts else 0.0,
            first_in_flight=in_flight[0] if in_flight else 0,
            last_in_flight=in_flight[-1] if in_flight else 0,
            most_in_an_interval=counters.filter(pl.col("signal").eq("preemptions"))["delta"].max() or 0.0,  # type: ignore[arg-type]
        )

    def ends_before(self, records: Sequence[Record]) -> bool:
        """Whether recorded requests were sent after the last scrape."""
        return self.until is not None and any(each.arrived_s > self.until.timestamp() for each in records)

    def progress_of(self, records: Sequence[Record]) -> float | None:
        """Tokens the recorded requests had generated when the metrics end."""
        return None if self.until is None else Progress.of(records).at(self.until.timestamp()) if records else None


def _why_not(method: str, engine: Row, seen: Seen, records: Sequence[Record], size: int) -> str | None:  # noqa: PLR0911
    """Why there is nothing to replay, or what the engine does that is not modelled; None where a replay holds."""
    if engine["engine_kind"] not in (None, "vllm") or engine["engine_generation"] == "v0":
        return "the scheduler of this engine is not modelled"
    if engine["was_set_up_anew"]:
        return "a restart changed the engine's settings in between"
    if int(engine.get("ranks_summed") or 1) > 1:  # type: ignore[call-overload]
        return "the samples are sums over data-parallel ranks"
    if engine["has_speculative_decoding"] or engine["kv_connector"]:
        return "speculative decoding and KV connectors are not modelled"
    if not engine["num_gpu_blocks"] and not engine["kv_capacity_tokens"]:
        return "the size of the KV pool is not known"
    if not size:
        return "no requests recorded" if method == "replay" else "no histograms of request lengths"
    if method == "preemption_counter" and seen.preemptions is None:
        return "num_preemptions_total is not exported"
    if seen.preemptions == 0 and not seen.last_in_flight and not seen.ends_before(records):
        return "no preemption was counted"
    if method == "replay" and sum(each.output_tokens for each in records) < 0.9 * (seen.generated or 0.0):
        return "the engine generated more than the recorded requests account for: others were there"
    return None


def _unlike(told: Estimate, seen: Seen) -> str | None:
    """Why a replay is of another run than the one recorded: it preempts nobody, and so finds no token to compute again."""
    is_unlike = seen.preemptions and not told.replayed_preemptions
    return "a replay of the load as it was recorded preempts nobody" if is_unlike else None


def whole_requests(requests: pl.DataFrame, contents: Mapping[str, Content] = NOT_TOLD) -> Iterator[tuple[Row, Record]]:
    """The requests that ran to their end with all times and lengths, by arrival: each as it stands, and as a record."""
    complete = requests.select(*RECORDED, "is_failed").filter(
        pl.all_horizontal(pl.col("arrived_at", "first_token_at", "finished_at", "input_tokens", "output_tokens").is_not_null())
        & ~pl.col("is_failed").fill_null(value=False)
        & (pl.col("output_tokens") > 0)
        & (pl.col("input_tokens") > 0)
    )
    for row in complete.sort("arrived_at", "request_key").iter_rows(named=True):
        yield (
            row,
            Record(
                arrived_s=row["arrived_at"].timestamp(),
                first_token_s=row["first_token_at"].timestamp(),
                finished_s=row["finished_at"].timestamp(),
                prompt_tokens=row["input_tokens"],
                output_tokens=row["output_tokens"],
                content=contents.get(row["request_key"]),
                max_tokens=row["max_tokens"],
                ignores_eos=row["ignores_eos"],
            ),
        )


def _intervals(counters: pl.DataFrame, histograms: pl.DataFrame, states: pl.DataFrame, engine: Row) -> list[Interval]:
    """The scrape intervals of one engine that say what the requests of `described` need."""
    longest = float(engine["max_model_len"] or engine["kv_capacity_tokens"] or 0) or float("inf")  # type: ignore[arg-type]
    totals: dict[tuple[str, datetime], float] = {
        (row["signal"], row["interval_end"]): row["delta"]
        for row in counters.filter(pl.col("signal").is_in(COUNTED))
        .group_by("signal", "interval_end")
        .agg(pl.col("delta").sum())
        .iter_rows(named=True)
    }
    buckets: dict[tuple[str, datetime], list[tuple[float, float, float]]] = {}
    keys = ("signal", "interval_end", "above", "le")
    for signal, end, above, le, count in histograms.group_by(keys).agg(pl.col("delta").sum()).sort(keys).iter_rows():
        buckets.setdefault((signal, end), []).append((above, le, count))
    in_flight = {row["sampled_at"]: row["running"] + row["waiting"] for row in states.iter_rows(named=True) if _is_load(row)}
    ends = sorted({end for signal, end in totals if signal == "generation_tokens"} & set(in_flight))
    return [
        Interval(
            generated=totals["generation_tokens", end],
            in_flight=in_flight[end],
            finished=round(totals.get(("request_prompt_tokens_count", end), 0.0)),
            prompts=_buckets(buckets.get(("request_prompt_tokens", end), ()), longest),
            prompt_tokens=totals.get(("request_prompt_tokens_sum", end), 0.0),
            outputs=_buckets(buckets.get(("request_generation_tokens", end), ()), longest),
            output_tokens=totals.get(("request_generation_tokens_sum", end), 0.0),
            preemptions=totals.get(("preemptions", end), 0.0),
        )
        for end in ends
    ]


def _described_by(intervals: Sequence[Interval]) -> int:
    """Requests whose lengths the histograms say: a sum without buckets would make them all of no length."""
    return sum(each.finished for each in intervals if each.prompts and each.outputs)


def _buckets(counted: Sequence[tuple[float, float, float]], longest: float) -> tuple[Bucket, ...]:
    """Buckets from their bounds and counts, in order; no request is longer than the model allows.

    A count below 0 is taken from the buckets after it, so that all of them together count what the engine did.
    """
    owed = 0.0
    found = []
    for low, le, inside in counted:
        count, owed = max(0.0, inside + owed), min(0.0, inside + owed)
        if count:
            end = min(le, longest)
            found.append(Bucket(low, max(low, end if end != float("inf") else 2 * max(low, 1.0)), round(count)))
    return tuple(found)


def _is_load(row: Row) -> bool:
    return row["running"] is not None and row["waiting"] is not None


def _by_engine(table: pl.DataFrame) -> Callable[[object], pl.DataFrame]:
    """The rows of an engine; the table is gone through once, however many there are."""
    parts, none = table.partition_by("engine", as_dict=True), table.clear()
    return lambda engine: parts.get((engine,), none)
