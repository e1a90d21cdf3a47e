"""Standard input as an input: the same answer as of a file, nothing of it left, and one line where nothing can come."""

import gzip
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import duckdb
import pyarrow.parquet as pq
import pytest

from pipelines import cli
from tests.conftest import PROJECT

LOG = (PROJECT / "sample_traces" / "vllm-0.32-queue-kv-capacity" / "server.log").read_bytes()
KVPRESSURE = [sys.executable, "-m", "pipelines.cli"]


@pytest.fixture
def pipe(monkeypatch):
    """Makes some bytes what comes through standard input."""

    def give(content: bytes) -> None:
        out, into = os.pipe()

        def write() -> None:
            with os.fdopen(into, "wb") as file:
                file.write(content)

        threading.Thread(target=write, daemon=True).start()
        monkeypatch.setattr(sys, "stdin", os.fdopen(out))

    return give


def test_what_is_piped_is_analyzed_as_a_file_is_and_known_again(capsys, tmp_path, pipe):
    for told in ("", "unchanged"):
        pipe(LOG)
        assert cli.main(["analyze", "-", "--out", str(tmp_path / "out"), "--no-report"]) == 0
        assert told in capsys.readouterr().err
    with duckdb.connect(str(tmp_path / "out" / "analysis.duckdb"), read_only=True) as con:
        assert con.sql("select run from runs").fetchall() == [("stdin",)]
        assert con.sql("select distinct source from data_quality").fetchall() == [("stdin",)]
    assert not [each for each in (tmp_path / "out").iterdir() if each.name.startswith(".")]


def test_it_may_stand_beside_files_and_be_compressed(tmp_path, pipe):
    (tmp_path / "stdin").write_bytes(LOG[: len(LOG) // 2])
    pipe(gzip.compress(LOG))
    assert cli.main(["parse", str(tmp_path / "stdin"), "-", "--out", str(tmp_path / "out")]) == 0
    rows = pq.read_table(tmp_path / "out" / "sources.parquet").to_pylist()
    assert [row["path"] for row in rows] == [str(tmp_path / "stdin"), "-"]
    assert len({row["source"] for row in rows}) == 2
    assert {row["format"] for row in rows} == {"vllm_engine_log"}


@pytest.mark.parametrize(
    ("stdin", "told"),
    [(b"", "stdin: empty; check"), (b"nothing that an engine says\n", "stdin: no line of an engine log")],
)
def test_where_nothing_comes_it_is_one_line(capsys, tmp_path, pipe, stdin, told):
    pipe(stdin)
    assert cli.main(["analyze", "-", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"kvpressure: {told}")
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_it_is_read_once(capsys, tmp_path):
    assert cli.main(["parse", "-", "-", "--out", str(tmp_path / "out")]) == 2
    assert "-: standard input can be read once" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["closed", "a terminal"])
def test_a_terminal_is_not_waited_for(capsys, tmp_path, monkeypatch, what):
    monkeypatch.setattr(sys, "stdin", None if what == "closed" else os.fdopen(os.openpty()[1]))
    assert cli.main(["analyze", "-", "--out", str(tmp_path / "out")]) == 2
    assert f"-: standard input is {what}; pipe a log" in capsys.readouterr().err


@pytest.mark.parametrize(("how", "said"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended from outside")])
def test_a_pipe_that_does_not_end_can_be_left(tmp_path, how, said):
    words = [*KVPRESSURE, "analyze", "-", "--out", str(tmp_path / "out")]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # whoever runs the tests may not hear it
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=PROJECT,
        preexec_fn=heard,  # noqa: PLW1509 - one call, and no lock is asked for
    ) as process:
        assert process.stdin
        assert process.stderr
        process.stdin.write(LOG)
        process.stdin.flush()
        while process.poll() is None and not any(file.stat().st_size for file in tmp_path.glob("out/.kvpressure-*/stdin")):
            time.sleep(0.02)
        process.send_signal(how)
        try:
            process.wait(timeout=30)
        finally:
            process.kill()
        error = process.stderr.read().decode()
    assert process.returncode == 2
    assert error.splitlines()[-1] == f"kvpressure: {said}; nothing was written"
    assert not (tmp_path / "out").exists()


def test_a_disk_without_room_for_it_is_one_line_that_names_the_place(tmp_path):
    told = subprocess.run(
        [*KVPRESSURE, "parse", "-", "--out", str(tmp_path / "out")],
        input=LOG * 100,
        capture_output=True,
        cwd=PROJECT,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    assert (told.returncode, told.stderr.decode()) == (
        2,
        f"kvpressure: {tmp_path / 'out'}: file too large; check the path and the free space\n",
    )
    assert not (tmp_path / "out").exists()
