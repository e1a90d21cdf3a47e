"""Results of every load generator: what each says of its requests, and what it does not."""

import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import SHARED, read_any

from parsers import InputError, UnrecognisedFormat

SGLANG = {
    "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"), "max_concurrency": 4,
    "duration": 61.5, "completed": 1, "total_input_tokens": 31, "total_output_tokens": 3, "total_output_tokens_retokenized": 3,
    "mean_ttft_ms": 512.1,
    "input_lens": [31, 40], "output_lens": [3, 0], "ttfts": [0.5, 0.0], "itls": [[0.25, 0.25], []], "generated_texts": ["a", ""],
    "errors": ["", "Traceback …\naiohttp.ClientError: secret words"],
}  # fmt: skip
REQUESTS = "request_index input_tokens output_tokens ttft_s latency_s gaps_s gap_kind is_failed error_kind"


@pytest.mark.parametrize(
    ("backend", "kind"),
    [("sglang", "smoothed_token"), ("sglang-native", "smoothed_token"), ("sglang-oai", "chunk"), ("vllm", "chunk")],
)
def test_what_an_sglang_gap_is_depends_on_the_backend(backend, kind):
    form, result = read_any(json.dumps({**SGLANG, "backend": backend}) + "\n")
    assert form.name == "sglang_bench_jsonl"
    assert result.table("bench_requests", REQUESTS) == [
        ["0", "31", "3", "0.5", "1", "[0.25, 0.25]", kind, "False", "-"],
        ["1", "40", "0", "-", "-", "[]", "-", "True", "ClientError"],
    ]


def test_an_sglang_rate_without_limit_is_null_and_runs_are_appended():
    _, result = read_any((json.dumps(SGLANG) + "\n") * 3)
    assert "Infinity" in json.dumps(SGLANG)
    columns = "run_index client request_rate max_concurrency duration_s completed failed has_details"
    assert result.table("bench_runs", columns) == [[str(n), "sglang_bench", "-", "4", "61.5", "1", "1", "True"] for n in range(3)]
    assert json.loads(result.rows["bench_runs"][0]["aggregates"]) == {"total_output_tokens_retokenized": 3, "mean_ttft_ms": 512.1}


AIPERF = {
    "metadata": {
        "x_request_id": "a", "credit_issued_ns": 1759813207500000000, "request_start_ns": 1759813207532900363,
        "request_end_ns": 1759813207838764604, "benchmark_phase": "profiling", "was_cancelled": False,
    },
    "metrics": {
        "input_sequence_length": {"value": 550, "unit": "tokens"}, "time_to_first_token": {"value": 255.5, "unit": "ms"},
        "request_latency": {"value": 297.5, "unit": "ms"}, "inter_chunk_latency": {"value": [4.5, 5.5], "unit": "ms"},
        "output_sequence_length": {"value": 9, "unit": "tokens"},
    },
    "error": None,
}  # fmt: skip
AIPERF_0_1 = {
    "metadata": {"x_request_id": "b", "timestamp_ns": 1759813208154829652, "credit_phase": "profiling"},
    "metrics": {"error_request_count": {"value": 1, "unit": "requests"}},
    "error": {"code": 499, "type": "RequestCancellationError", "message": "Request was cancelled after 0.000 seconds"},
}


def test_aiperf_is_on_an_absolute_clock_in_both_eras():
    form, result = read_any("".join(json.dumps(each) + "\n" for each in (AIPERF, AIPERF_0_1)))
    assert form.name == "aiperf_requests"
    assert result.table("bench_requests", "request_id start_at client_queue_s ttft_s latency_s gaps_s is_failed error_kind") == [
        ["a", "2025-10-07T05:00:07.5329", "0.0329004", "0.2555", "0.2975", "[0.0045, 0.0055]", "False", "-"],
        ["b", "2025-10-07T05:00:08.154829", "-", "-", "-", "-", "True", "RequestCancellationError"],
    ]
    assert result.table("bench_runs", "client start_at completed failed total_input_tokens") == [
        ["aiperf", "2025-10-07T05:00:07.5329", "1", "1", "550"]
    ]


def test_aiperf_scrapes_get_back_the_names_that_the_server_gave_them():
    scrape = {
        "endpoint_url": "http://gpu-1:8000/metrics",
        "timestamp_ns": 1759813207532900363,
        "metrics": {
            "vllm:num_preemptions": [{"labels": {"engine": "0"}, "value": 3.0}],
            "vllm:num_requests_running": [{"labels": {"engine": "0"}, "value": 8.0}],
            "vllm:request_queue_time_seconds": [
                {"labels": {"engine": "0"}, "buckets": {"0.3": 4, "+Inf": 9}, "sum": 3.1, "count": 9}
            ],
            "python_gc_objects": [{"labels": {}, "value": 1}],
        },
    }
    form, result = read_any(json.dumps(scrape) + "\n")
    assert form.name == "aiperf_server_metrics"
    assert result.table("metric_samples", "instance name engine le value") == [
        ["gpu-1:8000", "vllm:num_preemptions_total", "0", "-", "3"],
        ["gpu-1:8000", "vllm:num_requests_running", "0", "-", "8"],
        ["gpu-1:8000", "vllm:request_queue_time_seconds_bucket", "0", "0.3", "4"],
        ["gpu-1:8000", "vllm:request_queue_time_seconds_bucket", "0", "inf", "9"],
        ["gpu-1:8000", "vllm:request_queue_time_seconds_sum", "0", "-", "3.1"],
        ["gpu-1:8000", "vllm:request_queue_time_seconds_count", "0", "-", "9"],
    ]
    for other in ({"timestamp_ns": 1759813207532900363, "value": 3}, {"endpoint_url": "http://a/metrics", "metrics": {}}):
        with pytest.raises(UnrecognisedFormat):
            read_any(json.dumps(other) + "\n")


def aiperf_parquet(**columns: list) -> bytes:
    """Server metrics as AIPerf's exporter writes them, labels between the time and the values."""
    rows = len(columns["metric_name"])
    texts = ("endpoint_url", "metric_name", "metric_type", "unit", "description", "engine", "model_name", "bucket_le")
    order = (*texts[:5], "timestamp_ns", *texts[5:7], "value", "sum", "count", "bucket_le", "bucket_count")
    kinds = {name: pa.string() for name in texts} | {"timestamp_ns": pa.int64()}
    table = pa.table({name: pa.array(columns.get(name, [None] * rows), kinds.get(name, pa.float64())) for name in order})
    file = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"aiperf.schema_version": "1.0"}), file, compression="snappy")
    return file.getvalue()


def test_aiperf_parquet_gives_what_its_lines_give():
    at = 1759813207532900363
    content = aiperf_parquet(
        endpoint_url=["http://gpu-1:8000/metrics"] * 5,
        metric_name=["vllm:num_preemptions", "vllm:num_requests_running"]
        + ["vllm:request_queue_time_seconds"] * 2
        + ["python_gc"],
        metric_type=["counter", "gauge", "histogram", "histogram", "counter"],
        timestamp_ns=[at] * 5,
        engine=["0"] * 4 + [None],
        value=[3, 8, None, None, 1],
        sum=[None, None, 3.1, 3.1, None],
        count=[None, None, 9, 9, None],
        bucket_le=[None, None, "0.3", "+Inf", None],
        bucket_count=[None, None, 4, 9, None],
    )
    form, result = read_any(content)
    assert (form.name, result.account.used, result.account.ignored) == ("aiperf_server_parquet", 4, 1)
    assert read_any(gzip.compress(content))[1].rows == result.rows
    assert result.table("metric_samples", "at_utc instance name engine le value") == [
        ["2025-10-07T05:00:07.5329", "gpu-1:8000", "vllm:num_preemptions_total", "0", "-", "3"],
        ["2025-10-07T05:00:07.5329", "gpu-1:8000", "vllm:num_requests_running", "0", "-", "8"],
        ["2025-10-07T05:00:07.5329", "gpu-1:8000", "vllm:request_queue_time_seconds_bucket", "0", "0.3", "4"],
        ["2025-10-07T05:00:07.5329", "gpu-1:8000", "vllm:request_queue_time_seconds_bucket", "0", "inf", "9"],
        ["2025-10-07T05:00:07.5329", "gpu-1:8000", "vllm:request_queue_time_seconds_sum", "0", "-", "3.1"],
        ["2025-10-07T05:00:07.5329", "gpu-1:8000", "vllm:request_queue_time_seconds_count", "0", "-", "9"],
    ]


def test_parquet_of_another_kind_is_not_recognised_and_a_cut_file_is_broken():
    file = io.BytesIO()
    pq.write_table(pa.table({"prompt": ["a"]}), file)
    with pytest.raises(UnrecognisedFormat, match=r"Parquet, but not AIPerf's server metrics \(no column bucket_count\)"):
        read_any(file.getvalue())
    with pytest.raises(InputError, match="cannot be read to its end"):
        read_any(file.getvalue()[:-9])


def test_aiperf_parquet_with_odd_rows_gives_the_rest():
    at = 1759813207532900363
    content = aiperf_parquet(
        endpoint_url=["http://[", None, "http://a/metrics"],
        metric_name=["vllm:num_preemptions", None, "vllm:num_preemptions"],
        metric_type=["counter", "counter", "counter"],
        timestamp_ns=[at, at, -(2**63)],
        value=[3, 3, 3],
    )
    _, result = read_any(content)
    assert (result.account.used, result.account.not_understood) == (1, 2)
    assert result.table("metric_samples", "instance value") == [["-", "3"]]


@pytest.mark.parametrize("prefix", ["gpu_", "nvidia_gpu_", "nvidia_", "amd_"])
def test_aiperf_gpu_telemetry_is_in_dcgm_s_names_and_units(prefix):
    """Memory is written in GB, energy in MJ. A line without a GPU's number is of the first; an empty one has nothing to say."""
    readings = {
        "utilization": 97.0,
        "power_usage": 412.5,
        "memory_used": 1.048576,
        "energy_consumption": 0.25,
        "temperature": 61,
        "sm_clock_frequency": 1980,
        "encoder_utilization": 3,
    }
    line = {"timestamp_ns": 1759813207532900363, "telemetry_data": {f"{prefix}{name}": each for name, each in readings.items()}}
    _, result = read_any(json.dumps(line | {"gpu_index": 1, "hostname": "n7"}) + "\n\n" + json.dumps(line) + "\n")
    assert (result.account.used, result.account.ignored) == (2, 1)
    rows = result.table("metric_samples", "labels name value")
    assert [row[1:] for row in rows[:6]] == [
        ["DCGM_FI_DEV_GPU_UTIL", "97"],
        ["DCGM_FI_DEV_POWER_USAGE", "412.5"],
        ["DCGM_FI_DEV_FB_USED", "1000"],
        ["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "2.5e+08"],
        ["DCGM_FI_DEV_GPU_TEMP", "61"],
        ["DCGM_FI_DEV_SM_CLOCK", "1980"],
    ]
    assert [row[0] for row in rows] == ["gpu=1"] * 6 + ["gpu=0"] * 6


def test_guidellm_has_first_and_last_tokens_and_nothing_between_in_every_era():
    old = {
        "start_time": 1786678148.25,
        "first_token_time": 1786678148.5,
        "last_token_time": 1786678149.25,
        "prompt_tokens": 91,
        "output_tokens": 16,
    }
    new = {
        "request_id": "r", "prompt_tokens": 91, "output_tokens": 16,
        "info": {"timings": {
            "targeted_start": 1786678148.0, "request_start": 1786678148.25, "first_token_iteration": 1786678148.5,
            "last_token_iteration": 1786678149.25,
        }},
    }  # fmt: skip
    for request, queue in ((old, "-"), (new, "0.25")):
        report = {"benchmarks": [{"run_stats": {}, "requests": {"successful": [request], "errored": [], "incomplete": []}}]}
        form, result = read_any(json.dumps(report))
        assert form.name == "guidellm_json"
        assert result.table("bench_requests", "start_at client_queue_s input_tokens ttft_s latency_s gaps_s") == [
            ["2026-08-14T03:29:08.25", queue, "91", "0.25", "1", "-"]
        ]


def test_inference_perf_requests_of_both_forms():
    times = [1327.0, 1327.25, 1328.0]
    old = {"input_tokens": 314, "output_tokens": 3, "output_token_times": times}
    new = {"request_metrics": {"text": {"input_tokens": 314}}, "response_metrics": {"output_tokens": 3, "chunk_times": times}}
    for info, kind in ((old, "token"), (new, "chunk")):
        request = {
            "start_time": 1326.5,
            "end_time": 1328.5,
            "request": "secret",
            "response": "secret",
            "info": info,
            "error": None,
        }
        failed = {**request, "info": None, "error": {"error_type": "TimeoutError", "error_msg": "secret"}}
        form, result = read_any(json.dumps([request, failed]))
        assert form.name == "inference_perf_requests"
        assert result.table("bench_requests", "start_mono_s ttft_s latency_s gaps_s gap_kind is_failed error_kind") == [
            ["1326.5", "0.5", "1.5", "[0.25, 0.75]", kind, "False", "-"],
            ["1326.5", "-", "-", "-", "-", "True", "TimeoutError"],
        ]


def test_genai_perf_leaves_out_responses_without_content():
    start = 1708451700000000000
    request = {
        "timestamp": start,
        "response_timestamps": [start + n * 10**8 for n in (1, 2, 5, 6)],
        "response_outputs": [
            {"response": 'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}'},
            {"response": 'data: {"choices":[{"delta":{"content":"a"}}]}'},
            {"response": 'data: {"choices":[{"delta":{"content":"b"}}]}'},
            {"response": "data: [DONE]"},
        ],
    }
    document = {"experiments": [{"experiment": {"mode": "concurrency", "value": 1}, "requests": [request]}], "version": "1.0"}
    form, result = read_any(json.dumps(document))
    assert form.name == "genai_perf_json"
    assert result.table("bench_requests", "start_at ttft_s latency_s gaps_s") == [["2024-02-20T17:55:00", "0.2", "0.5", "[0.3]"]]


def test_an_inferencex_aggregate_is_its_numbers_in_seconds():
    form, result = read_any(json.dumps({"hw": "h200", "conc": 64, "model": "m", "tput_per_gpu": 812.4, "mean_ttft": 0.61}))
    assert (form.name, result.table("bench_runs", "client model max_concurrency")) == (
        "inferencex_json",
        [["inferencex", "m", "64"]],
    )
    assert json.loads(result.rows["bench_runs"][0]["aggregates"]) == {"tput_per_gpu": 812.4, "mean_ttft": 0.61}


real = pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not beside this checkout")
RESULTS = SHARED / "reallogs" / "bench_results"


@real
def test_a_guidellm_report_without_its_requests_still_has_their_number():
    _, result = read_any(RESULTS / "llm-d__guidellm_report_v2.json")
    assert result.table("bench_runs", "run_index request_rate completed failed has_details") == [
        ["0", "2", "2", "0", "False"],
        ["1", "4", "2", "0", "False"],
    ]


@real
def test_a_benchmark_report_gives_its_run_and_its_series():
    _, result = read_any(RESULTS / "llm-d__br_v0_2_1_example.yaml")
    assert result.table("bench_runs", "model start_at duration_s") == [["Qwen/Qwen3-0.6B", "2025-11-05T18:00:42", "981"]]
    assert result.table("metric_samples", "at_utc instance name value") == [
        ["2025-11-05T18:05:00", "vllm-svc-0", "vllm:kv_cache_usage_perc", "0.352"],
        ["2025-11-05T18:10:00", "vllm-svc-0", "vllm:kv_cache_usage_perc", "0.528"],
        ["2025-11-05T18:05:00", "vllm-svc-0", "DCGM_FI_DEV_GPU_UTIL", "73.2"],
        ["2025-11-05T18:10:00", "vllm-svc-0", "DCGM_FI_DEV_GPU_UTIL", "78.9"],
    ]


def test_a_benchmark_report_gives_the_most_of_its_engines_load(tmp_path):
    """Of two engines the higher; a router, which has no KV cache, queues for others."""
    loads = [
        {"kv_cache_usage": {"max": 92.1, "mean": 42.5}, "running_requests": {"max": 62}, "waiting_requests": {"max": 25}},
        {"kv_cache_usage": {"max": 80.0}, "num_requests_running": {"max": 70}, "waiting_requests": {"mean": 3}},
        {"running_requests": {"max": 400}, "waiting_requests": {"max": 300}},
    ]
    report = {
        "version": "0.2.1",
        "run": {},
        "results": {
            "request_performance": {"aggregate": {"requests": {"total": 5}}},
            "observability": {"components": [{"component_label": str(i), "aggregate": load} for i, load in enumerate(loads)]},
        },
    }
    (tmp_path / "report.json").write_text(json.dumps(report))
    _, result = read_any(tmp_path / "report.json")
    [[aggregates]] = result.table("bench_runs", "aggregates")
    assert json.loads(aggregates) == {
        "requests.total": 5,
        "engine.kv_cache_usage.max": 92.1,
        "engine.running_requests.max": 70,
        "engine.waiting_requests.max": 25,
    }


@real
@pytest.mark.parametrize("folder", sorted(SHARED.glob("reallogs/vllm_timeseries/*")), ids=lambda folder: folder.name)
def test_each_line_of_a_recorded_time_series_is_a_row(folder):
    _, load = read_any(folder / "timeseries.csv")
    _, requests = read_any(folder / "requests.jsonl")
    assert len(load.rows["engine_samples"]) == len((folder / "timeseries.csv").read_text().splitlines()) - 1
    assert len(requests.rows["spans"]) == len((folder / "requests.jsonl").read_text().splitlines())
    assert all(abs(row["queue_s"] + row["prefill_s"] - row["ttft_s"]) < 1e-6 for row in requests.rows["spans"])
    assert {row["key"] for row in read_any(folder / "meta.json")[1].rows["engine_config"]} >= {"engine_version", "max_num_seqs"}
