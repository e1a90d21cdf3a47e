"""Results of `vllm bench serve`."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import SHARED, cells, read, refusal

from parsers import InputError
from parsers.vllm_bench_json import FORMAT, error_kind

HEADER = {
    "date": "20251129-120000", "endpoint_type": "openai", "backend": "openai", "label": None, "model_id": "llama",
    "num_prompts": 4, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 2, "duration": 9.5, "completed": 2,
    "failed": 2, "total_input_tokens": 30, "total_output_tokens": 7,
}  # fmt: skip
TRACEBACK = "Traceback (most recent call last):\n  …\naiohttp.client_exceptions.ServerDisconnectedError: my secret\n"
DETAILS = {
    "input_lens": [10, 20, 30, 40],
    "output_lens": [4, 3, 0, 0],
    "ttfts": [0.5, 0.25, 0.75, 0.0],
    "itls": [[0.1, 0.2, 0.1], [0.5, 0.5], [0.1], []],
    "start_times": [1326.5, 1326.75, 1327.0, 1327.25],
    "generated_texts": ["a", "b", "c", ""],
    "errors": ["", "", TRACEBACK, ""],
}
LATENCIES = {"latencies": [0.91, 1.26, 0.0, 0.0], "queue_times": [0.0, 0.001, 0.5, 0.75]}
SERVER = {"server_queue_times": [0.01, None, None, None], "server_ttfts": [0.4, None, None, None]}
SUMMARY = {"request_throughput": 0.2, "request_goodput": None, "mean_ttft_ms": 375.0, "p99_itl_ms": 500.0}

REQUESTS = "request_index start_mono_s client_queue_s input_tokens output_tokens ttft_s latency_s is_failed error_kind gap_kind"


def test_a_result_of_0_33_with_details():
    result = read(FORMAT, json.dumps(HEADER | DETAILS | LATENCIES | SERVER | SUMMARY))
    assert result.table("bench_runs", "client model date_local duration_s completed failed num_prompts") == cells("""
        vllm_bench  llama  2025-11-29T12:00:00  9.5  2  2  4
    """)
    assert result.table("bench_runs", "request_rate max_concurrency has_details total_input_tokens") == cells("- 2 True 30")
    assert json.loads(result.rows["bench_runs"][0]["aggregates"]) == {
        "request_throughput": 0.2,
        "mean_ttft_ms": 375.0,
        "p99_itl_ms": 500.0,
    }
    # The third failed in the middle of its stream, the fourth over HTTP with an empty reason: no text, and yet it failed.
    assert result.table("bench_requests", REQUESTS) == cells("""
        0  1326.5   0      10  4  0.5   0.91  False  -                        chunk
        1  1326.75  0.001  20  3  0.25  1.26  False  -                        chunk
        2  1327     0.5    30  0  0.75  -     True   ServerDisconnectedError  chunk
        3  1327.25  0.75   40  0  -     -     True   -                        -
    """)
    assert [row["gaps_s"] for row in result.rows["bench_requests"]] == DETAILS["itls"]
    assert result.table("bench_requests", "server_queue_s server_ttft_s")[:2] == cells("0.01 0.4 \n - -")


def test_before_0_30_the_latency_is_first_token_plus_gaps():
    result = read(FORMAT, json.dumps(HEADER | DETAILS))
    assert result.table("bench_requests", "latency_s client_queue_s server_queue_s") == cells("""
        0.9   -  -
        1.25  -  -
        -     -  -
        -     -  -
    """)


def test_0_6_has_no_start_times_and_a_key_with_a_colon():
    old = {key: value for key, value in (HEADER | DETAILS).items() if key not in ("failed", "max_concurrency", "start_times")}
    result = read(FORMAT, json.dumps(old | {"request_rate": 4.0, "best_of": 1, "request_goodput:": 1.5}))
    assert result.table("bench_runs", "failed max_concurrency request_rate aggregates") == [
        ["-", "-", "4", '{"request_goodput:": 1.5}']
    ]
    assert {row["start_mono_s"] for row in result.rows["bench_requests"]} == {None}


def test_without_details_there_are_no_requests():
    result = read(FORMAT, json.dumps(HEADER | SUMMARY))
    assert result.table("bench_runs", "has_details") == [["False"]]
    assert "bench_requests" not in result.rows


def test_0_30_leaves_latencies_where_details_were_not_asked_for():
    result = read(FORMAT, json.dumps(HEADER | LATENCIES))
    assert result.table("bench_requests", "latency_s client_queue_s ttft_s is_failed gaps_s") == cells("""
        0.91  0      -  False  -
        1.26  0.001  -  False  -
        -     0.5    -  True   -
        -     0.75   -  True   -
    """)


def test_zeros_of_a_run_where_nothing_completed_are_no_data():
    nothing = HEADER | {"completed": 0, "failed": 4, "mean_ttft_ms": 0.0, "p99_itl_ms": 0.0}
    assert read(FORMAT, json.dumps(nothing)).table("bench_runs", "completed failed aggregates") == cells("0 4 -")


@pytest.mark.parametrize("separator", ["\n", "", "\n\n"])
def test_appended_results_are_runs_of_one_file(separator):
    text = separator.join(json.dumps(HEADER | {"request_rate": rate}) for rate in (1, 2, float("inf")))
    result = read(FORMAT, text)
    assert result.table("bench_runs", "run_index request_rate") == cells("0 1 \n 1 2 \n 2 -")
    assert (result.account.lines, result.account.used) == (3, 3)


def test_a_sweep_s_list_of_runs_and_metadata_that_turned_numbers_into_text():
    runs = [HEADER | {"run_number": 0, "max_num_seqs": 16}, HEADER | {"run_number": 1, "num_prompts": "9"}]
    result = read(FORMAT, json.dumps(runs, indent=4))
    assert result.table("bench_runs", "run_index num_prompts aggregates") == [
        ["0", "4", '{"max_num_seqs": 16}'],
        ["1", "9", "{}"],
    ]


def test_what_is_no_result_is_counted_and_the_rest_read():
    failure = {"run_number": 1, "error_type": "X", "error": "x"}
    result = read(FORMAT, json.dumps(HEADER) + json.dumps(failure) + json.dumps(HEADER))
    assert (result.account.used, result.account.first_not_understood) == (2, 2)
    assert result.table("bench_runs", "run_index") == [["0"], ["1"]]


def test_a_file_cut_in_its_second_result_keeps_the_first():
    text = json.dumps(HEADER)
    result = read(FORMAT, text + "\n" + text[:50])
    assert len(result.rows["bench_runs"]) == 1
    assert result.account.error == f"input: JSON ends in the middle (byte {len(text) + 51}); fetch it again"


def test_a_file_cut_in_its_first_result_is_refused():
    with pytest.raises(InputError, match=r"^input: JSON ends in the middle \(byte 60\); fetch it again$"):
        read(FORMAT, json.dumps(HEADER)[:60])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (TRACEBACK, "ServerDisconnectedError"),
        ("Traceback (most recent call last):\n  …\nTimeoutError", "TimeoutError"),
        ("Service Unavailable", "Service Unavailable"),
        ("Bad Request", "Bad Request"),
        ('HTTP 400: {"message": "prompt was: my secret"}', "HTTP 400"),
        ("my secret", "other"),
        ("Secret", "other"),
    ],
)
def test_of_an_error_only_its_kind_is_kept(text, kind):
    assert error_kind(text) == kind


def test_sglang_results_are_not_claimed():
    sglang = {
        "backend": "sglang", "dataset_name": "random", "request_rate": 4.0, "max_concurrency": 16, "duration": 60.1,
        "completed": 9, "total_input_tokens": 1, "total_output_tokens_retokenized": 2, "mean_e2e_latency_ms": 1.0,
    }  # fmt: skip
    assert FORMAT.detect(json.dumps(sglang).encode()) == 0


def test_sorted_keys_behind_long_arrays_are_still_recognised():
    head = json.dumps(HEADER | DETAILS | SUMMARY, sort_keys=True, indent=2).encode()[:65536]
    assert FORMAT.detect(head) > 0.5


RECORDED = sorted(SHARED.glob("truth/*/client-*.json")) + sorted(SHARED.glob("reallogs/bench_results/SemiAnalysis*.json"))


@pytest.mark.skipif(not RECORDED, reason="the recordings are not beside this checkout")
def test_recorded_results_give_what_json_says():
    for path in RECORDED:
        said = json.loads(path.read_text())
        result = read(FORMAT, path)
        run = result.rows["bench_runs"][0]
        assert (run["completed"], run["duration_s"], run["model"]) == (said["completed"], said["duration"], said["model_id"])
        requests = result.rows.get("bench_requests", [])
        assert len(requests) == len(said.get("ttfts", []))
        assert sum(len(row["gaps_s"]) for row in requests) == sum(map(len, said.get("itls", [])))
        assert sum(not row["is_failed"] for row in requests) == (said["completed"] if requests else 0)
        assert all(row["latency_s"] == pytest.approx(row["ttft_s"] + sum(row["gaps_s"]), abs=0.05) for row in requests)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from([*HEADER, *DETAILS, *LATENCIES, *SERVER, "mean_ttft_ms"]), json_values))
def test_no_value_breaks_the_reader(values):
    read(FORMAT, json.dumps(HEADER | values))


@given(st.binary(max_size=60), st.integers(0, 300))
def test_no_bytes_break_the_reader(junk, cut):
    for content in (junk, json.dumps(HEADER | DETAILS).encode()[:cut] + junk):
        assert 0 <= FORMAT.detect(content) <= 1
        assert re.fullmatch(r"(input: .+)?", refusal(FORMAT, content))


def test_generated_texts_are_nowhere():
    result = read(FORMAT, json.dumps(HEADER | DETAILS | {"generated_texts": ["my secret"] * 4}))
    assert "secret" not in str(result.rows)
