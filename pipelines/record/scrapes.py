"""Scrapes of `/metrics`, one behind the other in one file, each under its time.

Only series that an analysis reads are kept (`parsers.prometheus_names`): a page is 100 KB and more, most of it of others.
"""

from __future__ import annotations

import re
import threading
import time
from functools import cache

from parsers.prometheus_names import kept_name
from pipelines.http_source import HttpError, HttpSource
from pipelines.record.journal import Journal
from pipelines.record.parts import Parts

SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S = 2.0, 10.0
_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")


class NoMetricsError(Exception):
    """A page without one metric of an inference engine."""


class Scraper:
    """Scrapes one server at an interval. A scrape that fails is counted, and said when the next one succeeds."""

    def __init__(self, server: HttpSource, parts: Parts, journal: Journal, interval_s: float, instance: str | None) -> None:
        self.count = 0
        self._server, self._parts, self._journal, self._interval_s, self._instance = server, parts, journal, interval_s, instance
        self._missed, self._missed_since, self._reason = 0, 0.0, ""

    def run(self, stop: threading.Event) -> None:
        """Scrape until told to stop, and once more then: the last second is often the one that matters."""
        due = time.monotonic()
        while not stop.is_set():
            self.scrape()
            due = max(due + self._interval_s, time.monotonic())
            stop.wait(due - time.monotonic())
        if not self._missed:
            self.scrape()
        self._end_of_missed()
        self._parts.close()

    def scrape(self) -> None:
        """One scrape; its time is that of the question, as Prometheus has it."""
        at = time.time()
        try:
            page = self._server.get(timeout_s=min(max(self._interval_s, SHORTEST_TIMEOUT_S), LONGEST_TIMEOUT_S))
            lines = kept_lines(page, self._instance)
            self._parts.append(b"# scrape_unix_ms %d\n" % (at * 1000) + lines)
        except (HttpError, NoMetricsError) as fault:
            self._miss(at, str(fault).removeprefix(f"{self._server.url}: "))
        except OSError as fault:
            self._miss(at, f"the recording could not be written ({(fault.strerror or str(fault)).lower()})")
        else:
            self._end_of_missed()
            self.count += 1

    def _miss(self, at: float, reason: str) -> None:
        if not self._missed:
            self._missed_since, self._reason = at, reason
            self._journal.tell(f"{self._server.url}: {reason}; trying again every {self._interval_s:g} s")
        self._missed += 1

    def _end_of_missed(self) -> None:
        if self._missed:
            self._journal.write(
                "scrapes_missed", self._reason, subject=self._server.url, since=self._missed_since, count=self._missed
            )
            self._missed = 0


def kept_lines(page: bytes, instance: str | None) -> bytes:
    """The lines of a page that an analysis reads; with a label for the server where there are several."""
    label = b'instance="%s"' % instance.encode() if instance else b""
    kept = bytearray()
    for line in page.splitlines():
        name = _NAME.match(line)
        if name is None or not _is_kept(name[0]):
            continue
        if label:
            rest = line[name.end() :]
            line = name[0] + (b"{" + label + b"," + rest[1:] if rest.startswith(b"{") else b"{" + label + b"}" + rest)  # noqa: PLW2901
        kept += line + b"\n"
    if not kept:
        first = page.split(b"\n", 1)[0][:60].decode("utf-8", "replace").strip()
        raise NoMetricsError(f'no metric of an inference engine there (line 1: "{first}"); is it the right path?')
    return bytes(kept)


@cache
def _is_kept(name: bytes) -> bool:
    return kept_name(name.decode()) is not None
