"""How fast a what-if is: `python -m tests.benchmarks.bench_whatif`.

A closed client keeps 300 requests of 300 output tokens in flight on an engine of 256 slots, whose pool holds a little less than
they need: there is preemption all along. Measured is the whole answer: scaling the step time, the self-check and the prediction
for half the slots, each of several replays, in a process of its own and on one core.

    time    10,000 requests in at most 30 s
    memory  at most 1 GiB resident
    growth  a request of 100,000 costs at most 15 % more than one of 1,000

Growth is measured by the time of one replay: how many an answer takes falls with the number of requests. It prints the figures
and exits with 1 where one misses.
"""

# ruff: noqa: T201 - the table goes to the terminal

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable

from pipelines.replay.whatif import WhatIf
from tests.whatif_runs import engine, recording, requests, serve

MOST_SECONDS, MOST_MIB, MOST_GROWTH = 30.0, 1024.0, 1.15
IN_FLIGHT = 300
SETTINGS = engine(blocks=6_000, block_size=16, max_num_seqs=256, max_num_batched_tokens=8192)
ANSWERED, GROWN = 10_000, (1_000, 10_000, 100_000)


def answer(count: int) -> float:
    """CPU seconds of an answer."""
    run = recording(requests(count, prompt=200, output=300), SETTINGS, IN_FLIGHT)
    started = time.process_time()
    WhatIf.of(run).predict({"max_num_seqs": "128"})
    return time.process_time() - started


def replay(count: int) -> float:
    """CPU seconds of one replay: the mean of as many as make 20,000 requests, so that each count sees the machine's noise."""
    load = requests(count, prompt=200, output=300)
    times = max(1, 20_000 // count)
    started = time.process_time()
    for _ in range(times):
        serve(load, SETTINGS, IN_FLIGHT)
    return (time.process_time() - started) / times


def _measured(work: Callable[[int], float], count: int, results: multiprocessing.Queue) -> None:
    seconds = work(count)
    results.put((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def measured(work: Callable[[int], float], count: int) -> tuple[float, float]:
    """Seconds and MiB of the work in a process of its own."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=_measured, args=(work, count, results))
    process.start()
    found = results.get()
    process.join()
    return found


def main() -> int:
    """Measure, print, and say whether all limits hold."""
    seconds, mib = measured(answer, ANSWERED)
    limits = f"at most {MOST_SECONDS:.0f} s, {MOST_MIB:.0f} MiB"
    print(f"answer   {ANSWERED:>7,} requests  {seconds:6.1f} s  {mib:5.0f} MiB  ({limits})")
    each = {count: measured(replay, count) for count in GROWN}
    for count, (took, held) in each.items():
        print(f"replay   {count:>7,} requests  {took:6.2f} s  {1e6 * took / count:5.0f} us a request  {held:5.0f} MiB")
    growth = (each[GROWN[-1]][0] / GROWN[-1]) / (each[GROWN[0]][0] / GROWN[0])
    print(f"growth   {growth:.2f} (at most {MOST_GROWTH})")
    return int(seconds > MOST_SECONDS or mib > MOST_MIB or growth > MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
