"""SGLang: the server log of every era, request records, API answers and both encodings of its KV events."""

import json
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import SHARED, cells, read

from parsers.kv_events_jsonl import FORMAT as KV_EVENTS
from parsers.sglang_api_json import FORMAT as API
from parsers.sglang_engine_log import FORMAT as LOG
from parsers.sglang_request_log import FORMAT as REQUESTS

RECORDED = SHARED / "engines" / "sglang-0.5.23-cpu"
recorded = pytest.mark.skipif(not RECORDED.is_dir(), reason="the recordings are not beside this checkout")

# One batch line of each era, as its version prints it, and what it says.
ERAS = """
new fill batch. #seq: 2. #cached_token: 10. #new_token: 20. #remaining_req: 5. #running_req: 1
[gpu_id=0] Prefil batch. #new-seq: 1, #new-token: 7, #cached-token: 0, cache hit rate: 0.00%, \
#running-req: 0, #queue-req: 0,
[2024-12-01 10:00:00 TP0] Prefill batch. #new-seq: 2, #new-token: 9, #cached-token: 3, cache hit rate: 12.34%, \
token usage: 0.10, #running-req: 3, #queue-req: 4
[2024-09-01 10:00:00] Prefill batch(mixed #running-req: 3). #new-seq: 1, #new-token: 9, #cached-token: 0, #queue-req: 2
[2025-06-12 11:41:56 TP0] Prefill batch. #new-seq: 8, #new-token: 16384, #cached-token: 0, token usage: 0.19, #running-req: 370, \
#queue-req: 646
[2025-10-20 10:00:00] Prefill batch [17], #new-seq: 1, #new-token: 9, #cached-token: 0, token usage: 0.10, \
#running-req: 0, #queue-req: 1
[2026-07-04 04:31:24 DP1 TP0] Prefill batch, #new-seq: 12, #new-token: 43008, #cached-token: 0, full token usage: 0.14, \
mamba usage: 0.20, #running-req: 1, #queue-req: 97, #pending-token: 109585, npu graph: False, input throughput (token/s): 15734.14
[2025-06-01 10:00:00 TP0] Decode batch. #running-req: 5, #token: 700, token usage: 0.22, accept len: 1.90, \
cuda graph: True, gen throughput (token/s): 88.80, largest-len: 90, #queue-req: 2
[2026-07-01 10:00:00] Decode batch, #running-req: 1, #full token: 120, full token usage: 0.01, #swa token: 90, \
swa token usage: 0.97, accept len: 2.1, accept rate: 0.4, cuda graph: True, gen throughput (token/s): 20.5, #queue-req: 0
"""
SAID = """
engine running waiting kv_usage_ratio swa_usage_ratio mamba_usage_ratio prefill_requests prefill_tokens waiting_tokens has_graph
-      3       5       -              -               -                 2                20             -              -
-      1       0       -              -               -                 1                7              -              -
-      5       4       0.1            -               -                 2                9              -              -
-      4       2       -              -               -                 1                9              -              -
-      378     646     0.19           -               -                 8                16384          -              -
-      1       1       0.1            -               -                 1                9              -              -
1      13      97      0.14           -               0.2               12               43008          109585         False
-      5       2       0.22           -               -                 -                -              -              True
-      1       0       0.01           0.97            -                 -                -              -              True
"""


def test_a_batch_line_of_each_era_is_read_by_the_names_of_its_fields():
    columns, *rows = cells(SAID)
    reading = read(LOG, "\n".join(line for line in ERAS.strip().splitlines() if line))
    assert reading.table("engine_samples", " ".join(columns)) == rows
    assert reading.account.not_understood == 0


@pytest.mark.parametrize(
    ("line", "events"),
    [
        ("decode out of memory happened, #retracted_reqs: 2, #new_token_ratio: 0.5000 -> 0.7000", "retraction 2"),
        ("Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.5000 -> 0.7000", "retraction 1"),
        (
            "KV cache pool is full. Retract requests. #retracted_reqs: 3, #aborted_retracted_reqs: 1, #new_token_ratio: 0 -> 1",
            "retraction 3 request_failed_no_kv 1",
        ),
        (
            "KV cache pool is full. Retract requests. #retracted_reqs: 1, #aborted_retracted_reqs: 0, #new_token_ratio: 0 -> 1",
            "retraction 1",
        ),
        (
            "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 180, #mamba_num_gained: 2",
            "retraction 1 retraction_freed_tokens 180",
        ),
        ("retract_decode: aborted last request a7 due to OOM", "request_failed_no_kv 1"),
        ("HiCache prefetch success req=a7 completed=512 matched=0 loaded=512 occupied=640", "kv_restored 512"),
        ("load_back: FAILED to load 640 tokens for node 17 even after eviction (evictable_size=0)", "kv_restore_failed 640"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "start_no_kv_memory -"),
        ("The server is fired up and ready to roll!", "engine_ready -"),
    ],
)
def test_each_event_line_is_one_event_with_its_count(line, events):
    reading = read(LOG, f"[2026-09-13 16:06:07] {line}\n")
    assert " ".join(" ".join(row) for row in reading.table("engine_events", "event count")) == events


def test_a_setting_that_only_names_retraction_is_no_retraction():
    line = (
        "[2026-11-29 13:23:00] server_args=ServerArgs(model_path='/m', retraction_policy='length', tp_size=2, api_key='secret')\n"
    )
    reading = read(LOG, line)
    assert reading.table("engine_events", "event") == [["engine_start"], ["log_end"]]
    assert reading.table("engine_config", "key value_text") == cells("""
        model                 /m
        retraction_policy     length
        tensor_parallel_size  2
    """)


def test_the_capacity_line_names_limits_as_for_every_engine():
    line = "[2026-11-29 13:23:44] max_total_num_tokens=900, chunked_prefill_size=256, max_prefill_tokens=16384, \
max_running_requests=8, context_len=1000, available_cpu_mem=19.98 GB\n"
    assert read(LOG, line).table("engine_config", "key value_text") == cells("""
        kv_capacity_tokens      900
        max_num_batched_tokens  256
        max_prefill_tokens      16384
        max_num_seqs            8
        max_model_len           1000
    """)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Load weight begin. avail mem=115.36 GB", "free_before_load_gib 115.36"),
        (
            "Load weight end. elapsed=109.33 s, type=LagunaForCausalLM, quant=compressed-tensors, avail mem=47.80 GB, \
mem usage=67.56 GB.",
            "weights_gib 67.56",
        ),
        ("Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=62.86 GB", ""),  # before 0.4.4
        ("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 185897, K size: 4.25 GB, V size: 4.25 GB", "8.50"),
        ("KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB", "kv_cache_memory_gib 16.46"),
        ("KV Cache is allocated. #tokens: 452516, KV size: 29.61 GB", "kv_cache_memory_gib 29.61"),
        (
            "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 185897, KV size: 8.50 GB, \
avail mem=6.22 GB",
            "kv_cache_memory_gib 8.50",
        ),
        ("Post-capture KV sizing: draft KV cache allocated. dtype: torch.bfloat16, #tokens: 9, KV size: 0.50 GB", ""),
        ("Mamba Cache is allocated. max_mamba_cache_size: 160, conv_state size: 0.21GB, ssm_state size: 10.55GB ", "160"),
    ],
)
def test_memory_of_weights_and_cache_is_what_the_start_says(line, said):
    found = read(LOG, f"[2026-08-01 23:40:01 TP0] {line}\n").table("engine_config", "key value_text")
    assert " ".join(" ".join(each) for each in found).endswith(said)
    assert bool(found) == bool(said)


DECODE = "Decode batch, #running-req: 66, #token: 87282, token usage: 1.00, cuda graph: False, #queue-req: 13"


@pytest.mark.parametrize(
    "line",
    [
        f"[2026-09-13 16:06:07] {DECODE}",
        f"(Actor pid=123, ip=10.0.0.1) [2026-09-13 16:06:07 DP0 TP0] {DECODE}",
        f"Loading:  67% Completed | 2/3 [00:06<00:03,  3.1s/it][2026-09-13 16:06:07] {DECODE}",
        f"2026-09-13T14:06:07.5Z stdout F [2026-09-13 16:06:07] {DECODE}",
        json.dumps({"log": f"[2026-09-13 16:06:07] {DECODE}\n", "stream": "stdout", "time": "2026-09-13T14:06:07.5Z"}),
        f"\x1b[32m[2026-09-13 16:06:07]\x1b[0m {DECODE}",
    ],
)
def test_what_stands_before_a_line_does_not_hide_it(line):
    reading = read(LOG, line + "\n")
    assert reading.table("engine_samples", "at_local running waiting") == [["2026-09-13T16:06:07", "66", "13"]]
    if "Z" in line:
        assert reading.rows["engine_samples"][0]["at_utc"] == datetime(2026, 9, 13, 14, 6, 7, 500_000, UTC)


def test_a_prompt_that_looks_like_a_line_is_none():
    line = f"[2026-09-13 16:06:07] Receive: obj=GenerateReqInput(rid='a7', text='[2026-09-13 16:06:07] {DECODE}')\n"
    reading = read(LOG, line)
    assert "engine_samples" not in reading.rows
    assert reading.table("request_lines", "event request_id") == [["received", "a7"]]


FINISHED = {
    "timestamp": "2026-11-29T14:23:59.051480", "event": "request.finished", "rid": "a4",
    "obj": {"sampling_params": {"max_new_tokens": 220}},
    "out": {"meta_info": {
        "prompt_tokens": 81, "completion_tokens": 220, "cached_tokens": 49, "num_retractions": 1, "queue_time": 2.75,
        "request_received_ts": 1795958636.5, "forward_entry_time": 1795958636.75, "prefill_finished_time": 1795958637.0,
        "e2e_latency": 5.0, "first_token_latency": 0.5,
    }},
}  # fmt: skip


@pytest.mark.parametrize(("form", "prefix"), [(LOG, "[2026-11-29 14:23:59] "), (REQUESTS, "")])
def test_a_retracted_request_tells_its_first_wait_from_its_second(form, prefix):
    reading = read(form, prefix + json.dumps(FINISHED) + "\n")
    columns = "request_id input_tokens output_tokens max_tokens cached_tokens preemptions queue_s requeue_s ttft_s decode_s e2e_s"
    assert reading.table("spans", columns) == cells("a4 81 220 220 49 1 0.25 2.5 0.5 4.5 5")
    finished = reading.rows["request_lines"][0]
    assert (finished["at_local"].hour, finished["at_utc"].hour) == (14, 13)  # from which the log's zone follows


def test_the_exported_file_and_saved_answers_give_the_same_request():
    meta = {"id": "a4", **FINISHED["out"]["meta_info"]}
    texts = (
        json.dumps({"request_parameters": "{}", **meta}),
        json.dumps([{"text": "x", "meta_info": meta}]),
        json.dumps([{"meta": meta}]),
    )
    spans = [read(REQUESTS, text).rows["spans"] for text in texts]
    assert spans[0] == spans[1] == spans[2]


def test_before_0_5_12_retractions_had_another_name():
    meta = {"id": "a", "prompt_tokens": 5, "total_retractions": 2, "queue_time": 1.0, "e2e_latency": 2.0}
    assert read(REQUESTS, json.dumps(meta)).table("spans", "preemptions queue_s requeue_s") == cells("2 - -")


def test_the_text_request_log_is_read_behind_what_users_wrote():
    line = (
        "[2026-11-29 13:23:59] Finish: obj=GenerateReqInput(rid='a4', text='\\'meta_info\\': {'), out={'text': 'x', 'meta_info': "
        "{'id': 'a4', 'prompt_tokens': 81, 'completion_tokens': 220, 'e2e_latency': 5.0, 'num_retractions': 0}}\n"
    )
    reading = read(LOG, line)
    assert reading.table("spans", "request_id input_tokens output_tokens e2e_s") == cells("a4 81 220 5")
    assert reading.table("request_lines", "event request_id at_local") == cells("finished a4 2026-11-29T13:23:59")


def test_a_short_request_record_in_the_log_is_read():
    line = '{"timestamp": "2026-11-29T14:23:59.051480", "event": "request.received", "rid": "a4"}\n'
    assert read(LOG, line).table("request_lines", "event request_id") == cells("received a4")


def test_a_log_of_a_start_alone_is_less_sure_and_any_other_is_none():
    ready = b"hello\n[2026-09-13 16:06:07] The server is fired up and ready to roll!\n"
    assert [LOG.detect(ready), LOG.detect(b"hello\n")] == [0.6, 0]


def test_a_scheduler_status_counts_who_runs_and_who_waits():
    line = json.dumps(
        {"timestamp": "2026-11-29T13:23:59", "event": "scheduler.status", "running_rids": ["a"], "queued_rids": ["b", "c"]}
    )
    assert read(REQUESTS, line).table("engine_samples", "running waiting") == cells("1 2")


def test_loads_are_samples_on_absolute_time():
    load = {"timestamp": 1795958637.25, "dp_rank": 1, "num_running_reqs": 4, "num_waiting_reqs": 3, "num_used_tokens": 357,
            "num_waiting_uncached_tokens": 176, "token_usage": 0.4, "max_total_num_tokens": 900}  # fmt: skip
    for text in (json.dumps({"version": "0.5.23", "loads": [load]}), json.dumps({"t": 1.0, "loads": {"loads": [load]}})):
        columns = "engine running waiting kv_used_tokens waiting_tokens kv_usage_ratio"
        assert read(API, text).table("engine_samples", columns) == cells("1 4 3 357 176 0.4")


def test_the_server_says_its_settings_and_memory():
    memory = {"weight": 15.063, "kvcache": 8.5, "token_capacity": 185_897, "graph": {"decode": 0.6}}
    info = {
        "model_path": "/m",
        "mem_fraction_static": 0.85,
        "api_key": "secret",
        "internal_states": [None, {"memory_usage": memory}],
    }
    assert read(API, json.dumps(info)).table("engine_config", "key value_text") == cells("""
        model                   /m
        gpu_memory_utilization  0.85
        weights_gib             15.063
        kv_cache_memory_gib     8.5
    """)


def test_kv_events_are_the_same_in_both_encodings():
    stored = {
        "type": "BlockStored",
        "block_hashes": [-1, 7],
        "parent_block_hash": 5,
        "token_ids": [1, 2],
        "block_size": 1,
        "medium": "GPU",
    }
    removed = {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU"}
    maps = [1795958636.5, [stored, removed], 0]
    arrays = [1795958636.5, [["BlockStored", [-1, 7], 5, [1, 2], 1, None, "GPU"], ["BlockRemoved", [7], "GPU"]], 0]
    assert read(KV_EVENTS, json.dumps(maps)).rows == read(KV_EVENTS, json.dumps(arrays)).rows


@given(st.binary(max_size=300), st.integers(0, 400))
def test_whatever_the_bytes_no_line_is_lost(junk, cut):
    content = b"x" + ERAS.encode()[:cut] + junk + json.dumps(FINISHED).encode()[: cut * 2]
    for form in (LOG, REQUESTS, API):
        read(form, content)  # asserts that the account balances


def count(path, pattern):
    return len(re.findall(pattern, path.read_text(errors="replace"), re.MULTILINE))


LOGS = [*sorted(RECORDED.glob("*.log")), *sorted((SHARED / "reallogs" / "sglang_logs").glob("*.log"))]


@recorded
@pytest.mark.parametrize("path", LOGS, ids=[path.stem for path in LOGS])
def test_a_recorded_log_has_as_many_rows_as_grep_counts(path):
    reading = read(LOG, path)
    events = [row["event"] for row in reading.rows["engine_events"]]
    assert reading.account.not_understood == 0
    assert len(reading.rows["engine_samples"]) == count(path, r"^\[[^\]]*\] (?:Prefill|Decode) batch")
    assert events.count("retraction") == count(path, r"#retracted_reqs: ")
    assert len(reading.rows.get("spans", [])) == count(path, r'"event": "request\.finished"')
    assert len(reading.rows.get("request_lines", [])) == count(path, r'"event": "request\.(?:received|finished)"')


@recorded
def test_the_public_study_has_twenty_retractions_and_the_recording_three():
    for path, retractions in ((LOGS[-2], 20), (RECORDED / "d.log", 3)):
        rows = read(LOG, path).rows["engine_events"]
        assert sum(row["count"] for row in rows if row["event"] == "retraction") == retractions


@recorded
def test_recorded_request_records_and_answers_are_counted_whole():
    exported = RECORDED / "exp" / "sglang-request-metrics-20261129_13.log"
    assert len(read(REQUESTS, exported).rows["spans"]) == count(exported, r"^\{") == 75
    for run in ("c", "d"):
        spans = read(REQUESTS, RECORDED / run / "resp.json").rows["spans"]
        told = {
            row["id"]: row["num_retractions"]
            for row in (each["meta"] for each in json.loads((RECORDED / run / "resp.json").read_text()))
        }
        assert {row["request_id"]: row["preemptions"] for row in spans} == told
        assert len(read(API, RECORDED / run / "loads.jsonl").rows["engine_samples"]) == count(
            RECORDED / run / "loads.jsonl", r"^\{"
        )
    assert sum(row["preemptions"] for row in read(REQUESTS, RECORDED / "d" / "resp.json").rows["spans"]) == 3


@recorded
def test_every_removed_token_of_the_recording_is_in_its_counter():
    rows = read(KV_EVENTS, RECORDED / "d" / "kvevents.jsonl").rows["kv_events"]
    assert sum(row["event"] == "removed" for row in rows) == 4097  # sglang:evicted_tokens_total, page size 1


@recorded
def test_the_lines_of_public_reports_are_read():
    cases = [json.loads(line) for line in (SHARED / "cases.jsonl").read_text().splitlines()]
    lines = [line for case in cases if case["engine"] == "sglang" for line in case["lines"]]
    reading = read(LOG, "\n".join(lines))
    assert reading.account.not_understood == 0
    assert len(reading.rows["engine_samples"]) == sum(bool(re.search(r"\b(?:Prefill|Decode) batch", line)) for line in lines)
    settings = {(row["key"], row["value_text"]) for row in reading.rows["engine_config"]}
    assert ("kv_capacity_tokens", "2980168") in settings
