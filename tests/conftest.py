"""What every test may use: the sample recordings, and one analysis of each that is made once and only read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from pipelines.analysis import Analysis, analyze
from pipelines.models import Run

PROJECT = Path(__file__).parent.parent
SAMPLES = sorted(path.parent for path in (PROJECT / "sample_traces").glob("*/expected.json"))


@dataclass(frozen=True)
class Analyzed:
    """One sample recording and its analysis."""

    sample: Path
    analysis: Analysis

    @property
    @cache  # noqa: B019 - lives as long as the session
    def expected(self) -> dict:
        return json.loads((self.sample / "expected.json").read_text())


@pytest.fixture(scope="session")
def analyzed_samples(tmp_path_factory) -> dict[str, Analyzed]:
    """Each sample's analysis by the sample's name. Read it; do not write below it."""
    made: dict[str, Analyzed] = {}
    for sample in SAMPLES:
        out = tmp_path_factory.mktemp(sample.name)
        made[sample.name] = Analyzed(sample, analyze([sample], out, Run(sample.name)))
    return made


@pytest.fixture(scope="session")
def analyzed(analyzed_samples) -> Analyzed:
    """The preemption sample's analysis."""
    return analyzed_samples["vllm-0.32-preemption"]
