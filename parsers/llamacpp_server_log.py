"""llama.cpp server log (llama-server): slots, prompt reuse, and the requests that failed because the KV cache was full.

    0.00.021.762 I slot launch_slot_: id  3 | task 1 | processing task, is_child = 0                              -> request_lines
    0.00.083.425 I slot print_timing: id  3 | task 0 |        eval time =      54.05 ms /    40 tokens (…)        -> spans
    0.00.089.578 W srv        decode: failed to find free space in the KV cache, retrying with smaller batch size, …
    0.00.090.195 E srv    send_error: task id = 6, error: Context size has been exceeded.                         -> engine_events
    0.00.545.327 W srv  try_clear_id: purging slot 0 with 261 tokens
    0.04.347.146 I slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, f_sim_best = 0.954 (…), f_keep = 0.678
    INFO [          update_slots] slot released | tid="139…" timestamp=1714000000 id_slot=0 …              March to August 2024
    {"tid":"139…","timestamp":1714000000,"level":"INFO","function":"update_slots","msg":"slot released",…}     --log-format json

There is no preemption here. A full pool first costs idle slots (`purging slot`: prefixes evicted), then the batch is halved, and
at the end every running request fails: each is one `request_failed_no_kv`, and no metric counts them. A request that waits for
a slot leaves no line below debug verbosity.

The clock of a line runs from the start of the process. Where neither the line nor its wrapper has a wall clock, `at_local` is
that time counted from START_OF_CLOCK: distances hold, and when the process started is for `pipelines.clock` to find.
Function names are cut to twelve letters and move between versions, so lines are told by their words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from parsers import Format
from parsers.columns import START_OF_CLOCK
from parsers.log_reading import HELD, Grammar, Row, entries, head_lines, literals, read_log
from parsers.source import Account, Sink, Source

GRAMMAR = Grammar(
    literals=literals(
        *("in the KV cache", "KV cache is full", "Context size has been exceeded", "compared to KV size", "send_error"),
        *("purging slot", "selected slot by", "context shift", "forcing full prompt", "n_past = ", "clearing prompt with"),
        *("saving prompt with length", "prompt with length", "found better prompt", "cache size limit", "making room for prompt"),
        *("processing task", "is processing", "stop processing", "slot released", "released (", "eval time =", "total time ="),
        *("new prompt, n_ctx_slot", "n_slots = ", "build_info: ", "build: ", "prompt cache is ", "loading model"),
        *("llama_kv_cache", "exceeds the available context size", "listening on", "print_timing", '"msg":', "launch slot"),
        *("failed to load model", "model loading error", "buffer for kv cache", "cudaMalloc failed"),
    ),
    # after the clock and the level: a slot's line, the server's, or one of the plain ones
    start=re.compile(  # begun at each letter of a line, so no part is without end
        r"(?:\d{1,9}\.\d\d\.\d{3}\.\d{3} )?(?:\b[IWEDC] )?"
        r"(?:slot +\S{1,12}: id +-?\d+ \| task|srv +\S{1,12}: |slot \d+ ?(?:is|:|released)"
        # a time on a line of its own (2024), or behind a slot's `| `
        r"|update_slots ?: |(?<![ |a-z]) *(?:(?:prompt )?eval|total) time +=|llama_kv_cache\w*: "
        r"|main: (?:build|server is listening|exiting due to model loading error)"
        r"|(?:llama|ggml)_\w+: (?=.{0,200}(?:failed to load model|buffer for kv cache|cudaMalloc failed))"
        r"|build: \d|^failed to find free space in the KV cache|(?:INFO|WARN|ERR|ERROR|VERB) \[ *\w+\] )"
    ),
    must_be_understood=re.compile(
        r"failed to find free space in the KV cache|KV cache is full|send_error: task id = \d+, error: Context size"
        r"|stop processing: n_|\beval time +=|purging slot \d+ with|slot context shift"
    ),
)

CLOCK = re.compile(r"(?P<minutes>\d+)\.(?P<seconds>\d\d)\.(?P<milli>\d{3})\.(?P<micro>\d{3}) ")
LEVEL = re.compile(r"[IWEDC] ")
# slot      release: id  0 | task 86 | stop processing: n_tokens = 253, truncated = 0
SLOT = re.compile(r"slot +\S{1,12}: id +(?P<slot>-?\d+) \| task (?P<task>-?\d+) \| ?")
SERVER = re.compile(r"srv +\S{1,12}: ?")
PLAIN = re.compile(r"update_slots ?: ")
# INFO [          update_slots] slot released | tid="…" timestamp=1714000000 id_slot=0 id_task=0 n_past=205
STRUCTURED = re.compile(r"(?:INFO|WARN|ERR|ERROR|VERB) \[ *\w+\] (?P<msg>.*?) *\| (?P<fields>tid=.*)$")
PAIR = re.compile(r'(\w+)=(?:"([^"]*)"|(\S+))')

# prompt eval time =       2.46 ms /     8 tokens (…) · eval time = … · total time = …
TIMING = re.compile(r"\s*(?P<what>prompt eval|eval|total) time +=\s+(?P<ms>[\d.]+) ms / +(?P<tokens>\d+) (?:tokens|runs)")
LAUNCH = re.compile(r"processing task|is processing|launch slot|slot is processing")
RELEASE = re.compile(
    r"stop processing: n_(?:tokens|past) = (?P<tokens>\d+)|released \((?P<cached>\d+) tokens in cache\)|slot released"
)
REUSE = re.compile(r"selected slot by (?:LCP|lcp|LRU|lru)(?:.*?f_keep = (?P<kept>[\d.]+))?")
NEW_PROMPT = re.compile(r"new prompt, n_ctx_slot = \d+, n_keep = -?\d+, (?:task\.n_tokens|n_prompt_tokens) = (?P<tokens>\d+)")
PAST = re.compile(r"n_past = (?P<tokens>\d+), slot\.prompt\.tokens\.size\(\) = \d+")
SAVED = re.compile(r" *(?:- *)?saving prompt with length (?P<tokens>\d+)")
CANDIDATE = re.compile(r" *- prompt with length +\d+, lcp = +(?P<shared>\d+), f_keep = (?P<kept>[\d.]+)")
BETTER = re.compile(r" *- found better prompt with f_keep = (?P<kept>[\d.]+)")
SLOTS = re.compile(
    r"initializing(?: slots)?, n_slots = (?P<slots>\d+)"
    r"(?:, n_ctx_slot = (?P<context>\d+)(?:, kv_unified = '(?P<unified>\w+)')?)?"
)
# llama_kv_cache: size =    0.50 MiB (  2048 cells,   2 layers,  4/1 seqs), K (f16): …
CELLS = re.compile(r"llama_kv_cache\w*: size = +[\d.]+ MiB \( *(?P<cells>\d+) cells, +\d+ layers, +\d+/ ?(?P<streams>\d+) seqs\)")

# The other lines, each with the event it is; `count` and `request_id` are what those groups hold.
EVENTS = tuple(
    (event, re.compile(pattern))
    for event, pattern in (
        # … retrying with smaller batch size, off = 0, n_batch = 128, ret = 1 · … retrying with smaller n_batch = 256
        (
            "kv_allocation_retry",
            r"failed to find free space in the KV cache, retrying with smaller(?:.*?n_batch = (?P<count>\d+))?",
        ),
        # send_error's words: today's, and those of 2024
        (
            "request_failed_no_kv",
            r"(?:send_error: )?task id = (?P<request_id>\d+), error: (?:Context size has been exceeded|.*too big compared to KV)",
        ),
        ("kv_exhausted", r"(?:failed to decode the batch: )?KV cache is full|Context size has been exceeded\.,? (?:off|i) = "),
        ("prefix_eviction", r"purging slot \d+ with (?P<count>\d+) tokens"),
        ("context_shift", r"(?:slot )?context shift(?: -|,) .*?n_discard = (?P<count>\d+)"),
        ("kv_tier_full", r" *(?:- *)?(?:making room for prompt cache entry|cache size limit reached), removing oldest entry"),
        ("kv_dropped", r" *(?:- *)?prompt state size .* exceeds cache size limit"),
        ("input_too_long", r"(?:.*error: )?request \((?P<count>\d+) tokens\) exceeds the available context size"),
        ("engine_ready", r"(?:main: )?(?:server is )?listening on "),
        # llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
        ("start_no_kv_memory", r"\w+: .{0,200}failed to allocate buffer for kv cache"),
        # ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9216.00 MiB on device 0: cudaMalloc failed: out of memory
        ("engine_failure", r"\w+: .{0,200}cudaMalloc failed: out of memory"),
        # srv load_model: failed to load model, '/models/tiny.gguf' · main: exiting due to model loading error
        ("start_failed", r"(?:\w+: .{0,200})?failed to load model|main: exiting due to model loading error"),
    )
)
SETTINGS = tuple(
    re.compile(pattern)
    for pattern in (
        r"build_info: (?P<engine_version>\S+)",
        r"(?:main: )?build: (?P<engine_version>\d+)",
        r"loading model '(?P<model>[^']{1,200})'",
    )
)


@dataclass
class _Timing:
    """What `print_timing` said of one task so far."""

    task: str
    columns: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Server:
    """One log being read, and what its lines so far say of each slot."""

    busy: dict[int, str] = field(default_factory=dict)  # slot -> task
    tokens: dict[int, int] = field(default_factory=dict)  # slot -> tokens of its last prompt and answer, still held
    prompt_tokens: dict[str, int] = field(default_factory=dict)  # task -> its prompt's length, at verbosity 4
    shared_tokens: dict[int, int] = field(default_factory=dict)  # slot -> tokens its new prompt shares with the one it holds
    saved_prompts: dict[str, int] = field(default_factory=dict)  # f_keep as printed -> tokens shared with that saved prompt
    failed: set[str] = field(default_factory=set)  # tasks whose slots are cleared when they are released
    timing: _Timing | None = None

    def read(self, text: str) -> Iterator[Row]:
        """Rows of one line."""
        if (structured := _structured(text)) is not None:
            message, slot, task, columns = structured
            yield from self._message(message, slot, task, columns)
            return
        for entry in entries(text, GRAMMAR.start):
            message, columns = entry.message, dict(entry.columns)
            if clock := CLOCK.match(message):
                message = message[clock.end() :]
                if "at_utc" not in columns and "at_local" not in columns:
                    columns["at_local"] = _since_start(clock)
            if level := LEVEL.match(message):
                message = message[level.end() :]
            slot, task = None, None
            if of_slot := SLOT.match(message):
                slot, task = int(of_slot["slot"]), of_slot["task"]
                message = message[of_slot.end() :]
            elif of_server := SERVER.match(message):
                message = message[of_server.end() :]
            elif plain := PLAIN.match(message):
                message = message[plain.end() :]
            elif old := re.match(r"slot (\d+) ?:? ?", message):
                slot, message = int(old[1]), message[old.end() :]
            yield from self._message(message, slot, task, columns)

    def _message(self, message: str, slot: int | None, task: str | None, columns: dict[str, Any]) -> Iterator[Row]:
        if timing := TIMING.match(message):
            yield from self._timed(timing, task, columns)
            return
        if slot is not None:
            if task is not None and not message.strip():
                self.timing = _Timing(task)  # 2024: the times follow on lines of their own
            yield from self._of_slot(message, slot, task, columns)
        yield from self._of_server(message, columns)

    def _of_slot(self, message: str, slot: int, task: str | None, columns: dict[str, Any]) -> Iterator[Row]:
        """Beginnings and ends of requests, and what a slot kept of its last prompt for the next."""
        if prompt := NEW_PROMPT.match(message):
            self.prompt_tokens[task or ""] = int(prompt["tokens"])
            yield HELD
        elif past := PAST.match(message):
            self.shared_tokens[slot] = int(past["tokens"])
            yield HELD
        elif message.startswith("forcing full prompt re-processing"):
            # what is computed again is what the prompt shares with the one held, not all of it
            yield _event(columns, "full_reprocess", self.shared_tokens.get(slot), task)
        elif message.startswith("clearing prompt with"):
            self.tokens[slot] = 0
            yield HELD
        elif released := RELEASE.search(message):
            count = released["tokens"] or released["cached"]
            task = task or self.busy.get(slot)
            self.tokens[slot] = 0 if task in self.failed else int(count or self.tokens.get(slot, 0))
            self.busy.pop(slot, None)
            yield _request(columns, "finished", task)
            yield "engine_samples", columns | {"running": len(self.busy)}
        elif LAUNCH.match(message):
            self.busy[slot] = task or ""
            yield _request(columns, "started", task)
            yield "engine_samples", columns | {"running": len(self.busy)}
        elif reuse := REUSE.match(message):
            kept = float(reuse["kept"]) if reuse["kept"] else 0.0
            dropped = round(self.tokens.get(slot, 0) * (1 - kept))
            if dropped > 0:
                yield _event(columns, "slot_prefix_dropped", dropped, None)
            self.tokens[slot] = self.tokens.get(slot, 0) - dropped
            yield HELD

    def _of_server(self, message: str, columns: dict[str, Any]) -> Iterator[Row]:
        yield from self._saved(message, columns)
        for settings in _facts(message):
            yield from _settings(columns, settings)
        for event, pattern in EVENTS:
            if found := pattern.match(message):
                groups = found.groupdict()
                if purged := re.match(r"purging slot (\d+)", message):
                    self.tokens[int(purged[1])] = 0
                if event == "request_failed_no_kv":
                    self.failed.add(groups["request_id"])
                count = groups.get("count") or ("1" if event == "request_failed_no_kv" else None)
                yield _event(columns, event, int(count) if count else None, groups.get("request_id"))
                return

    def _saved(self, message: str, columns: dict[str, Any]) -> Iterator[Row]:
        """Prompts copied to host memory and taken back from it."""
        if candidate := CANDIDATE.match(message):
            self.saved_prompts[candidate["kept"]] = int(candidate["shared"])
            yield HELD
        elif better := BETTER.match(message):
            yield _event(columns, "kv_restored", self.saved_prompts.get(better["kept"]), None)
            self.saved_prompts.clear()
        elif saved := SAVED.match(message):
            yield _event(columns, "kv_offloaded", int(saved["tokens"]), None)

    def _timed(self, timing: re.Match[str], task: str | None, columns: dict[str, Any]) -> Iterator[Row]:
        """The row of a request once its last time is printed: `total time` closes it."""
        if self.timing is None or (task is not None and self.timing.task != task):
            self.timing = _Timing(task or "")
        seconds, tokens = float(timing["ms"]) / 1000, int(timing["tokens"])
        known = self.timing.columns
        match timing["what"]:
            case "prompt eval":
                known |= {"prefill_s": seconds, "ttft_s": seconds, "computed_tokens": tokens}
            case "eval":
                known |= {"decode_s": seconds, "output_tokens": tokens}
            case _:
                known |= {"inference_s": seconds}
                yield "spans", self._span(known, self.timing.task, columns.get("at_utc"), seconds)
                self.timing = None
                return
        yield HELD

    def _span(self, known: dict[str, Any], task: str, ended: datetime | None, seconds: float) -> dict[str, Any]:
        prompt = self.prompt_tokens.pop(task, None)
        row = known | {"name": "llamacpp_task", "request_id": task or None, "input_tokens": prompt}
        if prompt is not None and "computed_tokens" in known:
            row["cached_tokens"] = prompt - known["computed_tokens"]
        if ended is not None:
            row |= {"end_at": ended, "start_at": ended - timedelta(seconds=seconds)}
        return row


def _since_start(clock: re.Match[str]) -> datetime:
    """The process's clock, which counts from its start."""
    minutes, seconds, milli, micro = (int(part) for part in clock.groups())
    return START_OF_CLOCK + timedelta(minutes=minutes, seconds=seconds, milliseconds=milli, microseconds=micro)


def _structured(text: str) -> tuple[str, int | None, str | None, dict[str, Any]] | None:
    """Message, slot, task and time of a line with named fields: 2024's two forms, today's --log-jsonl. None for another line."""
    if found := STRUCTURED.search(text):
        fields: dict[str, Any] = {key: quoted or bare for key, quoted, bare in PAIR.findall(found["fields"])}
        message = found["msg"]
    elif (brace := text.find('{"')) >= 0 and '"msg":' in text and text.rstrip().endswith("}"):
        try:
            fields = json.loads(text[brace:])
        except (ValueError, RecursionError):
            return None
        message = fields.get("msg") if isinstance(fields, dict) else None
        if not isinstance(message, str):
            return None
    else:
        return None
    slot, task = (str(fields[key]) if key in fields else None for key in ("id_slot", "id_task"))
    if message.startswith("slot context shift") and "n_discard" in fields:
        message = f"slot context shift, n_discard = {fields['n_discard']}"
    if of_slot := SLOT.match(message):
        slot, task, message = of_slot["slot"], of_slot["task"], message[of_slot.end() :]
    elif of_server := SERVER.match(message):
        message = message[of_server.end() :]
    return message, int(slot) if slot and slot.lstrip("-").isdigit() else None, task, _structured_time(fields)


def _structured_time(fields: dict[str, Any]) -> dict[str, Any]:
    """2024 wrote Unix seconds; today's JSON microseconds since the start of the process."""
    try:
        if "timestamp" in fields:
            return {"at_utc": datetime.fromtimestamp(int(fields["timestamp"]), UTC)}
        return {"at_local": START_OF_CLOCK + timedelta(microseconds=int(fields["time"]))}
    except (KeyError, TypeError, ValueError, OverflowError):
        return {}


def _slot_settings(slots: re.Match[str]) -> dict[str, str | None]:
    """A unified pool holds one slot's context for all of them together; else each slot has its own."""
    settings: dict[str, str | None] = {
        "max_num_seqs": slots["slots"],
        "max_model_len": slots["context"],
        "kv_unified": slots["unified"],
    }
    if slots["context"] and slots["unified"]:
        pools = 1 if slots["unified"] == "true" else int(slots["slots"])
        settings["kv_capacity_tokens"] = str(int(slots["context"]) * pools)
    return settings


def _facts(message: str) -> Iterator[dict[str, str | None]]:
    """What a start-up line states."""
    if slots := SLOTS.match(message):
        yield _slot_settings(slots)
    elif cells := CELLS.match(message):
        yield {"kv_capacity_tokens": str(int(cells["cells"]) * int(cells["streams"]))}
    elif message.startswith("prompt cache is enabled"):
        yield {"kv_connector": "prompt_cache"}
    for pattern in SETTINGS:
        if found := pattern.match(message):
            yield found.groupdict()


def _settings(columns: dict[str, Any], settings: dict[str, str | None]) -> Iterator[Row]:
    for key, text in settings.items():
        if text:
            yield "engine_config", columns | {"key": key, "value_text": text}


def _event(columns: dict[str, Any], event: str, count: int | None, request_id: str | None) -> Row:
    return "engine_events", columns | {"event": event, "count": count, "request_id": request_id}


def _request(columns: dict[str, Any], event: str, task: str | None) -> Row:
    line = {name: value for name, value in columns.items() if name != "engine"}
    return "request_lines", line | {"event": event, "request_id": task}


def parse(source: Source, sink: Sink) -> Account:
    """Read one log."""
    return read_log(source, sink, GRAMMAR, _Server().read)


# A line of the server's own; `main: ` and `build: ` alone could be anybody's.
OWN = re.compile(
    r"slot +\S{1,12}: id +-?\d+ \| task|srv +\S{1,12}: |(?:INFO|WARN|ERR|VERB) \[ *\w+\] .*\| tid=\""
    r"|\"function\":\"\w+\",\"line\":\d+,\"msg\":|\"type\":\"log\",\"time\":\d+"
    r"|failed to find free space in the KV cache, retrying with smaller|llama_(?:model_loader|kv_cache|new_context|context)\w*: "
)


def detect(head: bytes) -> float:
    """How sure it is that this is the log of a llama.cpp server."""
    return 0.9 if any(OWN.search(line[:2000]) for line in head_lines(head)) else 0.0


FORMAT = Format(
    name="llamacpp_server_log",
    title="llama.cpp server log (llama-server)",
    engine_kind="llamacpp",
    versions="February 2024 to b11549",
    can_tell="requests that failed because the KV cache was full; idle slots purged; prompts kept per slot; request times",
    cannot_tell="requests waiting for a slot (debug verbosity only); KV usage; the date, where nothing wraps the line",
    tables=("engine_samples", "engine_config", "engine_events", "request_lines", "spans"),
    detect=detect,
    parse=parse,
)
