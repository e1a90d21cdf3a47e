"""`make` says what it does to the system before it does it, and does without what it may not install."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import PROJECT


@pytest.mark.parametrize(
    ("user", "has_sudo", "begin", "installs"),
    [
        (
            0,
            False,
            "installing on this system, for tests, with apt-get (a minute or two, once): chromium ripgrep prometheus",
            True,
        ),
        (1000, True, "installing on this system, for tests, with sudo apt-get", True),
        (1000, False, "not found: chromium ripgrep prometheus; the tests that need them are skipped (Debian, as root: ", False),
    ],
)
def test_programs_for_tests_are_named_before_they_are_installed_or_where_they_cannot_be(
    tmp_path, user, has_sudo, begin, installs
):
    programs = {"id": f"echo {user}", "apt-get": f"echo $1 >> {tmp_path}/called"} | ({"sudo": '"$@"'} if has_sudo else {})
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    make = shutil.which("make") or pytest.skip("make is not installed")
    told = subprocess.run(
        [make, "test-tools"], cwd=PROJECT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith(begin)
    called = Path(tmp_path / "called")
    assert (called.read_text().split() if called.exists() else []) == (["update", "install"] if installs else [])
