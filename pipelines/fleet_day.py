"""A day of the whole fleet: the small tables that are made of every engine's day, one query each in `sql/fleet/`.

    days.<table>        the day's rows of a published table, of every engine whose day is finished (columns day, run, …)
    days.fleet          one row per engine of the configuration: run, engine_group, model, cluster, gpu_cost_usd_per_hour, labels
    fleet.<table>       another of the fleet's tables, of the same day
    history.<table>     the same table of the days before, up to HISTORY_DAYS back; empty where there are none. Who reads it
                        reads fleet.<table> as well: a trend is one of something

The day is `getvariable('day')::date`. `fleet/_done/day=….json` says what a day was reduced from; it is reduced again where that
has changed, and then those whose trends reach back to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import date, timedelta
from functools import cache
from graphlib import TopologicalSorter
from importlib.resources import files
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines import daily
from pipelines.config import Config
from pipelines.duck import connect, literal
from pipelines.lake import Lake
from pipelines.models import Model, ModelError, from_sql, nothing_of, put_query
from pipelines.partition import Manifest, days, finished, kept_lacks, lake_of

Tell = Callable[[str], object]
Then = Callable[[duckdb.DuckDBPyConnection, Config, date], object]  # with views of all that the day is made of and has become
HISTORY_DAYS = 28
FLEET = "fleet"  # the table of the configured engines, beside the published ones
FLEET_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("engine_group", pa.string()),
        ("model", pa.string()),
        ("cluster", pa.string()),
        ("gpu_cost_usd_per_hour", pa.float64()),
        ("labels", pa.map_(pa.string(), pa.string())),
    ]
)


@cache
def fleet_models() -> dict[str, Model]:
    """The fleet's tables, each after all of the fleet's it reads. ModelError where one reads what nothing makes."""
    found = {model.name: model for model in map(from_sql, sorted((Path(str(files("sql"))) / "fleet").glob("*.sql")))}
    known = {f"days.{table}" for table in (*daily.tables(), FLEET)} | set(found)
    for model in found.values():
        for read in model.reads:
            if (made := read.replace("history.", "fleet.", 1)) not in (known if made == read else model.reads):
                raise ModelError(f"{model.name} reads {read} and not {made}" if made in known else f"nothing makes {read}")
    order = TopologicalSorter({name: [read for read in model.reads if read in found] for name, model in sorted(found.items())})
    return {name: found[name] for name in order.static_order()}


def reduce_from(config: Config, day: date, *, then: Then = lambda *_: None, tell: Tell = lambda _: None) -> list[date]:
    """Make the fleet's tables of a day, and of later days whose trends reach back to it, where they are not. Returns these.

    Days shortly before are looked at too: two nights that ran at once may each have missed what the other did.
    """
    first, last = day - timedelta(days=config.lake.late_days), day + timedelta(days=HISTORY_DAYS)
    reached = [each for each in days(config.store) if first <= each <= last]
    return [each for each in reached if reduce_day(config, each, then=then, tell=tell)]


def reduce_day(config: Config, day: date, *, then: Then = lambda *_: None, tell: Tell = lambda _: None) -> bool:
    """Make the fleet's tables of one day, and `then` what is made of them, before the day counts as reduced.

    False where they are made of what there is, or no engine's day is finished.
    """
    engines, done = finished(config.store, day), f"fleet/_done/day={day.isoformat()}.json"
    origin = _origin(config, day, engines)
    if not engines or config.store.read(done) == origin:
        return False
    tell(f"reducing {day}")
    with connect() as con:
        day_views(con, config, day, engines)
        _history_views(con, config, day, fleet_models().values())
        lake = Lake.of(config.store, day=day.isoformat())
        for model in fleet_models().values():
            put_query(model, lake=lake, con=con)
            _view(con, model.name, [lake.uri(model.name)])
        then(con, config, day)
    config.store.put_bytes(done, origin)
    return True


def _origin(config: Config, day: date, engines: Mapping[str, Manifest]) -> bytes:
    """What the fleet's tables of a day are made of, as bytes to compare."""
    before = [each for each in days(config.store) if timedelta() < day - each <= timedelta(days=HISTORY_DAYS)]
    history = {each.isoformat(): config.store.read(f"fleet/_done/day={each.isoformat()}.json") or b"" for each in before}
    told = {
        "code": daily.code_version(),
        "fleet": _fleet_rows(config),
        "thresholds": asdict(config.thresholds),
        "lacking": kept_lacks(config.store, day),
        "engines": {engine: _digest(manifest.as_json()) for engine, manifest in engines.items()},
        "history": {each: _digest(done) for each, done in history.items()},
    }
    return json.dumps(told, indent=1).encode()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def day_views(con: duckdb.DuckDBPyConnection, config: Config, day: date, engines: Iterable[str]) -> None:
    """Views of a day's published tables over these engines, of which there is at least one, and `days.fleet`."""
    config.store.open_on(con)
    for schema in ("days", "fleet", "history"):
        con.execute(f"create schema if not exists {schema}")
    con.execute("set variable day = $value::date", {"value": day.isoformat()})
    for table in daily.tables():
        _view(con, f"days.{table}", [lake_of(config.store, engine, day).uri(f"days.{table}") for engine in engines])
    con.register("_fleet", pa.Table.from_pylist(_fleet_rows(config), schema=FLEET_SCHEMA))
    con.execute(f"create or replace table days.{FLEET} as from _fleet")
    con.unregister("_fleet")


def fleet_views(con: duckdb.DuckDBPyConnection, config: Config, day: date) -> None:
    """Views of the fleet's tables of a day, and of the days before as far as trends read them."""
    lake = Lake.of(config.store, day=day.isoformat())
    config.store.open_on(con)
    for schema in ("fleet", "history"):
        con.execute(f"create schema if not exists {schema}")
    for name in fleet_models():
        _view(con, name, [lake.uri(name)])
    _history_views(con, config, day, fleet_models().values())


def _fleet_rows(config: Config) -> list[dict[str, object]]:
    return [
        {
            "run": engine.name,
            "engine_group": engine.group,
            "model": engine.labels.get("model"),
            "cluster": engine.labels.get("cluster"),
            "gpu_cost_usd_per_hour": engine.settings.gpu_cost,
            "labels": sorted(engine.labels.items()),
        }
        for engine in config.fleet()
    ]


def _history_views(con: duckdb.DuckDBPyConnection, config: Config, day: date, models: Iterable[Model]) -> None:
    """Views `history.<table>` of what these models read of the days before."""
    before = [each for each in days(config.store) if timedelta() < day - each <= timedelta(days=HISTORY_DAYS)]
    lakes = [Lake.of(config.store, day=each.isoformat()) for each in before]
    for view in sorted({read for model in models for read in model.reads if read.startswith("history.")}):
        table = view.replace("history.", "fleet.", 1)
        if made := [lake.uri(table) for lake in lakes if lake.has(table)]:
            _view(con, view, made)
        else:  # the first day: the table as it will be, without a row
            con.execute(f"create or replace view {view} as {nothing_of(fleet_models()[table])}")


def _view(con: duckdb.DuckDBPyConnection, name: str, uris: Iterable[str]) -> None:
    listed = ", ".join(map(literal, uris))
    con.execute(
        f"create or replace view {name} as from read_parquet([{listed}], hive_partitioning = false, union_by_name = true)"
    )
