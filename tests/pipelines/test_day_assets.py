"""The daily job in Dagster: one step a group, checks that warn or stop the night, and the days that late files bring back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import dagster as dg
import pytest

from parsers import InputError
from pipelines import checks, daily, fleet_day
from pipelines.build import EXECUTORS, build_defs, executor_named
from pipelines.config import Config, load
from pipelines.sensors import stale
from tests.pipelines.engine_days import at, configured, scrapes, write

DAY = "2026-11-27"
THRESHOLDS = "[thresholds]\npreemptions_per_hour = 50\nrecompute_share = 0.9\n"


@dataclass(frozen=True)
class Night:
    """One partition of the daily job, run in-process."""

    success: bool
    events: list[dg.DagsterEvent]

    def of(self, kind: dg.DagsterEventType) -> list[dg.DagsterEvent]:
        """The events of a kind, in their order."""
        return [event for event in self.events if event.event_type == kind]

    def unmet(self) -> list[dg.AssetCheckEvaluation]:
        """The checks that did not hold."""
        told = [event.asset_check_evaluation_data for event in self.of(dg.DagsterEventType.ASSET_CHECK_EVALUATION)]
        return [each for each in told if not each.passed]

    def failed(self) -> set[tuple[str, str]]:
        """Group and name of each check that did not hold."""
        return {(each.asset_key.path[1], each.check_name) for each in self.unmet()}

    def made(self) -> dict[tuple[str, ...], dict]:
        """What each asset's materialization shows."""
        events = self.of(dg.DagsterEventType.ASSET_MATERIALIZATION)
        told = [event.step_materialization_data.materialization for event in events]
        return {tuple(each.asset_key.path): {name: value.value for name, value in each.metadata.items()} for each in told}

    def metadata(self, *path: str) -> dict:
        """What an asset's materialization shows."""
        return self.made()[path]


def said(config: Config, lines: str) -> None:
    """Add lines to [lake]."""
    config.path.write_text(config.path.read_text().replace('url = "lake"', f'url = "lake"\n{lines}'))


def run(config: Config) -> Night:
    job = build_defs(config=config).resolve_job_def("daily")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance, partition_key=DAY, raise_on_error=False)
        return Night(result.success, list(result.all_events))


def two_groups(root: Path) -> Night:
    """Two groups; one has an engine without files."""
    config = configured(root, ("chat", "documents", "idle"), extra=THRESHOLDS)
    scrapes(root / f"chat/{DAY}/metrics.json", at(f"{DAY} 10:00"), 20)
    scrapes(root / f"documents/{DAY}/metrics.json", at(f"{DAY} 10:00"), 20, per_step=0.01)
    return run(config)


@pytest.fixture
def night(shared) -> Night:
    return shared.once("night", two_groups)


def test_a_night_makes_every_table_of_every_group_then_the_fleet_then_the_catalog(night):
    assert night.success
    steps = [event.step_key for event in night.of(dg.DagsterEventType.STEP_SUCCESS)]
    assert (set(steps[:2]), steps[2:]) == ({"days_even", "days_odd"}, ["fleet_day"])
    tables = {("days", group, table) for group in ("even", "odd") for table in daily.tables()}
    assert night.made().keys() == tables | {("fleet", model.table) for model in fleet_day.fleet_models().values()} | {
        ("fleet", name) for name in ("report", "catalog")
    }


def test_a_table_shows_its_rows_columns_lineage_the_day_in_words_and_a_picture(night):
    shown = night.metadata("days", "even", "waste")
    assert shown["dagster/row_count"] > 0
    columns = {column.name: column.description for column in shown["dagster/column_schema"].columns}
    assert list(columns)[:2] == ["day", "run"]
    assert all(columns.values())
    assert shown["dagster/column_lineage"].deps_by_column["tokens_best"]
    assert "chat  preemption" in shown["verdict"]
    assert shown["picture"].startswith("![the engines' day](data:image/png;base64,")


def test_a_threshold_passed_is_a_check_that_fails_and_warns_for_its_group_alone(night):
    assert night.failed() == {("even", "preemptions_per_hour"), ("even", "every_engine_is_there")}
    assert {each.severity for each in night.unmet()} == {dg.AssetCheckSeverity.WARN}


@pytest.mark.usefixtures("unmodelled")
def test_accounts_that_do_not_add_up_stop_the_night_before_the_fleet(tmp_path, monkeypatch):
    config = configured(tmp_path)
    scrapes(tmp_path / f"chat/{DAY}/metrics.json", at(f"{DAY} 10:00"), 20)
    broken = checks.DayCheck("always", "sources", "Never holds.", "select run, 'so' from days.sources", is_blocking=True)
    for module in ("checks", "day_assets"):
        monkeypatch.setattr(f"pipelines.{module}.DAY_CHECKS", (broken,))
    stopped = run(config)
    assert not stopped.success
    assert stopped.failed() == {("even", "always")}
    assert not stopped.made()


def test_a_group_of_which_nothing_can_be_read_fails_alone_and_the_fleet_is_made_of_the_others(tmp_path):
    config = configured(tmp_path, ("chat", "documents"))
    write(tmp_path / f"chat/{DAY}/notes", ["nothing\n"])
    scrapes(tmp_path / f"documents/{DAY}/metrics.json", at(f"{DAY} 10:00"), 20)
    night = run(config)
    [told] = night.unmet()
    assert (told.asset_key.path[1], told.check_name, told.severity.name) == ("even", "every_engine_is_there", "ERROR")
    assert (told.description or "").startswith("chat: its one file cannot be read: notes: ")
    assert night.metadata("days", "even", "verdicts")["dagster/row_count"] == 0
    assert night.metadata("days", "odd", "verdicts")["dagster/row_count"] > 0
    assert "documents" in night.metadata("fleet", "totals")["verdict"]
    assert night.success


def test_a_night_without_any_file_fails_where_the_fleet_would_be_made(tmp_path):
    config = configured(tmp_path)
    write(tmp_path / f"chat/{DAY}/notes", ["nothing\n"])
    unread = run(config)
    assert not unread.success
    assert unread.failed() == {("even", "every_engine_is_there")}
    [failed] = unread.of(dg.DagsterEventType.STEP_FAILURE)
    assert failed.step_key == "fleet_day"


# late files


@pytest.mark.usefixtures("unmodelled")
def test_late_files_bring_back_their_day_once_it_is_over_and_yesterday_only_after_the_night(tmp_path):
    config, now = configured(tmp_path), at("2026-11-28 00:10")
    assert list(stale(config, now)) == []
    scrapes(tmp_path / f"chat/{DAY}/metrics.json", at(f"{DAY} 10:00"), 3)
    scrapes(tmp_path / "chat/2026-11-25/metrics.json", at("2026-11-25 10:00"), 3)
    scrapes(tmp_path / "chat/2026-10-01/metrics.json", at("2026-10-01 10:00"), 3)
    [(group, day, mark)] = stale(config, now)
    assert (group, day) == ("even", date(2026, 11, 25))
    assert [each[2] for each in stale(config, now)] == [mark], "the same files make the same request"
    for each in (date(2026, 11, 25), date(2026, 11, 27)):
        daily.analyze_day(config, config.engine("chat"), each)
    assert list(stale(config, now)) == []
    scrapes(tmp_path / f"chat/{DAY}/late.json", at(f"{DAY} 22:00"), 3)
    assert [(group, day) for group, day, _ in stale(config, now)] == [("even", date(2026, 11, 27))]


def test_the_sensor_asks_for_the_tables_of_one_group_and_of_the_fleet(tmp_path):
    config = configured(tmp_path, ("chat", "documents"))
    scrapes(tmp_path / "chat/2026-11-25/metrics.json", at("2026-11-25 10:00"), 3)
    said(config, f"late_days = {(datetime.now(UTC).date() - date(2026, 11, 25)).days + 1}")
    defs = build_defs(config=load(config.path))
    [sensor] = [each for each in defs.sensors or () if each.name == "late_files"]
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, resources=dict(defs.resources or {}))
        told = sensor(context)
    [request] = told.run_requests
    assert request.partition_key == "2026-11-25"
    assert {key.path[1] for key in request.asset_selection if key.path[0] == "days"} == {"even"}
    assert {key.path[0] for key in request.asset_selection} == {"days", "fleet"}


# assembly


def test_the_nightly_schedule_begins_when_the_configuration_says(tmp_path):
    config = configured(tmp_path)
    said(config, 'nightly = 03:45:00\ntimezone = "Asia/Tokyo"')
    schedule = build_defs(config=load(config.path)).resolve_schedule_def("nightly")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("45 3 * * *", "Asia/Tokyo")


def test_an_unknown_executor_and_one_without_its_package_are_told_in_one_line(monkeypatch):
    with pytest.raises(InputError, match="KVPRESSURE_EXECUTOR is `ray`; it should be in_process, ") as told:
        executor_named("ray", {})
    assert all(name in str(told.value) for name in EXECUTORS)
    monkeypatch.setitem(__import__("sys").modules, "dagster_k8s", None)
    with pytest.raises(InputError, match=r"pip install 'kvpressure\[kubernetes\]'"):
        executor_named("k8s", {})


def test_the_example_configuration_is_valid():
    config = load(Path(__file__).parents[2] / "sample_traces/daily/kvpressure.toml")
    assert config.groups == ("interactive", "batch")
