"""How fast a what-if is: `python -m tests.benchmarks.bench_whatif`.

A closed client keeps 300 requests of 300 output tokens in flight on an engine of 256 slots, vLLM's scheduler and SGLang's, whose
pool holds a little less than they need: there is preemption all along. Measured is the whole answer: scaling the step time, the
self-check and the prediction for half the slots, each of several replays, in a process of its own and on one core.

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

from pipelines.replay import sglang
from pipelines.replay.engine import EngineSettings
from pipelines.replay.whatif import WhatIf
from tests.whatif_runs import engine, recording, requests, serve

MOST_SECONDS, MOST_MIB, MOST_GROWTH = 30.0, 1024.0, 1.15
IN_FLIGHT = 300
ANSWERED, GROWN = 10_000, (1_000, 10_000, 100_000)
SETTINGS: dict[str, EngineSettings] = {
    "vllm": engine(blocks=6_000, block_size=16, max_num_seqs=256, max_num_batched_tokens=8192),
    "sglang": sglang.Settings(
        96_000, page_size=1, max_running_requests=256, chunked_prefill_size=8192, schedule_conservativeness=0.1
    ),
}
HALF_THE_SLOTS = {"vllm": {"max_num_seqs": "128"}, "sglang": {"max_running_requests": "128"}}


def answer(kind: str, count: int) -> float:
    """CPU seconds of an answer."""
    run = recording(requests(count, prompt=200, output=300), SETTINGS[kind], IN_FLIGHT, engine_kind=kind)
    started = time.process_time()
    WhatIf.of(run).predict(HALF_THE_SLOTS[kind])
    return time.process_time() - started


def replay(kind: str, count: int) -> float:
    """CPU seconds of one replay: the mean of as many as make 20,000 requests, so that each count sees the machine's noise."""
    load = requests(count, prompt=200, output=300)
    times = max(1, 20_000 // count)
    started = time.process_time()
    for _ in range(times):
        serve(load, SETTINGS[kind], IN_FLIGHT, engine_kind=kind)
    return (time.process_time() - started) / times


def _measured(work: Callable[[str, int], float], kind: str, count: int, results: multiprocessing.Queue) -> None:
    seconds = work(kind, count)
    results.put((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def measured(work: Callable[[str, int], float], kind: str, count: int) -> tuple[float, float]:
    """Seconds and MiB of the work in a process of its own."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=_measured, args=(work, kind, count, results))
    process.start()
    found = results.get()
    process.join()
    return found


def holds(kind: str) -> bool:
    """Measure an engine's model, print it, and say whether all limits hold."""
    seconds, mib = measured(answer, kind, ANSWERED)
    limits = f"at most {MOST_SECONDS:.0f} s, {MOST_MIB:.0f} MiB"
    print(f"{kind:<6}  answer  {ANSWERED:>7,} requests  {seconds:6.1f} s  {mib:5.0f} MiB  ({limits})")
    each = {count: measured(replay, kind, count) for count in GROWN}
    for count, (took, held) in each.items():
        print(f"{kind:<6}  replay  {count:>7,} requests  {took:6.2f} s  {1e6 * took / count:5.0f} us a request  {held:5.0f} MiB")
    growth = (each[GROWN[-1]][0] / GROWN[-1]) / (each[GROWN[0]][0] / GROWN[0])
    print(f"{kind:<6}  growth  {growth:.2f} (at most {MOST_GROWTH})")
    return seconds <= MOST_SECONDS and mib <= MOST_MIB and growth <= MOST_GROWTH


def main() -> int:
    """Both models; 1 where a limit is missed."""
    return int(not all([holds(kind) for kind in SETTINGS]))  # noqa: C419 - each is measured, whatever the one before


if __name__ == "__main__":
    sys.exit(main())
