"""The command line as a caller meets it: exit status, one-line errors, what goes to stdout and what to stderr."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from pipelines import cli, cli_arguments, cli_commands, sqlprompt
from pipelines.duck import INTERRUPTED
from pipelines.lake import Lake
from pipelines.sqlshell import open_read_only, results
from tests.conftest import PROJECT, SMALL
from tests.pipelines.test_intake import BROKEN, READ_IN_PART, SAMPLE

RECORDING = PROJECT / "sample_traces" / "vllm-0.32-queue-kv-capacity"


def run(capsys, *words: object) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of one call."""
    try:
        status = cli.main([str(word) for word in words])
    except SystemExit as left:
        status = int(left.code or 0)
    told = capsys.readouterr()
    return status, told.out, told.err


# calls that are wrong

WRONG_CALLS = {
    "analyze": "required",
    "analyze {sample}": "--out",
    "analyze {sample}/nowhere --out {out}": "nowhere: no such file or folder",
    "analyze {sample} --out {sample}/server.log": "not a folder",
    "analyze {sample} --out {out} --gpu-cost free": "not a price",
    "analyze {sample} --out {out} --gpu-cost -1": "not a price",
    "analyze {sample} --out {out} --timezone Mars/Olympus": "not a time zone",
    "analyze {sample} --out {out} --since yesterday": "ISO 8601",
    "analyze {sample} --out {out} --since 2026-01-02 --until 2026-01-01": "swap them",
    "analyze {sample} --out {out} --since 9999-12-31T23:59:59-23:00": "outside the years",
    "analyze {sample} --out {out} --format yaml": "invalid choice",
    "analyze {sample} --out {out} --name": "--name",
    "parse {sample}/nowhere --out {out}": "nowhere: no such file or folder",
    "sql {out}": "no analysis.duckdb and no lake",
    "nonsense": "invalid choice",
}


@pytest.mark.parametrize("call", WRONG_CALLS)
def test_a_wrong_call_is_one_line_and_status_2(capsys, tmp_path, call):
    status, out, error = run(capsys, *call.format(sample=RECORDING, out=tmp_path / "out").split())
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("kvpressure: ")
    assert WRONG_CALLS[call] in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["analyze", "parse"])
@pytest.mark.parametrize("content", sorted(BROKEN.keys() - set(READ_IN_PART)))
def test_an_input_that_cannot_be_read_is_one_line_and_status_2(capsys, tmp_path, command, content):
    (tmp_path / "given").write_bytes(BROKEN[content][0])
    status, _, error = run(capsys, command, tmp_path / "given", "--out", tmp_path / "out")
    assert (status, error.count("\n")) == (2, 1)
    assert error.startswith("kvpressure: given: ")


def test_the_rest_of_a_mixed_folder_is_analyzed_and_each_fault_said(capsys, tmp_path):
    (given := tmp_path / "given").mkdir()
    parts = {f"part-{number}": content for number, content in enumerate(READ_IN_PART)}
    for name, content in parts.items():
        (given / name).write_bytes(BROKEN[content][0])
    (given / "empty").write_bytes(b"")
    status, out, error = run(capsys, "analyze", given, "--out", tmp_path / "out", "--no-report")
    assert status == 0
    faults = [line for line in error.splitlines() if not re.search(r", \d+ s$", line)]  # progress aside
    assert [line.split(":")[1].strip() for line in faults] == ["empty", *parts]
    assert all(line.endswith("; what was read of it is used") for line in faults[1:])
    assert "what was read of it is used" in " ".join(out.split())
    with duckdb.connect(str(tmp_path / "out" / "analysis.duckdb"), read_only=True) as con:
        told = con.sql("select source from data_quality where flag = 'read_in_part' and severity = 'error' order by all")
        assert told.fetchall() == [(name,) for name in parts]
        used = con.sql("select source from sources where lines_used > 0 order by all").fetchall()
        assert used == [(name,) for name in parts]


def test_a_folder_with_nothing_readable_is_one_line_and_status_2(capsys, tmp_path):
    (tmp_path / "notes").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "notes" / name).write_text(f"just a note, {name}\n")
    status, _, error = run(capsys, "analyze", tmp_path / "notes", "--out", tmp_path / "out")
    assert (status, error.count("\n")) == (2, 1)
    assert "none of the 2 files" in error
    assert not (tmp_path / "out").exists()


def test_what_is_wrong_with_many_files_alike_is_one_line(capsys, tmp_path):
    (tmp_path / "spans.jsonl.gz").symlink_to(RECORDING / "spans.jsonl.gz")
    for number in range(30):
        (tmp_path / f"pod-{number:02}.log").write_text(
            f"INFO 11-27 10:00:{number:02} [api_server.py:1] vLLM API server started\n"
        )
    (tmp_path / "empty").write_bytes(b"")
    status, _, error = run(capsys, "parse", tmp_path, "--out", tmp_path / "out")
    faults = [line for line in error.splitlines() if not re.search(r", \d+ s$", line)]
    assert (status, len(faults)) == (0, 2)
    assert faults[0].startswith("kvpressure: empty: empty; ")
    assert faults[1].startswith("kvpressure: pod-00.log (29 more alike): vLLM server log, but its one line says nothing of load")


def test_a_failed_analysis_leaves_the_older_result_alone(capsys, tmp_path, small):
    shutil.copytree(small.out, tmp_path / "out")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    (tmp_path / "empty").write_bytes(b"")
    assert run(capsys, "analyze", tmp_path / "empty", "--out", tmp_path / "out")[0] == 2
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_analysis_leaves_nothing_that_looks_whole(tmp_path, how):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "pipelines.cli", "analyze", str(SAMPLE), "--out", str(out)]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while not list(out.glob(".kvpressure-*/lake/raw")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(how)
        _, error = process.communicate()
    assert process.returncode != 0
    assert b"Traceback" not in error
    assert [path.name for path in out.glob("[!.]*")] == []
    if how != signal.SIGKILL:
        assert not out.exists()


def test_what_a_killed_analysis_left_is_taken_away_by_the_next(capsys, tmp_path):
    left, foreign = (tmp_path / "out" / f".kvpressure-{name}" for name in ("999999999", "notes"))
    left.mkdir(parents=True)
    foreign.mkdir()
    run(capsys, "parse", RECORDING / "spans.jsonl.gz", "--out", tmp_path / "out")
    assert not left.exists()
    assert foreign.exists()


@pytest.mark.parametrize(
    "given",
    [
        {"start_times": [-1e18, 0.5], "ttfts": [0.1, 0.2], "output_lens": [5, 5]},
        {"mean_ttft_ms": 10**400, "ttfts": [0.1, 0.2], "output_lens": [5, 5]},
        {"itls": [[1e308, 1e308], [0.1]], "ttfts": [0.1, 1e308], "output_lens": [10**30, 5]},
    ],
)
def test_numbers_that_nothing_can_have_measured_do_not_stop_an_analysis(capsys, tmp_path, given):
    head = {"date": "20261129-131213", "model_id": "tiny", "num_prompts": 2, "duration": 1e308, "completed": 2}
    (tmp_path / "bench.json").write_text(json.dumps(head | given))
    assert run(capsys, "analyze", tmp_path / "bench.json", "--out", tmp_path / "out")[0] == 0


def test_an_interrupt_within_a_query_is_one_line(capsys, tmp_path, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise RuntimeError(INTERRUPTED)

    monkeypatch.setattr("pipelines.analysis.build", interrupted)
    status, _, error = run(capsys, "analyze", RECORDING / "server.log", "--out", tmp_path / "out")
    assert (status, error.splitlines()[-1]) == (2, "kvpressure: interrupted; nothing was written")  # the last, where it is slow
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("module", ["signal", "pipelines.cli_arguments", "duckdb", "pyarrow", "pipelines.analysis"])
def test_an_interrupt_while_modules_are_imported_is_one_line(tmp_path, module):
    program = f"""
import sys
from importlib.abc import MetaPathFinder

import pipelines.cli
import _signal


class Interrupting(MetaPathFinder):
    def find_spec(self, name, *_):
        if name == {module!r}:
            _signal.raise_signal(_signal.SIGINT)


sys.modules.pop("signal", None)
sys.meta_path.insert(0, Interrupting())
sys.exit(pipelines.cli.main(["analyze", {str(RECORDING)!r}, "--out", {str(tmp_path / "out")!r}]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PROJECT, check=False)
    assert (done.returncode, done.stderr) == (2, "kvpressure: interrupted; nothing was written\n")
    assert not (tmp_path / "out").exists()


# analyze


@pytest.fixture
def result(shared) -> Path:
    def make(out: Path) -> Path:
        with redirect_stdout(io.StringIO()):  # whose test asks for it first has what it prints itself alone
            assert (
                cli.main(["analyze", str(SMALL), "--out", str(out), "--name", "a run", "--gpu-cost", "2.5", "--no-report"]) == 0
            )
        return out

    return shared.once("result", make)


def test_the_text_fits_a_terminal_and_begins_with_the_verdict(capsys, tmp_path, analyzed):
    """That the same is said of a result that was there as of one just made: tests/pipelines/test_origin.py."""
    shutil.copytree(analyzed.analysis.out, tmp_path, dirs_exist_ok=True)
    status, out, _ = run(capsys, "analyze", SAMPLE, "--out", tmp_path)
    assert status == 0
    assert out.startswith("PREEMPTION")
    assert max(map(len, out.splitlines())) <= 80 + len(str(tmp_path))
    assert "\x1b" not in out
    assert str(tmp_path / "report.html") in out


def test_json_is_the_summary_and_nothing_else(capsys, tmp_path):
    (tmp_path / "metrics.txt").write_text("vllm:num_requests_running 3\n")
    status, out, _ = run(capsys, "analyze", tmp_path / "metrics.txt", "--out", tmp_path, "--format", "json", "--no-report")
    assert status == 0
    assert json.loads(out) == json.loads((tmp_path / "summary.json").read_text())


def test_a_result_among_its_inputs_is_told_and_takes_no_place_of_theirs(capsys, tmp_path):
    page, aside = tmp_path / "metrics.txt", tmp_path / "out"
    page.write_text("vllm:num_requests_running 3\n")
    own = tmp_path / "result"
    kept_apart = f"{tmp_path}: the result lies there among the inputs; --out {own} keeps them apart\n"
    again = [run(capsys, "analyze", page, "--out", tmp_path, "--no-report") for _ in range(2)]
    assert all(kept_apart in err for _, _, err in again)
    assert [status for status, _, _ in again] == [0, 0]
    assert "among the inputs" not in run(capsys, "analyze", page, "--out", aside, "--no-report")[2]

    taken = tmp_path / "tables" / "server.log"
    taken.write_bytes(page.read_bytes())
    for given in (page, taken):
        status, out, err = run(capsys, "analyze", given, "--out", tmp_path, "--no-report", "--fresh")
        fault = f"{taken}: the result in {tmp_path} would take its place; give --out a folder of its own, such as {own}"
        assert (status, out, err) == (2, "", f"kvpressure: {fault}\n")
    assert taken.read_bytes() == page.read_bytes()


def test_a_folder_with_earlier_results_in_it_is_analyzed_again(capsys, tmp_path):
    (tmp_path / "metrics.txt").write_text("vllm:num_requests_running 3\n")
    for words in ((tmp_path,), (tmp_path,), tmp_path.iterdir()):
        status, _, err = run(capsys, "analyze", *words, "--out", tmp_path / "out", "--no-report")
        assert status == 0
        assert not re.search("output folder|among the inputs|would take its place", err)


def test_the_name_of_the_run_is_in_every_table(result):
    with duckdb.connect(str(result / "analysis.duckdb"), read_only=True) as con:
        for table in ("runs", "engines", "verdicts", "timeline"):
            assert con.sql(f"select distinct run from {table}").fetchall() == [("a run",)]


def test_a_run_compared_with_a_copy_of_itself_is_called_the_same(capsys, tmp_path, result):
    shutil.copytree(result, tmp_path / "copy")
    shutil.copy(result / "analysis.duckdb", tmp_path / "alone.duckdb")
    for pair in ((result, tmp_path / "copy"), (tmp_path / "alone.duckdb", tmp_path / "alone.duckdb")):
        status, out, _ = run(capsys, "compare", *pair, "--out", tmp_path / "out", "--fail-on", "regression")
        assert (status, out.splitlines()[0]) == (0, "Both sides have the same inputs: all differences are zero by construction.")
        assert json.loads((tmp_path / "out" / "compare.json").read_text())["has_same_inputs"]


@pytest.mark.parametrize(
    "call",
    [["compare", "older", "older", "--out", "out"], ["whatif", "older", "--set", "max_num_seqs=9"]],
    ids=lambda call: call[0],
)
def test_an_analysis_of_another_version_is_one_line_and_status_2(capsys, tmp_path, monkeypatch, result, call):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "older").mkdir()
    shutil.copy(result / "analysis.duckdb", tmp_path / "older")
    with duckdb.connect("older/analysis.duckdb") as con:
        con.execute("alter table core.requests rename column arrived_at to sent_at")
    status, out, err = run(capsys, *call)
    assert (status, out) == (2, "")
    assert err == "kvpressure: older/analysis.duckdb: made by another version of kvpressure; analyze its inputs again\n"


@pytest.mark.parametrize(("limit", "status"), [("warning", 1), ("critical", 1)])
def test_fail_on_trips_on_a_severe_verdict(capsys, tmp_path, analyzed, limit, status):
    shutil.copytree(analyzed.analysis.out, tmp_path, dirs_exist_ok=True)
    assert run(capsys, "analyze", SAMPLE, "--out", tmp_path, "--fail-on", limit)[0] == status


def test_a_window_without_anything_in_it_is_no_storm(capsys, tmp_path):
    status, out, _ = run(
        capsys, "analyze", SAMPLE, "--out", tmp_path, "--until", "2026-11-29T13:12:14Z", "--fail-on", "warning", "--no-report"
    )
    assert status == 0, out


def test_a_time_without_offset_is_in_the_zone_given():
    assert cli_commands._in_zone(cli_arguments._moment("2026-01-31T12:00"), None) == "2026-01-31T12:00:00+00:00"
    assert cli_commands._in_zone(cli_arguments._moment("2026-01-31T12:00"), "Europe/Berlin") == "2026-01-31T11:00:00+00:00"
    assert cli_commands._in_zone(cli_arguments._moment("2026-01-31T12:00+05:00"), "Europe/Berlin") == "2026-01-31T07:00:00+00:00"


# parse


def test_parse_accounts_for_every_line_of_every_file(capsys, tmp_path):
    status, out, _ = run(capsys, "parse", SAMPLE, "--out", tmp_path)
    assert status == 0
    rows = pq.read_table(tmp_path / "sources.parquet").to_pylist()
    assert {row["source"] for row in rows} == {path.name.removesuffix(".gz") for path in SAMPLE.iterdir()}
    for row in rows:
        assert row["lines"] == row["lines_used"] + row["lines_ignored"] + row["lines_not_understood"]
        assert row["source"] in out


def test_what_parse_wrote_answers_sql(capsys, tmp_path):
    run(capsys, "parse", RECORDING / "spans.jsonl.gz", "--out", tmp_path)
    status, out, _ = run(capsys, "sql", tmp_path, "select source, lines_used > 0 as is_used from sources", "--format", "csv")
    assert (status, out.split()) == (0, ["source,is_used", "spans.jsonl,true"])
    assert run(capsys, "sql", tmp_path, "select count(*) from spans")[0] == 0


def test_parse_leaves_no_table_of_an_earlier_call(capsys, tmp_path):
    run(capsys, "parse", RECORDING / "kv_events.jsonl.gz", "--out", tmp_path)
    assert (tmp_path / "kv_events.parquet").exists()
    run(capsys, "parse", RECORDING / "spans.jsonl.gz", "--out", tmp_path)
    assert not (tmp_path / "kv_events.parquet").exists()


# sql


def test_sql_answers_in_each_form(capsys, result, tmp_path):
    query = "select 1 as a, 'x, y' as b, null as c, [1, 2] as d, timestamptz '2026-01-01 12:00:00+00' as e"
    told = {kind: run(capsys, "sql", result, query, "--format", kind)[1] for kind in ("table", "csv", "json", "markdown")}
    assert told["table"] == "a  b     c  d       e\n1  x, y     [1, 2]  2026-01-01T12:00:00Z\n"
    assert told["csv"] == 'a,b,c,d,e\n1,"x, y",,"[1, 2]",2026-01-01T12:00:00Z\n'
    assert json.loads(told["json"]) == [{"a": 1, "b": "x, y", "c": None, "d": [1, 2], "e": "2026-01-01T12:00:00Z"}]
    assert told["markdown"].splitlines()[2] == "| 1 | x, y |  | [1, 2] | 2026-01-01T12:00:00Z |"
    assert run(capsys, "sql", result, "select 1 as a, 2 as a") == (0, "a  a\n1  2\n", "")
    for name in ("a.csv", "a.json", "a.md", "a.parquet", "a.txt", "a"):
        assert run(capsys, "sql", result, query, "-o", tmp_path / name) == (0, "", "")
    assert (tmp_path / "a.csv").read_text() == told["csv"]
    assert (tmp_path / "a.txt").read_text() == (tmp_path / "a").read_text() == told["table"]
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 1


def test_sql_writes_no_table_under_a_name_that_asks_for_something_else(capsys, result, tmp_path):
    status, out, error = run(capsys, "sql", result, "select 1 as a", "-o", tmp_path / "a.xlsx")
    assert (status, out, list(tmp_path.iterdir())) == (2, "", [])
    assert "a.xlsx: no format for `.xlsx`; end it in .csv, .json, .md, .parquet, .txt, or give --format" in error
    assert run(capsys, "sql", result, "select 1 as a", "-o", tmp_path / "a.out", "--format", "csv") == (0, "", "")
    assert (tmp_path / "a.out").read_text() == "a\n1\n"


def test_sql_writes_values_that_json_has_no_type_for(capsys, result):
    query = "select 1.5 as a, date '2026-01-01' as b, [0.5] as c, map {'k': 2.5} as d, '12:00'::time as e"
    status, out, _ = run(capsys, "sql", result, query, "--format", "json")
    assert status == 0
    assert json.loads(out)[0] == {"a": 1.5, "b": "2026-01-01", "c": [0.5], "d": [["k", 2.5]], "e": "12:00:00"}


@pytest.mark.parametrize(
    "words",
    [
        ["select timestamptz 'infinity'"],
        ["select date '-4000-01-01'", "--format", "json"],
        ["select 1 as a, 2 as a", "--format", "json"],
        ["select interval 1 day", "-o", "{tmp}/a.parquet"],
    ],
)
def test_sql_says_in_one_line_what_it_cannot_show(capsys, result, tmp_path, words):
    status, out, error = run(capsys, "sql", result, *(word.format(tmp=tmp_path) for word in words))
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("kvpressure: ")
    assert list(tmp_path.iterdir()) == []


def test_a_column_name_cannot_steer_the_terminal(capsys, result):
    for kind in ("table", "csv", "markdown", "json"):
        assert "\x1b" not in run(capsys, "sql", result, 'select 1 as "a\x1b[31m"', "--format", kind)[1]


REFUSED = (
    "create table t as select 1",
    "delete from verdicts",
    "copy verdicts to '{tmp}/out.csv'",
    "from read_csv('/etc/passwd')",
    "attach '{tmp}/other.duckdb'",
    "set enable_external_access = true",
    "install httpfs",
    "selec 1",
    "from nowhere",
)


@pytest.mark.parametrize("query", REFUSED)
def test_sql_refuses_what_does_not_read_the_analysis(capsys, result, tmp_path, query):
    status, out, error = run(capsys, "sql", result, query.format(tmp=tmp_path))
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("kvpressure: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "call", ["--help", "formats", "sql {result} .tables", "analyze {given} --name small --out {out} --no-report --format json"]
)
def test_a_reader_who_has_gone_is_no_fault_and_nothing_is_said_of_it(result, small, tmp_path, call):
    shutil.copytree(small.out, tmp_path / "out")
    words = [each.format(result=result, given=SMALL, out=tmp_path / "out") for each in call.split()]
    gone, end = os.pipe()
    os.close(gone)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "pipelines.cli", *words]
    told = subprocess.run(command, stdout=end, stderr=subprocess.PIPE, text=True, cwd=PROJECT, env=buffered, check=False)
    os.close(end)
    assert told.returncode == 0
    assert "pipe" not in told.stderr.lower()


@pytest.mark.parametrize(("closed", "status"), [(">&-", 0), (">/dev/full", 2)])
def test_an_output_that_takes_nothing_is_told_in_one_line_or_not_at_all(result, closed, status):
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = f"{sys.executable} -m pipelines.cli sql {result} 'select 1' {closed}"
    told = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, cwd=PROJECT, env=buffered, check=False)
    assert told.returncode == status
    assert told.stderr.count("\n") == (status > 0), told.stderr


def test_sql_takes_lines_from_a_pipe_as_they_are_typed(result):
    told = subprocess.run(
        [sys.executable, "-m", "pipelines.cli", "sql", str(result)],
        input="-- a script\n.schema runs\nset variable x = 41;\nselect ';\n' as text, 1 as n; select 2 as n; -- done;\n"
        ".mode csv\nselect getvariable('x') + 1 as answer",
        capture_output=True,
        text=True,
        cwd=PROJECT,
        check=True,
    )
    schema, rest = told.stdout.split("text  n\n")
    assert schema.splitlines()[1].split()[:2] == ["run", "VARCHAR"]
    assert rest == ";     1\nn\n2\nanswer\n42\n"


PIPED = {
    "select 1 as n;\nselec 2;\nselect 3 as n;\n": ("n\n1\n", "selec"),
    ".tabels\nselect 1;\n": ("", "`.tabels`: no such command; `.help` lists them"),
    "\\x\nselect 1;\n": ("", "`\\x`: no such command; `.help` lists them"),
    ".schema nowhere\n": ("", "no table `nowhere`; `.tables` shows what there is"),
    ".mode vertical\n": ("", "`.mode` takes one of auto, table, line, csv, json, markdown; it is auto"),
    ".mode json\nselect 1 as n;\n.quit\nselect 2 as n;\n": ('[{"n": 1}]\n', ""),
}


@pytest.mark.parametrize("lines", PIPED)
def test_sql_ends_a_script_at_its_first_fault_or_where_it_says(capsys, monkeypatch, result, lines):
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    status, out, error = run(capsys, "sql", result)
    assert (status, out) == (2 if PIPED[lines][1] else 0, PIPED[lines][0])
    assert PIPED[lines][1] in error
    assert error.count("\n") <= 1


def test_sql_keeps_the_last_result_of_a_script(capsys, monkeypatch, result, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.StringIO("select 1 as n;\nselect 2 as n;\nset variable x = 1;\n"))
    assert run(capsys, "sql", result, "-o", tmp_path / "n.csv") == (0, "", "")
    assert (tmp_path / "n.csv").read_text() == "n\n2\n"


def test_sql_gives_each_column_a_line_where_a_terminal_is_too_narrow_for_the_table(capsys, monkeypatch, result):
    query = "select 1 as a_number, 'a text of some length' as text union all select 2, null order by 1"
    table = "a_number  text\n       1  a text of some length\n       2\n"
    lines = "-[ RECORD 1 ]\na_number | 1\ntext     | a text of some length\n-[ RECORD 2 ]\na_number | 2\ntext     |\n"
    monkeypatch.setenv("COLUMNS", "30")
    assert run(capsys, "sql", result, query)[1] == table, "not a terminal"
    assert run(capsys, "sql", result, query, "--format", "line")[1] == lines
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(capsys, "sql", result, query)[1] == lines
    assert run(capsys, "sql", result, query, "--format", "table")[1] == table
    assert run(capsys, "sql", result, query, "--format", "csv")[1].startswith("a_number,text\n")
    monkeypatch.setenv("COLUMNS", "31")
    assert run(capsys, "sql", result, query)[1] == table


def test_a_prompt_outlives_a_statement_that_is_interrupted(capsys, monkeypatch, result):
    def interrupted(con, query):
        if "endless" in query:
            raise RuntimeError(INTERRUPTED)
        return results(con, query)

    typed = iter(["select 'endless';", "select 2 as two;", ".quit"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    monkeypatch.setattr(sqlprompt, "results", interrupted)
    with open_read_only(result) as con:
        sqlprompt.Prompt(con).cmdloop()
    assert capsys.readouterr().out.endswith("(given up; `.quit` leaves)\ntwo\n  2\n")


def test_a_prompt_keeps_no_result(capsys, monkeypatch, result, tmp_path):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    status, out, error = run(capsys, "sql", result, "-o", tmp_path / "n.csv")
    assert (status, out) == (2, "")
    assert "give a query with -o FILE" in error


def test_the_prompt_takes_statements_over_lines_and_its_own_words(capsys, result):
    with open_read_only(result) as con:
        prompt = sqlprompt.Prompt(con)
        assert [
            prompt.onecmd(line)
            for line in (
                ".tables",
                ".schema runs",
                "select 1 as",
                "  one;",
                "nonsense;",
                ".mode line",
                "select 2 as two;",
                ".quit",
            )
        ] == [
            *[False] * 7,
            True,
        ]
    out = capsys.readouterr().out
    assert "verdicts" in out
    assert "one\n  1\n" in out
    assert "nonsense" in out
    assert out.endswith("two | 2\n")


def test_sql_reads_a_lake(capsys, tmp_path, small):
    with open_read_only(small.out) as con:
        for name in ("one", "two"):
            lake = Lake.of(tmp_path, run=name)
            verdicts = con.sql(f"select * replace ('{name}' as run) from verdicts").to_arrow_table()
            lake.put("advice.verdicts", lambda path, rows=verdicts: pq.write_table(rows, path))
            engines = con.sql("from core.engines").to_arrow_table()
            lake.put("core.engines", lambda path, rows=engines: pq.write_table(rows, path))
    status, out, _ = run(capsys, "sql", tmp_path, "select distinct run from verdicts order by run", "--format", "csv")
    assert (status, out) == (0, "run\none\ntwo\n")
    assert (
        run(capsys, "sql", tmp_path, "select count(distinct run) as runs from core.engines", "--format", "csv")[1] == "runs\n2\n"
    )
    assert run(capsys, "sql", tmp_path, "from read_csv('/etc/passwd')")[0] == 2


# speed


@pytest.mark.parametrize("words", [["--help"], ["formats"], ["sql", "--help"]])
def test_short_answers_import_no_dagster_and_little_else(words):
    program = f"""
import sys
import pipelines.cli

try:
    pipelines.cli.main({words})
except SystemExit:
    pass
print(sorted({{"dagster", "altair", "vl_convert"}} & set(sys.modules)))
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PROJECT, check=True)
    assert told.stdout.splitlines()[-1] == "[]"


def test_help_loads_nothing_that_only_an_analysis_needs():
    asked = "import sys, pipelines.cli as cli\ntry: cli.main(['--help'])\nfinally: print(*sys.modules, file=sys.stderr)"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, cwd=PROJECT, check=True)
    assert told.stdout.startswith("usage: kvpressure")
    assert not {"altair", "dagster", "duckdb", "numpy", "polars", "pyarrow", "pydantic"} & set(told.stderr.split())


@pytest.mark.parametrize("given", [["--timezone", "-05:00"], ["--timezone=-05:00"], ["--timezone", "-0500"]])
def test_a_zone_west_of_greenwich_is_no_option(given):
    told = cli_arguments.build_parser().parse_args(["analyze", "x", "--out", "y", *given])
    assert told.timezone == "Etc/GMT+5"


def test_what_is_no_zone_is_one_line(capsys, tmp_path):
    status, _, told = run(capsys, "analyze", tmp_path, "--out", tmp_path / "out", "--timezone", "CEST")
    assert status == 2
    assert told.startswith("kvpressure: argument --timezone: `CEST` is an abbreviation, no time zone; use the name Europe/Berlin")
    assert told.count("\n") == 1
