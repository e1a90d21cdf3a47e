"""What an input may not be: too long, too deep, too many, or many times its own size. Each limit says so in one line."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from parsers import InputError, Sink, Source, parse, source
from pipelines import analysis, intake
from pipelines.models import Run
from tests.conftest import PROJECT, SMALL

RECORDING = PROJECT / "sample_traces" / "vllm-0.32-preemption"

STATS = (
    "INFO 07-01 12:00:00 [loggers.py:118] Engine 000: Avg prompt throughput: 10.0 tokens/s, Running: 3 reqs, Waiting: 1 reqs\n"
)
MEBI = 1 << 20


def read(folder, content: bytes, name="server.log"):
    """What became of one file, and the rows of each table."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_bytes(content)
    made = intake.read_into([folder / "in"], folder / "tables")
    return made.outcomes[0], made.rows


def test_a_line_beyond_measure_ends_the_reading_and_keeps_what_came_before(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "LONGEST_LINE", 4 * MEBI)
    outcome, rows = read(tmp_path, STATS.encode() * 5 + b"x" * (9 * MEBI) + b"\n" + STATS.encode())
    assert outcome.error == "server.log: a line of over 4 MiB, as no log has; is it text at all?; what was read of it is used"
    assert rows["engine_samples"] == 5
    # up to the limit it is a line like any other
    outcome, rows = read(tmp_path, STATS.encode() * 5 + b"x" * (3 * MEBI) + b"\n" + STATS.encode())
    assert outcome.error is None
    assert rows["engine_samples"] == 6


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gzip", "zstd"])
def test_a_file_that_grows_out_of_all_proportion_is_not_read_on(tmp_path, monkeypatch, compress):
    monkeypatch.setattr(source, "UNCHECKED_GROWTH", 4 * MEBI)
    bomb = compress(STATS.encode() * 5 + b"\n" * (32 * MEBI))
    assert len(bomb) * source.MOST_GROWTH < 32 * MEBI
    outcome, rows = read(tmp_path, bomb)
    told = "server.log: grows to over 500 times its size, as no log does; if it is one, decompress it first"
    assert outcome.error == f"{told}; what was read of it is used"
    assert rows["engine_samples"] == 5


def test_a_zstd_bomb_takes_no_memory(tmp_path):
    """A kilobyte of zstd may stand for many megabytes: what is decompressed at once must stay small."""
    packed = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(packed, closefd=False) as writer:
        for _ in range(64):
            writer.write(b"\n" * MEBI)
    (tmp_path / "log").write_bytes(packed.getvalue())
    tracemalloc.start()
    with Source(tmp_path / "log", "log").open() as stream:
        total = sum(len(part) for part in iter(lambda: stream.read1(MEBI), b""))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == 64 * MEBI
    assert peak < 48 * MEBI


def test_a_document_that_cannot_be_held_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("parsers.json_text.LARGEST_DOCUMENT", 2 * MEBI)
    run = {"date": "20261129-131307", "backend": "vllm", "model_id": "m", "num_prompts": 1, "request_rate": 1.0, "duration": 1.0}
    run |= {"completed": 1, "ttfts": [0.1], "itls": [[0.01] * 600_000], "input_lens": [1], "output_lens": [2]}
    outcome, _ = read(tmp_path, json.dumps(run).encode(), "client.json")
    assert outcome.error
    assert "over 2 MiB in one JSON or YAML document, which is read as a whole; record shorter runs" in outcome.error


@pytest.mark.parametrize("depth", [50, 5_000, 200_000])
def test_nesting_is_no_way_to_the_ground(tmp_path, depth):
    report = b'{"version":"0.2","results":{"request_performance":' + b'{"a":' * depth + b"1" + b"}" * depth
    report += b',"observability":{}},"component_health":1}'
    for content in (report, b'{"resourceSpans":' + b"[" * depth + b"]" * depth + b"}\n", b'{"log":' + b"[" * depth):
        outcome, _ = read(tmp_path, content * 2, "report.json")
        assert "fault of kvpressure" not in (outcome.error or "")


def test_yaml_cannot_multiply_itself(tmp_path):
    lines = ["version: '0.2'", "component_health: &a0 {x: 1}", "component_label: y"]
    lines += [f"a{i}: &a{i} {{{', '.join(f'k{k}: *a{i - 1}' for k in range(10))}}}" for i in range(1, 12)]
    lines += ["results: {request_performance: {aggregate: *a11}}"]
    outcome, _ = read(tmp_path, "\n".join(lines).encode(), "report.yaml")
    assert outcome.error == "report.yaml: YAML that refers to a list or object (*a0); write it out without references"


def test_a_series_has_so_many_labels_and_no_more(tmp_path):
    def page(labels):
        said = ",".join(f'l{i}="v"' for i in range(labels))
        return f"# HELP vllm:num_requests_running x\nvllm:num_requests_running{{{said}}} 1\nvllm:num_requests_running 1\n"

    outcome, rows = read(tmp_path, page(40).encode(), "metrics.txt")
    assert (outcome.account.not_understood, rows["metric_samples"]) == (0, 2)
    outcome, rows = read(tmp_path, page(2_000).encode(), "metrics.txt")
    assert (outcome.account.first_not_understood, rows["metric_samples"]) == (2, 1)


def test_a_folder_of_too_many_files_is_not_one_run(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "MOST_FILES", 20)
    for number in range(25):
        (tmp_path / f"{number}.log").write_text(STATS)
    with pytest.raises(InputError, match=r"over 20 files; give the folder of one run"):
        intake.find([tmp_path])


def test_the_nuls_a_rotation_leaves_in_front_of_a_log_are_no_part_of_it(tmp_path):
    """Copied and truncated under a writer that goes on at its old place, a log begins with a hole."""
    for hole in (10, 200_000, 9 * MEBI):
        outcome, rows = read(tmp_path, b"\0" * hole + STATS.encode() * 3)
        assert (outcome.error, outcome.account.lines, rows["engine_samples"]) == (None, 3, 3)


def test_a_file_of_nothing_but_nuls_is_empty(tmp_path):
    (tmp_path / "log").write_bytes(b"\0" * 100_000)
    with pytest.raises(InputError, match="log: empty"), Sink(tmp_path / "tables") as sink:
        parse(Source(tmp_path / "log", "log"), sink)


@pytest.mark.parametrize(
    ("sample", "blocks"),
    [(RECORDING, 40), (RECORDING, 200), (SMALL, 2_000)],
    ids=["of the first rows", "of the input's rows", "of the result"],
)
def test_without_room_nothing_is_left_that_looks_whole(tmp_path, sample, blocks):
    """Files may not grow beyond so many half kilobytes: as on a full disk, every stage of the writing meets it."""
    command = [sys.executable, "-m", "pipelines.cli", "analyze", str(sample), "--out", str(tmp_path / "out")]

    def with_little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (blocks * 512, blocks * 512))

    done = subprocess.run(command, preexec_fn=with_little_room, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


def test_more_than_memory_holds_is_refused_with_the_limit_and_what_to_do(tmp_path):
    """And what DuckDB put on the disk meanwhile lies in the folder that is taken away, not where the caller happens to be."""
    bench = {
        "date": "20260101-000000",
        "backend": "openai",
        "model_id": "m",
        "num_prompts": 60,
        "duration": 90.0,
        "completed": 60,
    }
    bench |= {"start_times": [float(n) for n in range(60)], "ttfts": [0.1] * 60, "input_lens": [9] * 60, "output_lens": [9] * 60}
    (tmp_path / "bench.json").write_text(json.dumps(bench | {"itls": [[0.01] * 20_000] * 60, "errors": [""] * 60}))
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.cli", "analyze", str(tmp_path / "bench.json"), "--out", str(tmp_path / "out")],
        env=os.environ | {"KVPRESSURE_MEMORY_LIMIT": "24MB", "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert "needs more memory than the 24MB that DuckDB may use; set KVPRESSURE_MEMORY_LIMIT" in last
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


def test_more_gaps_than_can_be_compared_are_refused_before_anything_is_computed(tmp_path, monkeypatch):
    bench = {"date": "20260101-000000", "backend": "openai", "model_id": "m", "num_prompts": 2, "duration": 9.0, "completed": 2}
    (tmp_path / "bench.json").write_text(json.dumps(bench | {"ttfts": [0.1] * 2, "itls": [[0.01] * 30] * 2, "errors": [""] * 2}))
    monkeypatch.setattr(analysis, "MOST_GAPS", 59)
    with pytest.raises(InputError, match="hold 60 gaps between chunks; 59 at most are compared in one run; give fewer requests"):
        analysis.analyze([tmp_path / "bench.json"], tmp_path / "out", Run("run"))
    assert not (tmp_path / "out").exists()
