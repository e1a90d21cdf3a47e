"""llama.cpp server: its log at both verbosities and of older years, and what it answered."""

import json
import re
from datetime import UTC, datetime

import pytest
from reading import SHARED, cells, read

from parsers.llamacpp_api_json import FORMAT as API
from parsers.llamacpp_server_log import FORMAT as LOG

RECORDED = SHARED / "engines" / "llamacpp-b11549"
recorded = pytest.mark.skipif(not RECORDED.is_dir(), reason="the recordings are not beside this checkout")

EXHAUSTED = """\
0.00.010.686 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 2048, kv_unified = 'true'
0.00.021.762 I slot launch_slot_: id  3 | task 1 | processing task, is_child = 0
0.00.089.578 W srv        decode: failed to find free space in the KV cache, retrying with smaller batch size, \
off = 0, n_batch = 128, ret = 1
0.00.090.189 E srv        decode: Context size has been exceeded. off = 0, n_batch = 1, ret = 1
0.00.090.195 E srv    send_error: task id = 1, error: Context size has been exceeded.
0.00.092.284 I slot      release: id  3 | task 1 | stop processing: n_tokens = 598, truncated = 0
0.00.095.475 E srv  update_slots: decode() failed: Context size has been exceeded.
0.00.095.493 I slot get_availabl: id  3 | task -1 | selected slot by LRU, t_last = 1289321359
"""


def test_a_full_pool_fails_requests_and_each_is_counted_once():
    reading = read(LOG, EXHAUSTED)
    assert reading.account.not_understood == 0
    assert reading.table("engine_events", "event request_id count") == cells("""
        kv_allocation_retry   -  128
        kv_exhausted          -  -
        request_failed_no_kv  1  1
    """)
    assert reading.table("request_lines", "event request_id") == [["started", "1"], ["finished", "1"]]
    assert reading.table("engine_samples", "running") == [["1"], ["0"]]


def test_a_unified_pool_holds_one_context_for_all_slots_and_another_one_each():
    for unified, capacity in (("true", "2048"), ("false", "8192")):
        settings = read(LOG, EXHAUSTED.replace("'true'", f"'{unified}'")).rows["engine_config"]
        assert {row["key"]: row["value_text"] for row in settings}["kv_capacity_tokens"] == capacity


def test_the_clock_of_the_process_is_kept_as_distances():
    first, last = (read(LOG, EXHAUSTED).rows["request_lines"][i]["at_local"] for i in (0, -1))
    assert (last - first).total_seconds() == pytest.approx(0.070522)


def test_a_collector_gives_a_line_its_wall_clock():
    line = EXHAUSTED.splitlines()[4]
    for wrapped in (
        f"2026-07-01T12:00:00.5Z stderr F {line}",
        json.dumps({"log": line + "\n", "time": "2026-07-01T12:00:00.5Z"}),
    ):
        (row,) = read(LOG, wrapped + "\n").rows["engine_events"]
        assert (row["event"], row["at_utc"]) == ("request_failed_no_kv", datetime(2026, 7, 1, 12, 0, 0, 500_000, UTC))
        assert row["at_local"] is None


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("update_slots : failed to find free space in the KV cache, retrying with smaller n_batch = 8", "kv_allocation_retry 8"),
        (
            'ERR [ update_slots] failed to decode the batch: KV cache is full - try … | tid="1" timestamp=1714000000 i=0 ret=1',
            "kv_exhausted -",
        ),
        ('{"tid":"1","timestamp":1714000000,"level":"INFO","function":"f","msg":"slot context shift","n_discard":127}',
         "context_shift 127"),
        ("srv    send_error: task id = 4, error: Input prompt is too big compared to KV size. Please try increasing KV size.",
         "request_failed_no_kv 1"),
        ("0.00.183.756 W slot   operator(): id  3 | task 0 | slot context shift, n_keep = 1, n_left = 254, n_discard = 127",
         "context_shift 127"),
        ('{"type":"log","time":545327,"msg":"srv  try_clear_id: purging slot 0 with 261 tokens"}', "prefix_eviction 261"),
        ("0.00.1.2 srv: nothing\n0.00.545.327 W srv  try_clear_id: purging slot 0 with 261 tokens", "prefix_eviction 261"),
        ("srv        update:  - cache size limit reached, removing oldest entry (size = 0.052 MiB)", "kv_tier_full -"),
    ],
)  # fmt: skip
def test_the_same_event_in_the_words_of_each_year(line, event):
    assert " ".join(read(LOG, line + "\n").table("engine_events", "event count")[0]) == event


def test_a_structured_line_has_the_time_of_day_or_that_since_the_start():
    log = """\
{"tid":"1","timestamp":1714000000,"level":"INFO","function":"f","msg":"slot context shift","n_discard":127}
{"type":"log","time":545327,"msg":"srv  try_clear_id: purging slot 0 with 261 tokens"}
"""
    assert read(LOG, log).table("engine_events", "at_utc at_local") == cells("""
        2024-04-24T23:06:40  -
        -                    1970-01-01T00:00:00.545327
    """)


def test_what_a_slot_drops_for_its_next_prompt_is_what_they_do_not_share():
    """It then holds what they share; a slot whose prompt was cleared, or that never had one, drops nothing."""
    log = """\
0.01.0 I slot      release: id  0 | task 1 | stop processing: n_tokens = 200, truncated = 0
0.04.347.146 I slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, f_sim_best = 0.954 (> 0.1), f_keep = 0.675
0.04.347.146 I slot get_availabl: id  1 | task -1 | selected slot by LRU, t_last = -1
0.04.347.147 I slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, f_sim_best = 0.954 (> 0.1), f_keep = 0.200
0.04.347.148 I slot update_slots: id  0 | task -1 | clearing prompt with 27 tokens
0.04.347.149 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1
0.04.347.149 I slot      release: id  1 | task 7 | slot released
0.04.347.149 I slot get_availabl: id  1 | task -1 | selected slot by LRU, t_last = -1
"""
    assert read(LOG, log).table("engine_events", "event count") == cells("slot_prefix_dropped 65\nslot_prefix_dropped 108")


def test_a_full_reprocess_repeats_the_shared_prefix_and_not_the_whole_prompt():
    log = """\
slot update_slots: id  3 | task 3089 | n_past = 70, slot.prompt.tokens.size() = 2775, seq_id = 3, pos_min = 2774, n_swa = 1
slot update_slots: id  3 | task 3089 | forcing full prompt re-processing due to lack of cache data (likely due to SWA …)
"""
    assert read(LOG, log).table("engine_events", "event request_id count") == cells("full_reprocess 3089 70")


TIMES = """\
0.00.080.000 I slot   operator(): id  0 | task 86 | new prompt, n_ctx_slot = 2048, n_keep = 0, task.n_tokens = 253
0.04.386.358 I slot print_timing: id  0 | task 86 | prompt eval time =       2.46 ms /     8 tokens (    0.31 ms per token, …)
0.04.386.360 I slot print_timing: id  0 | task 86 |        eval time =      54.05 ms /    40 tokens (    1.39 ms per token, …)
0.04.386.361 I slot print_timing: id  0 | task 86 |       total time =      56.51 ms /    48 tokens
"""
OLD_TIMES = """\
slot print_timing: id  0 | task 86 |
prompt eval time =       2.46 ms /     8 tokens (    0.31 ms per token,  3258.66 tokens per second)
       eval time =      54.05 ms /    40 tokens (    1.39 ms per token,   721.54 tokens per second)
      total time =      56.51 ms /    48 tokens
"""


def test_three_lines_of_times_are_one_request():
    columns = "request_id input_tokens computed_tokens cached_tokens output_tokens prefill_s decode_s inference_s"
    assert read(LOG, TIMES).table("spans", columns) == cells("86 253 8 245 40 0.00246 0.05405 0.05651")
    assert read(LOG, OLD_TIMES).table("spans", columns) == cells("86 - 8 - 40 0.00246 0.05405 0.05651")


def test_an_answer_tells_what_was_computed_and_what_was_found():
    answer = {"tokens_evaluated": 166, "tokens_cached": 205, "timings": {"cache_n": 60, "prompt_n": 106, "prompt_ms": 8.0,
              "predicted_n": 40, "predicted_ms": 62.0}}  # fmt: skip
    older = {**answer, "timings": {k: v for k, v in answer["timings"].items() if k != "cache_n"}}
    for each in (answer, older):
        columns = "input_tokens computed_tokens cached_tokens output_tokens inference_s"
        assert read(API, json.dumps([each])).table("spans", columns) == cells("166 106 60 40 0.07")


def count(path, pattern):
    return len(re.findall(pattern, path.read_text(errors="replace"), re.MULTILINE))


LOGS = sorted(RECORDED.glob("*.log"))


@recorded
@pytest.mark.parametrize("path", LOGS, ids=[path.stem for path in LOGS])
def test_a_recorded_log_has_as_many_rows_as_grep_counts(path):
    reading = read(LOG, path)
    events = [row["event"] for row in reading.rows["engine_events"]]
    requests = [row["event"] for row in reading.rows["request_lines"]]
    assert reading.account.not_understood == 0
    assert requests.count("started") == count(path, r"\| processing task")
    assert requests.count("finished") == count(path, r"\| stop processing: ")
    assert len(reading.rows.get("spans", [])) == count(path, r"\| +total time =")
    for event, pattern in {
        "kv_allocation_retry": "failed to find free space in the KV cache, retrying",
        "request_failed_no_kv": r"send_error: task id = \d+, error: Context size has been exceeded",
        "prefix_eviction": "purging slot",
        "context_shift": "slot context shift",
        "kv_offloaded": "- saving prompt with length",
        "kv_restored": "- found better prompt",
    }.items():
        assert events.count(event) == count(path, pattern), event


@recorded
def test_all_twenty_four_requests_of_the_exhausted_server_failed():
    events = [row["event"] for row in read(LOG, RECORDED / "u_v3.log").rows["engine_events"]]
    answers = [row["event"] for row in read(API, RECORDED / "u_v3.resp.json").rows["engine_events"]]
    assert (events.count("request_failed_no_kv"), answers.count("answer_failed_no_kv")) == (24, 24)


@recorded
@pytest.mark.parametrize(
    "path", [path for path in LOGS if (RECORDED / f"{path.stem}.resp.json").exists()], ids=lambda path: path.stem
)
def test_log_and_answers_agree_on_what_was_computed(path):
    by_log = sorted(row["computed_tokens"] for row in read(LOG, path).rows.get("spans", []))
    assert by_log == sorted(
        row["computed_tokens"] for row in read(API, RECORDED / f"{path.stem}.resp.json").rows.get("spans", [])
    )


@recorded
def test_the_lines_of_public_reports_are_read():
    cases = [json.loads(line) for line in (SHARED / "cases.jsonl").read_text().splitlines()]
    reading = read(LOG, "\n".join(line for case in cases if case["engine"] == "llama.cpp" for line in case["lines"]))
    assert reading.account.not_understood == 0
    assert reading.table("engine_events", "event count") == cells("""
        full_reprocess       70
        kv_allocation_retry  -
    """)
