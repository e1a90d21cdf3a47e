"""An engine that began to start and never served: told as that, with its cause where a line names one; no other silence is."""

import pytest

STARTED = "engine_start 0"


def log(sql, *events, settings=""):
    """Events of one engine's log, each as `event line [count]`, a second a line from noon on."""
    rows = ["source  line  at_utc  engine  event  count"]
    for event in events:
        name, line, count = (*event.split(), "-")[:3]
        rows.append(f"server.log  {line}  12:00:{int(line):02}  0  {name}  {count}")
    sql.given("raw.engine_events", "\n".join(rows))
    sql.given(
        "raw.engine_config",
        "source  line  at_utc  engine  key  value_text\nserver.log  0  12:00:00  0  engine_version  0.11.0" + settings,
    )
    sql.given("raw.sources", "source  format  engine_kind\nserver.log  vllm_engine_log  vllm")


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ((STARTED, "start_failed 1", "start_no_kv_memory 2", "start_failed 3"), "no_kv_memory 2 -"),
        ((STARTED, "start_no_kv_memory 2", "start_kv_too_small 3 9504"), "kv_too_small 3 9504"),
        ((STARTED, "start_slots_beyond_pool 2 614", "start_failed 3"), "slots_beyond_pool 2 614"),
        ((STARTED, "engine_failure 1", "start_memory_taken 2"), "memory_taken 2 -"),
        ((STARTED, "engine_failure 1", "engine_dead 2"), "out_of_memory 1 -"),
        ((STARTED, "engine_dead 1"), "failed 1 -"),
        ((STARTED, "log_end 40"), "- 40 -"),
        # of the last start alone
        ((STARTED, "start_no_kv_memory 2", "engine_start 5", "log_end 9"), "- 9 -"),
        ((STARTED, "engine_ready 2"), None),
        ((STARTED, "engine_shutdown 2"), None),
        (("log_end 2",), None),
    ],
)
def test_a_start_that_came_to_nothing_has_the_nearest_cause(sql, events, cause):
    log(sql, *events)
    found = [
        " ".join(str(row[name] or "-") for name in ("cause", "line", "fits")) for row in sql.rows("core.failed_starts").dicts()
    ]
    assert found == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("raw.engine_samples", "source  line  at_utc  engine  running\nserver.log  9  12:00:09  0  0"),
        ("raw.request_lines", "source  line  at_utc  event  request_id\nserver.log  9  12:00:09  received  a"),
    ],
)
def test_one_that_was_sent_requests_or_told_its_load_was_up(sql, table, row):
    log(sql, STARTED, "start_failed 1")
    assert sql.rows("core.failed_starts").dicts()
    sql.given(table, row)
    assert not sql.rows("core.failed_starts").dicts()


def test_the_verdict_says_so_with_what_the_engine_said_of_its_memory(sql):
    said = "\nserver.log  1  12:00:01  0  weights_gib  65.741\nserver.log  2  12:00:02  0  kv_cache_memory_gib  4.12"
    said += "\nserver.log  0  12:00:00  0  max_model_len  131072\nserver.log  0  12:00:00  0  gpu_memory_utilization  0.9"
    log(sql, STARTED, "start_kv_too_small 9 13488", settings=said)
    row = sql.rows("advice.verdicts").dicts()[0]
    assert (row["verdict"], row["severity"], row["is_primary"]) == ("never_served", 100, True)
    assert str(row["window_end"])[11:19] == "12:00:09"
    assert row["summary"] == (
        "The server did not come up: the memory left for its KV pool does not hold one request of the longest length "
        "(131,072 tokens); 13,488 would fit."
    )
    assert row["evidence"][:2] == ["server.log, line 9 says so.", "The weights took 65.7 GiB."]
    levers = [(row["lever"], row["setting"], row["to_value"]) for row in sql.rows("advice.recommendations").dicts()]
    assert levers == [("shorter_limit", None, "13488"), ("more_memory", "gpu_memory_utilization", "0.95")]


def test_a_log_that_only_ends_is_not_said_to_have_failed(sql):
    log(sql, STARTED, "log_end 40")
    row = sql.rows("advice.verdicts").dicts()[0]
    assert (row["verdict"], row["severity"], row["confidence"]) == ("never_served", 60, 0.5)
    assert (
        "its log ends 40 s after it began to start, before anything was served, and none of its lines is an error"
        in row["summary"]
    )
    assert row["evidence_against"] == ["A log that was taken while the server still started looks the same."]
