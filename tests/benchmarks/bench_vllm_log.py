"""How fast the vLLM log parser is, against what the machine can do: `python -m tests.benchmarks.bench_vllm_log [--no-2gb]`.

Logs of 200 MB are written and parsed. Every figure is CPU seconds, user and system, threads included; the floors are other
programs on the same file in the same run, in turns with the parser, so that the ratios mean the same on any machine.

    dense     every line a statistics line: at least 3 times `rg -j1 -o -r '$1,…,$8'`, which captures the same eight as text
    sparse    one line in a hundred: at least 15 % of `wc -l`, which only counts newlines
    requests  as sparse, one line in ten of a request: vLLM prints them only when asked to since 0.10.1, so no floor
    memory    less than 400 MB resident, for 200 MB of log and for 2 GB alike

Of three runs each the best counts, and the medians stand beside it. A parse includes writing its rows as Parquet; importing the
libraries and using them for the first time, on 100 kB, is stated by itself. So is `rg -P` (PCRE2, compiled just in time), for
captures are what ripgrep's own engine is slow at. Exits with 1 where a floor is missed.
"""

# ruff: noqa: E501, ISC004, T201 - log lines are as long as they are, and the figures go to the terminal

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SIZE = 200_000_000
TIMES_LARGER = 10  # for the memory of a large log
ROUNDS = 3
DENSE_TIMES_RG, SPARSE_SHARE_OF_WC, MOST_RESIDENT_MB = 3.0, 0.15, 400

RG_PATTERN = (
    r"INFO ([0-9-]+ [0-9:]+) \[loggers\.py:[0-9]+\] Engine ([0-9]+): Avg prompt throughput: ([0-9.]+) tokens/s, "
    r"Avg generation throughput: ([0-9.]+) tokens/s, Running: ([0-9]+) reqs, Waiting: ([0-9]+) reqs, "
    r"GPU KV cache usage: ([0-9.]+)%, Prefix cache hit rate: ([0-9.]+)%"
)
RG = ["rg", "-j1", "-o", "-r", "$1,$2,$3,$4,$5,$6,$7,$8", RG_PATTERN]

PARSE = """
import json, sys, tempfile, time
started = time.process_time()
from pathlib import Path
from parsers.source import Sink, Source
from parsers.vllm_engine_log import FORMAT

def parse(path):
    with tempfile.TemporaryDirectory() as folder, Sink(Path(folder)) as sink:
        return FORMAT.parse(Source(path, "bench"), sink)

with tempfile.TemporaryDirectory() as folder:
    few = Path(folder) / "few.log"
    with open(sys.argv[1], "rb") as file:
        few.write_bytes(file.read(100_000))
    parse(few)
ready = time.process_time()
parse(Path(sys.argv[1]))
print(json.dumps({"start": ready - started, "parse": time.process_time() - ready}))
"""


@dataclass(frozen=True)
class Mix:
    """A log to measure: its name, and the share of statistics and request lines in it."""

    name: str
    statistics: float
    requests: float


DENSE, SPARSE, REQUESTS = Mix("dense", 1, 0), Mix("sparse", 0.01, 0), Mix("requests", 0.01, 0.1)

SAMPLING = (
    "SamplingParams(n=1, presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0, temperature=1.0, top_p=1.0, top_k=0, "
    "min_p=0.0, seed=None, stop=[], stop_token_ids=[], bad_words=[], include_stop_str_in_output=False, ignore_eos=True, "
    "max_tokens={}, min_tokens=0, logprobs=None, prompt_logprobs=None, skip_special_tokens=True, extra_args=None)"
)
OTHERS = (  # what else there is in a log: warnings, client errors, the lines of a traceback
    "(EngineCore pid=13700) WARNING {stamp} [jit_monitor.py:129] Triton kernel JIT compilation during inference: "
    "rejection_greedy_sample_kernel. This causes a latency spike; consider extending warmup to cover this shape.",
    "(APIServer pid=13585) WARNING {stamp} [protocol.py:87] The following fields were present in the request but ignored: {{'user'}}",
    "(APIServer pid=13585) ERROR {stamp} [serving_chat.py:214] Error in preprocessing prompt inputs",
    "(APIServer pid=13585) Traceback (most recent call last):",
    '(APIServer pid=13585)   File "/usr/lib/python3/site-packages/vllm/entrypoints/openai/serving_chat.py", line 207, in create',
    "(APIServer pid=13585) ValueError: unsupported content part",
)


def lines(mix: Mix) -> Iterator[str]:
    """Endless lines of the mix, the same in every run."""
    dice = random.Random(1)
    seconds = 0
    while True:
        seconds += 1
        day, second = seconds // 86400 % 28 + 1, seconds % 86400
        stamp = f"11-{day:02} {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        prefix, number, chance = f"(APIServer pid=13585) INFO {stamp}", dice.getrandbits(32), dice.random()
        if chance < mix.statistics:
            yield (
                f"{prefix} [loggers.py:336] Engine 000: Avg prompt throughput: {dice.random() * 9000:.1f} tokens/s, "
                f"Avg generation throughput: {dice.random() * 3000:.1f} tokens/s, Running: {number % 256} reqs, "
                f"Waiting: {number % 91} reqs, GPU KV cache usage: {dice.random() * 100:.1f}%, "
                f"Prefix cache hit rate: {dice.random() * 100:.1f}%\n"
            )
        elif chance < mix.statistics + mix.requests / 2:
            params = SAMPLING.format(number % 900 + 16)
            yield f"{prefix} [request_logger.py:65] Received request cmpl-{number:08x}-0: params: {params}, lora_request: None.\n"
        elif chance < mix.statistics + mix.requests:
            yield f"{prefix} [async_llm.py:578] Added request cmpl-{number:08x}-0-{number * 7919 % 2**32:08x}.\n"
        elif chance < 0.96:
            yield f'INFO:     10.0.{number % 255}.{number % 251}:{number % 50000 + 10000} - "POST /v1/completions HTTP/1.1" 200 OK\n'
        else:
            yield OTHERS[number % len(OTHERS)].format(stamp=stamp) + "\n"


def write(path: Path, mix: Mix) -> None:
    """Write SIZE bytes of the mix."""
    size = 0
    with path.open("w") as file:
        for line in lines(mix):
            size += file.write(line)
            if size >= SIZE:
                return


def run(command: list[str]) -> tuple[float, float, bytes]:
    """CPU seconds of a command, the most it had resident in MB, and the end of what it wrote."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{command[0]} failed")
        output.seek(max(output.tell() - 1000, 0))
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output.read()


def parse(path: Path) -> dict[str, float]:
    """What a parse in a process of its own costs: seconds to `start` and to `parse`, and `resident` MB."""
    _, resident, output = run([sys.executable, "-c", PARSE, str(path)])
    return {**json.loads(output), "resident": resident}


def in_turns(path: Path, *floors: list[str]) -> tuple[list[list[float]], list[dict[str, float]]]:
    """CPU seconds of each floor and what each parse costs, all of them in every round."""
    seconds: list[list[float]] = [[] for _ in floors]
    parses = []
    for _ in range(ROUNDS):
        for each, floor in zip(seconds, floors, strict=True):
            each.append(run([*floor, str(path)])[0])
        parses.append(parse(path))
    return seconds, parses


def say(what: str, figure: str, *, holds: bool | None = None) -> bool:
    """Print one figure, and whether it holds; True where it does, or need not."""
    print(f"{what:<40}{figure:<76}{'' if holds is None else 'ok' if holds else 'MISSED'}".rstrip(), flush=True)
    return holds is not False


def times(floor: list[float], parses: list[float]) -> tuple[float, str]:
    """How many times as fast as a floor the parser is, and the figures this comes from."""
    ratio = min(floor) / min(parses)
    medians = f"medians {median(parses):.3f} and {median(floor):.3f} s: {median(floor) / median(parses):.2f}"
    return ratio, f"{ratio:.2f} ({min(parses):.3f} s for {min(floor):.3f} s; {medians})"


def small_enough(what: str, resident: float) -> bool:
    """Whether a parse kept its memory."""
    return say(what, f"{resident:.0f} MB (< {MOST_RESIDENT_MB})", holds=resident < MOST_RESIDENT_MB)


def measure(path: Path, mix: Mix) -> bool:
    """Measure one mix, print, and say whether its floors hold."""
    write(path, mix)
    wc = ["wc", "-l"]
    seconds, parses = in_turns(path, *([wc, RG, [*RG, "-P"]] if mix is DENSE else [wc]))
    ours = [each["parse"] for each in parses]
    holds = say(
        f"{mix.name}: parse",
        f"{path.stat().st_size / 1e6 / min(ours):.0f} MB/s, import and first use {parses[0]['start']:.2f} s before it",
    )
    share, figures = times(seconds[0], ours)
    holds &= say(f"{mix.name}: share of wc -l", figures, holds=share >= SPARSE_SHARE_OF_WC if mix is SPARSE else None)
    if mix is DENSE:
        ratio, figures = times(seconds[1], ours)
        holds &= say("dense: times rg -o -r, eight captures", figures, holds=ratio >= DENSE_TIMES_RG)
        say("dense: times rg -P -o -r", times(seconds[2], ours)[1])
    return holds & small_enough(f"{mix.name}: resident", max(each["resident"] for each in parses))


def measure_large(path: Path, mix: Mix) -> bool:
    """Measure the memory of a log ten times as long."""
    large = path.with_name("large.log")
    if shutil.disk_usage(path.parent).free < 1.5 * TIMES_LARGER * SIZE:
        return say(f"{mix.name}, {TIMES_LARGER} times longer", "left out: too little room for temporary files")
    try:
        with large.open("wb") as file:
            for _ in range(TIMES_LARGER):
                with path.open("rb") as part:
                    shutil.copyfileobj(part, file, 1 << 20)
        return small_enough(f"{mix.name}, {TIMES_LARGER} times longer: resident", parse(large)["resident"])
    finally:
        large.unlink()


def main(arguments: list[str]) -> int:
    """Measure, print as it goes, and say whether every floor holds."""
    if not shutil.which("rg"):
        print("the floor of the dense log is ripgrep: install it (apt-get install ripgrep)", file=sys.stderr)
        return 2
    version = subprocess.run(["rg", "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    print(
        f"{version}, Python {sys.version.split()[0]}, {os.cpu_count()} CPUs, {SIZE / 1e6:.0f} MB each; CPU seconds, best of {ROUNDS}"
    )
    holds = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.log"
        for mix in (SPARSE, REQUESTS, DENSE):
            holds &= measure(path, mix)
            if mix is not REQUESTS and "--no-2gb" not in arguments:
                holds &= measure_large(path, mix)
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
