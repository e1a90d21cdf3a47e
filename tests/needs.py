"""What a query needs: the tables without a row in one of which it has none, read off the SQL by sqlglot.

    python -m tests.needs core.victims      the `-- needs:` lines that its header may have

A set of tables is needed where the query gives nothing whenever all of them are empty, whatever else there is. What is not
understood is taken for something that has rows: too little is claimed, never too much.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product

import sqlglot
from sqlglot import exp

from pipelines.duck import connect
from pipelines.models import Model, models

Needs = list[frozenset[str]]
NOTHING: Needs = [frozenset()]  # of what is empty in any case


def of(model: Model) -> Needs:
    """Of a model's query; nothing is known of a function."""
    return of_query(model.query) if model.query else []


def of_query(query: str) -> Needs:
    """The smallest sets, each of tables that are needed together."""
    return _of(sqlglot.parse_one(query, dialect="duckdb"), {})


def _of(query: exp.Expression, known: Mapping[str, Needs]) -> Needs:
    """Of a query or a part of it, where the needs of its common table expressions are known."""
    known = dict(known)
    if named := query.args.get("with_"):
        for each in named.expressions:
            # what reads itself has nothing to begin with but what the others of its union give
            known[each.alias] = _of(each.this, {**known, each.alias: NOTHING} if named.recursive else known)
    if isinstance(query, exp.Subquery):
        return _of(query.this, known)
    if isinstance(query, exp.Union):
        return _both(_of(query.left, known), _of(query.right, known))
    if isinstance(query, exp.Select):
        return _of_select(query, known)
    return []


def _of_select(query: exp.Select, known: Mapping[str, Needs]) -> Needs:
    """Of what it reads first and each that it joins."""
    first = query.args.get("from_")
    if first is None or _has_a_row_of_nothing(query):
        return []
    needs = _of_source(first.this, known)
    for join in [*(query.args.get("joins") or []), *(first.this.args.get("joins") or [])]:
        how, joined = {join.side.upper(), join.kind.upper()}, _of_source(join.this, known)
        if "RIGHT" in how:
            needs = joined
        elif "FULL" in how:
            needs = _both(needs, joined)
        elif not how & {"LEFT", "ANTI"}:
            needs = _smallest([*needs, *joined])
    return needs


def _of_source(source: exp.Expression, known: Mapping[str, Needs]) -> Needs:
    """Of something that is read: a table, a common table expression, a query."""
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) and not source.args.get("pivots"):
        return [frozenset({f"{source.db}.{source.name}"})] if source.db else known.get(source.name, [])
    if isinstance(source, (exp.Subquery, exp.Lateral)) and isinstance(source.this, (exp.Select, exp.Subquery, exp.Union)):
        return _of(source.this, known)
    return []


def _has_a_row_of_nothing(query: exp.Select) -> bool:
    """Whether it sums up all that it reads, or may: that is a row also where there is nothing to sum up."""
    group = query.args.get("group")
    if group is None:
        return query.args.get("having") is not None or any(_sums_up(each, query) for each in query.expressions)
    if group.args.get("all"):
        return all(_sums_up(each, query) for each in query.expressions)
    return any(isinstance(each, (exp.GroupingSets, exp.Cube, exp.Rollup, exp.Tuple)) for each in group.expressions)


def _sums_up(expression: exp.Expression, query: exp.Select) -> bool:
    """Whether there is an aggregate in it that is of this query, and no window's."""
    functions = expression.find_all(exp.AggFunc, exp.Anonymous)
    return any(
        (isinstance(each, exp.AggFunc) or each.name.lower() in _aggregates())
        and each.find_ancestor(exp.Select) is query
        and not each.find_ancestor(exp.Window)
        for each in functions
    )


@cache
def _aggregates() -> set[str]:
    """DuckDB's, and the library's macros that use one."""
    with connect() as con:
        functions = con.sql("select distinct function_name, function_type, macro_definition from duckdb_functions()").fetchall()
    names = {name for name, kind, _ in functions if kind == "aggregate"}
    used = re.compile(rf"\b({'|'.join(filter(str.isidentifier, names))})\(")
    return names | {name for name, kind, body in functions if kind == "macro" and used.search(body)}


def _both(one: Needs, other: Needs) -> Needs:
    """Of what is empty only where both are."""
    return _smallest(a | b for a, b in product(one, other))


def _smallest(sets: Iterable[frozenset[str]]) -> Needs:
    """Those that hold no other, the smallest first."""
    found: Needs = []
    for each in sorted(set(sets), key=lambda tables: (len(tables), sorted(tables))):
        if not any(smaller <= each for smaller in found):
            found.append(each)
    return found


if __name__ == "__main__":
    for table in sys.argv[1:]:
        for each in of(models()[table]):
            print(f"-- needs: {' or '.join(sorted(each))}")  # noqa: T201 - the answer
