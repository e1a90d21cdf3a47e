"""Which requests begin alike, from KV events: whose blocks were stored, told by length and time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pipelines.replay.engine import Content, Request, StepTime
from pipelines.replay.kv_events import Event, Stored
from pipelines.replay.load import Record
from pipelines.replay.prefixes import blocks_of
from pipelines.replay.vllm import Replay, Settings

START = datetime(2026, 3, 1, tzinfo=UTC)
BLOCK = 4


def stored(at: float, parent: int | None, *hashes: int) -> Event:
    return Stored(START + timedelta(seconds=at), parent, hashes, BLOCK)


def record(arrived: float, first: float, end: float, prompt: int, output: int) -> Record:
    start = START.timestamp()
    return Record(start + arrived, start + first, start + end, prompt, output)


def blocks(records: list[Record], events: list[Event], clock_error_s: float = 0.0) -> list[tuple[int, ...]]:
    return blocks_of([records], events, BLOCK, clock_error_s)[0]


def test_a_request_has_the_blocks_of_its_prompt_and_of_its_answer():
    records = [record(0, 1, 2, prompt=9, output=9)]
    events = [stored(1.0, None, 1, 2), stored(1.4, 2, 3), stored(1.8, 3, 4)]
    assert blocks(records, events) == [(1, 2, 3, 4)]


def test_requests_are_told_apart_by_length_and_by_whose_token_came_next():
    records = [record(0, 1, 9, 9, 1), record(0, 1, 9, 13, 1), record(0, 3, 9, 9, 1)]
    events = [stored(1.0, None, 1, 2, 3), stored(1.0, None, 4, 5), stored(3.0, None, 6, 7)]
    assert blocks(records, events) == [(4, 5), (1, 2, 3), (6, 7)]


def test_of_two_in_one_step_the_longer_answer_has_the_longer_chain():
    records = [record(0, 1, 9, 9, 2), record(0, 1, 9, 9, 8)]
    events = [stored(1.0, None, 1, 2), stored(1.0, None, 3, 4), stored(3.0, 2, 5), stored(5.0, 5, 6)]
    assert blocks(records, events) == [(3, 4), (1, 2, 5, 6)]


def test_a_prompt_that_was_found_whole_is_known_by_its_answer():
    records = [record(0, 1, 2, 13, 1), record(3, 4, 8, 9, 8), record(3, 4, 8, 9, 2)]
    # the second and the third store nothing until an answer fills a block: after three of eight tokens
    events = [stored(1.0, None, 1, 2, 3), stored(5.5, 2, 4)]
    assert blocks(records, events) == [(1, 2, 3), (1, 2, 4), ()]


def test_what_an_equal_request_stored_later_is_not_of_the_first():
    records = [record(0, 1, 2, 9, 2), record(3, 4, 8, 9, 8)]
    assert blocks(records, [stored(1.0, None, 1, 2), stored(5.5, 2, 3)])[0] == (1, 2)


def test_a_client_whose_clock_is_late_is_set_by_the_events():
    times = (0.0, 0.21, 0.44, 0.63, 0.95)
    records = [record(each + 0.3, each + 0.33, each + 0.4, 4 * BLOCK, 1) for each in times]
    events = [stored(each, None, i, 10 + i, 20 + i, 30 + i) for i, each in enumerate(times)]
    assert [each[:1] for each in blocks(records, events)] != [(0,), (1,), (2,), (3,), (4,)]
    assert [each[:1] for each in blocks(records, events, clock_error_s=0.5)] == [(0,), (1,), (2,), (3,), (4,)]


def test_blocks_whose_beginning_was_lost_are_nobodys():
    assert blocks([record(0, 1, 2, 13, 1)], [stored(1.0, 99, 1, 2)]) == [()]


def test_events_without_an_end_to_a_chain_do_not_hang():
    assert blocks([record(0, 1, 2, 9, 1)], [stored(0.5, 2, 1), stored(1.0, 1, 2)]) == [()]


def test_recorded_blocks_are_found_again_by_whoever_begins_alike():
    settings = Settings(blocks=100, block_size=BLOCK, max_num_seqs=8, max_num_batched_tokens=64)
    texts = ((0, (1, 2, 3)), (50, (1, 2, 4)), (90, (5, 6, 7)))
    requests = [Request(at, 13, 2, content=Content.of(blocks, BLOCK)) for at, blocks in texts]
    outcome = Replay(settings, StepTime(base=1.0), requests).run()
    assert outcome.first_hit_tokens == 2 * BLOCK
