"""Origins of a client's monotonic clock: every way to place one on UTC, and the choice among what they find."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl

from pipelines.clock.sightings import FEW, End, Rises, tagged
from pipelines.clock.stamps import Reading, absolute, resolution

ZONE_STEP_S = 900  # offsets are multiples of a quarter of an hour
DATE_LATE_S = 60.0  # a client computes its statistics, for large runs with a tokenizer, before it writes its date
DATE_ERROR_S = 2.0  # a date in whole seconds, written a moment after the end
SENDING_S = 0.05  # the quickest request of a run needs less than this from the client's stamp to the server's
PAIRS = 3_000_000  # pairs of requests with equal token counts that are looked at; beyond it only every n-th request


@dataclass(frozen=True)
class Origin:
    """A possible origin of a client's monotonic clock: epoch seconds at its 0, and the share of its requests that say so."""

    epoch_s: float
    error_s: float
    support: float
    method: str
    is_assumed: bool = False  # right beside a log whose zone was assumed: the error is the distance to that log


def from_spans(requests: pl.DataFrame, spans: pl.DataFrame) -> list[Origin]:
    """By the requests' ids where the spans carry the client's, else by equal token counts."""
    if spans.is_empty():
        return []
    found = [
        _between(pairs, len(requests), "request ids in the spans")
        for pairs in tagged(requests, spans.filter(pl.col("request_index").is_not_null()))
    ]
    if found:
        return found
    keys = ["input_tokens", "output_tokens"]
    known = spans.drop_nulls(keys).select(*keys, "arrived_s", "server_first_s", "server_last_s")
    asked = requests.drop_nulls(keys)
    load = asked.join(known.group_by(keys).len(), on=keys)["len"].sum()
    candidates = asked.gather_every(max(1, math.ceil(load / PAIRS))).join(known, on=keys)
    candidates = candidates.with_columns((pl.col("arrived_s") - pl.col("sent_s")).alias("apart_s"))
    # the distance that most pairs agree on, in bins of half a second; each pair also votes for the next bin
    votes = pl.concat(
        [
            candidates.select((pl.col("apart_s") * 2).floor().alias("bin")),
            candidates.select(((pl.col("apart_s") * 2).floor() - 1).alias("bin")),
        ]
    )
    bins = votes.group_by("bin").len().filter(pl.col("len") >= FEW).sort("len", "bin", descending=[True, False]).head(FEW)
    result = []
    for center in ((each + 1) / 2 for each in bins["bin"]):
        near = candidates.filter((pl.col("apart_s") - center).abs() <= 1.0)
        sure = near.filter((pl.len().over("run_index", "request_index") == 1) & (pl.len().over("arrived_s", *keys) == 1))
        matched = near.select("run_index", "request_index").unique().height / max(
            1, candidates.select("run_index", "request_index").unique().height
        )
        method = "equal token counts in the spans"
        if sure.height >= FEW:
            result.append(_between(sure, sure.height / matched if matched else math.inf, method))
        elif near.height:
            middle = float(near.select(pl.col("apart_s").median()).item() or 0.0)
            result.append(Origin(middle, 1.0, matched, method))
    return result


def _between(pairs: pl.DataFrame, of: float, method: str) -> Origin:
    """The origin that each request bounds from both sides: sent before it arrived, its tokens read after they were written."""
    upper = pairs.select((pl.col("arrived_s") - pl.col("sent_s")).min()).item()
    lower = pairs.select(
        pl.max_horizontal(
            (pl.col("server_first_s") - pl.col("client_first_s")).max(), (pl.col("server_last_s") - pl.col("client_last_s")).max()
        )
    ).item()
    if lower is None:
        lower = upper - SENDING_S
    return Origin((upper + lower) / 2, abs(upper - lower) / 2 + 1e-4, pairs.height / of, method)


def from_lines(requests: pl.DataFrame, lines: pl.DataFrame, reading: Reading | None, *, ahead_s: float = 0.0) -> list[Origin]:
    """By request lines of a log, whose clock may be known to be ahead.

    Their stamps floor the time of arrival, so the smallest distance bounds the origin from above. With many requests some
    arrive just before the second turns, which makes the bound tight; from below it is the largest distance, less the time a
    request needs to reach the line.
    """
    lines = lines.filter(pl.col("request_index").is_not_null())
    if lines.is_empty():
        return []
    is_assumed = reading is not None and reading.error_s is None
    stamped = lines.with_columns(absolute(lines["at_local"], reading).alias("at_s") if reading else pl.col("utc_s").alias("at_s"))
    stamped = stamped.with_columns(pl.col("at_s") - round(ahead_s))
    resolution_s = resolution(stamped["at_s"])
    result = []
    for pairs in tagged(requests, stamped):
        apart = pairs.select((pl.col("at_s") - pl.col("sent_s")).alias("apart_s"))["apart_s"]
        upper = float(apart.min() or 0.0) + resolution_s  # type: ignore[arg-type]
        lower = min(float(apart.max() or 0.0), upper) - SENDING_S - resolution_s / pairs.height  # type: ignore[arg-type]
        method = f"request lines of {lines['source'][0]}"
        result.append(Origin((upper + lower) / 2, (upper - lower) / 2, pairs.height / len(requests), method, is_assumed))
    return result


def from_counters(requests: pl.DataFrame, ends: Sequence[End], curves: pl.DataFrame) -> list[Origin]:
    """By the counters that rise as its requests finish: the origin under which the most of the client's requests are in them.

    Other clients may load the server as well, so it counts how much of what the client saw the counters contain.
    """
    moments = {
        "finished": [(last, 1.0) for last in requests["client_last_s"].drop_nulls().sort()],
        "prompt_tokens": [
            (first, float(tokens))
            for first, tokens in requests.drop_nulls(["client_first_s", "input_tokens"])
            .sort("client_first_s")
            .select("client_first_s", "input_tokens")
            .iter_rows()
        ],
    }
    risers = [(Rises.of(curves, name), moments[name]) for name in moments]
    risers = [(rises, seen) for rises, seen in risers if rises and len(seen) >= FEW]
    if not risers:
        return []
    scrape_s = max(rises.scrape_s for rises, _ in risers)
    first_s, last_s = min(rises.at_s[0] for rises, _ in risers), max(rises.at_s[-1] for rises, _ in risers)
    begin, end = float(requests["sent_s"].min() or 0.0), float(requests["client_last_s"].max() or 0.0)  # type: ignore[arg-type]

    def share(origin: float) -> float:
        return sum(rises.share(seen, origin) for rises, seen in risers) / len(risers)

    lows = {first_s - begin: last_s - end}
    if ends:
        anchored = [ends[0].date_s - ends[0].mono_s + ZONE_STEP_S * step for step in range(-14 * 4, 12 * 4 + 1)]
        lows = {
            low - DATE_LATE_S: low + 2.0
            for low in anchored
            if low + end <= last_s + DATE_LATE_S + scrape_s and low + begin >= first_s - scrape_s
        }
    coarse = [
        low + scrape_s / 2 * step for low, high in lows.items() for step in range(int(max(high - low, 0.0) / scrape_s * 2) + 1)
    ]
    if not coarse or len(coarse) * len(requests) > 200_000_000:
        return []
    best = max(coarse, key=share)
    fine = [best + scrape_s / 20 * step for step in range(-20, 21)]
    shares = [share(each) for each in fine]
    top = max(shares)
    if top < 0.8:  # a fifth of the requests not in the counters: these are of another server, or of another hour
        return []
    plateau = [each for each, value in zip(fine, shares, strict=True) if value >= top - 1e-9]
    # a sample of a range query shows the scrape before it, up to one interval old: the middle of what that allows
    middle = (plateau[0] + plateau[-1]) / 2 - scrape_s / 2
    rivals = [share(each) for each in coarse if abs(each - middle) > 2 * scrape_s + DATE_LATE_S]
    if rivals and max(rivals) > top - 0.1:  # another hour fits as well
        return []
    return [Origin(middle, scrape_s, top, "requests finished and prompt tokens in the metrics")]


def choose(origins: Mapping[str, Sequence[Origin]], ends: Mapping[str, Sequence[End]]) -> dict[str, Origin]:
    """One origin for each client.

    Repeated runs of one workload look alike; what tells them apart is the date each wrote, and that the results of one host
    share its clock.
    """
    chosen = {}
    for name, mine in origins.items():
        others = [each for other, theirs in origins.items() if other != name for each in theirs]

        def rank(origin: Origin, ends: Sequence[End] = ends[name], others: Sequence[Origin] = others) -> tuple[bool, int]:
            siblings = sum(abs(origin.epoch_s - each.epoch_s) <= origin.error_s + each.error_s + 0.5 for each in others)
            return all(_dated(origin, end) for end in ends), siblings

        if mine:
            well = max(origin.support for origin in mine) * 0.8
            likely = [origin for origin in mine if origin.support >= well]
            best = max(rank(origin) for origin in likely)
            chosen[name] = min(
                (origin for origin in likely if rank(origin) == best), key=lambda origin: (origin.is_assumed, origin.error_s)
            )
    return chosen


def _dated(origin: Origin, end: End) -> bool:
    """Whether the date a run wrote at its end agrees with the origin, in whatever zone it was written."""
    late_s = (end.date_s - end.mono_s - origin.epoch_s + 1.0 + origin.error_s) % ZONE_STEP_S
    return late_s <= 1.0 + 2 * origin.error_s + DATE_LATE_S


def from_siblings(placed: Mapping[str, Origin], ends: Mapping[str, Sequence[End]], clients: Iterable[str]) -> dict[str, Origin]:
    """The clock of another result of the same host, where it is better known and the date (and what else is known) confirms it.

    Results of one host and boot share their origin; another host, or another boot, would have to write its date in the same
    minute of a quarter of an hour by chance.
    """
    result = {}
    for name in clients:
        own = placed.get(name)
        for other, origin in sorted(placed.items(), key=lambda item: (item[1].is_assumed, item[1].error_s)):
            near = own is None or abs(own.epoch_s - origin.epoch_s) <= own.error_s + origin.error_s
            better = own is None or (own.is_assumed, own.error_s) > (origin.is_assumed, 2 * origin.error_s)
            if other != name and near and better and ends[name] and all(_dated(origin, end) for end in ends[name]):
                method = f"same clock as {other}, confirmed by its date"
                result[name] = Origin(origin.epoch_s, origin.error_s, origin.support, method, origin.is_assumed)
                break
    return result


def from_date(ends: Sequence[End], reading: Reading) -> Origin:
    """By the date a run wrote at its end: the client writes it late, and in whole seconds."""
    apart = [
        float(absolute(pl.Series([datetime.fromtimestamp(end.date_s, UTC).replace(tzinfo=None)]), reading)[0]) - end.mono_s
        for end in ends
    ]
    return Origin(min(apart), DATE_ERROR_S, 0.0, f"date at its end; zone: {reading.method}", reading.error_s is None)
