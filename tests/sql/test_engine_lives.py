"""A restart with another setting: each time is judged by the settings of its own life, and what no life says is not known."""

from dataclasses import replace

import pytest

SETUPS = "core.engine_setups"
CHANGED = "settings_changed"


def log(sql, text):
    """Lines of one log, a minute apart from noon on: `start`, `end`, `load RUNNING WAITING KV`, or `KEY VALUE` that is said."""
    said, events = ["source  line  at_utc  key  value_text"], ["source  line  at_utc  event"]
    samples = ["source  line  at_utc  running  waiting  kv_usage_ratio  prompt_tokens_per_s"]
    for line, words in enumerate(text.split("\n")):
        at = f"server.log  {line}  12:{line:02}:00"
        match words.split():
            case ["start"]:
                events.append(f"{at}  engine_start")
                said.append(f"{at}  engine_generation  v1")
            case ["end"]:
                events.append(f"{at}  engine_shutdown")
            case ["load", running, waiting, usage]:
                samples.append(f"{at}  {running}  {waiting}  {usage}  200")
            case [key, value]:
                said.append(f"{at}  {key}  {value}")
    sql.given("raw.sources", "source  format  engine_kind\nserver.log  vllm_engine_log  vllm")
    for table, rows in (("engine_config", said), ("engine_events", events), ("engine_samples", samples)):
        sql.given(f"raw.{table}", "\n".join(rows))


def life(*said, loads=4):
    return "\n".join(["engine_version 0.11.0", *said, "start", *["load 8 5 0.85"] * loads])


def changes(sql):
    return [row["detail"] for row in sql.rows("marts.data_quality").dicts() if row["flag"] == CHANGED]


@pytest.mark.parametrize(
    ("second", "limits", "causes", "change"),
    [
        ("max_num_seqs 256", [8, 256], ["max_num_seqs", "token_budget"], "max_num_seqs from 8 to 256."),
        ("max_num_seqs 8", [8], ["max_num_seqs"], None),
        # what its own start-up lines do not say was not set: that another life had 8 says nothing of this one
        ("block_size 16", [8, None], ["max_num_seqs", "unknown"], "max_num_seqs from 8 to what is not said."),
    ],
)
def test_waiting_is_judged_by_the_settings_of_its_own_life(sql, second, limits, causes, change):
    log(sql, life("block_size 16", "max_num_seqs 8") + "\n" + life(second, "block_size 16"))
    assert [row["max_num_seqs"] for row in sql.rows(SETUPS).dicts()] == limits
    found = [row["cause"] for row in sql.rows("core.queue_states").dicts()]
    assert list(dict.fromkeys(found)) == causes
    told = changes(sql)
    assert [f"The restart of 2026-01-01 12:08:00 UTC changed {change}" in detail for detail in told] == [True] * bool(change)


def test_a_start_after_the_time_asked_for_is_none_of_it(sql):
    log(sql, life("max_num_seqs 8") + "\nend\n" + life("max_num_seqs 256"))
    sql.run = replace(sql.run, until="2026-01-01T12:06:30Z")
    assert [(row["max_num_seqs"], row["was_set_up_anew"]) for row in sql.rows("core.engines").dicts()] == [(8, False)]
    assert not {"restarted", CHANGED} & {row["flag"] for row in sql.rows("marts.data_quality").dicts()}
    sql.run = replace(sql.run, until="2026-01-01T12:12:00Z")
    assert [row["was_set_up_anew"] for row in sql.rows("core.engines").dicts()] == [True]
    assert {"restarted", CHANGED} <= {row["flag"] for row in sql.rows("marts.data_quality").dicts()}


def test_of_the_whole_run_a_setting_is_told_that_held_throughout(sql):
    log(sql, life("max_num_seqs 8", "block_size 16") + "\n" + life("max_num_seqs 256", "block_size 16"))
    assert (
        sql.rows("core.engines")
        == """
        engine  max_num_seqs  max_num_seqs_source  block_size  was_set_up_anew
        0       -             -                    16          true
    """
    )
    assert sql.rows("core.engine_settings").dicts()[-1] == {"engine": "0", "key": "max_num_seqs", "value_text": "256"}


def test_a_last_start_that_served_nothing_changes_nothing(sql):
    log(sql, life("max_num_seqs 8") + "\nend\n" + life("max_num_seqs 256", loads=0) + "\nload 0 0 0")
    assert [(row["max_num_seqs"], row["was_set_up_anew"]) for row in sql.rows("core.engines").dicts()] == [(8, False)]


def test_starts_that_failed_leave_nothing_to_the_one_that_did_not(sql):
    """The version is said first, the start last; two starts without a sample between them are two all the same."""
    log(sql, life("max_num_seqs 8", loads=0) + "\n" + life("block_size 16", loads=0) + "\n" + life("max_num_batched_tokens 512"))
    assert [(row["life"], row["is_stated"]) for row in sql.rows("core.engine_lives").dicts()] == [(1, True), (2, True), (3, True)]
    assert [row["max_num_seqs"] for row in sql.rows(SETUPS).dicts()] == [8, None, None]


@pytest.mark.parametrize(("second", "third"), [("256", None), ("8", 8)])
def test_a_restart_without_start_up_lines_has_what_all_others_have(sql, second, third):
    """Counters fell at 12:30, when the log had already gone quiet: which of two limits held then, nobody says."""
    log(sql, life("max_num_seqs 8") + "\n" + life(f"max_num_seqs {second}"))
    sql.given(
        "core.counter_intervals",
        """
        engine  signal             interval_start  interval_end  delta  is_reset
        0       generation_tokens  12:29:00        12:30:00      5      true
        0       generation_tokens  12:06:30        12:09:30      5      true
    """,
    )
    assert [str(row["life_start"])[11:16] for row in sql.rows("core.engine_lives").dicts()] == ["", "12:07", "12:30"]
    assert sql.rows(SETUPS).dicts()[-1]["max_num_seqs"] == third


def test_what_is_scraped_again_and_again_is_said_where_it_changes_and_holds_on(sql):
    log(sql, life("max_num_seqs 8") + "\n" + life("max_num_seqs 8"))
    said = "server.log  0  12:00:00  engine_version  0.11.0\npage  1  12:01:00  watermark  {0}\nother  1  12:01:00  seed  7"
    lines = "server.log  2  12:02:00  engine_generation  v1\nserver.log  9  12:09:00  engine_generation  v1"
    sql.given("raw.engine_config", "source  line  at_utc  key  value_text\n" + said.format("0.02") + "\n" + lines)
    scrapes = "source  at_utc  name  value\npage  12:01:00  up  1\npage  12:10:00  up  1\nother  12:01:00  up  1"
    sql.given("raw.metric_samples", scrapes)
    told = [(row["life"], row["key"], row["value_text"]) for row in sql.rows("core.life_settings").dicts()]
    assert [each for each in told if each[1] in ("watermark", "seed")] == [
        (1, "seed", "7"),
        (1, "watermark", "0.02"),
        (2, "watermark", "0.02"),
    ]


@pytest.mark.parametrize(("second", "is_told"), [("search-0.log", True), ("chat-0.log.1", False)])
def test_logs_called_otherwise_that_are_taken_for_one_server_are_named(sql, second, is_told):
    files = [f"{name}  {line}  12:0{line}:00  max_num_seqs  8" for line, name in enumerate(("chat-0.log", second))]
    sql.given("core.engine_lives", "engine  life  is_stated\n0  1  true\n0  2  true")
    sql.given("core.engine_setups", "engine  setup  life  setup_start\n0  1  1  12:00:00\n0  2  2  12:06:00")
    sql.given("core.life_settings", "engine  life  key  value_text\n0  1  max_num_seqs  32\n0  2  max_num_seqs  4")
    sql.given(
        "staging.settings", "\n".join(["source  line  said_at  key  value_text  engine", *(f"{each}  *" for each in files)])
    )
    [told] = [row["detail"] for row in sql.rows("core.faults_of_settings").dicts() if row["flag"] == CHANGED]
    assert told.startswith(f"chat-0.log and {second} are taken for one server") == is_told
