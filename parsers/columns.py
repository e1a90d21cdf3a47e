"""The column dictionary: every column a parser may write, once, with its type, unit and meaning.

What belongs here: names, Arrow types, units, one sentence each, and which raw table has which columns. A quantity has one
name everywhere; its unit is in the name. What does not: columns derived in SQL (they are documented in the header of
the SQL file that makes them) and any reading of bytes.

Raw tables keep what the file said. Times come in two forms: `at_utc` (`at` is a reserved word of DuckDB 2) where the file itself carries an absolute time, and
`at_local` where it carries a wall clock without a zone (and often without a year: then the year is PLACEHOLDER_YEAR, or the
one after it behind a New Year's Eve; a clock that counts from a start has START_OF_CLOCK there). `pipelines.clock` turns the second into the first. A value a line lacks is null, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

PLACEHOLDER_YEAR = 2000  # a leap year, so that 02-29 parses; no inference engine wrote a log in it
LOGGED_SINCE = 1990  # what stands before it is counted from a start, and is of no wall clock
START_OF_CLOCK = datetime(1970, 1, 1)  # noqa: DTZ001 - `at_local` of the 0 of a clock that counts from a start; it has no zone


@dataclass(frozen=True)
class Column:
    """One column: Arrow type, unit ("" where it has none) and a sentence on what it holds and when it is valid."""

    type: pa.DataType
    unit: str
    meaning: str


UTC = pa.timestamp("us", tz="UTC")
LOCAL = pa.timestamp("us")
TEXT, REAL, INT, BOOL, HASH = pa.string(), pa.float64(), pa.int64(), pa.bool_(), pa.uint64()

COLUMNS: dict[str, Column] = {
    # where a row comes from
    "source": Column(TEXT, "", "The input it was read from: its path below the folder given, without .gz or .zst."),
    "line": Column(INT, "", "Line number in that input, from 1."),
    "process": Column(TEXT, "", "Process prefix of the line, such as `EngineCore pid=30123`."),
    "instance": Column(
        TEXT, "", "The server among several: the `instance`, `pod` or host label, or the log's own; null where there is one."
    ),
    "engine": Column(
        TEXT, "", "Engine (data-parallel rank) within the server, `0`, `1`, …; null where the input does not name it."
    ),
    "model": Column(TEXT, "", "Served model name."),
    # when
    "at_utc": Column(UTC, "", "Time of the observation where the input carries an absolute one."),
    "at_local": Column(
        LOCAL,
        "",
        "Wall clock of the writer, no zone; year 2000 or 2001 where the input has no year, 1970 where it counts from a start.",
    ),
    # the sources themselves
    "path": Column(TEXT, "", "Path of the file as it was given."),
    "format": Column(TEXT, "", "Name of the recognised format; null where none was."),
    "engine_kind": Column(
        TEXT, "", "vllm, sglang, tensorrt_llm, llamacpp, as its format says; null where the format belongs to no engine."
    ),
    "bytes": Column(INT, "bytes", "Size of the file as stored."),
    "lines": Column(INT, "lines", "Lines (or records of a binary or JSON format) seen."),
    "lines_used": Column(INT, "lines", "Lines that gave at least one row."),
    "lines_ignored": Column(INT, "lines", "Lines known to carry nothing this product reads."),
    "lines_not_understood": Column(INT, "lines", "Lines that look like a signal and do not follow its grammar."),
    "first_not_understood": Column(INT, "", "Line number of the first one not understood."),
    "is_other": Column(BOOL, "", "Whether it is another kind of file, or a second copy, so that nothing is missing without it."),
    "copy_of": Column(TEXT, "", "Input of the same content that is read in its place; null where there is none."),
    "error": Column(TEXT, "", "Why the file, or the rest of it, could not be read; null where it could."),
    # what an engine says of its own load, in a statistics line
    "engines_aggregated": Column(INT, "", "Engines summed into one line; null where the line is of one engine."),
    "prompt_tokens_per_s": Column(REAL, "tokens/s", "Prompt throughput the engine printed; what it counts differs by version."),
    "generation_tokens_per_s": Column(REAL, "tokens/s", "Generation throughput the engine printed."),
    "running": Column(INT, "requests", "Requests in the running batch at the instant of the line."),
    "waiting": Column(INT, "requests", "Requests in the waiting queue; preempted and deferred ones are among them."),
    "deferred": Column(INT, "requests", "Waiting requests that capacity alone would not admit (LoRA slot, remote KV, grammar)."),
    "swapped": Column(INT, "requests", "V0: requests whose blocks were swapped to host memory."),
    "kv_fetch_waiting": Column(INT, "requests", "Requests that wait to start a KV fetch."),
    "kv_fetch_active": Column(INT, "requests", "Requests with a KV fetch under way."),
    "kv_fetch_done": Column(INT, "requests", "Requests whose KV fetch is done and that wait to be scheduled."),
    "preemptions": Column(INT, "requests", "Preemptions in the line's interval, where the line prints them."),
    "kv_usage_ratio": Column(
        REAL, "ratio", "Share of the KV pool held by active requests, 0 to 1; reusable blocks count as free."
    ),
    "swa_usage_ratio": Column(REAL, "ratio", "SGLang hybrid models: share of the sliding-window pool in use."),
    "mamba_usage_ratio": Column(REAL, "ratio", "SGLang hybrid models: share of the recurrent-state pool in use."),
    "kv_used_tokens": Column(INT, "tokens", "Tokens of the KV pool held by active requests; reusable ones are not counted."),
    "waiting_tokens": Column(INT, "tokens", "Prompt tokens of the waiting requests that are in no cache."),
    "prefill_requests": Column(INT, "requests", "Requests the prefill batch of the line admits; each chunk of a prompt counts."),
    "prefill_tokens": Column(INT, "tokens", "Tokens computed by that prefill batch, those of retracted requests included."),
    "prefill_cached_tokens": Column(INT, "tokens", "Tokens its requests found in the prefix cache."),
    "has_graph": Column(BOOL, "", "Whether the step ran as a captured CUDA (or CPU, NPU) graph."),
    "swap_usage_ratio": Column(REAL, "ratio", "V0: share of host swap space in use, 0 to 1."),
    "prefix_hit_ratio": Column(
        REAL, "ratio", "Prefix-cache hit ratio the engine printed; over its own window, not the interval."
    ),
    "external_prefix_hit_ratio": Column(REAL, "ratio", "Hit ratio in an external KV tier, as printed."),
    # one engine step
    "iteration": Column(INT, "", "Step counter of the engine; it restarts with the engine."),
    "context_requests": Column(INT, "requests", "Requests in prefill in the step."),
    "context_tokens": Column(INT, "tokens", "Tokens scheduled for them, recomputed ones included."),
    "generation_requests": Column(INT, "requests", "Requests in decode in the step."),
    "generation_tokens": Column(INT, "tokens", "Tokens scheduled for them; a resumed request may be counted here."),
    "elapsed_ms": Column(REAL, "ms", "Elapsed time the engine printed for the step."),
    # configuration and happenings
    "key": Column(TEXT, "", "Setting or fact: max_num_seqs, block_size, kv_capacity_tokens, engine_version, …"),
    "value_text": Column(TEXT, "", "Its value as printed."),
    "event": Column(TEXT, "", "What happened."),
    "request_id": Column(TEXT, "", "Request id as the engine or client wrote it."),
    "count": Column(INT, "", "Number printed with the event (for V0 preemption: the cumulative count)."),
    # metrics
    "name": Column(TEXT, "", "Metric or span name as exposed."),
    "le": Column(REAL, "", "Upper bound of a histogram bucket; null for other samples."),
    "labels": Column(TEXT, "", "Remaining labels as `k=v` sorted and joined by commas; empty where there are none."),
    "value": Column(REAL, "", "Sample value; NaN samples are dropped."),
    # one benchmark result
    "run_index": Column(INT, "", "Result object within the file, from 0."),
    "client": Column(TEXT, "", "Load generator: vllm_bench, sglang_bench, aiperf, …"),
    "date_local": Column(
        LOCAL, "", "Date the client wrote; for vLLM it is the end of the run, in its local zone, to the second."
    ),
    "duration_s": Column(REAL, "s", "Duration of the run."),
    "completed": Column(INT, "requests", "Requests the client counted as completed."),
    "failed": Column(INT, "requests", "Requests the client counted as failed; null where it does not say."),
    "num_prompts": Column(INT, "requests", "Requests asked for."),
    "request_rate": Column(REAL, "requests/s", "Offered rate; null where unlimited or not said."),
    "max_concurrency": Column(INT, "requests", "Client-side limit of requests in flight; null where unlimited."),
    "has_details": Column(BOOL, "", "Whether the result carries one entry per request."),
    "total_input_tokens": Column(INT, "tokens", "Prompt tokens of the run."),
    "total_output_tokens": Column(INT, "tokens", "Generated tokens of the run."),
    "aggregates": Column(TEXT, "", "The client's own summary numbers, JSON object of key to number, names as written."),
    # one request of a client
    "request_index": Column(INT, "", "Position of the request in the result, from 0."),
    "start_at": Column(UTC, "", "When the client sent it, where its clock is absolute; for a span, the request's arrival."),
    "start_mono_s": Column(REAL, "s", "When the client sent it, on its own monotonic clock of unknown origin."),
    "client_queue_s": Column(REAL, "s", "Wait inside the client for a slot, before sending."),
    "input_tokens": Column(INT, "tokens", "Prompt tokens."),
    "output_tokens": Column(INT, "tokens", "Generated tokens."),
    "ttft_s": Column(REAL, "s", "Time to first token; null where no token came."),
    "latency_s": Column(REAL, "s", "Sending to last token; null where not said or failed."),
    "gaps_s": Column(pa.list_(REAL), "s", "Times between received chunks, after the first token, in order."),
    "gap_kind": Column(TEXT, "", "What a gap lies between: chunk, token, smoothed_token; null where there are none."),
    "is_failed": Column(BOOL, "", "Whether the request failed, by the rule of its format."),
    "error_kind": Column(TEXT, "", "Exception class or HTTP reason of a failed request; never its text."),
    "server_queue_s": Column(REAL, "s", "Queue time the server returned for it."),
    "server_ttft_s": Column(REAL, "s", "Time from scheduling to first token the server returned for it."),
    # one request of a workload
    "arrival_s": Column(REAL, "s", "Arrival, since the first request of the trace."),
    "session": Column(TEXT, "", "Conversation the request is part of; null where the trace names none."),
    "block_hashes": Column(
        pa.list_(HASH), "", "Ids of its prompt's blocks, each for the whole prefix up to it, folded to 64 bits."
    ),
    # one span
    "end_at": Column(UTC, "", "When the span ended."),
    "e2e_s": Column(REAL, "s", "Arrival to last token, server side."),
    "queue_s": Column(REAL, "s", "Arrival to first scheduling; a later wait after preemption is not in it."),
    "prefill_s": Column(REAL, "s", "First scheduling to first token."),
    "decode_s": Column(REAL, "s", "First to last token, waits after preemption and rebuilding included."),
    "inference_s": Column(REAL, "s", "First scheduling to last token."),
    "requeue_s": Column(REAL, "s", "Waiting to run again after preemptions; 0 where there were none."),
    "cached_tokens": Column(INT, "tokens", "Prompt tokens found in the prefix cache when it first ran."),
    "computed_tokens": Column(INT, "tokens", "Prompt tokens computed for it; those found in a cache are not among them."),
    "max_tokens": Column(INT, "tokens", "Output limit the request asked for."),
    "ignores_eos": Column(BOOL, "", "Whether it asked to generate up to that limit, past the end of the text (ignore_eos)."),
    # KV-cache events, one row per block (one row in all for `cleared`)
    "seq": Column(INT, "", "Sequence number of the batch; gaps are lost batches, a fall is a restart."),
    "event_index": Column(INT, "", "Order of the row within the batch, from 0: events in order, blocks in order."),
    "dp_rank": Column(INT, "", "Data-parallel rank that published it; null where not said."),
    "block_hash": Column(HASH, "", "Hash of the block, folded to 64 bits."),
    "parent_hash": Column(HASH, "", "Hash of the block before it in its sequence; null for a first block."),
    "block_size": Column(INT, "tokens", "Tokens in a full block."),
    "medium": Column(TEXT, "", "GPU, CPU, STORAGE, …; null where not said."),
    "group_idx": Column(INT, "", "KV-cache group of a hybrid model; null where not said."),
    # what a recorder says of its own recording
    "subject": Column(TEXT, "", "What it concerns: an address, or the name of a log; null for the recording as a whole."),
    "since_utc": Column(UTC, "", "From when on something is missing, until the time of the row; null where nothing is."),
    "detail": Column(TEXT, "", "One sentence of the recorder's own."),
}

_WHERE = ("source", "line")
_WHEN = ("at_utc", "at_local")

TABLES: dict[str, tuple[str, ...]] = {
    "sources": (
        "source",
        "path",
        "format",
        "engine_kind",
        "bytes",
        "lines",
        "lines_used",
        "lines_ignored",
        "lines_not_understood",
        "first_not_understood",
        "is_other",
        "copy_of",
        "error",
    ),
    "engine_samples": (
        *_WHERE,
        *_WHEN,
        "process",
        "instance",
        "engine",
        "engines_aggregated",
        "prompt_tokens_per_s",
        "generation_tokens_per_s",
        "running",
        "waiting",
        "deferred",
        "swapped",
        "kv_fetch_waiting",
        "kv_fetch_active",
        "kv_fetch_done",
        "preemptions",
        "kv_usage_ratio",
        "swap_usage_ratio",
        "prefix_hit_ratio",
        "external_prefix_hit_ratio",
        "swa_usage_ratio",
        "mamba_usage_ratio",
        "kv_used_tokens",
        "waiting_tokens",
        "prefill_requests",
        "prefill_tokens",
        "prefill_cached_tokens",
        "has_graph",
    ),
    "iteration_steps": (
        *_WHERE,
        *_WHEN,
        "process",
        "instance",
        "engine",
        "iteration",
        "context_requests",
        "context_tokens",
        "generation_requests",
        "generation_tokens",
        "elapsed_ms",
        "kv_usage_ratio",
    ),
    "engine_config": (*_WHERE, *_WHEN, "process", "instance", "engine", "key", "value_text"),
    "engine_events": (*_WHERE, *_WHEN, "process", "instance", "engine", "event", "request_id", "count"),
    "request_lines": (*_WHERE, *_WHEN, "process", "instance", "request_id", "event", "max_tokens"),
    "metric_samples": ("source", "at_utc", "instance", "engine", "model", "name", "le", "labels", "value"),
    "bench_runs": (
        "source",
        "run_index",
        "client",
        "model",
        "date_local",
        "start_at",
        "duration_s",
        "completed",
        "failed",
        "num_prompts",
        "request_rate",
        "max_concurrency",
        "has_details",
        "total_input_tokens",
        "total_output_tokens",
        "aggregates",
    ),
    "bench_requests": (
        "source",
        "run_index",
        "request_index",
        "request_id",
        "start_at",
        "start_mono_s",
        "client_queue_s",
        "input_tokens",
        "output_tokens",
        "ttft_s",
        "latency_s",
        "gaps_s",
        "gap_kind",
        "is_failed",
        "error_kind",
        "server_queue_s",
        "server_ttft_s",
    ),
    "workload_requests": (
        *_WHERE,
        "arrival_s",
        "start_at",
        "session",
        "input_tokens",
        "output_tokens",
        "block_size",
        "block_hashes",
    ),
    "spans": (
        *_WHERE,
        "instance",
        "name",
        "request_id",
        "start_at",
        "end_at",
        "input_tokens",
        "output_tokens",
        "max_tokens",
        "ignores_eos",
        "ttft_s",
        "e2e_s",
        "queue_s",
        "prefill_s",
        "decode_s",
        "inference_s",
        "preemptions",
        "requeue_s",
        "cached_tokens",
        "computed_tokens",
    ),
    "kv_events": (
        *_WHERE,
        "instance",
        "seq",
        "event_index",
        "at_utc",
        "dp_rank",
        "event",
        "block_hash",
        "parent_hash",
        "block_size",
        "medium",
        "group_idx",
    ),
    "recordings": (*_WHERE, "at_utc", "event", "subject", "since_utc", "count", "detail"),
}


def schema(table: str) -> pa.Schema:
    """Arrow schema of a raw table; unit and meaning travel as field metadata. KeyError for a table that is not in TABLES."""
    return pa.schema(
        pa.field(name, (column := COLUMNS[name]).type, metadata={"unit": column.unit, "meaning": column.meaning})
        for name in TABLES[table]
    )
