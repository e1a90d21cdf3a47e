"""Metrics pages without a time: each tells its instant, and their counters what lies between them; a time is never made up."""

from dataclasses import replace

import pytest

PAGE = """
    source  engine  name                                     value
    {name}  0       vllm:num_requests_running                {running}
    {name}  0       vllm:num_requests_waiting                {waiting}
    {name}  0       vllm:kv_cache_usage_perc                 {usage}
    {name}  0       vllm:num_preemptions_total               {preemptions}
    {name}  0       vllm:request_success_total               {finished}
    {name}  0       vllm:generation_tokens_total             {generated}
    {name}  0       vllm:request_queue_time_seconds_sum      80
    {name}  0       vllm:request_queue_time_seconds_count    20
    {name}  0       process_start_time_seconds               {started}
"""
USUAL = {"running": 12, "waiting": 0, "usage": 0.5, "preemptions": 7, "finished": 20, "generated": 900, "started": 1767225600}


def pages(*each):
    """Rows of `raw.metric_samples` of pages, each what it says beside the usual."""
    texts = [PAGE.format(**{**USUAL, "name": "page", **said}).strip().splitlines() for said in each]
    return "\n".join([texts[0][0], *(line for text in texts for line in text[1:])])


def verdicts(sql, *each):
    sql.given("raw.sources", "source  format\npage  prometheus_text\nother  prometheus_text")
    sql.given("raw.metric_samples", pages(*each))
    return sql.rows("advice.verdicts").dicts()


def test_one_page_tells_its_instant_and_what_was_counted_by_then(sql):
    [row] = verdicts(sql, {"waiting": 4, "usage": 0.99})
    assert (row["verdict"], row["window_start"], row["window_end"], row["peak_at"]) == ("queue_kv_capacity", None, None, None)
    assert (row["severity"], float(row["confidence"])) == (25, 0.45)
    assert row["summary"] == (
        "At the one instant seen, whose time is not known, 4 requests waited for room in the KV pool, beside 12 running."
    )
    assert row["evidence"] == [
        "KV usage was 99 %.",
        "The engine has counted 7 preemptions since it started (2026-01-01 00:00:00 UTC), while 20 requests finished.",
        "Since it started requests waited 4.0 s each before their first run, on average.",
    ]
    assert row["evidence_against"][0].startswith("One sample is one instant")
    assert row["missing"][0].startswith("Scrape /metrics again in a minute and give both pages")
    assert [(each["engine"], each["first_seen_at"]) for each in sql.rows("marts.engines").dicts()] == [("0", None)]
    assert sql.rows("marts.timeline").dicts() == []
    assert [each["count_best"] for each in sql.rows("marts.preemptions").dicts()] == [None]
    [fault] = [each for each in sql.rows("marts.data_quality").dicts() if each["source"] == "page"]
    assert (fault["flag"], fault["severity"]) == ("no_clock", "warning")
    assert sql.rows("advice.recommendations").dicts() == []


HAS_PREEMPTED = ", but 7 preemptions were counted since the engine started, and when, no input tells"


@pytest.mark.parametrize(
    ("running", "finished", "verdict", "told"),
    [
        (12, 351, "healthy", "nobody waited"),  # fewer than two in a hundred
        (0, 351, "healthy", "the engine was idle"),
        (12, 350, "insufficient_evidence", "nobody waited" + HAS_PREEMPTED),
    ],
)
def test_a_page_on_which_nobody_waits_says_so_and_whether_the_engine_has_preempted(sql, running, finished, verdict, told):
    [row] = verdicts(sql, {"running": running, "finished": finished})
    assert (row["verdict"], row["severity"]) == (verdict, 0)
    assert row["summary"] == f"At the one instant seen, whose time is not known, {told}."


@pytest.mark.parametrize(
    ("second", "counted", "primary"),
    [
        # of one life, whichever file comes first
        ({"preemptions": 17, "finished": 30, "generated": 1900}, 10, "preemption"),
        ({"preemptions": 2, "finished": 10, "generated": 100}, 5, "preemption"),
        # of two lives, of a life that nobody names, or of two servers: a difference counts nothing
        ({"preemptions": 17, "finished": 30, "generated": 1900, "started": 1767225700}, None, "healthy"),
        ({"preemptions": 17, "finished": 30, "generated": 1900, "started": "NaN"}, None, "healthy"),
        ({"preemptions": 2, "finished": 30, "generated": 1900}, None, "healthy"),
    ],
)
def test_counters_tell_what_lies_between_two_pages_of_one_life(sql, second, counted, primary):
    rows = verdicts(sql, {}, {"name": "other", **second})
    assert [each["count_best"] for each in sql.rows("marts.preemptions").dicts()] == [counted]
    assert rows[0]["verdict"] == primary
    assert {row["window_start"] for row in rows} == {None}


@pytest.mark.parametrize(
    ("loads", "rise", "counted", "seen"),
    [
        # 10 preemptions may have hit one request
        (
            [(12, 0, 0.5), (9, 3, 0.98)],
            10,
            "10 preemptions were",
            "On the pages 12 requests ran and 3 waited at most; KV usage was 98 % at most.",
        ),
        # taken before and after the load: they say nothing of it
        (
            [(0, 0, 0), (0, 0, 0)],
            1,
            "One preemption was",
            "On every page the engine is idle: how full the pool was when it preempted lies",
        ),
    ],
)
def test_what_rose_between_pages_is_told_as_it_was_counted_and_beside_what_the_pages_show(sql, loads, rise, counted, seen):
    first, second = ({"running": running, "waiting": waiting, "usage": usage} for running, waiting, usage in loads)
    rows = verdicts(sql, first, {"name": "other", "preemptions": 7 + rise, "finished": 30, "generated": 1900, **second})
    [row] = [each for each in rows if each["verdict"] == "preemption"]
    assert row["summary"].startswith(f"{counted} counted between the pages")
    assert row["evidence"][0] == f"The counter of preemptions rose by {rise}, while 10 requests finished."
    assert row["evidence"][1].startswith(seen)


@pytest.mark.parametrize(
    ("last", "counted"), [({"preemptions": 9, "generated": 950}, 2), ({"preemptions": 9, "generated": 50}, None)]
)
def test_pages_in_one_file_are_in_its_order(sql, last, counted):
    """One that counts less than the page before it is of another life, be its preemptions as they may."""
    verdicts(sql, {"started": "NaN"}, {"started": "NaN", **last})
    assert [row["page"] for row in sql.rows("core.untimed_pages").dicts()] == [1, 2]
    assert [each["count_best"] for each in sql.rows("marts.preemptions").dicts()] == [counted]


def test_a_page_says_nothing_of_a_window_that_was_asked_for(sql):
    sql.run = replace(sql.run, since="2026-01-01T12:00:00Z")
    [row] = verdicts(sql, {"waiting": 4})
    assert row["verdict"] == "insufficient_evidence"


def test_a_scrape_with_a_time_is_used_alone(sql):
    timed = pages({"name": "other"}).splitlines()
    sql.given("raw.sources", "source  format\npage  prometheus_text\nother  prometheus_text")
    header = f"{timed[0]}  at_utc"
    rows = [f"{line}  12:00:00" for line in timed[1:]] + [f"{line}  -" for line in pages({"waiting": 9}).splitlines()[1:]]
    sql.given("raw.metric_samples", "\n".join([header, *rows]))
    assert sql.rows("core.untimed_pages").dicts() == []
    [row] = sql.rows("advice.verdicts").dicts()
    assert row["summary"] == f"At the one instant seen nobody waited{HAS_PREEMPTED}."


@pytest.mark.parametrize(("waiting", "told"), [("1", "1 waited beside 30 running"), ("-", "30 ran")])
def test_an_instant_of_an_engine_that_has_preempted_has_a_verdict_whoever_waits(sql, waiting, told):
    """Too few wait for a finding that matters, or who waits is not told: without this it would have none."""
    sql.given("raw.sources", "source  format\npage  prometheus_text")
    header, *lines = pages({"waiting": waiting, "running": 30}).splitlines()
    sql.given("raw.metric_samples", "\n".join([f"{header}  at_utc", *(f"{line}  12:00:00" for line in lines)]))
    [main] = [row for row in sql.rows("advice.verdicts").dicts() if row["is_primary"]]
    assert (main["verdict"], main["summary"]) == ("insufficient_evidence", f"At the one instant seen {told}{HAS_PREEMPTED}.")


# beside a log, which says how the load was and nothing of preemption

NOON, MIDNIGHT = 1767268800, 1767225600  # of the day of the log


def beside_a_log(sql, *each, at_utc="-"):
    sql.given("raw.sources", "source  format  engine_kind\npage  prometheus_text  vllm\nserver.log  vllm_engine_log  vllm")
    sql.given("raw.engine_events", "source  line  at_utc  event\nserver.log  1  12:00:30  engine_start")
    load = {10: "8 0 0.5", 20: "12 5 0.97", 30: "12 9 0.99", 40: "9 2 0.95", 50: "1 0 0.2"}
    rows = [f"server.log  {second}  12:01:{second}  {'  '.join(told.split())}" for second, told in load.items()]
    sql.given("raw.engine_samples", "\n".join(["source  line  at_utc  running  waiting  kv_usage_ratio", *rows]))
    header, *lines = pages(*each).splitlines()
    sql.given("raw.metric_samples", "\n".join([f"at_utc  {header.strip()}", *(f"{at_utc}  {line.strip()}" for line in lines)]))
    [counted] = sql.rows("marts.preemptions").dicts()
    bounds = [counted[f"count_{bound}"] for bound in ("low", "best", "high")]
    found = {row["verdict"]: row for row in sql.rows("advice.verdicts").dicts()}
    return bounds, (counted["told_by"] or "").partition(", ")[2], found


@pytest.mark.parametrize("at_utc", ["-", "12:01:55"])
def test_a_page_beside_a_log_of_its_engine_s_start_counts_the_least_that_there_were(sql, at_utc):
    bounds, told_by, found = beside_a_log(sql, {"started": NOON}, at_utc=at_utc)
    assert (bounds, told_by) == ([7, None, None], "from the start to the last page there is")
    row = found["preemption"]
    assert (str(row["window_start"])[11:19], str(row["window_end"])[11:19], row["is_primary"]) == ("12:01:20", "12:01:50", True)
    assert (
        row["summary"] == "At least 7 preemptions were counted since the engine started: running requests lost their KV blocks."
    )
    assert [sentence for sentence in row["evidence"] if "7" in sentence] == [
        "The engine has counted 7 preemptions since it started (2026-01-01 12:00:00 UTC), while 20 requests finished."
    ]
    assert row["evidence_against"][0].startswith(
        "When they were, no input tells: the time is that in which the log shows the pool nearly"
    )
    assert "queue_kv_capacity" in found
    assert sql.rows("advice.recommendations").dicts()[0]["verdict"] == "preemption"


def test_what_an_engine_counted_since_a_start_that_no_log_shows_is_not_of_the_run(sql):
    bounds, _, found = beside_a_log(sql, {"started": MIDNIGHT})
    assert bounds == [None, None, None]
    assert "preemption" not in found


def test_a_count_of_none_since_the_start_is_no_preemption_by_then(sql):
    bounds, _, found = beside_a_log(sql, {"started": NOON, "preemptions": 0})
    assert bounds == [0, None, None]
    assert "preemption" not in found


def test_what_rose_between_pages_of_one_life_is_told_beside_a_log_as_without(sql):
    two = {"started": MIDNIGHT, "preemptions": 9, "finished": 40, "generated": 2000}
    bounds, told_by, found = beside_a_log(sql, {"started": MIDNIGHT}, two)
    assert (bounds, told_by) == ([2, 2, 2], "between pages whose times are not known")
    assert found["preemption"]["summary"].startswith(
        "2 preemptions were counted between the metrics pages, whose times are not known"
    )


def test_two_pages_beside_a_log_say_their_count_once(sql):
    """All that the engine ever counted lies between the pages, of which the first was taken before the load."""
    two = {"started": MIDNIGHT, "preemptions": 9, "finished": 40, "generated": 2000}
    _, _, found = beside_a_log(sql, {"started": MIDNIGHT, "preemptions": 0}, two)
    assert [sentence for sentence in found["preemption"]["evidence"] if "preemptions" in sentence] == [
        "The engine has counted 9 preemptions since it started (2026-01-01 00:00:00 UTC), while 40 requests finished."
    ]
    _, _, found = beside_a_log(sql, {"started": MIDNIGHT}, two)
    assert [sentence for sentence in found["preemption"]["evidence"] if "preemptions" in sentence] == [
        "The counter of preemptions rose by 2, while 20 requests finished.",
        "The engine has counted 9 preemptions since it started (2026-01-01 00:00:00 UTC), while 40 requests finished.",
    ]
