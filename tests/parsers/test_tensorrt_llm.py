"""TensorRT-LLM: iteration statistics, KV-cache events and log lines, made after the documented schemas."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import SHARED, cells, read

from parsers.prometheus_text import FORMAT as PROMETHEUS
from parsers.tensorrt_llm_engine_log import FORMAT as LOG
from parsers.tensorrt_llm_iterations import FORMAT as ITERATIONS
from parsers.tensorrt_llm_kv_events import FORMAT as KV_EVENTS


def iteration(number: int, paused: int = 0, **more: object) -> dict:
    return {
        "iter": number, "timestamp": f"09-20-2025 10:00:{number:02}.125000", "iterLatencyMS": 21.5, "numActiveRequests": 9,
        "numQueuedRequests": 3, "maxNumActiveRequests": 16,
        "kvCacheStats": {"maxNumBlocks": 512, "freeNumBlocks": 128, "usedNumBlocks": 384, "tokensPerBlock": 32},
        "inflightBatchingStats": {
            "numScheduledRequests": 8, "numContextRequests": 1, "numGenRequests": 7, "numPausedRequests": paused,
            "numCtxTokens": 512, "avgNumDecodedTokensPerIter": 1.0,
        },
        **more,
    }  # fmt: skip


def test_an_iteration_is_a_step_a_sample_and_its_pauses():
    reading = read(ITERATIONS, json.dumps([iteration(12), iteration(13, paused=2)]))
    assert reading.table("engine_samples", "at_local running waiting kv_usage_ratio preemptions") == cells("""
        2025-09-20T10:00:12.125  8  3  0.75  0
        2025-09-20T10:00:13.125  8  3  0.75  2
    """)
    columns = "iteration context_requests context_tokens generation_requests generation_tokens elapsed_ms"
    assert reading.table("iteration_steps", columns) == cells("""
        12  1  512  7  7  21.5
        13  1  512  7  7  21.5
    """)
    assert reading.table("engine_events", "event count") == cells("retraction 2")


def test_settings_that_every_iteration_repeats_are_kept_once():
    reading = read(ITERATIONS, json.dumps([iteration(1), iteration(2), iteration(3)]))
    assert reading.table("engine_config", "key value_text") == cells("""
        num_gpu_blocks      512
        block_size          32
        kv_capacity_tokens  16384
        max_num_seqs        16
    """)


def test_drained_lists_may_follow_each_other_and_may_be_empty():
    text = json.dumps([iteration(1)]) + "\n[]\n" + json.dumps([iteration(2)]) + "\n" + json.dumps(iteration(3))
    reading = read(ITERATIONS, text)
    assert reading.table("iteration_steps", "iteration") == cells("1\n2\n3")
    assert reading.account.not_understood == 0


def test_blocks_that_moved_between_tiers_are_no_recomputation():
    stats = {"4096": {"iterOffloadBlocks": 2, "iterOnboardBlocks": 3, "iterHostDroppedBlocks": 0}}
    reading = read(ITERATIONS, json.dumps([iteration(1, kvCacheIterationStats=stats)]))
    assert reading.table("engine_events", "event count") == cells("""
        kv_offloaded  64
        kv_restored   96
    """)


def event(number: int, **data: object) -> dict:
    return {"event_id": number, "data": data, "window_size": 4096}


def test_a_block_is_followed_through_the_tiers():
    block = {"block_hash": 34, "tokens": [{"token_id": 1}, {"token_id": 2}], "cache_level": 0}
    events = [
        event(0, type="created", num_blocks_per_cache_level=[8, 8]),
        event(1, type="stored", parent_hash=12, blocks=[block, {**block, "block_hash": 35}]),
        event(2, type="updated", block_hash=34, cache_level={"type": "event_diff", "new_value": 1, "old_value": 0}),
        event(3, type="updated", block_hash=34, cache_level={"type": "event_diff", "new_value": 0, "old_value": 1}),
        event(4, type="updated", block_hash=34, cache_level=None, priority={"new_value": 1, "old_value": 0}),
        event(5, type="removed", block_hashes=[34, 35]),
    ]
    table = """
        1  0  stored    34  12  2  GPU
        1  1  stored    35  34  2  GPU
        2  0  removed   34  -   -  GPU
        2  1  stored    34  -   -  CPU
        3  0  removed   34  -   -  CPU
        3  1  restored  34  -   -  GPU
        5  0  removed   34  -   -  -
        5  1  removed   35  -   -  -
    """
    for text in (json.dumps(events), "\n".join(map(json.dumps, events))):
        reading = read(KV_EVENTS, text)
        assert reading.table("kv_events", "seq event_index event block_hash parent_hash block_size medium") == cells(table)
        assert (reading.account.used, reading.account.ignored) == (4, 2)


LINE_OF_1_1 = """[09/20/2025-10:00:00] [TRT-LLM] [I] iter = 12, global_rank = 0, rank = 0, currank_total_requests = 3/8, \
host_step_time = 12.34ms, prev_device_step_time = N/A, timestamp = 2025-09-20 10:00:01, num_scheduled_requests: 8, \
states = {'num_ctx_requests': 2, 'num_ctx_tokens': 512, 'num_generation_tokens': 6}
"""
LINE_OF_2026 = """[08/04/2026-19:08:13] [TRT-LLM] [I] [_torch][RANK 0] iter = 12, global_rank = 0, rank = 0, \
num_scheduled_requests = 8, kv_cache_util = 0.125, currank_total_requests = 3/8, host_step_time = 12.34ms, \
prev_device_step_time = 10.21ms, states = {'num_ctx_requests': 2, 'num_ctx_tokens': 512, 'num_generation_tokens': 6}
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (LINE_OF_1_1, "2025-09-20T10:00:01 12 2 512 6 6 12.34 -"),
        (LINE_OF_2026, "2026-08-04T19:08:13 12 2 512 6 6 12.34 0.125"),
    ],
)
def test_an_iteration_line_of_each_era(line, told):
    columns = "at_local iteration context_requests context_tokens generation_requests generation_tokens elapsed_ms kv_usage_ratio"
    assert read(LOG, line).table("iteration_steps", columns) == cells(told)


def test_tritons_record_is_read_though_it_was_cut_off():
    line = r"""I1002 23:45:42.282246 136 model_instance_state.cc:1115] "{\"Active Request Count\":8,\"Scheduled Requests\":1,
\"Max Request Count\":8,\"Used KV cache blocks\":60,\"Max KV cache blocks\":80,\"Paused Requests\":2,\"Runtime GPU""".replace(
        "\n", ""
    )
    reading = read(LOG, line)
    assert reading.table("engine_samples", "at_local running waiting kv_usage_ratio preemptions") == cells(
        "2000-10-02T23:45:42.282246 1 7 0.75 2"
    )
    assert reading.table("engine_events", "event count") == cells("retraction 2")


def test_capacity_is_named_as_for_every_engine():
    log = """\
[TensorRT-LLM][INFO] TRTGptModel maxBatchSize: 16
[TensorRT-LLM][INFO] TRTGptModel maxNumTokens: 11776
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 384, Number of blocks in KV cache secondary pool: 0
[TensorRT-LLM][INFO] Allocated 1.50 GiB for max tokens in paged KV cache (12288).
"""
    assert read(LOG, log).table("engine_config", "key value_text") == cells("""
        max_num_seqs             16
        max_num_batched_tokens   11776
        num_gpu_blocks           384
        kv_offloading_cpu_blocks 0
        kv_capacity_tokens       12288
    """)


@pytest.mark.parametrize("separator", [":", "_"])
def test_a_metric_has_one_name_whichever_its_separator(separator):
    page = f'# TYPE x gauge\ntrtllm{separator}kv_cache_utilization{{model_name="m"}} 0.5\n'
    assert read(PROMETHEUS, page).table("metric_samples", "name model value") == cells("trtllm_kv_cache_utilization m 0.5")


def test_tritons_quantities_get_a_name_each():
    page = 'nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 3\n'
    assert read(PROMETHEUS, page).table("metric_samples", "name labels value") == cells(
        "nv_trt_llm_request_metrics:waiting version=1 3"
    )


@given(st.binary(max_size=200), st.integers(0, 300))
def test_whatever_the_bytes_no_record_is_lost(junk, cut):
    for form, text in (
        (ITERATIONS, json.dumps([iteration(1)])),
        (KV_EVENTS, json.dumps(event(5, type="removed", block_hashes=[1]))),
    ):
        read(form, b"[" + text.encode()[:cut] + junk)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not beside this checkout")
def test_the_lines_of_public_reports_are_read():
    cases = [json.loads(line) for line in (SHARED / "cases.jsonl").read_text().splitlines()]
    reading = read(LOG, "\n".join(line for case in cases if case["engine"] == "tensorrt-llm" for line in case["lines"]))
    assert reading.account.not_understood == 0
    assert reading.table("engine_samples", "running") == [["8"]]
    settings = {(row["key"], row["value_text"]) for row in reading.rows["engine_config"]}
    assert {("max_num_seqs", "16"), ("max_model_len", "12288"), ("max_num_batched_tokens", "11776")} <= settings
