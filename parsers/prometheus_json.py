"""Prometheus HTTP API responses: `/api/v1/query_range` (matrix) and `/api/v1/query` (vector), saved as JSON.

    {"status":"success","data":{"resultType":"matrix","result":[
      {"metric":{"__name__":"vllm:num_requests_waiting","engine":"0","instance":"10.0.0.7:8000","job":"vllm"},
       "values":[[1795957919.275,"0"],[1795957920.275,"12"]]}, …]}}

One response or several in a file, indented or not, or the bare list of results. Each value of a series becomes a row of
`metric_samples`; the account counts series. The result of an expression has no name and is ignored, as are native histograms.
Series are read one at a time, so a response cut in the middle still gives those before the cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from parsers import Format
from parsers.json_text import BrokenJsonError, read_text, skip_blank, value_at
from parsers.prometheus_names import kept_name
from parsers.prometheus_samples import Samples
from parsers.source import Account, InputError, Sink, Source
from parsers.unix_time import unix_microseconds

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_ERROR = re.compile(r'"status"\s*:\s*"error"')
_RESULT_LIST = re.compile(r"\s*:\s*\[")

_HEAD_RESULT = re.compile(rb'"result"\s*:\s*\[\s*(?:\]|\{\s*"(?:metric|values?|histograms?)"\s*:)')
_HEAD_LIST = re.compile(rb'\s*\[\s*\{\s*"metric"\s*:\s*\{[^{}]*\}\s*,\s*"(?:values?|histograms?)"\s*:\s*\[')
_HEAD_ERROR = re.compile(rb'\s*\{[^{}\[\]]*"errorType"\s*:')


def parse(source: Source, sink: Sink) -> Account:
    """Read one file into the sink. InputError where the server answered with an error or no series is whole."""
    text, fault = read_text(source)
    account = Account(error=fault)
    samples = Samples(source.name, sink)
    computed = 0
    try:
        for series in _series(text, source.name):
            account.lines += 1
            computed += "__name__" not in (_metric(series) or {"__name__"})
            _read_series(series, samples, account)
    except BrokenJsonError as broken:
        account.error = fault or f"{source.name}: {broken}"
        if account.lines == 0:
            raise InputError(account.error) from broken
    samples.flush()
    if computed == account.lines > 0 and account.error is None:
        what = "what a query computed (rate(), sum(), a quantile), which no longer says of which metric"
        account.error = f'{source.name}: {what}; fetch the metrics themselves, as {{__name__=~"vllm:.*"}} does'
    return account


def _series(text: str, name: str) -> Iterator[object]:
    """Each element of each result list of each response."""
    position = skip_blank(text, 0)
    while position < len(text):
        position = yield from (_elements(text, position + 1) if text[position] == "[" else _response(text, position, name))
        position = skip_blank(text, position)


def _response(text: str, start: int, name: str) -> Iterator[object]:
    """The series of the response object that begins at `start`; returns where it ends."""
    depth = 0
    position = start
    if text[start] != "{":
        raise BrokenJsonError(text, start, is_cut=False)
    while token := _TOKEN.search(text, position):
        position = token.end()
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
            if depth == 0:
                return position
        elif token[0] == '"result"' and (opening := _RESULT_LIST.match(text, position)):
            position = yield from _elements(text, opening.end())
        elif token[0] == '"status"' and _ERROR.match(text, token.start()):
            message = value_at(text, start)[0]
            said = message.get("error") if isinstance(message, dict) else None
            raise InputError(
                f"{name}: the server answered with an error ({said or 'no message'}); correct the query and fetch it again"
            )
    raise BrokenJsonError(text, len(text), is_cut=True)


def _elements(text: str, position: int) -> Iterator[object]:
    """The elements of the list whose opening bracket lies before `position`; returns where it ends."""
    position = skip_blank(text, position)
    while position < len(text) and text[position] != "]":
        value, position = value_at(text, position)
        yield value
        position = skip_blank(text, position)
    if position >= len(text):
        raise BrokenJsonError(text, len(text), is_cut=True)
    return position + 1


def _read_series(series: object, samples: Samples, account: Account) -> None:
    """One series into the samples and the account."""
    metric = _metric(series)
    if metric is None:
        account.misread(account.lines)
        return
    labels = {str(key): str(value) for key, value in metric.items()}
    name = kept_name(labels.pop("__name__", ""))
    points = _points(series) if name else []
    if points is None:
        account.misread(account.lines)
        return
    if name is None or not points:
        account.ignored += 1
        return
    account.used += 1
    index = samples.describe(name, labels, account.lines, points[0][0])
    for time, value in points:
        samples.add(index, value, time)


def _metric(series: object) -> dict[str, object] | None:
    """Name and labels of a series; without the name where an expression made it, None where it is no series."""
    metric = series.get("metric") if isinstance(series, dict) else None
    return metric if isinstance(metric, dict) else None


def _points(series: object) -> list[tuple[int | None, float]] | None:
    """Times in microseconds and values of a series; empty for a native histogram, None where it is no series."""
    if not isinstance(series, dict):
        return None
    if "values" in series:
        pairs = series["values"]
    elif "value" in series:
        pairs = [series["value"]]
    else:
        return [] if "histogram" in series or "histograms" in series else None
    try:
        return [(unix_microseconds(float(time)), float(value)) for time, value in pairs]
    except (TypeError, ValueError, OverflowError):
        return None


def detect(head: bytes) -> float:
    """A result list of series, or the API's error object."""
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return 0.0
    if _HEAD_RESULT.search(head) and (b'"metric"' in head or b'"resultType"' in head):
        return 0.95
    return 0.9 if _HEAD_LIST.match(head) or (_HEAD_ERROR.match(head) and b'"status"' in head) else 0.0


FORMAT = Format(
    name="prometheus_json",
    title="Prometheus HTTP API results (query_range, query)",
    engine_kind=None,
    versions="Prometheus, Thanos, Mimir and VictoriaMetrics API v1; the same engines as prometheus_text",
    can_tell="load, KV usage, preemption counts and latency histograms between two points of the series",
    cannot_tell="which request; anything between points; anything from expressions, whose results have no name",
    tables=("metric_samples", "engine_config"),
    detect=detect,
    parse=parse,
)
