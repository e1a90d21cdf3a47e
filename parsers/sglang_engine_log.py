"""SGLang server log, every era: 0.1.9 to 0.5.23, with data-parallel, tensor-parallel and disaggregated servers.

    [2026-09-13 16:05:59] Prefill batch, #new-seq: 1, #new-token: 351, #cached-token: 36, token usage: 0.81, #running-req: 67, …
    [2026-09-13 16:06:07 DP0 TP0] Decode batch, #running-req: 66, #token: 87282, token usage: 1.00, …, #queue-req: 13
    [2025-06-12 11:41:56 TP0] Prefill batch. #new-seq: 8, …, #running-req: 370, #queue-req: 646                 -> engine_samples
    [2026-09-13 16:06:07] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 646, … -> engine_events
    [2026-11-29 13:23:44] max_total_num_tokens=900, chunked_prefill_size=256, …, max_running_requests=8, …       -> engine_config
    [2026-11-29 13:23:59] {"timestamp": "…", "event": "request.finished", "rid": "a1", …}                        -> spans

Fields of a batch line come and go and change their order, so each is looked up by its name; one the line lacks is null. What
they mean: `token usage` leaves out the cached prefixes that may be evicted, so a pool full of them shows 0.00, and near 1.00
means that the next steps retract. A hybrid model prints one usage for each of its pools. `#running-req` of a prefill line does
not count the requests it admits; here they are added. A retraction line is one event of several requests, never names them,
and `#new_tokens_gained` counts prefix blocks evicted with them too. With tensor parallelism only rank 0 prints; each
data-parallel rank prints its own.

Decode lines come every so many steps (40 by default), not seconds: an engine that stands still prints nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from parsers import Format
from parsers.lmcache_log import lmcache_rows
from parsers.log_reading import Entry, Grammar, Row, entries, head_lines, literals, read_log
from parsers.sglang_config_lines import SERVER_ARGS, settings_of
from parsers.sglang_request_log import event_rows, finished_line, span_of
from parsers.source import Account, Sink, Source

GRAMMAR = Grammar(
    literals=literals(
        *("fill batch", "Prefil batch", "Decode batch", "#retracted_reqs", "#running-req", "retract_decode: "),
        *("max_total_num_token", "server_args=", "swa_layer_tokens="),
        *("fired up and ready", "SIGTERM received", "SIGQUIT received"),
        *("Load weight begin", "Load weight end", "KV Cache is allocated", "KV cache allocated", "Mamba Cache is allocated"),
        *("out of memory", "request queue is full", "without backup due to host", "load_back: FAILED", "HiCache ", "LMCache "),
        *("memory leak detected", "pool leak detected", '"event": "', "GenerateReqInput(", "Scheduler hit an exception"),
        *("group aborted: KV cache pool is full", "Not enough memory. Please try"),
    ),
    start=re.compile(
        r"(?:Prefill?|Decode) batch\b|new fill batch\. |(?:(?<=\] )|^)#running-req: |KV cache pool is full\. Retract"
        r"|Testing retraction\. "
        r"|[Dd]ecode out of memory happened|retract_decode: |server_args=|max_total_num_tokens?=|Use sliding window memory pool"
        r"|Load weight (?:begin|end)\. |(?:KV|Mamba) Cache is allocated\. |Post-capture KV sizing: KV cache allocated\. "
        r"|The server is fired up|SIG(?:TERM|QUIT) received|(?:Prefill|Decode) out of memory|The request queue is full"
        r"|write_back: |load_back: |HiCache |(?:Receive|Finish): obj=|Scheduler hit an exception|Beam search group aborted"
        r"|RuntimeError: Not enough memory|torch\.(?:cuda\.)?OutOfMemoryError"
        r"|(?:KV cache pool|token_to_kv_pool_allocator memory) leak detected|LMCache (?:DEBUG|INFO|WARNING|ERROR): "
    ),
    must_be_understood=re.compile(r"^[^'\"]*(?:Prefill? batch|Decode batch|#retracted_reqs|max_total_num_tokens?=)"),
)

# [2026-09-13 16:06:07 DP0 TP0] …: the ranks of the process that wrote the line
RANKS = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,\d]*(?P<ranks>(?: [A-Z_]+\d+)+)\]")
DP_RANK = re.compile(r"\bDP(\d+)")

# Prefill batch, · Prefill batch. · Prefill batch [17], · Prefill batch(mixed #running-req: 3). · new fill batch.
BATCH = re.compile(
    r"(?P<kind>Prefill?|Decode|new fill) batch(?:\(mixed #running-req: (?P<mixed>\d+)\))?(?: \[\d+\])?[.,] |(?=#running-req: )"
)
# #queue-req: 13, · token usage: 1.00, · cuda graph: False, · cache hit rate: 12.34%, · #new_token: 17.
FIELD = re.compile(r"(?P<key>#?[A-Za-z][\w#/() -]*?): (?P<value>True|False|-?\d+(?:\.\d+)?|nan)%?(?=[,.]?(?:\s|$))")

COUNTS = {
    "#running-req": "running",
    "#queue-req": "waiting",
    "#remaining-req": "waiting",  # 0.1.9
    "#token": "kv_used_tokens",
    "#full token": "kv_used_tokens",
    "#pending-token": "waiting_tokens",
    "#new-seq": "prefill_requests",
    "#seq": "prefill_requests",  # 0.1.9
    "#new-token": "prefill_tokens",
    "#cached-token": "prefill_cached_tokens",
}
SHARES = {
    "token usage": "kv_usage_ratio",
    "full token usage": "kv_usage_ratio",
    "swa token usage": "swa_usage_ratio",
    "mamba usage": "mamba_usage_ratio",
}
RATES = {"gen throughput (token/s)": "generation_tokens_per_s", "input throughput (token/s)": "prompt_tokens_per_s"}

# KV cache pool is full. Retract requests. #retracted_reqs: 1[, #aborted_retracted_reqs: 0][, #new_tokens_gained: 646], …
RETRACTION = re.compile(
    r"(?:KV cache pool is full\. Retract requests\.|Testing retraction\.|[Dd]ecode out of memory happened[.,])\s+"
    r"#retracted_reqs: (?P<retraction>\d+)(?:, #aborted_retracted_reqs: (?P<request_failed_no_kv>\d+))?"
    r"(?:, #new_tokens_gained: (?P<retraction_freed_tokens>-?\d+))?"
)
# Each line, and the event it is; `count` and `request_id` are what those groups hold.
EVENTS = tuple(
    (event, re.compile(pattern))
    for event, pattern in (
        # retract_decode: aborted last request a7 due to OOM · … aborted request a7: Retraction host KV pool exhausted
        ("request_failed_no_kv", r"retract_decode: aborted (?:last )?request (?P<request_id>[^\s:]+)"),
        ("request_failed_no_kv", r"Beam search group aborted: KV cache pool is full"),
        ("request_rejected", r"The request queue is full"),
        # RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.
        ("start_no_kv_memory", r"(?:\w+: )?Not enough memory\. Please try to increase --mem-fraction-static"),
        ("engine_ready", r"The server is fired up and ready to roll!"),
        ("engine_start", r"server_args="),
        ("engine_shutdown", r"SIGTERM received"),
        ("engine_dead", r"SIGQUIT received|Scheduler hit an exception"),
        (
            "engine_failure",
            (
                r"(?:Prefill|Decode) out of memory\. Try to lower|torch\.(?:cuda\.)?OutOfMemoryError"
                r"|(?:KV cache pool|\w+ memory) leak detected"
            ),
        ),
        # write_back: KV subtree dropped without backup due to host memory pressure, root node 17
        ("kv_dropped", r"write_back: .{0,80} without backup due to host memory pressure"),
        # load_back: FAILED to load 640 tokens for node 17 even after eviction (evictable_size=0)
        ("kv_restore_failed", r"load_back: FAILED to load (?P<count>\d+) tokens"),
        # HiCache prefetch success req=a7 completed=512 matched=0 loaded=512 occupied=640
        ("kv_restored", r"HiCache prefetch success req=(?P<request_id>\S+) .*?\bloaded=(?P<count>\d+)"),
        # HiCache device prefix shrank before admission req=a7 lookup_match=512 current_match=128; reissuing storage lookup
        ("prefix_evicted_while_queued", r"HiCache device prefix shrank before admission req=(?P<request_id>\S+)"),
    )
)
RECEIVE = re.compile(r"Receive: obj=GenerateReqInput\((?:.*?, )?rid='(?P<rid>[^']{1,200})'")


def _rows(text: str) -> Iterator[Row]:
    if (request := _request_event(text)) is not None:
        yield from request
        return
    for entry in entries(text, GRAMMAR.start):
        columns = entry.columns | _ranks(entry.prefix)
        yield from _batch(entry, columns)
        yield from _events(entry, columns)
        for key, value in settings_of(entry.message).items():
            yield "engine_config", columns | {"key": key, "value_text": value}
        yield from _request_text(entry, columns)
        yield from lmcache_rows(entry, columns)


def _ranks(prefix: str) -> dict[str, Any]:
    """Process and engine of `[… DP1 TP0] `."""
    found = RANKS.search(prefix)
    if not found:
        return {}
    rank = DP_RANK.search(found["ranks"])
    return {"process": found["ranks"].strip()} | ({"engine": rank[1]} if rank else {})


def _batch(entry: Entry, columns: dict[str, Any]) -> Iterator[Row]:
    """The row of a prefill or decode line."""
    batch = BATCH.match(entry.message)
    if not batch:
        return
    row: dict[str, Any] = {}
    for found in FIELD.finditer(entry.message, batch.end()):
        key, value = found["key"].strip(), found["value"]
        key = key.replace("_", "-") if key.startswith("#") else key
        if (column := COUNTS.get(key)) and value.isdigit():
            row[column] = int(value)
        elif (column := SHARES.get(key) or RATES.get(key)) and value not in ("nan", "True", "False"):
            row[column] = float(value)
        elif key.endswith(" graph") and value in ("True", "False"):
            row["has_graph"] = value == "True"
    if batch["mixed"]:
        row.setdefault("running", int(batch["mixed"]))
    if not row.keys() & {"running", "waiting", "kv_usage_ratio"}:
        return
    if "running" in row:
        row["running"] += row.get("prefill_requests", 0)
    yield "engine_samples", columns | row


def _events(entry: Entry, columns: dict[str, Any]) -> Iterator[Row]:
    if retraction := RETRACTION.match(entry.message):
        for event, count in retraction.groupdict().items():
            if count is not None and (event == "retraction" or int(count)):
                yield "engine_events", columns | {"event": event, "count": int(count)}
        return
    for event, pattern in EVENTS:
        if found := pattern.match(entry.message):
            groups = found.groupdict()
            count = groups.get("count") or ("1" if event.startswith("request_") else None)
            row = {"event": event, "request_id": groups.get("request_id"), "count": int(count) if count else None}
            yield "engine_events", columns | row
            return


def _request_event(text: str) -> list[Row] | None:
    """Rows of a line of the JSON request log; None where it is no such line."""
    at = text.find('{"timestamp": "')
    if at < 0 or '"event": "' not in text[at : at + 200]:
        return None
    try:
        record = json.loads(text[at:])
    except (ValueError, RecursionError):
        return []
    return list(event_rows(record, _ranks(text[:at]))) if isinstance(record, dict) else []


def _request_text(entry: Entry, columns: dict[str, Any]) -> Iterator[Row]:
    """Rows of the text request log; what a user wrote is not looked at."""
    line = {name: value for name, value in columns.items() if name != "engine"}
    if entry.message.startswith("Receive: obj="):
        if found := RECEIVE.match(entry.message):
            yield "request_lines", line | {"event": "received", "request_id": found["rid"]}
    elif entry.message.startswith("Finish: obj="):
        meta = finished_line(entry.message)
        if meta and (span := span_of(meta)):
            yield "spans", span
        yield "request_lines", line | {"event": "finished", "request_id": meta.get("id") if meta else None}


def parse(source: Source, sink: Sink) -> Account:
    """Read one log."""
    return read_log(source, sink, GRAMMAR, _rows)


READY = "The server is fired up and ready to roll!"


def detect(head: bytes) -> float:
    """How sure it is that this is the log of an SGLang server."""
    own = re.compile(
        r"(?:Prefill?|Decode) batch[ ,.(]|new fill batch\. #|#retracted_reqs: |server_args=(?:ServerArgs\(|\{'model_path')"
        r"|max_total_num_tokens?=\d+, |^[^'\"]*(?:Receive|Finish): obj=GenerateReqInput\("
        r"|^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] \{\"timestamp\": \"[^\"]+\", \"event\": \"request\."
    )
    lines = head_lines(head)
    if any(own.search(line[:4000]) for line in lines):
        return 0.95
    return 0.6 if any(SERVER_ARGS.search(line) or READY in line for line in lines) else 0.0


FORMAT = Format(
    name="sglang_engine_log",
    title="SGLang server log",
    engine_kind="sglang",
    versions="0.1.9 to 0.5.23",
    can_tell="each retraction (count, not which request), load, queue and active KV usage per batch line; capacity and settings",
    cannot_tell="prefix evictions (no line at all); how many tokens a retraction repeated; retractions by priority",
    tables=("engine_samples", "engine_config", "engine_events", "request_lines", "spans"),
    detect=detect,
    parse=parse,
)
