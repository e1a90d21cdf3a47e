"""A run's metrics from a Prometheus server's HTTP API, kept as the answers it gave, for `analyze` to read.

What is asked for are the samples as they were scraped: an instant query of `{…}[300000ms]` answers with them and their own times,
where a range query would answer with a grid of its own, on which counters that were reset between two points do not add up.
Prometheus, Thanos, Mimir and VictoriaMetrics answer it alike. A long time is asked for in pieces, each as long as its series
make about `SAMPLES_PER_QUERY` samples, and shorter ones where the server says that it is too much.

Each piece becomes `prometheus-<end>.json.gz` in a folder; the same folder gives the same analysis again, without the server.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Any

from parsers.prometheus_names import kept_name
from pipelines.http_source import HttpError, HttpSource, http_source

FOLDER = "prometheus"  # what `analyze` calls it, in its output
SAMPLES_PER_QUERY = 400_000  # some 12 MB of JSON
FIRST_PIECE = timedelta(minutes=5)
SHORTEST_PIECE, LONGEST_PIECE = timedelta(seconds=10), timedelta(hours=12)
LEAD = timedelta(minutes=2)  # before the window: a counter is told from the scrape before it
MOST_SERIES = 50_000
ATTEMPTS, FIRST_PAUSE_S, LONGEST_PAUSE_S = 5, 0.5, 30.0
TIMEOUT_S = 120.0
TOO_MUCH = re.compile(
    r"too many samples|exceed|limit|timed? ?out|in time|too large|memory|answers (?:413|422|503|504)", re.IGNORECASE
)

# The names an analysis reads (parsers.prometheus_names), as Prometheus matches them; targets' own series are asked for apart.
FAMILIES = (
    "(ray_)?(vllm|sglang|llamacpp|lmcache)[:_].+|trtllm[_:].+|(nv_trt_llm|dynamo|kvbm|inference_pool|inference_extension|llm_d)_.+"
    "|DCGM_FI_.+"
)
TARGETS = "up|process_start_time_seconds"
_MATCHER = re.compile(r'\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*(?:,|$)')

Tell = Callable[[str], object]
Window = tuple[datetime, datetime]


class PrometheusError(Exception):
    """What was asked for cannot be had. One line: what, where, what to do."""


@dataclass(frozen=True)
class Question:
    """What to bring: the series that `selector` matches, of the time from `since` to `until`, from the server at `url`.

    The selector is label matchers, with or without braces (`namespace="prod"`), or empty: then all inference engines there.
    """

    url: str
    selector: str
    since: datetime
    until: datetime


@dataclass(frozen=True)
class Fetched:
    """What was brought: the folder, and how much is in it."""

    folder: Path
    series: int
    samples: int


def fetch(question: Question, into: Path, *, environ: Mapping[str, str] = os.environ, tell: Tell = lambda _: None) -> Fetched:
    """Bring the samples asked for into the folder `into`, which is replaced.

    PrometheusError or HttpError where there are none, or the server does not give them; then `into` is as it was.
    """
    server = http_source(question.url, environ)
    matchers = matchers_of(question.selector)
    window = (question.since - LEAD, question.until)
    series = _series(server, _selector(FAMILIES, matchers), window)
    if not series:
        where = f" with {{{matchers}}}" if matchers else ""
        raise PrometheusError(
            f"{server.url}: no series of an inference engine{where} from {_said(question.since)} to {_said(question.until)} UTC; "
            "check the times, and that it scrapes the engines"
        )
    if len(series) > MOST_SERIES:
        raise PrometheusError(
            f"{server.url}: {len(series):,} series from {len(_targets(series))} targets match; name one run with --match, "
            f'such as --match \'namespace="prod",pod=~"vllm-.*"\''
        )
    tell(f"asking for {len(series):,} series")
    making = into.with_name(f".{into.name}.new")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    try:
        selectors = [_selector(FAMILIES, matchers), *_target_selectors(series)]
        samples = 0
        for end, answers in _pieces(server, selectors, window, tell):
            samples += sum(map(_count, answers))
            _write(making / f"prometheus-{end:%Y%m%dT%H%M%S}.{end.microsecond // 1000:03}Z.json.gz", answers)
        shutil.rmtree(into, ignore_errors=True)
        making.rename(into)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return Fetched(into, len(series), samples)


def matchers_of(selector: str) -> str:
    """Label matchers, checked, without braces. PrometheusError where it is no list of them."""
    inner = selector.strip().removeprefix("{").removesuffix("}").strip()
    position = 0
    while position < len(inner):
        matcher = _MATCHER.match(inner, position)
        if matcher is None:
            raise PrometheusError(f'`{selector}` is not a list of label matchers; write it as namespace="prod",pod=~"vllm-.*"')
        position = matcher.end()
    return inner.rstrip(", ")


def _pieces(server: HttpSource, selectors: list[str], window: Window, tell: Tell) -> Iterator[tuple[datetime, list[bytes]]]:
    """The answers for piece after piece, each under its end. A piece is as long as the one before says it can be."""
    at, until = window
    length = FIRST_PIECE
    while at < until:
        end = min(at + length, until)
        tell(f"asking for {_said(at)} to {_said(end)}")
        time = f"{end.timestamp():.3f}"
        span = f"[{round((end - at) / timedelta(milliseconds=1))}ms]"
        try:
            answers = [_ask(server, "/api/v1/query", {"query": selector + span, "time": time}, tell) for selector in selectors]
        except HttpError as fault:
            if length <= SHORTEST_PIECE or not TOO_MUCH.search(str(fault)):
                raise
            length = max(length / 2, SHORTEST_PIECE)
            continue
        if samples := sum(map(_count, answers)):
            yield end, answers
        at = end
        length = min(max(length * min(max(SAMPLES_PER_QUERY / max(samples, 1), 0.25), 4), SHORTEST_PIECE), LONGEST_PIECE)


def _series(server: HttpSource, selector: str, window: Window) -> list[dict[str, str]]:
    """The labels of every series that matches."""
    start, end = (f"{moment.timestamp():.3f}" for moment in window)
    query = {"match[]": selector, "start": start, "end": end}
    data = _data(server, _ask(server, "/api/v1/series", query))
    return [each for each in data if isinstance(each, dict) and kept_name(str(each.get("__name__", "")))]


def _target_selectors(series: Iterable[Mapping[str, str]]) -> list[str]:
    """Selectors of what Prometheus and the process say of the targets that have the series: whether and since when they run."""
    pattern = "|".join(map(re.escape, _targets(series)))
    return [_selector(TARGETS, f"instance=~{json.dumps(pattern)}")] if pattern else []


def _targets(series: Iterable[Mapping[str, str]]) -> list[str]:
    return sorted({each["instance"] for each in series if "instance" in each})


def _selector(names: str, matchers: str) -> str:
    return f'{{__name__=~"{names}"{"," if matchers else ""}{matchers}}}'


def _ask(server: HttpSource, path: str, query: Mapping[str, str], tell: Tell = lambda _: None) -> bytes:
    """An answer, asked for again after a pause where the fault may pass."""
    pause = FIRST_PAUSE_S
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return server.get(path, query, timeout_s=TIMEOUT_S)
        except HttpError as fault:
            if not fault.is_passing or attempt == ATTEMPTS:
                raise
            tell(f"{fault}; trying again")
            sleep(min(max(pause, fault.retry_after_s), LONGEST_PAUSE_S))
            pause *= 2
    raise AssertionError("the last attempt returns or raises")


def _data(server: HttpSource, answer: bytes) -> Any:
    try:
        response = json.loads(answer)
        return response["data"]
    except (ValueError, KeyError, TypeError):
        first = server.without_secrets(answer[:4096].decode("utf-8", "replace")).split("\n")[0][:60]
        raise PrometheusError(
            f'{server.url}: not a Prometheus API (it answers "{first}"); give the address in front of /api/v1'
        ) from None


def _count(answer: bytes) -> int:
    """How many samples an answer holds: each is a pair that ends in a quoted value."""
    return answer.count(b'"]')


def _write(path: Path, answers: Iterable[bytes]) -> None:
    """The answers of one piece, the same bytes for the same answers."""
    with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        for answer in answers:
            packed.write(answer.strip() + b"\n")


def _said(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
