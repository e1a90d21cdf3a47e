"""How fast the vLLM log parser is, against what the machine can do: `python -m tests.benchmarks.bench_vllm_log`.

Two logs of 200 MB are written and parsed: `dense`, every line a statistics line, and `sparse`, one in a hundred, among access
lines, request lines and warnings. Each figure is bytes per CPU second, the best of three, threads included; the floors are other
programs on the same file in the same run, so that the ratios mean the same on any machine.

    dense   at least 3 times `rg -j1 -o -r '$1,…,$8'`, which captures the same eight fields as text
    sparse  at least 15 % of `wc -l`, which only counts newlines
    memory  less than 400 MB resident, for 200 MB of log and for 2 GB alike

It prints the ratios and exits with 1 where one misses its floor. The parse includes writing its rows as Parquet; importing the
libraries is stated by itself. `sparse` is also measured without request lines, which vLLM does not print unless asked to since
0.10.1: the third line says how much of the cost is theirs.
"""

# ruff: noqa: E501, T201 - log lines are as long as they are, and the table goes to the terminal

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SIZE = 200_000_000
TIMES_LARGER = 10  # for the memory of a large log
DENSE_TIMES_RG, SPARSE_SHARE_OF_WC, MOST_RESIDENT_MB = 3.0, 0.15, 400

RG_PATTERN = (
    r"INFO ([0-9-]+ [0-9:]+) \[loggers\.py:[0-9]+\] Engine ([0-9]+): Avg prompt throughput: ([0-9.]+) tokens/s, "
    r"Avg generation throughput: ([0-9.]+) tokens/s, Running: ([0-9]+) reqs, Waiting: ([0-9]+) reqs, "
    r"GPU KV cache usage: ([0-9.]+)%, Prefix cache hit rate: ([0-9.]+)%"
)
SAMPLING = (
    "SamplingParams(n=1, presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0, temperature=1.0, top_p=1.0, top_k=0, "
    "min_p=0.0, seed=None, stop=[], stop_token_ids=[], bad_words=[], include_stop_str_in_output=False, ignore_eos=True, max_tokens={}, "
    "min_tokens=0, logprobs=None, prompt_logprobs=None, skip_special_tokens=True, spaces_between_special_tokens=True, extra_args=None)"
)

PARSE = """
import json, resource, sys, tempfile, time
started = time.process_time()
from pathlib import Path
from parsers.source import Sink, Source
from parsers.vllm_engine_log import FORMAT
imported, best = time.process_time() - started, float("inf")
for _ in range(int(sys.argv[2])):
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        with Sink(Path(folder)) as sink:
            account = FORMAT.parse(Source(Path(sys.argv[1]), "bench"), sink)
        best = min(best, time.process_time() - started)
print(json.dumps({
    "import_s": imported, "parse_s": best, "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "lines": account.lines, "used": account.used, "not_understood": account.not_understood,
}))
"""


@dataclass(frozen=True)
class Mix:
    """A log to measure: its name, and the share of statistics and request lines in it."""

    name: str
    statistics: float
    requests: float


DENSE, SPARSE, NO_REQUESTS = Mix("dense", 1, 0), Mix("sparse", 0.01, 0.1), Mix("sparse, no request lines", 0.01, 0)


def lines(mix: Mix) -> Iterator[str]:
    """Endless lines of the mix, the same in every run."""
    dice = random.Random(1)
    seconds = 0
    while True:
        seconds += 1
        day, second = seconds // 86400 % 28 + 1, seconds % 86400
        stamp = f"11-{day:02} {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        frontend, number, chance = "(APIServer pid=13585)", dice.getrandbits(32), dice.random()
        if chance < mix.statistics:
            yield (
                f"{frontend} INFO {stamp} [loggers.py:336] Engine 000: Avg prompt throughput: {dice.random() * 9000:.1f} tokens/s, "
                f"Avg generation throughput: {dice.random() * 3000:.1f} tokens/s, Running: {number % 256} reqs, "
                f"Waiting: {number % 91} reqs, GPU KV cache usage: {dice.random() * 100:.1f}%, "
                f"Prefix cache hit rate: {dice.random() * 100:.1f}%\n"
            )
        elif chance < mix.statistics + mix.requests / 2:
            params = SAMPLING.format(number % 900 + 16)
            yield f"{frontend} INFO {stamp} [request_logger.py:65] Received request cmpl-{number:08x}-0: params: {params}, lora_request: None.\n"
        elif chance < mix.statistics + mix.requests:
            yield f"{frontend} INFO {stamp} [async_llm.py:578] Added request cmpl-{number:08x}-0-{number * 7919 % 2**32:08x}.\n"
        elif chance < mix.statistics + mix.requests + 0.09:
            yield (
                f"(EngineCore pid=13700) WARNING {stamp} [jit_monitor.py:129] Triton kernel JIT compilation during inference: "
                "rejection_greedy_sample_kernel. This causes a latency spike; consider extending warmup to cover this shape.\n"
            )
        else:
            yield f'INFO:     10.0.{number % 255}.{number % 251}:{number % 50000 + 10000} - "POST /v1/completions HTTP/1.1" 200 OK\n'


def write(path: Path, mix: Mix) -> None:
    """Write SIZE bytes of the mix."""
    size = 0
    with path.open("w") as file:
        for line in lines(mix):
            size += file.write(line)
            if size >= SIZE:
                return


def cpu_seconds(command: list[str]) -> float:
    """CPU seconds of a command, user and system, the best of three."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    return min(once() for _ in range(3))


def parse(path: Path, times: int = 3) -> dict[str, float]:
    """What a parse in a process of its own costs."""
    command = [sys.executable, "-c", PARSE, str(path), str(times)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> int:
    """Measure, print, and say whether every floor holds."""
    rg = shutil.which("rg")
    if not rg:
        print("the floor of the dense log is ripgrep: install it (apt-get install ripgrep)", file=sys.stderr)
        return 2
    results: list[tuple[str, float, float | None, Callable[[float, float], bool]]] = []
    at_least, below = float.__ge__, float.__lt__
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.log"
        for mix in (DENSE, SPARSE, NO_REQUESTS):
            write(path, mix)
            size, parsed, wc = path.stat().st_size / 1e6, parse(path), cpu_seconds(["wc", "-l", str(path)])
            results.append((f"{mix.name}: MB per CPU second", size / parsed["parse_s"], None, at_least))
            if mix is DENSE:
                floor = cpu_seconds([rg, "-j1", "-o", "-r", "$1,$2,$3,$4,$5,$6,$7,$8", RG_PATTERN, str(path)])
                results.append((f"{mix.name}: times rg, eight captures", floor / parsed["parse_s"], DENSE_TIMES_RG, at_least))
                results.append(("import, CPU seconds", parsed["import_s"], None, at_least))
            results.append(
                (f"{mix.name}: share of wc -l", wc / parsed["parse_s"], SPARSE_SHARE_OF_WC if mix is SPARSE else None, at_least)
            )
            results.append((f"{mix.name}: MB resident", parsed["resident_mb"], MOST_RESIDENT_MB, below))
            if mix is not NO_REQUESTS:
                large = Path(folder) / "large.log"
                with large.open("wb") as file:
                    for _ in range(TIMES_LARGER):
                        file.write(path.read_bytes())
                results.append(
                    (
                        f"{mix.name}, {TIMES_LARGER} times larger: MB resident",
                        parse(large, 1)["resident_mb"],
                        MOST_RESIDENT_MB,
                        below,
                    )
                )
                large.unlink()
    for name, figure, floor, holds in results:
        verdict = (
            ""
            if floor is None
            else f"{'ok' if holds(figure, float(floor)) else 'MISSED'} ({'≥' if holds is at_least else '<'} {floor:g})"
        )
        print(f"{name:<45} {figure:>9.3f}  {verdict}")
    version = subprocess.run([rg, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    print(f"{version}, Python {sys.version.split()[0]}, {os.cpu_count()} CPUs, {time.monotonic() - started:.0f} s")
    return int(any(floor is not None and not holds(figure, float(floor)) for _, figure, floor, holds in results))


if __name__ == "__main__":
    sys.exit(main())
