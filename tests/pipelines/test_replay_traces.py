"""Which requests begin alike, from the trace that a run was made from: only where the lengths leave no doubt that it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import polars as pl
import pytest

from pipelines.replay import sglang, vllm
from pipelines.replay.engine import PROGRESS, Content, Request
from pipelines.replay.traces import by_trace, start_of

RNG = Random(4)
TRACE = [RNG.randint(200, 3_000) for _ in range(60)]
SCHEMA = {
    "source": pl.String,
    "line": pl.Int64,
    "input_tokens": pl.Int64,
    "block_size": pl.Int64,
    "block_hashes": pl.List(pl.UInt64),
}


def workload(lengths: list[int] = TRACE, name: str = "mooncake.jsonl") -> pl.DataFrame:
    """A trace whose prompts all begin with the same block of 512 tokens."""
    rows = []
    for line, length in enumerate(lengths, start=1):
        rows.append((name, line, length, 512, [7, *(1_000 * line + i for i in range(1, -(-length // 512)))]))
    return pl.DataFrame(rows, SCHEMA, orient="row")


def requests(lengths: list[int | None], *, has_index: bool = True, source: str = "client.json") -> pl.DataFrame:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    return pl.DataFrame(
        [
            (f"{source}#0#{i}", source, 0, i if has_index else None, start + timedelta(seconds=i), length)
            for i, length in enumerate(lengths)
        ],
        {
            "request_key": pl.String,
            "source": pl.String,
            "run_index": pl.Int64,
            "request_index": pl.Int64,
            "arrived_at": pl.Datetime("us", "UTC"),
            "input_tokens": pl.Int64,
        },
        orient="row",
    )


def told(recorded: pl.DataFrame, trace: pl.DataFrame) -> dict[str, tuple[int, int, list[int]]]:
    return {key: (size, tokens, blocks) for key, _, _, size, tokens, blocks in by_trace(recorded, trace)}


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("start", [0, 11])
def test_a_run_made_from_a_trace_has_its_blocks(has_index, before, start):
    lengths = [each + before for each in TRACE[start : start + 30]]
    found = told(requests(lengths, has_index=has_index), workload())
    assert len(found) == 30
    size, tokens, blocks = found["client.json#0#3"]
    assert (size, len(blocks)) == (512, -(-TRACE[start + 3] // 512))
    assert tokens <= lengths[3] <= tokens + before
    assert {each[2][0] for each in found.values()} == {blocks[0]}  # all begin alike
    assert len({each for _, _, blocks in found.values() for each in blocks[1:]}) == sum(
        len(each[2]) - 1 for each in found.values()
    )


def test_requests_that_are_not_there_leave_the_others_theirs():
    lengths: list[int | None] = [*TRACE[:30]]
    lengths[4] = None
    found = told(requests(lengths).filter(pl.col("request_index") != 7), workload())
    assert len(found) == 28
    assert found["client.json#0#8"][1] == TRACE[8]


@pytest.mark.parametrize(
    ("lengths", "trace"),
    [
        ([*TRACE[:29], TRACE[29] + 1], TRACE),  # one that does not fit
        (TRACE[29::-1], TRACE),  # another order
        (TRACE[:4], TRACE),  # too few to be sure
        ([512] * 60, [512] * 80),  # lengths that are all alike fit any run
        (TRACE[:30], [*TRACE[:30], *TRACE[:30]]),  # in two places
    ],
)
def test_where_it_is_not_sure_nothing_is_told(lengths, trace):
    assert told(requests(lengths), workload(trace)) == {}


def test_of_two_traces_that_fit_neither_is_taken():
    both = pl.concat([workload(), workload(name="copy.jsonl")])
    assert told(requests(TRACE[:30]), both) == {}
    assert told(requests(TRACE[:30]), workload([*TRACE[:50], *TRACE[40:50]])) != {}


def test_another_client_may_have_made_another_text_of_a_number():
    both = pl.concat([requests(TRACE[:30]), requests(TRACE[:30], source="again.json")])
    found = told(both, workload())
    assert len(found) == 60
    assert found["client.json#0#0"][2] != found["again.json#0#0"][2]


def test_the_place_is_the_only_one_in_which_all_lengths_are():
    trace = [300, 500, *TRACE]
    assert start_of(range(20), TRACE[:20], trace) == 2
    assert start_of([0, 5, 19], [TRACE[0], TRACE[5], TRACE[19]], trace) is None  # fits, but three are no proof


def prompts() -> list[Request]:
    """Two prompts of 1,100 tokens that share their first 512, and one that shares nothing."""
    texts = ((0.0, (1, 2, 3)), (900.0, (1, 4, 5)), (1_800.0, (6, 7, 8)))
    return [Request(at, 1_100, 2, content=Content(blocks, 512, 1_100)) for at, blocks in texts]


@pytest.mark.parametrize("size", [16, 48, 512, 640])
def test_a_block_of_a_trace_is_as_many_blocks_of_vllm_as_are_whole_in_it(size):
    settings = vllm.Settings(blocks=4_000 // size, block_size=size, max_num_seqs=8, max_num_batched_tokens=4_096)
    assert vllm.Replay(settings, PROGRESS, prompts()).run().first_hit_tokens == 512 // size * size


@pytest.mark.parametrize("page", [1, 48])
def test_a_block_of_a_trace_is_as_many_tokens_of_sglang(page):
    settings = sglang.Settings(4_800, page_size=page, max_running_requests=8, chunked_prefill_size=4_096)
    assert sglang.Replay(settings, PROGRESS, prompts()).run().first_hit_tokens == 512 // page * page
