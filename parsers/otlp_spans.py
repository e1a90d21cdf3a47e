"""OpenTelemetry traces of vLLM as OTLP/JSON: what the Collector's file exporter writes, one export request per line.

    {"resourceSpans":[{"resource":{"attributes":[{"key":"host.name","value":{"stringValue":"node-7"}}, …]},
      "scopeSpans":[{"scope":{"name":"vllm.tracing.otel"},"spans":[{"name":"llm_request","startTimeUnixNano":"1795959027484823040",
        "endTimeUnixNano":"1795959033146722706","attributes":[
          {"key":"gen_ai.request.id","value":{"stringValue":"cmpl-bench-1ec895fe-206-0"}},
          {"key":"gen_ai.usage.prompt_tokens","value":{"intValue":"218"}},
          {"key":"gen_ai.latency.time_in_queue","value":{"doubleValue":2.407}}, …]}]}]}]}

Each `llm_request` becomes a row of `spans`. Its start is the request's arrival; its decode time holds every wait after a
preemption, its queue time none. Loading spans (`Load model`, `Allocate KV cache`, …) and exports of metrics or logs are
ignored. V0 knows neither prefill nor decode time; they are null. Keys in snake case and a single indented document (then the
account counts documents, not lines) are read too. An aborted request leaves no span.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from parsers import Format
from parsers.bench_rows import real, text, whole
from parsers.json_text import BrokenJsonError, decode_line, documents, read_rest
from parsers.source import Account, InputError, Sink, Source
from parsers.unix_time import unix_microseconds

BATCH_ROWS = 20_000

# Attribute -> column. The last two are what newer conventions call the token counts.
_SECONDS = {
    "gen_ai.latency.time_to_first_token": "ttft_s",
    "gen_ai.latency.e2e": "e2e_s",
    "gen_ai.latency.time_in_queue": "queue_s",
    "gen_ai.latency.time_in_model_prefill": "prefill_s",
    "gen_ai.latency.time_in_model_decode": "decode_s",
    "gen_ai.latency.time_in_model_inference": "inference_s",
}
_COUNTS = {
    "gen_ai.usage.prompt_tokens": "input_tokens",
    "gen_ai.usage.completion_tokens": "output_tokens",
    "gen_ai.request.max_tokens": "max_tokens",
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
}
_REQUEST_ID = "gen_ai.request.id"
_SCALARS = ("doubleValue", "intValue", "stringValue", "double_value", "int_value", "string_value")
_INSTANCE = ("k8s.pod.name", "host.name")
_EXPORTS = ("resourceSpans", "resource_spans", "resourceMetrics", "resource_metrics", "resourceLogs", "resource_logs")

_HEAD = re.compile(rb'^[ \t]*(?:\[\s*)?\{\s*"resource_?[sS]pans"\s*:', re.MULTILINE)


def parse(source: Source, sink: Sink) -> Account:
    """Read one file into the sink. InputError where it is one document and that is not whole."""
    account = Account()
    rows: list[dict[str, object]] = []
    try:
        with source.open() as stream:
            for number, export in _exports(stream, source.name, account):
                found = [{"source": source.name, "line": number, **row} for row in _spans(export)]
                if found:
                    account.used += 1
                    rows += found
                elif isinstance(export, dict) and not export.keys().isdisjoint(_EXPORTS):
                    account.ignored += 1
                else:
                    account.misread(number)
                if len(rows) >= BATCH_ROWS:
                    sink.write_rows("spans", rows)
                    rows = []
    except InputError as fault:
        account.error = str(fault)
    except BrokenJsonError as broken:
        account.error = f"{source.name}: {broken}"
        if account.used == account.not_understood == 0:
            raise InputError(account.error) from broken
    sink.write_rows("spans", rows)
    return account


def _exports(stream: io.BufferedReader, name: str, account: Account) -> Iterator[tuple[int, object]]:
    """Each export with its number, counted as it is read: by line, or by document where documents spread over lines."""
    for line in stream:
        text = line.strip()
        if text.endswith((b"{", b"[", b",")) and account.lines == account.ignored:
            content, fault = read_rest(line, stream, name)
            for document in documents(content):
                account.lines += 1
                yield account.lines, document
            if fault:
                raise InputError(fault)
            return
        account.lines += 1
        if text:
            yield account.lines, decode_line(text)
        else:
            account.ignored += 1


def _spans(export: object) -> Iterator[dict[str, object]]:
    """Rows of the request spans of one export."""
    for of_resource in _list(export, "resourceSpans", "resource_spans"):
        where = _attributes(_get(of_resource, "resource"))
        instance = next((str(where[key]) for key in _INSTANCE if where.get(key)), None)
        for of_scope in _list(of_resource, "scopeSpans", "scope_spans"):
            for span in _list(of_scope, "spans"):
                if _get(span, "name") == "llm_request":
                    yield {"instance": instance, **_request(span)}


def _request(span: object) -> dict[str, object]:
    """One request span; an attribute it lacks is null."""
    attributes = _attributes(span)
    row: dict[str, object] = {
        "name": "llm_request",
        "request_id": text(attributes.get(_REQUEST_ID)),
        "start_at": _time(_get(span, "startTimeUnixNano", "start_time_unix_nano")),
        "end_at": _time(_get(span, "endTimeUnixNano", "end_time_unix_nano")),
    }
    for key, column in _SECONDS.items():
        row[column] = real(attributes.get(key))
    for key, column in _COUNTS.items():
        if key in attributes:
            row[column] = whole(attributes[key])  # OTLP/JSON writes 64-bit numbers as text
    return row


def _attributes(holder: object) -> dict[str, object]:
    """Attributes of a span or resource: key to its string, integer or real value."""
    found = {}
    for attribute in _list(holder, "attributes"):
        if (content := _get(_get(attribute, "value"), *_SCALARS)) is not None:
            found[str(_get(attribute, "key"))] = content
    return found


def _get(holder: object, *names: str) -> object:
    """The first of the names a JSON object has; None where it has none or is no object."""
    if isinstance(holder, dict):
        for name in names:
            if name in holder:
                return holder[name]
    return None


def _list(holder: object, *names: str) -> list:
    found = _get(holder, *names)
    return found if isinstance(found, list) else []


def _time(value: object) -> int | None:
    """Microseconds of a stamp in nanoseconds, which OTLP/JSON writes as a string; null where it is 0, unset."""
    try:
        return unix_microseconds(int(str(value))) or None
    except ValueError:
        return None


def detect(head: bytes) -> float:
    """A line, or the document, that begins with resourceSpans."""
    return 0.95 if _HEAD.search(head) else 0.0


FORMAT = Format(
    name="otlp_spans",
    title="OpenTelemetry traces as OTLP/JSON (Collector file exporter)",
    engine_kind="vllm",
    versions="vLLM V0 0.5 to 0.10, V1 0.10.2 to 0.33",
    can_tell="arrival, queue, prefill and decode time of each finished request, on an absolute clock",
    cannot_tell="how often a request was preempted; anything of aborted requests; the engine's load",
    tables=("spans",),
    detect=detect,
    parse=parse,
)
