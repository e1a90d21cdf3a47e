"""Every regular expression of the parsers and the pipelines answers in time, whatever it is asked.

From each pattern come texts that suit it worst: one of its repetitions over and over and then something that does not fit, and
runs of the characters patterns stumble over. A search that backtracks over three repetitions would take half a minute here.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from re import _constants as kinds
from re import _parser as sre
from typing import Any

import pytest

from parsers import llamacpp_server_log, sglang_engine_log, tensorrt_llm_engine_log
from parsers.vllm_log_lines import MESSAGE_START

LENGTH, LONGEST_S = 1_500, 0.5
SHORT = {"_SCRAPE_TIME": 200}  # never asked of a longer text
RUNS = (
    "a",
    " ",
    "\n",
    "\t",
    "7",
    "-",
    '"',
    "{",
    "[",
    "(",
    "\\",
    "=",
    ":",
    "'",
    "#",
    ",",
    "a ",
    "7 ",
    "7.",
    "a=",
    "[ ",
    '{"',
    ". ",
    "\x1b[",
)
PROJECT = Path(__file__).parents[2]
MODULES = sorted([*(PROJECT / "parsers").rglob("*.py"), *(PROJECT / "pipelines").rglob("*.py")])


STARTS = [MESSAGE_START, *(each.GRAMMAR.start for each in (llamacpp_server_log, sglang_engine_log, tensorrt_llm_engine_log))]


def patterns(path: Path) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Every compiled pattern a module holds, and those it writes where it uses them."""
    module = importlib.import_module(".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__"))
    waiting = [(name, value) for name, value in vars(module).items() if not name.startswith("__")]
    named = set()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, re.Pattern):
            named.add(value.pattern)
            yield name, value
        elif type(value) in (tuple, list, set, frozenset):
            waiting += [(name, each) for each in value]
        elif type(value) is dict:
            waiting += [(name, each) for each in value.values()]
        elif hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
            waiting += [(name, getattr(value, field, None)) for field in value.__dataclass_fields__]
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("re"), attr=use), args=[ast.Constant(value=text), *_]) if (
                use != "escape"
            ):
                if text not in named:
                    yield f"line {node.lineno}", re.compile(text)


def worst_texts(pattern: re.Pattern[Any], length: int) -> Iterator[str]:
    yield from (run * (length // len(run)) for run in RUNS)
    tree = sre.parse(pattern.pattern, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags)
    for repeat in _repeats(tree):
        text = _example(tree, repeat, length)
        yield text[: 2 * length] + "\0"
        yield text[-2 * length :] + "\0"


def _repeats(tree: Any) -> Iterator[Any]:
    for kind, value in tree:
        if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
            yield value
            yield from _repeats(value[2])
        elif kind is kinds.SUBPATTERN:
            yield from _repeats(value[3])
        elif kind is kinds.BRANCH:
            for branch in value[1]:
                yield from _repeats(branch)


def _example(tree: Any, repeated: Any, length: int) -> str:
    """A text that the pattern fits, with one of its repetitions as long as asked for."""
    parts = []
    for kind, value in tree:
        if kind is kinds.LITERAL:
            parts.append(chr(value))
        elif kind is kinds.IN:
            parts.append(_member(value))
        elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
            one = _example(value[2], repeated, length)
            parts.append(one * (length // max(1, len(one)) if value is repeated else max(value[0], 1)))
        elif kind is kinds.SUBPATTERN:
            parts.append(_example(value[3], repeated, length))
        elif kind is kinds.BRANCH:
            parts.append(_example(value[1][0], repeated, length))
        elif kind not in (kinds.AT, kinds.ASSERT, kinds.ASSERT_NOT):
            parts.append("a")
    return "".join(parts)


def _member(items: Any) -> str:
    samples = {kinds.CATEGORY_DIGIT: "7", kinds.CATEGORY_SPACE: " ", kinds.CATEGORY_NOT_WORD: " "}
    found = [chr(value if kind is kinds.LITERAL else value[0]) for kind, value in items if kind in (kinds.LITERAL, kinds.RANGE)]
    found += [samples.get(value, "a") for kind, value in items if kind is kinds.CATEGORY]
    if items[0][0] is kinds.NEGATE:
        return next(each for each in 'a 7-"=,~' if each not in found)
    return found[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_no_pattern_takes_time_without_end(path):
    for name, pattern in patterns(path):
        for text in worst_texts(pattern, SHORT.get(name, LENGTH)):
            asked = text.encode("utf-8", "replace") if isinstance(pattern.pattern, bytes) else text
            begun = time.process_time()
            pattern.search(asked)
            taken = time.process_time() - begun
            assert taken < LONGEST_S, f"{name} takes {taken:.1f} s for {text[:40]!r}…: {pattern.pattern!r}"


@pytest.mark.parametrize("start", STARTS, ids=lambda pattern: pattern.pattern[:20])
def test_where_a_message_starts_is_found_in_time_that_grows_with_the_line(start):
    """It is looked for from each letter of a line on; of the square of the length, a line of digits would take ten seconds."""

    def taken(text: str) -> float:
        begun = time.process_time()
        start.search(text)
        return time.process_time() - begun

    for run in (*RUNS, "A"):
        shorter, longer = (min(taken(run * (length // len(run))) for _ in range(3)) for length in (8_000, 32_000))
        assert longer < 9 * shorter + 0.01, run


def test_a_pattern_that_backtracks_is_found():
    pattern = re.compile(r" *-? *\w* *x")  # its time grows with the fourth power of the length
    assert any(_takes_long(pattern, text) for text in worst_texts(pattern, 450))


def _takes_long(pattern: re.Pattern[str], text: str) -> bool:
    begun = time.process_time()
    pattern.search(text)
    return time.process_time() - begun > LONGEST_S


CALLS = ("eval", "exec", "compile", "__import__")
MODULES_THAT_RUN = ("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_nothing_is_unpickled_or_evaluated(path):
    """What an input holds is data: nothing here turns data into code, or hands it to a shell."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in CALLS, f"line {node.lineno}"
            assert called not in ("os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "yaml.full_load"), (
                f"line {node.lineno}"
            )
            assert not any(keyword.arg == "shell" for keyword in node.keywords), f"line {node.lineno}"
            assert called != "yaml.load_all" or ast.unparse(node.args[1]) == "loader", f"line {node.lineno}"
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        assert not {*names, getattr(node, "module", None)} & set(MODULES_THAT_RUN), f"line {getattr(node, 'lineno', 0)}"
