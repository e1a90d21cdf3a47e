"""The split of the KV pool into active, reusable and free, and the words for what told a number."""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.duck import connect

SQL = Path(__file__).parents[2] / "sql"

ENGINE = """
    engine  engine_kind  kv_capacity_tokens  block_size
    0       vllm         320                 32
"""
STATES = """
    engine  sampled_at  running  kv_usage_ratio  scrape_s
    0       12:00:01    1        0.3             1
    0       12:00:02    0        0               1
"""
BUCKETS = """
    engine  bucket_at  bucket_s
    0       12:00:01   1
    0       12:00:02   1
"""
EVENTS = """
    engine  source  line  event_index  seq  published_at  event    block_hash  block_size
    0       kv      1     0            0    12:00:00      stored   1           32
    0       kv      1     1            0    12:00:00      stored   2           32
    0       kv      1     2            0    12:00:00      stored   3           32
    0       kv      1     3            0    12:00:00      stored   4           32
    0       kv      1     4            0    12:00:00      removed  3           32
    0       kv      2     0            1    12:00:02      removed  4           32
"""


def test_blocks_that_go_and_were_never_seen_to_come_tell_how_long_the_record_was_warming(sql):
    sql.given(
        "staging.kv_events_before",
        "engine  published_at  event    block_hash\n0       11:59:00      stored   1\n0  11:59:30  removed  8",
    )
    sql.given(
        "staging.kv_events",
        """
        engine  source  line  event_index  published_at  event    block_hash  medium
        0       kv      1     0            12:00:00      stored   2           -
        0       kv      2     0            12:01:00      removed  1           -
        0       kv      2     1            12:01:00      removed  2           -
        0       kv      3     0            12:02:00      removed  7           -
        0       kv      4     0            12:03:00      removed  3           -
        0       kv      5     0            12:04:00      stored   3           -
        0       kv      6     0            12:05:00      removed  9           CPU
    """,
    )
    assert (
        sql.rows("core.kv_events_unseen")
        == """
        engine  known_from  blocks  last_lost_at  warming_s
        0       11:59:00    2       12:03:00      180
    """
    )
    [warming] = [row for row in sql.rows("marts.data_quality").dicts() if row["flag"] == "kv_events_warming"]
    assert warming["detail"] == (
        "KV events are known from 2026-01-01 11:59:00 UTC on, and the pool lost 2 blocks cached before, the last 3 min 0 s into "
        "the window: what was asked for again until then may look new, and refilled tokens be more."
    )


def given(sql, *, events: str, coverage: str = "") -> None:
    sql.given("core.engines", ENGINE)
    sql.given("core.engine_states", STATES)
    sql.given("core.buckets", BUCKETS)
    sql.given("staging.kv_events", events)
    sql.given("core.recompute_kv_events", coverage)


def test_blocks_with_a_hash_that_nobody_holds_are_reusable(sql):
    """Three of ten blocks have a hash; an active request holds three, of which it is filling one."""
    given(sql, events=EVENTS, coverage="engine  is_from_start  lost_batches\n0       true           0")
    assert (
        sql.rows("marts.pool_use")
        == """
        engine  bucket_at  active_ratio  reusable_ratio  free_ratio
        0       12:00:01   0.3           0.1             0.6
        0       12:00:02   0             0.2             0.8
    """
    )


def test_without_events_from_the_start_reusable_is_not_known_and_not_zero(sql):
    for coverage in ("", "engine  is_from_start  lost_batches\n0       false          0"):
        given(sql, events=EVENTS if coverage else "engine  source", coverage=coverage or "engine  is_from_start")
        assert (
            sql.rows("marts.pool_use")
            == """
            engine  bucket_at  active_ratio  reusable_ratio  free_ratio
            0       12:00:01   0.3           -               -
            0       12:00:02   0             -               -
        """
        )


def test_a_restarted_engine_begins_with_an_empty_pool(sql):
    again = EVENTS + "    0       kv      3     0            0    12:00:02      stored   5           32\n"
    given(sql, events=again, coverage="engine  is_from_start  lost_batches\n0       true           0")
    assert (
        sql.rows("marts.pool_use")
        == """
        engine  bucket_at  active_ratio  reusable_ratio  free_ratio
        0       12:00:01   0.3           0.1             0.6
        0       12:00:02   0             0.1             0.9
    """
    )


def test_every_method_has_words():
    """Each key that a ladder of estimates names is said in words of its own, none with its underscores taken out."""
    sources = [*SQL.glob("core/recompute_*.sql"), SQL / "core/tier_restores.sql"]
    keys = {key for path in sources for key in re.findall(r"'([a-z0-9_]+)'(?:\)\))? as method", path.read_text())}
    keys |= {"pool_never_full", "counters_beside_tier", "replay"}
    assert len(keys) > 10
    with connect() as con:
        for key in keys:
            ((words,),) = con.sql("select told_by($key)", params={"key": key}).fetchall()
            assert words != key.replace("_", " "), key


def test_a_gauge_of_what_may_be_evicted_tells_what_is_reusable(sql):
    given(sql, events="engine  source", coverage="engine  is_from_start")
    rows = [f"0  12:00:0{second}  sglang:kv_evictable_tokens  {tokens}" for second, tokens in ((1, 160), (2, 400))]
    sql.given("staging.metric_samples", "\n".join(["engine  sampled_at  name  value", *rows]))
    assert (
        sql.rows("marts.pool_use")
        == """
        engine  bucket_at  active_ratio  reusable_ratio  free_ratio
        0       12:00:01   0.3           0.5             0.2
        0       12:00:02   0             1               0
    """
    )
