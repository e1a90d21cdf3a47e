"""KV-cache events as JSON lines."""

import gzip
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import SHARED, cells, read, refusal

from parsers.kv_events_jsonl import FORMAT, fold

NOON = 1764417600.5  # 2025-11-29 12:00:00.5 UTC

MAPS = [
    {"type": "BlockStored", "block_hashes": [11, 12], "parent_block_hash": 10, "token_ids": [171, 123], "block_size": 32,
     "lora_id": None, "medium": "GPU", "lora_name": None, "group_idx": 0},
    {"type": "BlockRemoved", "block_hashes": [7, 8], "medium": "GPU", "group_idx": 0},
    {"type": "AllBlocksCleared"},
]  # fmt: skip
ARRAYS = [
    ["BlockStored", [11, 12], 10, [171, 123], 32, None, "GPU", None, [None], 0],
    ["BlockRemoved", [7, 8], "GPU", 0],
    ["AllBlocksCleared"],
]

COLUMNS = "line seq event_index at_utc dp_rank event block_hash parent_hash block_size medium group_idx"
ROWS = """
    1  5  0  2025-11-29T12:00:00.5  1  stored   11  10  32  GPU  0
    1  5  1  2025-11-29T12:00:00.5  1  stored   12  11  32  GPU  0
    1  5  2  2025-11-29T12:00:00.5  1  removed  7   -   -   GPU  0
    1  5  3  2025-11-29T12:00:00.5  1  removed  8   -   -   GPU  0
    1  5  4  2025-11-29T12:00:00.5  1  cleared  -   -   -   -    -
"""


@pytest.mark.parametrize("events", [MAPS, ARRAYS], ids=["maps, 0.24 and later", "tagged arrays, to 0.23"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda events: {"topic": "kv-events", "seq": 5, "batch": [NOON, events, 1]},
        lambda events: {"t": NOON + 1, "topic": "", "seq": 5, "hex": "93cb", "payload": [NOON, events, 1]},
        lambda events: {"seq": 5, "batch": {"ts": NOON, "events": events, "data_parallel_rank": 1}},
        lambda events: {"seq": 5, "ts": NOON, "events": events, "data_parallel_rank": 1},
    ],
    ids=["batch", "payload", "batch as an object", "flat"],
)
def test_one_row_per_block_in_order(events, wrap):
    line = json.dumps(wrap(events))
    assert FORMAT.detect(line.encode()) > 0.5
    assert read(FORMAT, line).table("kv_events", COLUMNS) == cells(ROWS)


def test_a_bare_batch_has_no_sequence_number_and_perhaps_no_rank():
    line = json.dumps([NOON, ARRAYS])
    assert FORMAT.detect(line.encode()) > 0.5
    assert read(FORMAT, line).table("kv_events", "seq dp_rank event") == cells("""
        -  -  stored
        -  -  stored
        -  -  removed
        -  -  removed
        -  -  cleared
    """)


def test_arrays_of_0_9_end_before_the_medium():
    line = json.dumps([NOON, [["BlockStored", [11], None, [5, 6], 16, None], ["BlockRemoved", [11]]], 0])
    assert read(FORMAT, line).table("kv_events", "event block_hash parent_hash block_size medium group_idx") == cells("""
        stored   11  -  16  -  -
        removed  11  -  -   -  -
    """)


def test_hashes_of_any_kind_fold_to_64_bits():
    assert fold(2**64 - 1) == fold(-1) == 2**64 - 1
    assert fold(2**200 + 5) == 5
    assert fold("3f" * 32) == fold("3f" * 32) != fold("3e" * 32)
    assert fold([0, 255]) != fold([255, 0])
    assert (
        read(FORMAT, json.dumps([NOON, [["BlockRemoved", [-12, 2**64 - 12, "ab", [1, 2]]]]])).table("kv_events", "block_hash")[:2]
        == [[str(2**64 - 12)]] * 2
    )


def test_token_ids_are_nowhere():
    event = MAPS[0] | {"token_ids": [987654321], "lookahead_token_ids": [987654321]}
    assert "987654321" not in str(read(FORMAT, json.dumps([NOON, [event]])).rows)


def test_a_batch_with_a_broken_event_is_left_out_as_a_whole():
    broken = json.dumps({"seq": 6, "batch": [NOON, [*MAPS, {"type": "BlockRemoved"}]]})
    log = read(FORMAT, "\n".join([json.dumps([NOON, MAPS]), broken, "{", "", json.dumps([NOON, []]), json.dumps([NOON, MAPS])]))
    assert (log.account.used, log.account.ignored, log.account.not_understood) == (2, 2, 2)
    assert log.account.first_not_understood == 2
    assert len(log.rows["kv_events"]) == 10


def test_event_types_of_a_later_version_are_ignored():
    line = json.dumps([NOON, [{"type": "BlockTouched", "block_hashes": [1]}, MAPS[1]]])
    assert read(FORMAT, line).table("kv_events", "event_index event") == cells("0 removed \n 1 removed")


def test_a_truncated_gzip_keeps_the_lines_before_the_cut():
    lines = "\n".join(json.dumps([NOON, [["BlockStored", [i * 2654435761], None, [], 16]]]) for i in range(20_000))
    cut = read(FORMAT, gzip.compress(lines.encode())[:50_000])
    assert [row["block_hash"] for row in cut.rows["kv_events"]] == [i * 2654435761 for i in range(cut.account.used)]
    assert cut.account.error == "input: compressed file ends early; copy it again"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not beside this checkout")
def test_recorded_events_give_each_block_once():
    for path in [*sorted(SHARED.glob("truth/*/kv_events.jsonl.gz")), *sorted(SHARED.glob("engines/*/*/kvevents.jsonl"))]:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        batches = [json.loads(line) for line in content.splitlines()]
        blocks = [
            (event["type"], block % 2**64)
            for batch in batches
            for event in batch.get("batch", batch.get("payload"))[1]
            for block in event["block_hashes"]
        ]
        log = read(FORMAT, path)
        assert (log.account.lines, log.account.used) == (len(batches), len(batches))
        names = {"stored": "BlockStored", "removed": "BlockRemoved"}
        assert [(names[row["event"]], row["block_hash"]) for row in log.rows["kv_events"]] == blocks


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "x"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["type", "block_hashes", "batch", "seq", "ts"]), inner)
    ),
    max_leaves=15,
)


@given(json_values)
def test_no_value_breaks_the_reader(value):
    for line in (value, [NOON, value], [value, MAPS], {"seq": value, "batch": [NOON, [["BlockStored", value, value]], value]}):
        read(FORMAT, json.dumps(line))


@given(st.binary(max_size=80), st.integers(0, 300))
def test_no_bytes_break_the_reader(junk, cut):
    for content in (junk, json.dumps([NOON, MAPS]).encode()[:cut] + junk):
        assert 0 <= FORMAT.detect(content) <= 1
        assert re.fullmatch(r"(input: .+)?", refusal(FORMAT, content))
