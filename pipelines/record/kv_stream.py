"""The engine's KV-cache events: its ZMQ stream, whose holes are filled from its replay socket, as JSON lines.

A batch comes as `[topic, number, msgpack of [time, events, rank]]`; numbers begin at 0 with the engine and go up by one. Events
are maps from vLLM 0.24 on and in SGLang, tagged arrays before. What is written has the same form for both, and the fields that
an analysis reads: token ids and whatever else users wrote are never on the disk.

ZMQ drops what a subscriber cannot take, and there is nothing to subscribe to before the engine runs: so the replay socket, which
keeps the last 10,000 batches, is asked for what is missing after a restart of the recorder and at every hole.
"""

from __future__ import annotations

import importlib
import json
import re
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from parsers.kv_events_jsonl import POSITIONS
from pipelines.record.journal import Journal
from pipelines.record.parts import Parts

POLL_MS, REPLAY_MS = 200, 2000
MOST_AT_ONCE = 1000  # batches written with one write
MOST_REPLAYS = 50  # the publisher's socket sends a thousand batches at a time and drops the rest
_ENDPOINT = re.compile(r"tcp://(?:[\w.-]+|\[[0-9a-fA-F:]+\]):\d{1,5}|ipc://.+")
KEPT = ("block_hashes", "parent_block_hash", "block_size", "medium", "group_idx")


class MissingLibraryError(Exception):
    """What is needed to take KV events is not installed."""


class NotAnEndpointError(Exception):
    """An address that nobody can connect to. One line."""


class NotABatchError(Exception):
    """A payload that is no batch of KV events."""


def libraries() -> tuple[ModuleType, ModuleType]:
    """The modules zmq and msgpack. MissingLibraryError where they are not there."""
    try:
        return importlib.import_module("zmq"), importlib.import_module("msgpack")
    except ImportError as error:
        need = f"--kv-events needs {error.name}, which is not installed; run `pip install 'kvpressure[record]'`"
        raise MissingLibraryError(need) from None


def checked(endpoint: str) -> str:
    """An endpoint to connect to; NotAnEndpointError for what is none, such as the address an engine binds to."""
    if _ENDPOINT.fullmatch(endpoint):
        return endpoint
    raise NotAnEndpointError(f"`{endpoint}` is not a ZMQ endpoint to connect to; write it as tcp://HOST:5557")


class KvStream:
    """Follows one publisher (one data-parallel rank)."""

    def __init__(self, endpoint: str, replay: str | None, parts: Parts, journal: Journal) -> None:
        self.count = 0
        self._zmq, self._msgpack = libraries()
        self._endpoint, self._replay_endpoint, self._parts, self._journal = endpoint, replay, parts, journal
        self._context = self._zmq.Context()
        self._last: int | None = None  # number of the last batch recorded, of the engine's present life
        self._live: int | None = None  # number of the last batch that came over the stream
        self._lines: list[bytes] = []
        self._is_caught_up = False  # whether the replay socket has said what came before the stream
        self._is_said_unreadable = self._is_said_unwritten = False

    def run(self, stop: threading.Event) -> None:
        """Record until told to stop, and what has come by then."""
        stream = self._context.socket(self._zmq.SUB)
        stream.set_hwm(0)
        stream.setsockopt(self._zmq.SUBSCRIBE, b"")
        stream.connect(self._endpoint)
        try:
            self._resume()
            while not stop.is_set():
                if stream.poll(POLL_MS):
                    self._take(stream)
            self._take(stream)
        finally:
            stream.close(linger=0)
            self._context.term()
            self._parts.close()

    def _take(self, stream: Any) -> None:
        """All that has come, written at once."""
        for _ in range(MOST_AT_ONCE):
            try:
                frames = stream.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                break
            if len(frames) >= 2 and len(frames[-2]) == 8:
                self._receive(int.from_bytes(frames[-2], "big"), frames[-1])
            else:
                self._unreadable("a message without a number")
        self._flush()

    def _receive(self, number: int, payload: bytes) -> None:
        """One batch of the stream, after all that should have come before it."""
        falls = self._live is not None and number <= self._live
        is_behind = self._live is None and not self._is_caught_up and self._last is not None and number <= self._last
        self._live = number
        if falls or is_behind:
            self._new_life()
        if self._last is not None and number <= self._last:
            return  # was replayed
        if self._last is not None and number > self._last + 1:
            self._fill(self._last + 1, number)
        self._record(number, payload)

    def _new_life(self) -> None:
        """The engine is another one than before: its batches begin at 0 again."""
        what = "the batches are numbered anew: the engine was restarted"
        self._journal.write("kv_publisher_restarted", what, subject=self._endpoint)
        self._last = -1

    def _fill(self, start: int, end: int) -> None:
        """Ask for the batches from `start` up to, not with, `end`."""
        missing = end - start - self._replayed(start, end)
        if missing:
            why = "the replay socket did not have them" if self._replay_endpoint else "there is no --kv-replay to ask"
            self._journal.write(
                "kv_batches_lost", f"KV-event batches did not arrive; {why}", subject=self._endpoint, count=missing
            )

    def _resume(self) -> None:
        """Go on after the last batch recorded, or from the first one of another engine. A first recording begins with what comes:
        what was before it is not in its metrics either.
        """
        if (recorded := self._last_recorded()) is None:
            return
        self._last, recorded_at = recorded
        same = self._batches(self._last, self._last + 1).get(self._last)
        if same is None and not self._batches(0, 1):
            return  # nobody there, or all forgotten: the stream will show which
        if same is None or self._time_of(same) != recorded_at:
            self._new_life()
        self._is_caught_up = True
        self._replayed(self._last + 1, None)
        self._flush()

    def _replayed(self, start: int, end: int | None) -> int:
        """Record what the replay socket has of a range of batches; how many that were."""
        batches = self._batches(start, end)
        for number in sorted(batches):
            self._record(number, batches[number])
            if len(self._lines) >= MOST_AT_ONCE:
                self._flush()
        return len(batches)

    def _batches(self, start: int, end: int | None) -> dict[int, bytes]:
        """What the replay socket has of a range, asked again from its first hole for as long as that brings more."""
        found: dict[int, bytes] = {}
        if self._replay_endpoint is None:
            return found
        wanted = start
        for _ in range(MOST_REPLAYS):
            before = len(found)
            found |= self._ask(wanted, end)
            while wanted in found:
                wanted += 1
            if len(found) == before or wanted == end or (found and wanted > max(found)):
                break
        return found

    def _ask(self, start: int, end: int | None) -> dict[int, bytes]:
        """One question to the replay socket: each batch from `start` on, then an end mark."""
        found: dict[int, bytes] = {}
        socket = self._context.socket(self._zmq.DEALER)
        socket.set_hwm(0)
        try:
            socket.connect(self._replay_endpoint)
            socket.send_multipart([b"", start.to_bytes(8, "big")])
            while socket.poll(REPLAY_MS):
                *_, number_bytes, payload = socket.recv_multipart()
                number = int.from_bytes(number_bytes, "big", signed=True)
                if number < 0 or (end is not None and number >= end):
                    break
                found[number] = payload
        finally:
            socket.close(linger=0)
        return found

    def _record(self, number: int, payload: bytes) -> None:
        self._last = number
        try:
            batch = kept_batch(self._decode(payload))
        except (NotABatchError, ValueError, TypeError) as fault:
            self._unreadable(str(fault))
            return
        self._lines.append(json.dumps({"seq": number, "batch": batch}, separators=(",", ":")).encode() + b"\n")

    def _flush(self) -> None:
        if not self._lines:
            return
        try:
            self._parts.append(b"".join(self._lines))
            self.count += len(self._lines)
            self._is_said_unwritten = False
        except OSError as fault:
            if not self._is_said_unwritten:
                self._journal.tell(
                    f"{self._parts.path}: cannot be written ({(fault.strerror or str(fault)).lower()}); batches are lost"
                )
            self._is_said_unwritten = True
        self._lines.clear()

    def _unreadable(self, why: str) -> None:
        if not self._is_said_unreadable:
            self._journal.tell(f"{self._endpoint}: not KV events ({why}); is it the engine's KV-event endpoint?")
            self._journal.write("kv_not_understood", "what came is no batch of KV events", subject=self._endpoint)
        self._is_said_unreadable = True

    def _decode(self, payload: bytes) -> Any:
        try:
            return self._msgpack.unpackb(payload, strict_map_key=False, unicode_errors="replace")
        except Exception as error:  # each version of the library has exceptions of its own
            raise NotABatchError("no msgpack") from error

    def _time_of(self, payload: bytes) -> object:
        batch = self._decode(payload)
        return batch[0] if isinstance(batch, list) and batch else None

    def _last_recorded(self) -> tuple[int, object] | None:
        """Number and time of the last batch in the recording."""
        for line in reversed(self._parts.tail().splitlines()):
            try:
                record = json.loads(line)
                return record["seq"], record["batch"][0]
            except (ValueError, KeyError, TypeError, IndexError):
                continue
        return None


def kept_batch(batch: object) -> list[object]:
    """A decoded batch with the fields that an analysis reads, and no others. NotABatchError for anything else."""
    if not isinstance(batch, list) or len(batch) < 2 or not isinstance(batch[1], list) or not isinstance(batch[0], (int, float)):
        raise NotABatchError("no list of a time and events")
    rank = batch[2] if len(batch) > 2 and isinstance(batch[2], int) else None
    return [batch[0], [_kept_event(event) for event in batch[1]], rank]


def _kept_event(event: object) -> dict[str, object]:
    if isinstance(event, dict) and isinstance(event.get("type"), str):
        kind, fields = event["type"], event
    elif isinstance(event, list) and event and isinstance(event[0], str):
        kind, fields = event[0], dict(zip(POSITIONS.get(event[0], ()), event[1:], strict=False))
    else:
        raise NotABatchError("an event without a type")
    kept = {name: value for name in KEPT if (value := fields.get(name)) is not None}
    if "block_hashes" in kept:
        kept["block_hashes"] = _hashes(kept["block_hashes"])
    if "parent_block_hash" in kept:
        kept["parent_block_hash"] = _hash(kept["parent_block_hash"])
    return {"type": kind, **kept}


def _hashes(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise NotABatchError("block hashes that are no list")
    return [_hash(each) for each in value]


def _hash(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value
