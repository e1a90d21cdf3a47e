"""A lake made of the recordings in sample_traces, as `kvpressure daily` makes it: an engine each, one day."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from pipelines import cli_daily
from pipelines.config import load

SAMPLES = Path(__file__).parent.parent / "sample_traces"
DAY = date(2026, 11, 29)
ENGINES = {"chat": "vllm-0.32-preemption", "documents": "vllm-0.32-prefix-eviction", "search": "vllm-0.32-queue-max-num-seqs"}
LAKE = '[lake]\nurl = "lake"\n'
ENGINE = """
[[engines]]
name = "{name}"
group = "samples"
paths = ["{samples}/{recording}/*"]
gpu_cost = 2.5
labels = {{ cluster = "lab", model = "{name}-model" }}
"""


def make(folder: Path) -> Path:
    """Make it below the folder; returns its root."""
    file = folder / "kvpressure.toml"
    engines = [ENGINE.format(name=name, recording=recording, samples=SAMPLES) for name, recording in ENGINES.items()]
    file.write_text(LAKE + "".join(engines))
    config = load(file)
    report = cli_daily.run(config, config.fleet(), [DAY])
    assert not report.faults, report.faults
    return Path(config.store.url)
