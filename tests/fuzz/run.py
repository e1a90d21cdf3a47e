"""The fuzzer: `python -m tests.fuzz.run --seconds 7200` feeds every target what coverage leads it to, and keeps what it found.

Needs atheris (`pip install atheris`; wheels for CPython 3.11 to 3.13 on Linux), which the tests do not. Targets take turns of a
minute, each in a process of its own under a memory and a time limit, so that one that hangs does not take the others with it.

    <work>/seeds/<target>/     where a target begins: put small inputs there
    <work>/corpus/<target>/    what reached new code, and grows from turn to turn
    <work>/found/<target>/     an input for each distinct fault; the first lines of `<input>.txt` say which
    <work>/log.tsv             target, seconds, executions, new faults, of each turn
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

MEMORY_MB, INPUT_S, LONGEST = 2048, 10, 16_384
MODULES_OF = {  # whose words are worth trying; a format's own module beside these
    "opened": ("parsers.source",),
    "detect": ("parsers.wrapper_kinds", "parsers.wrapped_documents"),
    "anything": ("parsers.wrapper_kinds", "parsers.log_prefix", "parsers.vllm_log_lines"),
    "config": ("parsers.vllm_config_lines", "parsers.sglang_config_lines"),
    "clocks": (),
    "vllm_engine_log": ("parsers.vllm_engine_log", "parsers.vllm_log_lines", "parsers.log_prefix", "parsers.vllm_config_lines"),
    "sglang_engine_log": ("parsers.sglang_engine_log", "parsers.sglang_config_lines", "parsers.log_prefix"),
}


def turn(target: str, work: Path, seconds: int) -> None:
    """One turn in this process; it ends the process."""
    import atheris  # noqa: PLC0415 - not a dependency of the tests

    with atheris.instrument_imports(include=["parsers", "pipelines"]):
        from pipelines.models import models  # noqa: PLC0415
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415

        models()  # imports what it finds by name

    one, found = TARGETS[target], work / "found" / target
    seen = {path.stem for path in found.glob("*.txt")}

    def run_one(data: bytes) -> None:
        try:
            one(data)
        except Exception as fault:  # noqa: BLE001 - that is what is looked for
            frames = [f"{Path(frame.filename).name}:{frame.name}" for frame in traceback.extract_tb(fault.__traceback__)]
            key = hashlib.sha1(f"{type(fault).__name__} {frames[-3:]}".encode()).hexdigest()[:12]
            if key not in seen:
                seen.add(key)
                (found / key).write_bytes(data)
                (found / f"{key}.txt").write_text("".join(traceback.format_exception(fault)))

    folders = [str(work / "corpus" / target), *(str(each) for each in [work / "seeds" / target] if each.is_dir())]
    limits = [
        f"-max_total_time={seconds}",
        f"-timeout={INPUT_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={LONGEST}",
        "-len_control=0",
    ]
    words = [f"-dict={work / 'words' / target}"] if (work / "words" / target).stat().st_size else []
    atheris.Setup([target, *limits, *words, f"-artifact_prefix={found}/", "-print_final_stats=1", *folders], run_one)
    atheris.Fuzz()


def words_of(modules: tuple[str, ...]) -> list[str]:
    """The string literals of modules, without what only a regular expression means."""
    words = set()
    for module in modules:
        spec = importlib.util.find_spec(module)
        tree = ast.parse(Path(spec.origin).read_text()) if spec and spec.origin else ast.Module([], [])
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
                text = node.value.encode() if isinstance(node.value, str) else node.value
                words |= {part for part in re.split(rb"\\[dswbSWD]|[()?*+|^\n]|\[[^\]]*\]", text) if 2 < len(part) < 60}
    return ['"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in sorted(words)]


def campaign(work: Path, seconds: int, turn_s: int, only: list[str]) -> None:
    """Every target in turn until the time is up."""
    from parsers import FORMAT_MODULES, formats  # noqa: PLC0415
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415

    modules = dict(zip((form.name for form in formats()), FORMAT_MODULES, strict=True))
    targets = only or list(TARGETS)
    for target in targets:
        for kind in ("corpus", "found"):
            (work / kind / target).mkdir(parents=True, exist_ok=True)
        (work / "words").mkdir(exist_ok=True)
        own = MODULES_OF.get(target, (modules.get(target, ""), "parsers.log_prefix"))
        (work / "words" / target).write_text("\n".join(words_of(tuple(filter(None, own)))))
    end, number = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 20:
        target = targets[number % len(targets)]
        number += 1
        before, begun = len(list((work / "found" / target).iterdir())), time.monotonic()
        command = [sys.executable, "-m", "tests.fuzz.run", "--turn", target, "--work", str(work)]
        command += ["--seconds", str(min(turn_s, int(left)))]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        executions = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
        count = executions[1] if executions else (re.findall(r"^#(\d+)", done.stderr, re.MULTILINE) or ["0"])[-1]
        new = (len(list((work / "found" / target).iterdir())) - before + 1) // 2
        with (work / "log.tsv").open("a") as log:
            log.write(f"{target}\t{time.monotonic() - begun:.0f}\t{count}\t{new}\t{done.returncode}\n")
        if done.returncode:
            (work / "found" / f"{target}.stderr").write_text(done.stderr[-20_000:])


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--seconds", type=int, default=7200)
    parser.add_argument("--turn-seconds", type=int, default=60)
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*")
    arguments = parser.parse_args()
    if arguments.turn:
        turn(arguments.turn, arguments.work, arguments.seconds)
    else:
        campaign(arguments.work, arguments.seconds, arguments.turn_seconds, arguments.targets)


if __name__ == "__main__":
    main()
