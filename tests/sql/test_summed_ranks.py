"""Samples that are sums over data-parallel ranks: the limit that was said is of each of them, and so is the setting advised."""

import pytest

SAMPLES = """
    engine  source  line  sampled_at  running    waiting  kv_usage_ratio  prompt_tokens_per_s
    0       load    1     12:00:00    {running}  90       0.5             100
    0       load    2     12:00:10    {running}  90       0.5             100
    0       load    3     12:00:20    {running}  90       0.5             100
    0       load    4     12:00:30    {running}  90       0.5             100
"""
SAID = """
    engine  key                 value_text
    0       max_num_seqs        128
    0       data_parallel_size  {ranks}
    0       num_gpu_blocks      100
    0       block_size          16
"""


def given(sql, *, running, ranks):
    sql.given("raw.sources", "source  engine_kind\nload  vllm")
    sql.given("engine_samples", SAMPLES.format(running=running))
    sql.given("staging.settings", SAID.format(ranks=ranks))


@pytest.mark.parametrize(
    ("running", "ranks", "told"),
    [
        (256, 2, (256, "argument", 2, 3200)),
        (128, 2, (128, "argument", 1, 1600)),  # one rank's own
        (256, 1, (256, "inferred", 1, 1600)),  # said by another start
        (512, 2, (512, "inferred", 1, 1600)),  # more than two ranks admit
    ],
)
def test_the_limit_of_one_rank_is_that_of_all_where_their_sum_is_seen(sql, running, ranks, told):
    given(sql, running=running, ranks=ranks)
    [row] = sql.rows("core.engines").dicts()
    assert (row["max_num_seqs"], row["max_num_seqs_source"], row["ranks_summed"], row["kv_capacity_tokens"]) == told
    outrun = [each for each in sql.rows("marts.data_quality").dicts() if each["flag"] == "setting_outrun"]
    assert bool(outrun) == (told[1] == "inferred")


def test_what_is_said_and_advised_of_the_setting_is_of_one_rank(sql):
    given(sql, running=256, ranks=2)
    [queue] = [row for row in sql.rows("advice.verdicts").dicts() if row["is_primary"]]
    assert (
        "max_num_seqs is 128 (the engine's own arguments) for each of 2 data-parallel ranks, whose sum is seen."
        in queue["evidence"]
    )
    [advice] = [row for row in sql.rows("advice.recommendations").dicts() if row["lever"] == "more_sequences"]
    assert (advice["from_value"], advice["to_value"]) == ("128", "173")
    assert "sums over 2 data-parallel ranks" in advice["evidence"]
