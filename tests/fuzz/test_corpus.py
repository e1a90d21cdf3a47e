"""What the fuzzer found, and inputs that reach far, fed to their targets again; and each with numbers and times of no engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fuzz.targets import SCRATCH, TARGETS

CORPUS = Path(__file__).parent / "corpus"
NUMBER = re.compile(rb"\d+")
TIME = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?")
SLOW = ("clocks",)  # a tenth of a second each


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left():
    yield
    SCRATCH.remove()


def inputs(target: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / target).glob("*"))]


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_found_stays_fixed(target):
    assert target in SLOW or inputs(target), f"nothing in the corpus for {target}"
    for content in inputs(target):
        TARGETS[target](content)


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in (*SLOW, "opened")])
def test_numbers_and_times_of_no_engine_are_not_understood(target):
    for content in inputs(target)[:3]:
        TARGETS[target](NUMBER.sub(b"9" * 5000, content))
    for content in inputs(target)[:10]:
        for number in (b"99999999999999999999999", b"1e400", b"-1"):
            TARGETS[target](NUMBER.sub(number, content))
        for time in (b"0001-01-01T00:00:00+05:00", b"9999-12-31T23:59:59-05:00", b"2026-02-30 25:61:61"):
            TARGETS[target](TIME.sub(time, content))
