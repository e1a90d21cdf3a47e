"""Readers of results that are sums: inference-perf stages and a sweep as a table."""

from __future__ import annotations

import json

from reading import read

from parsers import inference_perf_json, sweep_csv

STAGE = {
    "load_summary": {"count": 7355, "schedule_delay": {"mean": 3.556}, "requested_rate": 122.59, "achieved_rate": 106.49},
    "successes": {
        "count": 7355,
        "latency": {"time_to_first_token": {"median": 3.036, "p99": 3.204}, "inter_token_latency": {"p99": 0.035, "max": 0.057}},
        "throughput": {"output_tokens_per_sec": 6316.8, "requests_per_sec": 101.23},
        "prompt_len": {"mean": 204.0},
        "output_len": {"mean": 61.99999},
    },
    "failures": {"count": 0, "request_latency": None, "prompt_len": None},
}
REPORT = {
    "load_summary": {},
    "successes": {
        "count": 937,
        "beyond_any_float": 10**400,
        "queue_len": {"mean": 0},
        "kv_cache_usage_percentage": {"mean": 0.0, "p99": 0.0},
    },
    "failures": {},
}


def test_a_stage_is_a_run_at_the_rate_it_was_asked_for():
    found = read(inference_perf_json.FORMAT, json.dumps(STAGE))
    columns = "client request_rate completed failed num_prompts total_output_tokens has_details"
    assert found.table("bench_runs", columns) == [["inference_perf", "122.59", "7355", "0", "7355", "456010", "False"]]
    run = found.rows["bench_runs"][0]
    assert json.loads(run["aggregates"])["latency.inter_token_latency.max"] == 0.057
    assert (found.account.lines, found.account.used) == (1, 1)


def test_the_report_beside_a_stage_keeps_its_zeros_and_is_no_run_of_its_own():
    run = read(inference_perf_json.FORMAT, json.dumps(REPORT)).rows["bench_runs"][0]
    assert (run["client"], run["request_rate"]) == ("inference_perf_prometheus", None)
    assert json.loads(run["aggregates"])["kv_cache_usage_percentage.p99"] == 0.0
    assert "beyond_any_float" not in run["aggregates"]


def test_an_object_without_results_is_counted_as_not_understood():
    found = read(inference_perf_json.FORMAT, json.dumps({"load_summary": {}, "successes": None}))
    assert (found.account.used, found.account.not_understood) == (0, 1)


def test_each_line_of_a_sweep_table_is_a_run():
    table = "qps,n_ok,wall_s,ttft_p99_s,retractions,log\n0.5,120,328.9,0.07,0,a.log\n\n0.6,120,308.0,,1,b.log\n"
    found = read(sweep_csv.FORMAT, table)
    assert found.table("bench_runs", "run_index request_rate max_concurrency completed duration_s") == [
        ["0", "0.5", "-", "120", "328.9"],
        ["1", "0.6", "-", "120", "308"],
    ]
    assert "ttft_p99_s" not in json.loads(found.rows["bench_runs"][1]["aggregates"])
    assert (found.account.lines, found.account.used, found.account.ignored) == (4, 2, 2)


def test_a_line_cut_short_or_without_a_level_is_not_understood():
    found = read(sweep_csv.FORMAT, "concurrency,ttft_p99_s,out_tok_s,tpot_p50_ms\n8,0.2\n,0.2,500,20\n16,0.3,700,21\n")
    assert found.table("bench_runs", "max_concurrency request_rate") == [["16", "-"]]
    assert (found.account.not_understood, found.account.first_not_understood) == (2, 2)
