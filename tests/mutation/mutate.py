"""Does a test notice? One small fault at a time is put into an estimator or a query, and its tests are run.

A Python file is mutated in its syntax tree, a query in its tokens, so that what is between stays as it was written. Every
mutant runs in a process of its own with the quick tests of its file; it is killed where one fails, or where they take far too
long. Where a file has more places than are asked for, a seeded choice of them is taken. What survived, and why, is in README.md.

    python -m tests.mutation.mutate pipelines/replay/pool.py sql/marts/waste.sql --most 40
"""

# ruff: noqa: T201 - it prints: that is its work
from __future__ import annotations

import argparse
import ast
import copy
import dataclasses
import importlib
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LONGEST_S = 240  # of one mutant's tests; they take seconds
REPLAY = "tests/pipelines/test_replay_"
TESTS = {  # the tests that are quick and of this file
    "pipelines/replay/pool.py": (f"{REPLAY}pool.py", f"{REPLAY}scheduler.py"),
    "pipelines/replay/kv_events.py": (f"{REPLAY}kv_events.py",),
    "pipelines/replay/requests.py": (f"{REPLAY}requests.py",),
    "sql/core/counter_intervals.sql": ("tests/sql/test_counters.py",),
    "sql/core/preemption_intervals.sql": ("tests/sql/test_counters.py",),
    "sql/core/spells.sql": ("tests/sql/test_recommendations.py",),
    "sql/core/signs.sql": ("tests/sql/test_stalls.py", "tests/sql/test_recommendations.py"),
    "sql/advice/verdicts.sql": ("tests/sql/test_recommendations.py",),
    "sql/advice/findings.sql": ("tests/sql/test_recommendations.py",),
    "sql/marts/queue_time.sql": ("tests/sql/test_counters.py",),
}
SQL_TESTS = ("tests/sql/test_counters.py", "tests/sql/test_waste.py", "tests/sql/test_other_engines.py")


# Faults in Python -----------------------------------------------------------------------------------------------------------

COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
COMPARED |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
CALLED = {"max": "min", "min": "max", "any": "all", "all": "any", "sum": "len"}


def faults_in_python(text: str) -> Iterator[tuple[str, str]]:
    """Each fault as what it is and the text with it."""
    tree = ast.parse(text)
    skipped = _not_code(tree)
    nodes = [node for node in ast.walk(tree) if id(node) not in skipped]
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in skipped or not (change := _change(node)):
            continue
        mutant = copy.deepcopy(tree)
        twin = next(each for index, each in enumerate(ast.walk(mutant)) if index == number)
        told = _apply(twin, change)
        yield f"line {getattr(node, 'lineno', 0)}: {told}", ast.unparse(ast.fix_missing_locations(mutant))
    assert nodes


def _not_code(tree: ast.AST) -> set[int]:
    """Docstrings, annotations, decorators and imports."""
    found: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            parts += [*node.decorator_list, *(node.body[:1] if ast.get_docstring(node) else [])]
        if isinstance(node, ast.FunctionDef):
            parts += [node.returns]
        if isinstance(node, (ast.arg, ast.AnnAssign)):
            parts += [node.annotation]
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            parts += [node]
        found |= {id(each) for part in parts if part for each in ast.walk(part)}
    return found


def _change(node: ast.AST) -> object:  # noqa: PLR0911 - one for each kind of node
    """What can be changed about a node; None for nothing."""
    if isinstance(node, ast.Compare):
        return COMPARED.get(type(node.ops[0]))
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        return COMPUTED.get(type(node.op))
    if isinstance(node, ast.BoolOp):
        return ast.Or if isinstance(node.op, ast.And) else ast.And
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return "constant"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return "not"
    if isinstance(node, (ast.If, ast.IfExp)):
        return "if"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return CALLED.get(node.func.id)
    return None


def _apply(node: ast.AST, change: object) -> str:
    before = ast.unparse(node).splitlines()[0][:90]
    match node:
        case ast.Compare():
            node.ops[0] = change()  # type: ignore[operator]
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp():
            node.op = change()  # type: ignore[operator]
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant():
            node.value += 1  # type: ignore[operator]
        case ast.UnaryOp():
            node.op = ast.UAdd() if isinstance(node.operand, ast.Constant) else node.op
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
        case ast.If() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Call():
            node.func.id = change  # type: ignore[union-attr]
    return f"{before}  ->  {ast.unparse(node).splitlines()[0][:90]}"


# Faults in SQL --------------------------------------------------------------------------------------------------------------

SWAPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "=": "<>", "<>": "=", "!=": "=", "+": "-", "-": "+", "*": "/", "/": "*"}
SWAPPED |= {"and": "or", "or": "and", "min": "max", "max": "min", "sum": "max", "count": "sum", "avg": "max", "least": "greatest"}
SWAPPED |= {"greatest": "least", "bool_or": "bool_and", "bool_and": "bool_or", "not": "", "true": "false", "false": "true"}
SWAPPED |= {"lag": "lead", "lead": "lag", "first_value": "last_value", "union": "intersect", "desc": "", "left": "inner"}


def faults_in_sql(text: str) -> Iterator[tuple[str, str]]:
    """As `faults_in_python`, for the tokens of a query."""
    from sqlglot.dialects.duckdb import DuckDB  # noqa: PLC0415 - not for those who mutate Python only
    from sqlglot.tokens import TokenType  # noqa: PLC0415

    tokens = DuckDB().tokenize(text)
    for index, token in enumerate(tokens):
        word = token.text.lower()
        after = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if token.token_type == TokenType.NUMBER:
            new = str(int(word) + 1) if word.isdigit() else str(float(word) + 1)
        elif token.token_type == TokenType.STAR and tokens[index - 1].text.lower() in ("select", ".", "(", "distinct"):
            continue  # every column
        elif word in ("left", "first_value", "min", "max", "sum", "count", "avg", "lag", "lead") and not (
            after == "(" or (word == "left" and after.lower() == "join")
        ):
            continue  # a column's name
        elif word == "not" and after.lower() in ("distinct", "exists"):
            continue
        elif token.token_type != TokenType.STRING and word in SWAPPED:
            new = SWAPPED[word]
        else:
            continue
        line = text.count("\n", 0, token.start) + 1
        yield (
            f"line {line}: {text.splitlines()[line - 1].strip()[:90]}  [{word} -> {new or 'nothing'}]",
            (text[: token.start] + new + text[token.end + 1 :]),
        )


# Running them ---------------------------------------------------------------------------------------------------------------


def survives(path: str, mutant: str, tests: tuple[str, ...]) -> bool:
    """Whether the tests pass with the mutant in place of the file, in a process of its own."""
    child = os.fork()
    if child == 0:
        os.setsid()
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        code = 1
        try:
            _put_in_place(path, mutant)
            code = pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", *tests])
        finally:
            os._exit(int(code))
    return _end_of(child) == 0


def _end_of(child: int) -> int:
    """How a child ended; one that takes too long has failed."""
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def _put_in_place(path: str, mutant: str) -> None:
    """Let everything that is imported from now on see the mutant."""
    from pipelines import models  # noqa: PLC0415 - each mutant imports the project anew

    if path.endswith(".py"):
        module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        exec(compile(mutant, path, "exec"), module.__dict__)
    else:
        name = ".".join(Path(path).with_suffix("").parts[1:])
        known = models.models()
        known[name] = dataclasses.replace(known[name], query=mutant)


def query_of(text: str) -> str:
    """The query of a SQL file, as the runner takes it."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip().rstrip(";")


def main() -> None:
    """Mutate the files given and say what survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--most", type=int, default=40, help="mutants of one file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path)
    arguments = parser.parse_args()
    made = killed = 0
    for path in arguments.files:
        tests = tuple(test for test in TESTS.get(path, SQL_TESTS) if Path(test).exists())
        text = Path(path).read_text()
        mutants = list(faults_in_python(text) if path.endswith(".py") else faults_in_sql(query_of(text)))
        chosen = random.Random(arguments.seed).sample(mutants, min(arguments.most, len(mutants)))
        unchanged = text if path.endswith(".py") else query_of(text)
        if not survives(path, unchanged, tests):
            sys.exit(f"{path}: its tests fail without a fault")
        survivors = []
        for told, mutant in chosen:
            if survives(path, mutant, tests):
                survivors.append(told)
                print(f"  survived  {path} {told}", flush=True)
        made, killed = made + len(chosen), killed + len(chosen) - len(survivors)
        print(f"{path}: {len(chosen) - len(survivors)} of {len(chosen)} killed ({len(mutants)} places)", flush=True)
    print(f"{killed} of {made} killed: {killed / made:.1%}")


if __name__ == "__main__":
    main()
