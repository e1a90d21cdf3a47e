"""A day of one engine's scrapes against another tool: `python -m tests.benchmarks.bench_engine_day [--peer fbc-cache-lint]`.

The file is 5,760 scrapes, 15 s apart, of a whole /metrics page of vLLM, with its counters counting on: one of two.

    steady    114 MB: a load that preempts thirty requests in each interval, all day long; the peer's answer is "OK"
    recorded  196 MB: the page of a real server under a load that preempts over and over, every series and Python's own

The peer is `fbc-cache-lint` 0.1.0 (PyPI; `pipx install fbc-cache-lint==0.1.0`, or in an environment of its own), the one other
tool that reads recorded scrapes. Both read the same file, in turns in the same run, each as a user has it: `--ours` names a
`kvpressure` installed by pip, without the tools of its developers, some of which pyarrow would load.

    time    a fifth of the peer's by the clock, which is what is waited for; CPU is told beside it, for ours uses two cores
    memory  a third of the peer's
    answer  preemption, with the number counted

Without --peer only our own figures are shown. Each figure is the best of two rounds. It exits with 1 where one misses.
"""

# ruff: noqa: T201 - the table goes to the terminal

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.fleet import DAY_S, SAMPLES, SCRAPE_S, Plan, Recording
from tests.e2e.case_inputs import Scrapes, loaded, served

PREEMPTIONS = "vllm:num_preemptions_total"
ROUNDS = 2
TIMES_FASTER, TIMES_SMALLER = 5.0, 3.0


@dataclass(frozen=True)
class Cost:
    """What a command took and said."""

    cpu_s: float
    clock_s: float
    mib: float
    said: str


def run(command: list[str]) -> Cost:
    """Run it to its end; its own exit status is its business."""
    began = time.monotonic()
    with TemporaryDirectory() as folder, (Path(folder) / "said").open("wb+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        clock = time.monotonic() - began
        said.seek(0)
        return Cost(usage.ru_utime + usage.ru_stime, clock, usage.ru_maxrss / 1024, said.read().decode())


def best(costs: list[Cost]) -> Cost:
    """The best of each figure."""
    return Cost(*(min(getattr(each, name) for each in costs) for name in ("cpu_s", "clock_s", "mib")), costs[-1].said)


def steady() -> Iterator[str]:
    """Scrapes of an engine whose pool is full: 110 run, 20 wait, and 200 finish in each interval."""
    answered = served(200, ttft=8.0, itl=0.15, queue=5.0, **loaded(running=110, waiting=20, deferred=0, usage=0.998))
    answered |= {"num_preemptions_total": 30.0, "time_per_output_token_seconds": (20_000, 0.15)}
    answered |= {
        f"request_{part}_seconds": (200, seconds)
        for part, seconds in (
            ("time_per_output_token", 0.15),
            ("prefill_time", 3.0),
            ("decode_time", 15.0),
            ("inference_time", 18.0),
        )
    }
    scrapes = Scrapes()
    for _ in range(DAY_S // SCRAPE_S):
        scrapes.page(answered)
        yield described(scrapes.pages[-1])


def described(page: str) -> str:
    """The page with the comments that an exporter puts above each metric."""
    lines = []
    for name, series in groupby(page.splitlines(), lambda line: re.sub(r"(_bucket|_count|_sum)?\{.*", "", line)):
        if not name.startswith("#"):
            kind = "counter" if name.endswith("_total") else "histogram" if name.endswith("_seconds") else "gauge"
            lines += [f"# HELP {name} As the engine counts it.", f"# TYPE {name} {kind}"]
        lines += series
    return "\n".join(lines) + "\n"


def recorded() -> Iterator[str]:
    """Scrapes of the recorded server, its recording played over and over."""
    recording = Recording.read(SAMPLES / "vllm-0.32-preemption", re.compile(""))
    plan = Plan("engine-000", recording, list(range(0, DAY_S - recording.seconds, recording.seconds)))
    return plan.pages(date(2026, 3, 2), "tiny")


DAYS = {"steady": steady, "recorded": recorded}


def write(pages: Iterator[str], path: Path) -> float:
    """Write the day and return how many preemptions it counts from its first scrape to its last."""
    counted: list[float] = []
    with path.open("w") as file:
        for page in pages:
            file.write(page)
            counted += [float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(PREEMPTIONS)]
    return counted[-1] - counted[0]


def main() -> int:
    """Measure, print, and say whether all limits hold."""
    parser = argparse.ArgumentParser(description="A day of one engine's scrapes against another tool.")
    parser.add_argument("--peer", metavar="COMMAND", help="where fbc-cache-lint is")
    parser.add_argument("--ours", metavar="COMMAND", help="where an installed kvpressure is; else the one of this environment")
    parser.add_argument("--day", choices=DAYS, default="steady", help="which file is made and read")
    parser.add_argument("--file", type=Path, help="a recording to read instead")
    parser.add_argument("--report", action="store_true", help="let ours draw its report as well")
    given = parser.parse_args()
    command = [shutil.which(given.ours) or given.ours] if given.ours else [sys.executable, "-m", "pipelines.cli"]
    with TemporaryDirectory() as folder:
        file = given.file or Path(folder) / "metrics.txt"
        counted = None if given.file else write(DAYS[given.day](), file)
        ours = [*command, "analyze", str(file), "--out", str(Path(folder) / "out"), "--fresh", "--format", "json"]
        ours += [] if given.report else ["--no-report"]
        theirs = [shutil.which(given.peer) or given.peer, "report", str(file)] if given.peer else None
        rounds = [(run(ours), run(theirs) if theirs else None) for _ in range(ROUNDS)]
        print(f"file    {file.stat().st_size / 1e6:.0f} MB, {os.cpu_count()} CPUs, Python {sys.version.split()[0]}")
    own = best([mine for mine, _ in rounds])
    summary = json.loads(own.said[own.said.index("{") :])
    verdict = next(row["verdict"] for row in summary["verdicts"] if row["is_primary"])
    told = summary["preemptions"][0]["count_best"]
    print(f"ours    {own.cpu_s:6.1f} CPU s  {own.clock_s:6.1f} s  {own.mib:5.0f} MiB  {verdict}, {told:,.0f} preemptions")
    holds = verdict == "preemption" and (counted is None or told == counted)
    if theirs:
        peer = best([each for _, each in rounds if each])
        answer = next((line for line in peer.said.splitlines() if " finding" in line), "")
        print(f"peer    {peer.cpu_s:6.1f} CPU s  {peer.clock_s:6.1f} s  {peer.mib:5.0f} MiB  {answer.strip()}")
        ratios = peer.cpu_s / own.cpu_s, peer.clock_s / own.clock_s, peer.mib / own.mib
        print(f"ratios  {ratios[0]:6.1f} CPU    {ratios[1]:6.1f}    {ratios[2]:5.1f}")
        holds = holds and ratios[1] >= TIMES_FASTER and ratios[2] >= TIMES_SMALLER
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
