"""A recording from its start to its end: what is followed, each in a thread of its own, until a signal or the time is up."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from pipelines.http_source import http_source
from pipelines.record.journal import Journal
from pipelines.record.kv_stream import KvStream, checked, libraries
from pipelines.record.log_tail import LogTail
from pipelines.record.parts import LOG, Folder
from pipelines.record.scrapes import Scraper

METRICS, KV_EVENTS, JOURNAL = "metrics", "kv_events", "recording.jsonl"
SIGNAL_POLL_S = 0.2
END_WITHIN_S = 15.0  # of a stop: the last scrape may have to time out

Tell = Callable[[str], object]


@dataclass(frozen=True)
class Plan:
    """What to record, and how much of the disk it may take."""

    metrics: tuple[str, ...]
    kv_events: tuple[str, ...] = ()
    kv_replay: tuple[str, ...] = ()
    log: Path | None = None
    interval_s: float = 1.0
    max_bytes: int = 2_000_000_000
    duration_s: float | None = None


@dataclass(frozen=True)
class Recorded:
    """How much was recorded, of each kind that was asked for."""

    scrapes: int
    kv_batches: int
    log_lines: int

    def __bool__(self) -> bool:
        return any((self.scrapes, self.kv_batches, self.log_lines))

    def __str__(self) -> str:
        return f"{self.scrapes:,} scrapes, {self.kv_batches:,} KV-event batches, {self.log_lines:,} log lines"


class Follower(Protocol):
    """Something that records one thing until told to stop."""

    def run(self, stop: threading.Event) -> None:
        """Record until `stop` is set, and what has come by then."""
        ...


def record(plan: Plan, out: Path, tell: Tell) -> Recorded:
    """Record into `out` until SIGTERM, SIGINT or the plan's time. What was recorded there before is added to.

    HttpError, MissingLibraryError, NotAnEndpointError or FolderInUseError where the plan cannot be carried out; then nothing
    was written.
    """
    servers = [http_source(_metrics_address(url)) for url in plan.metrics]
    if plan.kv_events:
        libraries()
    for endpoint in (*plan.kv_events, *plan.kv_replay):
        checked(endpoint)
    before = _last_change(out)
    journal: Journal | None = None

    def dropped(name: str, until: float) -> None:
        if journal:
            what = f"{name} was thrown away to stay within {plan.max_bytes:,} bytes"
            journal.write("part_dropped", what, subject=name.partition(".part-")[0], since=until)

    folder = Folder(out, plan.max_bytes, len(servers) + len(plan.kv_events) + 2, dropped)
    try:
        journal = Journal(folder.parts(JOURNAL), tell)
        journal.write("resumed" if before else "started", _said(plan), since=before)
        scrapers = [
            Scraper(
                server,
                folder.parts(_numbered(METRICS, ".txt", number)),
                journal,
                plan.interval_s,
                instance=urlsplit(server.url).netloc if len(servers) > 1 else None,
            )
            for number, server in enumerate(servers)
        ]
        streams = [
            KvStream(endpoint, replay, folder.parts(_numbered(KV_EVENTS, ".jsonl", number)), journal)
            for number, (endpoint, replay) in enumerate(zip_longest(plan.kv_events, plan.kv_replay))
        ]
        tails = [LogTail(plan.log, folder.parts(LOG), journal)] if plan.log else []
        why = _follow([*scrapers, *streams, *tails], plan.duration_s)
        recorded = Recorded(
            sum(each.count for each in scrapers), sum(each.count for each in streams), sum(each.lines for each in tails)
        )
        journal.write("stopped", f"{why}: {recorded}")
        journal.close()
        return recorded
    finally:
        folder.close()


def _follow(followers: list[Follower], duration_s: float | None) -> str:
    """Run all of them until it is time to stop; why it was. A fault of one stops the others in order and is raised."""
    stop = threading.Event()
    faults: list[BaseException] = []

    def run(follower: Follower) -> None:
        try:
            follower.run(stop)
        except BaseException as fault:  # noqa: BLE001 - raised again below, when the others have finished
            faults.append(fault)
            stop.set()

    with _signals() as caught:
        threads = [threading.Thread(target=run, args=(follower,), daemon=True) for follower in followers]
        for thread in threads:
            thread.start()
        until = time.monotonic() + duration_s if duration_s else float("inf")
        while not caught and not stop.wait(min(max(until - time.monotonic(), 0), SIGNAL_POLL_S)) and time.monotonic() < until:
            pass
        stop.set()
        deadline = time.monotonic() + END_WITHIN_S
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
    if faults:
        raise faults[0]
    return caught[0] if caught else "the time was up"


@contextmanager
def _signals() -> Iterator[list[str]]:
    """Names of the SIGTERM and SIGINT that came: a handler may touch no lock, so it only adds to a list."""
    caught: list[str] = []

    def leave(number: int, _: object) -> None:
        caught.append(signal.Signals(number).name)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _metrics_address(url: str) -> str:
    """An address without a path means its /metrics."""
    scheme, slashes, rest = url.rpartition("//")
    return url if "/" in rest.rstrip("/") else f"{scheme}{slashes}{rest.rstrip('/')}/metrics"


def _numbered(stem: str, suffix: str, number: int) -> str:
    return f"{stem}-{number}{suffix}" if number else f"{stem}{suffix}"


def _last_change(out: Path) -> float | None:
    """When a recorder last wrote to the folder; None where none ever did."""
    if not (out / JOURNAL).exists():
        return None
    return max(file.stat().st_mtime for file in out.iterdir() if file.is_file() and not file.name.startswith("."))


def _said(plan: Plan) -> str:
    """What is recorded, for the journal: no address of anything, these may be secrets of their own."""
    kinds = [f"metrics of {len(plan.metrics)} server(s) every {plan.interval_s:g} s"] if plan.metrics else []
    kinds += [f"KV events of {len(plan.kv_events)} publisher(s)"] if plan.kv_events else []
    kinds += ["the log"] if plan.log else []
    return ", ".join(kinds)
