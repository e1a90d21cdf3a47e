"""SGLang's own record of each request: what `--export-metrics-to-file` and `--log-requests-format json` write.

    {"request_parameters": "{…}", "id": "a2", "prompt_tokens": 81, "num_retractions": 1, "queue_time": 2.73, …}
    {"timestamp": "2026-11-29T13:23:59.051480", "event": "request.finished", "rid": "a1", "obj": {…}, "out": {"meta_info": {…}}}
    {"timestamp": "…", "event": "scheduler.status", "rank": 0, "running_rids": ["a1"], "queued_rids": ["a7"]}
    [{"text": "…", "meta_info": {"id": "a1", "prompt_tokens": 81, …}}, …]                          answers of /generate, kept

Each finished request becomes a row of `spans`, on the server's wall clock. `queue_time` counts every wait, the one after a
retraction too; what goes beyond the wait before the first run is the wait to run again. `cached_tokens` is frozen at the first
prefill from 0.5.6 on (before, a retraction made it negative or doubled it): it never shows what a retraction repeated.

`max_tokens` is the limit that ended an answer; of others the log tells it from level 1 on, under `sampling_params`.

Prompts, answers and request parameters other than the limit are not looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from parsers import Format
from parsers.json_text import count, decode_line, elements_in, number
from parsers.log_reading import Row, Rows, local_time
from parsers.source import Account, Sink, Source

# The last three are answers that were saved as one JSON document rather than lines.
_REQUEST = re.compile(rb'"(?:forward_entry_time|queue_time|e2e_latency|num_retractions|total_retractions)"\s*:')
_META = re.compile(rb'"(?:request_parameters|meta_info|meta|completion_tokens)"\s*:')
_EVENT = re.compile(rb'"event"\s*:\s*"(?:request\.(?:received|finished)|scheduler\.status)')


def span_of(meta: dict[str, Any]) -> dict[str, Any] | None:
    """The `spans` row of one request's `meta_info`; None where it says neither when nor how long."""
    arrived, first_run = number(meta.get("request_received_ts")), number(meta.get("forward_entry_time"))
    prefilled, ended = number(meta.get("prefill_finished_time")), number(meta.get("request_finished_ts"))
    ttft, e2e, waited = (number(meta.get(name)) for name in ("first_token_latency", "e2e_latency", "queue_time"))
    if "prompt_tokens" not in meta or (arrived is None and e2e is None and waited is None):
        return None
    ended = arrived + e2e if ended is None and arrived is not None and e2e is not None else ended
    queue = _between(arrived, first_run)
    if queue is None:
        queue = waited if not _retractions(meta) else None
    return {
        "name": "sglang_request",
        "request_id": meta.get("id") if isinstance(meta.get("id"), str) else None,
        "start_at": _instant(arrived),
        "end_at": _instant(ended),
        "input_tokens": count(meta.get("prompt_tokens")),
        "output_tokens": count(meta.get("completion_tokens")),
        "max_tokens": _reached_limit(meta),
        "cached_tokens": count(meta.get("cached_tokens")),
        "ttft_s": ttft,
        "e2e_s": e2e,
        "queue_s": queue,
        "prefill_s": _between(first_run, prefilled),
        "decode_s": _between(ttft, e2e),
        "inference_s": _between(first_run, ended),
        "preemptions": _retractions(meta),
        "requeue_s": _requeue(meta, waited, queue),
    }


def _retractions(meta: dict[str, Any]) -> int | None:
    """`total_retractions` from 0.5.5, `num_retractions` from 0.5.12."""
    return count(meta.get("num_retractions", meta.get("total_retractions")))


def _requeue(meta: dict[str, Any], waited: float | None, queue: float | None) -> float | None:
    """Wait to run again: 0 for a request that was never retracted, null where retractions are not said."""
    retractions = _retractions(meta)
    if not retractions:
        return None if retractions is None else 0.0
    return max(0.0, waited - queue) if waited is not None and queue is not None else None


def event_rows(entry: dict[str, Any], columns: dict[str, Any]) -> Iterator[Row]:
    """Rows of one JSON request-log record; `columns` are what its prefix gives. Nothing for an event of another kind."""
    event, stamp = entry.get("event"), entry.get("timestamp")
    local = local_time(stamp) if isinstance(stamp, str) else None
    when = columns | ({"at_local": local} if local else {})
    if event == "scheduler.status":
        running, queued = entry.get("running_rids"), entry.get("queued_rids")
        if isinstance(running, list) and isinstance(queued, list):
            rank = count(entry.get("dp_rank"))
            engine = {} if rank is None else {"engine": str(rank)}
            yield "engine_samples", when | engine | {"running": len(running), "waiting": len(queued)}
        return
    line = {name: value for name, value in when.items() if name != "engine"}
    if event in ("request.received", "request.received.openai"):
        # the OpenAI form of a request is logged beside the engine's own: one of them is enough
        if event == "request.received":
            yield "request_lines", line | {"event": "received", "request_id": _rid(entry), "max_tokens": _limit(entry)}
        return
    if event != "request.finished":
        return
    out = entry.get("out")
    meta = out.get("meta_info") if isinstance(out, dict) else None
    span = span_of({"id": _rid(entry)} | meta) if isinstance(meta, dict) else None
    if span:
        yield "spans", span | _asked(entry, span)
    ended = {"at_utc": span["end_at"]} if span and span["end_at"] else {}
    yield "request_lines", line | ended | {"event": "finished", "request_id": _rid(entry)}


def _rid(entry: dict[str, Any]) -> str | None:
    rid = entry.get("rid")
    return rid if isinstance(rid, str) else None


def _limit(entry: dict[str, Any]) -> int | None:
    return count(_parameters(entry).get("max_new_tokens"))


def _parameters(entry: dict[str, Any]) -> dict[str, Any]:
    obj = entry.get("obj")
    parameters = obj.get("sampling_params") if isinstance(obj, dict) else None
    return parameters if isinstance(parameters, dict) else {}


def _asked(entry: dict[str, Any], span: dict[str, Any]) -> dict[str, Any]:
    """What the request asked for, as far as the log's level shows it: the limit that was reached is the one that held."""
    parameters = _parameters(entry)
    return {
        "max_tokens": _limit(entry) if span["max_tokens"] is None else span["max_tokens"],
        # what a request does not ask for, it does not get
        "ignores_eos": parameters.get("ignore_eos") is True if parameters else None,
    }


def _reached_limit(meta: dict[str, Any]) -> int | None:
    """An answer that its limit ended says that limit: `"finish_reason": {"type": "length", "length": 220}`."""
    reason = meta.get("finish_reason")
    return count(reason.get("length")) if isinstance(reason, dict) and reason.get("type") == "length" else None


def _answers(value: object) -> Iterator[dict[str, Any]]:
    """The `meta_info` of each answer in a document: of one, of a list, under its own name or flattened."""
    if isinstance(value, list):
        for each in value:
            yield from _answers(each)
    elif isinstance(value, dict):
        for name in ("meta_info", "meta"):
            if isinstance(meta := value.get(name), dict):
                yield meta
                return
        if "prompt_tokens" in value:
            yield value


def _rows_of(value: object) -> list[Row]:
    if isinstance(value, dict) and isinstance(value.get("event"), str):
        return list(event_rows(value, {}))
    return [("spans", span) for meta in _answers(value) if (span := span_of(meta))]


def parse(source: Source, sink: Sink) -> Account:
    """Read one file: JSON lines, or one document of several answers."""
    if source.head().lstrip().startswith(b"["):
        return _parse_document(source, sink)
    account, rows = Account(), Rows(source.name, sink)
    with account.kept_to_the_fault(), source.open() as stream:
        for line in stream:
            account.lines += 1
            rows.take(account, _rows_of(decode_line(_json_of(line))), is_known=not line.strip())
    rows.write()
    return account


def _json_of(line: bytes) -> bytes:
    """The JSON of a line that may have a stamp before it."""
    return line[max(line.find(b"{"), 0) :]


def _parse_document(source: Source, sink: Sink) -> Account:
    """One JSON array: each of its elements is a record."""
    account, rows = Account(), Rows(source.name, sink)
    for each in elements_in(source, account):
        account.lines += 1
        # known without a row: a request that failed has no meta_info
        rows.take(account, _rows_of(each), is_known=isinstance(each, dict) and not any(_answers(each)))
    rows.write()
    return account


def _between(start: float | None, end: float | None) -> float | None:
    return max(0.0, end - start) if start is not None and end is not None else None


def _instant(epoch_s: float | None) -> datetime | None:
    return datetime.fromtimestamp(epoch_s, UTC) if epoch_s is not None and 0 < epoch_s < 1e11 else None


def finished_line(text: str) -> dict[str, Any] | None:
    """The `meta_info` of a `Finish: obj=…, out={…}` line of the text log: numbers and id, behind all that a user wrote."""
    at = text.rfind("'meta_info': {")
    if at < 0:
        return None
    tail = text[at:]
    meta: dict[str, Any] = {name: json.loads(value) for name, value in re.findall(r"'(\w+)': (-?\d+(?:\.\d+)?)(?=[,}])", tail)}
    if rid := re.search(r"'id': '([^']{1,200})'", tail):
        meta["id"] = rid[1]
    if limit := re.search(r"'finish_reason': \{'type': 'length', 'length': (\d+)\}", tail):
        meta["finish_reason"] = {"type": "length", "length": int(limit[1])}
    return meta


def detect(head: bytes) -> float:
    """JSON that carries the request fields only SGLang has."""
    start = head.lstrip()
    if not start.startswith((b"{", b"[")) or b"GenerateReqInput(" in head:
        return 0.0
    if _EVENT.search(head[:4096]) and start.startswith(b"{"):
        return 0.95
    return 0.9 if _META.search(head) and _REQUEST.search(head) and b'"prompt_tokens"' in head else 0.0


FORMAT = Format(
    name="sglang_request_log",
    title="SGLang per-request records: --export-metrics-to-file, JSON request log, saved /generate answers",
    engine_kind="sglang",
    versions="0.5.5 to 0.5.23",
    can_tell="which requests were retracted, how often, and how long each waited before its first run and to run again",
    cannot_tell="when a retraction happened; how many tokens it repeated (cached_tokens is frozen at the first prefill)",
    tables=("spans", "request_lines", "engine_samples"),
    detect=detect,
    parse=parse,
)
