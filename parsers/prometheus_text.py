r"""Prometheus text exposition and OpenMetrics: one scrape of `/metrics`, or many in one file.

    # scrape_unix_ms 1760000015000
    # HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
    # TYPE vllm:num_preemptions_total counter
    vllm:num_preemptions_total{engine="0",model_name="m"} 30.0
    vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 200.0 1760000015000
    vllm:request_success_total{finished_reason="stop"} 7 # {trace_id="4bf9"} 1.0 1760000015.1
    {__name__="vllm:num_preemptions_total", engine="0", instance="gpu-1:8000", job="vllm"} 30 1760000015000

Each sample becomes a row of `metric_samples`; `vllm:cache_config_info` also gives `engine_config`, once per set of values.
A sample's time is its own third field (milliseconds, or seconds in OpenMetrics), else that of its scrape, else null. The last
form is what `promtool tsdb dump` prints; native histograms, which it prints in a line each, are ignored.

A scrape's time is what the recording loop wrote above it: a line that is no sample, with or without `#`, made of words such as
`scrape_unix_ms`, `timestamp:` or `fetched at` (or none), a time, and at most decoration behind it. The time is a Unix time (10
digits are seconds, 13 milliseconds, 16 microseconds, 19 nanoseconds), an ISO 8601 date with time, or what `date -u` prints. One
without a zone is taken as UTC. A comment that begins with `scrape` or `timestamp` and has no readable time is not understood,
and leaves the scrape below it without a time, because the one before it would be wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice

from parsers import Format
from parsers.prometheus_names import kept_name, number
from parsers.prometheus_pages import MAX_LINES, Page
from parsers.prometheus_samples import Samples
from parsers.source import Account, Sink, Source
from parsers.unix_time import unix_microseconds

MAX_REMEMBERED = 200_000  # distinct texts; beyond it the memory starts afresh
MOST_LABELS = 256  # of one series; the most that an engine and all relabelling give it is some thirty
MAX_TIME_LINE = 200  # bytes; a time is short, and a long line costs the pattern much
NOT_KEPT = -1

_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABELS = rb'\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}'
_SAMPLE = re.compile(
    rb"(?=[a-zA-Z_:{])(("
    + _NAME
    + rb")?[ \t]*("
    + _LABELS
    + rb")?)[ \t]+([^\s{#]+)(?:[ \t]+(-?[0-9][0-9.eE+]*))?[ \t]*(?:#[ \t]*\{.*)?\s*"
)
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_NAME_LABEL = re.compile(rb'[{,]\s*__name__\s*=\s*"(' + _NAME + rb')"')
_NATIVE_HISTOGRAM = re.compile(rb'\{.*"\} \{count:')
_METADATA = (b"# HELP ", b"# TYPE ", b"# UNIT ")

_SCRAPE_TIME = re.compile(
    r"[\s#=*>\[(-]*(?P<label>[\w\s:=\[(-]{0,60}?)(?<!\d)"
    r"(?:(?P<unix>\d{10}(?:\d{3}|\d{6}|\d{9})?)(?P<fraction>\.\d+)?"
    r"|(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?)\s?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?"
    r"|\w{3} (?P<month>\w{3}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)(?: (?P<half>[AP]M))? (?:UTC|GMT) (?P<year>\d{4}))"
    r"[\s#=*<\])-]*",
    re.IGNORECASE | re.ASCII,
)
_TIME_WORDS = frozenset(
    {"scrape", "scraped", "fetched", "collected", "captured", "recorded", "taken", "sample", "sampled", "metrics", "at"}
    | {"timestamp", "time", "date", "ts", "unix", "epoch", "utc", "s", "sec", "seconds", "ms", "us", "ns"}
)
_SAYS_TIME = re.compile(rb"#+\s*(?:scrape|timestamp)", re.IGNORECASE)


def parse(source: Source, sink: Sink) -> Account:
    """Read one file into the sink."""
    reader = _Reader(Samples(source.name, sink))
    with reader.account.kept_to_the_fault(), source.open() as stream:
        reader.read(stream)
    reader.samples.flush()
    return reader.account


class _Reader:
    """What is known of one file. The text of a series is parsed the first time it is seen, and only its value afterwards."""

    def __init__(self, samples: Samples) -> None:
        self.samples, self.account = samples, Account()
        self.scrape_time: int | None = None
        self.index_of: dict[bytes, int] = {}  # text of a series or metadata comment -> index of the series, or NOT_KEPT
        self.page_lines: list[bytes] = []  # what has been read since the line that dated the scrape
        self.page: Page | None = None  # the whole page before, where the last line read dated another

    def read(self, stream: Iterable[bytes]) -> None:
        """Read line by line; and page by page, as long as each repeats the one before."""
        lines, line = iter(stream), b"\n"
        for line in lines:
            self._read_line(line)
            while self.page is not None:
                line = self._read_repeats(self.page, lines) or line  # noqa: PLW2901 - the last one read
        if self.scrape_time is not None and not line.endswith(b"\n"):
            self._take_back(line)

    def _read_repeats(self, page: Page, lines: Iterator[bytes]) -> bytes | None:
        """Read pages like the given one, and then the lines that are not. Returns the last of these."""
        account, size, used = self.account, len(page.lines), len(page.values)
        self.page, self.page_lines = None, []
        body = list(islice(lines, size))
        while body and page.turn(body):
            account.lines += size
            account.used += used
            account.ignored += size - used
            self.samples.add_page(page.indices, page.values, self.scrape_time)
            end = next(lines, None)
            time = scrape_time(end) if end else None
            if time is None:
                self.page_lines = page.lines
                body = [end] if end else []
                break
            account.lines += 1
            account.used += 1
            self.scrape_time = time
            body = list(islice(lines, size))
        for line in body:
            self._read_line(line)
        return body[-1] if body else None

    def _read_line(self, line: bytes) -> None:
        """One line: a known series costs a dictionary look-up and a float."""
        account = self.account
        account.lines += 1
        self.page = None
        if len(self.page_lines) < MAX_LINES:
            self.page_lines.append(line)
        text, _, value_text = line.rpartition(b" ")
        index = self.index_of.get(text)
        if index is None:
            self._read_unknown(line)
        elif index == NOT_KEPT:
            account.ignored += 1
        elif (value := number(value_text)) is None:
            self._read_unknown(line)  # its own time, set apart by a tab
        else:
            account.used += 1
            self.samples.add(index, value, self.scrape_time)

    def _take_back(self, line: bytes) -> None:
        """The last line of a recording that was cut: its value may be the beginning of another, `3` of `3012`."""
        sample = _SAMPLE.fullmatch(line)
        if sample is None or self.index_of.get(sample[1], NOT_KEPT) == NOT_KEPT or math.isnan(number(sample[4]) or 0):
            return
        if self.samples.drop_last():
            self.account.used -= 1
            self.account.misread(self.account.lines)

    def _read_unknown(self, line: bytes) -> None:
        """A line that is not a known series and its value."""
        account = self.account
        text, _, time_text = line.rpartition(b" ")
        text, _, value_text = text.rpartition(b" ")
        index = self.index_of.get(text, NOT_KEPT)
        if index != NOT_KEPT and (value := number(value_text)) is not None and (stamp := number(time_text)) is not None:
            account.used += 1
            self.samples.add(index, value, unix_microseconds(stamp))
        elif line.startswith(_METADATA):
            account.ignored += 1
            self._make_room()
            self.index_of[line.rpartition(b" ")[0]] = NOT_KEPT
        elif sample := _SAMPLE.fullmatch(line):
            self._read_sample(sample)
        elif (time := scrape_time(line)) is not None:
            account.used += 1
            self.scrape_time = time
            self.page = Page.of(self.page_lines[:-1], self.index_of)
            self.page_lines = []
        elif _SAYS_TIME.match(line):
            account.misread(account.lines)
            self.scrape_time = None
            self.page_lines = []
        elif line.startswith(b"#") or not line.strip() or _NATIVE_HISTOGRAM.match(line):
            account.ignored += 1
        else:
            account.misread(account.lines)

    def _read_sample(self, sample: re.Match[bytes]) -> None:
        """The first sample of a series, or one that carries an exemplar."""
        text, name, labels, value_text, time_text = sample.groups()
        value = number(value_text)
        time = self.scrape_time if time_text is None else _sample_time(time_text)
        index = self.index_of.get(text)
        if index is None:
            index = self._learn(text, (name or _name_label(text)).decode(), (labels or b"{}").decode("utf-8", "replace"), time)
        if index is None or value is None:
            self.account.misread(self.account.lines)
        elif index == NOT_KEPT:
            self.account.ignored += 1
        else:
            self.account.used += 1
            self.samples.add(index, value, time)

    def _learn(self, text: bytes, exposed: str, labels_text: str, time: int | None) -> int | None:
        """Parse and remember a series seen for the first time. None where its labels do not follow the grammar."""
        name = kept_name(exposed)
        labels = parse_labels(labels_text)
        if labels is None:
            return None
        self._make_room()
        index = self.index_of[text] = NOT_KEPT if name is None else self.samples.describe(name, labels, self.account.lines, time)
        return index

    def _make_room(self) -> None:
        """A file of ever new texts does not fill the memory."""
        if len(self.index_of) >= MAX_REMEMBERED:
            self.samples.forget()
            self.index_of.clear()


def parse_labels(text: str) -> dict[str, str] | None:
    r"""Labels of a series, unescaped: `{a="x",b="say \"hi\""}`, in any order. None where broken or endless."""
    inner = text[1:-1].strip()
    labels: dict[str, str] = {}
    end = 0
    while end < len(inner):
        label = _LABEL.match(inner, end)
        if label is None or len(labels) == MOST_LABELS:
            return None
        value = label[2]
        labels[label[1]] = _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], value) if "\\" in value else value
        end = label.end()
    return labels


def _name_label(text: bytes) -> bytes:
    """The name of a series that carries it among its labels, as promtool dumps it; empty where it has none."""
    found = _NAME_LABEL.search(text)
    return found[1] if found else b""


def scrape_time(line: bytes) -> int | None:
    """Microseconds since 1970 of a line that dates the scrape below it; None for any other line."""
    found = _SCRAPE_TIME.fullmatch(line.decode("utf-8", "replace")) if len(line) < MAX_TIME_LINE else None
    if found is None or not all(word in _TIME_WORDS or word.isdigit() for word in re.findall(r"[^\W_]+", found["label"].lower())):
        return None
    if digits := found["unix"]:
        return unix_microseconds(float(digits + found["fraction"]) if found["fraction"] else int(digits))
    try:
        if iso := found["iso"]:
            zone = (found["zone"] or "Z").upper()
            return _microseconds(datetime.fromisoformat(iso + zone.replace("UTC", "Z")))
        clock = "%I:%M:%S%p" if found["half"] else "%H:%M:%S"
        text = f"{found['year']} {found['month']} {found['day']} {found['clock']}{found['half'] or ''} +0000"
        return _microseconds(datetime.strptime(text, f"%Y %b %d {clock} %z"))
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
    kept = any(kept_name((sample[2] or _name_label(sample[1])).decode()) for sample in samples)
    if not (kept or metadata) or len(samples) + metadata + comments < 0.8 * len(lines):
        return 0.0
    return 0.95 if kept else 0.6


FORMAT = Format(
    name="prometheus_text",
    title="Prometheus text or OpenMetrics: scrapes of /metrics, promtool tsdb dump",
    engine_kind=None,
    versions="vLLM 0.2.7 to 0.33, SGLang, TensorRT-LLM, llama.cpp, LMCache, Dynamo, DCGM",
    can_tell="load, KV usage, preemption counts and latency histograms between two scrapes; capacity from cache_config_info",
    cannot_tell="which request; anything between scrapes; anything over time from a single scrape or scrapes without times",
    tables=("metric_samples", "engine_config"),
    detect=detect,
    parse=parse,
)
