"""Every detector over a sample of every format, and over files that are none: each is sure of its own and of nothing else.

A new format adds its samples to SAMPLES and, where there are recordings of it, its pattern to RECORDED.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import SHARED, read_any

from parsers import InputError, Source, UnrecognisedFormat, formats

SURE = 0.5  # a log reader may have a faint claim on any log, to read it where nothing else does


def claims(head: bytes) -> set[str]:
    """Names of the formats that are sure of a head."""
    return {form.name for form in formats() if form.detect(head) >= SURE}


PAGE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
"""
RESULT = {"metric": {"__name__": "vllm:num_requests_running", "engine": "0"}, "values": [[1764417600, "3"]]}
BENCH = {
    "date": "20251129-120000", "endpoint_type": "openai", "model_id": "m", "tokenizer_id": "m", "num_prompts": 8,
    "request_rate": "inf", "duration": 1.5, "completed": 8, "total_input_tokens": 256, "mean_ttft_ms": 215.5,
}  # fmt: skip
SPAN = {"name": "llm_request", "startTimeUnixNano": "1764417600000000000", "attributes": []}
LOG = """INFO 11-29 13:06:20 [__init__.py:239] Automatically detected platform cpu.
(APIServer pid=1) INFO 11-29 13:06:28 [api_server.py:1805] vLLM API server version 0.32.0
(EngineCore pid=2) INFO 11-29 13:06:30 [kv_cache_utils.py:1087] GPU KV cache size: 4,096 tokens
(APIServer pid=1) INFO 11-29 13:06:38 [loggers.py:335] Engine 000: Avg prompt throughput: 790.0 tokens/s, \
Avg generation throughput: 50.0 tokens/s, Running: 15 reqs, Waiting: 0 reqs, GPU KV cache usage: 9.5%, Prefix cache hit rate: 0.0%
"""
SGLANG_LOG = """\
[2026-09-13 16:05:59] Prefill batch, #new-seq: 1, #new-token: 351, #cached-token: 36, token usage: 0.8, #queue-req: 3
[2026-09-13 16:06:07] KV cache pool is full. Retract requests. #retracted_reqs: 1
"""
LLAMACPP_LOG = """0.00.021.762 I slot launch_slot_: id  3 | task 1 | processing task, is_child = 0
0.00.545.327 W srv  try_clear_id: purging slot 0 with 261 tokens
"""
TENSORRT_LLM_LOG = """[09/20/2025-10:00:00] [TRT-LLM] [I] iter = 12, global_rank = 0, rank = 0, currank_total_requests = 3/8, \
host_step_time = 12ms, num_scheduled_requests: 8, states = {'num_ctx_requests': 2}
"""
LMCACHE_LOG = """\
[2026-03-01 10:00:00,123] LMCache INFO: Reqid: cmpl-1, Total tokens 5120, Inference Engine computed tokens: 512, \
LMCache hit tokens: 4096, need to load: 3584 (vllm_v1_adapter.py:1234:lmcache)
"""
SAMPLES = {
    "vllm_engine_log": [
        LOG,
        LOG.replace("api_server.py:1805", f"logger.py:43] Received request a: prompt: '{PAGE}', params: None\n[x"),
    ],
    "prometheus_text": [
        PAGE,
        "# scrape_unix_ms 1764417600000\n" + PAGE,
        "HTTP/1.1 200 OK\ncontent-type: text/plain\n\n" + PAGE * 5,
        'ray_vllm_num_preemptions_total{engine="0"} 3\n',
        "llamacpp:requests_deferred 0\n",
    ],
    "prometheus_json": [
        json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [RESULT]}}),
        json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [RESULT]}}, indent=2, sort_keys=True),
        json.dumps([RESULT]),
        '{"status":"success","data":{"resultType":"vector","result":[]}}',
        '{"status":"error","errorType":"bad_data","error":"parse error"}',
    ],
    "vllm_bench_json": [
        json.dumps(BENCH),
        json.dumps(BENCH, indent=4),
        json.dumps([BENCH]),
        json.dumps(BENCH) + "\n" + json.dumps(BENCH),
    ],
    "otlp_spans": [
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [SPAN]}]}]}),
        json.dumps({"resource_spans": []}, indent=1),
        json.dumps({"resourceLogs": []}) + "\n" + json.dumps({"resourceSpans": []}),
    ],
    "kv_events_jsonl": [
        json.dumps({"topic": "", "seq": 0, "batch": [1764417600.5, [{"type": "BlockRemoved", "block_hashes": [1]}], 0]}),
        json.dumps([1764417600.5, [["BlockStored", [1], None, [2], 16]]]),
        json.dumps({"ts": 1764417600.5, "events": [{"type": "AllBlocksCleared"}]}),
    ],
    "sglang_engine_log": [SGLANG_LOG],
    "sglang_request_log": [
        json.dumps({"request_parameters": "{}", "id": "a2", "prompt_tokens": 81, "num_retractions": 1, "queue_time": 2.73}) + "\n"
    ],
    "sglang_api_json": [json.dumps({"t": 1764417600.5, "loads": {"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0}]}})],
    "llamacpp_server_log": [LLAMACPP_LOG],
    "llamacpp_api_json": [
        json.dumps([{"tokens_evaluated": 166, "tokens_predicted": 40, "timings": {"cache_n": 0, "prompt_n": 166}}])
    ],
    "tensorrt_llm_engine_log": [TENSORRT_LLM_LOG],
    "tensorrt_llm_iterations": [json.dumps([{"iter": 12, "iterLatencyMS": 21.4, "numActiveRequests": 8, "kvCacheStats": {}}])],
    "tensorrt_llm_kv_events": [
        json.dumps({"event_id": 9, "data": {"type": "removed", "block_hashes": [34]}, "window_size": 4096})
    ],
    "lmcache_log": [LMCACHE_LOG],
    "inference_perf_requests": ['[{"start_time":1.5,"end_time":2.5,"request":"{}","response":"","info":{},"error":null}]'],
    "sglang_bench_jsonl": [
        '{"backend":"sglang","dataset_name":"random","request_rate":Infinity,"duration":60,"completed":9}',
        '{"tag":null,"backend":"vllm","duration":60,"completed":9,"total_output_tokens_retokenized":90}\n' * 2,
    ],
    "aiperf_requests": [
        '{"metadata":{"request_start_ns":1764417600000000000},"metrics":{"ttft":{"value":1,"unit":"ms"}}}',
        '{"metadata":{"x_request_id":"a","timestamp_ns":1764417600000000000,"credit_phase":"profiling"},"metrics":{},"error":{}}\n',
    ],
    "aiperf_server_metrics": [
        '{"endpoint_url":"http://a/metrics","timestamp_ns":1764417600000000000,"metrics":{"vllm:num_preemptions":[{"value":3}]}}\n',
        '{"gpu_index":0,"timestamp_ns":1764417600000000000,"telemetry_data":{"gpu_utilization":97.0}}\n',
    ],
    "aiperf_server_parquet": ["PAR1\x15\x04\x15"],
    "guidellm_json": [
        '{"metadata":{"version":2,"guidellm_version":"0.8.0"},"benchmarks":[]}',
        '{"benchmarks":[{"args":{},"run_stats":{"start_time":1764417600.5},"requests":{"successful":[]}}]}',
    ],
    "inferencex_json": ['{"hw":"h200","conc":64,"model":"m","framework":"vllm","tput_per_gpu":812.4,"mean_ttft":0.61}'],
    "genai_perf_json": [
        '{"experiments":[{"requests":[{"timestamp":1708451700123456789,"response_timestamps":[1708451700223456789]}]}]}'
    ],
    "benchmark_report": ["results:\n  request_performance:\n    aggregate: {}\n  observability: {}\nversion: 0.2.1\n"],
    "llmservingsim": [
        "t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct\n1.0,3392.0,2.0,5,2,13.22\n",
        '{"request_id":"bench-0","input_toks":2358,"output_toks":531,"arrival_time":1787267980.08,"queued_ts":27536.6}\n',
        '{"schema_version":1,"model":"m","vllm_version":"0.19.0","engine_kwargs":{"model":"m","max_num_seqs":256}}',
    ],
    "request_trace": [
        '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}\n',
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n",
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n",
    ],
    "nvidia_smi": [
        "timestamp, index, utilization.gpu [%], memory.used [MiB]\n2026/11/29 13:23:56.789, 0, 97 %, 71234 MiB\n",
        (
            "#Date       Time        gpu    pwr     sm\n"
            "#YYYYMMDD   HH:MM:SS    Idx      W      %\n"
            " 20261129   13:23:56   0   412   97\n"
        ),
    ],
    "recording_journal": ['{"recorder":"kvpressure 0.1.0","at":1764417600.5,"event":"started","detail":"the log"}\n'],
    "inference_perf_json": [
        json.dumps({"load_summary": {"count": 60, "requested_rate": 1.0}, "successes": {"count": 60}, "failures": {"count": 0}}),
        json.dumps({"load_summary": {}, "successes": {"count": 937, "queue_len": {"mean": 0}}, "failures": {}}, indent=2),
    ],
    "sweep_csv": [
        "qps,n_ok,wall_s,ttft_p50_s,ttft_p99_s,out_tok_s,retractions\n0.5,120,328.9,0.05,0.07,1026,0\n",
        "concurrency,ttft_p99_s,tpot_p50_ms,out_tok_s\r\n8,0.2,20.4,500\r\n",
    ],
}
FOREIGN = {
    "vllm bench throughput": '{"elapsed_time":1.5,"num_requests":8,"total_num_tokens":300,"requests_per_second":5}',
    "a response": '{"id":"cmpl-1","object":"text_completion","model":"m","usage":{"prompt_tokens":5,"completion_tokens":7}}',
    "OTLP metrics": '{"resourceMetrics":[{"scopeMetrics":[]}]}',
    "an OpenAPI document": '{"openapi":"3.1.0","schemas":{"BlockStored":{"type":"object","properties":{"block_hashes":{}}}}}',
    "CSV": "t,running,waiting,kv_cache_pct\n1.0,5,2,13.22\n",
    "two words a line": "alpha 1\nbeta 2\ngamma 3\n",
    "a comment": "# HELP me\nplease, it does not start\n",
    "HTML": "<!DOCTYPE html><html><body>login</body></html>",
    "a container log of one": json.dumps({"log": LOG.splitlines()[0] + "\n", "stream": "stdout", "time": "2025-11-29T12:00:00Z"})[
        :40
    ],
    "a log that quotes JSON": "INFO: payload " + json.dumps({"resourceSpans": [], "BlockStored": 1, "date": "20251129-120000"}),
}
CASES = [
    pytest.param(name, sample, id=f"{name}-{index}") for name, samples in SAMPLES.items() for index, sample in enumerate(samples)
]


def test_every_format_has_a_sample_here():
    assert {form.name for form in formats()} <= SAMPLES.keys()


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_each_format_is_sure_of_its_own_samples_and_no_other_is(name, sample):
    assert claims(sample.encode()) == {name}


@pytest.mark.parametrize("sample", FOREIGN.values(), ids=FOREIGN)
def test_none_is_sure_of_what_is_none_of_them(sample):
    assert claims(sample.encode()) == set()


@given(
    st.sampled_from([sample for samples in SAMPLES.values() for sample in samples]), st.integers(0, 2000), st.binary(max_size=20)
)
def test_a_detector_answers_a_share_whatever_the_bytes(sample, cut, junk):
    assert all(0 <= form.detect(sample.encode()[:cut] + junk) <= 1 for form in formats())


# Of the recordings, by the folder and name they are kept under: what each file is. Everything else is none of these formats.
RECORDED = {
    "reallogs/bench_results/llm-d__guidellm*.json": "guidellm_json",
    "reallogs/bench_results/llm-d__br*_example.yaml": "benchmark_report",
    "reallogs/vllm_timeseries/*/*": "llmservingsim",
    "traces/*": "request_trace",
    "truth/*/metrics/*.txt": "prometheus_text",
    "truth/*/prometheus.json.gz": "prometheus_json",
    "truth/*/client-*.json": "vllm_bench_json",
    "truth/*/spans.jsonl*": "otlp_spans",
    "truth/*/kv_events.jsonl.gz": "kv_events_jsonl",
    "truth/*/server.log": "vllm_engine_log",
    "scenarios/*.prom": "prometheus_text",
    "engines/*/*/metrics_*.txt": "prometheus_text",
    "engines/*/*.metrics.txt": "prometheus_text",
    "engines/*/*/kvevents.jsonl": "kv_events_jsonl",
    "reallogs/bench_results/SemiAnalysisAI*.json": "vllm_bench_json",
    "reallogs/bench_results/inference_perf_kubecon/*.json": "inference_perf_json",
    "reallogs/sglang_logs/*sweep*.csv": "sweep_csv",
    "reallogs/vllm_logs/*": "vllm_engine_log",
    "reallogs/sglang_logs/*.log": "sglang_engine_log",
    "engines/sglang*/*.log": "sglang_engine_log",
    "engines/sglang*/*/loads.jsonl": "sglang_api_json",
    "engines/sglang*/*/server_info.json": "sglang_api_json",
    "engines/sglang*/*/resp.json": "sglang_request_log",
    "engines/sglang*/exp/*": "sglang_request_log",
    "engines/llamacpp*/*.log": "llamacpp_server_log",
    "engines/llamacpp*/*.resp.json": "llamacpp_api_json",
    "engines/llamacpp*/*.slots.json": "llamacpp_api_json",
}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not beside this checkout")
def test_recordings_are_claimed_by_their_format_and_no_other():
    is_a = {path: name for pattern, name in RECORDED.items() for path in SHARED.glob(pattern)}
    folders = ("truth", "scenarios", "engines", "reallogs", "traces")
    wrong = {}
    for path in sorted(path for folder in folders for path in (SHARED / folder).rglob("*") if path.is_file()):
        try:
            head = Source(path, path.name).head()
        except InputError:
            continue
        if (claimed := claims(head)) != ({is_a[path]} if path in is_a else set()):
            wrong[str(path.relative_to(SHARED))] = claimed
    assert wrong == {}


NOT_OF_ENGINES = {"MANIFEST.csv", "llm-d__br_v0_2_1_json_schema.json", "HwaminJung00__retract_events_q2.csv"}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not beside this checkout")
@pytest.mark.parametrize("folder", ["engines", "reallogs", "traces"])
def test_every_recording_is_read_and_no_line_of_it_is_left_not_understood(folder):
    unread, misread = set(), {}
    for path in sorted(path for path in (SHARED / folder).rglob("*") if path.is_file()):
        try:
            _, result = read_any(path, path.name)
        except UnrecognisedFormat:
            unread.add(path.name)
            continue
        if result.account.not_understood:
            misread[path.name] = result.account.not_understood
    assert (unread - NOT_OF_ENGINES, misread) == (set(), {})
