"""Column lineage: for each column of a SQL model, the columns of the tables it reads that flow into it.

Read from the SQL by sqlglot, which rewrites nothing here. A column of a Python model, or one made of no other column, has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage

from parsers.columns import TABLES
from pipelines.models import LAYERS, models

Column = tuple[str, str]  # table with its layer, column


@cache
def column_lineage(name: str) -> Mapping[str, tuple[Column, ...]]:
    """Column of model `name` -> the columns it comes from, sorted."""
    model = models()[name]
    if model.query is None:
        return {}
    try:
        nodes = lineage(None, model.query, _schema(), dialect="duckdb")
    except SqlglotError:  # DuckDB has made the table from it: what sqlglot cannot read costs the lineage and nothing else
        return {}
    return {column: tuple(sorted(_origins(nodes[column]))) for column, _ in model.columns if column in nodes}


def _origins(node: Node) -> set[Column]:
    """Leaves of the lineage graph that are columns of a table of ours (and not a literal, a macro's or a list of values)."""
    leaves = [(leaf.source, leaf.name.split(".")[-1]) for leaf in node.walk() if not leaf.downstream]
    return {(f"{of.db}.{of.name}", column) for of, column in leaves if isinstance(of, exp.Table) and of.db in LAYERS}


@cache
def _schema() -> dict[str, dict[str, dict[str, str]]]:
    """Layer -> table -> column -> a type, as sqlglot wants it; the types play no part."""
    tables: dict[str, dict[str, dict[str, str]]] = {layer: {} for layer in LAYERS}
    for table, columns in TABLES.items():
        tables["raw"][table] = dict.fromkeys(columns, "text")
    for model in models().values():
        tables[model.layer][model.table] = {column: "text" for column, _ in model.columns}
    return tables
