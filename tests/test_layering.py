"""Who may use what: the layers of the code and of the SQL, and the few things nobody uses."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from pipelines.models import LAYERS, models
from tests.conftest import PROJECT

# the modules of pipelines/ that may see Dagster
SHELL = {"assets", "build", "dask_steps", "day_assets", "definitions", "partitions", "resources", "schedules", "sensors"}
CODE = sorted(path for folder in ("parsers", "pipelines") for path in (PROJECT / folder).rglob("*.py"))
QUERIES = sorted((PROJECT / "sql").rglob("*.sql"))
DOCUMENTS = [PROJECT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile")]


def name_of(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def code_of(path: Path) -> str:
    """SQL without its comments and its strings."""
    return re.sub(r"--[^\n]*|'(?:[^']|'')*'", "", path.read_text())


def imports(path: Path) -> set[str]:
    """Top-level and dotted names of everything a module imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found | {name.split(".")[0] for name in found}


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_a_module_imports_only_what_its_layer_may(path):
    used = imports(path)
    assert not used & {"pandas", "numpy"}
    if path.is_relative_to(PROJECT / "parsers"):
        assert not used & {"dagster", "duckdb", "pipelines", "sql"}
    elif path.stem not in SHELL:
        assert "dagster" not in used
        assert not used & {f"pipelines.{module}" for module in SHELL}


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_a_module_opens_with_what_belongs_in_it(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", [path for path in CODE if path.is_relative_to(PROJECT / "parsers")], ids=name_of)
def test_a_parser_asks_neither_for_the_time_of_day_nor_for_the_zone_of_this_machine(path):
    assert not re.search(r"\b(?:now|today|utcnow|localtime|time\.time)\(", path.read_text())


def test_a_model_reads_its_own_layer_or_the_ones_below():
    for model in models().values():
        above = LAYERS[LAYERS.index(model.layer) + 1 :]
        assert not [read for read in model.reads if read.split(".")[0] in above], model.name


@pytest.mark.parametrize("path", QUERIES, ids=name_of)
def test_sql_asks_neither_for_the_time_of_day_nor_for_files(path):
    assert not re.search(r"\b(?:now|random|read_\w+)\(|\b(?:current_date|current_timestamp)\b", code_of(path)), path.name


@pytest.mark.parametrize("path", [path for path in QUERIES if path.parent.name != "lib"], ids=name_of)
def test_sql_makes_no_zero_of_what_is_not_known(path):
    assert not re.search(r"\bgreatest\(\s*0\s*,", code_of(path)), "greatest(0, NULL) is 0: at_least_zero() is not"


@pytest.mark.parametrize("path", QUERIES, ids=name_of)
def test_sql_is_lower_case_and_fits_the_page(path):
    code = code_of(path)
    assert not re.search(r"\b(?:SELECT|FROM|WHERE|JOIN|AND|OR|CASE|WHEN)\b", code)
    assert [line for line in code.splitlines() if len(line) > 150] == []  # sentences in the text of a string aside


def test_nothing_written_here_knows_the_machine_it_was_written_on():
    written = [*CODE, *QUERIES, *DOCUMENTS, *(PROJECT / "sample_traces").rglob("README.md"), *(PROJECT / "tests").rglob("*.py")]
    home = re.compile(r"/(?:work|root)/")
    assert [name_of(path) for path in written if home.search(path.read_text())] == []
