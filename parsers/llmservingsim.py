"""LLMServingSim's recordings of vLLM: a folder of load once a second, of every request, and of the engine's settings.

    t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct                          timeseries.csv -> engine_samples
    5.0,5798.0,970.0,40,12,100.0
    {"request_id":"bench-0","input_toks":2358,"output_toks":531,"arrival_time":1787267980.08,"queued_ts":27536.6607,
     "scheduled_ts":27536.6608,"first_token_ts":27537.35,"last_token_ts":27554.23}           requests.jsonl -> spans
    {"schema_version":1,"model":"meta-llama/Llama-3.1-8B","vllm_version":"0.19.0","engine_kwargs":{"max_num_seqs":256,…},
     "started_at":"2026-04-25T18:47:18.273385Z","kv_cache":{"num_gpu_blocks":2588,"block_size":16,"num_kv_tokens":41408},
     "resolved_config":{"cache_config":{…},"scheduler_config":{…},…}}                        meta.json -> engine_config

The arrival is on an absolute clock, the other moments of a request on the engine's monotonic one: only their distances are
used. The load's clock counts from the start of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Any

from parsers import Format
from parsers.bench_rows import begins_as_json, epoch, has_keys, of, real, seconds_between, text, whole
from parsers.columns import START_OF_CLOCK
from parsers.csv_line import cells
from parsers.json_text import decode_line, decoded, read_rest
from parsers.source import Account, Sink, Source
from parsers.unix_time import seconds_later
from parsers.vllm_config_lines import settings_in

HEADER = b"t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct"
# what vLLM made of its arguments, by part, and what it calls there otherwise than on its command line
PARTS = ("cache_config", "model_config", "parallel_config", "scheduler_config", "lora_config")
PART_NAMES = {"cache_dtype": "kv_cache_dtype", "policy": "scheduling_policy"}
SIZES = {"num_gpu_blocks": "num_gpu_blocks", "num_cpu_blocks": "num_cpu_blocks", "num_kv_tokens": "kv_capacity_tokens"}

Row = tuple[str, int, dict[str, object]]  # table, line


def parse(source: Source, sink: Sink) -> Account:
    """Read one of the three files."""
    account, rows = Account(), dict[str, list[dict[str, object]]]()
    with account.kept_to_the_fault(), source.open() as stream:
        first = next(iter(stream), b"")
        lines = (decoded(line) for line in chain((first,), stream))
        if first.strip() == HEADER:
            found = _load(lines, account)
        elif b'"arrival_time"' in first:
            found = _requests(lines, account)
        else:
            content, account.error = read_rest(first, stream, source.name)
            found = _settings(content, account)
        for table, line, row in found:
            rows.setdefault(table, []).append({"source": source.name, "line": line, **row})
    for table, each in rows.items():
        sink.write_rows(table, each)
    return account


def _load(lines: Iterator[str], account: Account) -> Iterator[Row]:
    names = cells(next(lines, ""))
    account.lines = account.ignored = 1  # the header
    for number, line in enumerate(lines, start=2):
        account.lines = number
        if not line.strip():
            account.ignored += 1
            continue
        row = dict(zip(names, cells(line), strict=False))
        seconds, usage = real(row.get("t")), real(row.get("kv_cache_pct"))
        at = seconds_later(START_OF_CLOCK, seconds) if seconds is not None else None
        if at is None or len(row) < len(names):
            account.misread(number)
            continue
        account.used += 1
        yield (
            "engine_samples",
            number,
            {
                "at_local": at,
                "prompt_tokens_per_s": real(row["prompt_throughput"]),
                "generation_tokens_per_s": real(row["gen_throughput"]),
                "running": whole(row["running"]),
                "waiting": whole(row["waiting"]),
                "kv_usage_ratio": usage / 100 if usage is not None else None,
            },
        )


def _requests(lines: Iterator[str], account: Account) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        account.lines = number
        request = decode_line(line.encode())
        arrived = epoch(real(of(request, "arrival_time")))
        if arrived is None:
            account.misread(number)
            continue
        account.used += 1
        queued, scheduled, first, last = (
            of(request, f"{moment}_ts") for moment in ("queued", "scheduled", "first_token", "last_token")
        )
        e2e = seconds_between(queued, last)
        yield (
            "spans",
            number,
            {
                "name": "llm_request",
                "request_id": text(of(request, "request_id")),
                "start_at": arrived,
                "end_at": seconds_later(arrived, e2e) if e2e is not None else None,
                "input_tokens": whole(of(request, "input_toks")),
                "output_tokens": whole(of(request, "output_toks")),
                "ttft_s": seconds_between(queued, first),
                "e2e_s": e2e,
                "queue_s": seconds_between(queued, scheduled),
                "prefill_s": seconds_between(scheduled, first),
                "decode_s": seconds_between(first, last),
                "inference_s": seconds_between(scheduled, last),
            },
        )


def _settings(content: str, account: Account) -> Iterator[Row]:
    meta: Any = decode_line(content.encode())
    account.lines = 1
    if not isinstance(meta, dict):
        account.misread(1)
        return
    account.used = 1
    try:
        started = datetime.fromisoformat(str(meta.get("started_at")))
    except ValueError:
        started = None
    for key, value in _settings_in(meta).items():
        yield "engine_config", 1, {"at_utc": started, "key": key, "value_text": value}


def _settings_in(meta: dict[str, Any]) -> dict[str, str]:
    """What the engine was asked for, and above it what it made of that, and how large a pool it found room for."""
    pool = _mapping(meta, "kv_cache")
    found = settings_in(_mapping(meta, "engine_kwargs"))
    for part in (_mapping(meta, "resolved_config", name) for name in PARTS):
        found |= settings_in({PART_NAMES.get(name, name): value for name, value in part.items()})
    found |= settings_in(pool) | {SIZES[name]: str(size) for name in SIZES if (size := whole(pool.get(name))) is not None}
    stated = {"model": text(meta.get("model")), "engine_version": text(meta.get("vllm_version"))}
    return found | {key: value for key, value in stated.items() if value}


def _mapping(meta: Any, *path: str) -> dict[str, Any]:
    found = of(meta, *path)
    return found if isinstance(found, dict) else {}


def detect(head: bytes) -> float:
    """The header of the load, the first request, or the settings."""
    if head.startswith(HEADER):
        return 0.95
    if not begins_as_json(head):
        return 0.0
    first = head.lstrip().split(b"\n", 1)[0]
    return (
        0.95
        if has_keys(first, "input_toks", "arrival_time", "queued_ts") or has_keys(head, "engine_kwargs", "vllm_version")
        else 0.0
    )


FORMAT = Format(
    name="llmservingsim",
    title="LLMServingSim recordings of vLLM (timeseries.csv, requests.jsonl, meta.json)",
    engine_kind="vllm",
    versions="schema 1",
    can_tell="load, queue and KV usage once a second; queue, prefill and decode time of each request",
    cannot_tell="preemptions, which neither file counts; the time of day of the load where neither of the others lies beside it",
    tables=("engine_samples", "spans", "engine_config"),
    detect=detect,
    parse=parse,
)
