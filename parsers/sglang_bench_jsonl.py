"""SGLang `bench_serving` results, 0.2.15 to 0.5.23: one object per run, appended to a file.

    {"backend": "sglang", "dataset_name": "random", "request_rate": Infinity, "max_concurrency": 32, "duration": 61.2,
     "completed": 120, "total_input_tokens": 31210, "total_output_tokens": 14002, "total_output_tokens_retokenized": 13990,
     "mean_ttft_ms": 512.1, …, "input_lens": [314], "output_lens": [333], "ttfts": [0.126], "itls": [[0.07, 0.04]], …}

An object becomes a row of `bench_runs`, and with `--output-details` each request a row of `bench_requests`. No version writes
when a request was sent, so no request can be placed in time. What a gap is depends on the backend: the native one divides the
wait for a chunk of n tokens by n and writes it n times (`smoothed_token`: a pause of a second may look like eight of 125 ms), the
others write the wait for each chunk. `request_rate` is `Infinity` or `trace` where there is no limit.
"""

from __future__ import annotations

from typing import Any

from parsers import Format
from parsers.bench_rows import (
    begins_as_json,
    error_kind,
    has_keys,
    numbers_in,
    read_documents,
    real,
    reals,
    text,
    whole,
    write_requests,
)
from parsers.source import Account, Sink, Source

NATIVE = ("sglang", "sglang-native", "sglang-embedding")
DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "errors")
NOT_AGGREGATES = (
    *DETAILS, "generated_texts", "server_info", "request_rate", "max_concurrency", "duration", "completed", "total_input_tokens",
    "total_output_tokens", "cached_tokens", "cached_tokens_details",
)  # fmt: skip


def parse(source: Source, sink: Sink) -> Account:
    """Read one file."""
    return read_documents(source, sink, _read)


def _read(result: Any, run_index: int, name: str, sink: Sink) -> bool:
    if not isinstance(result, dict) or "backend" not in result or "duration" not in result:
        return False
    arrays = {key: result[key] for key in DETAILS if isinstance(result.get(key), list)}
    count = max(map(len, arrays.values()), default=0)
    completed = whole(result.get("completed"))
    backend = text(result.get("backend"))
    info = result.get("server_info")
    sink.write_rows(
        "bench_runs",
        [
            {
                "source": name,
                "run_index": run_index,
                "client": "sglang_bench",
                "model": text(info.get("model_path")) if isinstance(info, dict) else None,
                "duration_s": real(result.get("duration")),
                "completed": completed,
                "failed": count - completed if count and completed is not None and count >= completed else None,
                "num_prompts": count or None,
                "request_rate": real(result.get("request_rate")),
                "max_concurrency": whole(result.get("max_concurrency")),
                "has_details": count > 0,
                "total_input_tokens": whole(result.get("total_input_tokens")),
                "total_output_tokens": whole(result.get("total_output_tokens")),
                "aggregates": numbers_in(result, but=NOT_AGGREGATES) if completed else None,
            }
        ],
    )
    write_requests(sink, name, run_index, (_request(arrays, index, backend) for index in range(count)))
    return True


def _request(arrays: dict[str, list[Any]], index: int, backend: str | None) -> dict[str, object]:
    def of(key: str) -> Any:
        values = arrays.get(key, ())
        return values[index] if index < len(values) else None

    gaps, ttft, output, error = reals(of("itls")), real(of("ttfts")), whole(of("output_lens")), text(of("errors"))
    failed = bool(error) or (not output and not ttft)
    return {
        "input_tokens": whole(of("input_lens")),
        "output_tokens": output,
        "ttft_s": ttft or None,
        "latency_s": ttft + sum(gaps) if ttft and gaps is not None and not failed else None,
        "gaps_s": gaps,
        "gap_kind": ("smoothed_token" if backend in NATIVE else "chunk") if gaps else None,
        "is_failed": failed,
        "error_kind": error_kind(error) if error else None,
    }


def detect(head: bytes) -> float:
    """The token count that only this client makes a second time, or its names for latencies."""
    if not begins_as_json(head) or not has_keys(head, "backend", "duration", "completed"):
        return 0.0
    own = b'"total_output_tokens_retokenized"' in head or has_keys(head, "dataset_name", "request_rate")
    return 0.95 if own and b'"date"' not in head[:4096] else 0.0


FORMAT = Format(
    name="sglang_bench_jsonl",
    title="SGLang bench_serving results (--output-file, --output-details)",
    engine_kind=None,
    versions="SGLang 0.2.15 to 0.5.23",
    can_tell="time to first token of each request, and gaps between chunks (native backend: smoothed), with --output-details",
    cannot_tell="when a request was sent; with the native backend how long its longest pause was; the client's own queue",
    tables=("bench_runs", "bench_requests"),
    detect=detect,
    parse=parse,
)
