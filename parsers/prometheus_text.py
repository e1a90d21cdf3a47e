r"""Prometheus text exposition and OpenMetrics: one scrape of `/metrics`, or many in one file.

    # scrape_unix_ms 1760000015000
    # HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
    # TYPE vllm:num_preemptions_total counter
    vllm:num_preemptions_total{engine="0",model_name="m"} 30.0
    vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 200.0 1760000015000
    vllm:request_success_total{finished_reason="stop"} 7 # {trace_id="4bf9"} 1.0 1760000015.1

Each sample becomes a row of `metric_samples`; `vllm:cache_config_info` also gives `engine_config`, once per set of values.
A sample's time is its own third field (milliseconds, or seconds in OpenMetrics), else that of its scrape, else null.

A scrape's time is what the recording loop wrote above it: a line that is no sample, with or without `#`, made of words such as
`scrape_unix_ms`, `timestamp:` or `fetched at` (or none), a time, and at most decoration behind it. The time is a Unix time (10
digits are seconds, 13 milliseconds, 16 microseconds, 19 nanoseconds), an ISO 8601 date with time, or what `date -u` prints. One
without a zone is taken as UTC. A comment that begins with `scrape` or `timestamp` and has no readable time is not understood,
and leaves the scrape below it without a time, because the one before it would be wrong.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime

import pyarrow as pa

from parsers import Format
from parsers.columns import COLUMNS
from parsers.prometheus_names import Series, config, identity, kept_name, number
from parsers.source import Account, InputError, Sink, Source
from parsers.unix_time import unix_microseconds

BATCH_ROWS = 200_000
MAX_REMEMBERED = 200_000  # distinct series texts; beyond it the memory starts afresh
NOT_KEPT = -1

_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABELS = rb'\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}'
_SAMPLE = re.compile(
    rb"((" + _NAME + rb")[ \t]*(" + _LABELS + rb")?)[ \t]+([^\s{#]+)(?:[ \t]+(-?[0-9][0-9.eE+]*))?[ \t]*(?:#[ \t]*\{.*)?\s*"
)
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_METADATA = (b"# HELP ", b"# TYPE ", b"# UNIT ")

_SCRAPE_TIME = re.compile(
    r"[\s#=*>\[-]*(?P<label>[\w\s:=-]{0,60}?)(?<!\d)"
    r"(?:(?P<unix>\d{10}(?:\d{3}|\d{6}|\d{9})?)(?P<fraction>\.\d+)?"
    r"|(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?)\s?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?"
    r"|\w{3} (?P<month>\w{3}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)(?: (?P<half>[AP]M))? (?:UTC|GMT) (?P<year>\d{4}))"
    r"[\s=*<\]-]*",
    re.IGNORECASE | re.ASCII,
)
_TIME_WORDS = frozenset(
    "scrape scraped scraping timestamp time date ts at unix epoch s sec seconds ms us ns utc fetched collected captured "
    "recorded taken sample sampled metrics".split()
)
_SAYS_TIME = re.compile(rb"#+\s*(?:scrape|timestamp)", re.IGNORECASE)
_IDENTITY = tuple(each.name for each in fields(Series))


def parse(source: Source, sink: Sink) -> Account:
    """Read one file into the sink."""
    reader = _Reader(source.name, sink)
    try:
        with source.open() as stream:
            reader.read(stream)
    except InputError as fault:
        reader.account.error = str(fault)
    reader.flush()
    return reader.account


class _Reader:
    """What is known of one file. The text of a series is parsed the first time it is seen, and only its value afterwards."""

    def __init__(self, name: str, sink: Sink) -> None:
        self.name, self.sink, self.account = name, sink, Account()
        self.scrape_time: int | None = None
        self.index_of: dict[bytes, int] = {}  # text of a series (or metadata comment) -> its place in `series`, or NOT_KEPT
        self.series: list[Series] = []
        self.configs: set[tuple[object, ...]] = set()
        self._start_batch()

    def _start_batch(self) -> None:
        self.indices, self.values = array("i"), array("d")
        self.times: list[int | None] = []

    def read(self, lines: Iterable[bytes]) -> None:
        """The loop all speed hangs on: a known series costs one dictionary look-up and one float."""
        account, index_of = self.account, self.index_of
        for line in lines:
            account.lines += 1
            text, _, value_text = line.rpartition(b" ")
            index = index_of.get(text)
            if index is None:
                self._read_unknown(line)
            elif index == NOT_KEPT:
                account.ignored += 1
            elif (value := number(value_text)) is None:
                account.misread(account.lines)
            else:
                self._add(index, value, self.scrape_time)

    def flush(self) -> None:
        """Write the samples collected so far."""
        if not self.times:
            return
        count = len(self.times)
        indices = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(self.indices)])
        columns = {
            column: pa.array([getattr(each, column) for each in self.series], COLUMNS[column].type).take(indices)
            for column in _IDENTITY
        }
        columns["source"] = pa.repeat(self.name, count)
        columns["at_utc"] = pa.array(self.times, pa.int64()).cast(COLUMNS["at_utc"].type)
        columns["value"] = pa.Array.from_buffers(pa.float64(), count, [None, pa.py_buffer(self.values)])
        self.sink.write("metric_samples", pa.RecordBatch.from_pydict(columns))
        self._start_batch()

    def _add(self, index: int, value: float, time: int | None) -> None:
        """One sample. NaN says the engine has nothing to say; its line is used all the same."""
        self.account.used += 1
        if math.isnan(value):
            return
        self.indices.append(index)
        self.values.append(value)
        self.times.append(time)
        if len(self.times) >= BATCH_ROWS:
            self.flush()

    def _read_unknown(self, line: bytes) -> None:
        """A line that is not a known series and its value."""
        account = self.account
        if line.startswith(_METADATA):
            account.ignored += 1
            self._remember(line.rpartition(b" ")[0], NOT_KEPT)
        elif sample := _SAMPLE.fullmatch(line):
            self._read_sample(sample)
        elif (time := scrape_time(line)) is not None:
            account.used += 1
            self.scrape_time = time
        elif _SAYS_TIME.match(line):
            account.misread(account.lines)
            self.scrape_time = None
        elif line.startswith(b"#") or not line.strip():
            account.ignored += 1
        else:
            account.misread(account.lines)

    def _read_sample(self, sample: re.Match[bytes]) -> None:
        """The first sample of a series, or one that carries its own time or an exemplar."""
        text, name, labels_text, value_text, time_text = sample.groups()
        value = number(value_text)
        time = self.scrape_time if time_text is None else _sample_time(time_text)
        index = self.index_of.get(text)
        if index is None:
            index = self._learn(text, name.decode(), (labels_text or b"{}").decode("utf-8", "replace"), time)
        if index is None or value is None:
            self.account.misread(self.account.lines)
        elif index == NOT_KEPT:
            self.account.ignored += 1
        else:
            self._add(index, value, time)

    def _learn(self, text: bytes, exposed: str, labels_text: str, time: int | None) -> int | None:
        """Parse and remember a series seen for the first time. None where its labels do not follow the grammar."""
        name = kept_name(exposed)
        if name is None:
            return self._remember(text, NOT_KEPT)
        labels = parse_labels(labels_text)
        if labels is None:
            return None
        series = identity(name, labels)
        settings = config(name, labels)
        if settings and (key := (series.engine, series.instance, *sorted(settings.items()))) not in self.configs:
            self.configs.add(key)
            self.sink.write_rows(
                "engine_config",
                [
                    {
                        "source": self.name, "line": self.account.lines, "at_utc": time, "instance": series.instance,
                        "engine": series.engine, "key": setting, "value_text": value,
                    }
                    for setting, value in settings.items()
                ],
            )  # fmt: skip
        index = self._remember(text, len(self.series))
        self.series.append(series)
        return index

    def _remember(self, text: bytes, index: int) -> int:
        """Keep what a text stands for; a file of ever new texts does not fill the memory."""
        if len(self.index_of) >= MAX_REMEMBERED:
            self.flush()
            self.index_of.clear()
            self.series.clear()
            self.configs.clear()
            index = min(index, 0)
        self.index_of[text] = index
        return index


def parse_labels(text: str) -> dict[str, str] | None:
    r"""Labels of a series, unescaped: `{a="x",b="say \"hi\""}`, any order, a trailing comma allowed. None where broken."""
    inner = text[1:-1].strip()
    labels: dict[str, str] = {}
    end = 0
    while end < len(inner):
        label = _LABEL.match(inner, end)
        if label is None:
            return None
        value = label[2]
        labels[label[1]] = _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], value) if "\\" in value else value
        end = label.end()
    return labels


def scrape_time(line: bytes) -> int | None:
    """Microseconds since 1970 of a line that dates the scrape below it; None for any other line."""
    found = _SCRAPE_TIME.fullmatch(line.decode("utf-8", "replace"))
    if found is None or not all(word in _TIME_WORDS or word.isdigit() for word in re.findall(r"[^\W_]+", found["label"].lower())):
        return None
    if digits := found["unix"]:
        return unix_microseconds(float(digits + found["fraction"]) if found["fraction"] else int(digits))
    try:
        if iso := found["iso"]:
            zone = (found["zone"] or "Z").upper()
            return _microseconds(datetime.fromisoformat(iso + zone.replace("UTC", "Z")))
        text = f"{found['year']} {found['month']} {found['day']} {found['clock']} {found['half'] or ''}"
        return _microseconds(
            datetime.strptime(text.strip() + " +0000", f"%Y %b %d {'%I:%M:%S %p' if found['half'] else '%H:%M:%S'} %z")
        )
    except ValueError:
        return None


def _sample_time(text: bytes) -> int | None:
    stamp = number(text)
    return None if stamp is None else unix_microseconds(stamp)


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)


def detect(head: bytes) -> float:
    """How much of the head is exposition; a log that quotes a metrics page has far more other lines."""
    lines = head.splitlines()
    if len(lines) > 1 and not head.endswith(b"\n"):
        lines.pop()  # cut by the end of the head
    lines = [line for line in lines if line.strip()]
    samples = [sample for line in lines if (sample := _SAMPLE.fullmatch(line))]
    metadata = sum(line.startswith(_METADATA) for line in lines)
    comments = sum(line.startswith(b"#") for line in lines) - metadata
    kept = any(kept_name(sample[2].decode()) for sample in samples)
    if not (kept or metadata) or len(samples) + metadata + comments < 0.8 * len(lines):
        return 0.0
    return 0.95 if kept else 0.6


FORMAT = Format(
    name="prometheus_text",
    title="Prometheus text or OpenMetrics scrapes of /metrics",
    engine_kind=None,
    versions="vLLM 0.2.7 to 0.33, SGLang, TensorRT-LLM, llama.cpp, LMCache, Dynamo, DCGM",
    can_tell="load, KV usage, preemption counts and latency histograms between two scrapes; capacity from cache_config_info",
    cannot_tell="which request; anything between scrapes; anything over time from a single scrape or scrapes without times",
    tables=("metric_samples", "engine_config"),
    detect=detect,
    parse=parse,
)
