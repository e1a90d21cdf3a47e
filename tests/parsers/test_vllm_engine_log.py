"""vLLM server logs: real lines of each era and what is made of them."""
# ruff: noqa: E501, ISC004 - a log line is as long as it is

import gzip
import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import SHARED, cells, read

from parsers.vllm_config_lines import split_top_level
from parsers.vllm_engine_log import FORMAT

STATS = "at_local process engine prompt_tokens_per_s generation_tokens_per_s running waiting kv_usage_ratio prefix_hit_ratio"

V1 = (
    "Engine 000: Avg prompt throughput: 790.0 tokens/s, Avg generation throughput: 12.5 tokens/s, "
    "Running: 15 reqs, Waiting: 3 reqs, GPU KV cache usage: 50.0%, Prefix cache hit rate: 25.0%"
)
V1_LINE = f"(APIServer pid=7) INFO 11-29 13:06:38 [loggers.py:335] {V1}"
ITERATION = (
    "(APIServer pid=7) INFO 11-29 13:47:37 [loggers.py:199] Engine 000: Iteration(1): 2 context requests, 527 context tokens, "
    "1 generation requests, 1 generation tokens, iteration elapsed time: 22.84 ms, CPU KV cache usage: 50.0%"
)
PARAMS = "SamplingParams(n=1, stop=[], ignore_eos=True, max_tokens=201, min_tokens=0, extra_args=None)"
RECEIVED = (
    f"(APIServer pid=7) INFO 11-29 13:12:06 [request_logger.py:65] Received request cmpl-1: params: {PARAMS}, lora_request: None."
)
ADDED = "(APIServer pid=7) INFO 11-29 13:12:06 [async_llm.py:578] Added request cmpl-1-9d8318f6."
V0_LINE = (
    "INFO 01-23 06:33:37 metrics.py:396] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 16.7 tokens/s, "
    "Running: 16 reqs, Swapped: 2 reqs, Pending: 4 reqs, GPU KV cache usage: 92.0%, CPU KV cache usage: 1.0%."
)
PREEMPTED = (
    "WARNING 08-20 10:18:39 scheduler.py:1141] Sequence group 147 is preempted by PreemptionMode.RECOMPUTE mode because there is "
    "not enough KV cache space. This can affect the end-to-end performance. Increase gpu_memory_utilization or "
    "tensor_parallel_size to provide more KV cache memory. total_num_cumulative_preemption=51"
)
CAPACITY = (
    "(EngineCore pid=8) INFO 11-29 13:23:57 [kv_cache_utils.py:2327] CPU KV cache size: 4,096 tokens, "
    "Maximum concurrency for 2,048 tokens per request: 2.00x"
)
ACCESS = 'INFO:     127.0.0.1:35394 - "POST /v1/completions HTTP/1.1" 200 OK'


def config(log: str) -> dict[str, str]:
    return {row["key"]: row["value_text"] for row in read(FORMAT, log).rows.get("engine_config", [])}


# Statistics lines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("INFO 03-18 12:34:52 llm_engine.py:706] Avg prompt throughput: 209.6 tokens/s, Avg generation throughput: 567.4 tokens/s, "
         "Running: 36 reqs, Swapped: 0 reqs, Pending: 78 reqs, GPU KV cache usage: 99.0%, CPU KV cache usage: 0.0% ",
         "2000-03-18T12:34:52 - - 209.6 567.4 36 78 0.99 -"),
        (V0_LINE, "2000-01-23T06:33:37 - - 0 16.7 16 4 0.92 -"),
        ("INFO 02-28 15:02:09 metrics.py:471] Prefix cache hit rate: GPU: 91.98%, CPU: 0.00%",
         "2000-02-28T15:02:09 - - - - - - - 0.9198"),
        ("INFO 01-28 15:02:09 [loggers.py:50] Running: 3 reqs, Waiting: 1 reqs ", "2000-01-28T15:02:09 - - - - 3 1 - -"),
        ("INFO 07-28 06:40:59 [v1/metrics/loggers.py:118] " + V1, "2000-07-28T06:40:59 - 0 790 12.5 15 3 0.5 0.25"),
        (V1_LINE.replace("Engine 000", "Engine 012"), "2000-11-29T13:06:38 APIServer_pid=7 12 790 12.5 15 3 0.5 0.25"),
        (V1_LINE.replace("GPU KV", "XPU KV"), "2000-11-29T13:06:38 APIServer_pid=7 0 790 12.5 15 3 0.5 0.25"),
        (V1_LINE.replace("25.0%", "nan%"), "2000-11-29T13:06:38 APIServer_pid=7 0 790 12.5 15 3 0.5 -"),
        (V1_LINE + ", Tokens per joule: 3.5, MM cache hit rate: 4.0%", "2000-11-29T13:06:38 APIServer_pid=7 0 790 12.5 15 3 0.5 0.25"),
        ("(APIServer pid=7) INFO 11-29 13:06:38 [log_stats.rs:270] Avg prompt tput: 790.0 toks/s, Avg generation tput: 12.5 toks/s, "
         "Reqs Running: 15, Waiting: 3, Preemptions: 2, GPU KV cache used: 50.0%, Prefix cache hit rate: 25.0%",
         "2000-11-29T13:06:38 APIServer_pid=7 - 790 12.5 15 3 0.5 0.25"),
    ],
)  # fmt: skip
def test_a_statistics_line_of_each_era(line, row):
    table = read(FORMAT, line + "\n").table("engine_samples", STATS)
    assert [[cell.replace(" ", "_") for cell in cell_row] for cell_row in table] == cells(row)


@pytest.mark.parametrize(
    ("line", "columns", "row"),
    [
        (V0_LINE, "swapped swap_usage_ratio deferred", "2 0.01 -"),
        (V1_LINE.replace("Waiting: 3 reqs", "Waiting: 7 reqs, Deferred: 2 reqs, KV fetch: 1 waiting to start, 4 in progress, 5 completed "
                         "waiting") + ", External prefix cache hit rate: 33.0%",
         "waiting deferred kv_fetch_waiting kv_fetch_active kv_fetch_done external_prefix_hit_ratio kv_usage_ratio",
         "7 2 1 4 5 0.33 0.5"),
        (V1_LINE.replace("Engine 000", "4 Engines Aggregated"), "engine engines_aggregated running", "- 4 15"),
        (V1_LINE.replace("Waiting: 3 reqs", "Waiting: 3 reqs, Preemptions: 9"), "preemptions waiting", "9 3"),
    ],
)  # fmt: skip
def test_the_fields_that_come_and_go(line, columns, row):
    assert read(FORMAT, line).table("engine_samples", columns) == cells(row)


def test_v0_on_a_cpu_keeps_its_pool_in_what_is_swap_space_elsewhere():
    start = "INFO 05-25 06:50:00 [llm_engine.py:230] Initializing a V0 LLM engine (v0.9.0) with config: model='m', device_config=cpu, "
    rates = "INFO 05-25 06:50:29 [metrics.py:502] Prefix cache hit rate: GPU: 0.00%, CPU: 90.00%"
    assert read(FORMAT, f"{start}\n{V0_LINE}\n{rates}").table(
        "engine_samples", "kv_usage_ratio swap_usage_ratio prefix_hit_ratio"
    ) == cells("""
        0.01  0.92  -
        -     -     0.9
    """)


@pytest.mark.parametrize(
    ("line", "process", "at_local", "at_utc"),
    [
        (V1_LINE + "\r", "APIServer pid=7", "2000-11-29T13:06:38", "-"),
        (f"\x1b[0;36m(APIServer pid=7)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m11-29 13:06:38\x1b[0m \x1b[90m[loggers.py:335]\x1b[0m {V1}",
         "APIServer pid=7", "2000-11-29T13:06:38", "-"),
        (f"#033[1;36m(APIServer pid=7)#033[0;0m INFO 11-29 13:06:38 [loggers.py:335] {V1}", "APIServer pid=7", "2000-11-29T13:06:38", "-"),
        (f"^[[1;36m(APIServer pid=7)^[[0;0m INFO 11-29 13:06:38 [loggers.py:335] {V1}", "APIServer pid=7", "2000-11-29T13:06:38", "-"),
        (f"(EngineCore_0 pid=7) (Worker pid=9) INFO 11-29 13:06:38 [loggers.py:335] {V1}", "Worker pid=9", "2000-11-29T13:06:38", "-"),
        (f"(APIServer pid=7) [node3] INFO 11-29 13:06:38 [loggers.py:335] {V1}", "APIServer pid=7", "2000-11-29T13:06:38", "-"),
        (f"[node3] (APIServer pid=7) INFO 11-29 13:06:38 [loggers.py:335] {V1}", "APIServer pid=7", "2000-11-29T13:06:38", "-"),
        (f"HOST vllm[361991]: INFO 11-29 13:06:38 [loggers.py:335] {V1}", "-", "2000-11-29T13:06:38", "-"),
        (f"Loading shards:  50% | 2/4\rLoading shards: 100% | 4/4\r{V1_LINE}", "APIServer pid=7", "2000-11-29T13:06:38", "-"),
        (f"Tuning: 14%|█▍  | 3/21 [00:06<00:25]{V1_LINE}", "APIServer pid=7", "2000-11-29T13:06:38", "-"),
        (f"2026-11-29T12:06:38.123456789Z stdout F {V1_LINE}", "APIServer pid=7", "2000-11-29T13:06:38", "2026-11-29T12:06:38.123456"),
        (f"2026-11-29T14:06:38.5+02:00 {V1_LINE}", "APIServer pid=7", "2000-11-29T13:06:38", "2026-11-29T12:06:38.5"),
        (json.dumps({"asctime": "2026-11-29 13:06:38,201", "levelname": "INFO", "name": "vllm.v1.metrics.loggers",
                     "processName": "MainProcess", "process": 7, "message": V1, "vllm_process_name": "APIServer"}),
         "APIServer pid=7", "2026-11-29T13:06:38.201", "-"),
        (json.dumps({"timestamp": "2026-11-29T12:06:38Z", "level": "info", "logger": "vllm", "msg": V1}),
         "-", "-", "2026-11-29T12:06:38"),
        (f"2026-11-29 13:06:38 - vllm.v1.metrics.loggers - INFO - {V1}", "-", "2026-11-29T13:06:38", "-"),
    ],
)  # fmt: skip
def test_whatever_stands_in_front_the_numbers_are_the_same(line, process, at_local, at_utc):
    result = read(FORMAT, f"{ACCESS}\n{line}\n{ACCESS}\n")
    assert result.table("engine_samples", "line process at_local at_utc " + STATS.partition("engine ")[2]) == [
        ["2", process, at_local, at_utc, "790", "12.5", "15", "3", "0.5", "0.25"]
    ]
    assert (result.account.used, result.account.ignored) == (1, 2)


def test_records_glued_on_one_line_are_told_apart_and_a_cut_one_is_not_made_up():
    glued = V1_LINE + V1_LINE.replace("06:38", "06:48") + V1_LINE.replace("06:38", "06:58")[:150]
    result = read(FORMAT, glued)
    assert result.table("engine_samples", "line at_local running") == cells("""
        1  2000-11-29T13:06:38  15
        1  2000-11-29T13:06:48  15
    """)
    assert result.account.used == 1


def test_a_data_parallel_rank_is_taken_from_the_process():
    line = ITERATION.replace("(APIServer pid=7)", "(EngineCore_DP1 pid=41)").replace("Engine 000: ", "")
    assert read(FORMAT, line).table("iteration_steps", "engine process") == [["1", "EngineCore_DP1 pid=41"]]


# The other lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (ITERATION, "0 1 2 527 1 1 22.84 0.5"),
        (ITERATION + ", encoder inputs: 3, encoder output embeddings: 12", "0 1 2 527 1 1 22.84 0.5"),
        ("(EngineCore_DP0 pid=4) INFO 02-02 18:25:03 [core.py:96] Iteration(188): 0 context requests, 0 context tokens, "
         "50 generation requests, 50 generation tokens, iteration elapsed time: 10.25 ms (dummy)", "0 188 0 0 50 50 10.25 -"),
    ],
)  # fmt: skip
def test_an_iteration_line(line, row):
    columns = "engine iteration context_requests context_tokens generation_requests generation_tokens elapsed_ms kv_usage_ratio"
    assert read(FORMAT, line).table("iteration_steps", columns) == cells(row)


@pytest.mark.parametrize(
    ("message", "rows"),
    [
        (f"Received request cmpl-1: params: {PARAMS}, lora_request: None.", "received cmpl-1 201"),
        ("Received request tok-1: params: None, lora_request: None.", "received tok-1 -"),
        ("Received request cmpl-2: prompt: 'say ignore_eos=True, max_tokens=9, ok', params: SamplingParams(n=1, ignore_eos=False, "
         "max_tokens=16, logprobs=None), prompt_token_ids: [1, 2], lora_request: None.", "received cmpl-2 16"),
        ("Added request cmpl-1-9d8318f6.", "added cmpl-1-9d8318f6 -"),
        ("Finished request cmpl-1.", "finished cmpl-1 -"),
        ("Aborted request cmpl-1.", "aborted cmpl-1 -"),
        ("Aborted request(s) a-1,b-2.", "aborted a-1 -\naborted b-2 -"),
        ("Request cmpl-1 aborted.", "aborted cmpl-1 -"),
        ("Request cmpl-1 failed (engine dead).", "failed cmpl-1 -"),
    ],
)  # fmt: skip
def test_what_is_said_of_one_request(message, rows):
    line = f"(APIServer pid=7) INFO 11-29 13:12:06 [async_llm.py:578] {message}"
    assert read(FORMAT, line).table("request_lines", "event request_id max_tokens") == cells(rows)


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (PREEMPTED, "preemption_warning_recompute 147 51"),
        (PREEMPTED.replace("RECOMPUTE", "SWAP")[:300], "preemption_warning_swap 147 -"),
        ("(EngineCore pid=8) INFO 11-29 13:24:38 [core.py:1635] [shutdown] EngineCore: start mode=abort timeout=0s", "engine_shutdown - -"),
        ("(APIServer pid=7) ERROR 08-01 17:49:15 [core_client.py:5] Engine core proc EngineCore_DP0 died unexpectedly, shutting down",
         "engine_dead - -"),
        ("(EngineCore pid=8) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "engine_failure - -"),
        ("INFO 11-29 13:24:38 [block_pool.py:1] Successfully reset prefix cache", "prefix_cache_reset - -"),
        ("WARNING 08-20 10:18:39 scheduler.py:1141] Input prompt (9000 tokens) is too long and exceeds limit of 8192", "input_too_long - 9000"),
    ],
)  # fmt: skip
def test_what_happened_to_the_engine(line, row):
    assert read(FORMAT, line).table("engine_events", "event request_id count") == cells(row)


def test_stats_that_are_switched_off_say_so():
    line = "INFO 11-29 13:24:38 [async_llm.py:1] AsyncLLM created with api_server_count more than 1; disabling stats logging to avoid …"
    assert read(FORMAT, line).table("engine_events", "event") == [["stats_disabled"]]
    assert config(line) == {"api_server_count": ">1"}


@pytest.mark.parametrize(
    ("message", "facts"),
    [
        ("# GPU blocks: 50231, # CPU blocks: 8192", {"num_gpu_blocks": "50231", "num_cpu_blocks": "8192"}),
        ("GPU KV cache size: 2,925,232 tokens", {"kv_capacity_tokens": "2925232"}),
        ("Maximum concurrency for 32768 tokens per request: 24.53x",
         {"max_concurrency_tokens_per_request": "32768", "max_concurrency": "24.53"}),
        ("Available KV cache memory: 45.20 GiB", {"kv_cache_memory_gib": "45.20"}),
        ("Explicitly set (1.0/62.8) GiB for KV cache on node 0.", {"kv_cache_memory_gib": "1.0"}),
        ("Loading model weights took 14.9888 GB", {"weights_gib": "14.9888"}),
        ("Model loading took 14.99 GiB memory and 3.123456 seconds", {"weights_gib": "14.99"}),
        ("Overriding num_gpu_blocks=7000 with num_gpu_blocks_override=128", {"num_gpu_blocks_override": "128"}),
        ("Chunked prefill is enabled with max_num_batched_tokens=8192.", {"max_num_batched_tokens": "8192"}),
        ("Auto-fit max_model_len: reduced from 131072 to 40960 to fit in memory", {"max_model_len": "40960"}),
        ("Setting attention block size to 784 tokens to ensure", {"block_size": "784"}),
        ("Asynchronous scheduling is disabled.", {"async_scheduling": "disabled"}),
        ("Defaulting api_server_count to data_parallel_size (4).", {"api_server_count": "4"}),
        ("vLLM API server version 0.9.2", {"engine_version": "0.9.2"}),
        (" ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0", {"engine_version": "0.32.0"}),
    ],
)  # fmt: skip
def test_a_fact_the_engine_states_when_it_starts(message, facts):
    assert config(f"INFO 02-02 18:25:03 [x.py:1305] {message}") == facts


def test_the_arguments_that_matter_are_kept_and_secrets_are_not():
    arguments = (
        "INFO 11-29 13:11:29 [api_utils.py:286] non-default args: {'model_tag': '/models/tiny', 'api_key': ['s3cret'], 'port': 8100, "
        "'max_num_seqs': 32, 'hf_token': 'hf_x', 'kv_transfer_config': KVTransferConfig(kv_connector='NixlConnector', kv_role='kv_both', "
        "kv_connector_extra_config={'password': 'p, q'}), 'gpu_memory_utilization': 0.95}"
    )
    assert config(arguments) == {
        "model": "/models/tiny", "max_num_seqs": "32", "kv_connector": "NixlConnector", "kv_role": "kv_both", "gpu_memory_utilization": "0.95",
    }  # fmt: skip


def test_the_namespace_and_the_config_line_use_the_names_of_the_command_line():
    namespace = "INFO 01-23 06:30:00 api_server.py:1] args: Namespace(host=None, block_size=None, max_num_seqs=256, swap_space=4, api_key='k')"
    engine = "INFO 01-23 06:30:01 [core.py:1] Initializing a V1 LLM engine (v0.9.1) with config: model='m', max_seq_len=8192, x={'a': 1, 'b': [2]}, chunked_prefill_enabled=True, "
    result = read(FORMAT, f"{namespace}\n{engine}\n")
    assert result.table("engine_config", "line key value_text") == cells("""
        1  max_num_seqs            256
        1  swap_space              4
        2  engine_version          0.9.1
        2  engine_generation       v1
        2  model                   m
        2  max_model_len           8192
        2  enable_chunked_prefill  True
    """)
    assert result.table("engine_events", "line event") == [["2", "engine_start"], ["2", "log_end"]]


@given(st.text(alphabet="a=,'\"()[]{}\\ ", max_size=60))
def test_splitting_arguments_loses_nothing(text):
    assert ",".join(split_top_level(text)) == text


# What a line must not become -----------------------------------------------------------------------------------------------


def test_a_prompt_that_quotes_the_log_is_a_request_and_no_sample():
    line = f"INFO 07-01 12:00:00 [logger.py:43] Received request cmpl-1: prompt: '\\n{V1_LINE} {ITERATION}', params: {PARAMS}, lora_request: None."
    result = read(FORMAT, line)
    assert result.rows.keys() == {"request_lines"}
    assert V1 not in str(result.rows)
    assert (result.account.used, result.account.not_understood) == (1, 0)


def test_a_response_that_quotes_the_log_is_not_understood():
    line = f"INFO 07-01 12:00:00 [logger.py:43] Generated response cmpl-1: output: '{V1_LINE}', finish_reason: stop"
    account = read(FORMAT, f"{ACCESS}\n{line}\n").account
    assert (account.used, account.not_understood, account.first_not_understood) == (0, 1, 2)


@pytest.mark.parametrize(
    "line",
    [
        V1_LINE.replace("15 reqs", "many reqs"),
        V1_LINE.replace("50.0%", "50.0"),
        V1_LINE[:120],
        ITERATION.replace("527 context", "some context"),
        V1_LINE.replace("11-29", "13-45"),
        "INFO 02-02 18:25:03 [x.py:1305] GPU KV cache size: lots of tokens",
    ],
)
def test_a_signal_that_breaks_its_grammar_is_not_understood(line):
    result = read(FORMAT, f"{V1_LINE}\n{line}\n")
    assert (result.account.used, result.account.not_understood, result.account.first_not_understood) == (1, 1, 2)


# Time and the account ------------------------------------------------------------------------------------------------------


def test_a_log_over_new_year_goes_on_in_the_next_year():
    stamps = ("12-31 23:59:50", "01-01 00:00:00", "12-31 23:59:59", "02-29 00:00:00", "03-01 00:00:00")
    log = "\n".join(V1_LINE.replace("11-29 13:06:38", stamp) for stamp in stamps)
    assert read(FORMAT, log).table("engine_samples", "at_local") == cells("""
        2000-12-31T23:59:50
        2001-01-01T00:00:00
        2000-12-31T23:59:59
        2001-02-28T00:00:00
        2001-03-01T00:00:00
    """)


def test_a_log_that_begins_in_january_stays_in_the_first_year():
    log = "\n".join(V1_LINE.replace("11-29", day) for day in ("01-31", "02-29", "12-01"))
    assert [row[0][:4] for row in read(FORMAT, log).table("engine_samples", "at_local")] == ["2000", "2000", "2000"]


def test_a_file_cut_in_mid_gzip_keeps_what_came_before():
    random.seed(1)
    log = "\n".join(V1_LINE.replace("790.0", f"{random.random() * 9000:.1f}") for _ in range(4000)).encode()
    result = read(FORMAT, gzip.compress(log)[:-2000], "server.log")
    assert result.account.error == "server.log: compressed file ends early; copy it again"
    assert 1000 < len(result.rows["engine_samples"]) == result.account.lines < 4000


@pytest.mark.parametrize("content", [b"\n", b"\n\n" + V1_LINE.encode(), b"\0\0\n\xff\xfe\n" + V1_LINE.encode() + b"\xff\n\0"])
def test_odd_bytes_are_counted_as_lines(content):
    assert read(FORMAT, content).account.lines == content.count(b"\n") + (not content.endswith(b"\n"))


LINES = st.sampled_from(
    [V1_LINE, V0_LINE, ITERATION, RECEIVED, ADDED, PREEMPTED, CAPACITY, ACCESS, "", "\r", "\x1b[32mINFO\x1b[0m", '{"message": "Running: 1 reqs, "}',
     V1_LINE[:90], V1_LINE + V1_LINE, V1_LINE.replace("Waiting: 3 reqs", "Waiting: 3 reqs, Deferred: 1 reqs")]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(LINES.map(str.encode), st.binary(max_size=80)), max_size=30), st.booleans())
def test_every_line_is_accounted_for_once(lines, ends):
    content = b"a log, and nothing compressed or recoded\n" + b"\n".join(lines) + b"\n" * ends
    account = read(FORMAT, content).account
    assert account.balanced
    assert account.lines == content.count(b"\n") + (not content.endswith(b"\n"))


NUMBER = st.one_of(
    st.integers(0, 99999).map(str), st.floats(0, 1e5).map("{:.1f}".format), st.sampled_from(["nan", "1e5", "-3", "inf", "", "x"])
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(NUMBER, NUMBER, NUMBER, st.booleans()), min_size=1, max_size=12))
def test_lines_read_together_give_what_each_gives_alone(fields):
    lines = [
        V1_LINE.replace("790.0", first)
        .replace(" 15 reqs", f" {second} reqs")
        .replace("50.0%", f"{third}%")
        .replace("GPU", "XPU" if odd else "GPU")
        for first, second, third, odd in fields
    ]
    together = read(FORMAT, "\n".join(lines))
    alone = [read(FORMAT, line) for line in lines]
    columns = STATS + " external_prefix_hit_ratio"
    assert together.table("engine_samples", columns) == [row for each in alone for row in each.table("engine_samples", columns)]
    assert together.account.not_understood == sum(each.account.not_understood for each in alone)


@pytest.mark.parametrize(
    "line",
    [
        "{stamp} - vllm.v1.metrics.loggers - INFO - {message}",
        "{stamp}Z stdout F (APIServer pid=7) INFO 11-29 13:06:38 [loggers.py:335] {message}",
        '{{"asctime": "{stamp},201", "process": 7, "message": "{message}", "vllm_process_name": "APIServer"}}',
        '{{"log":"INFO 11-29 13:06:38 [loggers.py:335] {message}\\n","stream":"stdout","time":"{stamp}.5Z"}}',
        "\x1b[32mINFO\x1b[0m 11-29 13:06:38 [loggers.py:335] {message}\r",
    ],
)
def test_wrapped_lines_read_together_give_what_each_gives_alone(line):
    log = [line.format(stamp=f"2026-11-29{'T' if 'Z' in line else ' '}13:06:{second}", message=V1) for second in range(10, 40)]
    columns = STATS + " at_utc"
    alone = [row for each in log for row in read(FORMAT, each).table("engine_samples", columns)]
    assert read(FORMAT, "\n".join(log)).table("engine_samples", columns) == alone
    assert len({tuple(row) for row in alone}) in (1, 30)


# Detection and real recordings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "least", "most"),
    [
        (V1_LINE, 0.9, 1),
        (json.dumps({"message": V1}), 0.9, 1),
        ("INFO 11-29 13:11:29 [model.py:733] Resolved architecture: LlamaForCausalLM", 0.5, 0.9),
        (ACCESS, 0.05, 0.2),
        ("# HELP vllm:num_requests_running Number of requests\nvllm:num_requests_running 3\n", 0, 0),
        ('{"resourceSpans": []}', 0, 0),
        ("[2025-08-01 12:00:00 TP0] Decode batch. #running-req: 3, #token: 900, token usage: 0.10", 0, 0),
        ("", 0, 0),
    ],
)  # fmt: skip
def test_how_sure_it_is_of_a_file(head, least, most):
    assert least <= FORMAT.detect(head.encode()) <= most


RECORDINGS = sorted([*SHARED.glob("truth/*/server.log"), *SHARED.glob("reallogs/vllm_logs/*.log")])


@pytest.mark.skipif(not RECORDINGS, reason="the recordings are not beside this checkout")
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_log_is_understood_to_the_last_line(path):
    result = read(FORMAT, path)
    text = path.read_bytes().decode(errors="replace")
    assert FORMAT.detect(path.read_bytes()[:65536]) > 0.5
    assert (result.account.lines, result.account.not_understood) == (text.count("\n"), 0)
    for table, pattern in {
        "engine_samples": r"^.*Engine 000: Avg prompt throughput",
        "iteration_steps": r"Iteration\(\d+\): ",
        "request_lines": r"\] (?:Received|Added) request ",
    }.items():
        events = [row for row in result.rows.get(table, []) if row.get("event") not in ("aborted", "failed")]
        assert len(events) == len(re.findall(pattern, text, re.MULTILINE)), table
    facts = [row["key"] for row in result.rows.get("engine_config", [])]
    assert facts.count("kv_capacity_tokens") == text.count("KV cache size: ")


CASES = SHARED / "cases.jsonl"


@pytest.mark.skipif(not CASES.exists(), reason="the reported cases are not beside this checkout")
def test_the_lines_of_reported_cases_are_read():
    cases = [case for line in CASES.read_text().splitlines() if (case := json.loads(line))["engine"] == "vllm" and case["lines"]]
    signals = re.compile(
        r"Avg prompt throughput: [\d.]+ tokens/s, .*Running: |KV cache size: |# GPU blocks|is preempted by|^Running: \d+ reqs, W.*s$"
    )
    for case in cases:
        expected = sum(bool(signals.search(line)) for line in case["lines"])
        result = read(FORMAT, "\n".join(case["lines"]))
        assert (result.account.not_understood, result.account.used >= expected) == (0, True), case["id"]


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (
            "ValueError: No available memory for the cache blocks. Try …",
            "start_no_kv_memory -",
        ),
        (
            "ValueError: To serve at least one request with the models's max seq len (131072), (40.00 GiB KV cache is needed, which is "
            "larger than the available KV cache memory (4.12 GiB). Based on the available memory, the estimated maximum model length "
            "is 13488. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
            "start_kv_too_small 13488",
        ),
        (
            "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache "
            "(9504). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
            "start_kv_too_small 9504",
        ),
        ("ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614).", "start_slots_beyond_pool 614"),
        (
            "ValueError: Free memory on device cuda:0 (10.1/79.2 GiB) on startup is less than desired GPU memory utilization "
            "(0.9, 71.3 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
            "start_memory_taken -",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "engine_failure -"),
        ("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}", "start_failed -"),
    ],
)
def test_why_an_engine_did_not_start(error, event):
    """As its own last word, or behind the time of a logger."""
    for prefix in ("(EngineCore_DP0 pid=7) ", "(EngineCore_DP0 pid=7) ERROR 11-29 12:01:36 [core.py:708] ", ""):
        assert read(FORMAT, f"{prefix}{error}\n").table("engine_events", "event count") == [event.split()]


START = "INFO 11-29 12:00:15 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='m'\n"
WORK = "INFO 11-29 12:09:15 [gpu_worker.py:1] Compiling\n  no time\n"


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        (START + WORK, ["2", "2000-11-29T12:09:15", "log_end"]),
        (START + "INFO 11-29 12:01:00 [entry.py:140] Starting vLLM server on http://0.0.0.0:8000\n" + WORK, None),
        (WORK, None),
    ],
)
def test_a_log_that_ends_while_its_engine_starts_says_when(lines, last):
    events = read(FORMAT, lines).table("engine_events", "line at_local event")
    assert [row for row in events if row[-1] == "log_end"] == ([last] if last else [])
