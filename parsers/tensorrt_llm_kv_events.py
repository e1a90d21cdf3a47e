"""TensorRT-LLM KV-cache events: what `/kv_cache_events` of trtllm-serve drains, kept in a file.

    {"event_id": 7, "data": {"type": "stored", "parent_hash": 12, "blocks": [{"block_hash": 34, "tokens": [{"token_id": 1, …}, …],
      "cache_level": 0, …}]}, "window_size": 4096}
    {"event_id": 8, "data": {"type": "updated", "block_hash": 34, "cache_level": {"new_value": 1, "old_value": 0, …}}}
    {"event_id": 9, "data": {"type": "removed", "block_hashes": [34]}, "window_size": 4096}

Each block becomes a row of `kv_events`. Level 0 is the GPU, level 1 host memory. A block that changes its level leaves one tier
and arrives in another: towards the host it is `removed` from the GPU and `stored` on the CPU; back again it is `restored`, which
is not `stored`, because nothing was computed. `removed` is from its last tier. A gap in `event_id` is events the engine's bounded
buffer dropped. Events carry no time. Token ids are what users wrote; only their number is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from parsers import Format
from parsers.json_text import elements_in
from parsers.kv_events_jsonl import NotAnEventError, fold
from parsers.log_reading import Row, Rows
from parsers.source import Account, Sink, Source

_EVENT = re.compile(rb'"event_id"\s*:')
_KIND = re.compile(rb'"type"\s*:\s*"(?:created|stored|removed|updated)"')
MEDIA = {0: "GPU", 1: "CPU"}


def parse(source: Source, sink: Sink) -> Account:
    """Read one file: drained lists one after the other, or one event on each line."""
    account, rows = Account(), Rows(source.name, sink)
    for each in elements_in(source, account):
        account.lines += 1
        try:
            rows.take(account, list(_rows_of(each)), is_known=True)
        except (NotAnEventError, KeyError, TypeError, AttributeError):
            account.misread(account.lines)
    rows.write()
    return account


def _rows_of(event: Any) -> Iterator[Row]:
    """Rows of one event; none of one that moves no block (`created`, a new priority). One that breaks the grammar raises."""
    data, rank = event["data"], event.get("attention_dp_rank")
    common = {"seq": event["event_id"], "dp_rank": rank if isinstance(rank, int) else None}
    for index, block in enumerate(_blocks(data)):
        yield "kv_events", common | {"event_index": index} | block


def _blocks(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    match data["type"]:
        case "stored":
            parent = data.get("parent_hash")
            parent = None if parent is None else fold(parent)
            for block in data["blocks"]:
                block_hash = fold(block["block_hash"])
                yield {
                    "event": "stored",
                    "block_hash": block_hash,
                    "parent_hash": parent,
                    "block_size": len(block.get("tokens") or ()) or None,
                    "medium": MEDIA.get(block.get("cache_level", 0)),
                }
                parent = block_hash
        case "removed":
            for block_hash in data["block_hashes"]:
                yield {"event": "removed", "block_hash": fold(block_hash)}
        case "updated":
            yield from _moved(data)
        case "created":
            return
        case _:
            raise NotAnEventError


def _moved(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    level, block_hash = data.get("cache_level"), fold(data["block_hash"])
    if level is None:  # only its priority changed
        return
    before, after = level["old_value"], level["new_value"]
    yield {"event": "removed", "block_hash": block_hash, "medium": MEDIA.get(before)}
    yield {"event": "restored" if after < before else "stored", "block_hash": block_hash, "medium": MEDIA.get(after)}


def detect(head: bytes) -> float:
    """JSON with numbered events of one of the four types."""
    return 0.95 if head.lstrip().startswith((b"{", b"[")) and _EVENT.search(head) and _KIND.search(head) else 0.0


FORMAT = Format(
    name="tensorrt_llm_kv_events",
    title="TensorRT-LLM KV-cache events (JSON drained from /kv_cache_events)",
    engine_kind="tensorrt_llm",
    versions="1.0 to 1.2, from the documented schema; no recording of a real engine was at hand",
    can_tell="which blocks were stored, reclaimed, offloaded to host memory and restored, in order; events that were dropped",
    cannot_tell="when (no times); which request a block belonged to; pauses",
    tables=("kv_events",),
    detect=detect,
    parse=parse,
)
