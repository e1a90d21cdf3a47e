"""`make dev` as a user meets it, with a dropped folder and the example configuration of the daily job.

The UI shows the run's tables, columns, lineage, checks and picture; a night that its schedule began; three days filled in behind;
and an alert, which is a check that does not hold. In a browser too, where there is a Chromium.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import CHROMIUM, LACKING, launch
from tests.conftest import PROJECT

pytestmark = pytest.mark.drill

RUN = "vllm-0.32-queue-kv-capacity"
LAST = datetime.now(UTC).date() - timedelta(days=1)
DAYS = [LAST - timedelta(days=back) for back in (2, 1, 0)]
PATIENCE_S = 1800  # six runs, one of which waits for its minute: two minutes on an idle machine, many on a busy one

ASSET = """
query ($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode {
      groupName kinds
      owners { ... on TeamAssetOwner { team } }
      assetMaterializations(limit: 1) {
        partition
        metadataEntries {
          __typename label
          ... on IntMetadataEntry { intValue }
          ... on MarkdownMetadataEntry { mdStr }
          ... on TextMetadataEntry { text }
          ... on TableSchemaMetadataEntry { schema { columns { name type description } } }
          ... on TableColumnLineageMetadataEntry { lineage { columnName columnDeps { assetKey { path } columnName } } }
        }
      }
      assetChecksOrError {
        ... on AssetChecks { checks { name executionForLatestMaterialization { status } } }
      }
    }
  }
}
"""

RUNS = """
{ runsOrError { ... on Runs { results { runId jobName status tags { key value } } } } }
"""

RELOAD = """
mutation ($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) { __typename } }
"""

ASSETS = """
{ assetNodes { assetKey { path } jobNames } }
"""

BACKFILL = """
mutation ($backfill: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $backfill) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""

LOCATIONS = """
{ workspaceOrError { ... on Workspace {
  locationEntries { locationOrLoadError { __typename ... on PythonError { message } } }
} } }
"""


@dataclass(frozen=True)
class Ui:
    """A running `dagster dev`, asked over GraphQL as its own pages ask."""

    address: str

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.address}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            told = json.load(answer)
        assert "errors" not in told, told["errors"]
        return told["data"]

    def asset(self, *path: str) -> dict[str, Any]:
        return self.ask(ASSET, key={"path": list(path)})["assetNodeOrError"]

    def metadata(self, *path: str) -> dict[str, dict[str, Any]]:
        entries = self.asset(*path)["assetMaterializations"][0]["metadataEntries"]
        return {entry["label"]: entry for entry in entries}


@pytest.fixture(scope="module")
def ui(tmp_path_factory) -> Iterator[Ui]:
    root = tmp_path_factory.mktemp("ui")
    shutil.copytree(PROJECT / "sample_traces" / RUN, root / "drop" / RUN)
    script = PROJECT / "sample_traces" / "daily" / "make_days.py"
    subprocess.run([sys.executable, str(script), str(root / "daily"), "--last", str(LAST)], check=True)
    configuration = root / "daily" / "kvpressure.toml"
    in_lake(configuration, "late_days = 0")  # nothing here is late, and a sensor's run would be one more
    (root / "home").mkdir()
    shutil.copy(PROJECT / "pipelines" / "dagster.yaml", root / "home")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "DAGSTER_HOME": str(root / "home"),
        "KVPRESSURE_DROP": str(root / "drop"),
        "KVPRESSURE_LAKE": str(root / "lake"),
        "KVPRESSURE_QUIET_S": "0",
        "KVPRESSURE_CONFIG": str(configuration),
    }
    program = Path(sys.executable).with_name("dagster")
    command = [str(program), "dev", "--host", "127.0.0.1", "--port", str(port), "--module-name", "pipelines.definitions"]
    with (root / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        ui = _when_up(Ui(f"http://127.0.0.1:{port}"), root / "log")
        _fill_in(ui)
        _begin_night(ui, configuration)
        yield _when_done(ui, root / "log")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def in_lake(configuration: Path, line: str) -> None:
    """Add a line to [lake]."""
    configuration.write_text(configuration.read_text().replace("[lake]\n", f"[lake]\n{line}\n", 1))


def _when_up(ui: Ui, log: Path) -> Ui:
    """The UI once it has loaded the code."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            [location] = ui.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]
            loaded = location["locationOrLoadError"]
        except (OSError, TypeError, ValueError):  # not up, or not loaded yet
            loaded = None
        if loaded:
            assert loaded["__typename"] == "RepositoryLocation", loaded["message"]
            return ui
        time.sleep(1)
    raise TimeoutError(f"not up after {PATIENCE_S} s:\n{log.read_text()[-4000:]}")


def _fill_in(ui: Ui) -> None:
    """Begin a backfill of the three days, as the page does."""
    keys = [node["assetKey"] for node in ui.ask(ASSETS)["assetNodes"] if "daily" in node["jobNames"]]
    begun = ui.ask(BACKFILL, backfill={"assetSelection": keys, "partitionNames": list(map(str, DAYS))})["launchPartitionBackfill"]
    assert begun["__typename"] == "LaunchBackfillSuccess", begun


def _begin_night(ui: Ui, configuration: Path) -> None:
    """Let the schedule's hour come: in the configuration it is the minute after next."""
    at = datetime.now(UTC) + timedelta(seconds=100)
    in_lake(configuration, f"nightly = {at:%H:%M}:00")
    ui.ask(RELOAD, name="pipelines.definitions")


def _when_done(ui: Ui, log: Path) -> Ui:
    """The UI once the dropped folder, the three days and the scheduled night have been run, and well."""
    deadline = time.monotonic() + PATIENCE_S
    done: list[dict[str, Any]] = []
    while time.monotonic() < deadline:
        runs = ui.ask(RUNS)["runsOrError"]["results"]
        failed = [run for run in runs if run["status"] in ("FAILURE", "CANCELED")]
        assert not failed, f"{failed}\n{log.read_text()[-4000:]}"
        done = [run for run in runs if run["status"] == "SUCCESS"]
        tags = [tag["key"] for run in done for tag in run["tags"]]
        counts = (tags.count("dagster/sensor_name"), tags.count("dagster/backfill"), tags.count("dagster/schedule_name"))
        if counts >= (1, len(DAYS), 1) and counts[1] == len(DAYS) and counts[2]:
            return ui
        time.sleep(1)
    raise TimeoutError(f"after {PATIENCE_S} s only {done}:\n{log.read_text()[-4000:]}")


def test_the_dropped_folder_became_a_partition(ui):
    [materialization] = ui.asset("marts", "queue_time")["assetMaterializations"]
    assert materialization["partition"] == RUN


def test_an_asset_shows_its_layer_kinds_and_owner(ui):
    asset = ui.asset("marts", "queue_time")
    assert (asset["groupName"], sorted(asset["kinds"]), asset["owners"]) == ("marts", ["duckdb", "sql"], [{"team": "kvpressure"}])


def test_an_asset_shows_its_rows_and_documented_columns(ui):
    shown = ui.metadata("marts", "queue_time")
    assert shown["dagster/row_count"]["intValue"] > 0
    columns = {column["name"]: column for column in shown["dagster/column_schema"]["schema"]["columns"]}
    assert columns["seconds"]["type"] == "double"
    assert columns["seconds"]["description"]


def test_an_asset_shows_where_its_columns_come_from(ui):
    lineage = {
        each["columnName"]: each["columnDeps"] for each in ui.metadata("marts", "queue_time")["dagster/column_lineage"]["lineage"]
    }
    assert {"core"} == {dep["assetKey"]["path"][0] for dep in lineage["engine"]}


def test_an_asset_shows_its_checks_and_that_they_hold(ui):
    checks = ui.asset("marts", "queue_time")["assetChecksOrError"]["checks"]
    assert {check["name"]: check["executionForLatestMaterialization"]["status"] for check in checks}[
        "key_is_unique"
    ] == "SUCCEEDED"


def test_the_report_shows_its_picture_and_the_verdict(ui):
    shown = ui.metadata("published", "report")
    assert "data:image/png;base64," in shown["timeline"]["mdStr"]
    assert "queue_kv_capacity" in shown["verdict"]["text"]


def test_the_pages_answer(ui):
    for page in ("/assets", "/runs", "/asset-groups"):
        with urllib.request.urlopen(f"{ui.address}{page}", timeout=60) as answer:
            assert answer.status == 200


# the daily job


def test_the_night_began_by_its_schedule_and_three_days_were_filled_in(ui):
    runs = [{tag["key"]: tag["value"] for tag in run["tags"]} for run in ui.ask(RUNS)["runsOrError"]["results"]]
    scheduled = {tags["dagster/partition"] for tags in runs if tags.get("dagster/schedule_name") == "nightly"}
    assert scheduled == {str(LAST)}
    assert sorted(tags["dagster/partition"] for tags in runs if "dagster/backfill" in tags) == list(map(str, DAYS))


def test_a_table_of_a_group_shows_the_day_in_words_and_the_alert_as_a_check_that_does_not_hold(ui):
    shown = ui.metadata("days", "interactive", "waste")
    assert "preemption" in shown["verdict"]["mdStr"]
    assert "data:image/png;base64," in shown["picture"]["mdStr"]
    checks = ui.asset("days", "interactive", "waste")["assetChecksOrError"]["checks"]
    assert {check["name"]: check["executionForLatestMaterialization"]["status"] for check in checks} == {
        "recompute_share": "FAILED"
    }
    checks = ui.asset("days", "batch", "waste")["assetChecksOrError"]["checks"]
    assert [check["executionForLatestMaterialization"]["status"] for check in checks] == ["SUCCEEDED"]


SHOWN = {  # page -> texts on it
    "/locations/pipelines.definitions/schedules/nightly": ("nightly", "Running"),
    "/runs?view=backfills": ("3 partitions", "Success"),
    "/assets/days/interactive/waste?view=checks": (
        "recompute_share",
        "of all tokens were computed again after preemptions",
        "Failed",
    ),
    "/assets/days/interactive/waste": ("What the GPU computed a second time", "interactive"),
}


@pytest.mark.skipif(CHROMIUM is None, reason=LACKING)
def test_a_browser_shows_the_schedule_the_backfill_and_the_alert(ui, tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser: pip install playwright")
    with sync_api.sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        for number, (path, texts) in enumerate(SHOWN.items()):
            page.goto(f"{ui.address}{path}")
            for text in texts:
                page.get_by_text(text).first.wait_for(timeout=120_000)
            page.wait_for_timeout(1000)
            page.screenshot(path=tmp_path / f"{number}.png")
        browser.close()
