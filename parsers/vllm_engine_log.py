"""vLLM server log, every era: 0.2.7 to 0.33, V0 and V1, the Python server and the Rust frontend.

    INFO 01-23 06:33:37 metrics.py:396] Avg prompt throughput: 0.0 tokens/s, … GPU KV cache usage: 92.1%, CPU KV …: 0.0%.
    (APIServer pid=1) INFO 11-29 13:06:38 [loggers.py:335] Engine 000: Avg prompt throughput: 790.0 tokens/s, … Running: 15 reqs …
    (APIServer pid=1) INFO 11-29 13:06:38 [log_stats.rs:270] Avg prompt tput: 790.0 toks/s, … Reqs Running: 15, Waiting: 3, …
                                                                                                            -> engine_samples
    (APIServer pid=1) INFO … Engine 000: Iteration(4211): 1 context requests, 1984 context tokens, …        -> iteration_steps
    (EngineCore pid=2) INFO … [kv_cache_utils.py:2327] CPU KV cache size: 4,096 tokens, Maximum …           -> engine_config
    WARNING 08-20 10:18:39 scheduler.py:1141] Sequence group 147 is preempted by PreemptionMode.RECOMPUTE … -> engine_events
    (APIServer pid=1) INFO … [request_logger.py:65] Received request cmpl-7: params: SamplingParams(…       -> request_lines

Fields come and go between versions, so each is looked up by its name; a field the line lacks is null, never zero. The stamp has
no year and no zone: the year is a placeholder, and `pipelines.clock` supplies both. What a user wrote is never kept.

Most lines of a log carry no signal and are only counted (`parsers.signal_lines`). A line that has one is read slowly the first
time its shape is seen (`parsers.log_prefix`, then `parsers.vllm_log_lines`); all others of that shape are read together
(`parsers.line_shapes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from parsers import Format
from parsers.columns import PLACEHOLDER_YEAR, schema
from parsers.line_shapes import Shape
from parsers.log_prefix import COLOUR, HEADER, Record, records, shortened
from parsers.log_reading import is_starting
from parsers.signal_lines import signal_lines
from parsers.source import Account, Sink, Source, lines_of
from parsers.vllm_log_lines import MESSAGE_START, MUST_BE_UNDERSTOOD, READERS, SIGNALS, Reading, read_end, read_stats

CHUNK_BYTES = 8 << 20
ROWS_PER_WRITE = 200_000
FORMAT_TABLES = ("engine_samples", "iteration_steps", "engine_config", "engine_events", "request_lines")
TAIL_BYTES = 16 << 10
MOST_SHAPES = 64  # kept from chunk to chunk
MOST_LESSONS = 12  # shapes learned in one chunk that fit few of its lines, before the rest of it is read slowly


@dataclass
class _Log:
    """One log being read: what is known of it so far, and the rows not yet written."""

    source: Source
    sink: Sink
    account: Account = field(default_factory=Account)
    shapes: dict[Shape, None] = field(default_factory=dict)  # in order of use
    pool_is_cpu: bool = False  # V0's `GPU KV cache usage` is then of no pool
    unread_numbers: list[int] = field(default_factory=list)  # of the lines with a signal that are still to be read
    unread_texts: list[str] = field(default_factory=list)
    unread_size: int = 0
    frames: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    slow_rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    waiting_rows: int = 0
    is_starting: bool = False  # whether an engine began to start and has neither been ready since nor told of requests
    tail: bytes = b""  # the last lines
    december: int | None = None  # line of the first stamp in December, and of the first in January behind it
    january: int | None = None

    def take(self, chunk: bytearray, size: int) -> None:
        """Take the lines with a signal out of a chunk of whole lines, and read them once there are enough to be worth it."""
        lines, numbers, texts = signal_lines(chunk, size, SIGNALS)
        self.tail = bytes(memoryview(chunk)[max(0, size - TAIL_BYTES) : size])
        self.unread_numbers += [self.account.lines + 1 + number for number in numbers]
        self.unread_texts += texts
        self.unread_size += sum(map(len, texts))
        self.account.lines += lines
        self.account.ignored += lines - len(texts)
        if self.unread_size >= CHUNK_BYTES:
            self.read()

    def read(self) -> None:
        """Read the lines taken."""
        texts = _without_colour(pl.Series(self.unread_texts, dtype=pl.String))
        left = pl.DataFrame({"line": pl.Series(self.unread_numbers, dtype=pl.Int64), "text": texts})
        self.unread_numbers, self.unread_texts, self.unread_size = [], [], 0
        for shape in list(self.shapes):
            left = self._read_together(shape, left)
        lessons = MOST_LESSONS
        while lessons and left.height:
            shape = self._read_slowly(*left.row(0))
            left = left.slice(1)
            if shape:
                before = left.height
                left = self._read_together(shape, left)
                lessons -= before - left.height < 16
        for line, text in left.iter_rows():
            self._read_slowly(line, text)
        self.shapes = dict.fromkeys(list(self.shapes)[-MOST_SHAPES:])
        if self.waiting_rows >= ROWS_PER_WRITE:
            self.write()

    def _read_together(self, shape: Shape, lines: pl.DataFrame) -> pl.DataFrame:
        """Read every line that is of the shape; the lines that are not."""
        rows, others = shape.read(lines) if lines.height else (lines, lines)
        if others.height < lines.height:
            self.shapes.pop(shape, None)
            self.shapes[shape] = None
            self.account.used += rows.height
            self.waiting_rows += rows.height
            self.frames.setdefault(shape.table, []).append(rows.with_columns(pl.lit(v).alias(name) for name, v in shape.fixed))
        return others

    def _read_slowly(self, line: int, text: str) -> Shape | None:
        """Read one line, count it, and say what shape it has where others like it are to be expected."""
        readings: list[tuple[Record, Reading]] = []
        with suppress(ValueError):  # a number of thousands of digits
            for record in records(shortened(text.rstrip("\r\n")), MESSAGE_START):
                for reading in self._readings(record):
                    try:
                        row = reading.row(record)
                    except ValueError:  # a stamp such as 13-45 99:00:00: no record of this log
                        continue
                    if any(isinstance(value, int) and value >= 2**63 for value in row.values()):
                        continue
                    self.slow_rows.setdefault(reading.table, []).append({"line": line, **row})
                    self.is_starting = is_starting(reading.table, row, before=self.is_starting)
                    readings.append((record, reading))
        self.waiting_rows += len(readings)
        if readings:
            self.account.used += 1
        elif MUST_BE_UNDERSTOOD.search(text):
            self.account.misread(line)
        else:
            self.account.ignored += 1
        if len(readings) != 1 or not readings[0][1].teaches or readings[0][0].text != text.rstrip("\r\n"):
            return None
        record, reading = readings[0]
        return Shape.of(text, reading.table, reading.fixed, reading.holes)

    def _readings(self, record: Record) -> Iterator[Reading]:
        """What each reader makes of a record."""
        yield from read_stats(record, pool_is_cpu=self.pool_is_cpu)
        for reader in READERS:
            for reading in reader(record):
                if reading.fixed.get("key") == "device":
                    self._pool_is_cpu(is_cpu="cpu" in reading.fixed["value_text"])
                yield reading

    def _pool_is_cpu(self, *, is_cpu: bool) -> None:
        """Note the engine's device: what was learned of statistics lines on another does not hold."""
        if is_cpu != self.pool_is_cpu:
            self.pool_is_cpu = is_cpu
            self.shapes.clear()

    def end(self) -> None:
        """Of a log that ends while an engine starts, the time of its last line: how long a start took that came to nothing."""
        texts = self.tail.decode("utf-8", "replace").splitlines() if self.is_starting else []
        for back, text in enumerate(reversed(texts)):
            with suppress(ValueError):
                for record in records(shortened(re.sub(COLOUR, "", text)), MESSAGE_START):
                    for reading in read_end(record):
                        row = {"line": self.account.lines - back, **reading.row(record)}
                        self.slow_rows.setdefault(reading.table, []).append(row)
                        self.waiting_rows += 1
                        return

    def write(self) -> None:
        """Write the rows held, in the order of their lines, and in the year after where New Year lies before them."""
        if not self.waiting_rows:
            return
        tables = {table: self._rows(table) for table in {*self.frames, *self.slow_rows}}
        self._notice_new_year(list(tables.values()))
        for table, rows in tables.items():
            dated = _in_the_year_after(rows, self.january) if self.january else rows
            self.sink.write(table, dated.with_columns(source=pl.lit(self.source.name)).to_arrow(compat_level=PLAIN_ARROW))
        self.frames, self.slow_rows, self.waiting_rows = {}, {}, 0

    def _rows(self, table: str) -> pl.DataFrame:
        """The rows held for a table, in the order of their lines."""
        slow = pl.DataFrame(self.slow_rows.get(table, []), schema=TYPES[table])
        rows = pl.concat([slow, *self.frames.get(table, [])], how="diagonal_relaxed")
        return rows if rows["line"].is_sorted() else rows.sort("line", maintain_order=True)

    def _notice_new_year(self, tables: list[pl.DataFrame]) -> None:
        """Remember the first line of December, and the first of January behind it: stamps without a year begin again there."""
        months = pl.concat(rows.filter(NO_YEAR).select("line", month=pl.col("at_local").dt.month()) for rows in tables)
        if self.december is None:
            self.december = months.filter(month=12).select(pl.col("line").min()).item()
        if self.december is not None and self.january is None:
            is_next = (pl.col("month") == 1) & (pl.col("line") > self.december)
            self.january = months.filter(is_next).select(pl.col("line").min()).item()


NO_YEAR = pl.col("at_local").dt.year() == PLACEHOLDER_YEAR
TYPES = {table: pl.DataFrame(schema(table).empty_table()).schema for table in FORMAT_TABLES}
PLAIN_ARROW = pl.CompatLevel.oldest()  # without string views, which Parquet writers do not take


def _in_the_year_after(rows: pl.DataFrame, january: int) -> pl.DataFrame:
    """The rows with stamps of no year moved by one year from the line `january` on; a late straggler of December stays."""
    is_after = NO_YEAR & (pl.col("line") >= january) & (pl.col("at_local").dt.month() < 12)
    return rows.with_columns(at_local=pl.when(is_after).then(pl.col("at_local").dt.offset_by("1y")).otherwise("at_local"))


def _without_colour(lines: pl.Series) -> pl.Series:
    """The lines without colour codes, raw or escaped."""
    return lines.str.replace_all(COLOUR, "") if lines.str.contains(COLOUR).any() else lines


def parse(source: Source, sink: Sink) -> Account:
    """Read one log. A file cut in the middle keeps what came before the cut, and says so in `Account.error`."""
    log = _Log(source, sink)
    with log.account.kept_to_the_fault(), source.open() as stream:
        for chunk, size in lines_of(stream, CHUNK_BYTES):
            log.take(chunk, size)
    log.read()
    log.end()
    log.write()
    return log.account


# An access line of uvicorn for a route a vLLM server has, as other servers have too.
ACCESS = re.compile(r'INFO: +[\d.:a-f\[\]]+ - "(?:GET|POST) /(?:v1/|metrics|health)')


def detect(head: bytes) -> float:
    """How sure it is that this is the log of a vLLM server."""
    text = re.sub(COLOUR, "", head.decode("utf-8", "replace"))
    lines = text.splitlines()
    messages = [record.message for line in lines[:2000] for record in records(line, MESSAGE_START) if record.message]
    if any(MESSAGE_START.match(message) and not message.startswith("LMCache ") for message in messages):
        return 0.95
    if any(HEADER.search(line) for line in lines):
        return 0.6
    return 0.1 if ACCESS.search(text) else 0.0


FORMAT = Format(
    name="vllm_engine_log",
    title="vLLM server log",
    engine_kind="vllm",
    versions="0.2.7 to 0.33",
    can_tell="load, KV usage and queue every few seconds; capacity, settings; V0 preemption warnings; work per step where logged",
    cannot_tell="V1 preemptions and recomputation, unless --enable-logging-iteration-details was on; when requests finished",
    tables=FORMAT_TABLES,
    detect=detect,
    parse=parse,
)
