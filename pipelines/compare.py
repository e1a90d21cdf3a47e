"""Two runs, and what the one thing that changed between them did: variables, workload, moves, and what they prove.

A comparison proves something only where a single variable changed and the workload did not. The variables come from what the
engines printed of themselves, the workload from lengths and arrivals (Kolmogorov-Smirnov) and from what the clients were told,
each move from drawing the requests again (`pipelines.resampling`). The diagnosis on trial is always the same: *cache capacity
is what hurts*. It predicts that with less asked of the pool, or more pool, requests are no longer preempted and no longer wait
for KV room. What does not belong here: reading an analysis (`compare_sides`) and words for a terminal or page (`compare_words`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines.charts.language import FEW, count, listed
from pipelines.compare_sides import Request, Side
from pipelines.kolmogorov import test
from pipelines.resampling import interval, quantile

ALPHA = 0.01  # of each test of the workload
LEAST_DISTANCE = 0.05  # with thousands of requests less is significant, and moves no percentile worth a word
REGRESSION = 0.05  # a measure that got worse by less is not called a regression
POOL_CHANGE = 0.05  # start-up profiling makes a pool vary by less from one start to the next
ENDED, HALVED = 0.1, 0.5  # share of the pressure that is left: below the first it ended, above the second it stayed
SEED = 2
NO_SETTINGS = ("identity", "measured")  # roles of what nobody set to get another result

Conclusion = Literal["supports", "refutes", "inconclusive", "not_comparable"]
PRESSURES = ("preemptions", "queue_kv_capacity_s")


@dataclass(frozen=True)
class Change:
    """A setting that differs. A value of None is one that side does not state."""

    key: str
    role: str
    before: str | None
    after: str | None
    is_inferred: bool = False


@dataclass(frozen=True)
class Drift:
    """One property of the workload, compared: what was found, and whether it differs."""

    what: str
    finding: str
    differs: bool
    distance: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class Move:
    """One measure on both sides. `low` and `high` are the ends of the interval of after - before; None where none can be told."""

    key: str
    name: str
    unit: str
    better: Literal["lower", "higher", "neither"]
    before: float
    after: float
    low: float | None = None
    high: float | None = None

    @property
    def ratio(self) -> float | None:
        """After over before."""
        return self.after / self.before if self.before else None

    @property
    def direction(self) -> Literal["better", "worse", "unclear", "moved", "not tested"]:
        """Which way it went, where its interval leaves out "not at all"."""
        if self.low is None or self.high is None:
            return "not tested"
        if self.low <= 0 <= self.high:
            return "unclear"
        if self.better == "neither":
            return "moved"
        return "better" if (self.after < self.before) == (self.better == "lower") else "worse"

    @property
    def is_regression(self) -> bool:
        """Whether it surely got worse, and by enough to matter."""
        return self.direction == "worse" and abs(self.after - self.before) > REGRESSION * abs(self.before)


@dataclass(frozen=True)
class Comparison:
    """Everything a comparison says."""

    before: str
    after: str
    variables: tuple[Change, ...]
    following: tuple[Change, ...]
    workload: tuple[Drift, ...]
    moves: tuple[Move, ...]
    conclusion: Conclusion
    reason: str
    has_same_inputs: bool = False

    @property
    def regressions(self) -> list[Move]:
        """The measures that got worse."""
        return [move for move in self.moves if move.is_regression]

    def move(self, key: str) -> Move | None:
        """The move of one measure."""
        return next((move for move in self.moves if move.key == key), None)


def compare(before: Side, after: Side) -> Comparison:
    """Compare two analyzed runs."""
    variables, following = changed(before, after)
    workload = drifts(before, after)
    moved = moves(before, after)
    conclusion, reason = conclude(before, after, variables, workload, moved)
    return Comparison(
        before.name, after.name, variables, following, workload, moved, conclusion, reason, _have_same_inputs(before, after)
    )


def _have_same_inputs(before: Side, after: Side) -> bool:
    return bool(before.made_of) and before.made_of == after.made_of


# what changed


def changed(before: Side, after: Side) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
    """The variables that differ, and the facts that follow from them.

    A key that only one side states differs where both state about the same: engines print what was changed from its
    default, while a log without its start states nearly nothing. A pool of another size that no changed setting
    explains is a variable of its own.
    """
    is_stated = both_state(before, after)
    changes = []
    for key in sorted({*before.settings, *after.settings}):
        old, new = before.settings.get(key), after.settings.get(key)
        some = new or old
        is_same = old is not None and new is not None and old.value == new.value
        is_same = is_same or (key == "model" and _is_one_model(before, after))
        if some is None or is_same or some.role in NO_SETTINGS or (None in (old, new) and not is_stated):
            continue
        inferred = bool((old and old.is_inferred) or (new and new.is_inferred))
        if inferred and None in (old, new):  # a ceiling that one load reached and the other did not is no difference
            continue
        changes.append(Change(key, some.role, old.value if old else None, new.value if new else None, inferred))
    variables = [change for change in changes if change.role != "derived"]
    following = [change for change in changes if change.role == "derived"]
    pool = next((change for change in following if change.key == "kv_capacity_tokens"), None)
    if pool and _by(pool) > POOL_CHANGE and not any(change.role == "pool" for change in variables):
        variables.append(Change(pool.key, "pool", pool.before, pool.after))
        following.remove(pool)
    return tuple(variables), tuple(following)


def _is_one_model(before: Side, after: Side) -> bool:
    """Whether the one side knows a model by the name alone that the other serves it by: metrics have no other."""
    for one, other in ((before, after), (after, before)):
        name, served = one.settings.get("model"), other.settings.get("served_model_name")
        if "served_model_name" not in one.settings and name and served and name.value == served.value.strip("[]' "):
            return True
    return False


def both_state(before: Side, after: Side) -> bool:
    """Whether both sides state their settings: at least half of what either states."""
    old, new = _stated(before), _stated(after)
    return len(old & new) >= len(old | new) / 2 > 0


def _stated(side: Side) -> set[str]:
    told = ("derived", *NO_SETTINGS)
    return {key for key, setting in side.settings.items() if setting.role not in told and not setting.is_inferred}


def _by(change: Change) -> float:
    old, new = _number(change.before), _number(change.after)
    return abs(new / old - 1) if old and new else 1.0


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


# whether the workload is the same


def drifts(before: Side, after: Side) -> tuple[Drift, ...]:
    """Each property of the workload that both sides tell."""
    found = [
        _lengths("prompt lengths", _known(before, "input_tokens"), _known(after, "input_tokens")),
        _lengths("answer lengths", _known(before, "output_tokens"), _known(after, "output_tokens")),
        _offered(before, after),
        _arrivals(before, after),
        _same_requests(before, after),
    ]
    return tuple(drift for drift in found if drift is not None)


def _known(side: Side, name: str) -> list[float]:
    return [value for each in side.completed if (value := getattr(each, name)) is not None]


def _lengths(what: str, old: Sequence[float], new: Sequence[float]) -> Drift | None:
    tested = test(old, new)
    if tested is None:
        return None
    differs = tested.p < ALPHA and tested.distance >= LEAST_DISTANCE
    medians = f"median {quantile(old, 0.5):g} and {quantile(new, 0.5):g} tokens"
    found = f"{medians}; Kolmogorov-Smirnov distance {tested.distance:.2f}, p = {tested.p:.2g} (differs where p < {ALPHA:g})"
    return Drift(what, found, differs, tested.distance, tested.p)


def _offered(before: Side, after: Side) -> Drift | None:
    if not before.loads or not after.loads:
        return None
    old, new = ([(load.max_concurrency, load.request_rate) for load in side.loads] for side in (before, after))
    told = _told_load(old) if old == new else f"{_told_load(old)} before, {_told_load(new)} after"
    return Drift("offered load", told, old != new)


def _told_load(loads: Sequence[tuple[int | None, float | None]]) -> str:
    for place, what in ((0, "limits of requests at once"), (1, "rates")):
        values = sorted({value for load in loads if (value := load[place]) is not None})
        if len(values) > FEW:
            return f"{len(values)} {what}, {values[0]:g} to {values[-1]:g}"

    def told(load: tuple[int | None, float | None]) -> str:
        concurrency, rate = load
        parts = [f"at most {concurrency} at once" if concurrency else "", f"{rate:g} requests/s" if rate else ""]
        return " and ".join(part for part in parts if part) or "all at once"

    return ", then ".join(dict.fromkeys(told(load) for load in loads))


def _arrivals(before: Side, after: Side) -> Drift | None:
    if before.is_closed_loop and after.is_closed_loop:
        return Drift("arrivals", "not tested: the client waits for answers, so that the server sets their pace", differs=False)
    tested = test(before.arrival_gaps, after.arrival_gaps)
    if tested is None:
        return None
    differs = tested.p < ALPHA and tested.distance >= LEAST_DISTANCE
    found = f"Kolmogorov-Smirnov distance of the times between them {tested.distance:.2f}, p = {tested.p:.2g}"
    if differs and not (before.loads and after.loads):
        found += "; a client that waits for answers would cause this too: give its results to tell the two apart"
    return Drift("arrivals", found, differs, tested.distance, tested.p)


def _same_requests(before: Side, after: Side) -> Drift | None:
    """How many requests have a twin of the same lengths; for the reader, no test."""
    old, new = (Counter((each.input_tokens, each.output_tokens) for each in side.completed) for side in (before, after))
    if not old or not new:
        return None
    twins = (old & new).total()
    sizes = f"{old.total():,}" if old.total() == new.total() else f"{old.total():,} before and {new.total():,} after"
    return Drift("requests", f"{sizes}; {twins:,} have a twin of the same lengths", differs=False)


# what moved


Pick = Callable[[Request], float | None]
Sides = tuple[Side, Side]


def moves(before: Side, after: Side) -> tuple[Move, ...]:
    """Every measure that both sides tell."""
    sides = before, after
    found = [
        _ranged("preemptions", "Preemptions", sides),
        _ranged("recomputed_tokens", "Tokens recomputed", sides),
        _plain("queue_kv_capacity_s", "Queue for KV room", "s", sides, better="lower"),
        _plain("queue_max_num_seqs_s", "Queue for a slot", "s", sides, better="lower"),
        _plain("kv_usage_mean", "KV usage, mean", "%", sides),
        _plain("running_mean", "Running, mean", "", sides),
        _throughput(sides),
        _duration(sides),
        _quantile("ttft_p50", "TTFT, median", sides, lambda each: each.ttft_s, 0.5),
        _quantile("ttft_p99", "TTFT, p99", sides, lambda each: each.ttft_s, 0.99),
        _quantile("queue_p50", "Wait to start, median", sides, lambda each: each.queue_s, 0.5),
        _quantile("tpot_p50", "Time per token, median", sides, _per_token, 0.5),
        _pooled_gaps(sides),
        _quantile("pause_p95", "Longest pause, p95", sides, lambda each: each.longest_gap_s, 0.95),
        _quantile("latency_p50", "Latency, median", sides, lambda each: each.latency_s, 0.5),
        _quantile("latency_p99", "Latency, p99", sides, lambda each: each.latency_s, 0.99),
    ]
    return tuple(move for move in found if move is not None)


def _ranged(key: str, name: str, sides: Sides) -> Move | None:
    """A count that comes with its own range: the difference lies between the ends of the two."""
    old, new = (side.measures.get(key) for side in sides)
    if old is None or new is None:
        return None
    low = new[0] - old[2] if new[0] is not None and old[2] is not None else None
    high = new[2] - old[0] if new[2] is not None and old[0] is not None else None
    return Move(key, name, "", "lower", old[1], new[1], low, high)


def _plain(key: str, name: str, unit: str, sides: Sides, *, better: Literal["lower", "neither"] = "neither") -> Move | None:
    """A measure without an interval; where less is better and there is none on either side, there is nothing to say."""
    values = [side.measures[key][1] for side in sides if key in side.measures]
    if len(values) < len(sides) or (better == "lower" and not any(values)):
        return None
    factor = 100 if unit == "%" else 1
    return Move(key, name, unit, better, *(factor * (each or 0) for each in values))


def _quantile(key: str, name: str, sides: Sides, pick: Pick, share: float) -> Move | None:
    """A quantile over requests, with its interval; of histograms, without one, where no side's requests tell it."""
    old, new = ([value for each in side.completed if (value := pick(each)) is not None] for side in sides)
    if not (old and new):
        return _histogram(key, name, sides)
    spread = interval(lambda drawn: quantile(drawn[1], share) - quantile(drawn[0], share), (old, new), seed=SEED)
    return Move(key, name, "s", "lower", quantile(old, share), quantile(new, share), *(spread or (None, None)))


def _histogram(key: str, name: str, sides: Sides) -> Move | None:
    """The same quantile from the engines' own histograms: of all requests together, so that nothing can be drawn again."""
    signal = {"ttft_p50": "ttft_s_p50", "ttft_p99": "ttft_s_p99", "queue_p50": "queue_s_p50", "tpot_p50": "itl_s_p50"}
    signal |= {"itl_p99": "itl_s_p99", "latency_p50": "e2e_s_p50", "latency_p99": "e2e_s_p99"}
    values = [side.measures[signal[key]][1] for side in sides if signal.get(key) in side.measures]
    return Move(key, name, "s", "lower", *values) if len(values) == len(sides) else None


def _per_token(request: Request) -> float | None:
    """Time per token after the first: what a preempted request's pause is spread over."""
    if request.latency_s is None or request.ttft_s is None or not request.output_tokens or request.output_tokens < 2:
        return None
    return (request.latency_s - request.ttft_s) / (request.output_tokens - 1)


def _pooled_gaps(sides: Sides) -> Move | None:
    """99th percentile of all gaps between chunks. Requests are drawn, not gaps: those of one request belong together."""
    streams = [[each.gaps_s for each in side.completed if each.gaps_s] for side in sides]
    if not all(streams):
        return _histogram("itl_p99", "ITL, p99", sides)
    old, new = (quantile([gap for gaps in side for gap in gaps], 0.99) for side in streams)
    highest = [_highest_gaps(side) for side in streams]

    def difference(drawn: Sequence[Sequence[int]]) -> float:
        return _top_gap(highest[1], streams[1], drawn[1], 0.99) - _top_gap(highest[0], streams[0], drawn[0], 0.99)

    spread = interval(difference, [range(len(side)) for side in streams], seed=SEED)
    return Move("itl_p99", "ITL, p99", "s", "lower", old, new, *(spread or (None, None)))


def _highest_gaps(streams: Sequence[Sequence[float]]) -> list[tuple[float, int]]:
    """Every gap with the number of its stream, the longest first."""
    return sorted(((gap, number) for number, gaps in enumerate(streams) for gap in gaps), reverse=True)


def _top_gap(
    highest: Sequence[tuple[float, int]], streams: Sequence[Sequence[float]], drawn: Sequence[int], share: float
) -> float:
    """The quantile of the gaps of drawn streams, found from the top so that a resample costs one gap in a hundred."""
    times = Counter(drawn)
    above = (1 - share) * sum(count * len(streams[number]) for number, count in times.items())
    seen = 0
    for gap, number in highest:
        seen += times[number]
        if seen > above:
            return gap
    return highest[-1][0]


def _throughput(sides: Sides) -> Move | None:
    """Generated tokens of completed requests per second.

    By Little's law, requests drawn again take the sum of their latencies over the number in flight.
    """
    pairs = [
        [(each.output_tokens, each.latency_s) for each in side.completed if each.output_tokens and each.latency_s]
        for side in sides
    ]
    flights = [_in_flight([latency for _, latency in each], side) for each, side in zip(pairs, sides, strict=True)]
    if not all(pairs) or None in flights:
        return None

    def rate(drawn: Sequence[tuple[int, float]], in_flight: float | None) -> float:
        return (in_flight or 0) * sum(tokens for tokens, _ in drawn) / sum(latency for _, latency in drawn)

    spread = interval(lambda drawn: rate(drawn[1], flights[1]) - rate(drawn[0], flights[0]), pairs, seed=SEED)
    old, new = (rate(each, in_flight) for each, in_flight in zip(pairs, flights, strict=True))
    return Move("useful_tokens_per_s", "Useful tokens/s", "/s", "higher", old, new, *(spread or (None, None)))


def _duration(sides: Sides) -> Move | None:
    """How long the same number of requests took; nothing where the numbers differ."""
    before, after = sides
    if before.duration_s is None or after.duration_s is None or len(before.completed) != len(after.completed):
        return None
    latencies = [[each.latency_s for each in side.completed if each.latency_s] for side in sides]
    old, new = (_in_flight(each, side) for each, side in zip(latencies, sides, strict=True))
    spread = interval(lambda drawn: sum(drawn[1]) / new - sum(drawn[0]) / old, latencies, seed=SEED) if old and new else None
    return Move("duration", "Duration", "s", "lower", before.duration_s, after.duration_s, *(spread or (None, None)))


def _in_flight(latencies: Sequence[float], side: Side) -> float | None:
    """Requests in flight on average."""
    return sum(latencies) / side.duration_s if side.duration_s else None


# what it proves


def conclude(
    before: Side, after: Side, variables: Sequence[Change], workload: Sequence[Drift], moved: Sequence[Move]
) -> tuple[Conclusion, str]:
    """What the comparison says of the diagnosis that cache capacity is what hurts, and why."""
    different = [drift for drift in workload if drift.differs]
    if different:
        found = "; ".join(f"{drift.what}: {drift.finding}" for drift in different)
        return "not_comparable", f"The workload changed, so that no move can be laid to a setting. {_capital(found)}."
    if not both_state(before, after):
        return (
            "not_comparable",
            "The settings of one side are hardly known: give its log from the start, which states them.",
        )
    if len(variables) > 1:
        names = listed([f"{change.key} {told(change)}" for change in variables])
        return (
            "not_comparable",
            f"{len(variables)} variables changed at once ({names}): which of them did it cannot be told. Change one.",
        )
    if not variables and _have_same_inputs(before, after):
        return "inconclusive", "One run says nothing of what a change would do: compare it with a run under another setting."
    if not variables:
        return (
            "inconclusive",
            "Nothing changed that either engine states: what moved is how much two runs of the same thing vary.",
        )
    return _try(before, after, variables[0], moved)


def _try(before: Side, after: Side, variable: Change, moved: Sequence[Move]) -> tuple[Conclusion, str]:
    """Put the diagnosis on trial: whether pressure on the pool follows the one variable as it predicts."""
    changed = _capital(f"{variable.key} alone changed ({told(variable)})")
    pressures = [move for key in PRESSURES for move in moved if move.key == key]
    felt = next((move for move in pressures if max(move.before, move.after) > 0), None)
    if not pressures:
        return "inconclusive", f"{changed}, and no input of one side counts preemptions: record /metrics with both."
    if variable.role not in ("pool", "admission"):
        return "inconclusive", f"{changed}, which is no matter of capacity: what moved says nothing of the pool."
    if felt is None:
        return "inconclusive", f"{changed}, but neither run was short of KV room: nothing was there to relieve."
    conclusion, why = _followed(before, after, felt, relief=_relief(before, after, variable))
    return conclusion, f"{changed}{why}"


def _followed(before: Side, after: Side, felt: Move, *, relief: bool | None) -> tuple[Conclusion, str]:
    """The same for a pressure that one side felt. The diagnosis is of the tighter and the roomier run, whichever came first."""
    tight, roomy = (felt.before, felt.after) if relief is not False else (felt.after, felt.before)
    what = f"{felt.name.lower()} {_amount(felt)}"
    if tight <= 0 or (roomy > tight and relief is not None):
        return "refutes", f", which gave {'less' if relief is False else 'more'} room, yet {what}: against the prediction."
    left = roomy / tight
    if left <= ENDED:
        return "supports", f" and pressure on the pool {'appeared' if relief is False else 'ended'}: {what}."
    if left < HALVED:
        return "supports", f" and pressure on the pool followed: {what}. A further step should end it."
    if _is_enough(before, after, relief=relief):
        return "refutes", f", and the pool should hold what runs at once, yet {what}: something else is at work."
    return "inconclusive", f", too little to tell: {what}, and the pool still cannot hold what may run. Change it further."


def _relief(before: Side, after: Side, variable: Change) -> bool | None:
    """Whether the change left each running sequence more of the pool; None where that cannot be told."""
    key = "max_num_seqs" if variable.key == "max_num_seqs" else "kv_capacity_tokens"
    old, new = (_number(side.settings[key].value) if key in side.settings else None for side in (before, after))
    if old is None or new is None or old == new:
        return None
    return (new < old) == (key == "max_num_seqs")


def _is_enough(before: Side, after: Side, *, relief: bool | None) -> bool:
    """Whether the roomier side's pool holds, 95 % of the time, as many sequences as its engine runs at once."""
    side = after if relief is not False else before
    slots = _number(side.settings["max_num_seqs"].value) if "max_num_seqs" in side.settings else None
    fits = side.measures.get("fits_95")
    return slots is not None and fits is not None and slots <= fits[1]


def told(change: Change) -> str:
    """`32 -> 9`."""
    return f"{change.before or 'not stated'} -> {change.after or 'not stated'}"


def _amount(move: Move) -> str:
    unit = f" {move.unit}" if move.unit else ""
    return f"{count(move.before)} -> {count(move.after)}{unit}"


def _capital(text: str) -> str:
    return text if text[:1].isupper() or "_" in text.split(" ", 1)[0] else text[:1].upper() + text[1:]
