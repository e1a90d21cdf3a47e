"""`kvpressure daily`: the daily job without a scheduler, for cron and for trying a configuration out.

Days before are looked at again, since files come late; what has not changed is left alone. The catalog is written last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import duckdb

from pipelines import catalog, daily, fleet_day, fleet_report, retention
from pipelines.charts import language
from pipelines.checks import DAY_CHECKS, judged
from pipelines.config import Config, Engine
from pipelines.duck import connect
from pipelines.partition import finished

Tell = Callable[[str], object]


@dataclass
class Report:
    """What one call did: a line per engine's day that was made, alert, threshold that could not be judged, or fault."""

    made: list[str] = field(default_factory=list)
    unchanged: int = 0
    empty: int = 0
    withdrawn: list[str] = field(default_factory=list)
    alerts: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    dropped: list[date] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """What is printed."""
        yield from self.made
        yield from (f"{each}  taken out: --fresh, and nothing of it is there" for each in self.withdrawn)
        yield from (f"alert: {alert}" for alert in self.alerts)
        yield from (f"not judged: {each}" for each in self.unjudged)
        counts = [f"{len(self.made)} made, {self.unchanged} unchanged, {self.empty} without input"]
        counts += [f"{len(self.withdrawn)} taken out"] if self.withdrawn else []
        yield ", ".join(counts + ([f"{len(self.dropped)} days dropped"] if self.dropped else []))


def days_of(config: Config, days: Sequence[date], back: int, now: datetime | None = None) -> list[date]:
    """The days to bring up to date: those given, else yesterday and `back` days before it."""
    yesterday = config.day_of(now or datetime.now(UTC)) - timedelta(days=1)
    return sorted(set(days)) or [yesterday - timedelta(days=each) for each in range(back, -1, -1)]


def run(  # noqa: PLR0913 - each by its name
    config: Config,
    engines: Sequence[Engine],
    days: Sequence[date],
    *,
    again: Collection[date] = (),
    fresh: bool = False,
    tell: Tell = lambda _: None,
) -> Report:
    """Bring these engines' days up to date, then the fleet's tables, retention, the catalog. A fault stops only its own day.

    On the days looked at again for late files nothing is missed that was missed in its own night, or before there was an engine.
    """
    groups = config.groups if {each.name for each in engines} >= {each.name for each in config.fleet()} else ()
    config.store.sweep()
    report = Report()
    for day in days:
        outcomes = daily.analyze_all(config, engines, day, fresh=fresh, tell=tell)
        lacking = daily.lacking(config, outcomes, is_again=day in again)
        report.faults += daily.faults(lacking)
        report.unchanged += sum(each.status == daily.UNCHANGED for each in outcomes)
        report.empty += sum(each.status == daily.EMPTY for each in outcomes)
        report.withdrawn += [f"{day}  {each.engine}" for each in outcomes if each.status == daily.WITHDRAWN]
        report.made += verdicts(config, day, [each.engine for each in outcomes if each.status == daily.MADE])
        found, unknown = alerts(config, day, [engine.name for engine in engines])
        report.alerts += found
        report.unjudged += unknown
        gone = daily.missing(config, day, lacking, () if day in again else groups)
        report.alerts += [f"{day}  {group}  {daily.MISSING}: {how}" for group, how in gone]
    fleet_day.reduce_from(config, min(days), then=fleet_report.publish, tell=tell)
    report.dropped = retention.drop_old(config, config.day_of(datetime.now(UTC)))
    catalog.publish(config.store)
    return report


def verdicts(config: Config, day: date, engines: Sequence[str]) -> list[str]:
    """The day of each engine in a sentence, the worst first."""
    query = "select run, severity, verdict, summary from days.verdicts where is_primary order by severity desc, run, engine"
    with connect() as con:
        rows = con.sql(query).fetchall() if views(con, config, day, engines) else []
    return [
        f"{day}  {run}  {language.word(language.VERDICTS, verdict).in_a_sentence} ({severity:.0f}): {summary}"
        for run, severity, verdict, summary in rows
    ]


def alerts(config: Config, day: date, engines: Sequence[str]) -> tuple[list[str], list[str]]:
    """What breaks a check of the day, and of whom a threshold could not be judged."""
    found, unknown = [], []
    with connect() as con:
        for check in DAY_CHECKS if views(con, config, day, engines) else ():
            breaks, untold = judged(check, con, check.limit_of(config.thresholds))
            found += [f"{day}  {engine}  {check.name}: {how}" for engine, how in breaks]
            if untold:
                unknown.append(f"{day}  {check.name}: no input tells it of {language.listed(untold)}")
    return found, unknown


def views(con: duckdb.DuckDBPyConnection, config: Config, day: date, engines: Sequence[str]) -> bool:
    """Views of the finished days of these engines on the connection; False where there is none."""
    done = [engine for engine in finished(config.store, day) if engine in set(engines)]
    if done:
        fleet_day.day_views(con, config, day, done)
    return bool(done)
