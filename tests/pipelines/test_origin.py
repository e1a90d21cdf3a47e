"""The same again is reported from what is there; anything else, and anything that is not whole, is made anew."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines import analysis, cli, origin, publish
from pipelines.models import Run
from tests.conftest import SMALL

RUN = Run("small")


class BeginsError(Exception):
    """Something is about to be made."""


@pytest.fixture
def again(small, tmp_path, monkeypatch):
    """Analyzes the inputs once more over a copy of the result; whether it would make anything, or makes it."""
    shutil.copytree(small.out, tmp_path / "out")

    def begins(*_: object, **__: object) -> None:
        raise BeginsError

    def analyze(run: Run = RUN, *, is_made: bool = False, **options) -> bool:
        with monkeypatch.context() as patched:
            if not is_made:
                patched.setattr(analysis, "build", begins)
            try:
                result = analysis.analyze([SMALL], tmp_path / "out", run, **{"has_report": False} | options)
            except BeginsError:
                return True
        assert result.rows["advice.verdicts"] > 0
        return not result.is_unchanged

    return analyze


def made_of(inputs: Path = SMALL) -> origin.Origin:
    """What a run of these inputs is made of."""
    told = origin.of(origin.inputs(analysis.intake.find([inputs])), RUN, anonymize=False, has_report=False)
    assert told
    return told


def test_the_same_again_is_left_as_it_is(again, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert not again()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    assert again(fresh=True)


def test_a_byte_of_an_input_is_enough(tmp_path):
    shutil.copytree(SMALL, tmp_path / "run")
    file = next(path for path in sorted((tmp_path / "run").iterdir()) if path.name.endswith(".log"))
    before, content, times = made_of(tmp_path / "run"), file.read_bytes(), file.stat()
    file.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # neither size nor time of it tells
    assert made_of(tmp_path / "run") != before
    file.write_bytes(content)
    assert made_of(tmp_path / "run") == before


def test_options_program_and_libraries_count(again, monkeypatch):
    priced = replace(RUN, gpu_cost_usd_per_hour=2.0)
    assert again(priced, is_made=True)
    assert not again(priced)
    assert again(), "it is that of the price by now"
    monkeypatch.setattr(origin, "code_version", lambda: "another")
    assert again(priced)


@pytest.mark.parametrize("file", [publish.DATABASE, "tables/verdicts.parquet", publish.ORIGIN])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_result_that_is_not_whole_is_not_trusted(small, tmp_path, file, damage):
    shutil.copytree(small.out, tmp_path / "out")
    assert origin.kept(made_of(), tmp_path / "out")
    path = tmp_path / "out" / file
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        middle = len(content) // 2
        path.write_bytes(
            content[:middle] + (bytes([content[middle] ^ 1]) + content[middle + 1 :] if damage == "flipped" else b"")
        )
    assert not origin.kept(made_of(), tmp_path / "out")


def test_a_table_too_many_is_of_another_result(small, tmp_path):
    shutil.copytree(small.out, tmp_path / "out")
    shutil.copyfile(tmp_path / "out/tables/verdicts.parquet", tmp_path / "out/tables/older.parquet")
    assert not origin.kept(made_of(), tmp_path / "out")


@pytest.mark.parametrize("step", range(4))
def test_killed_while_the_new_takes_the_place_of_the_old_it_is_neither(small, tmp_path, step):
    """SIGKILL at each move of the replacement: the new result's own origin then finds nothing whole, and the old one neither."""
    shutil.copytree(small.out, tmp_path / "out")
    shutil.copytree(small.out, tmp_path / "made")
    moves, move = [], Path.replace

    def killed(path: Path, target: Path) -> Path:
        if len(moves) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        moves.append(path)
        return move(path, target)

    if not (child := os.fork()):  # nothing but files is touched there
        Path.replace = killed
        publish.replace(tmp_path / "made", tmp_path / "out")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not origin.kept(made_of(), tmp_path / "out")


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
