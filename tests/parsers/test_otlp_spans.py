"""Traces as OTLP/JSON."""

import gzip
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import SHARED, cells, read, refusal

from parsers import InputError
from parsers.otlp_spans import FORMAT

NOON = 1764417600  # 2025-11-29 12:00:00 UTC


def attributes(values: dict) -> list[dict]:
    """As OTLP/JSON writes them: 64-bit integers are strings."""
    kinds = {str: ("stringValue", str), int: ("intValue", str), float: ("doubleValue", float)}
    return [{"key": key, "value": {kinds[type(value)][0]: kinds[type(value)][1](value)}} for key, value in values.items()]


def span(name: str, start_s: float, end_s: float, **values: object) -> dict:
    times = {"startTimeUnixNano": str(int(start_s * 1e9)), "endTimeUnixNano": str(int(end_s * 1e9))}
    return {"traceId": "08d1", "spanId": "4807", "name": name, "kind": 2, **times, "attributes": attributes(values)}


def export(*spans: dict, **resource: str) -> dict:
    return {
        "resourceSpans": [
            {"resource": {"attributes": attributes(resource)}, "scopeSpans": [{"scope": {"name": "x"}, "spans": [*spans]}]}
        ]
    }


V1 = {
    "gen_ai.latency.time_to_first_token": 0.5, "gen_ai.latency.e2e": 3.0, "gen_ai.latency.time_in_queue": 0.25,
    "gen_ai.usage.prompt_tokens": 218, "gen_ai.usage.completion_tokens": 181, "gen_ai.latency.time_in_model_prefill": 0.125,
    "gen_ai.latency.time_in_model_decode": 2.5, "gen_ai.latency.time_in_model_inference": 2.625,
    "gen_ai.request.id": "cmpl-7", "gen_ai.request.max_tokens": 181,
}  # fmt: skip
V0 = {
    "gen_ai.response.model": "llama", "gen_ai.request.id": "cmpl-8", "gen_ai.usage.prompt_tokens": 10,
    "gen_ai.latency.time_in_queue": 0.5, "gen_ai.latency.e2e": 1.0, "gen_ai.latency.time_in_scheduler": 0.01,
}  # fmt: skip

COLUMNS = (
    "line request_id start_at end_at input_tokens output_tokens max_tokens ttft_s e2e_s queue_s prefill_s decode_s inference_s"
)
ROWS = """
    2  cmpl-7  2025-11-29T12:00:00  2025-11-29T12:00:03    218  181  181  0.5  3  0.25  0.125  2.5  2.625
    2  cmpl-8  2025-11-29T12:00:01  2025-11-29T12:00:02.5  10   -    -    -    1  0.5   -      -    -
"""
LOADING = export(span("Load model", NOON - 60, NOON - 30, **{"code.lineno": "111"}))
REQUESTS = export(span("llm_request", NOON, NOON + 3, **V1), span("llm_request", NOON + 1, NOON + 2.5, **V0))


def test_request_spans_of_both_engines():
    trace = read(FORMAT, "\n".join(map(json.dumps, (LOADING, REQUESTS, {"resourceMetrics": []}))) + "\n\n")
    assert trace.table("spans", COLUMNS) == cells(ROWS)
    assert (trace.account.lines, trace.account.used, trace.account.ignored) == (4, 1, 3)


def test_snake_case_is_the_same_trace():
    text = json.dumps(LOADING) + "\n" + json.dumps(REQUESTS)
    for camel, snake in {
        "resourceSpans": "resource_spans", "scopeSpans": "scope_spans", "startTimeUnixNano": "start_time_unix_nano",
        "endTimeUnixNano": "end_time_unix_nano", "stringValue": "string_value", "intValue": "int_value",
        "doubleValue": "double_value",
    }.items():  # fmt: skip
        text = text.replace(camel, snake)
    assert FORMAT.detect(text.encode()) > 0.5
    assert read(FORMAT, text).table("spans", COLUMNS) == cells(ROWS)


def test_indented_documents_are_counted_as_documents():
    text = "\n".join(json.dumps(each, indent=2) for each in (LOADING, REQUESTS))
    assert FORMAT.detect(text.encode()) > 0.5
    trace = read(FORMAT, text)
    assert trace.table("spans", COLUMNS) == cells(ROWS)
    assert (trace.account.lines, trace.account.used, trace.account.ignored) == (2, 1, 1)


def test_the_server_is_named_where_the_resource_names_its_host_and_not_by_its_random_id():
    named = export(span("llm_request", NOON, NOON + 1), **{"host.name": "node-7", "service.instance.id": "27ce00a8"})
    unnamed = export(span("llm_request", NOON, NOON + 1), **{"service.instance.id": "27ce00a8"})
    trace = read(FORMAT, json.dumps(named) + "\n" + json.dumps(unnamed))
    assert trace.table("spans", "instance") == cells("node-7 \n -")


def test_a_broken_line_is_counted_and_the_rest_read():
    trace = read(FORMAT, "\n".join([json.dumps(REQUESTS), json.dumps(REQUESTS)[:90], "{}", json.dumps(REQUESTS)]))
    assert (trace.account.used, trace.account.not_understood, trace.account.first_not_understood) == (2, 2, 2)
    assert len(trace.rows["spans"]) == 4


def test_an_indented_document_cut_in_the_middle_is_refused():
    with pytest.raises(InputError, match=r"^input: JSON ends in the middle \(byte 300\); fetch it again$"):
        read(FORMAT, json.dumps(REQUESTS, indent=2)[:300])


def test_a_truncated_gzip_keeps_the_lines_before_the_cut():
    lines = [json.dumps(export(span("llm_request", NOON + i * 1.618, NOON + i * 1.7, **V1))) for i in range(2000)]
    trace = read(FORMAT, gzip.compress("\n".join(lines).encode())[:20_000])
    assert 100 < len(trace.rows["spans"]) < 2000
    assert trace.account.error == "input: compressed file ends early; copy it again"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not beside this checkout")
def test_recorded_traces_give_each_request_once():
    for path in sorted(SHARED.glob("truth/*/spans.jsonl*")):
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        trace = read(FORMAT, path)
        assert (trace.account.lines, trace.account.not_understood) == (text.count("\n"), 0)
        assert len(trace.rows["spans"]) == text.count('"name":"llm_request"')
        assert all(row["e2e_s"] >= row["ttft_s"] >= row["queue_s"] for row in trace.rows["spans"])


keys = st.sampled_from(["resourceSpans", "scopeSpans", "spans", "name", "attributes", "resource", "key", "value", "intValue"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["llm_request", "gen_ai.latency.e2e", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=15,
)


@given(json_values)
def test_no_value_breaks_the_reader(value):
    broken_span = {
        "name": "llm_request",
        "startTimeUnixNano": value,
        "attributes": [{"key": "gen_ai.latency.e2e", "value": value}],
    }
    for document in (value, {"resourceSpans": value}, export(broken_span), export({"name": "llm_request", "attributes": value})):
        read(FORMAT, json.dumps(document))


@given(st.binary(max_size=80), st.integers(0, 300))
def test_no_bytes_break_the_reader(junk, cut):
    for content in (junk, json.dumps(REQUESTS, indent=1).encode()[:cut] + junk):
        assert 0 <= FORMAT.detect(content) <= 1
        assert re.fullmatch(r"(input: .+)?", refusal(FORMAT, content))
