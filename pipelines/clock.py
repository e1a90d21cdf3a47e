"""One time axis: how each source's own clock is laid on UTC, from what the sources themselves show. Makes `staging.clocks`.

    INFO 11-29 13:12:06 … Received request cmpl-bench-fda5f269-0-0      a log: no year, no zone, whole seconds
    "date": "20261129-131213", "start_times": [1300.740443677, …]       a result: a monotonic clock of unknown origin
    [1795957926.275, "3"]                                               a metric: absolute

Two clocks are compared through what both saw of the same requests, the surest way first. A client sends before the server
receives and reads the last token after the server wrote it, so each request bounds the distance of their clocks from both
sides; the bounds of all requests together leave milliseconds. Where no request is seen by both, the curves they draw (requests
finished, requests running) are laid over each other; where that decides nothing, the method says what was assumed and the
error is null.

Not here: applying a clock (that is one line of SQL in each staging table) and reading bytes. Days are compared by UTC offset;
a zone is returned under a name that DuckDB knows.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl

from parsers import InputError
from parsers.columns import PLACEHOLDER_YEAR
from pipelines.models import Run, python_model

SCHEMA = {
    "source": pl.String,
    "clock": pl.String,
    "zone": pl.String,
    "base_year": pl.Int64,
    "mono_epoch_s": pl.Float64,
    "placed_at": pl.Datetime("us", "UTC"),
    "error_s": pl.Float64,
    "method": pl.String,
}

# Every offset some place keeps, UTC first: whole hours by their POSIX names (sign reversed), the others by a place.
ZONES = (
    "UTC",
    *(f"Etc/GMT-{hours}" for hours in range(1, 15)),
    *(f"Etc/GMT+{hours}" for hours in range(1, 13)),
    *("Asia/Kolkata", "Asia/Kathmandu", "Asia/Tehran", "Asia/Kabul", "Asia/Yangon", "Australia/Darwin", "Australia/Adelaide"),
    *("Australia/Lord_Howe", "Australia/Eucla", "Pacific/Chatham", "Pacific/Marquesas", "America/St_Johns"),
)
EASTERNMOST = 14  # hours ahead of UTC
ZONE_STEP_S = 900  # offsets are multiples of a quarter of an hour
SAME_CLOCK_S = 60.0  # two hosts' wall clocks further apart than this are not taken for the same zone
DATE_LATE_S = 60.0  # a client computes its statistics, for large runs with a tokenizer, before it writes its date
DATE_ERROR_S = 2.0  # a date in whole seconds, written a moment after the end
SENDING_S = 0.05  # the quickest request of a run needs less than this from the client's stamp to the server's
PAIRS = 3_000_000  # pairs of requests with equal token counts that are looked at; beyond it only every n-th request
FEW = 3  # fewer requests or samples than this prove nothing


@dataclass(frozen=True)
class Reading:
    """How a zone-less stamp is read: its zone, and the year that stands for the placeholder (None where stamps have a year)."""

    zone: str
    base_year: int | None
    error_s: float | None
    method: str


@dataclass(frozen=True)
class Origin:
    """A possible origin of a client's monotonic clock: epoch seconds at its 0, and the share of its requests that say so."""

    epoch_s: float
    error_s: float
    support: float
    method: str
    is_assumed: bool = False  # right beside a log whose zone was assumed: the error is the distance to that log


@python_model(
    "staging.clocks",
    reads=(
        "staging.clock_sources",
        "staging.clock_curves",
        "staging.clock_snapshots",
        "raw.spans",
        "raw.request_lines",
        "raw.bench_runs",
        "raw.bench_requests",
    ),
)
def clocks(tables: Mapping[str, pl.DataFrame], run: Run) -> pl.DataFrame:
    """How the clock of each source is laid on UTC, and how far that may be wrong.

    grain: source
    column: source       | Input.
    column: clock        | epoch (absolute times), local (stamps without a zone), monotonic (seconds of unknown origin) or none.
    column: zone         | Zone its local stamps are read in.
    column: base_year    | Year that stands for the placeholder year of its stamps; NULL where they have their own.
    column: mono_epoch_s | Epoch seconds at the 0 of its monotonic clock; NULL where nothing places it.
    column: placed_at    | The one time of a source without times, where its counters place it.
    column: error_s      | Bound of the error that remains; NULL where the placement is an assumption.
    column: method       | The evidence used.
    check:  error_s >= 0 or error_s is null | An error is a distance.
    """
    sources = tables["staging.clock_sources"]
    curves, snapshots = tables["staging.clock_curves"], tables["staging.clock_snapshots"]
    spans, lines = _spans(tables["raw.spans"]), _lines(tables["raw.request_lines"])
    dates = tables["raw.bench_runs"].select("source", "run_index", "date_local", "duration_s", "completed")
    requests = _requests(tables["raw.bench_requests"])
    clients = {str(name): part for (name,), part in requests.partition_by("source", as_dict=True).items()}
    ends = {name: _date_less_end(part, dates.filter(pl.col("source") == name)) for name, part in clients.items()}

    origins = {
        name: [*_from_spans(part, spans), *_from_counters(part, ends[name], curves)] for name, part in sorted(clients.items())
    }
    placed = _choose(origins, ends)

    bench_sources = set(dates["source"])
    logs = sources.filter(pl.col("first_local").is_not_null() & ~pl.col("source").is_in(list(bench_sources)))
    readings = _read_logs(logs, _Witnesses(sources, curves, spans, lines, requests, dates, placed), run)

    for name, part in clients.items():
        for log, reading in readings.items():
            origins[name] += _from_lines(part, lines.filter(pl.col("source") == log), reading)
        origins[name] += _from_lines(part, lines.filter(pl.col("utc_s").is_not_null()), None)
    placed = _choose(origins, ends)
    placed |= _from_siblings(placed, ends, clients)
    date_readings = _read_dates(dates, curves, readings, run)
    placed |= {
        name: _from_date(ends[name], date_readings[name])
        for name in clients
        if name not in placed and name in date_readings and ends[name]
    }

    rows = []
    for source in sources.iter_rows(named=True):
        name = source["source"]
        row = dict.fromkeys(SCHEMA) | {"source": name, "clock": "none", "method": "no times in it"}
        reading = readings.get(name) or date_readings.get(name)
        if source["first_utc"] is not None:
            zone = reading.zone if reading and source["local_ahead_s"] is None else _zone_ahead(source)
            row |= {"clock": "epoch", "error_s": 0.0, "method": "absolute times", "zone": zone}
            row |= {"base_year": reading.base_year if reading else None}
        elif name in clients:
            origin = placed.get(name)
            row |= {"clock": "monotonic", "method": "nothing places its monotonic clock"}
            if origin:
                error_s = None if origin.is_assumed else origin.error_s
                row |= {"mono_epoch_s": origin.epoch_s, "error_s": error_s, "method": origin.method}
        elif reading:
            row |= {"clock": "local", "zone": reading.zone, "base_year": reading.base_year}
            row |= {"error_s": reading.error_s, "method": reading.method}
        elif (page := snapshots.filter(pl.col("source") == name)).height:
            row |= {"placed_at": page["placed_at"][0], "error_s": page["error_s"][0]}
            row |= {"method": page["method"][0]}
        rows.append(row)
    return pl.DataFrame(rows, schema=SCHEMA).sort("source")


# What each kind of source saw of a request, in one shape: tag and index (from the id), token counts, times.


def _identified(request_id: pl.Expr) -> list[pl.Expr]:
    """The run's tag and the request's index, as load generators write them: `cmpl-bench-fda5f269-17-0` -> `bench-fda5f269-`, 17.

    The completions API appends the index of the prompt within the request; the chat API does not.
    """
    bare = request_id.str.replace(r"^chatcmpl-", "").str.replace(r"^cmpl-(.*)-\d+$", "$1")
    return [
        bare.str.extract(r"^(.*\D)\d+$").alias("tag"),
        bare.str.extract(r"\D(\d{1,9})$").cast(pl.Int64).alias("request_index"),
    ]


def _spans(spans: pl.DataFrame) -> pl.DataFrame:
    arrived_s = pl.col("start_at").dt.epoch("us") / 1e6
    return spans.filter(pl.col("start_at").is_not_null()).select(
        "request_id",
        *_identified(pl.col("request_id")),
        "input_tokens",
        "output_tokens",
        arrived_s.alias("arrived_s"),
        (arrived_s + pl.col("ttft_s")).alias("server_first_s"),
        (arrived_s + pl.col("e2e_s")).alias("server_last_s"),
    )


def _lines(lines: pl.DataFrame) -> pl.DataFrame:
    """Arrivals in a log, one per request: the line that names a request first."""
    return (
        lines.filter(pl.col("request_id").is_not_null() & (pl.col("at_utc").is_not_null() | pl.col("at_local").is_not_null()))
        .sort("source", "line")
        .unique(["source", "request_id"], keep="first", maintain_order=True)
        .select(
            "source",
            "request_id",
            *_identified(pl.col("request_id")),
            "max_tokens",
            "at_local",
            (pl.col("at_utc").dt.epoch("us") / 1e6).alias("utc_s"),
        )
    )


def _requests(requests: pl.DataFrame) -> pl.DataFrame:
    """Requests sent on a monotonic clock that got at least one token."""
    first_s = pl.col("start_mono_s") + pl.col("ttft_s")
    return (
        requests.filter(
            pl.col("start_mono_s").is_not_null() & pl.col("ttft_s").is_not_null() & ~pl.col("is_failed").fill_null(value=False)
        )
        .select(
            "source",
            "run_index",
            "request_index",
            "input_tokens",
            "output_tokens",
            pl.col("start_mono_s").alias("sent_s"),
            first_s.alias("client_first_s"),
            pl.coalesce(pl.col("start_mono_s") + pl.col("latency_s"), first_s + pl.col("gaps_s").list.sum()).alias(
                "client_last_s"
            ),
        )
        .sort("source", "run_index", "request_index")
    )


@dataclass(frozen=True)
class _End:
    """The end of one client run: its date as if in UTC, and the same moment on the client's monotonic clock."""

    date_s: float
    mono_s: float


def _date_less_end(requests: pl.DataFrame, dates: pl.DataFrame) -> list[_End]:
    runs = requests.group_by("run_index").agg(pl.col("client_last_s").max(), pl.col("sent_s").min())
    joined = runs.join(dates.filter(pl.col("date_local").is_not_null()), on="run_index").sort("run_index")
    return [
        _End(row["date_s"], max(row["client_last_s"] or -math.inf, row["sent_s"] + (row["duration_s"] or 0.0)))
        for row in joined.with_columns((pl.col("date_local").dt.epoch("us") / 1e6).alias("date_s")).iter_rows(named=True)
    ]


# Origins of a client's monotonic clock.


def _from_spans(requests: pl.DataFrame, spans: pl.DataFrame) -> list[Origin]:
    """By the requests' ids where the spans carry the client's, else by equal token counts."""
    if spans.is_empty():
        return []
    found = [
        _between(pairs, len(requests), "request ids in the spans")
        for pairs in _tagged(requests, spans.filter(pl.col("request_index").is_not_null()))
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


def _tagged(requests: pl.DataFrame, others: pl.DataFrame) -> Iterable[pl.DataFrame]:
    """Pairs of a client's requests with what a server saw under their index, for each tag that could be this client's.

    A tag is possible where nearly all of its requests have the client's token counts.
    """
    joined = requests.select("run_index", "request_index", *_NOTED).join(others, on="request_index", suffix="_server")
    agree = pl.lit(value=True)
    if "input_tokens" in others.columns:
        agree &= (pl.col("input_tokens") == pl.col("input_tokens_server")).fill_null(value=True)
        agree &= (pl.col("output_tokens") == pl.col("output_tokens_server")).fill_null(value=True)
    else:
        agree &= (pl.col("output_tokens") <= pl.col("max_tokens")).fill_null(value=True)
    for _, pairs in sorted(joined.with_columns(agree.alias("agree")).partition_by("run_index", "tag", as_dict=True).items()):
        agreed = pairs.filter(pl.col("agree"))
        of_run = requests.filter(pl.col("run_index") == pairs["run_index"][0]).height
        # nine in ten: a request cut short by its client has other counts on the server
        if agreed.height >= min(FEW, of_run) and agreed.height >= 0.9 * pairs.height and 2 * agreed.height >= of_run:
            yield agreed


_NOTED = ("input_tokens", "output_tokens", "sent_s", "client_first_s", "client_last_s")


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


def _from_lines(requests: pl.DataFrame, lines: pl.DataFrame, reading: Reading | None) -> list[Origin]:
    """By request lines of a log. Their stamps floor the time of arrival, so the smallest distance bounds the origin from above.

    With many requests some arrive just before the second turns, which makes the bound tight; from below it is the largest
    distance, less the time a request needs to reach the line.
    """
    lines = lines.filter(pl.col("request_index").is_not_null())
    if lines.is_empty():
        return []
    is_assumed = reading is not None and reading.error_s is None
    stamped = lines.with_columns(
        _absolute(lines["at_local"], reading).alias("at_s") if reading else pl.col("utc_s").alias("at_s")
    )
    resolution_s = _resolution(stamped["at_s"])
    result = []
    for pairs in _tagged(requests, stamped):
        apart = pairs.select((pl.col("at_s") - pl.col("sent_s")).alias("apart_s"))["apart_s"]
        upper = float(apart.min() or 0.0) + resolution_s  # type: ignore[arg-type]
        lower = min(float(apart.max() or 0.0), upper) - SENDING_S - resolution_s / pairs.height  # type: ignore[arg-type]
        method = f"request lines of {lines['source'][0]}"
        result.append(Origin((upper + lower) / 2, (upper - lower) / 2, pairs.height / len(requests), method, is_assumed))
    return result


def _from_counters(requests: pl.DataFrame, ends: Sequence[_End], curves: pl.DataFrame) -> list[Origin]:
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
    risers = [(_Rises.of(curves, name), moments[name]) for name in moments]
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


@dataclass(frozen=True)
class _Rises:
    """A counter as what it rose by at each scrape."""

    at_s: list[float]
    rise: list[float]
    scrape_s: float

    @classmethod
    def of(cls, curves: pl.DataFrame, name: str) -> _Rises | None:
        """The rises of one curve, summed over its sources; None where no metrics carry it. After a fall it counts from 0."""
        samples = (
            curves.filter((pl.col("name") == name) & pl.col("utc_at").is_not_null())
            .sort("source", "utc_at")
            .with_columns(
                pl.col("value").shift(1).over("source").alias("before"), (pl.col("utc_at").dt.epoch("us") / 1e6).alias("at_s")
            )
            .with_columns(
                pl.when(pl.col("value") < pl.col("before"))
                .then(pl.col("value"))
                .otherwise(pl.col("value") - pl.col("before"))
                .fill_null(0)
                .alias("rise")
            )
            .group_by("at_s")
            .agg(pl.col("rise").sum())
            .sort("at_s")
        )
        if samples.height < FEW or not samples["rise"].sum():
            return None
        at_s = samples["at_s"].to_list()
        scrape_s = float(samples["at_s"].diff().drop_nulls().median() or 1.0)  # type: ignore[arg-type]
        return cls(at_s, samples["rise"].to_list(), scrape_s)

    def share(self, seen: Sequence[tuple[float, float]], origin: float) -> float:
        """How much of what the client saw lies in rises of the same interval."""
        contained = total = 0.0
        mine: dict[int, float] = {}
        for moment, weight in seen:
            index = bisect_left(self.at_s, moment + origin)
            mine[index] = mine.get(index, 0.0) + weight
            total += weight
        for index, weight in mine.items():
            contained += min(weight, self.rise[index]) if 0 < index < len(self.rise) else 0.0
        return contained / total if total else 0.0


def _choose(origins: Mapping[str, Sequence[Origin]], ends: Mapping[str, Sequence[_End]]) -> dict[str, Origin]:
    """One origin for each client.

    Repeated runs of one workload look alike; what tells them apart is the date each wrote, and that the results of one host
    share its clock.
    """
    chosen = {}
    for name, mine in origins.items():
        others = [each for other, theirs in origins.items() if other != name for each in theirs]

        def rank(origin: Origin, ends: Sequence[_End] = ends[name], others: Sequence[Origin] = others) -> tuple[bool, int]:
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


def _dated(origin: Origin, end: _End) -> bool:
    """Whether the date a run wrote at its end agrees with the origin, in whatever zone it was written."""
    late_s = (end.date_s - end.mono_s - origin.epoch_s + 1.0 + origin.error_s) % ZONE_STEP_S
    return late_s <= 1.0 + 2 * origin.error_s + DATE_LATE_S


def _from_siblings(placed: Mapping[str, Origin], ends: Mapping[str, Sequence[_End]], clients: Iterable[str]) -> dict[str, Origin]:
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


def _from_date(ends: Sequence[_End], reading: Reading) -> Origin:
    """By the date a run wrote at its end: the client writes it late, and in whole seconds."""
    apart = [
        float(_absolute(pl.Series([datetime.fromtimestamp(end.date_s, UTC).replace(tzinfo=None)]), reading)[0]) - end.mono_s
        for end in ends
    ]
    return Origin(min(apart), DATE_ERROR_S, 0.0, f"date at its end; zone: {reading.method}", reading.error_s is None)


# Zone and year of local stamps.


@dataclass(frozen=True)
class _Witnesses:
    """Everything a log can be compared with."""

    sources: pl.DataFrame
    curves: pl.DataFrame
    spans: pl.DataFrame
    lines: pl.DataFrame
    requests: pl.DataFrame
    dates: pl.DataFrame
    placed: Mapping[str, Origin]

    def windows(self) -> list[tuple[float, float]]:
        """First and last second of everything that is on absolute time."""
        timed = self.sources.filter(pl.col("first_utc").is_not_null())
        seconds = [pl.col(name).dt.epoch("us") / 1e6 for name in ("first_utc", "last_utc")]
        windows = list(timed.select(seconds).iter_rows())
        for name, origin in self.placed.items():
            mine = self.requests.filter(pl.col("source") == name)
            first_s, last_s = mine.select(pl.col("sent_s").min(), pl.col("client_last_s").max()).row(0)
            windows.append((first_s + origin.epoch_s, (last_s or first_s) + origin.epoch_s))
        return windows

    def seen_elsewhere(self, log: str) -> pl.DataFrame:
        """Requests of the log that another source saw at a known time: `at_local`, `seen_s`."""
        lines = self.lines.filter((pl.col("source") == log) & pl.col("at_local").is_not_null())
        by_id = lines.join(self.spans.select("request_id", "arrived_s"), on="request_id").select(
            "at_local", pl.col("arrived_s").alias("seen_s")
        )
        if by_id.height:
            return by_id
        parts = [
            pairs.select("at_local", (pl.col("sent_s") + origin.epoch_s).alias("seen_s"))
            for name, origin in self.placed.items()
            for pairs in _tagged(
                self.requests.filter(pl.col("source") == name), lines.filter(pl.col("request_index").is_not_null())
            )
        ]
        return pl.concat(parts) if parts else by_id


def _read_logs(logs: pl.DataFrame, witnesses: _Witnesses, run: Run) -> dict[str, Reading]:
    readings = {row["source"]: _read_log(row, witnesses, run) for row in logs.iter_rows(named=True)}
    sure = next((name for name, reading in sorted(readings.items()) if reading.error_s is not None), None)
    if sure is None:
        return readings
    borrowed = readings[sure]
    return {
        name: Reading(borrowed.zone, reading.base_year, None, f"assumed the zone of {sure}")
        if reading.error_s is None
        else reading
        for name, reading in readings.items()
    }


def _read_log(log: Mapping[str, datetime | float | bool | None], witnesses: _Witnesses, run: Run) -> Reading:
    """Zone and year of one log: as given, by its requests, by its load, by where it overlaps at all; else assumed."""
    stamps = pl.Series([log["first_local"], log["last_local"]], dtype=pl.Datetime("us"))
    windows = witnesses.windows()
    zones = _known(run.timezone) if run.timezone else ZONES
    options = [
        Reading(zone, year, None, "")
        for year in _years(log, stamps, windows, witnesses.dates)
        for zone in _distinct(zones, stamps[0], year)
    ]
    resolution_s = _resolution(pl.Series([stamp.microsecond / 1e6 for stamp in stamps if stamp]))
    given = f"zone as given ({run.timezone}), year" if run.timezone else "zone and year"

    if (seen := witnesses.seen_elsewhere(str(log["source"]))).height:
        # both stamps of an arrival differ by the flooring and the two hosts' clocks; a wrong zone is off by a quarter of an hour
        late = {option: abs(float((_absolute(seen["at_local"], option) - seen["seen_s"]).median() or 0.0)) for option in options}  # type: ignore[arg-type]
        best = min(options, key=lambda option: late[option])
        if late[best] <= SAME_CLOCK_S:
            return Reading(best.zone, best.base_year, max(resolution_s, late[best]), f"{given} from {seen.height} request lines")

    overlaps = {option: _overlap(_absolute(stamps, option).to_list(), windows) for option in options}
    possible = [option for option in options if overlaps[option] > 0.0]
    alike = {option: _likeness(str(log["source"]), option, witnesses.curves) for option in possible}
    likeness = {option: value for option, value in alike.items() if value is not None}
    ranked = sorted(likeness, key=lambda option: -likeness[option])
    if ranked and likeness[ranked[0]] >= 0.5 and (len(ranked) == 1 or likeness[ranked[1]] <= 0.8 * likeness[ranked[0]]):
        return Reading(
            ranked[0].zone,
            ranked[0].base_year,
            resolution_s + 1.0,
            f"{given} from the running requests it shares with the metrics",
        )
    if len(possible) == 1:
        return Reading(
            possible[0].zone, possible[0].base_year, resolution_s, f"{given}: the only one in which it meets the other sources"
        )
    if run.timezone:
        best = max(options, key=lambda option: overlaps[option])
        return Reading(
            best.zone, best.base_year, resolution_s, f"zone as given ({run.timezone}), year nearest to the other sources"
        )
    if possible:
        widest = max(overlaps[option] for option in possible)
        best = next((option for option in possible if overlaps[option] >= 0.9 * widest), possible[0])
        return Reading(best.zone, best.base_year, None, f"assumed {best.zone}: {len(possible)} zones fit, nothing tells which")
    whence = "the other sources" if windows else "the benchmark's date" if _dates_known(witnesses.dates) else "today's date"
    return Reading("UTC", options[0].base_year, None, f"assumed UTC, year from {whence}")


def _dates_known(dates: pl.DataFrame) -> bool:
    return dates["date_local"].drop_nulls().len() > 0


def _years(
    log: Mapping[str, object], stamps: pl.Series, windows: Sequence[tuple[float, float]], dates: pl.DataFrame
) -> Sequence[int | None]:
    """Years that may stand for the placeholder, likeliest first; [None] where the stamps have their own."""
    first, last = stamps[0], stamps[1]
    if first.year >= PLACEHOLDER_YEAR + 10:
        return [None]
    reference = [datetime.fromtimestamp(edge, UTC).replace(tzinfo=None) for window in windows for edge in window]
    reference = reference or dates["date_local"].drop_nulls().to_list()
    span = range(-5, 2)
    if reference:
        middle = sorted(reference)[len(reference) // 2]
        near = [middle.year + step for step in span if not log["has_leap_day"] or _is_leap(middle.year + step)]
        return sorted(near, key=lambda year: abs((_in_year(first, year) - middle).total_seconds()))[:2]
    now = datetime.now(UTC).replace(tzinfo=None)
    past = [now.year + step for step in range(1, -9, -1) if not log["has_leap_day"] or _is_leap(now.year + step)]
    return [next(year for year in past if _in_year(last, year) <= now)]


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _in_year(stamp: datetime, base_year: int) -> datetime:
    year = base_year + stamp.year - PLACEHOLDER_YEAR
    return (
        stamp.replace(year=year, day=28)
        if (stamp.month, stamp.day) == (2, 29) and not _is_leap(year)
        else stamp.replace(year=year)
    )


def _known(zone: str) -> tuple[str, ...]:
    """The zone the caller named, if it is one."""
    try:
        pl.Series([datetime(2026, 1, 1)]).dt.replace_time_zone(zone)  # noqa: DTZ001
    except pl.exceptions.ComputeError as error:
        raise InputError(
            f"--timezone {zone}: not a known zone; give one such as Europe/Berlin or Etc/GMT-2 (two hours east)"
        ) from error
    return (zone,)


def _distinct(zones: Sequence[str], stamp: datetime, base_year: int | None) -> list[str]:
    """The zones that differ at the stamp, the first name of each offset."""
    series = pl.Series([stamp], dtype=pl.Datetime("us"))
    offsets: dict[float, str] = {}
    for zone in zones:
        offsets.setdefault(float(_absolute(series, Reading(zone, base_year, None, ""))[0] or 0.0), zone)
    return list(offsets.values())


def _absolute(stamps: pl.Series, reading: Reading) -> pl.Series:
    """Epoch seconds of local stamps under a reading. A stamp that a change to summer time skips is null."""
    local = pl.col("stamp")
    if reading.base_year is not None:
        year = local.dt.year() + (reading.base_year - PLACEHOLDER_YEAR)
        day = pl.when((local.dt.month() == 2) & (local.dt.day() == 29) & ~_leap(year)).then(28).otherwise(local.dt.day())
        dated = pl.datetime(
            year, local.dt.month(), day, local.dt.hour(), local.dt.minute(), local.dt.second(), local.dt.microsecond()
        )
        local = pl.when(local.dt.year() < PLACEHOLDER_YEAR + 10).then(dated).otherwise(local)
    zoned = local.dt.replace_time_zone(reading.zone, ambiguous="earliest", non_existent="null")
    return pl.DataFrame({"stamp": stamps.cast(pl.Datetime("us"))}).select((zoned.dt.epoch("us") / 1e6).alias("at_s"))["at_s"]


def _leap(year: pl.Expr) -> pl.Expr:
    return (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))


def _resolution(seconds: pl.Series) -> float:
    """What the stamps count in: whole seconds, or milliseconds and finer."""
    return 1.0 if ((seconds - seconds.round(0)).abs().fill_null(0.0) < 5e-4).all() else 1e-3


def _overlap(edges: Sequence[float | None], windows: Sequence[tuple[float, float]]) -> float:
    """Seconds for which first to last meets the widest overlapping window; a meeting in one instant counts as a little."""
    first, last = edges
    if first is None or last is None:
        return 0.0
    return max((min(last + 1, end) - max(first, begin) + 1e-6 for begin, end in windows), default=0.0)


def _likeness(log: str, reading: Reading, curves: pl.DataFrame) -> float | None:
    """How alike the log's running and waiting requests are to the gauges under a reading, 0 to 1; None where either is silent."""
    shared = every = 0.0
    for name in ("running", "waiting"):
        said = curves.filter((pl.col("source") == log) & (pl.col("name") == name) & pl.col("local_at").is_not_null())
        gauge = curves.filter((pl.col("name") == name) & pl.col("utc_at").is_not_null() & (pl.col("source") != log)).sort(
            "utc_at"
        )
        if said.height < FEW or gauge.height < FEW:
            continue
        gauge_s = (gauge["utc_at"].dt.epoch("us") / 1e6).to_list()
        values = gauge["value"].to_list()
        reach_s = 2 * float((pl.Series(gauge_s).diff().drop_nulls().median()) or 1.0)  # type: ignore[arg-type]
        for at_s, value in zip(_absolute(said["local_at"], reading), said["value"], strict=True):
            index = bisect_right(gauge_s, (at_s or 0.0) + 0.5) - 1
            other = values[index] if index >= 0 and at_s - gauge_s[index] <= reach_s else 0.0
            shared, every = shared + min(value, other), every + max(value, other)
    return shared / every if every else None


def _zone_ahead(source: Mapping[str, float | None]) -> str | None:
    """The fixed offset between a log's own stamps and the absolute times in front of them."""
    if source["local_ahead_s"] is None:
        return None
    hours = round(source["local_ahead_s"] / 3600) % 24  # the placeholder year is whole days away
    hours -= 24 if hours > EASTERNMOST else 0
    return f"Etc/GMT{-hours:+d}" if hours else "UTC"


def _read_dates(dates: pl.DataFrame, curves: pl.DataFrame, logs: Mapping[str, Reading], run: Run) -> dict[str, Reading]:
    """The zone of the dates that benchmark results carry: as given, by the requests the metrics count in it, else the log's."""
    finished = _Rises.of(curves, "finished")
    readings = {}
    for (name,), runs in sorted(dates.filter(pl.col("date_local").is_not_null()).partition_by("source", as_dict=True).items()):
        if run.timezone:
            readings[str(name)] = Reading(_known(run.timezone)[0], None, DATE_ERROR_S, f"zone as given ({run.timezone})")
            continue
        counted = {}
        if finished:
            for zone in _distinct(ZONES, runs["date_local"][0], None):
                ends = _absolute(runs["date_local"], Reading(zone, None, None, ""))
                counted[zone] = sum(
                    _ratio(
                        finished.rise[
                            bisect_right(finished.at_s, end - length) : bisect_right(finished.at_s, end + finished.scrape_s)
                        ],
                        completed,
                    )
                    for end, length, completed in zip(ends, runs["duration_s"], runs["completed"], strict=True)
                    if end and length and completed
                ) / len(runs)
        ranked = sorted(counted, key=lambda zone: -counted[zone])
        log = next((reading for _, reading in sorted(logs.items())), None)
        if ranked and counted[ranked[0]] >= 0.8 and counted[ranked[1]] <= 0.8 * counted[ranked[0]]:
            readings[str(name)] = Reading(ranked[0], None, DATE_ERROR_S, "requests finished in the metrics")
        elif log:
            readings[str(name)] = Reading(log.zone, None, None if log.error_s is None else DATE_ERROR_S, "that of the log")
        else:
            readings[str(name)] = Reading("UTC", None, None, "assumed UTC")
    return readings


def _ratio(rises: Sequence[float], completed: float) -> float:
    total = sum(rises)
    return min(total, completed) / max(total, completed, 1.0)
