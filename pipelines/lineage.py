"""Column lineage: for each column of a SQL model, the columns of the tables it reads that flow into it.

Read from the SQL by sqlglot, which rewrites nothing here. A column of a Python model, or one made of no other column, has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

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
        # its leaves are asked for and not its texts: a copy of the query for each column is most of the work
        nodes = lineage(None, _by_position(model.query), _schema(), dialect="duckdb", trim_selects=False, copy=False)
    except SqlglotError:  # DuckDB has made the table from it: what sqlglot cannot read costs the lineage and nothing else
        return {}
    return {column: tuple(sorted(_origins(nodes[column]))) for column, _ in model.columns if column in nodes}


def _by_position(query: str) -> exp.Expr:
    """The query with its columns spelled out and each `union all by name` as one by position: sqlglot follows no other."""
    spelled = qualify(
        sqlglot.parse_one(query, dialect="duckdb"), schema=_schema(), dialect="duckdb", validate_qualify_columns=False
    )
    for union in reversed(list(spelled.find_all(exp.SetOperation))):
        if union.args.get("by_name"):
            _align(union, list(dict.fromkeys([*union.left.named_selects, *union.right.named_selects])))
            union.set("by_name", None)
    return spelled


def _align(query: exp.Expr, names: Sequence[str]) -> None:
    """Give a query these columns in this order; those it lacks are NULL."""
    if isinstance(query, exp.SetOperation):
        _align(query.left, names)
        _align(query.right, names)
    elif isinstance(query, exp.Subquery):
        _align(query.this, names)
    elif isinstance(query, exp.Select):
        have = {select.alias_or_name: select for select in query.selects}
        query.set("expressions", [have.get(name) or exp.alias_(exp.null(), name) for name in names])


def _origins(node: Node) -> set[Column]:
    """Leaves of the lineage graph that are columns of a table of ours (and not a literal, a macro's or a list of values)."""
    leaves = [(leaf.source, leaf.name.split(".")[-1].strip('"')) for leaf in node.walk() if not leaf.downstream]
    return {(f"{of.db}.{of.name}", column) for of, column in leaves if isinstance(of, exp.Table) and of.db in LAYERS}


@cache
def _schema() -> MappingSchema:
    """Layer -> table -> column -> a type, as sqlglot wants it; the types play no part."""
    tables: dict[str, Any] = {layer: {} for layer in LAYERS}
    for table, columns in TABLES.items():
        tables["raw"][table] = dict.fromkeys(columns, "text")
    for model in models().values():
        tables[model.layer][model.table] = {column: "text" for column, _ in model.columns}
    return MappingSchema(tables, dialect="duckdb")
