"""KV events told apart: the same block stored again is a resume, a refill or a cold start, by who stored it and when."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from pipelines.intake import read
from pipelines.lake import Lake
from pipelines.models import Run
from pipelines.replay.kv_events import Emptied, Removed, Stored, blocks_stored_again, events_of, stored_again
from tests.conftest import PROJECT

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


def stored(second: float, *hashes: int, on: int | None = None) -> Stored:
    return Stored(at(second), on, hashes, 16)


def removed(second: float, *hashes: int) -> list[Removed]:
    return [Removed(at(second), each) for each in hashes]


def kinds(*events) -> list[tuple[str, int]]:
    return [(each.kind, each.blocks_again) for each in stored_again(events)]


def test_a_prompt_that_goes_two_blocks_beyond_an_answer_is_the_next_turn_and_not_its_resume():
    assert kinds(stored(0, 1, 2, 3), *removed(1, 1, 2, 3), stored(2, 1, 2, 3, 4)) == [("resume", 3)]
    assert kinds(stored(0, 1, 2, 3), *removed(1, 1, 2, 3), stored(2, 1, 2, 3, 4, 5)) == [("refill", 3)]


def test_a_run_that_ends_where_a_sequence_stood_is_its_resume():
    prompt, growth = stored(0, 1, 2, 3), stored(1, 4, on=3)
    assert kinds(prompt, growth, *removed(2, 3, 4), stored(3, 3, 4, on=2)) == [("resume", 2)]


def test_a_resume_may_go_one_block_beyond_where_the_sequence_stood():
    again = stored_again([stored(0, 1, 2), *removed(1, 2), stored(2, 2, 3, on=1)])
    assert [(each.kind, each.blocks, each.is_tail_full) for each in again] == [("resume", 2, True)]


def test_a_prompt_with_the_same_prefix_is_a_refill():
    first, answer = stored(0, 1, 2, 3), stored(1, 4, on=3)
    [told] = stored_again([first, answer, *removed(2, 1, 2, 3, 4), stored(3, 1, 2, 8, 9)])
    assert (told.kind, told.blocks, told.blocks_again, told.is_tail_full, told.idle_s) == ("refill", 4, 2, False, None)


def test_a_repeated_prompt_is_a_refill_though_all_of_it_was_seen():
    first, answer = stored(0, 1, 2, 3), stored(1, 4, on=3)
    assert kinds(first, answer, *removed(2, 1, 2, 3, 4), stored(3, 1, 2, 3)) == [("refill", 3)]


def test_a_next_turn_passes_beyond_the_earlier_answer():
    assert kinds(stored(0, 1, 2), stored(1, 3, on=2), *removed(2, 1, 2, 3), stored(9, 1, 2, 3, 4, 5, 6)) == [("refill", 3)]


def test_a_resume_in_chunks_is_one_resume():
    events = [stored(0, 1, 2, 3, 4), *removed(1, 1, 2, 3, 4), stored(2, 1, 2), stored(2.1, 3, 4, on=2)]
    assert kinds(*events) == [("resume", 4)]
    events = [
        stored(0, *range(1, 7)),
        *removed(1, *range(1, 7)),
        stored(2, 1, 2),
        stored(2.1, 3, 4, on=2),
        stored(2.2, 5, 6, on=4),
    ]
    assert kinds(*events) == [("resume", 6)]


def test_of_two_sequences_that_stand_at_one_block_the_one_that_moved_last_goes_on():
    earlier = [stored(0, 1, 2), stored(1, 3, on=2), *removed(2, 1, 2, 3)]
    later = [stored(5, 1, 2), stored(6, 3, on=2), stored(7, 4, on=3), *removed(8, 1, 2, 3)]
    told = [(each.kind, each.blocks_again, each.idle_s) for each in stored_again([*earlier, *later, stored(9, 1, 2, 3)])]
    assert told == [("refill", 2, None), ("growth", 1, None), ("resume", 3, 8.0)]


def test_a_prompt_that_goes_on_from_an_answer_is_not_a_chunk_of_the_answer_s_own_prompt():
    answered = [stored(0, 1, 2), stored(0.5, 3, on=2)]
    assert kinds(*answered, stored(1, 9, 10, on=3), *removed(2, 1, 2, 3), stored(5, 1, 2, 3)) == [("resume", 3)]


def test_growth_is_not_a_resume_even_into_a_block_an_earlier_request_ended_with():
    earlier = [stored(0, 1, 2), stored(1, 3, on=2)]
    assert kinds(*earlier, *removed(2, 1, 2, 3), stored(5, 1, 2), stored(6, 3, on=2)) == [("refill", 2), ("growth", 1)]


@pytest.mark.parametrize("is_restart", [True, False])
def test_after_the_pool_is_emptied_nothing_counts_as_seen(is_restart):
    assert kinds(stored(0, 1, 2, 3), stored(1, 4, on=3), Emptied(at(2), is_restart), stored(3, 1, 2, 9)) == []


@pytest.mark.parametrize(("is_restart", "told"), [(False, [("resume", 0)]), (True, [])])
def test_a_sequence_outlives_a_cleared_cache_and_not_a_restart(is_restart, told):
    assert kinds(stored(0, 1, 2), stored(1, 3, on=2), Emptied(at(2), is_restart), stored(3, 1, 2, 3)) == told


def test_a_block_computed_by_two_requests_at_once_was_not_removed_in_between():
    again = stored_again([stored(0, 1, 2, 3), stored(0.1, 1, 2, 7, 8)])
    assert [(each.blocks_again, each.blocks_after_removal) for each in again] == [(2, 0)]


def row(seq: int, event: str, block: int | None, parent: int | None = None) -> dict:
    return {"published_at": at(seq), "seq": seq, "event": event, "block_hash": block, "parent_hash": parent, "block_size": 16}


def test_rows_are_put_back_together_by_chain_and_batch():
    rows = [row(0, "stored", 1), row(0, "stored", 2, 1), row(0, "stored", 8), row(1, "stored", 3, 2), row(1, "removed", 8)]
    assert list(events_of(rows)) == [
        Stored(at(0), None, (1, 2), 16),
        Stored(at(0), None, (8,), 16),
        Stored(at(1), 2, (3,), 16),
        Removed(at(1), 8),
    ]


def test_a_sequence_number_that_falls_is_a_restart():
    assert Emptied(at(0), is_restart=True) in list(events_of([row(5, "stored", 1), row(0, "stored", 1)]))


def test_a_cleared_cache_is_not_told_as_a_restart():
    assert list(events_of([row(5, "cleared", None)])) == [Emptied(at(5), is_restart=False)]


def test_each_restart_begins_the_next_life_and_a_cleared_cache_does_not():
    twice = [(1, 1), (5, 1), (9, 1)]
    events = []
    for begin, block in twice:
        events += [stored(begin, block), stored(begin + 1, block), Emptied(at(begin + 2), is_restart=False)]
        events += [Emptied(at(begin + 3), is_restart=True)]
    assert [(each.life, each.at) for each in stored_again(events)] == [(0, at(2)), (1, at(6)), (2, at(10))]


def test_a_resume_that_ends_where_it_stood_recomputed_a_partial_block_too():
    again = stored_again([stored(0, 1, 2), *removed(1, 1, 2), stored(5, 1, 2), stored(5.5, 3, on=2)])
    assert [each.is_tail_full for each in again if each.kind == "resume"] in ([], [False])
    rebuilt = stored_again([stored(0, 1, 2), stored(1, 3, on=2), *removed(2, 2, 3), stored(6, 2, 3, on=1)])
    assert [(each.kind, each.is_tail_full, each.idle_s) for each in rebuilt] == [("resume", False, 5.0)]


def test_chunks_far_apart_are_not_one_prefill():
    near = [stored(0, 1, 2, 3, 4), *removed(1, 1, 2, 3, 4), stored(2, 1, 2), stored(4, 3, 4, on=2)]
    far = [stored(0, 1, 2, 3, 4), *removed(1, 1, 2, 3, 4), stored(2, 1, 2), stored(4.5, 3, 4, on=2)]
    assert kinds(*near) == [("resume", 4)]
    assert kinds(*far) == [("refill", 2), ("resume", 2)]


def test_a_block_of_which_a_second_copy_is_left_was_not_removed():
    events = [stored(0, 1, 2, 8), stored(0.1, 1, 2, 9), *removed(1, 1, 2), stored(2, 1, 2, 7), *removed(3, 1, 2, 1, 2, 1, 2)]
    again = stored_again([*events, stored(4, 1, 2, 6)])
    assert [(each.blocks_again, each.blocks_after_removal) for each in again] == [(2, 0), (2, 0), (2, 2)]


def table(*rows: dict) -> pl.DataFrame:
    shared = {"engine": "0", "source": "kv", "event_index": 0, "medium": "GPU", "dp_rank": 0, "group_idx": None}
    return pl.DataFrame([shared | each for each in rows], schema_overrides={"group_idx": pl.Int64, "block_hash": pl.UInt64})


def made_of(events: pl.DataFrame, before: pl.DataFrame | None = None, since: str | None = None) -> pl.DataFrame:
    known = events.clear() if before is None else before
    return blocks_stored_again({"staging.kv_events": events, "staging.kv_events_before": known}, Run("test", since=since))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_a_window_tells_of_itself_what_the_whole_recording_tells_of_it(recorded, share):
    """Resumes and refills of a real engine, once what came before the window is known; without that, some look new.

    The window begins with the instant of one of them.
    """
    again = made_of(recorded)["stored_at"]
    since = again[int(share * len(again))]
    within, before = recorded.filter(pl.col("published_at") >= since), recorded.filter(pl.col("published_at") < since)
    told = ("stored_at", "kind", "blocks", "blocks_again", "blocks_after_removal", "idle_s", "is_tail_full")
    whole = made_of(recorded).filter(pl.col("stored_at") >= since).select(told)
    assert made_of(within, before, since.isoformat()).select(told).equals(whole)
    assert made_of(within).height < whole.height


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> pl.DataFrame:
    lake = Lake.of(tmp_path_factory.mktemp("events"), run="events")
    read([PROJECT / "sample_traces" / "vllm-0.32-preemption" / "kv_events.jsonl.gz"], lake)
    return pl.read_parquet(lake.path("raw.kv_events")).rename({"at_utc": "published_at"}).with_columns(engine=pl.lit("0"))


def test_only_the_first_group_of_the_gpu_pool_is_followed_and_each_batch_once():
    first = [row(n, "stored", block) | {"group_idx": 1} for n, block in enumerate((1, 1))]
    other = [row(n, "stored", block) | {"group_idx": 2, "event_index": 1} for n, block in enumerate((5, 5))]
    host = [row(n, "stored", block) | {"medium": "CPU", "event_index": 2} for n, block in enumerate((6, 6))]
    events = table(*first, *other, *host, *first)
    made = made_of(events)
    assert made.select("engine", "again_index", "blocks_again").rows() == [("0", 0, 1)]
    ungrouped = table(*(row(n, "stored", block) for n, block in enumerate((1, 1))))
    assert (
        blocks_stored_again({"staging.kv_events": ungrouped, "staging.kv_events_before": ungrouped.clear()}, Run("test")).height
        == 1
    )
