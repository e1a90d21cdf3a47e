r"""The wrappers: what a collector puts around one line, and what it says of it.

    2026-07-01T12:00:00.123456789Z stdout P (APIServer pid=1) INFO 07-01 …          CRI; P is a part of a line, F its end
    {"log":"(APIServer pid=1) INFO 07-01 …\n","stream":"stdout","time":"2026-07-01T12:00:00.1Z"}     docker json-file
    2026-07-01T12:00:00.123Z (APIServer pid=1) INFO 07-01 …                         kubectl logs --timestamps, docker logs -t
    [pod/vllm-0/server] (APIServer pid=1) INFO 07-01 …                              kubectl logs --prefix
    vllm-1  | (APIServer pid=1) INFO 07-01 …                                        docker compose
    Jul 01 12:00:00 node-3 vllm[812]: (APIServer pid=1) INFO 07-01 …                journald short, syslog (RFC 3164)
    <134>1 2026-07-01T12:00:00.1Z node-3 vllm 812 - - (APIServer pid=1) INFO …      syslog (RFC 5424)
    2026-07-01T12:00:00Z {app="vllm", pod="vllm-0"} (APIServer pid=1) INFO …        logcli
    {"MESSAGE":"(APIServer pid=1) INFO …","__REALTIME_TIMESTAMP":"1782907200123456",…}         journald JSON
    {"message":"(APIServer pid=1) INFO …","timestamp":1782907200123,…}              CloudWatch, Vector, Fluent Bit, Grafana

Each is a function from a line to what lies under it, or None. A new one is a pattern with the groups it has (`time`, `instance`,
`text`), or a key of the JSON ones; which of them a text has, and in which order, is for `parsers.wrappers` to find.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from parsers.columns import PLACEHOLDER_YEAR
from parsers.unix_time import in_utc

RFC3339 = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
DOCKER_SPLIT = range(16 * 1024, 16 * 1024 + 16)  # bytes of an entry without its newline that docker cut; a cut letter adds some


class Peeled(NamedTuple):
    """What is under one wrapper of one line, and what the wrapper says."""

    text: str
    at: datetime | None = None  # without a zone where the wrapper has none
    instance: str | None = None
    is_part: bool = False  # the rest of the line follows


Wrapper = Callable[[str], Peeled | None]


# In front of a line -----------------------------------------------------------------------------------------------------------

CRI = re.compile(rf"(?P<time>{RFC3339}) std(?:out|err) (?P<tag>[PF])(?::\S*)? (?P<text>.*)", re.DOTALL)
LOGCLI = re.compile(rf"(?P<time>{RFC3339}) \{{(?P<labels>[^{{}}]*)\}}\s(?P<text>.*)", re.DOTALL)
AWS_TAIL = re.compile(rf"(?P<time>{RFC3339}) (?P<instance>[\w.-]+/[^\s|]*) (?P<text>.*)", re.DOTALL)
SYSLOG = re.compile(
    rf"<\d{{1,3}}>1 (?P<time>{RFC3339}|-) (?P<instance>\S+) \S+ \S+ \S+ (?:-|(?:\[[^\]]*\])+) ?(?:\ufeff)?(?P<text>.*)", re.DOTALL
)
JOURNAL = re.compile(
    rf"(?:<\d{{1,3}}>)?(?:(?P<time>{RFC3339})|(?P<short>[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?)) "
    r"(?P<instance>[\w.-]+) [\w./@-]+(?:\[\d+\])?: (?P<text>.*)",
    re.DOTALL,
)
KUBECTL_PREFIX = re.compile(r"\[pod/(?P<instance>[\w.-]+)/[\w.-]+\] (?P<text>.*)", re.DOTALL)
COMPOSE = re.compile(r"(?P<instance>[A-Za-z0-9][\w.-]*) +\| ?(?P<text>.*)", re.DOTALL)
TIMESTAMP = re.compile(rf"(?P<time>{RFC3339}) (?P<text>.*)", re.DOTALL)
LABEL = re.compile(r"(pod|instance|container|host|hostname)=\"([^\"]*)\"")


def _prefix(pattern: re.Pattern[str]) -> Wrapper:
    """The wrapper that a pattern describes, by the groups it has."""

    def peel(line: str) -> Peeled | None:
        found = pattern.match(line)
        if not found:
            return None
        groups = found.groupdict()
        when = _instant(groups.get("time")) or _short_date(groups.get("short"))
        instance = groups.get("instance")
        if labels := groups.get("labels"):
            instance = server_of(dict(LABEL.findall(labels)))
        return Peeled(groups["text"], when, instance, groups.get("tag") == "P")

    return peel


def _instant(text: str | None) -> datetime | None:
    """An absolute time, in UTC."""
    with suppress(ValueError):
        return in_utc(datetime.fromisoformat(text.replace(",", "."))) if text else None
    return None


def _short_date(text: str | None) -> datetime | None:
    """`Jul  1 12:00:00`: no year, no zone."""
    with suppress(ValueError):
        pattern = "%Y %b %d %H:%M:%S.%f" if text and "." in text else "%Y %b %d %H:%M:%S"
        return datetime.strptime(f"{PLACEHOLDER_YEAR} {text}", pattern) if text else None  # noqa: DTZ007 - it has no zone
    return None


# JSON around it ----------------------------------------------------------------------------------------------------------------

TEXT_KEYS = ("log", "MESSAGE", "line", "message", "textPayload")
TIME_KEYS = ("time", "timestamp", "@timestamp", "ts", "date", "_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP")
SERVER_KEYS = ("pod", "pod_name", "instance", "logStreamName", "container_name", "container", "_HOSTNAME", "host", "hostname")
NESTED_KEYS = ("kubernetes", "labels", "stream", "fields")
ENGINE_KEYS = {"asctime", "levelname", "processName", "vllm_process_name"}  # of JSON that the engine's own logging wrote
UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3), (1e8, 1.0))  # a number above the first counts so many to the second


def _json_line(line: str) -> Peeled | None:
    """A line that is a JSON object with the text and its time in it."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry_of(entry) if isinstance(entry, dict) else None


def entry_of(entry: dict[str, Any]) -> Peeled | None:
    """What a JSON object wraps; None where it is no wrapper."""
    if not ENGINE_KEYS.isdisjoint(entry):
        return None
    text = next((_text(entry[key]) for key in TEXT_KEYS if key in entry), None)
    when = next((time for key in TIME_KEYS if (time := time_of(entry.get(key)))), None)
    if text is None or when is None:
        return None
    nested: dict[str, Any] = {}
    for key in NESTED_KEYS:
        if isinstance(entry.get(key), dict):
            nested |= entry[key]
    is_part = entry.get("logtag") == "P" or (
        "stream" in entry and "log" in entry and not text.endswith("\n") and len(text.encode("utf-8", "replace")) in DOCKER_SPLIT
    )
    return Peeled(text.rstrip("\r\n"), when, server_of(nested) or server_of(entry), is_part)


def _text(value: object) -> str | None:
    """A message: journald writes one that is not plain text as its bytes."""
    if isinstance(value, list) and all(isinstance(each, int) and 0 <= each < 256 for each in value):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def time_of(value: object) -> datetime | None:
    """A time in any of the ways collectors write it."""
    if isinstance(value, str) and not value.isdigit():
        with suppress(ValueError):
            time = datetime.fromisoformat(value.replace(",", "."))
            return in_utc(time) if time.tzinfo else time
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    with suppress(ValueError, OverflowError, OSError):  # beyond any float, or any year
        number = float(value)
        for least, per_second in UNITS:
            if number >= least:
                return datetime.fromtimestamp(round(number / per_second, 6), UTC)
    return None


def server_of(labels: dict[str, Any]) -> str | None:
    """The label that names the server best."""
    return next((labels[key] for key in SERVER_KEYS if isinstance(labels.get(key), str)), None)


WRAPPERS: tuple[Wrapper, ...] = (
    *(_prefix(pattern) for pattern in (CRI, LOGCLI, SYSLOG, JOURNAL, AWS_TAIL, KUBECTL_PREFIX, COMPOSE, TIMESTAMP)),
    _json_line,
)
