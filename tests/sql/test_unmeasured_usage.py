"""A usage of the KV pool that reads 0 throughout although requests run was never measured: NULL from any source, and no room."""

import pytest

SAMPLES = """
    engine  source  line  sampled_at  running    waiting  kv_usage_ratio  kv_used_tokens
    0       log     1     12:00:00    {running}  40       {usage}         {tokens}
    0       log     2     12:00:10    {running}  60       0               {tokens}
    0       log     3     12:00:20    {running}  60       0               {tokens}
    0       log     4     12:00:30    0          0        0               0
"""
GAUGES = """
    engine  sampled_at  name                         value
    0       12:00:00    {exporter}:running           {running}
    0       12:00:00    {exporter}:usage             0
    0       12:00:10    {exporter}:running           0
    0       12:00:10    {exporter}:usage             0
"""
NAMES = {
    "vllm": ("vllm:num_requests_running", "vllm:kv_cache_usage_perc"),
    "sglang": ("sglang:num_running_reqs", "sglang:token_usage"),
}


def queued(sql, running):
    """All slots of a vLLM taken, and more waiting."""
    sql.given("engine_samples", SAMPLES.format(running=running, usage=0, tokens="-"))
    sql.given("staging.settings", f"engine  key  value_text\n0  max_num_seqs  {running}")
    sql.given("raw.sources", "source  engine_kind\nlog  vllm")


def usages(sql):
    return {row["kv_usage_ratio"] for row in sql.rows("core.engine_states").dicts()}


@pytest.mark.parametrize(
    ("running", "usage", "tokens", "told"),
    [
        (128, 0, "-", {None}),
        (2, 0, "-", {0.0}),  # as printed: two short requests in a large pool
        (128, 0.001, "-", {0.001, 0.0}),
        (128, 0, 900, {0.0}),  # SGLang prints the tokens, too: hundredths of a huge pool
    ],
)
def test_a_log_that_prints_0_beside_more_requests_than_rounding_hides_measured_nothing(sql, running, usage, tokens, told):
    sql.given("engine_samples", SAMPLES.format(running=running, usage=usage, tokens=tokens))
    assert usages(sql) == told


@pytest.mark.parametrize(
    ("exporter", "running", "told"),
    [("vllm", 1, {None}), ("vllm", 0, {0.0}), ("sglang", 1, {0.0}), ("sglang", 64, {None})],
)
def test_a_gauge_at_0_measured_nothing_where_it_does_not_round(sql, exporter, running, told):
    names = dict(zip(("running", "usage"), NAMES[exporter], strict=True))
    rows = GAUGES.format(exporter=exporter, running=running)
    for word, name in names.items():
        rows = rows.replace(f"{exporter}:{word} ", f"{name} ")
    sql.given("metric_samples", rows)
    assert usages(sql) == told


def test_a_page_without_a_time_is_judged_alike(sql):
    sql.given(
        "raw.metric_samples",
        """
        source  engine  name                       value
        page    0       vllm:num_requests_running  12
        page    0       vllm:num_requests_waiting  4
        page    0       vllm:kv_cache_usage_perc   0
        """,
    )
    sql.given("raw.sources", "source  format\npage  prometheus_text")
    assert [row["kv_usage_ratio"] for row in sql.rows("core.untimed_pages").dicts()] == [None]
    [row] = sql.rows("advice.verdicts").dicts()
    assert "KV usage" not in " ".join(row["evidence"])


def test_a_queue_before_a_pool_that_nobody_measured_is_not_said_to_have_room(sql):
    queued(sql, 128)
    [queue] = [row for row in sql.rows("advice.verdicts").dicts() if row["is_primary"]]
    assert queue["verdict"] == "queue_max_num_seqs"
    assert float(queue["confidence"]) == pytest.approx(0.81, abs=0.01)
    assert not any("room" in each or "KV usage" in each for each in [queue["summary"], *queue["evidence"]])
    assert any("whether it has room for more than these is not known" in each for each in queue["evidence_against"])
    [fault] = [row for row in sql.rows("marts.data_quality").dicts() if row["flag"] == "kv_usage_stuck_at_zero"]
    assert fault["detail"] == "KV usage reads 0 in every sample although up to 128 requests ran at once: taken as never measured."
    assert {row["kv_usage_ratio"] for row in sql.rows("marts.timeline").dicts()} == {None}
    [advice] = [row for row in sql.rows("advice.recommendations").dicts() if row["lever"] == "more_sequences"]
    assert (advice["from_value"], advice["to_value"]) == ("128", "188")
    assert advice["expected_effect"].startswith(
        "The 188 that ran or waited when most were seen run at once; more may have been there between the samples, 10 s apart;"
    )


def test_where_more_waited_than_ran_a_doubling_is_called_one(sql):
    queued(sql, 32)
    [advice] = [row for row in sql.rows("advice.recommendations").dicts() if row["lever"] == "more_sequences"]
    assert advice["to_value"] == "64"
    assert advice["expected_effect"].startswith("Twice as many run at once")
