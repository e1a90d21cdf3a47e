"""KV-cache events, decoded from the engine's ZMQ stream and kept as JSON lines, one batch per line.

    {"topic":"kv-events","seq":1,"batch":[1795957926.692406,[{"type":"BlockStored","block_hashes":[942346700782507408,
      2188965166889396811],"parent_block_hash":207882265591042649,"token_ids":[171,123],"block_size":32,"medium":"GPU","group_idx":0},
      {"type":"BlockRemoved","block_hashes":[3996571048168633039],"medium":"GPU"}],0]}
    [1717406400.5,[["BlockStored",[-12,34],null,[5,6],16,null,"GPU"],["AllBlocksCleared"]]]

A batch is `[time, events, data-parallel rank]` or an object with `ts`, `events` and `data_parallel_rank`, bare or under `batch`
(or `payload`) beside its `seq`. Events are objects from vLLM 0.24 on and in SGLang, and tagged arrays before. Each block becomes
a row of `kv_events`, in order; the parent of a stored block is the one before it in its event, of the first the event's own.

A hash is a 64-bit number (negative ones are taken modulo 2^64), or a longer one as text or bytes, which is folded to 64 bits.
Token ids are what users wrote; they are dropped. Event types other than these three are ignored. A batch with an event that
does not follow its type's grammar is not understood as a whole: half a batch would show a pool that never was.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pyarrow as pa

from parsers import Format
from parsers.bench_rows import text
from parsers.columns import schema
from parsers.json_text import decode_line
from parsers.source import Account, Sink, Source
from parsers.unix_time import unix_microseconds

BATCH_ROWS = 100_000
MASK = 2**64 - 1
_INT64 = range(-(2**63), 2**63)

_COLUMNS = (
    "line", "seq", "event_index", "at_utc", "dp_rank", "event", "block_hash", "parent_hash", "block_size", "medium", "group_idx",
)  # fmt: skip
# Fields of a tagged array by position, after its tag; 0.9 to 0.23 only ever added some at the end.
POSITIONS = {
    "BlockStored": (
        "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
        "group_idx",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}  # fmt: skip
_TOKEN_IDS = re.compile(rb'"token_ids"\s*:\s*\[[\d\s,]*\]')

_HEAD_START = re.compile(rb"\s*(?:\{|\[\s*-?\d)")
_HEAD_EVENT = re.compile(rb'(?:"type"\s*:|\[)\s*"(?:BlockStored|BlockRemoved|AllBlocksCleared)"')

Row = tuple[object, ...]


class NotAnEventError(Exception):
    """A batch or event that does not follow the grammar."""


def parse(source: Source, sink: Sink) -> Account:
    """Read one file into the sink."""
    account = Account()
    rows: list[Row] = []
    with account.kept_to_the_fault(), source.open() as stream:
        for line in stream:
            account.lines += 1
            try:
                found = _rows_of(line, account.lines)
            except NotAnEventError:
                account.misread(account.lines)
                continue
            if found:
                account.used += 1
                rows += found
            else:
                account.ignored += 1
            if len(rows) >= BATCH_ROWS:
                _write(rows, source.name, sink)
                rows = []
    _write(rows, source.name, sink)
    return account


def _write(rows: list[Row], name: str, sink: Sink) -> None:
    if rows:
        types = schema("kv_events")
        columns = {
            column: pa.array(values, types.field(column).type)
            for column, values in zip(_COLUMNS, zip(*rows, strict=True), strict=True)
        }
        sink.write("kv_events", pa.RecordBatch.from_pydict({"source": pa.repeat(name, len(rows)), **columns}))


def _rows_of(line: bytes, number: int) -> list[Row]:
    """The rows of one line; none for a blank line or an empty batch."""
    if not line.strip():
        return []
    record = decode_line(_TOKEN_IDS.sub(b'"token_ids":null', line))
    seq, batch = None, record
    if isinstance(record, dict):
        seq = _int(record.get("seq"))
        batch = record.get("batch", record.get("payload", record))
    if isinstance(batch, dict):
        batch = [batch.get("ts"), batch.get("events"), batch.get("data_parallel_rank")]
    if not isinstance(batch, list) or len(batch) < 2 or not isinstance(batch[1], list):
        raise NotAnEventError
    stamp = batch[0]
    if isinstance(stamp, bool) or not isinstance(stamp, (int, float)):
        raise NotAnEventError
    at = unix_microseconds(stamp)
    rank = _int(batch[2]) if len(batch) > 2 else None
    blocks = [block for event in batch[1] for block in _blocks(event)]
    return [(number, seq, index, at, rank, *block) for index, block in enumerate(blocks)]


def _blocks(event: object) -> list[Row]:
    """Each block of one event: event, block_hash, parent_hash, block_size, medium, group_idx. None for a type not read."""
    if isinstance(event, list) and event and isinstance(event[0], str):
        fields: dict[str, Any] = dict(zip(POSITIONS.get(event[0], ()), event[1:], strict=False))
        kind = event[0]
    elif isinstance(event, dict) and isinstance(event.get("type"), str):
        fields, kind = event, event["type"]
    else:
        raise NotAnEventError
    if kind not in POSITIONS:
        return []
    medium, group = text(fields.get("medium")), _int(fields.get("group_idx"))
    if kind == "AllBlocksCleared":
        return [("cleared", None, None, None, medium, group)]
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list):
        raise NotAnEventError
    blocks = [fold(each) for each in hashes]
    if kind == "BlockRemoved":
        return [("removed", block, None, None, medium, group) for block in blocks]
    first = fields.get("parent_block_hash")
    parents = [None if first is None else fold(first), *blocks]
    size = _int(fields.get("block_size"))
    return [("stored", block, parent, size, medium, group) for block, parent in zip(blocks, parents, strict=False)]


def fold(block_hash: object) -> int:
    """A block hash as 64 bits: numbers keep their low 64, text and bytes get a digest that is the same in every file."""
    if type(block_hash) is int:  # a bool is no hash
        return block_hash & MASK
    if isinstance(block_hash, list) and all(isinstance(each, int) and 0 <= each < 256 for each in block_hash):
        data = bytes(block_hash)
    elif isinstance(block_hash, str):
        data = block_hash.encode("utf-8", "replace")
    else:
        raise NotAnEventError
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def _int(value: object) -> int | None:
    return value if type(value) is int and value in _INT64 else None  # a bool is no number


def detect(head: bytes) -> float:
    """A JSON line with an event of one of the three types in it."""
    return 0.95 if _HEAD_START.match(head) and _HEAD_EVENT.search(head) else 0.0


FORMAT = Format(
    name="kv_events_jsonl",
    title="KV-cache events, decoded batches as JSON lines",
    engine_kind=None,
    versions="vLLM V1 0.9 to 0.33, SGLang 0.5",
    can_tell="which cached blocks were stored and reclaimed, and when; that a block was computed again after its removal",
    cannot_tell="which request a block belonged to; hits; preemptions; partial blocks; the pool before the first event",
    tables=("kv_events",),
    detect=detect,
    parse=parse,
)
