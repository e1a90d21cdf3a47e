"""Benchmark Reports of a run: valid by llm-d's schema, equal to what the clients said, read back by our own reader.

The schema beside this file is llm-d/llm-d-benchmark's `br_v0_2_1_json_schema.json` at 8bc9f1d, Apache-2.0, compressed.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import jsonschema
import pyarrow.parquet as pq
import pytest
import yaml

from pipelines import benchmark_report, cli
from pipelines.analysis import parse_only

SCHEMA = Path(__file__).with_name("llm_d_benchmark_report_0.2.1.schema.json.gz")


@pytest.fixture(scope="module")
def written(analyzed, tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.yaml"
    assert benchmark_report.write(analyzed.analysis.database, file) == 2
    return file


@pytest.fixture(scope="module")
def reports(written) -> list[dict]:
    return list(yaml.safe_load_all(written.read_text()))


def test_the_reports_are_valid_by_the_schema(reports):
    validator = jsonschema.Draft202012Validator(json.loads(gzip.decompress(SCHEMA.read_bytes())))
    for report in reports:
        assert [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(report)] == []


def test_names_are_hidden_in_it_too(reports, analyzed, tmp_path):
    """Valid all the same, figures untouched; and no digest of a name is left by which a guess could be tried."""
    assert benchmark_report.write(analyzed.analysis.database, tmp_path / "hidden.yaml", anonymize=True) == len(reports)
    hidden = list(yaml.safe_load_all((tmp_path / "hidden.yaml").read_text()))
    validator = jsonschema.Draft202012Validator(json.loads(gzip.decompress(SCHEMA.read_bytes())))
    for report, told in zip(hidden, reports, strict=True):
        assert list(validator.iter_errors(report)) == []
        assert report["results"]["request_performance"] == told["results"]["request_performance"]
        assert report["run"]["uid"] != told["run"]["uid"]
        assert report["scenario"]["stack"][0]["metadata"]["cfg_id"] != told["scenario"]["stack"][0]["metadata"]["cfg_id"]
        assert report["scenario"]["stack"][0]["standardized"]["model"] == {"name": "model-1"}
    model = reports[0]["scenario"]["stack"][0]["standardized"]["model"]["name"]
    words = (tmp_path / "hidden.yaml").read_text()
    assert not [name for name in (f": {model}\n", "client-storm", analyzed.sample.name) if name in words]


def test_a_report_says_what_its_client_said(reports, analyzed):
    said = json.loads(gzip.decompress((analyzed.sample / "client-storm.json.gz").read_bytes()))
    told = reports[1]["results"]["request_performance"]["aggregate"]
    assert (told["requests"]["total"], told["requests"]["failures"]) == (120, 0)
    assert told["requests"]["input_length"]["mean"] * 120 == pytest.approx(said["total_input_tokens"])
    assert told["requests"]["output_length"]["mean"] * 120 == pytest.approx(said["total_output_tokens"])
    ttft = told["latency"]["time_to_first_token"]
    assert [ttft["mean"], ttft["p50"], ttft["p99"]] == pytest.approx(
        [said[f"{k}_ttft_ms"] / 1000 for k in ("mean", "median", "p99")]
    )
    per_token = told["latency"]["time_per_output_token"]
    assert per_token["p50"] == pytest.approx(said["median_tpot_ms"] / 1000, rel=1e-3)
    assert told["throughput"]["output_token_rate"]["mean"] == pytest.approx(said["output_throughput"])


def test_a_report_says_what_the_engine_showed_meanwhile_and_what_that_meant(reports, analyzed):
    calm, storm = (report["results"]["observability"]["components"][0] for report in reports)
    assert calm["aggregate"]["preemptions"]["mean"] == 0
    assert storm["aggregate"]["preemptions"]["mean"] == analyzed.expected["truth"]["preemptions"]
    assert storm["aggregate"]["kv_cache_usage"]["max"] > 95 > calm["aggregate"]["kv_cache_usage"]["max"]
    [verdict] = reports[1]["results"]["observability"]["kvpressure"]["verdicts"]
    assert verdict["verdict"] == "preemption"


def test_our_reader_reads_what_was_written(written, reports, tmp_path):
    intake = parse_only([written], tmp_path)
    assert [(each.format.name if each.format else None, each.account.not_understood) for each in intake.outcomes] == [
        ("benchmark_report", 0)
    ]
    calm, storm = pq.read_table(tmp_path / "bench_runs.parquet").to_pylist()
    assert [storm[key] for key in ("client", "model", "completed", "failed", "max_concurrency")] == [
        "vllm_bench",
        "tiny",
        120,
        0,
        32,
    ]
    assert calm["duration_s"] == pytest.approx(6.362678)
    numbers = json.loads(storm["aggregates"])
    ttft = reports[1]["results"]["request_performance"]["aggregate"]["latency"]["time_to_first_token"]
    assert numbers["latency.time_to_first_token.p99"] == ttft["p99"]
    samples = pq.read_table(tmp_path / "metric_samples.parquet").to_pylist()
    assert max(row["value"] for row in samples if row["name"] == "vllm:num_preemptions_total") == 152
    assert {"vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting"} <= {
        row["name"] for row in samples
    }


def test_without_a_client_there_is_nothing_to_report(tmp_path, capsys, analyzed):
    words = ["analyze", str(analyzed.sample / "server.log"), "--out", str(tmp_path / "out")]
    assert cli.main([*words, "--benchmark-report", str(tmp_path / "report.yaml")]) == 2
    assert "no client result among the inputs" in capsys.readouterr().err
    assert not (tmp_path / "report.yaml").exists()
