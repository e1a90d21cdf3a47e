"""What a fleet's day costs: `python -m tests.benchmarks.bench_fleet [--engines 100] [--fleet FOLDER]`.

A fleet as `tests.benchmarks.fleet` writes it (made in a temporary folder where none is given; 6 GB for 100 engines) is brought
into a lake by two processes, an engine's day at a time, as the daily job's executors do; then the fleet's tables and the catalog
are made.

    time    an engine's day of 100 costs at most 15 % more than one of 10
    memory  both processes and the reduction together stay below 4 GiB

Time is CPU seconds, user and system, so that it means the same beside other work. It prints the figures and exits with 1 where
one misses.
"""

# ruff: noqa: T201 - the table goes to the terminal

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import resource
import shutil
import sys
import time
from datetime import date
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from pipelines import catalog, daily, fleet_day
from pipelines.config import load
from tests.benchmarks.fleet import write

DAY = date(2026, 3, 2)
PROCESSES, FEW = 2, 10
MOST_GROWTH, MOST_MIB = 1.15, 4096


def analyze(given: tuple[Path, str]) -> tuple[str, float, float, int]:
    """One engine's day: its CPU seconds, the most its process ever held in MiB, and which process that was."""
    config = load(given[0])
    began = time.process_time()
    daily.analyze_day(config, config.engine(given[1]), DAY, fresh=True)
    took = time.process_time() - began
    return given[1], took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, os.getpid()


def reduce(file: Path) -> tuple[float, float]:
    """The fleet's tables and the catalog: CPU seconds and MiB."""
    config = load(file)
    began = time.process_time()
    fleet_day.reduce_day(config, DAY)
    catalog.publish(config.store)
    return time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(folder: Path, count: int) -> bool:
    """Bring the fleet's day into a lake, print what it took, and say whether it holds."""
    file = folder / "kvpressure.toml"
    config = load(file)
    names = [engine.name for engine in config.fleet()][:count]
    raw = sum(path.stat().st_size for name in names for path in (folder / name / DAY.isoformat()).iterdir())
    shutil.rmtree(config.store.url, ignore_errors=True)
    context = multiprocessing.get_context("spawn")
    took, held, began = [], {}, time.monotonic()
    few_held: dict[int, float] = {}
    with context.Pool(PROCESSES) as pool:
        for name, seconds, mib, process in pool.imap_unordered(analyze, [(file, name) for name in names]):
            took.append(seconds)
            held[process] = max(held.get(process, 0.0), mib)
            if len(took) == FEW:
                few_held = dict(held)
            print(f"{len(took):>4}  {name}  {seconds:5.1f} s  {mib:4.0f} MiB", flush=True)
    with context.Pool(1) as pool:
        reduced, reduced_mib = pool.apply(reduce, (file,))
    few, all_of_them = fmean(took[:FEW]), fmean(took)
    growth = (all_of_them + reduced / len(took)) / few
    together = sum(held.values()) + reduced_mib
    print(f"machine    {platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, Python {sys.version.split()[0]}")
    print(f"raw        {raw / 1e9:.2f} GB, {raw / len(took) / 1e6:.0f} MB an engine and day")
    clock = time.monotonic() - began
    print(f"time       {all_of_them:.1f} CPU s an engine and day, {sum(took):.0f} s in all, {clock:.0f} s by the clock")
    print(f"reduction  {reduced:.1f} s, {reduced_mib:.0f} MiB")
    print(f"growth     {growth:.2f} against the first {FEW} (at most {MOST_GROWTH})")
    print(
        f"memory     {together:.0f} MiB together (at most {MOST_MIB}); processes {[round(each) for each in held.values()]} MiB, ",
        end="",
    )
    print(f"after the first {FEW}: {[round(each) for each in few_held.values()]}")
    return growth <= MOST_GROWTH and together <= MOST_MIB


def main() -> int:
    """Measure, print, and say whether all limits hold."""
    parser = argparse.ArgumentParser(description="What a fleet's day costs.")
    parser.add_argument("--engines", type=int, default=100)
    parser.add_argument("--fleet", type=Path, help="a folder that tests.benchmarks.fleet wrote")
    given = parser.parse_args()
    if given.fleet:
        return int(not measure(given.fleet, given.engines))
    with TemporaryDirectory() as folder:
        write(Path(folder), given.engines, [DAY])
        return int(not measure(Path(folder), given.engines))


if __name__ == "__main__":
    sys.exit(main())
