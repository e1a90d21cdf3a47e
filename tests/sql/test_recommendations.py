"""Recommendations: a value from the run's own numbers, nothing the version lacks, nothing that is set already, three at most."""

import pytest

from tests.typed_tables import Sql

POOL = """
    engine  scope     requests  pool_tokens  held_tokens  held_deviation_tokens  prompt_share  fits_on_average  fits_95  fits_99
    0       pressure  119       4576         363.0        136.0                  0.53          12.6             10       9
"""
LENGTHS = """
    engine  scope     requests  prompt_mean  output_mean  output_p90  prompt_share  method
    0       pressure  119       186.0        272.0        438.0       0.53          requests
"""


@pytest.fixture
def sql():
    """A table that a test does not give is empty here, what it would be made of is of no concern; but the steps from verdicts to
    advice are made.
    """
    return Sql(is_made=lambda table: table.startswith("advice.") and table != "advice.verdicts")


def verdict(sql, name, *, severity=70, primary=True):
    sql.given(
        "advice.verdicts",
        f"""
        engine  verdict  severity    is_primary
        0       {name}   {severity}  {primary}
    """,
    )


def engine(sql, **known):
    settings = {"engine_kind": "vllm", "engine_version": "0.32.0", "max_num_seqs": 32, "max_num_seqs_source": "argument"} | known
    sql.engines("engine  " + "  ".join(settings) + "\n0  " + "  ".join(str(value) for value in settings.values()))


def settings(sql, **said):
    last = (f"0  {key}  {value}" for key, value in said.items())
    sql.given("core.engine_settings", "\n".join(["engine  key  value_text", *last]))
    lives = (f"0  1  {key}  {value}" for key, value in said.items())
    sql.given("core.life_settings", "\n".join(["engine  life  key  value_text", *lives]))


def preempted(sql, samples=15):
    verdict(sql, "preemption")
    sql.given(
        "marts.spell_facts",
        f"""
        engine  verdict     window_start  window_end  seconds  samples  mean_running  mean_waiting  preemptions  generation_tokens
        0       preemption  12:00:00      12:00:15    15.0     {samples}  12.5          13.5          149          29000
    """,
    )
    sql.given("core.pool_demand", POOL)
    sql.given("core.sequence_lengths", LENGTHS)


def told(sql, *columns):
    return [tuple(row[column] for column in columns) for row in sql.rows("advice.recommendations").dicts()]


def test_preemption_is_answered_at_admission_with_the_number_that_fits(sql):
    preempted(sql)
    engine(sql)
    assert (
        sql.rows("advice.recommendations")
        == """
        rank  setting       from_value  to_value
        1     max_num_seqs  32          10
        2     watermark     -           0.15
        3     -             272 output tokens on average, 438 at the 90th percentile  181 output tokens on average
    """
    )


def test_fewer_than_ever_ran_may_be_as_few_as_hardly_ever_overflow(sql):
    preempted(sql)
    engine(sql, max_num_seqs=5)
    effect = told(sql, "to_value", "expected_effect")[0]
    assert effect[0] == "4"
    assert effect[1].startswith("4 at once instead of 5: the pool then overflows less than 1 % of the time")


def test_what_a_sample_or_two_show_is_no_mean_and_no_limit(sql):
    """As many as fit the pool, and no word of how many ran: the scrapes may have missed it all."""
    preempted(sql, samples=4)
    engine(sql, max_num_seqs="-")
    advice = next(row for row in sql.rows("advice.recommendations").dicts() if row["lever"] == "fewer_sequences")
    assert (advice["from_value"], advice["to_value"]) == (None, "10")
    assert "How many ran meanwhile, the samples are too few to say." in advice["expected_effect"]
    assert "on average" not in advice["expected_effect"] + advice["trade_off"]


def test_fewer_at_once_has_its_price_in_tokens_and_waiting(sql):
    preempted(sql)
    engine(sql)
    price = told(sql, "trade_off")[0][0]
    assert "Tokens per second fall by about 20 %" in price
    assert "each waits about 2.8 s" in price  # 16 of 26 wait for 272 tokens each at 1,933 tokens/s x 10 / 12.5


@pytest.mark.parametrize(
    ("known", "said", "absent"),
    [
        ({"engine_version": "0.23.0"}, {}, "watermark"),
        ({"engine_version": "0.9.1", "engine_generation": "v0"}, {}, "watermark"),
        ({"engine_version": "-"}, {}, "watermark"),
        ({}, {"watermark": "0.2"}, "watermark"),
        ({"max_num_seqs": 10}, {}, "watermark_only"),
        ({"kv_cache_dtype": "fp8"}, {}, "kv_cache_dtype"),
        ({"kv_cache_dtype": "-"}, {}, "kv_cache_dtype"),
        ({"kv_cache_dtype": "auto"}, {"num_gpu_blocks_override": "144"}, "kv_cache_dtype"),
        ({"engine_kind": "-"}, {}, "max_num_seqs"),
    ],
)
def test_what_the_version_lacks_or_has_set_or_cannot_use_is_not_told(sql, known, said, absent):
    preempted(sql)
    engine(sql, **known)
    if said:
        settings(sql, **said)
    assert absent not in {setting for (setting,) in told(sql, "setting")}


def test_a_cache_that_is_off_is_advised_after_the_gentle_levers_of_admission(sql):
    preempted(sql)
    engine(sql, prefix_caching="False")
    assert [row[0] for row in told(sql, "setting")] == ["max_num_seqs", "watermark", "enable_prefix_caching"]
    ((*values, effect, evidence),) = told(sql, "from_value", "to_value", "expected_effect", "evidence")[2:]
    assert values == ["False", "True"]
    assert "finds its blocks in the cache, as far as nobody took the room meanwhile" in effect
    assert evidence == "Prefix caching is off in this run, and 149 preemptions were counted."


def test_sglang_is_told_to_leave_out_what_turns_its_cache_off(sql):
    preempted(sql)
    engine(sql, engine_kind="sglang", engine_version="0.5.5", prefix_caching="False")
    settings(sql, disable_radix_cache="True")
    asked = told(sql, "setting", "flag", "from_value", "to_value", "expected_effect")[2]
    assert asked[:4] == ("disable_radix_cache", "without --disable-radix-cache", "True", "False")
    assert "finds its prompt in the cache" in asked[4]


ARGUMENT, SUMMARY, SERIES = "server.log  3", "server.log  9", "metrics.txt  1"


@pytest.mark.parametrize(
    ("known", "said", "off_in", "is_told"),
    [
        ({}, {}, (), True),
        ({"prefix_caching": "True"}, {}, (), False),
        ({"prefix_caching": "-"}, {}, (), False),
        ({"engine_generation": "v0", "engine_version": "0.9.1"}, {}, (), False),
        ({}, {"mamba_block_size": "131072"}, (), False),
        ({}, {"is_attention_free": "True"}, (), False),
        ({}, {"is_attention_free": "False"}, (), True),
        ({"engine_kind": "sglang", "engine_version": "0.5.5"}, {"max_mamba_cache_size": "160"}, (), False),
        ({}, {}, (SUMMARY, SERIES), False),
        ({}, {}, (ARGUMENT, SUMMARY, SERIES), True),
        ({}, {}, (SERIES,), True),
    ],
)
def test_a_cache_is_to_be_turned_on_only_where_somebody_turned_it_off(sql, known, said, off_in, is_told):
    preempted(sql)
    engine(sql, **{"prefix_caching": "False"} | known)
    if said:
        settings(sql, **said)
    beside = {ARGUMENT: "max_num_seqs  32", SUMMARY: "engine_version  0.32.0", SERIES: "num_gpu_blocks  144"}
    rows = [f"*  {place}  {pair}" for place in off_in for pair in ("enable_prefix_caching  False", beside[place])]
    sql.given("staging.settings", "\n".join(["engine  source  line  key  value_text", *rows]))
    levers = {lever for (lever,) in told(sql, "lever")}
    assert ("prefix_cache" in levers) == is_told


def test_more_gpu_memory_needs_a_measurement_of_free_memory(sql):
    preempted(sql)
    engine(sql, gpu_memory_utilization="0.85", kv_cache_dtype="fp8", engine_version="0.16.0")
    assert "gpu_memory_utilization" not in {setting for (setting,) in told(sql, "setting")}
    sql.given(
        "core.gpu_memory",
        """
        engine  free_memory_ratio  samples
        0       0.11               40
    """,
    )
    assert ("gpu_memory_utilization", "0.85", "0.93") in told(sql, "setting", "from_value", "to_value")


def test_prefill_interference_beside_preemption_is_left_to_the_preemption(sql):
    preempted(sql)
    engine(sql, engine_version="-")
    sql.given(
        "advice.verdicts",
        """
        engine  verdict               severity  is_primary
        0       preemption            70        true
        0       prefill_interference  45        false
    """,
    )
    assert {name for (name,) in told(sql, "verdict")} == {"preemption"}


@pytest.mark.parametrize(("prompt_mean", "gaps"), [("3000", "falls to about 266 ms from about 3010 ms."), ("256", None)])
def test_prompts_that_are_shorter_than_a_piece_are_not_cut(alone, prompt_mean, gaps):
    """A thousand prompt tokens a second: a piece of 256 of them, the least there is, takes 256 ms beside a usual step of 10."""
    alone.given(
        "advice.lever_facts",
        f"""
        engine  verdict  severity  prompt_tokens  mean_running  lost_s  decode_s  gap_s  prompt_mean  max_num_batched_tokens
        0  prefill_interference  40  9000  4  36  80  0.01  {prompt_mean}  8192
        """,
    )
    told = {row["lever"]: row["estimates"] for row in alone.rows("advice.levers_of_steps").dicts()}
    assert set(told) == ({"smaller_chunks", "long_prompt_cap"} if gaps else set())
    assert not gaps or gaps in told["smaller_chunks"][0]


def slots(sql, *, running, waiting, limit):
    verdict(sql, "queue_max_num_seqs")
    engine(sql, max_num_seqs=limit)
    sql.given(
        "marts.spell_facts",
        f"""
        engine  verdict             window_start  window_end  seconds  mean_running  mean_waiting  max_running  max_waiting
        0       queue_max_num_seqs  12:00:00      12:00:18    18.0     {running}.0   {waiting}.0   {running}    {waiting}
    """,
    )


def test_a_queue_for_slots_gets_as_many_as_the_pool_allows(sql):
    slots(sql, running=4, waiting=20, limit=4)
    sql.given(
        "core.pool_demand",
        """
        engine  scope  pool_tokens  held_tokens  held_deviation_tokens  fits_95  fits_99  method
        0       run    65504        299.0        105.0                  210      207      requests
    """,
    )
    assert (
        sql.rows("advice.recommendations")
        == """
        rank  setting       from_value  to_value
        1     max_num_seqs  4           24
    """
    )
    assert "the pool allows up to 210" in told(sql, "expected_effect")[0][0]


def test_slots_are_not_raised_into_the_pool(sql):
    slots(sql, running=9, waiting=18, limit=9)
    sql.given("core.pool_demand", POOL)
    sql.given("core.sequence_lengths", LENGTHS)
    assert [lever for (lever,) in told(sql, "lever")] == ["shorter_outputs"]


@pytest.mark.parametrize(
    ("version", "setting"),
    [("0.32.0", "kv_offloading_size"), ("0.9.1", "kv_transfer_config"), ("0.6.6", None)],
)
def test_prefix_eviction_is_answered_by_a_host_tier_that_the_version_has(sql, version, setting):
    verdict(sql, "prefix_eviction")
    engine(sql, engine_version=version, kv_capacity_tokens=5120)
    assert told(sql, "setting")[0] == (setting,)
    assert not {"fewer_sequences", "more_sequences"} & {lever for (lever,) in told(sql, "lever")}


def test_a_host_tier_that_is_there_is_not_advised_again(sql):
    verdict(sql, "prefix_eviction")
    engine(sql, kv_connector="LMCacheConnectorV1")
    assert [lever for (lever,) in told(sql, "lever")] == ["locality"]


def test_beside_a_tier_requests_with_one_prefix_are_brought_together(sql):
    verdict(sql, "offload_pressure", severity=14)
    engine(sql, kv_connector="OffloadingConnector")
    facts = "engine  verdict  window_start  window_end  queried_tokens  hit_tokens  restored_tokens"
    sql.given("marts.spell_facts", f"{facts}\n0  offload_pressure  12:00:00  12:01:00  1000  50  800")
    assert told(sql, "lever", "from_value") == [("locality", "80 % of prompt tokens come back from a tier")]
    assert "Up to 800 prompt tokens of the run need not be moved." in told(sql, "expected_effect")[0][0]


def test_deferred_requests_are_told_of_adapters_only_where_adapters_are_served(sql):
    verdict(sql, "queue_deferred")
    engine(sql)
    assert told(sql, "lever", "setting") == [("tell_deferrals_apart", None)]
    settings(sql, enable_lora="True", max_loras="1")
    assert told(sql, "setting", "from_value", "to_value") == [("max_loras", "1", "2")]


@pytest.mark.parametrize("name", ["healthy", "insufficient_evidence", "queue_unknown", "engine_stalled"])
def test_nothing_is_advised_where_nothing_is_wrong_or_known(sql, name):
    verdict(sql, name)
    engine(sql)
    assert told(sql, "lever") == []


def test_a_mild_finding_is_advised_on_only_where_it_is_the_main_one(sql):
    preempted(sql)
    engine(sql)
    verdict(sql, "preemption", severity=8, primary=False)
    assert told(sql, "lever") == []
    verdict(sql, "preemption", severity=8)
    assert told(sql, "lever", "to_value") == [("admission_headroom", "0.02")]
    engine(sql, engine_version="0.16.0")
    assert told(sql, "lever", "to_value") == [("leave_it", None)]


def test_sequences_that_fit_leave_room_for_their_spread(sql):
    """143 blocks of 32 hold 12.6 sequences of 363 ± 136 tokens on average; a real engine with this load never preempted at 9."""
    engine(sql, kv_capacity_tokens=4608, block_size=32)
    sql.given(
        "core.sequence_lengths",
        """
        engine  scope  requests  held_tokens  held_deviation_tokens  method
        0       run    120       363.0        136.0                  requests
    """,
    )
    assert (
        sql.rows("core.pool_demand")
        == """
        scope  pool_tokens  fits_on_average  fits_95  fits_99
        run    4576         12.6             10       9
    """
    )


@pytest.mark.parametrize(("second", "fits"), [(4100, [7]), (65536, [])])
def test_of_a_pool_that_had_two_sizes_no_share_says_how_many_sequences_fit(sql, second, fits):
    sql.given("core.engines", "engine  engine_kind  engine_generation\n0       vllm         v1")
    sql.given("core.engine_setups", f"engine  setup  kv_capacity_tokens\n0       1      4096\n0       2      {second}")
    sql.given("core.engine_states", "engine  sampled_at  running  kv_usage_ratio\n0       12:00:00    8        0.8")
    sql.given("core.sequence_lengths", "engine  scope")
    assert [row["fits_95"] for row in sql.rows("core.pool_demand").dicts()] == fits


def test_shorter_answers_of_which_no_more_fit_are_told_by_their_share(sql):
    engine(sql)
    verdict(sql, "preemption", severity=60)
    sql.given(
        "core.pool_demand",
        """
        engine  scope  requests  pool_tokens  held_tokens  held_deviation_tokens  prompt_share  fits_95  fits_99  method
        0       run    120       4096         1000.0       300.0                  0.3           4        3        requests
    """,
    )
    effects = dict(told(sql, "lever", "expected_effect"))
    assert "30 % more sequences fit" in effects["shorter_outputs"]
    assert "where 4 do now" not in effects["shorter_outputs"]


def test_a_running_sequence_is_a_long_one_more_often_than_not(sql):
    """Two answers of 100 and 300 tokens: the long one runs three times as long, so it counts three times."""
    engine(sql, block_size=16)
    sql.given(
        "core.requests",
        """
        request_key  engine  arrived_at  finished_at  input_tokens  output_tokens
        a            0       12:00:00    12:00:01     100           100
        b            0       12:00:00    12:00:03     100           300
    """,
    )
    assert (
        sql.rows("core.sequence_lengths")
        == """
        scope  requests  prompt_mean  output_mean  held_tokens  method
        calm   2         100.0        200.0        232.9        requests
        run    2         100.0        200.0        232.9        requests
    """
    )


def test_pressure_sources_give_each_length_its_share_of_the_pool(sql):
    """In the ten seconds of the queue one prompt of 1,000 tokens holds what ten of 100 do, and 256 to 1,024 is its class."""
    engine(sql)
    sql.given(
        "core.spells",
        """
        engine  verdict            window_start  window_end
        0       queue_kv_capacity  12:00:00      12:00:10
    """,
    )
    sql.given(
        "core.requests",
        """
        request_key  engine  arrived_at  first_token_at  finished_at  queue_s  input_tokens  output_tokens
        long         0       12:00:00    12:00:00        12:00:10     0        1000          1
        short        0       12:00:00    12:00:00        12:00:10     0        100           1
        calm         0       12:01:00    12:01:00        12:01:10     0        100           1
    """,
    )
    assert (
        sql.rows("marts.pressure_sources")
        == """
        dimension  from_tokens  requests  request_share  pool_share  calm_requests  calm_pool_share
        output     1            2         1.0            1.0         1              1.0
        prompt     64           1         0.5            0.09        1              1.0
        prompt     256          1         0.5            0.91        0              0.0
    """
    )


@pytest.mark.parametrize(
    ("before", "words"), [(1554.0, "from 1.6 to 2.4 s (1.5 to 3.0)"), (400.0, "from 400.0 to 2,438 ms (1,500 to 3,000)")]
)
def test_replayed_latencies_of_a_second_and_more_are_told_in_seconds(sql, before, words):
    engine(sql)
    preempted(sql)
    sql.given(
        "advice.replayed_effects",
        f"""
        engine  rank  figure       before    low     best    high
        0       1     itl_p99_ms   90.0      20.0    30.0    40.0
        0       1     ttft_p50_ms  {before}  1500.0  2438.0  3000.0
    """,
    )
    ((effect, price),) = told(sql, "expected_effect", "trade_off")[:1]
    assert "99th percentile between tokens from 90.0 to 30.0 ms (20.0 to 40.0)" in effect
    assert f"median time to first token {words}" in price


@pytest.mark.parametrize(
    ("best", "words"),
    [
        (162.0, "Replayed, nothing gets better by much."),
        (16.0, "Replayed: preemptions from 162 (152 recorded) to 16 (10 to 20)."),
    ],
)
def test_what_the_replay_misses_of_the_run_is_no_effect_of_the_change(sql, best, words):
    engine(sql)
    preempted(sql)
    sql.given(
        "advice.replayed_effects",
        f"""
        engine  rank  figure       recorded  before  low             best    high
        0       1     preemptions  152.0     162.0   {best / 1.6}  {best}  {best + 4}
    """,
    )
    ((effect,),) = told(sql, "expected_effect")[:1]
    assert effect.endswith(words)


MEMORY = {"weights_gib": "60.0", "kv_cache_memory_gib": "8.0", "gpu_memory_utilization": "0.85"}


@pytest.mark.parametrize(
    ("kind", "said", "levers"),
    [
        ("vllm", {}, ["more_memory", "split_weights"]),
        ("sglang", {}, ["more_memory", "split_weights"]),
        # a draft model's lines are the last of their kind
        ("sglang", {"speculative_config": "EAGLE"}, ["more_memory"]),
        ("sglang", {"swa_layer_tokens": "122880"}, ["more_memory"]),
        ("vllm", {"kv_cache_memory_bytes": "8589934592"}, ["split_weights"]),
        ("vllm", {"num_gpu_blocks_override": "144"}, []),
    ],
)
def test_memory_is_advised_where_the_pool_is_what_it_leaves(sql, kind, said, levers):
    preempted(sql)
    engine(sql, engine_kind=kind, gpu_memory_utilization=0.85, tensor_parallel_size=1, kv_capacity_tokens=4576)
    settings(sql, **MEMORY, **said)
    sql.given("core.gpu_memory", "engine  free_memory_ratio\n0  0.1")
    found = [row["lever"] for row in sql.rows("advice.levers_of_pool_size").dicts()]
    assert [lever for lever in found if lever in ("more_memory", "split_weights")] == levers
