"""Assets: the steps of an analysis as Dagster sees them, one asset per table. Each body is a few lines around a plain function.

`raw_assets` reads a run's inputs, `model_asset` is the factory that turns a model into an asset with its documentation, checks
and lineage, and `report_asset` publishes. What a table means is in the model; here is only what Dagster should show of it.
(No `from __future__ import annotations` here: Dagster looks at the annotations themselves.)
"""

import base64
import hashlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
import duckdb

from parsers.columns import COLUMNS, TABLES
from pipelines import publish
from pipelines.analysis import workplace
from pipelines.charts.picture import verdict_png
from pipelines.checks import RAW_CHECKS, Check, failing_rows, of_model
from pipelines.digest import verdict_sentence
from pipelines.duck import connect
from pipelines.intake import read
from pipelines.lake import Lake
from pipelines.lineage import column_lineage
from pipelines.models import Model, materialize, models, view
from pipelines.partitions import RUNS
from pipelines.resources import Workspace

OWNERS = ["team:kvpressure"]


def key(table: str) -> dg.AssetKey:
    """The asset of `layer.table`."""
    return dg.AssetKey(table.split("."))


def _check_specs(checks: Sequence[Check]) -> list[dg.AssetCheckSpec]:
    return [dg.AssetCheckSpec(check.name, asset=key(check.table), description=check.meaning) for check in checks]


@dg.multi_asset(
    name="intake",
    specs=[dg.AssetSpec(key(f"raw.{table}"), group_name="raw", kinds={"python", "parquet"}, owners=OWNERS) for table in TABLES],
    check_specs=_check_specs(RAW_CHECKS),
    partitions_def=RUNS,
)
def raw_assets(context: dg.AssetExecutionContext, workspace: Workspace) -> Iterator[dg.MaterializeResult]:
    """The run's inputs as they were read: one table per kind of observation, and `sources` with what became of each file."""
    lake = workspace.tables(context.partition_key)
    read([workspace.inputs(context.partition_key)], lake, tell=context.log.info).require_any()
    with connect() as con:
        for table in TABLES:
            view(f"raw.{table}", lake=lake, con=con)
            meanings = {column: COLUMNS[column].meaning for column in TABLES[table]}
            yield _result(f"raw.{table}", meanings, lake=lake, con=con, checks=RAW_CHECKS if table == "sources" else ())


def model_asset(model: Model) -> dg.AssetsDefinition:
    """The asset of one model."""
    checks = of_model(model)

    @dg.asset(
        key=key(model.name),
        deps=[key(table) for table in model.reads],
        description=model.purpose,
        group_name=model.layer,
        kinds={"duckdb", "sql"} if model.query else {"polars", "python"},
        owners=OWNERS,
        code_version=code_version(model),
        check_specs=_check_specs(checks),
        partitions_def=RUNS,
    )
    def asset(context: dg.AssetExecutionContext, workspace: Workspace) -> dg.MaterializeResult:
        lake = workspace.tables(context.partition_key)
        with connect() as con:
            materialize(model, lake=lake, con=con, run=workspace.parameters(context.partition_key))
            for table in {model.name, *(table for check in checks for table in check.reads)}:
                view(table, lake=lake, con=con)
            return _result(model.name, dict(model.columns), lake=lake, con=con, checks=checks)

    return asset


def report_asset(models: Sequence[Model]) -> dg.AssetsDefinition:
    """The asset of what a reader gets: database, tables, summary and report."""

    @dg.asset(
        key=["published", "report"],
        deps=[key("raw.sources"), *(key(model.name) for model in models if model.layer in ("core", "marts", "advice"))],
        description="analysis.duckdb, tables, summary.json and report.html of one run.",
        group_name="published",
        kinds={"duckdb", "html", "vega"},
        owners=OWNERS,
        partitions_def=RUNS,
    )
    def asset(context: dg.AssetExecutionContext, workspace: Workspace) -> dg.MaterializeResult:
        results = workspace.results(context.partition_key)
        with workplace(results) as work:
            publish.publish(workspace.tables(context.partition_key), work / "result")
            publish.replace(work / "result", results)
        picture = base64.b64encode(verdict_png(results / publish.DATABASE)).decode()
        return dg.MaterializeResult(
            metadata={
                "verdict": verdict_sentence(results / publish.DATABASE),
                "timeline": dg.MetadataValue.md(f"![the run at a glance](data:image/png;base64,{picture})"),
                "report": dg.MetadataValue.path(results / publish.REPORT),
                "database": dg.MetadataValue.path(results / publish.DATABASE),
            },
        )

    return asset


def code_version(model: Model) -> str:
    """A hash of what makes the table: its query, or the module of its function."""
    made_by = model.query or inspect.getsource(inspect.getmodule(model.function) or type(model))
    return hashlib.sha256(made_by.encode()).hexdigest()[:16]


def _result(
    table: str, meanings: dict[str, str], *, lake: Lake, con: duckdb.DuckDBPyConnection, checks: Sequence[Check]
) -> dg.MaterializeResult:
    """What Dagster is told of a table that has just been made: rows, columns, lineage, where it lies, and its checks."""
    metadata = {**table_metadata(table, meanings, con), "dagster/uri": lake.path(table).as_uri()}
    return dg.MaterializeResult(
        asset_key=key(table), metadata=metadata, check_results=[_check_result(check, con) for check in checks]
    )


def table_metadata(
    table: str, meanings: Mapping[str, str], con: duckdb.DuckDBPyConnection, *, made_by: str | None = None
) -> dict[str, Any]:
    """Rows, columns and lineage of a table on the connection; the lineage is that of the model it is `made_by`."""
    described = con.sql(f"describe from {table}").fetchall()
    rows = con.sql(f"select count(*) from {table}").fetchall()[0][0]
    columns = [dg.TableColumn(name, type=str(kind).lower(), description=meanings.get(name)) for name, kind, *_ in described]
    metadata: dict[str, Any] = {
        "dagster/row_count": rows,
        "dagster/partition_row_count": rows,
        "dagster/table_name": table,
        "dagster/storage_kind": "parquet",
        "dagster/column_schema": dg.TableSchema(columns),
    }
    model = made_by or table
    if model in models() and (lineage := column_lineage(model)):
        deps = {column: [dg.TableColumnDep(key(of), name) for of, name in origins] for column, origins in lineage.items()}
        metadata["dagster/column_lineage"] = dg.TableColumnLineage(deps)
    return metadata


def _check_result(check: Check, con: duckdb.DuckDBPyConnection) -> dg.AssetCheckResult:
    failing = failing_rows(check, con)
    return dg.AssetCheckResult(
        check_name=check.name,
        asset_key=key(check.table),
        passed=failing == 0,
        severity=dg.AssetCheckSeverity.WARN if check.is_smell else dg.AssetCheckSeverity.ERROR,
        metadata={"failing_rows": failing, "query": dg.MetadataValue.md(f"```sql\n{check.failing}\n```")},
    )
