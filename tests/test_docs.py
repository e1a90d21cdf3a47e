"""What the documents say is so: every command, option, variable and file they name exists, and each that exists is named."""

from __future__ import annotations

import argparse
import re
from fnmatch import fnmatch

import pytest

from pipelines.cli import FAIL_ON_SEVERITY, build_parser
from tests.conftest import PROJECT, SAMPLES

README = (PROJECT / "README.md").read_text()
CODE = "\n".join(path.read_text() for folder in ("parsers", "pipelines") for path in (PROJECT / folder).rglob("*.py"))


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


def test_every_option_of_analyze_is_in_the_readme():
    options = {option for action in commands()["analyze"]._actions for option in action.option_strings if option.startswith("--")}
    assert not {option for option in options - {"--help"} if f"`{option}" not in README}


def test_no_command_is_promised_that_is_not_there():
    assert set(re.findall(r"^kvpressure (\w+)", README, re.MULTILINE)) == set(commands())


def test_the_severities_of_fail_on_are_those_of_the_readme():
    assert "at least {warning} (warning) or {critical} (critical)".format(**FAIL_ON_SEVERITY) in README


def test_every_variable_of_the_environment_is_in_the_readme():
    assert set(re.findall(r"KVPRESSURE_[A-Z_]+", CODE)) == set(re.findall(r"KVPRESSURE_[A-Z_]+", README))


def test_every_make_target_named_in_a_document_exists():
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"(?:^|`)make ([a-z]+)", (PROJECT / document).read_text(), re.MULTILINE)
        assert named
        assert set(named) <= targets


def test_links_lead_somewhere():
    for document in PROJECT.glob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
            assert (PROJECT / target).exists(), f"{document.name}: {target}"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_sample_says_how_it_was_made_and_under_which_licence(sample):
    text = (sample / "README.md").read_text()
    assert "## How it was made" in text or "## Where it is from" in text
    assert "Licence:" in text
    described = ["README.md", *re.findall(r"^\| (\S+) \|", text, re.MULTILINE)]
    for file in sample.iterdir():
        assert any(fnmatch(file.name, name) for name in described), file.name
