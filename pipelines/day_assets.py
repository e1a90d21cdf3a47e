"""Assets of the daily job: each group's tables of a day, the fleet's tables of that day, and the catalog. A partition is a day.

A group is one step, so that the executor can take groups side by side; then the fleet is reduced once, and the catalog published
last. The bodies are a few lines around the functions that `kvpressure daily` calls too.
(No `from __future__ import annotations` here: Dagster looks at the annotations themselves.)
"""

import base64
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import Any

import dagster as dg
import duckdb

from pipelines import catalog, daily, fleet_day, fleet_report
from pipelines.assets import OWNERS, table_metadata
from pipelines.charts.day_picture import day_png
from pipelines.checks import DAY_CHECKS, DayCheck, judged
from pipelines.cli_daily import verdicts, views
from pipelines.config import Config
from pipelines.duck import connect
from pipelines.models import models
from pipelines.partition import finished
from pipelines.partitions import days_of
from pipelines.resources import DailyJob

RETRY = dg.RetryPolicy(max_retries=2, delay=60, backoff=dg.Backoff.EXPONENTIAL)
FRESH = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=36), warn_window=timedelta(hours=30))
NAMED, SHOWN = 3, 20  # engines named where a check's outcome is said in one line, and in a list


def key(group: str, table: str) -> dg.AssetKey:
    """The asset of one table of a group's days."""
    return dg.AssetKey(["days", group, table])


def group_assets(config: Config, group: str) -> dg.AssetsDefinition:
    """The assets of one group's days: its published tables, with the checks of the day."""
    specs = [
        dg.AssetSpec(
            key(group, table),
            description=models()[name].purpose if name in models() else "The files read: one row each, with what became of it.",
            group_name=f"days_{group}",
            kinds={"duckdb", "parquet"},
            owners=OWNERS,
            code_version=daily.code_version(),
            freshness_policy=FRESH,
        )
        for table, name in daily.tables().items()
    ]
    checks = [
        dg.AssetCheckSpec(each.name, asset=key(group, each.table), description=each.meaning, blocking=each.is_blocking)
        for each in DAY_CHECKS
    ]
    checks.append(
        dg.AssetCheckSpec(
            daily.MISSING, asset=key(group, "runs"), description="Each engine has files of the day that can be read."
        )
    )

    @dg.multi_asset(name=f"days_{group}", specs=specs, check_specs=checks, partitions_def=days_of(config), retry_policy=RETRY)
    def assets(context: dg.AssetExecutionContext, daily_job: DailyJob) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        config, day = daily_job.load(), date.fromisoformat(context.partition_key)
        # what is told of each table is not passed on: it would be thousands of events in Dagster's database
        outcomes = daily.analyze_all(config, config.fleet(group), day)
        lacking = daily.lacking(config, outcomes)
        faults = daily.faults(lacking)
        if faults and context.retry_number == 0 and any(engine.settings.prometheus for engine in config.fleet(group)):
            raise dg.RetryRequested(max_retries=1, seconds_to_wait=RETRY.delay)  # a server may only be starting
        context.log.info("%s: %s", day, ", ".join(f"{each.engine} {each.status}" for each in outcomes))
        names = [each.engine for each in outcomes if each.manifest]
        gone = [how for _, how in daily.missing(config, day, lacking, (group,))]
        yield _missing(group, gone, is_fault=bool(faults) or not names)
        with connect() as con:
            if not views(con, config, day, names):  # a group that fails alone: the fleet is made of the others
                context.log.error("no engine of %s has a file of %s that could be read", group, day)
                yield from _untold(group, day)
                return
            results = [_day_result(check, group, con, config) for check in DAY_CHECKS]
            yield from results
            if wrong := [each.check_name for each in results if not each.passed and each.severity == dg.AssetCheckSeverity.ERROR]:
                raise dg.Failure(f"{group} on {day}: {', '.join(map(str, wrong))}; see the checks", allow_retries=False)
            shown = _shown(con, config, day, names)
            for table, name in daily.tables().items():
                yield dg.MaterializeResult(asset_key=key(group, table), metadata={**_table(con, table, name), **shown})

    return assets


def fleet_assets(config: Config) -> dg.AssetsDefinition:
    """The assets of the fleet's days: one for each table that is made of all groups, and the catalog that is published last."""
    specs = [
        dg.AssetSpec(
            dg.AssetKey(["fleet", model.table]),
            deps=[
                key(group, read.split(".")[1]) if read.startswith("days.") else dg.AssetKey(["fleet", read.split(".")[1]])
                for group in config.groups
                for read in model.reads
                if not read.startswith("history.") and read != f"days.{fleet_day.FLEET}"
            ],
            description=model.purpose,
            group_name="fleet",
            kinds={"duckdb", "sql"},
            owners=OWNERS,
            freshness_policy=FRESH,
        )
        for model in fleet_day.fleet_models().values()
    ]
    page = dg.AssetSpec(
        dg.AssetKey(["fleet", "report"]),
        deps=[spec.key for spec in specs],
        description="report.html: one page for the day, with the engines that waste most, what turned and what changed with it.",
        group_name="fleet",
        kinds={"html"},
        owners=OWNERS,
    )
    published = dg.AssetSpec(
        dg.AssetKey(["fleet", "catalog"]),
        deps=[page.key, *(key(group, "verdicts") for group in config.groups)],
        description="catalog.duckdb and catalog.sql: a view for each table of the lake.",
        group_name="fleet",
        kinds={"duckdb"},
        owners=OWNERS,
    )

    @dg.multi_asset(name="fleet_day", specs=[*specs, page, published], partitions_def=days_of(config), retry_policy=RETRY)
    def assets(context: dg.AssetExecutionContext, daily_job: DailyJob) -> Iterator[dg.MaterializeResult]:
        config, day = daily_job.load(), date.fromisoformat(context.partition_key)
        if not finished(config.store, day):
            raise dg.Failure(
                f"no engine has a file of {day} that could be read; see the checks of the groups", allow_retries=False
            )
        reduced = fleet_day.reduce_from(config, day, then=fleet_report.publish)
        context.log.info("reduced %s", ", ".join(map(str, reduced)) or "nothing: all of it is up to date")
        with connect() as con:
            names = [engine.name for engine in config.fleet()]
            shown = _shown(con, config, day, names) if views(con, config, day, names) else {}
            fleet_day.fleet_views(con, config, day)
            for model in fleet_day.fleet_models().values():
                metadata = table_metadata(model.name, dict(model.columns), con)
                yield dg.MaterializeResult(asset_key=dg.AssetKey(["fleet", model.table]), metadata={**metadata, **shown})
        uri = config.store.uri(fleet_report.name_of(day))
        yield dg.MaterializeResult(asset_key=page.key, metadata={"dagster/uri": uri, **shown})
        catalog.publish(config.store)
        metadata = {"dagster/uri": config.store.uri(catalog.DATABASE), "views": len(catalog.statements(config.store)) // 2 - 1}
        yield dg.MaterializeResult(asset_key=published.key, metadata={**metadata, **shown})

    return assets


def _table(con: duckdb.DuckDBPyConnection, table: str, name: str) -> dict[str, Any]:
    return table_metadata(f"days.{table}", daily.meanings(table), con, made_by=name)


def _shown(con: duckdb.DuckDBPyConnection, config: Config, day: date, engines: list[str]) -> dict[str, Any]:
    """The day in words and in a picture, on the page of every table."""
    worst = con.sql("select run, verdict, max(severity) from days.verdicts where is_primary group by all order by all").fetchall()
    picture = base64.b64encode(day_png(day, worst)).decode()
    said = verdicts(config, day, engines)
    more = [f"and {len(said) - SHOWN} more"] if len(said) > SHOWN else []
    return {
        "verdict": dg.MetadataValue.md("\n".join(f"- {line}" for line in [*said[:SHOWN], *more])),
        "picture": dg.MetadataValue.md(f"![the engines' day](data:image/png;base64,{picture})"),
    }


def _untold(group: str, day: date) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """A group of which nothing could be read: no row of that day. What the lake has of it, if anything, is left as it is."""
    said = f"No file of {day} could be read: `{daily.MISSING}` of its runs says why."
    for each in DAY_CHECKS:  # Dagster wants each; none of them has a row that breaks it
        yield dg.AssetCheckResult(check_name=each.name, asset_key=key(group, each.table), passed=True, description=said)
    for table in daily.tables():
        yield dg.MaterializeResult(
            asset_key=key(group, table), metadata={"dagster/row_count": 0, "verdict": dg.MetadataValue.md(said)}
        )


def _day_result(check: DayCheck, group: str, con: duckdb.DuckDBPyConnection, config: Config) -> dg.AssetCheckResult:
    limit = check.limit_of(config.thresholds)
    found, untold = judged(check, con, limit)
    said = [f"{engine}: {how}" for engine, how in [*found, *((engine, "not judged, no input tells it") for engine in untold)]]
    blocking = dg.AssetCheckSeverity.ERROR if check.is_blocking else dg.AssetCheckSeverity.WARN
    limited = {"limit": str(limit)} if limit is not None else {}
    return _told(check.name, key(group, check.table), said, passed=not found, severity=blocking, **limited)


def _missing(group: str, said: list[str], *, is_fault: bool) -> dg.AssetCheckResult:
    severity = dg.AssetCheckSeverity.ERROR if is_fault else dg.AssetCheckSeverity.WARN
    return _told(daily.MISSING, key(group, "runs"), said, passed=not said, severity=severity)


def _told(
    name: str, asset: dg.AssetKey, said: Sequence[str], *, passed: bool, severity: dg.AssetCheckSeverity, **more: str
) -> dg.AssetCheckResult:
    """A check's outcome: the first engines in its line, and more of them in a list."""
    return dg.AssetCheckResult(
        check_name=name,
        asset_key=asset,
        passed=passed,
        severity=severity,
        description="; ".join(said[:NAMED]) + (", …" if len(said) > NAMED else "") or None,
        metadata={"engines": dg.MetadataValue.md("\n".join(f"- {each}" for each in said[:SHOWN]) or "none"), **more},
    )
