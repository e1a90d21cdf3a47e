"""Three days of two engines, made from the recordings beside this folder by moving their clocks, for the example configuration.

    python sample_traces/daily/make_days.py DIR [--last 2026-11-27]

Writes DIR/kvpressure.toml and, for each engine and day, the files of one recording as if it had been made then. Only stamps are
changed. `chat` queues behind max_num_seqs on the first day and is preempted on the others; `documents` loses prefixes at first
and then waits for room in the KV pool.
"""

from __future__ import annotations

import argparse
import gzip
import re
import shutil
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

HERE = Path(__file__).parent
RECORDINGS = {
    "chat": ("vllm-0.32-queue-max-num-seqs", "vllm-0.32-preemption", "vllm-0.32-preemption"),
    "documents": ("vllm-0.32-prefix-eviction", "vllm-0.32-queue-kv-capacity", "vllm-0.32-queue-kv-capacity"),
}
YEAR = 2026  # of the recordings, whose logs name none
STARTS_AT = time(9, 30)
_LOG_STAMP = re.compile(r"(?<= )(\d\d-\d\d \d\d:\d\d:\d\d)(?= \[)")
_DATE = re.compile(r'(?<="date": ")(\d{8}-\d{6})')
_EPOCH = re.compile(r"(?<![\d.])(179[56]\d{6})(\d{9}|(?:\.\d+))?(?![\d.])")  # seconds, or nanoseconds


def moved(text: str, by: timedelta) -> str:
    """A recording's text with every stamp in it later by as much."""

    def log_stamp(match: re.Match[str]) -> str:
        return (datetime.strptime(f"{YEAR}-{match[1]}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) + by).strftime("%m-%d %H:%M:%S")

    def run_date(match: re.Match[str]) -> str:
        return (datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC) + by).strftime("%Y%m%d-%H%M%S")

    text = _DATE.sub(run_date, _LOG_STAMP.sub(log_stamp, text))
    return _EPOCH.sub(lambda match: f"{int(match[1]) + int(by.total_seconds())}{match[2] or ''}", text)


def first_stamp(recording: Path) -> datetime:
    """When a recording begins: the first stamp of its log."""
    found = _LOG_STAMP.search((recording / "server.log").read_text())
    if not found:
        raise SystemExit(f"{recording}/server.log: no line with a stamp")
    return datetime.strptime(f"{YEAR}-{found[1]}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)


def make_day(recording: Path, folder: Path, starts_at: datetime) -> None:
    """The files of one recording, begun at another time."""
    folder.mkdir(parents=True, exist_ok=True)
    by = timedelta(seconds=round((starts_at - first_stamp(recording)).total_seconds()))
    for path in sorted(recording.iterdir()):
        if path.suffix == ".gz":
            text = moved(gzip.decompress(path.read_bytes()).decode(), by)
            (folder / path.stem).write_text(text)
        elif path.suffix == ".log":
            (folder / path.name).write_text(moved(path.read_text(), by))


def make_days(into: Path, last: date) -> None:
    """Three days of every engine, the last of them `last`, and the configuration that reads them."""
    for engine, recordings in RECORDINGS.items():
        for number, recording in enumerate(recordings):
            day = last - timedelta(days=len(recordings) - 1 - number)
            make_day(HERE.parent / recording, into / engine / day.isoformat(), datetime.combine(day, STARTS_AT, UTC))
    shutil.copy(HERE / "kvpressure.toml", into)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("into", type=Path, metavar="DIR")
    parser.add_argument("--last", type=date.fromisoformat, default=datetime.now(UTC).date() - timedelta(days=1))
    arguments = parser.parse_args()
    make_days(arguments.into, arguments.last)
