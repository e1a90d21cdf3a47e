"""Ad hoc SQL over a lake: the worked queries, what cannot be written or reached, and the catalog in an older DuckDB."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import duckdb
import pytest

from pipelines import cli, cli_commands
from pipelines.sqlprompt import Prompt
from pipelines.sqlshell import QueryError, dot_rows, open_read_only, run
from tests import sample_lake, sql_doc
from tests.object_store import serving_buckets

EXAMPLES = list(sql_doc.examples(sql_doc.DOCUMENT.read_text()))


@pytest.fixture(scope="module")
def lake(shared) -> Path:
    return shared.once("sample-lake", sample_lake.make)


@pytest.fixture(scope="module")
def con(lake):
    with open_read_only(lake) as con:
        yield con


def test_there_are_ten_worked_queries():
    assert len(EXAMPLES) == 10
    assert all(example.rows for example in EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_a_worked_query_gives_the_rows_below_it(con, example):
    told, written = example.answered(con).splitlines(), example.rows.splitlines()
    assert told[:3] == written[:3], "python -m tests.sql_doc writes the rows anew"
    assert len(told) == len(written)


WRITING = (
    "copy (select 1) to '{lake}/new.csv'",
    "copy (select 1) to '{lake}/catalog.sql'",
    "copy (pivot (select 1 as a, 2 as b) on a using sum(b)) to '{lake}/new.csv'",
    "explain analyze copy (select 1) to '{lake}/new.csv'",
    "explain (analyze) copy (select 1) to '{lake}/new.csv'",
    "select 1; copy (select 1) to '{lake}/new.csv'",
    "prepare p as copy (select 1) to '{lake}/new.csv'",
    "attach '{lake}/new.duckdb'",
    "export database '{lake}/new'",
    "copy (select 1) to '{lake}/../new.csv'",
)
REACHING = (
    "from read_text('/etc/passwd')",
    "from read_text('{lake}/../kvpressure.toml')",
    "from glob('{lake}/../*')",
    "attach '/tmp/other.duckdb'",
    "set enable_external_access = true",
    "install httpfs",
    "create secret s (type s3)",
)


def state(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("query", [*WRITING, *REACHING])
def test_nothing_is_written_and_nothing_else_is_reached(con, lake, query):
    before = state(lake.parent)
    with pytest.raises(QueryError):
        run(con, query.format(lake=lake))
    assert state(lake.parent) == before


@pytest.mark.parametrize(
    "query",
    [
        "from verdicts",
        "explain from verdicts",
        "pivot waste on kind using sum(tokens_best) group by run",
        "set variable since = date '2026-11-29'; select getvariable('since')",
        "create temp table mine as from verdicts; select count(*) from mine",
        "-- a remark\nfrom runs",
        "summarize verdicts",
    ],
)
def test_what_only_reads_is_let_through(con, query):
    assert run(con, query).num_rows > 0


@pytest.mark.parametrize("place", ["{lake}/catalog.duckdb", "{lake}/days/new.csv", "{lake}/fleet/../new.csv"])
def test_a_result_is_not_written_into_what_is_read(capsys, lake, place):
    before = state(lake)
    assert cli.main(["sql", str(lake), "select 1", "-o", place.format(lake=lake)]) == cli_commands.WRONG
    assert "only read" in capsys.readouterr().err
    assert state(lake) == before


def test_an_analysis_is_not_overwritten_by_a_result(capsys, analyzed):
    out = analyzed.analysis.out
    size = analyzed.analysis.database.stat().st_size
    for place in (out / "analysis.duckdb", out / "report.html"):
        assert cli.main(["sql", str(out), "select 1", "-o", str(place)]) == cli_commands.WRONG
    assert capsys.readouterr().err.count("\n") == 2
    assert analyzed.analysis.database.stat().st_size == size


def test_a_lake_that_was_moved_is_still_one(lake, tmp_path):
    shutil.copytree(lake, tmp_path / "moved")
    with open_read_only(tmp_path / "moved") as con:
        assert run(con, "select count(*) as n from verdicts where is_primary").to_pylist() == [{"n": 3}]


@pytest.mark.parametrize("opened", [open_read_only, lambda lake: duckdb.connect(str(lake / "catalog.duckdb"), read_only=True)])
def test_every_column_of_a_lake_says_what_it_holds(lake, opened):
    with opened(lake) as con:
        told = dot_rows(con, ".schema")
    assert told is not None
    rows = told.to_pylist()
    assert {"main", "fleet"} == {row["schema"] for row in rows}
    assert [row for row in rows if not row["holds"]] == []
    [day] = {row["holds"] for row in rows if row["schema"] == "main" and row["column"] == "day"}
    assert day == "The day, in the lake's zone."


def test_a_table_of_a_lake_says_what_its_columns_hold(con):
    told = dot_rows(con, ".schema fleet.engine_days")
    assert told is not None
    assert all(row["holds"] for row in told.to_pylist())


def test_tab_completes_tables_columns_and_words(con):
    prompt = Prompt(con)
    assert prompt.completedefault("fleet.engine_d") == ["fleet.engine_days"]
    assert "window_start" in prompt.completedefault("window")
    assert prompt.completedefault("SEL") == ["SELECT"]
    assert prompt.completenames(".ta") == [".tables"]


def test_the_catalog_opens_in_duckdb_1_5(lake):
    command = shutil.which("duckdb")
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout if command else ""
    if not version.lstrip("v").startswith("1.5"):
        pytest.skip("no duckdb 1.5 on the path (pip install duckdb-cli==1.5.6)")
    query = "select count(*) as n from verdicts where is_primary and day = date '2026-11-29'"
    told = subprocess.run(
        [command, "-readonly", "-json", str(lake / "catalog.duckdb"), query], capture_output=True, text=True, check=True
    )
    assert json.loads(told.stdout) == [{"n": 3}]


@pytest.mark.drill  # a hundred views, each of which asks the store
def test_a_lake_in_a_bucket_is_read_the_same_way(con, lake):
    with serving_buckets("night", "other") as files:
        files.put(f"{lake}/", "night/lake/", recursive=True)
        files.pipe("other/secret.csv", b"a\n1\n")
        with open_read_only("s3://night/lake/") as remote:
            query = "select run, verdict from verdicts where is_primary order by run"
            assert run(remote, query) == run(con, query)
            for refused in ("from read_csv('s3://other/secret.csv')", "copy (select 1) to 's3://night/lake/new.csv'"):
                with pytest.raises(QueryError):
                    run(remote, refused)
        assert not files.exists("night/lake/new.csv")
