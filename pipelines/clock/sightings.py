"""What each kind of source saw of a request, in one shape: tag and index (from the id), token counts, times.

Spans, request lines of a log, a client's own results, the dates they end in, and the counters that rise as requests finish.
Nothing is placed on UTC here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

FEW = 3  # fewer requests or samples than this prove nothing
_NOTED = ("input_tokens", "output_tokens", "sent_s", "client_first_s", "client_last_s")


def _identified(request_id: pl.Expr) -> list[pl.Expr]:
    """The run's tag and the request's index, as load generators write them: `cmpl-bench-fda5f269-17-0` -> `bench-fda5f269-`, 17.

    The completions API appends the index of the prompt within the request; the chat API does not.
    """
    bare = request_id.str.replace(r"^chatcmpl-", "").str.replace(r"^cmpl-(.*)-\d+$", "$1")
    return [
        bare.str.extract(r"^(.*\D)\d+$").alias("tag"),
        bare.str.extract(r"\D(\d{1,9})$").cast(pl.Int64).alias("request_index"),
    ]


def spans_seen(spans: pl.DataFrame) -> pl.DataFrame:
    """Requests by the server's spans: when each arrived, and when its first and last token were written."""
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


def arrivals_logged(lines: pl.DataFrame) -> pl.DataFrame:
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


def requests_sent(requests: pl.DataFrame) -> pl.DataFrame:
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
class End:
    """The end of one client run: its date as if in UTC, and the same moment on the client's monotonic clock."""

    date_s: float
    mono_s: float


def ends_dated(requests: pl.DataFrame, dates: pl.DataFrame) -> list[End]:
    """The end of each run of one client that wrote a date."""
    runs = requests.group_by("run_index").agg(pl.col("client_last_s").max(), pl.col("sent_s").min())
    joined = runs.join(dates.filter(pl.col("date_local").is_not_null()), on="run_index").sort("run_index")
    return [
        End(row["date_s"], max(row["client_last_s"] or -math.inf, row["sent_s"] + (row["duration_s"] or 0.0)))
        for row in joined.with_columns((pl.col("date_local").dt.epoch("us") / 1e6).alias("date_s")).iter_rows(named=True)
    ]


def tagged(requests: pl.DataFrame, others: pl.DataFrame) -> Iterable[pl.DataFrame]:
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
        of_run = requests.filter(pl.col("run_index").eq_missing(pairs["run_index"][0])).height
        # nine in ten: a request cut short by its client has other counts on the server
        if agreed.height >= min(FEW, of_run) and agreed.height >= 0.9 * pairs.height and 2 * agreed.height >= of_run:
            yield agreed


@dataclass(frozen=True)
class Rises:
    """A counter as what it rose by at each scrape."""

    at_s: list[float]
    rise: list[float]
    scrape_s: float

    @classmethod
    def of(cls, curves: pl.DataFrame, name: str) -> Rises | None:
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
