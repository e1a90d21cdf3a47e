"""SGLang's request log: how long an answer a request allowed, which is what it is admitted by."""

from __future__ import annotations

import json

import pytest

from parsers.sglang_request_log import event_rows, finished_line, span_of

STOPPED = {"type": "stop", "matched": 2}
AT_LIMIT = {"type": "length", "length": 220}


def finished(reason: dict[str, object], parameters: dict[str, object] | None) -> dict[str, object]:
    """The span of a record of the JSON log; at level 0 it has no parameters."""
    meta = {"prompt_tokens": 81, "completion_tokens": 220, "e2e_latency": 2.4, "finish_reason": reason}
    obj = {"rid": "a1"} if parameters is None else {"rid": "a1", "sampling_params": parameters}
    line = {"timestamp": "2026-11-29T13:23:59.051480", "event": "request.finished", "rid": "a1", "obj": obj}
    rows = dict(event_rows(json.loads(json.dumps(line | {"out": {"meta_info": meta}})), {}))
    return rows["spans"]


@pytest.mark.parametrize(
    ("reason", "parameters", "max_tokens", "ignores_eos"),
    [
        (AT_LIMIT, None, 220, None),
        (STOPPED, None, None, None),
        (STOPPED, {"temperature": 0, "max_new_tokens": 500}, 500, False),
        (AT_LIMIT, {"max_new_tokens": 220, "ignore_eos": True}, 220, True),
        (AT_LIMIT, {"max_new_tokens": 9_999}, 220, False),  # the engine cut it down to what fits
        (STOPPED, {"temperature": 0}, None, False),
        ({"type": "abort"}, None, None, None),
    ],
)
def test_a_limit_is_told_by_the_answer_it_ended_or_by_the_request(reason, parameters, max_tokens, ignores_eos):
    span = finished(reason, parameters)
    assert (span["max_tokens"], span["ignores_eos"]) == (max_tokens, ignores_eos)


def test_the_text_log_tells_it_too():
    line = (
        "Finish: obj=GenerateReqInput(rid='a1'), out={'text': '…', 'meta_info': {'id': 'a1', 'finish_reason': "
        "{'type': 'length', 'length': 220}, 'prompt_tokens': 81, 'completion_tokens': 220, 'e2e_latency': 2.4}}"
    )
    meta = finished_line(line)
    assert meta is not None
    span = span_of(meta)
    assert span is not None
    assert span["max_tokens"] == 220
