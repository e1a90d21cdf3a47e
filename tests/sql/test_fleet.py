"""The fleet's tables: a day of many engines, given as the rows their days would have, and what is made of it."""

from __future__ import annotations

import pytest

from pipelines.fleet_day import fleet_models


def test_windows_that_overlap_are_one_stretch_of_pressure(fleet):
    fleet.given(
        "days.engines",
        """
        run     engine  model
        chat-0  0       llama
        chat-1  0       llama
        """,
    )
    fleet.given(
        "days.verdicts",
        """
        run     engine  verdict            severity  is_primary  window_start  window_end
        chat-0  0       preemption         70        true        10:00:00      10:30:00
        chat-0  0       queue_kv_capacity  40        false       10:15:00      11:00:00
        chat-0  0       prefix_eviction    25        false       10:20:00      10:25:00
        chat-0  0       preemption         30        false       12:00:00      12:30:00
        chat-0  0       cold_start         5         false       14:00:00      15:00:00
        chat-1  0       healthy            0         true        00:00:00      23:59:00
        """,
    )
    fleet.given(
        "days.timeline",
        """
        run     engine  bucket_at  bucket_s  running  generation_tokens_per_s
        chat-0  0       10:00:00   3600      8        100
        chat-0  0       11:00:00   3600      -        -
        chat-1  0       10:00:00   3600      0        0
        """,
    )
    assert (
        fleet.rows("fleet.engine_days")
        == """
        day         run     engine  verdict     severity  pressure_hours  observed_hours  generation_tokens
        2026-01-01  chat-0  0       preemption  70        1.5             1.0             360000
        2026-01-01  chat-1  0       healthy     0         0.0             1.0             0
    """
    )


def test_the_two_kinds_of_waste_have_one_bound_only_where_both_have(fleet):
    fleet.given("days.engines", "run  engine\na    0\nb    0\nc    0")
    fleet.given(
        "days.waste",
        """
        run  engine  kind                  tokens_best  gpu_seconds_low  gpu_seconds_best  gpu_seconds_high
        a    0       preemption_recompute  500          1                2                 3
        a    0       prefix_refill         -            0                -                 -
        a    0       offload_restore       9000         7                7                 7
        b    0       preemption_recompute  500          1                2                 3
        b    0       prefix_refill         100          1                1                 4
        """,
    )
    assert (
        fleet.rows("fleet.engine_days")
        == """
        run  refilled_tokens_best  wasted_gpu_seconds_low  wasted_gpu_seconds_best  wasted_gpu_seconds_high
        a    -                     1                       2                        -
        b    100                   2                       3                        7
        c    -                     -                       -                        -
    """
    )


def test_what_was_not_counted_paused_nobody_and_what_was_is_told_by_clients(fleet):
    fleet.given("days.engines", "run  engine\na    0\nb    0\nc    0\nd    0")
    fleet.given("days.preemptions", "run  engine  count_high\na    0       0\nb    0       3\nc    0       -\nd    0       3")
    fleet.given("days.requests", "run  request_key\nd    x")
    assert (
        fleet.rows("fleet.engine_days")
        == """
        run  paused_requests  paused_s
        a    0                0
        b    -                -
        c    -                -
        d    0                0
    """
    )


def test_a_day_is_unusual_only_against_five_days_and_beyond_what_they_did(fleet):
    fleet.given(
        "history.engine_days",
        """
        day         run  engine  preemptions_best  generation_tokens
        2025-12-27  a    0       0                 100000
        2025-12-28  a    0       4                 104000
        2025-12-29  a    0       0                 98000
        2025-12-30  a    0       2                 101000
        2025-12-31  a    0       0                 99000
        2025-12-31  b    0       0                 100000
        """,
    )
    fleet.given(
        "fleet.engine_days",
        """
        day         run  engine  preemptions_best  generation_tokens
        2026-01-01  a    0       60                100500
        2026-01-01  b    0       60                100500
        """,
    )
    assert (
        fleet.rows("fleet.trends")
        == """
        run  measure            value   usual   usual_low  usual_high  days_before  is_unusual
        a    generation_tokens  100500  100000  90000      110000      5            false
        a    preemptions_best   60      0       0          10          5            true
        b    generation_tokens  100500  -       -          -           1            -
        b    preemptions_best   60      -       -          -           1            -
    """
    )


def test_what_changed_stands_beside_the_verdict_that_turned(fleet):
    fleet.given(
        "history.engine_days",
        """
        day         run  engine  verdict
        2025-12-30  a    0       preemption
        2025-12-31  a    0       healthy
        2025-12-31  b    0       healthy
        """,
    )
    fleet.given(
        "fleet.engine_days",
        """
        day         run  engine  verdict
        2026-01-01  a    0       preemption
        2026-01-01  b    0       healthy
        """,
    )
    fleet.given(
        "history.settings",
        """
        day         run  engine  key             value_text
        2025-12-31  a    0       max_num_seqs    64
        2025-12-31  a    0       engine_version  0.31.0
        2025-12-31  a    0       num_gpu_blocks  10000
        2025-12-31  b    0       num_gpu_blocks  10000
        2025-12-31  b    0       weights_gib     14.99
        2025-12-31  b    0       max_concurrency  20.1
        2025-12-31  b    0       kv_cache_max_concurrency  20.1
        """,
    )
    fleet.given(
        "fleet.settings",
        """
        day         run  engine  key             value_text
        2026-01-01  a    0       max_num_seqs    256
        2026-01-01  a    0       engine_version  0.32.0
        2026-01-01  a    0       num_gpu_blocks  10007
        2026-01-01  b    0       num_gpu_blocks  8000
        2026-01-01  b    0       weights_gib     16.01
        2026-01-01  b    0       max_concurrency  16.2
        2026-01-01  b    0       kv_cache_max_concurrency  16.2
        """,
    )
    assert (
        fleet.rows("fleet.changes")
        == """
        run  kind     name            before   after       before_day  is_turn
        a    verdict  verdict         healthy  preemption  2025-12-31  true
        a    version  engine_version  0.31.0   0.32.0      2025-12-31  true
        a    setting  max_num_seqs    64       256         2025-12-31  true
        b    setting  num_gpu_blocks  10000    8000        2025-12-31  false
    """
    )


def test_an_engine_that_cannot_be_told_is_in_no_sum(fleet):
    fleet.given(
        "fleet.engine_days",
        """
        run  engine  engine_group  model  verdict                severity  wasted_gpu_seconds_best
        a    0       chat          llama  preemption             60        10
        b    0       chat          -      insufficient_evidence  15        -
        c    0       code          llama  healthy                0         0
        """,
    )
    assert (
        fleet.rows("fleet.totals")
        == """
        dimension  member  engines  engines_under_pressure  engines_not_told  engines_known  wasted_gpu_seconds_best
        fleet      all     3        1                       1                 2              10
        group      chat    2        1                       1                 1              10
        group      code    1        0                       0                 1              0
        model      llama   2        1                       0                 2              10
    """
    )


def test_the_worst_episodes_come_first(fleet):
    fleet.given(
        "days.verdicts",
        """
        run  engine  verdict            severity  window_start  window_end
        a    0       queue_kv_capacity  40        10:00:00      10:10:00
        b    0       preemption         40        10:00:00      11:00:00
        c    0       engine_stalled     90        10:00:00      10:01:00
        d    0       healthy            0         10:00:00      12:00:00
        """,
    )
    assert (
        fleet.rows("fleet.episodes")
        == """
        position  run  verdict
        1         c    engine_stalled
        2         b    preemption
        3         a    queue_kv_capacity
    """
    )


@pytest.mark.parametrize("table", fleet_models())
def test_what_a_table_documents_is_what_it_makes(fleet, table):
    made = [name for name, *_ in fleet.con.sql(f"describe from {table}").fetchall()]
    assert made == [name for name, _ in fleet_models()[table].columns]
