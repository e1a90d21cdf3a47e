"""The model that makes `staging.clocks`: the clock of each source, by the surest way there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from pipelines.clock.counted import starts
from pipelines.clock.origins import Origin, choose, from_counters, from_date, from_lines, from_siblings, from_spans
from pipelines.clock.sightings import arrivals_logged, ends_dated, requests_sent, spans_seen
from pipelines.clock.skew import Skew, skew_of
from pipelines.clock.stamps import Reading, zone_ahead
from pipelines.clock.zones import Witnesses, read_dates, read_logs
from pipelines.models import Run, python_model

SCHEMA = {
    "source": pl.String,
    "clock": pl.String,
    "zone": pl.String,
    "base_year": pl.Int64,
    "mono_epoch_s": pl.Float64,
    "placed_at": pl.Datetime("us", "UTC"),
    "ahead_s": pl.Float64,
    "error_s": pl.Float64,
    "method": pl.String,
}


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
        "raw.engine_config",
        "raw.sources",
    ),
)
def clocks(tables: Mapping[str, pl.DataFrame], run: Run) -> pl.DataFrame:
    """How the clock of each source is laid on UTC, and how far that may be wrong.

    grain: source
    column: source       VARCHAR     | Input.
    column: clock        VARCHAR     | epoch (absolute), local (stamps without a zone), monotonic (since some start) or none.
    column: zone         VARCHAR     | Zone its local stamps are read in.
    column: base_year    BIGINT      | Year that stands for the placeholder year of its stamps; NULL where they have their own.
    column: mono_epoch_s DOUBLE      | Epoch seconds at the 0 of its monotonic clock; NULL where nothing places it.
    column: placed_at    TIMESTAMPTZ | The one time of a source without times, where its counters place it.
    column: ahead_s      DOUBLE      | Seconds its clock is ahead of the others'; NULL where nothing shows that it is a minute.
    column: error_s      DOUBLE      | Bound of the error that remains; NULL where the placement is an assumption.
    column: method       VARCHAR     | The evidence used.
    check:  error_s >= 0 or error_s is null | An error is a distance.
    """
    sources, snapshots = tables["staging.clock_sources"], tables["staging.clock_snapshots"]
    requests = requests_sent(tables["raw.bench_requests"])
    clients = {str(name): part for (name,), part in requests.partition_by("source", as_dict=True).items()}
    origins, readings, skews = _placements(tables, requests, clients, run)
    origins |= starts(sources, tables["staging.clock_curves"], spans_seen(tables["raw.spans"]), _stated(tables), run)
    pages = {row["source"]: row for row in snapshots.iter_rows(named=True)}
    rows = [
        {"source": name}
        | _clock(source, readings.get(name), is_client=name in clients, origin=origins.get(name), page=pages.get(name))
        | _skewed(skews.get(name))
        for source in sources.iter_rows(named=True)
        for name in [source["source"]]
    ]
    return pl.DataFrame(rows, schema=SCHEMA).sort("source")


def _placements(
    tables: Mapping[str, pl.DataFrame], requests: pl.DataFrame, clients: Mapping[str, pl.DataFrame], run: Run
) -> tuple[dict[str, Origin], dict[str, Reading], dict[str, Skew]]:
    """The origin of each client's monotonic clock, the reading of each source's local stamps, and the skew of a log's clock.

    One helps the other: clients placed by spans or counters tell the zone of a log, and a log whose zone is known places clients.
    """
    sources, curves = tables["staging.clock_sources"], tables["staging.clock_curves"]
    spans, lines = spans_seen(tables["raw.spans"]), arrivals_logged(tables["raw.request_lines"])
    dates = tables["raw.bench_runs"].select("source", "run_index", "date_local", "duration_s", "completed")
    ends = {name: ends_dated(part, dates.filter(pl.col("source") == name)) for name, part in clients.items()}
    found = {name: [*from_spans(part, spans), *from_counters(part, ends[name], curves)] for name, part in sorted(clients.items())}

    logs = sources.filter(pl.col("first_local").is_not_null() & ~pl.col("source").is_in(list(set(dates["source"]))))
    witnesses = Witnesses(sources, curves, spans, lines, requests, dates, choose(found, ends))
    readings = read_logs(logs, witnesses, run)
    kept = {*lines["source"], *curves.filter(pl.col("is_log"))["source"]}
    looked = {log: skew_of(log, readings.get(log), witnesses.seen_elsewhere(log), curves) for log in sorted(kept)}
    skews = {log: skew for log, skew in looked.items() if skew}
    for name, part in clients.items():
        for log, reading in readings.items():
            ahead_s = skews[log].ahead_s if log in skews else 0.0
            found[name] += from_lines(part, lines.filter(pl.col("source") == log), reading, ahead_s=ahead_s)
        found[name] += from_lines(part, lines.filter(pl.col("utc_s").is_not_null()), None)
    placed = choose(found, ends)
    placed |= from_siblings(placed, ends, clients)

    dated = read_dates(dates, curves, readings, run)
    late = {name: from_date(ends[name], dated[name]) for name in clients if name not in placed and name in dated and ends[name]}
    return placed | late, dated | readings, skews


def _skewed(skew: Skew | None) -> dict[str, Any]:
    """What a skew changes of what is said of a clock: it is told, and the clock is left as it stands."""
    if skew is None:
        return {}
    return {"ahead_s": skew.ahead_s, "error_s": abs(skew.ahead_s), "method": skew.told_by}


def _stated(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Each source with its format, and the one moment its settings name, where they name one."""
    said = tables["raw.engine_config"].drop_nulls("at_utc").group_by("source").agg(pl.col("at_utc").unique())
    one = said.filter(pl.col("at_utc").list.len() == 1).with_columns(
        (pl.col("at_utc").list.first().dt.epoch("us") / 1e6).alias("at_s")
    )
    return tables["raw.sources"].select("source", "format").join(one.select("source", "at_s"), on="source", how="left")


def _clock(
    source: Mapping[str, Any], reading: Reading | None, *, is_client: bool, origin: Origin | None, page: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The clock of one source, without its name: by its absolute times, its origin, its reading, or the page's one time."""
    if source["first_utc"] is not None:
        zone = reading.zone if reading and source["local_ahead_s"] is None else zone_ahead(source)
        year = reading.base_year if reading else None
        return {"clock": "epoch", "error_s": 0.0, "method": "absolute times", "zone": zone, "base_year": year}
    if (is_client or source["first_counted_s"] is not None) and origin:
        error_s = None if origin.is_assumed else origin.error_s
        return {"clock": "monotonic", "mono_epoch_s": origin.epoch_s, "error_s": error_s, "method": origin.method}
    if is_client:
        return {"clock": "monotonic", "method": "nothing places its monotonic clock"}
    if reading:
        how = {"error_s": reading.error_s, "method": reading.method}
        return {"clock": "local", "zone": reading.zone, "base_year": reading.base_year} | how
    if page:
        return {"clock": "none", "placed_at": page["placed_at"], "error_s": page["error_s"], "method": page["method"]}
    return {"clock": "none", "method": "no times in it"}
