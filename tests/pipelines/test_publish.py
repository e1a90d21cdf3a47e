"""What an analysis leaves behind: a database that older DuckDB reads, tables, a summary that follows its schema."""

from __future__ import annotations

import json
import re

import duckdb
import jsonschema
import pyarrow.parquet as pq
import pytest

from pipelines import publish
from pipelines.analysis import analyze
from pipelines.models import Run
from pipelines.sqlshell import open_read_only, run
from tests import sql_doc
from tests.conftest import SMALL


def test_the_result_is_these_files_and_no_others(analyzed):
    out = analyzed.analysis.out
    artefacts = "analysis.duckdb origin.json report.html summary.json summary.md tables timeline.png timeline.svg"
    assert sorted(path.name for path in out.iterdir()) == artefacts.split()
    assert sorted(path.stem for path in (out / "tables").iterdir()) == sorted(publish.tables())


def test_every_contract_table_is_there_and_every_column_says_what_it_holds(analyzed):
    with duckdb.connect(str(analyzed.analysis.database), read_only=True) as con:
        tables = {name for (name,) in con.sql("select table_name from duckdb_tables() where schema_name = 'main'").fetchall()}
        silent = con.sql("select table_name, column_name from duckdb_columns() where comment is null and not internal").fetchall()
        unexplained = con.sql("select table_name from duckdb_tables() where comment is null").fetchall()
    assert tables >= {*publish.CONTRACT_TABLES, "sources"}
    assert (silent, unexplained) == ([], [])


def test_the_database_is_in_the_format_that_duckdb_1_5_reads(analyzed):
    """Bytes 12 to 19 of a DuckDB file are its storage version; 1.5 reads up to 68."""
    version = int.from_bytes(analyzed.analysis.database.read_bytes()[12:20], "little")
    assert version <= 68


def test_the_database_and_the_parquet_files_hold_the_same(analyzed):
    with duckdb.connect(str(analyzed.analysis.database), read_only=True) as con:
        con.execute("set timezone = 'UTC'")
        for file in sorted((analyzed.analysis.out / "tables").iterdir()):
            assert con.sql(f"from {file.stem}").to_arrow_table().to_pylist() == pq.read_table(file).to_pylist(), file.stem


def test_summary_follows_its_schema(analyzed):
    schema = json.loads(publish.SUMMARY_SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    summary = json.loads((analyzed.analysis.out / "summary.json").read_text())
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(summary)


def test_the_schema_of_the_summary_is_that_of_the_models(analyzed):
    with duckdb.connect(str(analyzed.analysis.database), read_only=True) as con:
        made = publish.summary_schema(con)
    assert json.loads(publish.SUMMARY_SCHEMA.read_text()) == made, "run `make schema`"


def test_summary_has_null_for_what_no_number_can_say():
    assert publish.plain({"a": float("nan"), "b": [float("inf"), 1.0]}) == {"a": None, "b": [None, 1.0]}


def test_a_result_is_replaced_as_a_whole(tmp_path):
    made, out = tmp_path / "made", tmp_path / "out"
    for folder, tables in ((made, ("new",)), (out, ("old", "older"))):
        (folder / "tables").mkdir(parents=True)
        for table in tables:
            (folder / "tables" / f"{table}.parquet").write_text(folder.name)
        for name in (publish.DATABASE, publish.SUMMARY):
            (folder / name).write_text(folder.name)
    (out / publish.REPORT).write_text("of the old result")
    (out / "notes.txt").write_text("the user's own")
    publish.replace(made, out)
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()) == [
        "analysis.duckdb",
        "notes.txt",
        "summary.json",
        "tables/new.parquet",
    ]
    assert {(out / name).read_text() for name in (publish.DATABASE, publish.SUMMARY)} == {"made"}


def test_what_is_made_to_be_shown_can_hide_names(tmp_path):
    result = analyze([SMALL], tmp_path, Run("secret-project"), anonymize=True)
    for name in (publish.REPORT, publish.TICKET):
        assert "secret-project" not in (result.out / name).read_text()
    assert "failed for lack of kv" in (result.out / publish.TICKET).read_text().lower()
    assert "secret-project" in (result.out / publish.SUMMARY).read_text(), "data keeps them, as README and --help say"


def test_two_analyses_of_the_same_input_are_the_same_to_the_byte(analyze_sample, tmp_path):
    once, again = analyze_sample(SMALL).analysis, analyze([SMALL], tmp_path, Run(SMALL.name))
    for file in [*(once.out / "tables").iterdir(), once.out / "summary.json", once.report]:
        assert file.read_bytes() == (again.out / file.relative_to(once.out)).read_bytes(), file.name


def test_tables_that_need_no_schema_do_not_share_a_name():
    assert len(publish.tables()) == len(publish.published()) + len(publish.BESIDES)


OF_ONE_RUN = [each for each in sql_doc.examples(sql_doc.DOCUMENT.read_text()) if not re.search(r"\bfleet\.|\bday\b", each.query)]


@pytest.mark.parametrize("example", OF_ONE_RUN, ids=lambda example: example.title)
def test_a_query_written_for_a_lake_is_one_for_an_analysis_too_also_where_that_was_moved(analyzed, tmp_path, example):
    moved = tmp_path / "moved.duckdb"
    moved.symlink_to(analyzed.analysis.database)
    with open_read_only(moved) as con:
        assert run(con, example.query).num_columns > 1


def test_without_a_report_there_are_the_tables_and_nothing_is_drawn(small):
    assert {path.name for path in small.out.iterdir()} == {"analysis.duckdb", "origin.json", "summary.json", "tables"}
