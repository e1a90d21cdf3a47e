"""What the documents say is so: every command they show is run, every option, variable and file they name exists.

A block of commands is fenced as `sh`; the blocks of one document run one after the other in one empty folder that has the sample
recordings in it. A block that needs what a test has not (a cluster, a server, a GPU) says so in a comment before it:
`<!-- not run: needs a Prometheus server -->`. Usage and output are fenced as `text`, other languages by their name.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

from pipelines.build import EXECUTORS
from pipelines.cli_arguments import build_parser
from pipelines.cli_commands import FAIL_ON_SEVERITY
from pipelines.replay.engines import MODELS
from pipelines.replay.levers import OF_LOAD
from tests.conftest import PROJECT, SAMPLES

README = (PROJECT / "README.md").read_text()
CODE = "\n".join(path.read_text() for folder in ("parsers", "pipelines") for path in (PROJECT / folder).rglob("*.py"))


DOCUMENTS = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("*.md")])
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]*?) -->\n+)?```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
OURS = re.compile(r"^(?:\$ )?(?:make|kvpressure|kubectl|curl|promtool|pip|docker) ", re.MULTILINE)
PROSE = re.compile(r"^ *> (.*(?:\n *> .*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block of a document."""

    document: Path
    line: int
    language: str
    body: str
    reason: str | None

    @property
    def place(self) -> str:
        return f"{self.document.relative_to(PROJECT)}:{self.line}"


def blocks(document: Path) -> list[Block]:
    text = document.read_text()
    return [
        Block(document, text[: found.start("body")].count("\n"), found["language"], found["body"], found["reason"])
        for found in FENCE.finditer(text)
    ]


def commands() -> dict[str, argparse.ArgumentParser]:
    groups = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(groups[0].choices)


@pytest.mark.parametrize("name", commands())
def test_every_command_is_in_the_readme_and_has_help(name):
    assert f"kvpressure {name} " in README
    parser = commands()[name]
    assert parser.description
    for action in parser._actions:
        assert action.help, f"{name} {action.dest}"


def test_every_block_of_commands_is_run_or_says_why_not():
    for block in (block for document in DOCUMENTS for block in blocks(document)):
        if block.language == "sh":
            assert block.reason is None or len(block.reason) > 10, block.place
        else:
            assert block.language or not OURS.search(block.body), f"{block.place}: fence commands as sh, and usage as text"
            assert block.reason is None, f"{block.place}: only commands are run"


@pytest.fixture
def workplace(tmp_path) -> Path:
    """An empty folder with the samples, and `kvpressure` and `make` as a reader has them; make installs nothing anew."""
    for name in ("sample_traces", "Makefile", ".venv", "pipelines", "parsers", "sql", "tests"):
        (tmp_path / name).symlink_to(PROJECT / name)
    shims = tmp_path / "bin"
    shims.mkdir()
    (shims / "make").write_text(f'#!/bin/sh\nexec {shutil.which("make")} -o .venv/.runtime -o .venv/.dev "$@"\n')
    (shims / "make").chmod(0o755)
    (shims / "kvpressure").symlink_to(Path(sys.executable).parent / "kvpressure")
    return tmp_path


@pytest.mark.drill
@pytest.mark.parametrize(
    "document", [each for each in DOCUMENTS if any(b.language == "sh" for b in blocks(each))], ids=lambda each: each.name
)
def test_every_command_of_a_document_runs(document, workplace):
    for block in blocks(document):
        if block.language == "sh" and block.reason is None:
            script = re.sub(r"^\$ ", "", block.body, flags=re.MULTILINE)
            environment = {**os.environ, "PATH": f"{workplace / 'bin'}:{os.environ['PATH']}", "COLUMNS": "80"}
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=workplace,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
            )
            assert done.returncode == 0, f"{block.place}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_what_the_walk_through_quotes_stands_in_the_report(analyzed):
    page = " ".join(re.sub(r"<[^>]+>", " ", analyzed.analysis.report.read_text(encoding="utf-8")).split())
    quotes = PROSE.findall((PROJECT / "docs" / "walkthrough.md").read_text())
    assert len(quotes) > 3
    for quote in quotes:
        words = " ".join(re.sub(r"\n *> ", " ", quote).split())
        assert words in page, words


def test_every_option_of_analyze_is_in_the_readme():
    options = {option for action in commands()["analyze"]._actions for option in action.option_strings if option.startswith("--")}
    assert not {option for option in options - {"--help"} if f"`{option}" not in README}


def test_no_command_is_promised_that_is_not_there():
    assert set(re.findall(r"^kvpressure (\w+)", README, re.MULTILINE)) == set(commands())


def test_the_severities_of_fail_on_are_those_of_the_readme():
    assert "at least {warning} (warning) or {critical} (critical)".format(**FAIL_ON_SEVERITY) in README


def test_every_variable_of_the_environment_is_in_the_readme():
    assert set(re.findall(r"KVPRESSURE_[A-Z_]+", CODE)) == set(re.findall(r"KVPRESSURE_[A-Z_]+", README))


def test_the_levers_of_each_engine_and_of_the_load_are_in_the_readme():
    for whose, levers in {**{model.name: model.own for model in MODELS.values()}, "the load": OF_LOAD}.items():
        _, _, told = README.partition(f"of {whose}: ")
        assert re.findall(r"`(\w+)`", re.split(r"; |\. ", told)[0]) == list(levers), whose


def test_every_executor_is_in_the_documents():
    [row] = [line for line in README.splitlines() if line.startswith("| `KVPRESSURE_EXECUTOR`")]
    table = (PROJECT / "docs/daily.md").read_text()
    for name in EXECUTORS:
        assert f"`{name}`" in row
        assert f"\n| `{name}` |" in table


def test_every_make_target_named_in_a_document_exists():
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"(?:^|`)make ([a-z]+)", (PROJECT / document).read_text(), re.MULTILINE)
        assert named
        assert set(named) <= targets


def test_links_lead_somewhere():
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)|src(?:set)?=\"([^\"]+)\"", document.read_text()):
            assert (document.parent / "".join(target)).exists(), f"{document.name}: {target}"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_sample_says_how_it_was_made_and_under_which_licence(sample):
    text = (sample / "README.md").read_text()
    assert "## How it was made" in text or "## Where it is from" in text
    assert "Licence:" in text
    described = ["README.md", *re.findall(r"^\| (\S+) \|", text, re.MULTILINE)]
    for file in sample.iterdir():
        assert any(fnmatch(file.name, name) for name in described), file.name
