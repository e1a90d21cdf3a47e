"""Rows against counts that know no parser: lines of a recording that hold a few words, objects of its JSON, lines of its CSV.

Needs the recordings beside the project (`../shared`); skipped where they are not.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from parsers import Sink, Source, parse

SHARED = Path(__file__).parents[3] / "shared"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not beside the project")

LINES = (  # files, the table, and what a line that gives a row of it holds
    ("truth/*/server.log*", "engine_samples", r"Engine \d+: Avg prompt throughput: "),
    ("truth/*/server.log*", "iteration_steps", r": Iteration\(\d+\): "),
    ("reallogs/vllm_logs/*.log", "engine_samples", r"Avg prompt throughput: |Avg prompt tput: "),
    ("reallogs/sglang_logs/*.log", "engine_samples", r"\] (?:Prefill|Decode) batch"),
    ("engines/sglang*/*.log", "engine_samples", r"\] (?:Prefill|Decode) batch"),
    ("traces/*.jsonl*", "workload_requests", r"^\{"),
    ("traces/*.csv*", "workload_requests", r"^\d"),
)


def text(path: Path) -> str:
    """The file as it was before it was packed."""
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(errors="replace")


def rows_of(path: Path, table: str, folder: Path) -> int:
    with Sink(folder / "tables") as sink:
        parse(Source(path, path.name), sink)
    made = folder / "tables" / f"{table}.parquet"
    return pq.read_metadata(made).num_rows if made.exists() else 0


@pytest.mark.parametrize(("files", "table", "words"), LINES, ids=[f"{files} {table}" for files, table, _ in LINES])
def test_a_line_that_says_it_is_a_row(files, table, words, tmp_path):
    paths = sorted(SHARED.glob(files))
    counted = {
        path.name if "*/" not in files else str(path.parent.name): len(re.findall(words, text(path), re.MULTILINE))
        for path in paths
    }
    read = {
        path.name if "*/" not in files else str(path.parent.name): rows_of(path, table, tmp_path / str(number))
        for number, path in enumerate(paths)
    }
    assert sum(counted.values()) > 0
    assert read == counted


def test_a_request_of_a_benchmark_is_a_row(tmp_path):
    for number, path in enumerate(sorted(SHARED.glob("truth/*/client-*.json"))):
        assert rows_of(path, "bench_requests", tmp_path / str(number)) == len(json.loads(path.read_text())["input_lens"]), path


def test_an_event_of_the_kv_cache_is_a_row(tmp_path):
    for number, path in enumerate(sorted(SHARED.glob("truth/*/kv_events.jsonl*"))):
        batches = [json.loads(line) for line in text(path).splitlines() if line]
        blocks = sum(len(event.get("block_hashes") or [None]) for batch in batches for event in batch["batch"][1])
        assert rows_of(path, "kv_events", tmp_path / str(number)) == blocks, path
