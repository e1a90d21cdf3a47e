"""The catalogue of signals: the one place that knows what an exposed name means, and nothing in it that no input can bring."""

import re

import pytest

from parsers.prometheus_names import kept_name
from pipelines.duck import connect
from pipelines.replay.engines import MODELS
from pipelines.replay.requests import FOUND
from tests.conftest import PROJECT

CATALOGUE = PROJECT / "sql" / "lib" / "signals.sql"
ELSEWHERE = [path for path in sorted((PROJECT / "sql").rglob("*.sql")) if path != CATALOGUE]
IN_FULL = re.compile(r"'((?:vllm|sglang|llamacpp|lmcache):\w+|(?:trtllm|nv_trt_llm|dynamo|kvbm|DCGM_FI)_\w+)'")


def catalogue() -> list[dict]:
    with connect(threads=1) as con:
        return con.sql("from signals()").to_arrow_table().to_pylist()


def test_every_name_is_kept_when_a_page_is_read():
    names = {row["name"].rpartition(":")[0] if is_split(row["name"]) else row["name"] for row in catalogue()}
    assert {name for name in names if kept_name(name) != name} == set()


def is_split(name: str) -> bool:
    """Whether the name carries the label that tells several quantities apart."""
    return name.startswith("nv_trt_llm_")


def test_a_name_means_one_thing_and_a_signal_is_of_one_kind():
    rows = catalogue()
    assert len({row["name"] for row in rows}) == len(rows)
    kinds = {(row["signal"], row["kind"]) for row in rows}
    assert len(kinds) == len({signal for signal, _ in kinds})
    assert {kind for _, kind in kinds} == {"gauge", "counter", "histogram"}


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_other_query_knows_an_exposed_name(path):
    code = re.sub(r"--[^\n]*", "", path.read_text())
    assert IN_FULL.findall(code) == []


def test_no_signal_is_here_that_no_query_reads():
    code = "".join(re.sub(r"--[^\n]*", "", path.read_text()) for path in ELSEWHERE)
    code += "".join(path.read_text() for path in sorted((PROJECT / "pipelines" / "replay").glob("*.py")))
    read = set(re.findall(r"""['"](\w+?)(?:_sum|_count)?['"]""", code))
    assert {row["signal"] for row in catalogue()} - read == set()


def test_what_the_replay_asks_of_counters_is_a_signal_of_theirs():
    counters = {row["signal"] for row in catalogue() if row["kind"] == "counter"}
    refused = {signal for model in MODELS.values() for signal, _ in model.not_modelled_counters}
    assert {*FOUND, *refused} <= counters
