"""`make dev` as a user meets it: a folder is dropped, and the UI shows its run, tables, columns, lineage, checks and picture."""

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
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT

RUN = "vllm-0.32-queue-kv-capacity"
PATIENCE_S = 900  # a sensor tick, a process, and sixty short steps: half a minute on an idle machine, minutes on a busy one

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
    }
    program = Path(sys.executable).with_name("dagster")
    command = [str(program), "dev", "--host", "127.0.0.1", "--port", str(port), "--module-name", "pipelines.definitions"]
    with (root / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield _when_done(Ui(f"http://127.0.0.1:{port}"), root / "log")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _when_done(ui: Ui, log: Path) -> Ui:
    """The UI once the sensor has found the folder and its run has ended well."""
    deadline = time.monotonic() + PATIENCE_S
    status = "no run yet"
    while time.monotonic() < deadline:
        try:
            [location] = ui.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]
            assert location["locationOrLoadError"]["__typename"] == "RepositoryLocation", location["locationOrLoadError"][
                "message"
            ]
            runs = ui.ask("{ runsOrError { ... on Runs { results { status } } } }")["runsOrError"]["results"]
        except OSError:
            runs = []
        status = runs[0]["status"] if runs else status
        if status == "SUCCESS":
            return ui
        assert status not in ("FAILURE", "CANCELED"), log.read_text()[-4000:]
        time.sleep(1)
    raise TimeoutError(f"{status} after {PATIENCE_S} s:\n{log.read_text()[-4000:]}")


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
