"""The same again is reported from what is there; anything else, and anything that is not whole, is made anew."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from pipelines import analysis, cli, origin, publish
from pipelines.models import Run
from tests.conftest import PROJECT

SMALL = PROJECT / "sample_traces" / "llamacpp-b11549-exhaustion"


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """Inputs and their analysis; copies of it are as good as it is."""
    folder = tmp_path_factory.mktemp("origin")
    shutil.copytree(SMALL, folder / "run")
    analysis.analyze([folder / "run"], folder / "out", Run("run"), has_report=False)
    return folder


@pytest.fixture
def again(first, tmp_path, monkeypatch):
    """Analyzes once more over a copy of the result; whether anything was made."""
    made = []
    build = analysis.build
    monkeypatch.setattr(analysis, "build", lambda *given, **named: made.append(1) or build(*given, **named))
    shutil.copytree(first / "out", tmp_path / "out")

    def analyze(run: Run | None = None, **options) -> bool:
        made.clear()
        result = analysis.analyze([first / "run"], tmp_path / "out", run or Run("run"), **{"has_report": False} | options)
        assert result.is_unchanged is not bool(made)
        assert result.rows["advice.verdicts"] > 0
        return bool(made)

    return analyze


def test_the_same_again_is_left_as_it_is(again, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert not again()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    assert again(fresh=True)


def test_a_byte_of_an_input_is_enough(again, first):
    file = next(path for path in sorted((first / "run").iterdir()) if path.name.endswith(".log"))
    content, times = file.read_bytes(), file.stat()
    try:
        file.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # neither size nor time of it tells
        assert again()
    finally:
        file.write_bytes(content)
    assert again()
    assert not again()


def test_options_program_and_libraries_count(again, monkeypatch):
    assert again(Run("run", gpu_cost_usd_per_hour=2.0))
    assert not again(Run("run", gpu_cost_usd_per_hour=2.0))
    monkeypatch.setattr(origin, "code_version", lambda: "another")
    assert again(Run("run", gpu_cost_usd_per_hour=2.0))


@pytest.mark.parametrize("file", [publish.DATABASE, "tables/verdicts.parquet", publish.ORIGIN])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_result_that_is_not_whole_is_not_trusted(first, tmp_path, file, damage):
    shutil.copytree(first / "out", tmp_path / "out")
    sources = analysis.intake.find([first / "run"], skip=tmp_path / "out")
    made_of = origin.of(origin.inputs(sources), Run("run"), anonymize=False, has_report=False)
    assert made_of
    assert origin.kept(made_of, tmp_path / "out")
    path = tmp_path / "out" / file
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        middle = len(content) // 2
        path.write_bytes(
            content[:middle] + (bytes([content[middle] ^ 1]) + content[middle + 1 :] if damage == "flipped" else b"")
        )
    assert not origin.kept(made_of, tmp_path / "out")


def test_a_table_too_many_is_of_another_result(first, tmp_path):
    shutil.copytree(first / "out", tmp_path / "out")
    shutil.copyfile(tmp_path / "out/tables/verdicts.parquet", tmp_path / "out/tables/older.parquet")
    made_of = origin.of(origin.inputs(analysis.intake.find([first / "run"])), Run("run"), anonymize=False, has_report=False)
    assert made_of
    assert not origin.kept(made_of, tmp_path / "out")


@pytest.mark.parametrize("step", range(4))
def test_killed_while_the_new_takes_the_place_of_the_old_it_is_neither(first, tmp_path, step):
    """SIGKILL at each move of the replacement: the new result's own origin then finds nothing whole, and the old one neither."""
    shutil.copytree(first / "out", tmp_path / "out")
    shutil.copytree(first / "out", tmp_path / "made")
    script = f"""
import os, pathlib, signal
from pipelines import publish
moves, move = [], pathlib.Path.replace
def killed(path, target):
    if len(moves) == {step}:
        os.kill(os.getpid(), signal.SIGKILL)
    moves.append(path)
    return move(path, target)
pathlib.Path.replace = killed
publish.replace(pathlib.Path({str(tmp_path / "made")!r}), pathlib.Path({str(tmp_path / "out")!r}))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, check=False)
    made_of = origin.of(origin.inputs(analysis.intake.find([first / "run"])), Run("run"), anonymize=False, has_report=False)
    assert done.returncode == -9
    assert made_of
    assert not origin.kept(made_of, tmp_path / "out")


def test_the_caller_hears_the_same_and_that_nothing_was_made(tmp_path, capsys):
    call = ["analyze", str(SMALL), "--out", str(tmp_path / "out"), "--no-report", "--fail-on", "critical"]
    statuses, said = [], []
    for _ in range(2):
        statuses.append(cli.main(call))
        said.append(capsys.readouterr())
    assert statuses == [1, 1]
    assert said[0].out == said[1].out
    assert "unchanged: nothing made anew; --fresh" in said[1].err
    assert "unchanged" not in said[0].err


def test_what_came_after_the_reading_began_is_told_by_the_next_look(tmp_path):
    """A file that grows while it is read: its hash is that of what it was, whether the reader met the rest or not."""
    log = tmp_path / "log"
    log.write_bytes(b"a line\n")
    before = origin.inputs([analysis.intake.Source(log, "log")])
    told = origin.of(before, Run("run"), anonymize=False, has_report=False)
    with log.open("ab") as file:
        file.write(b"one more\n")
    assert origin.of(before, Run("run"), anonymize=False, has_report=False) == told
    now = origin.inputs([analysis.intake.Source(log, "log")])
    assert origin.of(now, Run("run"), anonymize=False, has_report=False) != told


def test_a_pipe_is_never_the_same_again(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert (
        origin.of(
            origin.inputs([analysis.intake.Source(tmp_path / "pipe", "pipe")]), Run("run"), anonymize=False, has_report=False
        )
        is None
    )
