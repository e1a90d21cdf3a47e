"""Parsers: bytes of what an inference server left behind -> Arrow rows of the raw tables in `parsers.columns`.

This is the registry. A format is one module with a `FORMAT`; it is named in `FORMAT_MODULES` here and nowhere else. Nothing below
`parsers/` knows Dagster or DuckDB, reads anything but the file given, or asks for the time of day.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from parsers.bare_streams import PlacedSink, take_in
from parsers.json_text import BrokenJsonError, decoded, documents
from parsers.source import HEAD_BYTES, Account, InputError, Sink, Source, UnrecognisedFormat
from parsers.wrappers import Chain, chain_of, unwrap

__all__ = [
    "FORMAT_MODULES",
    "Account",
    "Format",
    "InputError",
    "Sink",
    "Source",
    "UnrecognisedFormat",
    "detect",
    "formats",
    "parse",
]

TAR_MAGIC_AT = 257  # bytes into the header of its first file
ARCHIVE = "an archive of several files; unpack it and give the folder"
UTF32 = "text in UTF-32; recode it (iconv -f UTF-32 -t UTF-8 FILE > FILE.utf8)"
BY_MAGIC = {  # what a file is that begins so
    codecs.BOM_UTF32_LE: UTF32,
    codecs.BOM_UTF32_BE: UTF32,
    b"\x89PNG": "a PNG picture, not something an engine wrote",
    b"PK\3\4": ARCHIVE,
}

FORMAT_MODULES = (
    "parsers.vllm_engine_log",
    "parsers.prometheus_text",
    "parsers.prometheus_json",
    "parsers.vllm_bench_json",
    "parsers.otlp_spans",
    "parsers.kv_events_jsonl",
    "parsers.sglang_engine_log",
    "parsers.sglang_request_log",
    "parsers.sglang_api_json",
    "parsers.llamacpp_server_log",
    "parsers.llamacpp_api_json",
    "parsers.tensorrt_llm_engine_log",
    "parsers.tensorrt_llm_iterations",
    "parsers.tensorrt_llm_kv_events",
    "parsers.lmcache_log",
    "parsers.inference_perf_json",
    "parsers.sweep_csv",
    "parsers.inference_perf_requests",
    "parsers.sglang_bench_jsonl",
    "parsers.aiperf_requests",
    "parsers.aiperf_server_metrics",
    "parsers.aiperf_server_parquet",
    "parsers.guidellm_json",
    "parsers.inferencex_json",
    "parsers.genai_perf_json",
    "parsers.benchmark_report",
    "parsers.llmservingsim",
    "parsers.request_traces",
    "parsers.nvidia_smi",
    "parsers.recording_journal",
)
# what `vllm bench serve`, SGLang's bench_serving and their kin print at the end
_CONSOLE = re.compile(rb"^={5,} [A-Za-z ]*Benchmark Result ={5,}\s*$|^Namespace\(subparser='bench'", re.MULTILINE)


@dataclass(frozen=True)
class Format:
    """A recognised format: how to tell it, how to read it, and what it can and cannot prove.

    `detect(head)` gets the first 64 KiB and answers how sure it is, 0 (not mine) to 1. `parse(source, sink)` writes rows and
    returns the line account; it raises InputError only where nothing of the file could be read, and otherwise reports a fault
    found later (a file cut in the middle) in `Account.error`, keeping what came before it.
    """

    name: str
    title: str
    engine_kind: str | None
    versions: str
    can_tell: str
    cannot_tell: str
    tables: tuple[str, ...]
    detect: Callable[[bytes], float]
    parse: Callable[[Source, Sink], Account]


def formats() -> tuple[Format, ...]:
    """Every format, in registry order."""
    return tuple(import_module(module).FORMAT for module in FORMAT_MODULES)


def detect(source: Source) -> Format:
    """The format that is surest of the file's head. UnrecognisedFormat where none is; InputError where it cannot be read."""
    head = source.head()
    if (chosen := surest(head)) and not is_archive(head):
        return chosen
    raise UnrecognisedFormat(f"{source.name}: {console_of(head) or _likeness(head)}; `kvpressure formats` lists what is read")


def is_archive(head: bytes) -> bool:
    """Whether it is of several files in one: a tar archive, whose first may well be a log."""
    return head[TAR_MAGIC_AT:].startswith(b"ustar")


def surest(head: bytes) -> Format | None:
    """The format that is surest of a head; None where none makes any claim on it."""
    best = max(formats(), key=lambda each: each.detect(head))
    return best if best.detect(head) > 0 else None


def parse(source: Source, sink: Sink, form: Format | None = None) -> tuple[Format, Account]:
    """Read one file into the sink, out of whatever collectors wrapped around its lines; its format is detected unless given."""
    if wrappers := _wrappers(source):
        sink.folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".unwrapped-", dir=sink.folder) as folder:
            if read := _parse_wrapped(source, wrappers, sink, Path(folder), form):
                return read
    chosen = form or detect(source)
    return chosen, _parse_bare(chosen, source, sink)


def _wrappers(source: Source) -> Chain:
    try:
        head = source.head()
        return Chain(()) if is_archive(head) else chain_of(head)
    except InputError:  # empty or damaged: the reader says how
        return Chain(())


def _parse_bare(chosen: Format, source: Source, sink: Sink) -> Account:
    account = chosen.parse(source, sink)
    if not account.balanced:
        raise AssertionError(f"{source.name}: {chosen.name} lost count of its lines: {account}")
    return account


def _parse_wrapped(
    source: Source, wrappers: Chain, sink: Sink, folder: Path, form: Format | None
) -> tuple[Format, Account] | None:
    """Read the lines of each server under the wrappers; None where no format claims any. The format is that of the most lines."""
    streams, lines, error = unwrap(source, wrappers, folder)
    known = [(stream, chosen) for stream in streams if (chosen := form or surest(stream.head(is_stamped=False)))]
    if not known:
        return None
    whole, used = Account(error=error), Counter[Format]()
    for number, (stream, chosen) in enumerate(known):
        # a reader of logs takes a time in front of a line, one of data does not
        is_stamped = form is not None or chosen.detect(stream.head(is_stamped=True)) > 0
        bare, origins = Source(folder / str(number), source.name), stream.origins()
        with bare.path.open("wb") as file:
            file.writelines(stream.bare(is_stamped=is_stamped))
        account = _parse_bare(chosen, bare, PlacedSink(sink, origins, stream.instance if len(known) > 1 else None))
        take_in(whole, account, origins)
        used[chosen] += account.used
    rest = max(lines - whole.lines, 0)  # parts of lines and of documents, replays, and what other programs wrote
    whole.lines, whole.ignored = whole.lines + rest, whole.ignored + rest
    return used.most_common(1)[0][0], whole


def console_of(head: bytes) -> str | None:
    """What a file is and what to keep instead, where it is what a benchmark printed on the console; None where it is not."""
    if not _CONSOLE.search(head):
        return None
    return (
        "what a benchmark printed on the console, rounded sums without a request's times; give the file that "
        "--save-result --save-detailed (vLLM) or --output-file --output-details (SGLang) writes"
    )


def script_of(head: bytes, form: Format) -> str | None:
    """What a file seems to be of which hardly a line is such a log's; None where more are: tracebacks are lines, too."""
    lines = [line for line in head.splitlines() if line.strip()]
    like = sum(form.detect(line) > 0 for line in lines)
    if not 0 < like < len(lines) / 10:
        return None
    count = f"{like} of its {len(lines)} lines {'is' if like == 1 else 'are'} like one's"
    return (
        f"hardly a {form.title}: {count}, and nothing is said of load, cache or requests; where a script printed it, "
        "give what the server itself printed"
    )


def _likeness(head: bytes) -> str:
    """What an unrecognised file seems to be, for the one-line error."""
    start = head.lstrip()[:512].lower()
    first = next(iter(head.splitlines()), b"")[:60].decode("utf-8", "replace")
    if start.startswith((b"<!doctype", b"<html")):
        return f'an HTML page (line 1: "{first.partition(">")[0]}>"); was the proxy\'s login or error page saved?'
    if (
        likeness := ARCHIVE
        if is_archive(head)
        else next((told for magic, told in BY_MAGIC.items() if head.startswith(magic)), None)
    ):
        return likeness
    if b"\0" in head:
        return "binary, and none of the formats this reads"
    if start.startswith((b"{", b"[")):
        return _json_likeness(head)
    return f'no line of an engine log, metric or result in its first 64 KiB (line 1 has the form "{_form_of(first)}")'


def _json_likeness(head: bytes) -> str:
    try:
        for _ in documents(decoded(head)):
            pass
    except BrokenJsonError as broken:
        if broken.is_cut and len(head) < HEAD_BYTES:  # else it goes on
            return str(broken)
    return "JSON, but not a result, query or span file this reads"


def _form_of(text: str) -> str:
    """A text without its words, for it may be what a user wrote: `2026-01-31 Hello 5%` is `9999-99-99 xxxxx 9%`."""
    return "".join("x" if each.isalpha() else "9" if each.isdigit() else each for each in text)
