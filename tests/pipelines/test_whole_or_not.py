"""A result is there whole or not at all: on a disk that is read-only or full, and whenever the call is interrupted."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time

import pytest

from pipelines import intake, origin, publish
from pipelines.models import Run
from tests.conftest import PROJECT, SMALL

SAMPLE = PROJECT / "sample_traces" / "vllm-0.32-queue-max-num-seqs"
CALL = [sys.executable, "-m", "pipelines.cli"]
CAN_MOUNT = (
    shutil.which("unshare")
    and not subprocess.run(
        ["unshare", "-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"], check=False, capture_output=True
    ).returncode
)
MOUNTS = {  # file systems of their own, seen by the one call alone
    "read-only": ("mount -t tmpfs -o ro tmpfs {out}", "read-only file system; check the path and the free space"),
    "full while reading": ("mount -t tmpfs -o size=64k tmpfs {out}", "output: no space left on device; check"),
    "full while computing": ("mount -t tmpfs -o size=400k tmpfs {out}", "check the free space"),
    "full while publishing": ("mount -t tmpfs -o size=4m tmpfs {out}", "check the free space"),
}


@pytest.mark.skipif(not CAN_MOUNT, reason="no file system may be mounted here (unshare -rm)")
@pytest.mark.parametrize("state", MOUNTS)
def test_a_disk_that_takes_no_more_is_one_line_and_nothing_is_left(tmp_path, state):
    mount, words = MOUNTS[state]
    call = " ".join([*CALL, "analyze", str(SAMPLE), "--out", f"{tmp_path}/result"])
    script = f"{mount.format(out=tmp_path)} && cd {PROJECT} && {call}; told=$?; find {tmp_path} -mindepth 1; exit $told"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert words in done.stderr.splitlines()[-1]
    assert done.stdout == ""


@pytest.mark.skipif(not CAN_MOUNT, reason="no file system may be mounted here (unshare -rm)")
@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_query_whose_result_finds_no_room_names_its_file_and_leaves_the_one_before(small, tmp_path, name):
    query = "select n, hash(n) as told from range(100000) as numbers (n)"
    call = f"{' '.join(CALL)} sql {small.out} '{query}' -o {tmp_path}/{name}"
    script = f"mount -t tmpfs -o size=64k tmpfs {tmp_path} && echo before > {tmp_path}/{name} && cd {PROJECT} && {call}; told=$?"
    after = f"ls -A {tmp_path}; cat {tmp_path}/{name}; exit $told"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", f"{script}; {after}"], capture_output=True, text=True, check=False)
    told = f"kvpressure: {tmp_path}/{name}: no space left on device; check the path and the free space\n"
    assert (done.returncode, done.stderr, done.stdout) == (2, told, f"{name}\nbefore\n")


def _is(out, name: str) -> bool:
    made_of = origin.of(origin.inputs(intake.find([SMALL])), Run(name), anonymize=False, has_report=False)
    return bool(made_of and origin.kept(made_of, out))


@pytest.mark.parametrize(
    ("moment", "how"),
    [
        (".kvpressure-*/lake/raw", signal.SIGINT),
        (".kvpressure-*/result/analysis.duckdb", signal.SIGTERM),
        (".kvpressure-*/result/tables", signal.SIGINT),
        (".kvpressure-*/result/origin.json", signal.SIGINT),
    ],
)
def test_interrupted_at_any_moment_there_is_the_old_result_or_the_new_one(small, tmp_path, moment, how):
    shutil.copytree(small.out, tmp_path / "out")
    words = ["analyze", str(SMALL), "--out", str(tmp_path / "out"), "--no-report", "--name", "newer"]
    with subprocess.Popen([*CALL, *words], cwd=PROJECT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as call:
        while not list((tmp_path / "out").glob(moment)) and call.poll() is None:
            time.sleep(0.002)
        call.send_signal(how)
        said = call.communicate()[1].decode()
    assert _is(tmp_path / "out", "small") or _is(tmp_path / "out", "newer")
    assert list((tmp_path / "out").glob(".*")) == []
    if call.returncode == 2:
        assert said.splitlines()[-1] in (
            "kvpressure: interrupted; nothing was written",
            "kvpressure: ended from outside; nothing was written",
        )
    assert "please report it" not in said


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_in_the_midst_of_the_replacement_waits_for_its_end(small, tmp_path, monkeypatch, how):
    shutil.copytree(small.out, tmp_path / "made")
    shutil.copytree(small.out, tmp_path / "out")
    (tmp_path / "out" / publish.SUMMARY).write_text("of before")
    rmtree, heard = shutil.rmtree, []
    monkeypatch.setattr(publish.shutil, "rmtree", lambda path: (signal.raise_signal(how), rmtree(path)))
    before = signal.signal(how, lambda *_: heard.append(_is(tmp_path / "out", "small")))
    try:
        publish.replace(tmp_path / "made", tmp_path / "out")
    finally:
        signal.signal(how, before)
    assert heard == [True]
