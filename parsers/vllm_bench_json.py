"""`vllm bench serve` (and its ancestor benchmark_serving.py) results, 0.6.3 to 0.33: one object per run.

    {"date": "20261129-131307", "endpoint_type": "openai", "backend": "openai", "label": null, "model_id": "tiny",
     "num_prompts": 120, "request_rate": "inf", "max_concurrency": 32, "duration": 34.99, "completed": 120, "failed": 0, …,
     "input_lens": [314, 244], "output_lens": [333, 0], "ttfts": [0.126, 0.0], "itls": [[0.070, 0.040], []],
     "start_times": [1326.849, 1326.850], "latencies": [3.495, 0.0], "errors": ["", "Traceback …"], …, "mean_ttft_ms": 4986.76}

An object becomes a row of `bench_runs`, and each of its requests a row of `bench_requests`; the account counts objects. A file
holds one object, several behind each other (`--append-result`), or a list of them (`vllm bench sweep`).

The client writes 0 where it has nothing, so zeros are read with care: a time to first token or a latency of 0 is null, and
where no request completed the aggregates are null. No field says that a request succeeded: it failed where `errors` has a text
for it, or where it has neither a first token nor any output (an HTTP failure with an empty reason leaves no text).
`start_times` are on the client's monotonic clock; `date` is the local time at the end of the run. Generated texts are not
kept, and of an error only its exception class or HTTP reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from parsers import Format
from parsers.bench_rows import BATCH_REQUESTS, error_kind, read_documents, real, reals, text, whole
from parsers.json_text import elements_in
from parsers.source import Account, Sink, Source

_DATE = "%Y%m%d-%H%M%S"

# Present in every version; `date` in this form is vLLM's alone.
_ESSENTIAL = ("date", "duration", "completed")
_PER_REQUEST = ("input_lens", "output_lens", "ttfts", "itls", "errors", "start_times", "latencies", "queue_times")
_NOT_AGGREGATES = {
    "num_prompts", "best_of", "request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed",
    "total_input_tokens", "total_output_tokens", "run_number", "ramp_up_start_rps", "ramp_up_end_rps",
}  # fmt: skip

_HEAD_DATE = re.compile(rb'"date"\s*:\s*"\d{8}-\d{6}"')
_HEAD_KEYS = tuple(
    re.compile(rb'"%s"\s*:' % key)
    for key in (b"model_id", b"tokenizer_id", b"num_prompts", b"request_rate", b"duration", b"completed", b"total_input_tokens")
)


def parse(source: Source, sink: Sink) -> Account:
    """Read one file into the sink. InputError where not even its first object is whole."""
    return read_documents(source, sink, _read, of=elements_in)


def _read(result: Any, run_index: int, name: str, sink: Sink) -> bool:
    """One run into the sink; False where this is none."""
    if not (isinstance(result, dict) and all(key in result for key in _ESSENTIAL)):
        return False
    arrays = {
        key: value for key in (*_PER_REQUEST, "server_queue_times", "server_ttfts") if isinstance(value := result.get(key), list)
    }
    count = max((len(arrays[key]) for key in _PER_REQUEST if key in arrays), default=0)
    completed = whole(result.get("completed"))
    run = {
        "source": name,
        "run_index": run_index,
        "client": "vllm_bench",
        "model": text(result.get("model_id")),
        "date_local": _date(result.get("date")),
        "duration_s": real(result.get("duration")),
        "completed": completed,
        "failed": whole(result.get("failed")),
        "num_prompts": whole(result.get("num_prompts")),
        "request_rate": real(result.get("request_rate")),
        "max_concurrency": whole(result.get("max_concurrency")),
        "has_details": count > 0,
        "total_input_tokens": whole(result.get("total_input_tokens")),
        "total_output_tokens": whole(result.get("total_output_tokens")),
        "aggregates": _aggregates(result) if completed else None,
    }
    sink.write_rows("bench_runs", [run])
    for start in range(0, count, BATCH_REQUESTS):
        rows = (_request(arrays, index) for index in range(start, min(start + BATCH_REQUESTS, count)))
        sink.write_rows("bench_requests", [{"source": name, "run_index": run_index, **row} for row in rows])
    return True


def _request(arrays: Mapping[str, list], index: int) -> dict[str, object]:
    """One request out of the arrays that have it."""

    def of(key: str) -> object:
        values = arrays.get(key, ())
        return values[index] if index < len(values) else None

    gaps = reals(of("itls"))
    ttft = real(of("ttfts"))
    output = whole(of("output_lens"))
    latency = real(of("latencies"))
    error = text(of("errors"))
    failed = _is_failed(error, output, ttft, latency)
    if latency is None and ttft and gaps is not None:
        latency = ttft + sum(gaps)
    return {
        "request_index": index,
        "start_mono_s": real(of("start_times")),
        "client_queue_s": real(of("queue_times")),
        "input_tokens": whole(of("input_lens")),
        "output_tokens": output,
        "ttft_s": ttft or None,
        "latency_s": None if failed else latency or None,
        "gaps_s": gaps,
        "gap_kind": "chunk" if gaps else None,
        "is_failed": failed,
        "error_kind": error_kind(error) if error else None,
        "server_queue_s": real(of("server_queue_times")),
        "server_ttft_s": real(of("server_ttfts")),
    }


def _is_failed(error: str | None, output: int | None, ttft: float | None, latency: float | None) -> bool | None:
    """By the rule above; None where the arrays that would tell are not there."""
    if error:
        return True
    if output is not None and ttft is not None:
        return output == 0 and ttft == 0
    return latency == 0 if latency is not None else None


def _aggregates(result: Mapping[str, object]) -> str:
    """The numbers that sum the run up, as written."""
    numbers = {
        key: value
        for key, value in result.items()
        if key not in _NOT_AGGREGATES and isinstance(value, (int, float)) and real(value) is not None
    }
    return json.dumps(numbers)


def _date(value: object) -> datetime | None:
    try:
        return datetime.strptime(str(value), _DATE)  # noqa: DTZ007  # the client writes no zone
    except ValueError:
        return None


def detect(head: bytes) -> float:
    """The keys of a run, and `date` in the form that only vLLM writes."""
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")) or b'"total_output_tokens_retokenized"' in head:
        return 0.0
    known = sum(key.search(head) is not None for key in _HEAD_KEYS)
    return 0.95 if _HEAD_DATE.search(head) and known >= 2 else 0.0


FORMAT = Format(
    name="vllm_bench_json",
    title="vllm bench serve results (--save-result, --save-detailed, --append-result, sweep)",
    engine_kind=None,
    versions="vLLM 0.6.3 to 0.33",
    can_tell="time to first token and pauses between chunks of each request, with --save-detailed; when each was sent, from 0.15",
    cannot_tell="why a request paused; the time of day, to better than a second; anything per request without --save-detailed",
    tables=("bench_runs", "bench_requests"),
    detect=detect,
    parse=parse,
)
