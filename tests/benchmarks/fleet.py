"""A fleet to measure with: `python -m tests.benchmarks.fleet INTO [--engines 100] [--days 1] [--first-day 2026-03-02]`.

Each engine's day is one of the recordings in `sample_traces/`, played over and over with pauses of its own between: shifted in
time, its requests renamed, its counters counting on. What an engine writes lies in a folder of its own, as a node's log directory
and a scrape loop would keep it:

    INTO/engine-007/2026-03-02/server.log     statistics lines every ten seconds, request lines, access lines
    INTO/engine-007/2026-03-02/metrics.txt    a scrape every 15 s of the series that an analysis reads, buckets of one histogram
    INTO/kvpressure.toml                      the configuration that names them

About 50 MB an engine and day. The same arguments give the same bytes.
"""

# ruff: noqa: T201 - the size goes to the terminal

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "sample_traces"
RECORDINGS = ("vllm-0.32-preemption", "vllm-0.32-prefix-eviction", "vllm-0.32-queue-kv-capacity", "vllm-0.32-queue-max-num-seqs")
SCRAPE_S, DAY_S = 15, 86_400
KEPT = re.compile(
    r"vllm:(?:num_requests_\w+|kv_cache_usage_perc|num_preemptions_total|prefix_cache_\w+_total|prompt_tokens\w*_total"
    r"|generation_tokens_total|request_success_total|cache_config_info|time_to_first_token_seconds_\w+"
    r"|inter_token_latency_seconds_(?:sum|count)|request_queue_time_seconds_(?:sum|count)|e2e_request_latency_seconds_(?:sum|count)"
    r"|request_(?:prompt|generation)_tokens_(?:sum|count)|iteration_tokens_total_(?:sum|count))$"
)
GAUGES = re.compile(r"vllm:(?:num_requests_\w+|kv_cache_usage_perc|cache_config_info)\b")
STAMP = re.compile(rb"\b(\d\d-\d\d \d\d:\d\d:\d\d)\b")
REQUEST_ID = re.compile(rb"(cmpl-bench-)[0-9a-f]{8}")
CONFIGURATION = """\
[lake]
url = "lake"

[[engines]]
group = "fleet"
paths = ["{engine}/{day}/server.log", "{engine}/{day}/metrics.txt"]
timezone = "UTC"
gpu_cost = 2.5
"""
YEAR = 2026  # of the recordings, whose log lines have none


@dataclass(frozen=True)
class Recording:
    """A recording cut into what an engine says when it starts, and what it says while it works, by second."""

    start_up: list[bytes]
    work: list[list[bytes]]  # lines by second since the work began; a stamp is a %s
    series: dict[str, list[float]]  # text of a series -> its value at each second
    seconds: int

    @classmethod
    def read(cls, folder: Path, kept: re.Pattern[str] = KEPT) -> Recording:
        """One of the samples, with the series of these names. Its log is split where the first scrape is."""
        told = json.loads(gzip.decompress((folder / "prometheus.json.gz").read_bytes()))["data"]["result"]
        began = int(min(each["values"][0][0] for each in told))
        ended = int(max(each["values"][-1][0] for each in told))
        start_up: list[bytes] = []
        work: list[list[bytes]] = [[] for _ in range(ended - began + 1)]
        second = -1
        for line in (folder / "server.log").read_bytes().splitlines(keepends=True):
            if stamp := STAMP.search(line):
                second = int(datetime.strptime(f"{YEAR}-{stamp[1].decode()} +0000", "%Y-%m-%d %H:%M:%S %z").timestamp()) - began
            if second < 0:
                start_up.append(line)
            elif second < len(work) and b"/metrics" not in line:
                work[second].append(REQUEST_ID.sub(rb"\g<1>%(id)b", STAMP.sub(b"%(at)b", line.replace(b"%", b"%%"))))
        series = {}
        for each in told:
            name = each["metric"]["__name__"]
            if kept.match(name):
                labels = {key: value for key, value in each["metric"].items() if key not in ("__name__", "instance", "job")}
                inside = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
                series[f"{name}{{{inside}}}" if inside else name] = [float(value) for _, value in each["values"]]
        return cls(start_up, work, series, min(map(len, series.values())))


@dataclass(frozen=True)
class Plan:
    """When an engine plays its recording: the seconds of the day at which a run begins."""

    engine: str
    recording: Recording
    starts: list[int]

    @classmethod
    def of(cls, number: int, recordings: list[Recording]) -> Plan:
        """Engine `number`: its own recording, and pauses of its own, shorter by day than by night."""
        dice = random.Random(number)
        recording = recordings[number % len(recordings)]
        starts, second = [], dice.randrange(120)
        while second + recording.seconds < DAY_S:
            starts.append(second)
            is_night = second < DAY_S // 4
            second += recording.seconds + dice.randrange(120, 360) * (3 if is_night else 1)
        return cls(f"engine-{number:03}", recording, starts)

    def log(self, day: date) -> Iterator[bytes]:
        """Lines of the day."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        yield b"".join(STAMP.sub(f"{midnight:%m-%d %H:%M:%S}".encode(), line) for line in self.recording.start_up)
        stamps = [f"{midnight + timedelta(seconds=each):%m-%d %H:%M:%S}".encode() for each in range(DAY_S)]
        for turn, start in enumerate(self.starts):
            told = {b"id": f"{int(self.engine[-3:]):04x}{turn:04x}".encode()}
            lines = []
            for second, said in enumerate(self.recording.work):
                if said and start + second < DAY_S:
                    told[b"at"] = stamps[start + second]
                    lines += [line % told for line in said]
            yield b"".join(lines)

    def pages(self, day: date, model: str) -> Iterator[str]:
        """Scrapes of the day."""
        recording = self.recording
        midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
        texts = [text.replace('model_name="tiny"', f'model_name="{model}"') for text in recording.series]
        columns = list(recording.series.values())
        is_gauge = [bool(GAUGES.match(text)) for text in recording.series]
        grown = [
            0.0 if gauge else column[recording.seconds - 1] - column[0] for gauge, column in zip(is_gauge, columns, strict=True)
        ]
        for number in range(DAY_S // SCRAPE_S):
            second = number * SCRAPE_S + 3
            turn = bisect_right(self.starts, second) - 1
            at = 0 if turn < 0 else min(second - self.starts[turn], recording.seconds - 1)
            past = max(turn, 0)
            lines = [
                f"{text} {column[at] if gauge else column[at] + past * more!r}"
                for text, column, gauge, more in zip(texts, columns, is_gauge, grown, strict=True)
            ]
            yield (
                f"# scrape_unix_ms {(midnight + second) * 1000}\nprocess_start_time_seconds {midnight}.0\n"
                + "\n".join(lines)
                + "\n"
            )


def write(into: Path, engines: int, days: list[date], first: int = 0) -> int:
    """Write the engines `first` and following; returns bytes written."""
    recordings = [Recording.read(SAMPLES / name) for name in RECORDINGS]
    written = 0
    for number in range(first, first + engines):
        plan = Plan.of(number, recordings)
        for day in days:
            folder = into / plan.engine / day.isoformat()
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "server.log").open("wb") as log:
                log.writelines(plan.log(day))
            with (folder / "metrics.txt").open("w") as pages:
                pages.writelines(plan.pages(day, f"model-{number % 5}"))
            written += sum(path.stat().st_size for path in folder.iterdir())
    (into / "kvpressure.toml").write_text(CONFIGURATION)
    return written


def main() -> None:
    """Write a fleet and say how large it is."""
    parser = argparse.ArgumentParser(description="Write a synthetic fleet made from the recordings in sample_traces.")
    parser.add_argument("into", type=Path)
    parser.add_argument("--engines", type=int, default=100)
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--first-day", type=date.fromisoformat, default=date(2026, 3, 2))
    given = parser.parse_args()
    days = [given.first_day + timedelta(days=each) for each in range(given.days)]
    size = write(given.into, given.engines, days)
    print(f"{given.engines} engines, {given.days} days, {size / 1e9:.2f} GB in {given.into}")


if __name__ == "__main__":
    main()
