"""Does a test notice? One small fault at a time is put into an estimator or a query, and the tests that reach it are run.

A Python file is mutated in its syntax tree, a query in its tokens, so that what is between stays as it was written. Which tests
reach a file is seen by running the quick ones once, and they are then run the fastest first. Every mutant runs in a process of
its own; it is killed where a test fails or takes far more time than it did. A query that DuckDB does not even accept is no
mutant: any test would notice. Where a file has more places than are asked for, a seeded choice of them is taken.

    python -m tests.mutation.mutate pipelines/replay/pool.py sql/marts/waste.sql --most 40 --log build/mutants.tsv
    python -m tests.mutation.mutate … --log build/mutants.tsv --again     tries again what survived, and updates the log

What survived, and why, is in README.md.
"""

# ruff: noqa: T201 - it prints: that is its work
from __future__ import annotations

import argparse
import ast
import copy
import dataclasses
import importlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from _pytest.runner import runtestprotocol

from tests import typed_tables  # with all that it imports, so that a mutant need not; and with its tables of nothing

LONGEST_S = 300  # of one mutant's tests, waiting for the processor included
CPU_FACTOR, CPU_LEAST_S = 10, 10  # a mutant may use so many times what its tests use, and at least so much
NOT_A_MUTANT = 77  # exit status of a process that found its query refused
QUIETLY = ("-q", "-s", "-n", "0", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
QUICK_TESTS = {".sql": ("tests/sql",), ".py": ("tests/pipelines/test_replay_*.py",)}


# Faults in Python -----------------------------------------------------------------------------------------------------------

COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
COMPARED |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
CALLED = {"max": "min", "min": "max", "any": "all", "all": "any", "sum": "len"}


def faults_in_python(text: str) -> Iterator[tuple[str, str]]:
    """Each fault as what it is and the text with it."""
    tree = ast.parse(text)
    skipped = _not_code(tree)
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in skipped or not (change := _change(node)):
            continue
        mutant = copy.deepcopy(tree)
        twin = next(each for index, each in enumerate(ast.walk(mutant)) if index == number)
        told = _apply(twin, change)
        yield (
            f"{getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}  {told}",
            ast.unparse(ast.fix_missing_locations(mutant)),
        )


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
        column = token.start - text.rfind("\n", 0, token.start)
        yield (
            f"{line}:{column}  {text.splitlines()[line - 1].strip()[:110]}  [{word} -> {new or 'nothing'}]",
            (text[: token.start] + new + text[token.end + 1 :]),
        )


# Which tests reach a file ---------------------------------------------------------------------------------------------------


def reach(items: list[pytest.Item], kind: str) -> dict[str, tuple[float, list[str]]]:
    """Of each test, how long it takes and what it reaches: SQL models made, or Python files entered. They all pass."""
    with tempfile.NamedTemporaryFile("r") as told:

        def run() -> int:
            Path(told.name).write_text(json.dumps({item.nodeid: _reached_by(item, kind) for item in items}))
            return 0

        if _in_a_process(run, 3600) != 0:
            sys.exit("tests fail without a fault")
        return json.loads(told.read())


def _reached_by(item: pytest.Item, kind: str) -> tuple[float, list[str]]:
    reached: set[str] = set()
    make, here = typed_tables.make, str(Path.cwd()) + "/"

    def entered(frame, *_):
        if (name := frame.f_code.co_filename).startswith(here):
            reached.add(name.removeprefix(here))

    def made(model, con, run):
        reached.add(f"sql/{model.name.replace('.', '/')}.sql")
        make(model, con, run)

    typed_tables.make = made
    sys.setprofile(entered if kind == ".py" else None)
    begun = time.process_time()
    passed = _passes(item)
    sys.setprofile(None)
    typed_tables.make = make
    assert passed, item.nodeid
    return time.process_time() - begun, sorted(reached)


def _passes(item: pytest.Item) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


# Running them ---------------------------------------------------------------------------------------------------------------


def outcome(path: str, mutant: str, tests: list[pytest.Item], cpu_s: float) -> str:
    """What the tests make of the mutant in place of the file: killed, survived, or refused where it is none."""

    def run() -> int:
        limit = int(CPU_FACTOR * cpu_s + CPU_LEAST_S)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        if path.endswith(".py"):
            _import_mutant(path, mutant)
            return pytest.main(["-x", *QUIETLY, *(test.nodeid for test in tests)])
        return int(not all(map(_passes, tests))) if _replace_query(path, mutant) else NOT_A_MUTANT

    return {0: "survived", NOT_A_MUTANT: "refused"}.get(_in_a_process(run, LONGEST_S), "killed")


def _in_a_process(run: Callable[[], int], longest_s: float) -> int:
    """How a silent child ended; one that takes too long has failed."""
    child = os.fork()
    if child == 0:
        os.setsid()
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        code = 1
        try:
            code = int(run())
        finally:
            os._exit(code)
    until = time.monotonic() + longest_s
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def _import_mutant(path: str, mutant: str) -> None:
    """Let everything that is imported from now on see the mutant."""
    here = tuple(str(Path.cwd() / folder) for folder in ("pipelines", "parsers", "tests"))
    for name in [name for name, module in sys.modules.items() if (getattr(module, "__file__", None) or "").startswith(here)]:
        del sys.modules[name]
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    exec(compile(mutant, path, "exec"), module.__dict__)


def _replace_query(path: str, mutant: str) -> bool:
    """Let every model made from now on be made with the mutant. False where the database refuses it."""
    known = typed_tables.models()
    model = known[".".join(Path(path).with_suffix("").parts[1:])]
    known[model.name] = dataclasses.replace(model, query=mutant)
    typed_tables.readable(model)
    try:
        typed_tables.nothing().execute(f"explain {mutant}")
    except duckdb.Error:
        return False
    return True


def query_of(text: str) -> str:
    """The query of a SQL file, as the runner takes it."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip().rstrip(";")


def mutants_of(path: str) -> list[tuple[str, str]]:
    """Every fault of a file: what it is, and the text with it."""
    return list((faults_in_python if path.endswith(".py") else faults_in_sql)(_code_of(path)))


def _code_of(path: str) -> str:
    text = Path(path).read_text()
    return text if path.endswith(".py") else query_of(text)


class Mutation:
    """A pytest plugin: where pytest would run the tests it collected, they are run for each mutant of some files."""

    def __init__(self, paths: list[str], arguments: argparse.Namespace) -> None:
        self.paths, self.arguments = paths, arguments

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        typed_tables.models()  # here once, and not in each mutant's process
        reached = reach(session.items, Path(self.paths[0]).suffix)
        for path in self.paths:
            items = sorted(
                (item for item in session.items if path in reached[item.nodeid][1]), key=lambda item: reached[item.nodeid]
            )
            self.mutate(path, items, sum(reached[item.nodeid][0] for item in items))
        return True

    def mutate(self, path: str, tests: list[pytest.Item], cpu_s: float) -> None:
        most, is_again, log = self.arguments.most, self.arguments.again, _read_log(self.arguments.log)
        mutants = mutants_of(path)
        chosen = random.Random(self.arguments.seed).sample(mutants, len(mutants))
        if is_again:
            chosen = [each for each in chosen if log.get(path, {}).get(each[0]) == "survived"]
        else:
            log[path] = {}
        print(f"{path}: {len(tests)} tests reach it, {cpu_s:.1f} s", flush=True)
        if outcome(path, _code_of(path), tests, cpu_s) != "survived":
            sys.exit(f"{path}: tests fail where it is put in its own place, without a fault")
        for told, mutant in chosen:
            if not is_again and sum(each != "refused" for each in log[path].values()) == most:
                break
            log[path][told] = outcome(path, mutant, tests, cpu_s)
            if log[path][told] == "survived":
                print(f"  survived  {told}", flush=True)
            _write_log(self.arguments.log, log)
        print(_score(path, log.get(path, {}), len(mutants)), flush=True)


def main() -> None:
    """Mutate the files given and say what survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--most", type=int, default=40, help="mutants of one file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, default=Path("build/mutants.tsv"), help="file, mutant and outcome, one a line")
    parser.add_argument("--tests", nargs="+", help="tests to choose from, as pytest takes them, where not all of the quick ones")
    parser.add_argument("--again", action="store_true", help="of the log's mutants, those that survived")
    arguments = parser.parse_args()
    for kind, patterns in QUICK_TESTS.items():
        paths = [path for path in arguments.files if path.endswith(kind)]
        files = arguments.tests or [str(path) for pattern in patterns for path in sorted(Path().glob(pattern))]
        if paths:
            pytest.main([*QUIETLY, *files], [Mutation(paths, arguments)])


def _score(path: str, outcomes: dict[str, str], places: int) -> str:
    killed, survived = (list(outcomes.values()).count(each) for each in ("killed", "survived"))
    return f"| `{path}` | {places} | {killed + survived} | {killed} | {killed / max(1, killed + survived):.0%} |"


def _read_log(path: Path) -> dict[str, dict[str, str]]:
    log: dict[str, dict[str, str]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        file, told, came = line.split("\t")
        log.setdefault(file, {})[told] = came
    return log


def _write_log(path: Path, log: dict[str, dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{file}\t{told}\t{came}\n" for file, outcomes in log.items() for told, came in outcomes.items()]
    path.write_text("".join(lines))


if __name__ == "__main__":
    main()
