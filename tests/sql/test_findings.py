"""What a spell amounts to: how bad, how sure, and the sentences that are said or left out. Numbers are worked out by hand.

A delay of a second a request is felt at 63 % (1 - 1/e), one of two at 86 %; times the root of its share of the requests' time.
"""

import re

import pytest

from tests.typed_tables import Sql

PLACE = {"engine": "0", "window_start": "12:00:00", "window_end": "12:01:40", "peak_at": "12:00:00"}


@pytest.fixture
def sql():
    """What a test does not give is empty; the findings of each kind are made, and what rules a preemption out."""
    return Sql(is_made=lambda table: table.startswith("advice.findings_of_") or table == "core.resumes")


def spells(sql, *rows):
    """Facts of spells, each as a dict; what a spell does not say is not known."""
    facts = [PLACE | row for row in rows]
    names = list(dict.fromkeys(name for row in facts for name in row))
    sql.given(
        "marts.spell_facts",
        "\n".join("  ".join(map(str, row)) for row in [names, *([f.get(n, "-") for n in names] for f in facts)]),
    )


def findings(sql, *columns):
    return [tuple(row[column] for column in columns) for row in sql.rows("advice.findings").dicts()]


def finding(sql, verdict, **facts):
    """The one finding of one spell."""
    spells(sql, {"verdict": verdict} | facts)
    [row] = sql.rows("advice.findings").dicts()
    return row | {"confidence": float(row["confidence"])}


def said(row):
    return " ".join([row["summary"], *row["evidence"]])


def wasted(sql, *rows):
    columns = "engine  kind  tokens_low  tokens_best  tokens_high  share_best  method  told_by"
    sql.given("marts.waste", "\n".join([columns, *(f"0  {row}" for row in rows)]))


# Preemption -----------------------------------------------------------------------------------------------------------------


NOT_COUNTED = "What share of all tokens was processed again is not told, and not in the severity: it may be worse."


@pytest.mark.parametrize(("share", "severities"), [(0.05, [9.5, 25.9]), (0.4, [30.0, 90.0])])
def test_preemption_is_as_bad_as_who_was_hit_or_what_was_repeated(sql, share, severities):
    """A tenth and three tenths of the requests hit; the run's repeated share goes to its spells by their preemptions."""
    wasted(sql, f"preemption_recompute  1  2  3  {share}  replay  replay", "prefix_refill  1  2  3  0.9  kv_events  events")
    later = {"window_start": "12:05:00", "window_end": "12:06:00"}
    spells(
        sql,
        {"verdict": "preemption", "weight": 10, "first_tokens": 100},
        {"verdict": "preemption", "weight": 30, "first_tokens": 100} | later,
    )
    assert findings(sql, "severity") == [(each,) for each in severities]


@pytest.mark.parametrize(
    ("facts", "requests", "severity"),
    [
        ({"first_tokens": 20, "max_running": 1, "max_waiting": 1}, 5, 39.3),
        ({"max_running": 8, "max_waiting": 2}, 5, 63.2),
        ({}, 5, 86.5),
        ({}, 0, 100.0),
        ({"first_tokens": 0}, 5, 100.0),
    ],
)
def test_requests_that_nothing_counts_are_those_seen_in_the_house(sql, facts, requests, severity):
    rows = [f"{number}  0" for number in range(requests)]
    sql.given("core.requests", "\n".join(["request_key  engine", *rows]))
    assert finding(sql, "preemption", weight=10, **facts)["severity"] == severity


MISSED = (
    "The samples in it (4) show the pool 48 % full at most, and up to 3 running: it was fuller between them. Scrape more often."
)


@pytest.mark.parametrize(
    ("samples", "usage", "told"),
    [
        (5, 0.48, "KV usage reached 48 % with 2 requests running on average."),
        (
            4,
            0.48,
            MISSED,
        ),
        (4, 0.9, "KV usage reached 90 %."),
    ],
)
def test_what_few_samples_missed_is_said_and_not_taken_for_what_was(sql, samples, usage, told):
    row = finding(sql, "preemption", weight=4, samples=samples, max_kv_usage_ratio=usage, mean_running=2, max_running=3)
    assert [each for each in row["evidence"] + row["evidence_against"] if "KV usage" in each or "samples" in each] == [told]


def test_preemption_says_what_it_knows_and_what_would_tell_more(sql):
    bare = finding(sql, "preemption", weight=4)
    assert (bare["confidence"], bare["evidence"]) == (0.97, ["The engine counted 4 preemptions."])
    sql.given("marts.preemptions", "engine  count_low\n0  9")
    assert finding(sql, "preemption", weight=4)["evidence"] == ["The engine counted 4 preemptions in this time, 9 over the run."]
    assert bare["evidence_against"] == [NOT_COUNTED]
    [bound] = finding(sql, "preemption", weight=4, max_running=3, max_waiting=5)["evidence_against"]
    assert bound.endswith("the severity is set against the 8 that ran or waited at most, and may be less.")
    assert [sentence.split(":")[0] for sentence in bare["missing"]] == ["How many tokens were repeated", "Whose answers paused"]
    wasted(sql, "preemption_recompute  10  20  30  -  v0_log  the log")
    shareless = finding(sql, "preemption", weight=4)
    assert "Over the run 20 tokens were processed again (between 10 and 30). Told by the log." in shareless["evidence"]
    assert shareless["evidence_against"] == [NOT_COUNTED]
    wasted(sql, "preemption_recompute  10  20  30  0.75  replay  a replay")
    full = finding(
        sql, "preemption", weight=4, first_tokens=50, samples=5, max_kv_usage_ratio=0.99, mean_running=12, paused_s=7.5,
        paused_requests=1, longest_pause_s=2, max_waiting=1,
    )  # fmt: skip
    assert "; 1 of the answers seen paused, the longest for" in full["summary"]
    assert full["evidence"][1:] == [
        "KV usage reached 99 % with 12 requests running on average.",
        "Over the run 20 tokens were processed again (between 10 and 30): 75 % of all tokens computed. Told by a replay.",
        "0.08 preemptions per request that got its first token.",
        "Client streams stood still for 7.5 s in all.",
        "Who is preempted waits to run again in the same queue as new requests: it held up to 1 meanwhile.",
    ]
    assert full["evidence_against"] == ["Only 8 % of requests were hit: mild."]
    assert full["missing"] == []
    calm = finding(sql, "preemption", weight=5, first_tokens=50, paused_requests=0, max_waiting=0)
    assert "paused" not in said(calm)
    assert "queue" not in said(calm)
    assert calm["evidence_against"] == []


@pytest.mark.parametrize(
    ("engine", "said_of"),
    [
        (
            "vllm  v1",
            {"--kv-events-config", "--enable-logging-iteration-details", "--kv-cache-metrics", "--otlp-traces-endpoint"},
        ),
        ("-  -", {"--kv-events-config", "--enable-logging-iteration-details", "--kv-cache-metrics", "--otlp-traces-endpoint"}),
        ("vllm  v0", {"--otlp-traces-endpoint"}),
        ("sglang  -", {"--enable-metrics", "--kv-events-config", "--export-metrics-to-file", "--decode-log-interval"}),
        ("tensorrt_llm  -", {"print_iter_log"}),
        ("llamacpp  -", set()),
    ],
)
def test_what_would_tell_more_is_told_by_the_flags_of_the_engine_at_hand(sql, engine, said_of):
    sql.given("core.engines", f"engine  engine_kind  engine_generation\n0  {engine}")
    told = [finding(sql, verdict, weight=4, first_tokens=20)["missing"] for verdict in ("preemption", "engine_pause")]
    told.append(finding(sql, "prefix_eviction", **MISSED)["missing"])
    sentences = [sentence for missing in told for sentence in missing]
    assert len(sentences) == 4
    assert set(re.findall(r"--[a-z-]+|print_iter_log", " ".join(sentences))) == said_of


def test_without_prefix_caching_there_are_no_kv_events_to_record(sql):
    sql.given("core.engines", "engine  engine_kind  prefix_caching\n0  vllm  false")
    assert finding(sql, "preemption", weight=4)["missing"][0].endswith(
        "record iteration lines (--enable-logging-iteration-details)."
    )


def test_what_v0_swapped_out_was_moved_and_not_computed_again(sql):
    sql.given("staging.engine_samples", "engine  sampled_at  swapped\n0  12:00:00  3\n0  12:00:10  5")
    assert "Up to 5 requests at once lay swapped out" in finding(sql, "preemption", weight=4)["evidence"][-1]
    sql.given("staging.engine_samples", "engine  sampled_at  swapped\n0  12:00:00  0")
    assert "swapped" not in said(finding(sql, "preemption", weight=4))
    scraped = ["0  12:00:00  vllm:num_requests_swapped  1", "0  12:00:00  vllm:num_requests_running  9"]
    sql.given("staging.metric_samples", "\n".join(["engine  sampled_at  name  value", *scraped]))
    assert "Up to 1 requests at once lay swapped out" in finding(sql, "preemption", weight=4)["evidence"][-1]


# Queues ---------------------------------------------------------------------------------------------------------------------


def test_requests_that_failed_for_lack_of_room_are_worse_than_a_wait(sql):
    """Three of six within the window, its ends included; there is no second finding of the same wait."""
    header = "engine  failed_at  requests  of_requests\n"
    at = header + "0  12:00:00  2  6\n0  12:01:40  1  6\n0  12:01:41  9  6\n0  11:59:59  9  6"
    sql.given("core.failed_requests", at)
    facts = {"queued_s": 20, "queued_requests": 10, "e2e_s": 80}
    sql.given("core.engines", "engine  engine_kind\n0  llamacpp")
    row = finding(sql, "queue_kv_capacity", **facts)
    assert (row["severity"], row["confidence"]) == (80, 0.97)
    assert "3 of 6 requests FAILED" in row["summary"]
    assert "llama.cpp has no preemption" in said(row)
    assert row["title"] == "Requests failed for lack of KV room"
    waited = finding(sql, "queue_unknown", **facts)
    assert (waited["severity"], waited["title"]) == (43.2, None)
    sql.given("core.failed_requests", header + "0  12:00:30  2  -")
    sql.given("core.engines", "engine  engine_kind\n0  vllm")
    row = finding(sql, "queue_kv_capacity", **facts)
    assert row["severity"] == 60
    assert "llama.cpp" not in said(row)


def test_a_queue_is_as_bad_as_its_requests_waited(sql):
    """Two seconds each, a quarter of their time; without a histogram by how many of those in the house wait, and for how long."""
    assert finding(sql, "queue_unknown", queued_s=20, queued_requests=10, e2e_s=80)["severity"] == 43.2
    assert finding(sql, "queue_unknown", seconds=5, mean_waiting=3, mean_running=9)["severity"] == 19.7


def test_a_queue_that_one_sample_alone_shows_is_a_state_and_no_duration(sql):
    """A quarter of those in the house: half of the worst it can be, half as sure, and no word of a time or a count of waits."""
    row = finding(
        sql, "queue_kv_capacity", seconds=0, mean_waiting=4, max_waiting=4, mean_running=12, max_running=12,
        mean_kv_usage_ratio=0.98, max_kv_usage_ratio=0.98,
    )  # fmt: skip
    assert (row["severity"], row["confidence"]) == (25, 0.45)
    assert row["summary"] == "At the one instant seen, 4 requests waited for room in the KV pool, beside 12 running."
    assert row["evidence"] == ["KV usage was 98 %."]
    assert row["evidence_against"][0].startswith("One sample is one instant")
    assert row["missing"][0].startswith("Two samples at least")


@pytest.mark.parametrize(
    ("verdict", "source", "confidence"),
    [
        ("queue_max_num_seqs", "argument", 0.95),
        ("queue_max_num_seqs", "inferred", 0.75),
        ("queue_kv_capacity", "argument", 0.9),
        ("queue_deferred", "-", 0.9),
        ("queue_token_budget", "-", 0.7),
        ("queue_unknown", "-", 0.5),
    ],
)
def test_a_queue_s_cause_is_as_sure_as_what_tells_it(sql, verdict, source, confidence):
    sql.engines(f"engine  max_num_seqs  max_num_seqs_source\n0  16  {source}")
    row = finding(sql, verdict, seconds=5, mean_waiting=3, mean_running=9, max_kv_usage_ratio=0.5)
    assert row["confidence"] == confidence
    assert ("max_num_seqs is 16 (the engine's own arguments)" in said(row)) == (source == "argument")
    assert ("taken for max_num_seqs" in said(row)) == (source == "inferred")
    assert ("one of the 16 batch slots" in said(row)) == (verdict == "queue_max_num_seqs")
    assert ("told by exclusion" in " ".join(row["evidence_against"])) == (verdict == "queue_token_budget")


WAITED = {"seconds": 5, "mean_waiting": 3, "mean_running": 9, "max_waiting": 4, "max_running": 10}


@pytest.mark.parametrize(
    ("verdict", "engine", "facts", "sentence"),
    [
        ("queue_max_num_seqs", "vllm", {"max_kv_usage_ratio": 0.79}, "while the KV pool had room"),
        ("queue_kv_capacity", "vllm", {"preemptions": 1}, "; preempted requests waited among them to run again, once."),
        ("queue_kv_capacity", "vllm", {"preemptions": 1520}, "among them to run again, 1,520 times."),
        ("queue_kv_capacity", "vllm", {"preemptions": 0}, "No preemption was counted"),
        ("queue_unknown", "sglang", {"max_kv_usage_ratio": 0.89}, "this engine admits by what a request may still generate"),
        ("queue_unknown", "tensorrt_llm", {"max_kv_usage_ratio": 0.89}, "this engine admits by what a request may still"),
        ("queue_unknown", "vllm", {}, "Up to 4 requests were seen waiting, and 10 running."),
        ("queue_unknown", "vllm", {"queued_s": 30, "queued_requests": 12, "e2e_s": 120}, "had waited 2.50 s each before"),
        ("queue_unknown", "vllm", {"queued_s": 30, "queued_requests": 12, "e2e_s": 120}, "25 % of their whole latency"),
        ("queue_unknown", "vllm", {"mean_kv_usage_ratio": 0.6, "max_kv_usage_ratio": 0.8}, "60 % on average, 80 % at most"),
    ],
)
def test_a_queue_says_what_holds_of_it(sql, verdict, engine, facts, sentence):
    sql.given("core.engines", f"engine  engine_kind\n0  {engine}")
    assert sentence in said(finding(sql, verdict, **WAITED, **facts))


@pytest.mark.parametrize(
    ("verdict", "engine", "facts", "sentence"),
    [
        ("queue_max_num_seqs", "vllm", {"max_kv_usage_ratio": 0.8}, "while the KV pool had room"),
        ("queue_unknown", "vllm", {"max_kv_usage_ratio": 0.7}, "while the KV pool had room"),
        ("queue_kv_capacity", "vllm", {"preemptions": 0.4}, "preempted requests"),
        ("queue_unknown", "vllm", {"preemptions": 2}, "preempted requests"),
        ("queue_kv_capacity", "vllm", {"preemptions": 1}, "No preemption was counted"),
        ("queue_unknown", "vllm", {"preemptions": 0}, "No preemption was counted"),
        ("queue_unknown", "sglang", {"max_kv_usage_ratio": 0.9}, "this engine admits"),
        ("queue_unknown", "vllm", {"max_kv_usage_ratio": 0.5}, "this engine admits"),
        ("queue_deferred", "sglang", {"max_kv_usage_ratio": 0.5}, "this engine admits"),
    ],
)
def test_a_queue_does_not_say_what_does_not_hold_of_it(sql, verdict, engine, facts, sentence):
    sql.given("core.engines", f"engine  engine_kind\n0  {engine}")
    assert sentence not in said(finding(sql, verdict, **WAITED, **facts))


@pytest.mark.parametrize(
    ("engine", "facts", "missing"),
    [
        ("sglang", {}, ["--export-metrics-to-file", "max_running_requests"]),
        ("llamacpp", {}, ["keep the clients' results", "parallel"]),
        ("vllm", {}, ["vllm:request_queue_time_seconds", "max_num_seqs"]),
        ("vllm", {"queued_requests": 5}, ["max_num_seqs"]),
    ],
)
def test_a_queue_of_unknown_cause_says_what_would_tell_it(sql, engine, facts, missing):
    sql.given("core.engines", f"engine  engine_kind\n0  {engine}")
    sentences = finding(sql, "queue_unknown", **WAITED, **facts)["missing"]
    assert len(sentences) == len(missing)
    assert all(word in sentence for word, sentence in zip(missing, sentences, strict=True))
    sql.engines(f"engine  engine_kind  max_num_seqs\n0  {engine}  8")
    assert len(finding(sql, "queue_unknown", **WAITED, **facts)["missing"]) == len(missing) - 1


@pytest.mark.parametrize(
    ("seconds", "waited", "severity"),
    [
        # answers of 30 s that ended within a queue of 14 s had come before it: 28 waiting beside 252 are told by what was seen
        (14, {"queued_s": 0, "queued_requests": 10, "e2e_s": 300}, 23.8),
        (14, {"queued_s": 100, "queued_requests": 10, "e2e_s": 300}, 57.7),
        # within one of a minute they are of it, and so they are by their own records
        (60, {"queued_s": 0, "queued_requests": 10, "e2e_s": 300}, 0.0),
        (14, {"queued_s": 0, "queued_requests": 10, "e2e_s": 300, "is_wait_recorded": "true"}, 0.0),
    ],
)
def test_who_ended_in_a_short_queue_does_not_speak_for_who_waited_in_it(sql, seconds, waited, severity):
    row = finding(sql, "queue_max_num_seqs", seconds=seconds, mean_waiting=28, mean_running=252, max_kv_usage_ratio=0.5, **waited)
    assert row["severity"] == severity
    assert any("had mostly come before it" in each for each in row["evidence_against"]) == (severity > 0)


def test_the_preempted_among_the_waiting_are_said_beside(sql):
    """Preemptions are counted, and not whom they hit: one request may be preempted again and again."""
    for preemptions, counted in ((3, "3 preemptions put"), (1.2, "one preemption put")):
        [sentence] = finding(sql, "queue_kv_capacity", **WAITED, preemptions=preemptions)["evidence_against"]
        assert sentence == f"Part of the waiting had run before: {counted} them back into the queue."
    for preemptions in (0, 0.4):
        assert finding(sql, "queue_kv_capacity", **WAITED, preemptions=preemptions)["evidence_against"] == []
    assert finding(sql, "queue_unknown", **WAITED, preemptions=3)["evidence_against"] == []


# Prefixes -------------------------------------------------------------------------------------------------------------------

MISSED = {"first_tokens": 20, "missed_tokens": 25, "queried_tokens": 100, "hit_tokens": 40, "best_hit_ratio": 0.65}


def test_eviction_is_as_bad_as_the_share_that_was_missed(sql):
    """A quarter of the looked-up tokens; of what KV events say was not there before, nothing counts."""
    row = finding(sql, "prefix_eviction", **MISSED, preemptions=0, max_kv_usage_ratio=0.5)
    assert (row["severity"], row["confidence"]) == (50, 0.65)
    assert "40 % of looked-up prompt tokens were found, 65 % at best before" in row["summary"]
    assert "No preemption was counted." in row["evidence"]
    assert (len(row["evidence_against"]), len(row["missing"])) == (1, 1)
    wasted(sql, "prefix_refill  1  12.5  30  0.2  kv_events  KV events", "preemption_recompute  1  1  1  0.2  replay  replay")
    row = finding(sql, "prefix_eviction", **MISSED, preemptions=1)
    assert (row["severity"], row["confidence"]) == (35.4, 0.95)
    assert (row["evidence_against"], row["missing"]) == ([], [])
    assert "No preemption was counted." not in row["evidence"]
    wasted(sql, "prefix_refill  1  99  130  0.2  capacity_bound  counters")
    row = finding(sql, "prefix_eviction", **MISSED)
    assert (row["severity"], row["confidence"]) == (50, 0.65)
    wasted(sql, "prefix_refill  1  25  30  0.2  kv_events  KV events")  # of two spells, then
    spells(sql, *({"verdict": "prefix_eviction", "window_start": start} | MISSED for start in ("12:00:00", "12:01:00")))
    assert findings(sql, "severity") == [(35.4,), (35.4,)]


@pytest.mark.parametrize(
    ("refilled", "recomputed", "severity"),
    [
        ("prefix_refill  1  25  30  0.2  kv_events  KV events", "preemption_recompute  1  24  25  0.1  replay  replay", 50),
        ("prefix_refill  1  25  30  0.2  kv_events  KV events", "preemption_recompute  1  25  26  0.1  replay  replay", 15),
        ("prefix_refill  1  25  30  0.2  kv_events  KV events", "preemption_recompute  -  -  -  -  none  -", 15),
        ("prefix_refill  1  99  130  0.2  capacity_bound  counters", "preemption_recompute  1  1  2  0.1  replay  replay", 15),
    ],
)
def test_beside_preemption_eviction_is_the_lesser_half_unless_more_was_computed_again(sql, refilled, recomputed, severity):
    wasted(sql, refilled, recomputed)
    spells(sql, {"verdict": "prefix_eviction"} | MISSED, {"verdict": "preemption", "weight": 3})
    assert findings(sql, "verdict", "severity")[-1] == ("prefix_eviction", severity)


def test_eviction_is_told_with_what_the_engine_itself_says_of_its_blocks_and_its_tier(sql):
    """Over the run, which is two minutes of this."""
    counted = {
        "block_idle_before_evict_s_sum": 30,
        "block_idle_before_evict_s_count": 15,
        "evicted_tokens": 2048,
        "external_prefix_queries": 450,
        "external_prefix_hits": 0,
    }
    rows = [f"0  {signal}  -  12:0{at}:00  12:0{at + 1}:00  {delta}" for signal, delta in counted.items() for at in (0, 1)]
    sql.given("core.counter_intervals", "\n".join(["engine  signal  labels  interval_start  interval_end  delta", *rows]))
    row = finding(sql, "prefix_eviction", **MISSED)
    assert row["evidence"][-2:] == [
        "The engine counted 4,096 tokens of blocks that it reclaimed over the run.",
        "Reclaimed blocks had lain idle for 2.0 s on average.",
    ]
    assert row["evidence_against"][-1] == "A tier behind the pool was asked for 900 tokens over the run and had none of them."
    idle = "engine  signal  labels  interval_start  interval_end  delta\n0  external_prefix_queries  -  12:00:00  12:01:00  0"
    sql.given("core.counter_intervals", idle)
    assert "A tier" not in " ".join(finding(sql, "prefix_eviction", **MISSED)["evidence_against"])


def test_a_prefix_that_was_never_found_often_is_told_by_kv_events_alone(sql):
    """A twentieth more in a better time is a fall; with less, no better time is named. A full pool leaves no rest to be cache."""
    wasted(sql, "prefix_refill  1  25  30  0.2  kv_events  KV events")
    row = finding(sql, "prefix_eviction", **MISSED | {"best_hit_ratio": 0.44}, max_kv_usage_ratio=0.95)
    assert row["summary"].endswith("40 % of looked-up prompt tokens were found.")
    assert row["evidence"] == [
        "Active requests held up to 95 % of the pool: what was kept for reuse had to make way.",
        "25 tokens of blocks removed earlier were stored again over the run, told by KV events.",
    ]
    row = finding(sql, "prefix_eviction", **MISSED | {"best_hit_ratio": 0.45}, max_kv_usage_ratio=0.94)
    assert row["summary"].endswith("40 % of looked-up prompt tokens were found, 45 % at best before.")
    assert row["evidence"][0].endswith("the rest was cache, and it was written over.")


def test_a_hit_ratio_over_few_prompts_is_chance(sql):
    spells(sql, {"verdict": "prefix_eviction"} | MISSED | {"first_tokens": 19})
    assert findings(sql, "verdict") == []


@pytest.mark.parametrize(
    ("engine", "start", "end", "severity"),
    [
        ("0", "12:01:40", "12:02:00", 15),
        ("0", "11:59:00", "12:00:00", 15),
        ("0", "12:01:41", "12:02:00", 50),
        ("0", "11:59:00", "11:59:59", 50),
        ("1", "12:00:00", "12:01:00", 50),
    ],
)
def test_where_requests_are_preempted_in_the_same_time_the_cache_goes_first(sql, engine, start, end, severity):
    preempted = {"verdict": "preemption", "weight": 1, "engine": engine, "window_start": start, "window_end": end}
    spells(sql, {"verdict": "prefix_eviction"} | MISSED, preempted)
    [row] = [row for row in sql.rows("advice.findings").dicts() if row["verdict"] == "prefix_eviction"]
    assert row["severity"] == severity
    assert len(row["evidence_against"]) == (2 if severity == 15 else 1)


LOW = "1000  100  0.1  0.38  20  20  280  20000"
FALLS = {  # scrapes: looked-up tokens, of these found, ratio of near ones, best before, lookups, near lookups, missed, written
    "half of the hits are gone": [LOW],
    "and they come back": [LOW, "4000  1500  0.3  0.38  80  100  20  20500", "1000  100  0.1  0.38  20  20  280  21000"],
    "less than half": ["1000  195  0.195  0.38  20  20  185  20000"],
    "few prompts": ["500  50  0.1  0.38  19  19  140  20000"],
    "the pool has room": ["1000  100  0.1  0.38  20  20  280  10000"],
    "there was little to lose": ["1000  20  0.02  0.16  20  20  140  20000"],
}


@pytest.mark.parametrize(("load", "severity"), [(load, 5.3 if "gone" in load else None) for load in FALLS])
def test_a_fall_of_hits_that_is_no_sign_is_a_remark_until_something_tells(sql, load, severity):
    rows = [f"0  10000  12:0{at}:00  12:0{at + 1}:00  {row}" for at, row in enumerate(FALLS[load])]
    columns = "queried_tokens  hit_tokens  hit_ratio  best_hit_ratio  lookups  near_lookups  missed_tokens  written_tokens"
    intervals = "\n".join([f"engine  kv_capacity_tokens  interval_start  interval_end  {columns}", *rows])
    sql.given("core.prefix_intervals", intervals)
    assert findings(sql, "verdict", "severity") == ([("prefix_eviction", severity)] if severity else [])
    if severity:
        [row] = sql.rows("advice.findings").dicts()
        assert row["confidence"] < 0.5
        assert row["missing"][0].startswith("Why the prefix cache found 10 % of looked-up prompt tokens after 38 %. KV events")
        wasted(sql, "prefix_refill  1  1  1  0.2  kv_events  KV events")
        assert findings(sql, "verdict") == []
        wasted(sql, "prefix_refill  0  -  9  -  capacity_bound  counters")
        spells(sql, {"verdict": "prefix_eviction"} | MISSED)
        assert findings(sql, "severity") == [(50,)]  # the sign says it


@pytest.mark.parametrize(
    ("ratios", "severity"),
    [((0.8, 0.7, 0.4), 6.3), ((0.8, 0.7, 0.41), None), ((0.2, 0.06), None), ((0.4, 0.8), None), ((0.9, 0.3, 0.6), 7.7)],
)
def test_a_log_s_share_of_hits_that_halves_is_a_remark_until_something_counts_them(sql, ratios, severity):
    rows = [f"server.log  {at}  0  12:0{at}:00  {ratio}" for at, ratio in enumerate(ratios)]
    sql.given("staging.engine_samples", "\n".join(["source  line  engine  sampled_at  prefix_hit_ratio", *rows]))
    sql.given("core.engines", "engine  engine_kind  engine_generation\n0  vllm  v1")
    assert findings(sql, "verdict", "severity") == ([("prefix_eviction", severity)] if severity else [])
    if severity == 6.3:
        [row] = sql.rows("advice.findings").dicts()
        assert (str(row["window_start"])[11:16], str(row["window_end"])[11:16]) == ("12:00", "12:02")
        assert row["missing"][0].startswith("Why the log's share of prompt tokens found in the prefix cache fell from 80 to 40 %")
        sql.given("core.prefix_intervals", "engine  interval_start  hit_ratio\n0  12:00:00  0.8")
        assert findings(sql, "verdict") == []


# Look-alikes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "preemptions", "confidence"), [(0.89, "-", 0.85), (0.89, 0, 0.85), (0.9, 0, 0.6), (0.89, 1, 0.6), (0.9, 1, 0.6)]
)
def test_interference_is_surer_where_nobody_was_preempted(sql, usage, preemptions, confidence):
    row = finding(
        sql, "prefill_interference", weight=10, first_tokens=10, decode_s=40, prompt_tokens=900, max_kv_usage_ratio=usage,
        preemptions=preemptions,
    )  # fmt: skip
    assert (row["severity"], row["confidence"]) == (31.6, confidence)
    assert "25 % of the time between tokens" in row["summary"]
    assert "900 prompt tokens were computed meanwhile, 90 a request." in row["evidence"]
    assert f"KV usage at most {100 * usage:.0f} %." in row["evidence"]
    assert ("nobody lost KV state" in said(row)) == (preemptions == 0)
    assert len(row["evidence_against"]) == (preemptions == 1)


def test_interference_is_felt_by_the_request_and_takes_no_more_than_all_of_the_time(sql):
    assert finding(sql, "prefill_interference", weight=1, first_tokens=1, decode_s=4)["severity"] == 31.6
    row = finding(sql, "prefill_interference", weight=60, first_tokens=10, decode_s=40)
    assert "100 % of the time between tokens" in row["summary"]


def test_slow_decoding_and_a_cold_start_are_felt_by_the_request(sql):
    load = {"mean_running": 7, "mean_waiting": 0, "max_kv_usage_ratio": 0.8}
    row = finding(sql, "decode_slow", decode_s=20, first_tokens=10, generation_tokens=100, **load)
    assert (row["severity"], row["confidence"]) == (61.1, 0.5)
    assert row["evidence"] == ["KV usage at most 80 %, 0 requests waiting on average."]
    assert "0.20 s between tokens at 7 running" in row["summary"]
    assert finding(sql, "decode_slow", decode_s=2, first_tokens=1)["severity"] == 61.1
    assert finding(sql, "decode_slow", decode_s=20, first_tokens=0)["severity"] == 70.7
    row = finding(sql, "cold_start", weight=20, first_tokens=10, mean_running=3, max_kv_usage_ratio=0.8)
    assert (row["severity"], row["confidence"]) == (77.3, 0.75)
    assert "first tokens of its first requests took 2.0 s on average" in row["summary"]
    assert row["evidence"][1] == "KV usage at most 80 %."
    assert finding(sql, "cold_start", weight=2, first_tokens=1)["severity"] == 77.3
    assert finding(sql, "cold_start", weight=20, first_tokens=0)["severity"] == 89.4


def test_a_pause_is_felt_by_what_it_adds_to_all_of_the_run_s_requests(sql):
    counted = "engine  signal  labels  interval_start  interval_end  delta  is_reset"
    sql.given(
        "core.counter_intervals",
        "\n".join(
            [counted]
            + [
                f"0  {signal}  -  12:0{minute}:00  12:0{minute + 1}:00  {delta}  false"
                for minute in range(2)
                for signal, delta in (("ttft_s_count", 5), ("itl_s_sum", 20), ("preemptions", 3))
            ]
        ),
    )
    row = finding(sql, "engine_pause", weight=10, peak_weight=2)
    assert (row["severity"], row["confidence"]) == (31.6, 0.8)
    assert finding(sql, "engine_pause", weight=160, peak_weight=2)["severity"] == 100
    sql.given("core.counter_intervals", counted)
    assert finding(sql, "engine_pause", weight=1, peak_weight=1)["severity"] == 63.2
    requests = [f"{i}  0  12:00:01  4" for i in range(10)]
    sql.given("core.requests", "\n".join(["request_key  engine  first_token_at  decode_s", *requests]))
    assert finding(sql, "engine_pause", weight=10, peak_weight=2)["severity"] == 31.6, (
        "where no metrics tell, of the clients' requests"
    )


def test_what_a_tier_gives_back_is_a_remark_for_moving_is_no_computing(sql):
    """At most 15, by the root of the share; the pool's size and what the tier lost are said where they are told."""
    tier = "engine  method  restored_tokens  stored_tokens  dropped_tokens\n0  tier_log  64  36  {}"
    facts = {"restored_tokens": 8100, "queried_tokens": 10000, "hit_tokens": 500, "weight": 8100}
    assert finding(sql, "offload_pressure", **facts | {"restored_tokens": 20000})["severity"] == 15
    sql.given("core.tier_restores", tier.format(0))
    assert len(finding(sql, "offload_pressure", **facts)["evidence"]) == 1
    sql.engines("engine  kv_capacity_tokens\n0  5120")
    sql.given("core.tier_restores", tier.format(900))
    row = finding(sql, "offload_pressure", **facts)
    assert (row["severity"], row["confidence"]) == (13.5, 0.8)
    assert "81 % of looked-up prompt tokens were loaded from a tier behind it, 5 % were found in it" in row["summary"]
    assert row["evidence"][1:] == ["The pool holds 5,120 tokens.", "The tier lost 900 tokens for want of room of its own."]
    by_log = finding(sql, "offload_pressure", weight=64)
    assert (by_log["severity"], by_log["confidence"]) == (12, 0.6)
    assert "64 prompt tokens were loaded from a tier behind it." in by_log["summary"]


def test_a_client_that_holds_requests_back_is_as_bad_as_they_waited_in_it(sql):
    """Two seconds each, of eight in all; requests that were hardly held, or another engine's, are not among them."""
    assert finding(sql, "client_limited", weight=4, signs=2)["confidence"] == 0.85  # of an engine of which nothing is known
    sql.engines("engine  max_num_seqs\n0  16")
    rows = [
        "a  0  12:00:10  12:00:16  2",
        "b  0  12:01:40  12:01:46  0.1",
        "c  0  12:00:10  12:00:50  0.05",
        "d  1  12:00:10  12:00:50  2",
    ]
    sql.given("core.requests", "\n".join(["request_key  engine  arrived_at  finished_at  client_queue_s", *rows]))
    runs = ["x  0  12:00:00  12:02:00  2", "x  1  11:00:00  12:00:00  3", "x  2  11:00:00  11:59:59  9"]
    sql.given("staging.client_runs", "\n".join(["source  run_index  started_at  ended_at  max_concurrency", *runs]))
    row = finding(sql, "client_limited", weight=4, signs=2, max_running=3, max_kv_usage_ratio=0.8)
    assert (row["severity"], row["confidence"]) == (43.2, 0.85)
    assert row["summary"] == "2 requests were held back by their own client, for 2.0 s on average, while the engine had room."
    assert row["evidence"] == [
        "Nobody waited in the engine then: 3 ran at most, of 16 slots.",
        "KV usage at most 80 %.",
        "The client had at most 3 requests in flight.",
    ]


@pytest.mark.parametrize(("waiting", "severity"), [(0, 25), ("-", 25), (1, 50)])
def test_a_runaway_answer_is_worse_where_others_wait(sql, waiting, severity):
    row = finding(sql, "runaway_generation", max_waiting=waiting, max_running=2, peak_weight=9000, max_kv_usage_ratio=0.8)
    assert (row["severity"], row["confidence"]) == (severity, 0.7)
    assert "KV usage rose to 80 %." in row["evidence"]
    assert ("waited behind them" in said(row)) == (waiting == 1)


def test_load_is_as_uneven_as_the_busiest_is_above_its_share(sql):
    loads = ["12:00:00  6  3  2  3", "12:01:40  10  5  3  4", "12:01:41  90  1  1  9", "11:59:59  90  1  1  9"]
    rows = ["engine  sampled_at  running  mean_running  least_running  ranks", *(f"0  {load}" for load in loads)]
    sql.given("core.rank_loads", "\n".join(rows))
    row = finding(sql, "imbalance", seconds=30)
    assert (row["severity"], row["confidence"]) == (49.5, 0.85)
    assert "runs 8 requests where the 4 engines run 4.0 on average and one only 2" in row["summary"]
    at_once = finding(sql, "imbalance", seconds=0)
    assert (at_once["confidence"], at_once["evidence"]) == (0.4, [])
    assert [len(each["evidence_against"]) + len(each["missing"]) for each in (row, at_once)] == [0, 2]


@pytest.mark.parametrize(("end", "severity"), [("12:01:40", 70), ("12:08:20", 100)])
def test_a_stall_is_the_worse_the_longer_it_lasts(sql, end, severity):
    row = finding(sql, "engine_stalled", window_end=end, mean_running=3, mean_waiting=2)
    assert (row["severity"], row["confidence"]) == (severity, 0.85)


def test_a_stall_that_ends_in_prompts_says_how_little_of_it_their_prefill_was(sql):
    said = "Prompt and generation counters stood still while requests were in the engine."
    assert finding(sql, "engine_stalled")["evidence"] == [said]
    sql.given(
        "core.silences",
        """
        engine  silence_start  silence_end  prompt_tokens  prefill_s  is_prefill
        0       11:50:00       11:59:00     900            5          false
        0       11:59:50       12:00:40     69960          35         false
        """,
    )
    told, followed = finding(sql, "engine_stalled")["evidence"]
    assert told == said
    assert followed.startswith("About 70,000 prompt tokens followed")
    assert followed.endswith("accounts for 35 s of it at most.")


def test_a_full_pool_is_blamed_only_where_it_was_seen_or_the_engine_says_so(sql):
    blamed = "because the pool was full"
    assert blamed not in finding(sql, "preemption", weight=3)["summary"]
    assert blamed in finding(sql, "preemption", weight=3, max_kv_usage_ratio=0.99)["summary"]
    sql.given("engine_events", "engine  happened_at  line  event  count\n0  12:00:07  1  retraction  1")
    assert blamed in finding(sql, "preemption", weight=3)["summary"]


# What no load sample shows ---------------------------------------------------------------------------------------------------


def restored(sql, *, counted="39  39  78  kv_events", by="kv_events"):
    """An engine of which KV events alone were kept."""
    sql.given("core.engines", "engine  engine_kind  engine_generation\n0  vllm  v1")
    sql.given("marts.preemptions", f"engine  count_low  count_best  count_high  method\n0  {counted}")
    sql.given(
        "core.blocks_stored_again",
        """
        engine  again_index  kind    stored_at  blocks_again
        0       0            resume  12:00:05   3
        0       1            resume  12:00:50   4
        0       2            refill  12:01:00   9
        """,
    )
    sql.given(
        "staging.kv_events",
        "engine  event  block_size  group_idx\n0  stored  20000  0\n0  stored  20000  -\n0  stored  9000  1\n0  removed  9000  0",
    )
    wasted(sql, f"preemption_recompute  3000  4000  5000  -  {by}  KV events")


def test_preemptions_that_kv_events_tell_are_a_finding_without_any_load(sql):
    """Three times the share of what was stored: 4,000 of 40,000 tokens; the window is that of the resumes."""
    restored(sql)
    assert (
        sql.rows("advice.findings")
        == """
        verdict     window_start  window_end  peak_at   severity  confidence
        preemption  12:00:05      12:00:50    12:00:50  30        0.85000
        """
    )
    [row] = sql.rows("advice.findings").dicts()
    assert (
        row["summary"]
        == "39 preemptions are told by KV events: running requests lost their KV blocks; how the load was, no input shows."
    )
    assert "4,000 tokens were processed again (between 3,000 and 5,000); all blocks that were stored hold 40,000." in said(row)
    assert row["evidence_against"] == [
        "Who finds all full blocks again stores none, and is not seen: there may have been up to 78.",
        "Whether requests waited for room meanwhile is not told, and not in the severity: it may be worse.",
    ]
    assert not [sentence for sentence in row["missing"] if "kv-events" in sentence]
    requests = "\n".join(["engine  request_key  has_client", *(f"0  {number}  true" for number in range(50))])
    sql.given("core.requests", requests)
    assert findings(sql, "severity") == [(54.2,)]  # 39 of 50 requests
    sql.given("core.engine_states", "engine  sampled_at  running\n0  12:00:00  3")
    [row] = sql.rows("advice.findings").dicts()
    assert row["summary"].endswith("lost their KV blocks.")
    assert "not in the severity" not in " ".join(row["evidence_against"])


@pytest.mark.parametrize(
    ("tokens", "engine", "told"),
    [
        (200, "0  vllm  v1  -", [("prefix_eviction", 70.7)]),  # half of what was computed meanwhile
        (100, "0  vllm  v1  -", []),  # less than a third may be anything
        (200, "0  vllm  v1  OffloadingConnector", []),  # the tier may have had them
    ],
)
def test_prefixes_that_kv_events_show_computed_again_are_a_finding_without_any_counter(sql, tokens, engine, told):
    sql.given("core.engines", f"engine  engine_kind  engine_generation  kv_connector\n{engine}")
    sql.given(
        "core.blocks_stored_again",
        "engine  again_index  kind  stored_at  blocks_again\n0  0  refill  12:00:05  3\n0  1  refill  12:00:50  4",
    )
    stored = "\n".join(f"0  stored  {size}  0  12:00:{second}" for size, second in ((900, "01"), (300, "05"), (100, "40")))
    sql.given("staging.kv_events", f"engine  event  block_size  group_idx  published_at\n{stored}")
    wasted(sql, f"prefix_refill  {tokens}  {tokens}  {tokens}  -  kv_events  KV events")
    assert findings(sql, "verdict", "severity") == told


@pytest.mark.parametrize("counted", ["0  0  0  kv_events", "-  -  -  -", "2  2  2  preemption_counter"])
def test_kv_events_are_asked_only_for_what_nothing_else_counts(sql, counted):
    restored(sql, counted=counted)
    assert findings(sql, "verdict") == []


def test_pauses_that_peers_did_not_make_are_a_finding_without_any_load(sql):
    """One answer of four paused twice; a pause of all streams is none."""
    sql.given("core.requests", "\n".join(["engine  request_key  has_client", *(f"0  {number}  true" for number in range(4))]))
    stalls = "engine  cause  source_file  run_index  request_index  started_at  duration_s\n"
    stalls += "0  preemption  a.json  0  1  12:00:05  1.5\n0  preemption  a.json  0  1  12:00:09  0.5\n"
    stalls += "0  engine_pause  a.json  0  2  12:00:30  9"
    sql.given("marts.stalls", stalls)
    assert (
        sql.rows("advice.findings")
        == """
        verdict     window_start  window_end    peak_at   severity  confidence
        preemption  12:00:05      12:00:09.5    12:00:05  39.3      0.60000
        """
    )
    [row] = sql.rows("advice.findings").dicts()
    assert row["summary"].startswith("1 of 4 answers paused as preemption makes them pause, the longest for 1.5 s; how often")
    assert row["evidence"] == ["2 pauses, 2.0 s in all: a stream missed steps that its peers had."]
    sql.given("core.engine_states", "engine  sampled_at  running\n0  12:00:00  3")  # then what the engine shows goes before
    assert findings(sql, "verdict") == []


def waits(sql, *seconds):
    rows = [f"0  {i}  12:00:{i:02}  12:00:{i + 4:02}  {wait}" for i, wait in enumerate(seconds)]
    sql.given("core.requests", "\n".join(["engine  request_key  arrived_at  finished_at  queue_s", *rows]))


def test_waits_that_records_tell_are_a_queue_whose_cause_is_not_known(sql):
    """A second of four each, on average: 63 % felt, times the root of a quarter; whose wait is not known does not count."""
    waits(sql, 0.05, 1.95, "-")
    assert (
        sql.rows("advice.findings")
        == """
        verdict        window_start  window_end    peak_at   severity  confidence
        queue_unknown  12:00:01      12:00:02.95   12:00:01  31.6      0.50000
        """
    )
    [row] = sql.rows("advice.findings").dicts()
    assert (
        row["summary"] == "Requests waited 2.0 s in all before they first ran (2 seen), 1.9 s at most; for what, no input tells."
    )
    assert row["evidence"] == [
        "They waited 1.00 s each on average, 25 % of their whole latency.",
        "1 of them waited a tenth of a second or more.",
    ]
    assert row["evidence_against"] == ["Whether anybody who ran was interrupted, no input tells."]
    sql.given("marts.preemptions", "engine  count_best\n0  0")
    [row] = sql.rows("advice.findings").dicts()
    assert row["evidence_against"] == []
    waits(sql, 0.05, 0.09)
    assert findings(sql, "verdict") == []
    waits(sql, 2)
    sql.given("advice.verdicts_untimed", "engine  verdict\n0  healthy")  # a page without a time shows who waits
    assert findings(sql, "verdict") == []
