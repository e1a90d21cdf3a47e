"""Prefix-cache hits between two scrapes: the best that was seen before, what was written since, and what was stored again."""

import pytest

ENGINE = """
    engine  kv_capacity_tokens  kv_connector
    0       1000                -
    1       1000                NixlConnector
"""
COUNTED = "engine  signal  labels  interval_start  interval_end  delta  is_reset\n"


@pytest.fixture
def sql(alone):
    return alone


def counted(sql, *intervals):
    """Counters of engine 0 in intervals of ten seconds, each as `signal labels delta`; `reset` marks one that fell."""
    rows = []
    for number, interval in enumerate(intervals):
        for line in interval.strip().splitlines():
            signal, labels, delta, *reset = line.split()
            rows.append(f"0  {signal}  {labels}  12:0{number}:00  12:0{number + 1}:00  {delta}  {bool(reset)}")
    sql.given("core.counter_intervals", COUNTED + "\n".join(rows))
    sql.engines(ENGINE)


def test_the_best_before_is_of_ten_lookups_and_ends_with_the_engine_s_life(sql):
    """Ratios are of an interval and the two before it; the third is the first that ten lookups stand behind."""
    looked_up = "prefix_queries pod=a 70\nprefix_queries pod=b 30\nprefix_hits pod=a {}\nttft_s_count pod=a {}\n"
    computed = "prompt_tokens_by_source pod={},source=local_compute {}\n"
    counted(
        sql,
        looked_up.format(80, 4)
        + "prefix_hits pod=b 10\n"
        + computed.format("a", 6)
        + computed.format("b", 4)
        + "prompt_tokens_by_source source=other 90",
        looked_up.format(60, 3) + "ttft_s_count pod=b 1\ngeneration_tokens pod=a 4\ngeneration_tokens pod=b 3",
        looked_up.format(60, 2) + "prompt_tokens - 30\ngeneration_tokens - 50",
        looked_up.format(0, 3) + "prompt_tokens - 1\ngeneration_tokens source=local_compute 2",
        looked_up.format(20, 6),
        looked_up.format(50, 3),
        looked_up.format(50, 9) + "generation_tokens - 5 reset",
        looked_up.format(30, 9) + "generation_tokens - 6 reset",
    )
    assert (
        sql.rows("core.prefix_intervals")
        == """
        interval_end  hit_ratio  near_lookups  best_hit_ratio  missed_tokens  written_tokens  kv_capacity_tokens
        12:01:00      0.90       4             -               -              10              1000
        12:02:00      0.75       8             -               -              17              1000
        12:03:00      0.70       10            -               -              97              1000
        12:04:00      0.40       9             0.70            70.0           100             1000
        12:05:00      0.27       11            0.70            50.0           100             1000
        12:06:00      0.23       12            0.70            20.0           100             1000
        12:07:00      0.50       9             -               -              5               1000
        12:08:00      0.30       9             -               -              6               1000
        """
    )


def test_where_an_engine_counts_prompts_and_what_of_them_was_cached_these_are_the_lookups(sql):
    """Without the latter there are none."""
    cached = "cached_prompt_tokens cache_source={} {}\n"
    counted(
        sql,
        "prompt_tokens a=1 600\nprompt_tokens a=2 400\n"
        + cached.format("device", 600)
        + cached.format("host", 100)
        + cached.format("total", 700),
        "prompt_tokens - 100\n" + cached.format("device", 30),
        "prompt_tokens - 100",
    )
    assert (
        sql.rows("core.prefix_intervals")
        == """
        interval_end  queried_tokens  hit_tokens  written_tokens
        12:01:00      1000            700         300
        12:02:00      100             30          370
        """
    )


def test_a_request_that_ends_in_an_interval_brings_no_more_hits_than_its_prompt_had(sql):
    """And where only their total is told, over all tiers, how many of them this cache had is not known."""
    counted(sql, "prompt_tokens - 100\ncached_prompt_tokens cache_source=device 150", "cached_prompt_tokens cache_source=total 9")
    assert (
        sql.rows("core.prefix_intervals")
        == """
        queried_tokens  hit_tokens
        100             100
        """
    )
    sql.engines("engine")
    counted_by_source = COUNTED + "7  {0}  -  12:00:00  12:01:00  90  false\n7  {1}  {2}  12:00:00  12:01:00  50  false"
    sql.given("core.counter_intervals", counted_by_source.format("prompt_tokens", "cached_prompt_tokens", "cache_source=total"))
    assert (
        sql.rows("core.prefix_intervals")
        == """
        engine  queried_tokens  hit_tokens
        7       90              -
        """
    )


def test_what_another_prompt_stored_again_in_the_interval_was_missed(sql):
    counted(sql, "prefix_queries - 500\nprefix_hits - 0", "prefix_queries - 500\nprefix_hits - 0")
    sql.given(
        "core.blocks_stored_again",
        """
        engine  again_index  stored_at  kind    blocks_after_removal  block_size
        0       0            12:00:00   refill  50                    16
        0       1            12:00:30   refill  2                     16
        0       2            12:01:00   refill  3                     16
        0       3            12:01:30   resume  5                     16
        1       0            12:00:30   refill  7                     16
        """,
    )
    assert (
        sql.rows("core.prefix_intervals")
        == """
        engine  interval_end  refilled_tokens  missed_tokens
        0       12:01:00      80               80
        0       12:02:00      -                -
        """
    )


def test_behind_a_connector_what_is_stored_again_may_have_been_loaded(sql):
    sql.engines(ENGINE)
    sql.given("core.counter_intervals", COUNTED + "1  prefix_queries  -  12:00:00  12:01:00  500  false")
    sql.given(
        "core.blocks_stored_again",
        """
        engine  again_index  stored_at  kind    blocks_after_removal  block_size
        1       0            12:00:30   refill  7                     16
        """,
    )
    assert (
        sql.rows("core.prefix_intervals")
        == """
        engine  queried_tokens  refilled_tokens
        1       500             -
        """
    )


HITS = "prefix_queries - 500\nexternal_prefix_hits pod=a 200\nexternal_prefix_hits pod=b 100\n"
FROM = "prompt_tokens_cached_by_source source={} {}\n"
LOADED = "tier_restored_tokens {},rank={} {}\n"


@pytest.mark.parametrize(
    ("engine", "counted_tokens", "stored_again", "restored"),
    [
        ("vllm  OffloadingConnector", HITS, None, "300"),
        ("vllm  {'kv_connector':'LMCacheConnectorV1','kv_role':'kv_both'}", HITS, None, "300"),
        ("vllm  {'kv_connector':'LMCacheConnectorV1','kv_role':'kv_consumer'}", HITS, None, "-"),
        ("vllm  NixlConnector", HITS, None, "-"),
        ("vllm  OwnConnector", HITS, None, "-"),
        ("vllm  OwnConnector", HITS, 10, "160"),
        ("vllm  OffloadingConnector", HITS, 0, "0"),
        ("vllm  OwnConnector", HITS, 30, "300"),
        ("vllm  NixlConnector", HITS + FROM.format("host", 40) + FROM.format("disk", 30), None, "70"),
        ("vllm  OffloadingConnector", HITS + FROM.format("host", 0), None, "300"),
        ("vllm  OffloadingConnector", HITS + FROM.format("p2p", 280), None, "20"),
        ("vllm  OffloadingConnector", "prefix_queries - 500", None, "-"),
        (
            "sglang  -",
            "prefix_queries - 500\n"
            + "".join(LOADED.format(*each) for each in (("pool=kv", 0, 25), ("pool=kv", 1, 15), ("pool=mamba", 0, 40))),
            None,
            "40",
        ),
        ("vllm  -", "prefix_queries - 500\ntier_restored_tokens - 40", None, "-"),
    ],
)
def test_what_a_tier_gave_back_counts_where_this_engine_had_it_before(sql, engine, counted_tokens, stored_again, restored):
    counted(sql, counted_tokens)
    sql.engines(f"engine  engine_kind  kv_connector\n0  {engine}")
    if stored_again is not None:
        sql.given("staging.kv_events", "engine  published_at\n0  12:00:30")
        again = "engine  again_index  stored_at  kind  blocks_after_removal  block_size\n"
        sql.given("core.blocks_stored_again", f"{again}0  0  12:00:30  resume  {stored_again}  16")
    assert (
        sql.rows("core.prefix_intervals")
        == f"""
        engine  queried_tokens  restored_tokens
        0       500             {restored}
    """
    )


def test_what_a_tier_gave_back_was_not_missed(sql):
    """Of the lookups of three intervals it gave back 130 of 300."""
    lookups = "prefix_queries - 100\nttft_s_count - 10\nprefix_hits - {}\n"
    given_back = "prompt_tokens_cached_by_source source=host {0}\nexternal_prefix_hits - {0}"
    counted(sql, lookups.format(90), lookups.format(10) + given_back.format(60), lookups.format(10) + given_back.format(70))
    assert (
        sql.rows("core.prefix_intervals")
        == """
        interval_end  best_hit_ratio  missed_tokens  restored_ratio
        12:01:00      -               -              -
        12:02:00      0.9             20             0.30
        12:03:00      0.9             10             0.43
        """
    )
