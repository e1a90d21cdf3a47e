"""Dagster as the thin shell: the same tables as the command line makes, and everything it should show of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from parsers.columns import TABLES
from pipelines.build import build_defs
from pipelines.lineage import column_lineage
from pipelines.models import models
from pipelines.resources import Workspace
from pipelines.sensors import never_runs, settled
from tests.conftest import PROJECT

RUN = "vllm-0.32-queue-kv-capacity"
SAMPLE = PROJECT / "sample_traces" / RUN


SOME = ("staging.clocks", "core.blocks_stored_again", "marts.queue_time", "advice.verdicts")  # by a function, and by queries


@dataclass(frozen=True)
class Done:
    """One partition materialized in-process."""

    shown: dict[str, dict[str, Any]]  # what each asset's materialization shows
    failed: set[str]  # names of checks
    results: Path


def materialized(root: Path, tables: Iterable[str]) -> Done:
    """The inputs, these tables and what is published of them. Any other table is there or is made of nothing else."""
    shutil.copytree(SAMPLE, root / "drop" / RUN)
    workspace = Workspace(drop=str(root / "drop"), lake=str(root / "lake"))
    job = build_defs(workspace=workspace).resolve_job_def("analyze_run")
    keys = [dg.AssetKey(["raw", table]) for table in TABLES] + [dg.AssetKey(table.split(".")) for table in tables]
    with dg.DagsterInstance.ephemeral() as instance:  # in memory: a database of its own would take longer than the tables
        instance.add_dynamic_partitions("runs", [RUN])
        result = job.execute_in_process(
            instance=instance, partition_key=RUN, asset_selection=[*keys, dg.AssetKey(["published", "report"])]
        )
    shown = {
        "/".join(each.asset_key.path): {name: value.value for name, value in each.materialization.metadata.items()}
        for each in result.get_asset_materialization_events()
    }
    failed = {evaluation.check_name for evaluation in result.get_asset_check_evaluations() if not evaluation.passed}
    return Done(shown, failed, workspace.results(RUN))


def are_the_same(results: Path, analysis: Path) -> None:
    """The tables and pages of one are those of the other to the byte, but for where the inputs lay."""
    tables = sorted(f"tables/{path.name}" for path in (results / "tables").iterdir())
    assert tables == sorted(f"tables/{path.name}" for path in (analysis / "tables").iterdir())
    for name in {*tables} - {"tables/sources.parquet"} | {"summary.json", "report.html"}:
        assert (results / name).read_bytes() == (analysis / name).read_bytes(), name


@pytest.fixture
def done(shared, analyze_sample) -> Done:
    """Some tables made by Dagster in a lake that has the others."""

    def some(root: Path) -> Done:
        shutil.copytree(analyze_sample(SAMPLE).lake.store.folder, root / "lake")
        for table in SOME:
            shutil.rmtree(root / "lake" / table.replace(".", "/"))
        return materialized(root, SOME)

    return shared.once("dagster", some)


def test_the_assets_and_the_command_line_make_the_same_tables(done, analyze_sample):
    are_the_same(done.results, analyze_sample(SAMPLE).analysis.out)
    assert set(done.shown) >= {table.replace(".", "/") for table in SOME} | {"raw/sources", "published/report"}


@pytest.mark.drill
def test_every_asset_makes_the_table_that_the_command_line_makes(tmp_path, analyze_sample):
    are_the_same(materialized(tmp_path, models()).results, analyze_sample(SAMPLE).analysis.out)


def test_there_is_one_asset_per_table_grouped_by_layer():
    specs = build_defs().resolve_all_asset_specs()
    groups = {"/".join(spec.key.path): spec.group_name for spec in specs}
    tables = [*(f"raw.{table}" for table in TABLES), *models()]
    assert groups == {table.replace(".", "/"): table.split(".")[0] for table in tables} | {"published/report": "published"}
    for spec in specs:
        assert spec.description or spec.group_name == "raw", spec.key
        assert spec.owners, spec.key
        assert spec.kinds, spec.key


def test_the_graph_reads_what_the_models_read():
    deps = {spec.key: {dep.asset_key for dep in spec.deps} for spec in build_defs().resolve_all_asset_specs()}
    for model in models().values():
        assert deps[dg.AssetKey(model.name.split("."))] == {dg.AssetKey(table.split(".")) for table in model.reads}, model.name


def test_a_materialized_table_shows_its_rows_columns_and_lineage(done):
    shown = done.shown["marts/queue_time"]
    assert shown["dagster/row_count"] > 0
    assert [column.name for column in shown["dagster/column_schema"].columns] == [
        name for name, _ in models()["marts.queue_time"].columns
    ]
    assert all(column.description for column in shown["dagster/column_schema"].columns)
    assert shown["dagster/column_lineage"].deps_by_column["seconds"]


def test_every_column_of_every_sql_model_has_its_lineage_looked_up():
    for model in models().values():
        if model.query:
            assert set(column_lineage(model.name)) == {name for name, _ in model.columns}, model.name


def test_lineage_names_the_columns_a_value_comes_from():
    assert column_lineage("staging.iteration_steps")["context_tokens"] == (("raw.iteration_steps", "context_tokens"),)


def test_the_report_shows_a_picture_and_the_verdict(done):
    shown = done.shown["published/report"]
    assert shown["timeline"].startswith("![the run at a glance](data:image/png;base64,")
    assert shown["verdict"].startswith("queue_kv_capacity")


def test_every_check_holds_but_for_files_of_another_kind(done):
    assert done.failed == {"every_file_is_read"}  # the sample's README and expected.json


def test_an_unreadable_input_fails_the_run_and_says_why(tmp_path):
    (tmp_path / "drop" / "bad").mkdir(parents=True)
    (tmp_path / "drop" / "bad" / "notes").write_text("nothing\n")
    job = build_defs(workspace=Workspace(drop=str(tmp_path / "drop"), lake=str(tmp_path / "lake"))).resolve_job_def("analyze_run")
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("runs", ["bad"])
        result = job.execute_in_process(instance=instance, partition_key="bad", raise_on_error=False)
    assert not result.success
    assert not list((tmp_path / "lake").glob("results/*"))


# the sensor


def drop(root: Path, run: str, *, age_s: float, now: float = 1_000_000.0) -> None:
    file = root / run / "server.log"
    file.parent.mkdir(parents=True)
    file.write_text("x")
    os.utime(file, (now - age_s, now - age_s))


def test_a_folder_that_still_changes_is_not_a_run_yet(tmp_path):
    drop(tmp_path, "done", age_s=60)
    drop(tmp_path, "copying", age_s=1)
    drop(tmp_path, ".hidden", age_s=60)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    assert [name for name, _ in settled(tmp_path, now=1_000_000.0, quiet_s=10)] == ["done"]


def test_what_will_never_be_a_run_is_told_with_what_to_do(tmp_path, monkeypatch):
    drop(tmp_path, "closed", age_s=60)
    drop(tmp_path, "done", age_s=60)
    (tmp_path / "server.log").write_text("x")
    monkeypatch.setattr(os, "access", lambda path, _: path.name != "closed")  # the tests may be root's, who may open anything
    assert list(never_runs(tmp_path)) == [
        "closed cannot be opened: check its permissions",
        "server.log lies loose, and a run is a folder: put it into one",
    ]


def test_the_sensor_makes_a_partition_and_a_run_of_a_new_folder_and_again_when_it_changes(tmp_path):
    sensor = next(iter(build_defs().sensors or ()))
    assert isinstance(sensor, dg.SensorDefinition)
    drop(tmp_path, "incident", age_s=1_000_000, now=1_000_000)

    def tick() -> dg.SensorResult:
        with dg.DagsterInstance.ephemeral() as instance:
            workspace = Workspace(drop=str(tmp_path), lake=str(tmp_path / "lake"))
            return sensor(dg.build_sensor_context(instance=instance, resources={"workspace": workspace}))  # type: ignore[return-value]

    first = tick()
    assert [request.partition_key for request in first.run_requests or ()] == ["incident"]
    assert [list(request.partition_keys) for request in first.dynamic_partitions_requests or ()] == [["incident"]]
    assert [request.run_key for request in tick().run_requests or ()] == [request.run_key for request in first.run_requests or ()]
    drop(tmp_path / "incident", "later", age_s=1_000_000, now=1_000_000)
    assert [request.run_key for request in tick().run_requests or ()] != [request.run_key for request in first.run_requests or ()]
