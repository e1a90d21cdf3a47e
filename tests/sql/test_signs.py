"""What is a sign of what, just within its limits and just beyond them, and which signs are one spell. An engine for each case."""

from itertools import pairwise

import pytest


@pytest.fixture
def sql(alone):
    return alone


def given(sql, table, header, *rows):
    sql.given(table, "\n".join([header, *rows]))


def signs(sql, *columns):
    return [tuple(row[column] for column in columns) for row in sql.rows("core.signs").dicts()]


def test_a_queue_a_failure_and_a_preemption_show_when_they_were_seen(sql):
    given(
        sql,
        "core.queue_states",
        "engine  sampled_at  cause  scrape_s  waiting",
        "a  12:00:00  kv_capacity  15  3",
        "b  12:00:00  unknown  5  1",
    )
    given(sql, "core.failed_requests", "engine  failed_at  requests", "c  12:00:07  2", "d  -  9")
    given(
        sql,
        "core.preemption_intervals",
        "engine  interval_start  interval_end  preemptions",
        "a  12:00:00  12:00:15  1",
        "b  12:00:00  12:00:15  0",
    )
    assert (
        sql.rows("core.signs")
        == """
        engine  verdict            sign_start  sign_end  weight
        a       preemption         12:00:00    12:00:15  1
        a       queue_kv_capacity  12:00:00    12:00:15  3
        b       queue_unknown      12:00:00    12:00:05  1
        c       queue_kv_capacity  12:00:07    12:00:07  2
        """
    )


def test_a_warning_stands_for_what_came_since_the_one_before_where_nothing_counts(sql):
    given(
        sql,
        "engine_events",
        "engine  happened_at  line  event  count",
        "a  12:00:07  1  preemption_warning_swap  51",
        "a  12:00:09  2  preemption_warning_swap  101",
        "a  12:00:11  3  context_shift  300",
        "a  -  4  preemption_warning_swap  151",
        "b  12:00:07  1  preemption_warning_swap  51",
        "c  12:00:07  1  preemption_warning_swap  0",
    )
    given(sql, "core.preemption_intervals", "engine  interval_start  interval_end  preemptions", "b  12:00:00  12:00:15  0")
    assert (
        sql.rows("core.signs")
        == """
        engine  verdict     sign_start  sign_end  weight
        a       preemption  12:00:07    12:00:08  1
        a       preemption  12:00:09    12:00:10  50
        c       preemption  12:00:07    12:00:08  0
        """
    )


def test_prefills_interfere_where_they_take_a_tenth_and_preemptions_do_not_explain_it(sql):
    known = "0.01  100"
    header = "engine  lost_s  decode_s  slow_gaps  most_resumes  prompt_tokens  first_tokens  interval_start  interval_end  "
    rows = {
        "a": "1.0  10  3  1  512  1",
        "few": "0.9  10  3  1  512  1",
        "preempted": "1.0  10  2  1  512  1",
        "short_prompts": "1.0  10  3  1  511  1",
        "no_first": "1.0  10  3  1  512  0",
        "z": "1.0  10  1  -  512  1",
    }
    given(
        sql,
        "core.interference_intervals",
        header + "median_gap_s  prompt_tokens_per_step",
        *(f"{engine}  {row}  12:00:00  12:00:15  {known}" for engine, row in rows.items()),
    )
    assert signs(sql, "engine", "verdict", "weight") == [("a", "prefill_interference", 1.0), ("z", "prefill_interference", 1.0)]


def test_where_every_step_is_slow_the_tokens_in_it_say_whether_prefills_are_why(sql):
    """Against the engine's quietest tenth, or beyond what any model takes."""
    rows = {
        "chunks": ["0.3  512  -"],
        "few": ["0.3  511  -"],
        "quick": ["0.29  512  -"],
        "preempted": ["0.3  512  1"],
        "slower": ["0.03125  1  0", "0.03125  1  0", "0.15625  512  0"],
        "slower_few": ["0.03125  1  0", "0.03125  1  0", "0.15625  511  0"],
        "hardly": ["0.03125  1  0", "0.03125  1  0", "0.125  512  0"],
    }
    given(
        sql,
        "core.interference_intervals",
        "engine  interval_start  interval_end  prefill_lost_s  decode_s  median_gap_s  prompt_tokens_per_step  preemptions",
        *(
            f"{engine}  12:0{number}:00  12:0{number + 1}:00  7  9  {row}"
            for engine, intervals in rows.items()
            for number, row in enumerate(intervals)
        ),
    )
    assert signs(sql, "engine", "verdict", "weight") == [
        ("chunks", "prefill_interference", 7),
        ("few", "decode_slow", 9),
        ("slower", "prefill_interference", 7),
    ]


def test_prefixes_are_missed_where_they_used_to_be_found_and_the_pool_was_written_over(sql):
    rows = {
        "a": "10  0.9  0.5  5  1001  -  100",
        "few": "9  0.9  0.5  5  1001  -  100",
        "found": "10  0.9  0.6  5  1001  -  100",
        "none": "10  0.9  0.5  0  1001  -  100",
        "room": "10  0.9  0.5  5  1000  -  100",
        "stored": "10  0.9  0.9  7  10  33  100",
        "stored_few": "10  0.9  0.9  7  10  32  100",
    }
    given(
        sql,
        "core.prefix_intervals",
        "engine  kv_capacity_tokens  interval_start  interval_end  near_lookups  best_hit_ratio  hit_ratio  missed_tokens  "
        "written_tokens  refilled_tokens  queried_tokens",
        *(f"{engine}  1000  12:00:00  12:00:15  {row}" for engine, row in rows.items()),
    )
    assert signs(sql, "engine", "verdict", "weight") == [("a", "prefix_eviction", 5), ("stored", "prefix_eviction", 7)]


def test_prefixes_that_a_tier_gives_back_are_not_missed(sql):
    given(
        sql,
        "core.prefix_intervals",
        "engine  kv_capacity_tokens  interval_start  interval_end  near_lookups  best_hit_ratio  hit_ratio  missed_tokens  "
        "written_tokens  restored_tokens  restored_ratio",
        "a  1000  12:00:00  12:00:15  10  0.9  0.1  5  1001  400  0.6",
        "few  1000  12:00:00  12:00:15  9  0.9  0.1  5  1001  400  0.6",
        "less  1000  12:00:00  12:00:15  10  0.4  0.1  5  1001  400  0.32",
        "none  1000  12:00:00  12:00:15  10  0.9  0.6  5  1001  0  0.6",
        "room  1000  12:00:00  12:00:15  10  0.9  0.1  5  1000  400  0.6",
        "untold  1000  12:00:00  12:00:15  10  0.9  0.1  5  1001  -  -",
    )
    assert signs(sql, "engine", "verdict", "weight") == [("a", "offload_pressure", 400), ("untold", "prefix_eviction", 5)]


def test_a_tier_s_log_tells_what_came_back_by_the_minute_where_no_counter_does(sql):
    """A third of what it moved, ten lines or more, and more taken in than the pool holds."""
    stored, restored = "kv_offloaded", "kv_restored"
    cases = {  # tokens of ten lines of the first minute, and of ten of the second: five of each kind
        "a": (900, 0, 200, 100),
        "counted": (900, 0, 200, 100),
        "less": (900, 0, 210, 100),
        "room": (600, 0, 400, 200),
        "peer": (0, 0, 0, 900),
    }
    rows = [
        f"{engine}  12:0{minute}:{2 * line + (event == restored):02}  {event}  {tokens / 5:.0f}"
        for engine, (before, _, taken, given_back) in cases.items()
        for minute, event, tokens in ((0, stored, before), (0, restored, 0), (1, stored, taken), (1, restored, given_back))
        for line in range(5)
    ]
    given(sql, "staging.engine_events", "engine  happened_at  event  count", *rows)
    given(sql, "core.engine_setups", "engine  setup  kv_capacity_tokens", *(f"{engine}  1  1000" for engine in cases))
    given(sql, "core.prefix_intervals", "engine  interval_start  interval_end  restored_tokens", "counted  12:00:00  12:02:00  0")
    assert (
        sql.rows("core.signs")
        == """
        engine  verdict           sign_start  sign_end  weight
        a       offload_pressure  12:01:00    12:01:09  100
        """
    )


def test_a_client_is_the_limit_where_it_holds_back_what_the_engine_had_room_for(sql):
    """By its own schedule: a closed loop is meant to send as answers come, and behind a full engine the queue is the engine's."""
    states = {
        "a": "3  0  0.5",
        "calm": "3  0  0.5",
        "closed": "3  0  0.5",
        "slots": "4  0  0.5",
        "queue": "3  1  0.5",
        "pool": "3  0  0.9",
        "soon": "3  0  0.5",
        "unseen": "3  0  0.5",
    }
    given(
        sql,
        "core.engine_states",
        "engine  sampled_at  scrape_s  running  waiting  kv_usage_ratio",
        *(f"{engine}  12:00:0{second}  5  {state}" for engine, state in states.items() for second in (0, 5)),
        "a  11:59:00  5  9  9  1",
    )
    given(sql, "core.engine_setups", "engine  setup  max_num_seqs", *(f"{engine}  1  4" for engine in states))
    given(
        sql,
        "core.requests",
        "request_key  engine  source  run_index  arrived_at  client_queue_s",
        *(
            f"{engine}  {engine}  {engine}  0  12:00:{'59' if engine == 'unseen' else '09'}  {0.09 if engine == 'soon' else 4}"
            for engine in states
        ),
    )
    given(
        sql,
        "staging.client_runs",
        "source  run_index  request_rate",
        *(f"{engine}  0  {'-' if engine == 'closed' else 8}" for engine in states),
    )
    assert (
        sql.rows("core.signs")
        == """
        engine  verdict         sign_start  sign_end  weight
        a       client_limited  12:00:05    12:00:09  4
        calm    client_limited  12:00:05    12:00:09  4
        """
    )


def test_an_engine_is_stuck_where_it_holds_requests_and_no_token_comes_or_goes(sql):
    """An interval longer than three usual ones, or with a restart, says nothing of it."""
    usual = [
        f"{engine}  12:00:{second}  metrics  1  2  10"
        for engine in ("a", "moves", "reset", "hole", "edge")
        for second in ("00", "30")
    ]
    given(
        sql,
        "core.engine_states",
        "engine  sampled_at  origin  running  waiting  scrape_s",
        *usual,
        *(f"idle  12:00:{second}  metrics  0  0  10" for second in ("00", "30")),
    )
    given(
        sql,
        "core.counter_intervals",
        "engine  signal  labels  interval_start  interval_end  delta  is_reset",
        "a  prompt_tokens  -  12:00:20  12:00:30  0  false",
        "a  generation_tokens  -  12:00:20  12:00:30  0  false",
        "a  preemptions  -  12:00:20  12:00:30  9  false",
        "moves  prompt_tokens  -  12:00:20  12:00:30  0  false",
        "moves  generation_tokens  -  12:00:20  12:00:30  1  false",
        "reset  prompt_tokens  -  12:00:20  12:00:30  0  true",
        "reset  generation_tokens  -  12:00:20  12:00:30  0  false",
        "edge  generation_tokens  -  12:00:00  12:00:30  0  false",
        "idle  generation_tokens  -  12:00:20  12:00:30  0  false",
    )
    assert signs(sql, "engine", "verdict", "weight") == [("a", "engine_stalled", 3), ("edge", "engine_stalled", 3)]
    given(
        sql,
        "core.counter_intervals",
        "engine  signal  labels  interval_start  interval_end  delta  is_reset",
        "hole  generation_tokens  -  11:59:59  12:00:30  0  false",
    )
    assert signs(sql, "engine", "verdict") == []


def test_a_log_says_that_an_engine_is_stuck_by_its_rates(sql):
    states, samples = [], []
    for engine, origin, load, rates in [
        ("a", "log", "1  0", "0  0"),
        ("counted", "metrics", "1  1", "0  0"),
        ("idle", "log", "0  0", "0  0"),
        ("prefills", "log", "1  0", "5  0"),
        ("decodes", "log", "1  0", "0  5"),
    ]:
        states.append(f"{engine}  12:00:00  {origin}  {load}  10")
        samples.append(f"{engine}  12:00:00  {load}  {rates}")
    given(sql, "core.engine_states", "engine  sampled_at  origin  running  waiting  scrape_s", *states)
    given(
        sql,
        "engine_samples",
        "engine  sampled_at  running  waiting  prompt_tokens_per_s  generation_tokens_per_s",
        *samples,
    )
    assert (
        sql.rows("core.signs")
        == """
        engine  verdict         sign_start  sign_end  weight
        a       engine_stalled  12:00:00    12:00:10  1
        """
    )


def log_of(sql, engine, *lines):
    """A log of an engine by its lines: `at  running  prompt rate  generation rate`."""
    told = [line.split("  ", 2) for line in lines]
    given(
        sql,
        "core.engine_states",
        "engine  sampled_at  origin  running  waiting  scrape_s",
        *(f"{engine}  {at}  log  {running}  0  10" for at, running, _ in told),
    )
    given(
        sql,
        "engine_samples",
        "engine  sampled_at  running  waiting  prompt_tokens_per_s  generation_tokens_per_s",
        *(f"{engine}  {at}  {running}  0  {rates}" for at, running, rates in told),
    )


def test_a_silence_that_ends_in_a_long_prompt_was_its_prefill(sql):
    """The prompt is booked in one line, when all of it is computed."""
    log_of(
        sql,
        "0",
        "12:00:00  1  5  20",
        "12:00:10  1  0  0",
        "12:00:20  0  6000  1",  # 60,000 tokens in 20 s: at half of 2,000/s within 60 s
        "12:00:30  1  0  0",
        "12:00:40  1  0  0",
        "12:00:50  1  0  0",
        "12:01:00  1  0  0",
        "12:01:10  1  0  0",
        "12:01:20  1  0  0",
        "12:01:30  1  0  0",
        "12:01:40  1  16000  1",  # 160,000 in 80 s, 2,000/s: no other is half as long, and 500/s take 320 s
        "12:01:50  0  0  0",
    )
    assert (
        sql.rows("core.silences")
        == """
        engine  silence_start  silence_end  prompt_tokens  prefill_s  is_prefill
        0       12:00:00       12:00:20     60000          60         true
        0       12:00:20       12:01:40     160000         320        true
        """
    )
    assert signs(sql, "engine", "verdict") == []


def test_a_silence_longer_than_its_prompt_can_have_taken_is_a_stall(sql):
    """A thousand tokens take no 80 s of an engine that computed three thousand in ten."""
    log_of(
        sql,
        "0",
        "12:00:00  1  200  20",
        "12:00:10  1  300  20",
        *(f"12:0{second // 60}:{second % 60:02}  1  0  0" for second in range(20, 90, 10)),
        "12:01:30  1  100  1",
        "12:01:40  0  5  20",
    )
    (silence,) = sql.rows("core.silences").dicts()
    assert (silence["prefill_s"], silence["is_prefill"]) == (1000 / 300, False)
    assert signs(sql, "verdict") == [("engine_stalled",)] * 7


def test_two_stalls_of_the_same_length_do_not_excuse_each_other(sql):
    lines = []
    for minute in (0, 2):
        lines += [f"12:0{minute}:00  1  600  20", f"12:0{minute}:10  1  600  20"]
        lines += [f"12:0{minute + second // 60}:{second % 60:02}  1  0  0" for second in range(20, 90, 10)]
        lines += [f"12:0{minute + 1}:30  1  600  1"]
    log_of(sql, "0", *lines)
    assert [row["is_prefill"] for row in sql.rows("core.silences").dicts()] == [False, False]


def test_counters_tell_how_many_prompts_ended_a_silence(sql):
    """50,000 tokens of one prompt may take 100 s; of a hundred prompts, the first ends the silence."""
    at = [f"12:{second // 60:02}:{second % 60:02}" for second in range(0, 105, 15)]
    counted = {"prompt_tokens": (9000, 50000, 50000), "generation_tokens": (5, 5, 5), "ttft_s_count": (1, 1, 100)}
    given(
        sql,
        "core.engine_states",
        "engine  sampled_at  origin  running  waiting  scrape_s",
        *(f"{engine}  {moment}  metrics  2  0  15" for engine in ("one", "many") for moment in at),
    )
    given(
        sql,
        "core.counter_intervals",
        "engine  signal  labels  interval_start  interval_end  delta  is_reset",
        *(
            f"{engine}  {signal}  -  {start}  {end}  {first if start == at[0] else last if end == at[-1] else 0}  false"
            for signal, (first, one, many) in counted.items()
            for engine, last in (("one", one), ("many", many))
            for start, end in pairwise(at)
        ),
    )
    told = {row["engine"]: (row["prefill_s"], row["is_prefill"]) for row in sql.rows("core.silences").dicts()}
    assert told == {"one": (100, True), "many": (1, False)}
    assert {row["engine"] for row in sql.rows("core.signs").dicts()} == {"many"}


def test_a_start_is_cold_where_first_tokens_took_seconds_that_nobody_waited_for(sql):
    rows = {
        "a": "3  1  0.5  0  true  499",
        "early": "2.9  0.5  0.5  0  true  499",
        "as_later": "3  1.1  0.5  0  true  499",
        "queued": "3  1  0.7  0  true  499",
        "waited": "3  1  0.5  1  true  499",
        "old": "3  1  0.5  0  false  499",
        "long_prompts": "3  1  0.5  0  true  500",
        "z": "3  -  0.5  0  true  -",
    }
    given(
        sql,
        "core.first_token_intervals",
        "engine  first_tokens  interval_start  interval_end  ttft_s  later_ttft_s  queue_s  waiting  is_young  "
        "prompt_tokens_per_s",
        *(f"{engine}  2  12:00:00  12:00:15  {row}" for engine, row in rows.items()),
    )
    assert signs(sql, "engine", "verdict", "weight") == [("a", "cold_start", 6), ("z", "cold_start", 6)]


def test_streams_paused_together_where_they_stood_still_for_a_second(sql):
    given(
        sql,
        "core.request_gaps",
        "engine  stream  gap_index  started_at  ended_at  duration_s",
        "a  7  0  12:00:00  12:00:01  1",
        "b  7  1  12:00:00  12:00:01  0.9",
        "c  7  2  -  -  1",
        "d  7  3  12:00:00  12:00:01  1",
    )
    causes = [f"7  {index}  {'preemption' if index == 3 else 'engine_pause'}" for index in range(4)]
    given(sql, "core.stall_causes", "stream  gap_index  cause", *causes)
    assert signs(sql, "engine", "verdict", "weight") == [("a", "engine_pause", 1)]


def test_a_generation_runs_away_where_a_few_requests_go_on_at_a_single_one_s_speed(sql):
    rows = {"a": "8192  4  17", "short": "8191  4  17", "many": "8192  5  17", "several": "8501  4  17", "z": "8500  4  17"}
    given(
        sql,
        "core.generation_stretches",
        "engine  stretch_start  tokens_per_request  running  stretch_end",
        *(f"{engine}  12:00:00  {row.rsplit(maxsplit=1)[0]}  12:00:{row.split()[-1]}" for engine, row in rows.items()),
    )
    assert signs(sql, "engine", "verdict", "weight") == [("a", "runaway_generation", 8192), ("z", "runaway_generation", 8500)]


def test_load_is_uneven_where_a_rank_has_twice_its_share_and_four_more_than_the_idlest(sql):
    rows = {"a": "true  8  4  4", "share": "true  8  4.1  4", "idlest": "true  8  4  5", "other": "false  8  4  4"}
    given(
        sql,
        "core.rank_loads",
        "engine  sampled_at  is_busiest  running  mean_running  least_running",
        *(f"{engine}  12:00:00  {row}" for engine, row in rows.items()),
    )
    given(sql, "core.engine_states", "engine  sampled_at  scrape_s", *(f"{engine}  12:00:00  10" for engine in rows))
    assert (
        sql.rows("core.signs")
        == """
        engine  verdict    sign_start  sign_end  weight
        a       imbalance  12:00:00    12:00:10  4
        """
    )


# Spells ---------------------------------------------------------------------------------------------------------------------


def test_signs_with_less_than_three_samples_of_calm_between_them_are_one_spell(sql):
    """Ten seconds at least; a long sign covers what begins within it."""
    given(sql, "core.engine_states", "engine  sampled_at  scrape_s", "a  12:00:00  5", "a  12:00:05  5", "a  12:00:10  90")
    given(
        sql,
        "core.signs",
        "engine  verdict  sign_start  sign_end  weight",
        "a  preemption  12:00:00  12:00:01  2",
        "a  preemption  12:00:16  12:00:18  5",
        "a  preemption  12:00:34  12:00:35  1",
        "a  queue_unknown  12:00:20  12:00:21  9",
        "b  preemption  12:00:00  12:00:40  1",
        "b  preemption  12:00:05  12:00:06  1",
        "b  preemption  12:00:50  12:00:51  1",
        "b  preemption  12:01:02  12:01:03  1",
    )
    assert (
        sql.rows("core.spells")
        == """
        engine  verdict        window_start  window_end  peak_at   signs  seconds  weight  peak_weight  weight_seconds
        a       preemption     12:00:00      12:00:18    12:00:16  2      3        7       5            12
        a       preemption     12:00:34      12:00:35    12:00:34  1      1        1       1            1
        a       queue_unknown  12:00:20      12:00:21    12:00:20  1      1        9       9            9
        b       preemption     12:00:00      12:00:51    12:00:00  3      42       3       1            42
        b       preemption     12:01:02      12:01:03    12:01:02  1      1        1       1            1
        """
    )


def test_no_stall_goes_across_a_sample_that_shows_tokens(sql):
    given(
        sql,
        "core.signs",
        "engine  verdict  sign_start  sign_end  weight",
        "a  engine_stalled  12:00:00  12:01:00  1",
        "a  engine_stalled  12:01:05  12:02:05  1",
        "a  engine_stalled  12:02:10  12:02:30  1",
        "a  queue_unknown  12:00:00  12:01:00  1",
        "a  queue_unknown  12:01:05  12:02:05  1",
    )
    given(
        sql,
        "core.silences",
        "engine  silence_start  silence_end  prompt_tokens  prefill_s  is_prefill",
        "a  11:59:55  12:01:03  10  1  false",
    )
    assert (
        sql.rows("core.spells")
        == """
        engine  verdict         window_start  window_end
        a       engine_stalled  12:00:00      12:01:00
        a       engine_stalled  12:01:05      12:02:30
        a       queue_unknown   12:00:00      12:02:05
        """
    )


@pytest.mark.parametrize(("end", "spells"), [("12:00:59", 0), ("12:01:00", 1)])
def test_a_stall_of_the_engine_lasts_a_minute(sql, end, spells):
    given(
        sql,
        "core.signs",
        "engine  verdict  sign_start  sign_end  weight",
        "a  engine_stalled  12:00:00  12:00:50  1",
        f"a  engine_stalled  12:00:55  {end}  1",
    )
    assert len(sql.rows("core.spells").dicts()) == spells
