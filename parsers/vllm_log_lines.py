"""vLLM engine log: what each line that carries a signal says, as rows of the raw tables.

    Engine 000: Avg prompt throughput: 790.0 tokens/s, … Running: 15 reqs, Waiting: 3 reqs, …          -> engine_samples
    Prefix cache hit rate: GPU: 91.98%, CPU: 0.00%                                        (V0)         -> engine_samples
    Engine 000: Iteration(4211): 1 context requests, 1984 context tokens, …                            -> iteration_steps
    Received request cmpl-7: params: SamplingParams(…, max_tokens=128, …), lora_request: None.         -> request_lines
    Sequence group 147 is preempted by PreemptionMode.RECOMPUTE mode because …            (V0)         -> engine_events
    LMCache INFO: [req_id=cmpl-7] Retrieved 3584 out of 3584 required tokens …          (LMCache)      -> engine_events

What marks such a line among the others stands first. Each reader takes a record whose prefix is already told apart and yields
its readings: none where the line is not its own or does not follow its grammar. A reading says where the values lie rather than
what they are, so that lines of the same shape can be read without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from parsers.columns import PLACEHOLDER_YEAR
from parsers.line_shapes import Hole, Kind
from parsers.lmcache_log import event_of
from parsers.log_prefix import Record
from parsers.vllm_config_lines import ENGINE, settings_of

# A line with none of these carries no signal.
SIGNALS = [
    *("Avg prompt t", "Running: ", "Iteration(", "Prefix cache hit rate: GPU", "is preempted by"),
    *("Received request ", "Added request ", "Finished request ", "Aborted request", " aborted.", " failed ("),
    *("KV cache size: ", "Maximum concurrency for ", " blocks: ", "KV cache memory: ", " GiB for KV cache", "for KV Cache is "),
    *("weights took ", "Model loading took ", "num_gpu_blocks", "max_model_len: ", "max model len ", "block size to "),
    *("max_num_batched_tokens", "Defaulting ", "api_server_count", "Asynchronous scheduling", "offloading spec", "CPU blocks ("),
    *("connector with name", "server version ", "  version ", "  model   ", "args: ", "LLM engine (v", "[shutdown] "),
    *("Shutting down FastAPI", "EngineDeadError", "OutOfMemoryError", "out of memory", "died unexpectedly", "fatal error"),
    *("No available memory for", "To serve at least one", "stored in KV cache", "desired GPU memory", "nitialization failed"),
    *("failed to start", "Starting vLLM ", "Mamba cache blocks"),
    *("reset prefix cache", "pause state to ", " is too long and ", "disabling stats logging", "LMCache "),
]
# A line with one of these that gives no row is one not understood, rather than one of no interest.
MUST_BE_UNDERSTOOD = re.compile(r"Avg prompt t(?:hroughput|put): |Iteration\(\d|KV cache size: |# GPU blocks: | is preempted by ")
# Where a message starts behind a prefix of a user's own making; begun at each letter of a line, so no part is without end.
MESSAGE_START = re.compile(
    r"(?:Engine \d+: |\d{1,6} Engines Aggregated: )?(?:Avg prompt t(?:hroughput|put): |Iteration\(\d+\): )|Running: \d+ reqs, "
    r"|# \w+ blocks: |[A-Z]\w{0,30} KV cache size: |Maximum concurrency for |Prefix cache hit rate: GPU"
    r"|Sequence group \S+ is preem|(?:Received|Added|Finished|Aborted) request|Initializing an? |(?:non-default )?args: "
    r"|vLLM (?:API )?server version |LMCache (?:DEBUG|INFO|WARNING|ERROR): |No available memory for the cache"
    r"|To serve at least one request|The model's max seq len|max_num_seqs \(\d+\) exceeds |Free memory on device "
    r"|Engine (?:core|process) (?:initialization failed|failed to start)"
)


@dataclass(frozen=True)
class Reading:
    """One row a record gives: its table, the columns that are the same in every line of its shape, and where the others lie.

    `teaches` says that other lines of the shape are to be expected, and that its holes are all that varies in them.
    """

    table: str
    fixed: dict[str, Any]
    holes: tuple[Hole, ...] = ()
    teaches: bool = False

    def row(self, record: Record) -> dict[str, Any]:
        """The row. ValueError where a stamp is no date."""
        values = {hole.column: hole.kind.value_of(record.text[hole.start : hole.end]) for hole in self.holes if hole.column}
        return {**self.fixed, **values}


# The statistics line -------------------------------------------------------------------------------------------------------

# Engine 000: Avg … · 4 Engines Aggregated: Avg … · Avg prompt tput: … · Running: 3 reqs, Waiting: 0 reqs (0.7.0)
STATS = re.compile(
    r"(?:Engine (?P<engine>\d+): |(?P<aggregated>\d+) Engines Aggregated: )?"
    r"(?=Avg prompt t(?:hroughput|put): |Running: \d+ reqs, )"
)
# Running: 15 reqs · GPU KV cache usage: 99.7% · Reqs Running: 15
STATS_FIELD = re.compile(r"(?P<key>[^:]+): (?P<value>\d+(?:\.\d+)?|-?nan)(?P<unit>%| tokens/s| toks/s| reqs|)\.?\s*")
# KV fetch: 1 waiting to start, 1 in progress, 0 completed waiting
KV_FETCH_FIELD = re.compile(r"(?:KV fetch: )?(?P<value>\d+) (?P<key>waiting to start|in progress|completed waiting)")
# Prefix cache hit rate: GPU: 91.98%, CPU: 0.00%
V0_PREFIX = re.compile(r"Prefix cache hit rate: GPU: (?P<GPU>[\d.]+|-?nan)%, CPU: (?P<CPU>[\d.]+|-?nan)%\s*$")

TOKENS_PER_S, REQUESTS, SHARE = (Kind.REAL, (" tokens/s", " toks/s")), (Kind.COUNT, (" reqs", "")), (Kind.PERCENT, ("%",))
STATS_COLUMNS: dict[str, tuple[str, tuple[Kind, tuple[str, ...]]]] = {
    "Avg prompt throughput": ("prompt_tokens_per_s", TOKENS_PER_S),
    "Avg prompt tput": ("prompt_tokens_per_s", TOKENS_PER_S),
    "Avg generation throughput": ("generation_tokens_per_s", TOKENS_PER_S),
    "Avg generation tput": ("generation_tokens_per_s", TOKENS_PER_S),
    "Running": ("running", REQUESTS),
    "Reqs Running": ("running", REQUESTS),
    "Waiting": ("waiting", REQUESTS),
    "Pending": ("waiting", REQUESTS),
    "Deferred": ("deferred", REQUESTS),
    "Swapped": ("swapped", REQUESTS),
    "Preemptions": ("preemptions", REQUESTS),
    "Prefix cache hit rate": ("prefix_hit_ratio", SHARE),
    "External prefix cache hit rate": ("external_prefix_hit_ratio", SHARE),
}
KV_FETCH_COLUMNS = {
    "waiting to start": "kv_fetch_waiting",
    "in progress": "kv_fetch_active",
    "completed waiting": "kv_fetch_done",
}


def read_stats(record: Record, *, pool_is_cpu: bool = False) -> Iterator[Reading]:
    """The statistics line of any era, and V0's line of prefix hit rates beside it."""
    message = record.message
    if rates := V0_PREFIX.match(message):
        rate = rates.span("CPU" if pool_is_cpu else "GPU")
        other = rates.span("GPU" if pool_is_cpu else "CPU")
        columns = {"prefix_hit_ratio": (Kind.PERCENT, rate), "": (Kind.ANYTHING, other)}
        yield _reading(record, "engine_samples", {}, columns)
        return
    head = STATS.match(message)
    if not head:
        return
    columns = _stats_columns(message, head.end(), pool_is_cpu=pool_is_cpu)
    if columns and "running" in columns:
        fixed: dict[str, Any] = {"engine": _engine(head["engine"])} if head["engine"] else {}
        if head["aggregated"]:
            fixed |= {"engines_aggregated": int(head["aggregated"]), "engine": None}
        yield _reading(record, "engine_samples", fixed, columns)


def _stats_columns(message: str, start: int, *, pool_is_cpu: bool) -> dict[str, tuple[Kind, tuple[int, int]]] | None:
    """Each known field's kind and place; None where a known field has a value it cannot have. Unknown fields are passed over."""
    found: dict[str, tuple[Kind, tuple[int, int]]] = {}
    for part in message[start:].split(", "):
        if fetch := KV_FETCH_FIELD.match(part):
            column, kind, span = KV_FETCH_COLUMNS[fetch["key"]], Kind.COUNT, fetch.span("value")
        else:
            key = part.partition(":")[0]
            column, (kind, units) = STATS_COLUMNS.get(key) or _usage_column(key, found, pool_is_cpu=pool_is_cpu)
            value = STATS_FIELD.fullmatch(part)
            if column and not (value and value["unit"] in units and (kind is not Kind.COUNT or value["value"].isdigit())):
                return None
            span = value.span("value") if value else (0, 0)
        if column:
            found[column] = (kind, (start + span[0], start + span[1]))
        start += len(part) + 2
    return found


def _usage_column(key: str, found: dict[str, Any], *, pool_is_cpu: bool) -> tuple[str, tuple[Kind, tuple[str, ...]]]:
    """Column of `<device> KV cache usage`. V1 names the pool's device; V0 prints both, and CPU is swap unless it is the pool."""
    if not key.endswith((" KV cache usage", " KV cache used")):
        return "", SHARE
    is_pool = "swapped" not in found or key.startswith("CPU ") == pool_is_cpu
    return "kv_usage_ratio" if is_pool else "swap_usage_ratio", SHARE


# The other lines -----------------------------------------------------------------------------------------------------------

# Engine 000: Iteration(4211): 1 context requests, 1984 context tokens, 17 generation requests, 17 generation tokens,
#   iteration elapsed time: 41.73 ms, GPU KV cache usage: 99.7%[, encoder inputs: N …] · … 10.25 ms (dummy)
ITERATION = re.compile(
    r"(?:Engine (?P<engine>\d+): )?Iteration\((?P<iteration>\d+)\): (?P<context_requests>\d+) context requests, "
    r"(?P<context_tokens>\d+) context tokens, (?P<generation_requests>\d+) generation requests, "
    r"(?P<generation_tokens>\d+) generation tokens, iteration elapsed time: (?P<elapsed_ms>\d+(?:\.\d+)?) ms(?: \(dummy\))?"
    r"(?:, [\w +]{1,40} KV cache usage: (?P<kv_usage_ratio>\d+(?:\.\d+)?|-?nan)%)?(?:, [^,]*)*$"
)
ITERATION_KINDS = {"elapsed_ms": Kind.REAL, "kv_usage_ratio": Kind.PERCENT}

# Received request cmpl-7: params: SamplingParams(n=1, …, ignore_eos=False, max_tokens=128, …), lora_request: None.
RECEIVED = re.compile(r"Received request (?P<request_id>\S+): ")
MAX_TOKENS = re.compile(r"ignore_eos=(?:True|False), max_tokens=(?P<max_tokens>\d+)(?=[,)])")
# Added request cmpl-7-9d8318f6. · Finished request cmpl-7.
ONE_REQUEST = re.compile(r"(?P<event>Added|Finished) request (?P<request_id>\S+)\.\s*$")
# Aborted request cmpl-7. · Aborted request(s) cmpl-7-9d8318f6,cmpl-8-9592d01f.
ABORTED = re.compile(r"Aborted request(?:\(s\))? (?P<ids>\S.*?)\.?\s*$")
# Request cmpl-7 aborted. · Request cmpl-7 failed (engine dead).
ENDED = re.compile(r"Request (?P<request_id>\S+) (?P<event>aborted|failed)\b")

# Each line, and the event it is; `count` and `request_id` are what those groups hold.
EVENTS = tuple(
    (event, re.compile(pattern))
    for event, pattern in (
        # Sequence group 147 is preempted by PreemptionMode.RECOMPUTE mode because … total_num_cumulative_preemption=1
        (
            "preemption_warning_{mode}",
            (
                r"Sequence group (?P<request_id>\S+) is preempted by (?:PreemptionMode\.)?(?P<mode>RECOMPUTE|SWAP) mode\b"
                r"(?:.{0,400}?total_num_cumulative_preemption=(?P<count>\d+))?"
            ),
        ),
        # Initializing a V1 LLM engine (v0.32.0) with config: …
        ("engine_start", ENGINE.pattern),
        # [shutdown] API server: shutdown triggered · [shutdown] EngineCore: start mode=abort timeout=0s
        (
            "engine_shutdown",
            r"\[shutdown\] (?:API server: shutdown triggered|EngineCore: start\b)|Shutting down FastAPI HTTP server",
        ),
        # EngineCore encountered a fatal error. · Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.
        ("engine_dead", r"EngineCore encountered a fatal error|.{0,80}\bdied unexpectedly"),
        ("engine_dead", r"(?:[\w.]+\.)?EngineDeadError\b"),
        # why an engine did not start, as the last line of its traceback; `count` is the longest sequence that would fit
        # ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when …
        ("start_no_kv_memory", r"(?:\w+: )?No available memory for the cache blocks"),
        # ValueError: To serve at least one request with the models's max seq len (131072), (40.00 GiB KV cache is needed, which
        #   is larger than the available KV cache memory (4.12 GiB). …, the estimated maximum model length is 13488. …
        (
            "start_kv_too_small",
            (
                r"(?:\w+: )?To serve at least one request with the model\S* max seq len"
                r"(?:.{0,600}?estimated maximum model length is (?P<count>\d+))?"
            ),
        ),
        # ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache
        #   (9504). …
        (
            "start_kv_too_small",
            r"(?:\w+: )?The model's max seq len \(\d+\) is larger than .{0,80}stored in KV cache \((?P<count>\d+)\)",
        ),
        # ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614). `count` is what would fit
        (
            "start_slots_beyond_pool",
            r"(?:\w+: )?max_num_seqs \(\d+\) exceeds (?:the )?available Mamba cache blocks \((?P<count>\d+)\)",
        ),
        # ValueError: Free memory on device cuda:0 (10.1/79.2 GiB) on startup is less than desired GPU memory utilization (0.9, …
        ("start_memory_taken", r"(?:\w+: )?Free memory on device .{0,200}is less than desired GPU memory utilization"),
        # EngineCore failed to start. · RuntimeError: Engine core initialization failed. See root cause above. …
        (
            "start_failed",
            r"EngineCore failed to start|(?:\w+: )?Engine (?:core|process) (?:initialization failed|failed to start)",
        ),
        # Starting vLLM server on http://0.0.0.0:8000 · Starting vLLM API server 0 on http://0.0.0.0:8000
        ("engine_ready", r"Starting vLLM (?:API )?server\b"),
        # Dumping input data for V1 LLM engine (v0.11.0) with config: … · torch.OutOfMemoryError: CUDA out of memory. …
        (
            "engine_failure",
            r"Dumping input data for (?:V1 )?LLM engine|(?:[\w.]+\.)?OutOfMemoryError\b|RuntimeError: CUDA out of memory",
        ),
        # Successfully reset prefix cache · Failed to reset prefix cache because some blocks (12) are not freed yet
        ("prefix_cache_reset", r"Successfully reset prefix cache"),
        ("prefix_cache_reset_failed", r"Failed to reset prefix cache because some blocks \((?P<count>\d+)\)"),
        # setting pause state to PAUSED_ALL
        ("pause_state", r"[Ss]etting pause state to "),
        # Input prompt (9000 tokens) is too long and exceeds limit of 8192
        ("input_too_long", r"Input prompt \((?P<count>\d+) tokens\)(?: \+ lookahead slots \(\d+\))? is too long and "),
        # AsyncLLM created with api_server_count more than 1; disabling stats logging to avoid incomplete stats.
        ("stats_disabled", r".{0,120}\bdisabling stats logging"),
    )
)


def read_iteration(record: Record) -> Iterator[Reading]:
    """One engine step of `--enable-logging-iteration-details`."""
    if step := ITERATION.match(record.message):
        names = [name for name in step.groupdict() if name != "engine" and step[name]]
        columns = {name: (ITERATION_KINDS.get(name, Kind.COUNT), step.span(name)) for name in names}
        yield _reading(record, "iteration_steps", {"engine": _engine(step["engine"])} if step["engine"] else {}, columns)


def read_request(record: Record) -> Iterator[Reading]:
    """What the log says of one request; the prompt and its tokens, between the id and the limit, are not looked at."""
    message = record.message
    if received := RECEIVED.match(message):
        columns = {"request_id": (Kind.ID, received.span("request_id"))}
        limit = MAX_TOKENS.search(message, max(message.rfind("ignore_eos="), 0))  # the last: a prompt could hold one too
        if limit:
            columns[""] = (Kind.ANYTHING, (received.end(), limit.start()))
            columns["max_tokens"] = (Kind.COUNT, limit.span("max_tokens"))
        reading = _reading(record, "request_lines", {"event": "received"}, columns)
        if limit:
            reading = replace(
                reading, holes=(*reading.holes, Hole(record.start + limit.end() + 1, record.end, "", Kind.ANYTHING))
            )
        yield replace(reading, teaches=reading.teaches and message.startswith("params: ", received.end()))
    elif one := ONE_REQUEST.match(message):
        columns = {"request_id": (Kind.ID, one.span("request_id"))}
        yield _reading(record, "request_lines", {"event": one["event"].lower()}, columns)
    elif aborted := ABORTED.match(message):
        for found in re.finditer(r"[^\s,]+", aborted["ids"]):
            span = (aborted.start("ids") + found.start(), aborted.start("ids") + found.end())
            yield _reading(record, "request_lines", {"event": "aborted"}, {"request_id": (Kind.ID, span)})
    elif ended := ENDED.match(message):
        columns = {"request_id": (Kind.ID, ended.span("request_id"))}
        yield _reading(record, "request_lines", {"event": ended["event"]}, columns)


def read_event(record: Record) -> Iterator[Reading]:
    """Happenings of the engine as a whole, and V0's preemption warning."""
    for event, pattern in EVENTS:
        if found := pattern.match(record.message):
            groups = found.groupdict()
            fixed = {"event": event.format(mode=(groups.get("mode") or "").lower()), "request_id": groups.get("request_id")}
            count = groups.get("count")
            yield _reading(record, "engine_events", fixed | {"count": int(count) if count else None}, {})
            return


def read_end(record: Record) -> Iterator[Reading]:
    """The last line of a log, whatever it says: where it has a time, the log was written until then."""
    if any(hole.column in ("at_utc", "at_local") for hole in record.holes):
        yield _reading(record, "engine_events", {"event": "log_end", "request_id": None, "count": None}, {})


def read_tier(record: Record) -> Iterator[Reading]:
    """What LMCache says among the engine's lines. Its stamps have a year; the engine's, which share their clock, have none."""
    if event := event_of(record.message):
        reading = _reading(record, "engine_events", event, {})
        stamps = {hole.column: hole.kind.value_of(record.text[hole.start : hole.end]) for hole in reading.holes}
        if "at_local" in stamps:
            stamps["at_local"] = stamps["at_local"].replace(year=PLACEHOLDER_YEAR)
        yield replace(reading, fixed=reading.fixed | stamps, holes=())


def read_settings(record: Record) -> Iterator[Reading]:
    """One row for each setting or fact the record states."""
    for key, value in settings_of(record.message).items():
        yield _reading(record, "engine_config", {"key": key, "value_text": value}, {})


def _reading(record: Record, table: str, fixed: dict[str, Any], columns: dict[str, tuple[Kind, tuple[int, int]]]) -> Reading:
    """A reading of a record: `columns` give kind and place in the message; process, engine and stamps come from the prefix."""
    own = {"process": record.process, "engine": record.engine, **record.fixed, **fixed}
    if table == "request_lines":
        del own["engine"]
    holes = (Hole(record.start + start, record.start + end, column, kind) for column, (kind, (start, end)) in columns.items())
    return Reading(table, own, (*record.holes, *holes), teaches=bool(columns) and record.is_verbatim)


def _engine(number: str) -> str:
    """`000` -> `0`."""
    return str(int(number))


READERS: tuple[Callable[[Record], Iterator[Reading]], ...] = (read_iteration, read_request, read_event, read_tier, read_settings)
