"""Which finding is the verdict, what is left of the time is healthy, and when nothing can be said."""

import pytest

from tests.typed_tables import Sql

# the steps from findings and samples of load to verdicts; what else they read is empty where a test does not give it
STEPS = {
    "advice.weighed_findings",
    "advice.verdicts_blind",
    "advice.verdicts_healthy",
    "core.seen_loads",
    "core.counts_at_an_instant",
}


@pytest.fixture
def alone() -> Sql:
    return Sql(is_made=STEPS.__contains__)


@pytest.fixture
def sql(alone):
    """An engine that was scraped every ten seconds for a minute, by its metrics."""
    alone.given("core.engines", "engine  engine_kind  engine_generation\n0  vllm  v1")
    sampled(alone)
    return alone


def sampled(sql, *, origin="metrics", usage=0.5, running=3, seconds=range(0, 61, 10)):
    """Its last sample is the one with the most load."""
    loads = [(running, usage) if second == seconds[-1] else (0, usage / 2) for second in seconds]
    rows = [
        f"0  12:{second // 60:02}:{second % 60:02}  {origin}  {load[0]}  0  {load[1]}  10"
        for second, load in zip(seconds, loads, strict=True)
    ]
    sql.given("core.engine_states", "\n".join(["engine  sampled_at  origin  running  waiting  kv_usage_ratio  scrape_s", *rows]))


def found(sql, *rows):
    """Findings, each as `verdict start end severity` with its times as seconds after noon."""
    header = "engine  verdict  window_start  window_end  severity  confidence  summary"
    lines = []
    for row in rows:
        verdict, start, end, severity = row.split()
        window = "  ".join(f"12:{int(at) // 60:02}:{int(at) % 60:02}" for at in (start, end))
        lines.append(f"0  {verdict}  {window}  {severity}  0.9  what happened")
    sql.given("advice.findings", "\n".join([header, *lines]))


def primary(sql):
    rows = sql.rows("advice.verdicts").dicts()
    assert [row["is_primary"] for row in rows] == [True] + [False] * (len(rows) - 1)
    return rows[0]["verdict"]


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        (["preemption 0 60 2"], "preemption"),
        (["preemption 0 60 1.9"], "healthy"),
        (["queue_unknown 0 60 10"], "queue_unknown"),
        (["queue_unknown 0 60 9.9"], "healthy"),
        (["prefix_eviction 0 60 60", "preemption 0 20 30"], "prefix_eviction"),
        # a full pool is one shortage with what it preempts, in the same time
        (["prefix_eviction 0 60 60", "preemption 0 20 30", "queue_kv_capacity 20 60 40"], "preemption"),
        (["prefix_eviction 0 60 60", "preemption 30 50 30", "queue_unknown 0 30 40"], "preemption"),
        (["prefix_eviction 0 60 60", "preemption 0 20 30", "queue_kv_capacity 21 60 40"], "prefix_eviction"),
        (["prefix_eviction 0 60 60", "preemption 31 50 30", "queue_kv_capacity 0 30 40"], "prefix_eviction"),
        (["prefix_eviction 0 60 60", "preemption 0 20 30", "queue_kv_capacity 0 60 40", "queue_unknown 0 60 20"], "preemption"),
        (["prefix_eviction 0 60 60", "preemption 0 20 30", "queue_max_num_seqs 0 60 40"], "prefix_eviction"),
        (["queue_kv_capacity 0 60 40", "preemption 0 20 1.9"], "queue_kv_capacity"),
        # a cause that is told says more than one that is not
        (["queue_unknown 0 60 60", "queue_kv_capacity 10 60 31"], "queue_kv_capacity"),
        (["queue_unknown 0 60 60", "queue_kv_capacity 10 60 29"], "queue_unknown"),
        # who waits in a stalled engine waits for it
        (["prefix_eviction 0 60 60", "engine_stalled 0 60 50", "queue_max_num_seqs 0 60 40"], "engine_stalled"),
        (["prefix_eviction 0 60 60", "engine_stalled 0 60 50", "preemption 0 60 40"], "prefix_eviction"),
        # of equals the longer, then the earlier
        (["prefix_eviction 0 20 50", "cold_start 10 50 50"], "cold_start"),
        (["prefix_eviction 0 20 50", "cold_start 30 50 50"], "prefix_eviction"),
    ],
)
def test_the_verdict_is_the_finding_that_counts_for_most(sql, findings, verdict):
    found(sql, *findings)
    assert primary(sql) == verdict


@pytest.mark.parametrize(
    ("findings", "severities"),
    [
        (["preemption 0 20 12", "queue_kv_capacity 0 60 72"], [72, 72]),  # one shortage, as bad as the worse of its faces
        (["preemption 0 20 80", "queue_kv_capacity 0 60 72"], [80, 72]),
        (["preemption 0 20 12", "queue_kv_capacity 0 60 72", "preemption 40 50 5"], [72, 72, 5]),  # and told of it once
        (["preemption 0 20 12", "queue_max_num_seqs 30 60 11"], [12, 11]),
        # of two windows of one kind the worse leads, though the other has the queue
        (["preemption 0 20 30", "queue_kv_capacity 0 20 40", "preemption 40 60 50"], [50, 40, 30]),
    ],
)
def test_the_main_verdict_is_as_severe_as_the_queue_it_explains(sql, findings, severities):
    found(sql, *findings)
    rows = [row for row in sql.rows("advice.verdicts").dicts() if row["verdict"] != "healthy"]
    assert rows[0]["verdict"] == "preemption"
    assert [row["severity"] for row in rows] == severities


@pytest.mark.parametrize(
    ("findings", "told"),
    [
        (["preemption 0 20 30", "prefix_eviction 0 60 60"], None),
        (
            ["preemption 0 20 30", "prefix_eviction 0 60 60", "queue_kv_capacity 20 60 40"],
            "By itself prefix eviction is more severe (60); with this counts the queue that is of the same shortage.",
        ),
        (["preemption 0 20 30", "prefix_eviction 0 60 60", "queue_kv_capacity 20 60 60"], None),
        (
            ["queue_unknown 0 60 60", "queue_kv_capacity 10 60 31"],
            "By itself the queue of unknown cause is more severe (60); its cause is not told, and of this one it is.",
        ),
    ],
)
def test_why_the_main_verdict_is_not_the_severest_is_said(sql, findings, told):
    found(sql, *findings)
    against = [row["evidence_against"] or [] for row in sql.rows("advice.verdicts").dicts() if row["verdict"] != "healthy"]
    assert against == [[told] if told else [], *([] for _ in findings[1:])]


@pytest.mark.parametrize(("severity", "told"), [(1, ["healthy", "cold_start"]), (0.9, ["healthy"])])
def test_what_is_hardly_felt_is_no_remark(sql, severity, told):
    found(sql, f"cold_start 0 20 {severity}")
    assert [row["verdict"] for row in sql.rows("advice.verdicts").dicts()] == told


@pytest.mark.parametrize(
    ("counted", "told"), [("0", "nothing waited long, nobody was interrupted."), ("-", "nothing waited long.")]
)
def test_that_nobody_was_interrupted_is_said_where_preemptions_are_counted(sql, counted, told):
    sql.given("marts.preemptions", f"engine  count_best\n0  {counted}")
    [calm] = sql.rows("advice.verdicts").dicts()
    assert calm["summary"] == f"No pressure for 70 s: {told}"


@pytest.mark.parametrize(("second", "end"), [("01:04", "12:01:04"), ("00:30", "12:01:10"), ("01:20", "12:01:10")])
def test_a_last_sample_stands_for_the_time_to_the_next_unless_the_engine_ended_before(second, end):
    sql = Sql(is_made=(STEPS | {"core.engine_states"}).__contains__)
    sql.given("core.engines", "engine  engine_kind  engine_generation  last_seen_at\n0  vllm  v1  12:01:00")
    lines = [f"0  12:{number // 6:02}:{number % 6}0  3  0" for number in range(7)]
    sql.given("staging.engine_samples", "\n".join(["engine  sampled_at  running  waiting", *lines]))
    sql.given("staging.engine_events", f"engine  happened_at  event\n*  12:{second}  engine_shutdown")
    assert (
        sql.rows("advice.verdicts")
        == f"""
        verdict  window_start  window_end
        healthy  12:00:00      {end}
        """
    )


def test_what_no_finding_that_matters_covers_is_healthy(sql):
    """From three usual samples on; a remark cuts nothing out; the last scrape stands for the time to the next."""
    found(sql, "cold_start 20 30 5", "queue_unknown 30 31 50", "prefix_eviction 30 40 12")
    assert (
        sql.rows("advice.verdicts")
        == """
        verdict          window_start  window_end  severity  confidence  is_primary
        queue_unknown    12:00:30      12:00:31    50        0.9         true
        prefix_eviction  12:00:30      12:00:40    12        0.9         false
        cold_start       12:00:20      12:00:30    5         0.9         false
        healthy          12:00:00      12:00:30    0         0.9         false
        healthy          12:00:40      12:01:10    0         0.9         false
        """
    )
    calm = [row["evidence"][0] for row in sql.rows("advice.verdicts").dicts() if row["verdict"] == "healthy"]
    assert calm == ["KV usage at most 25 %.", "KV usage at most 50 %."]
    found(sql, "queue_unknown 29 41 50")
    assert [row["verdict"] for row in sql.rows("advice.verdicts").dicts()] == ["queue_unknown"]


@pytest.mark.parametrize(("end", "times"), [("12:01:00", ""), ("12:01:10", "; so 2 times")])
def test_a_long_prefill_is_told_where_it_might_be_taken_for_a_stall(sql, end, times):
    """A minute or more without a token; what was no prefill is none, and what reaches beyond the window is not of it."""
    sampled(sql, seconds=list(range(0, 300, 10)), origin="log")
    sql.given(
        "core.silences",
        f"""
        engine  silence_start  silence_end  prompt_tokens  prefill_s  is_prefill
        0       12:00:10       {end}        50             99         true
        0       12:01:20       12:02:30     70049          99         true
        0       12:02:40       12:04:40     90000          99         false
        0       12:04:00       12:09:00     95000          999        true
        """,
    )
    [row] = sql.rows("advice.verdicts").dicts()
    (told,) = row["evidence_against"]
    assert told.startswith("No token came for 70 s, until about 70,000 prompt tokens were booked at once")
    assert told.endswith(f"not as a stall{times}.")


@pytest.mark.parametrize(
    ("origin", "windows"),
    [("metrics", [("12:00:00", "12:00:50"), ("12:01:40", "12:02:10")]), ("log", [("12:00:00", "12:02:10")])],
)
def test_what_nobody_scraped_is_not_called_healthy(sql, origin, windows):
    sampled(sql, seconds=[0, 10, 20, 50, 100, 110, 120], origin=origin)
    rows = sql.rows("advice.verdicts").dicts()
    assert sorted((f"{row['window_start']:%X}", f"{row['window_end']:%X}") for row in rows) == windows
    assert {row["verdict"] for row in rows} == {"healthy"}


def test_a_run_without_a_finding_is_healthy_however_short(sql):
    sampled(sql, seconds=[0, 10], origin="log")
    [row] = sql.rows("advice.verdicts").dicts()
    assert (row["verdict"], float(row["confidence"])) == ("healthy", 0.6)
    assert row["summary"].startswith("No pressure for 20")
    assert row["evidence"] == ["KV usage at most 50 %.", "3 requests running at most, 0 waiting."]
    assert row["missing"] == []
    sql.given("marts.preemptions", "run  engine  count_best\ntest  0  -")
    [row] = sql.rows("advice.verdicts").dicts()
    assert [sentence.split(":")[0] for sentence in row["missing"]] == ["Scrape /metrics every 15 s or less"]
    sampled(sql, seconds=[0, 10], running=0)
    [row] = sql.rows("advice.verdicts").dicts()
    assert row["summary"].startswith("Idle for 20")


@pytest.mark.parametrize(
    ("seen", "counted", "confidence", "summary"),
    [
        ("metrics  3  0", {7: "7 preemptions"}, 0.45, "nobody waited."),
        ("metrics  0  0", {0: "no preemption"}, 0.45, "the engine was idle."),
        ("metrics  3  2", {}, 0.45, "2 waited beside 3 running."),
        ("log  3  0", {}, 0.3, "nobody waited."),
    ],
)
def test_one_sample_alone_is_an_instant_and_no_time(alone, seen, counted, confidence, summary):
    """Half as sure; a counter says how far it had come then, since the engine started."""
    alone.given("core.engines", "engine  engine_kind  engine_generation\n0  vllm  v0")
    header = "engine  sampled_at  origin  running  waiting  kv_usage_ratio  scrape_s"
    alone.given("core.engine_states", f"{header}\n0  12:00:00  {seen}  0.5  0")
    page = ["0  12:00:00  vllm:prompt_tokens_total  900", "0  11:59:59  vllm:num_preemptions_total  5"]
    page += [f"0  12:00:00  vllm:num_preemptions_total  {number}" for number in counted]
    alone.given("metric_samples", "\n".join(["engine  sampled_at  name  value", *page]))
    [row] = alone.rows("advice.verdicts").dicts()
    assert (row["verdict"], float(row["confidence"])) == ("healthy", confidence)
    assert row["summary"] == f"At the one instant seen, {summary}"
    assert row["window_start"] == row["window_end"]
    assert row["evidence"][2:] == [f"The engine has counted {told} since it started." for told in counted.values()]
    assert row["evidence_against"][0].startswith("One sample is one instant")
    assert row["missing"][0].startswith("Two samples at least")
    found(alone, "queue_unknown 0 0 50")
    assert [row["verdict"] for row in alone.rows("advice.verdicts").dicts()] == ["queue_unknown"]


@pytest.mark.parametrize(
    ("generation", "seen", "preemptions", "is_told"),
    [
        ("v1", {"origin": "log", "usage": 0.9}, "-", True),
        ("-", {"origin": "log", "usage": 0.9}, "-", True),
        ("v1", {"origin": "log", "usage": 0.9, "seconds": [10]}, "-", True),
        ("v1", {"origin": "log", "usage": 0.89}, "-", False),
        ("v0", {"origin": "log", "usage": 0.9}, "-", False),
        ("v1", {"origin": "metrics", "usage": 0.9}, "-", False),
        ("v1", {"origin": "log", "usage": 0.9}, 0, False),
    ],
)
def test_a_v1_log_with_a_full_pool_cannot_tell_whether_it_preempts(alone, generation, seen, preemptions, is_told):
    alone.given("core.engines", f"engine  engine_kind  engine_generation\n0  vllm  {generation}")
    sampled(alone, **seen)
    counted = "engine  interval_start  interval_end  preemptions"
    alone.given(
        "core.preemption_intervals", counted if preemptions == "-" else f"{counted}\n0  12:00:00  12:00:10  {preemptions}"
    )
    rows = alone.rows("advice.verdicts").dicts()
    assert primary(alone) == ("insufficient_evidence" if is_told else "healthy")
    assert [row["severity"] for row in rows if row["verdict"] == "insufficient_evidence"] == [15] * is_told
    assert rows[0]["summary"].startswith("KV usage reached 90 %, with nobody waiting: preemption is likely") == is_told


@pytest.mark.parametrize(
    ("start", "calm"),
    [
        # the sample at which requests are first seen to wait ends the calm and is none of it
        (40, ["KV usage at most 5 %.", "2 requests running at most, 0 waiting."]),
        # what nobody is seen to wait in is, up to there
        (45, ["KV usage at most 99 %.", "17 requests running at most, 9 waiting."]),
    ],
)
def test_the_sample_that_ends_the_calm_is_no_evidence_of_it(alone, start, calm):
    alone.given("core.engines", "engine  engine_kind  engine_generation\n0  vllm  v1")
    loads = [
        f"0  12:00:{second:02}  metrics  {'17  9  0.99' if second >= 40 else '2  0  0.05'}  10" for second in range(0, 60, 10)
    ]
    alone.given(
        "core.engine_states", "\n".join(["engine  sampled_at  origin  running  waiting  kv_usage_ratio  scrape_s", *loads])
    )
    found(alone, f"queue_kv_capacity {start} 60 40")
    [evidence] = [row["evidence"] for row in alone.rows("advice.verdicts").dicts() if row["verdict"] == "healthy"]
    assert evidence == calm


@pytest.mark.parametrize(
    ("rate", "running", "verdict"),
    [(0.1, 0, "insufficient_evidence"), (0.0, 0, "healthy"), ("-", 0, "healthy"), (0.1, 1, "healthy")],
)
def test_an_idle_line_that_tells_of_work_before_it_does_not_tell_how_that_went(alone, rate, running, verdict):
    alone.given("core.engines", "engine  engine_kind  engine_generation\n0  vllm  v1")
    sampled(alone, origin="log", running=running, seconds=[0])
    alone.given("staging.engine_samples", f"engine  sampled_at  generation_tokens_per_s\n0  12:00:00  {rate}")
    assert primary(alone) == verdict
    rows = alone.rows("advice.verdicts").dicts()
    assert len(rows) == 1  # that it was idle at that instant is no calm beside what cannot be told
    told = (
        "The log's only line of load finds the engine idle, after 0.1 tokens/s on average: what happened meanwhile is in no line."
    )
    assert (rows[0]["summary"] == told) == (verdict == "insufficient_evidence")
    assert [each.split(" (")[0] for each in rows[0]["missing"][:1]] == ["Two samples at least"] * (rows[0]["summary"] == told)


def test_without_load_samples_the_reason_is_said_that_most_inputs_have(alone):
    """What lies outside of the time asked for goes before: the rest may be there because of it."""
    alone.given("core.engines", "engine  engine_kind\n0  vllm")
    header = "reason  sources  names  lines  requests  failed  first_at  last_at\n"
    silent = "says_nothing  3  x.log  7  -  -  -  -\n"
    alone.given("core.unjudged_inputs", header + silent + "no_time  2  page.txt  5  -  -  -  -")
    [row] = alone.rows("advice.verdicts").dicts()
    assert (row["verdict"], row["severity"], row["is_primary"]) == ("insufficient_evidence", 0, True)
    assert "No input shows the engine's load" in row["summary"]
    assert [sentence.split(":")[0] for sentence in row["evidence"]] == ["x.log", "page.txt"]
    assert row["missing"][0].startswith("Save each /metrics page with its time")
    alone.given(
        "core.unjudged_inputs",
        header + silent + "outside_window  1  y.log  5  -  -  12:00:00  12:00:15\nclients_only  2  c.json  9  4  1  -  -",
    )
    [row] = alone.rows("advice.verdicts").dicts()
    assert "time asked for" in row["summary"]
    assert "y.log: from 2026-01-01 12:00:00 to 2026-01-01 12:00:15 UTC, outside the time asked for." in row["evidence"]
    assert (
        "c.json: 4 requests as clients saw them, 1 of them failed; what the engine did meanwhile is in no input."
        in row["evidence"]
    )
    alone.given("core.unjudged_inputs", header + "no_requests  1  c.json  1  0  0  -  -\nclients_only  1  d.json  9  4  0  -  -")
    [row] = alone.rows("advice.verdicts").dicts()
    assert ", 0 of them failed" not in " ".join(row["evidence"])


def test_an_engine_that_only_names_itself_is_told_of(alone):
    """Where any engine was seen, or named in full, names with a placeholder are not told of; nor one with a verdict."""
    alone.given("staging.engine_names", "label  engine\na  pod-0\nb  pod-*")
    alone.given("core.engines", "engine")
    assert [row["engine"] for row in alone.rows("advice.verdicts").dicts()] == ["pod-0"]
    for severity, verdicts in ((5, ["insufficient_evidence", "cold_start"]), (50, ["cold_start"])):
        alone.given("advice.findings", f"engine  verdict  severity\npod-0  cold_start  {severity}")
        assert [row["verdict"] for row in alone.rows("advice.verdicts").dicts()] == verdicts
    alone.given("advice.findings", "engine")
    alone.given("staging.engine_names", "label  engine\nb  pod-*")
    assert [row["engine"] for row in alone.rows("advice.verdicts").dicts()] == ["pod-*"]
    alone.given("core.engines", "engine  engine_kind\n0  vllm")
    assert [row["engine"] for row in alone.rows("advice.verdicts").dicts()] == ["0"]


def results(sql, *models):
    """A result of each model, and beside it how full some pool was: nobody says how many ran in it."""
    rows = [f"r{i}.json  {i}  vllm_bench  {model}  100  {i}  60" for i, model in enumerate(models)]
    sql.given("staging.client_runs", "\n".join(["source  run_index  client  model  completed  failed  duration_s", *rows]))
    sql.given(
        "core.engine_states",
        "engine  sampled_at  origin  kv_usage_ratio  scrape_s\n0  12:00:00  metrics  0.5  10\n0  12:00:10  metrics  0.4  10",
    )
    sql.given("core.engines", "engine  engine_kind\n0  vllm")
    sql.given("core.unjudged_inputs", "reason  sources\nclients_only  1")


@pytest.fixture
def together():
    """The verdicts, and which of the inputs are of unrelated runs."""
    return Sql(is_made=(STEPS | {"core.unrelated_runs"}).__contains__)


def test_a_pool_seen_without_who_ran_in_it_is_no_idle_engine(together):
    results(together, "a", "a")
    (row,) = together.rows("advice.verdicts").dicts()
    assert (row["verdict"], row["severity"]) == ("insufficient_evidence", 0)
    assert row["evidence"][-1] == "Of the engine, its KV usage alone was seen: at most 50 %."


@pytest.mark.parametrize(
    ("engines", "usage", "told"),
    [
        (
            "0",
            0.92,
            "62 requests running, 25 waiting, 92 % of the KV cache used.",
        ),
        (
            "0",
            "-",
            "62 requests running, 25 waiting, 50 % of the KV cache used.",
        ),
        ("0  1", 0.92, "its KV usage alone was seen: at most 50 %."),  # of which of two it is, nobody knows
    ],
)
def test_the_most_is_what_a_report_says_and_not_the_highest_mean(together, engines, usage, told):
    results(together, "a")
    together.given("core.engines", "\n".join(["engine", *engines.split()]))
    together.given(
        "core.client_sums", f"source  run_index  most_running  most_waiting  kv_usage_ratio\nr0.json  0  62  25  {usage}"
    )
    row = next(row for row in together.rows("advice.verdicts").dicts() if row["engine"] == "0")
    assert row["evidence"][-1].endswith(told)
    assert ("up to 25 requests waited at once, for how long is not told; whether anybody" in row["summary"]) == (engines == "0")


@pytest.mark.parametrize(
    ("preemptions", "waits", "pauses", "told"),
    [
        ("-", [], 0, "whether anything waited or was interrupted cannot be told."),
        (
            "-",
            [0.01, 0.09],
            0,
            "none of 2 requests waited a tenth of a second before it first ran; whether anybody was interrupted cannot be told.",
        ),
        (
            "-",
            [0.01, 0.2],
            0,
            "2 requests waited 0.2 s at most before they first ran; whether anybody was interrupted cannot be told.",
        ),
        (0, [], 0, "no preemption shows (KV events); whether anything waited cannot be told."),
        (3, [0.01], 2, "none of 1 requests waited a tenth of a second before it first ran; 3 preemption(s) told by KV events."),
        ("-", [], 2, "2 answer(s) paused as preemption makes them pause; whether anything waited cannot be told."),
    ],
)
def test_what_cannot_be_told_of_an_unseen_load_leaves_out_what_others_tell(alone, preemptions, waits, pauses, told):
    """Also where it is too little to be a finding that matters; an input that was given is not wished for."""
    alone.given("core.engines", "engine  engine_kind\n0  vllm")
    alone.given("core.unjudged_inputs", "reason  sources  names  lines\nsays_nothing  1  x.jsonl  7")
    alone.given("marts.preemptions", f"engine  count_best  told_by\n0  {preemptions}  KV events")
    alone.given("core.requests", "\n".join(["engine  queue_s", "0  -", *(f"0  {wait}" for wait in waits)]))
    alone.given(
        "marts.stalls",
        "\n".join(["engine  cause  request_index", "0  unknown  9", *(f"0  preemption  {i}" for i in range(pauses))]),
    )
    alone.given("core.recompute_kv_events", "engine" if preemptions == "-" else "engine\n0")
    [row] = alone.rows("advice.verdicts").dicts()
    assert row["summary"] == f"No input shows the engine's load: {told}"
    assert ["kv-events" in sentence for sentence in row["missing"]].count(True) == (preemptions == "-")
    assert ["iteration" in sentence for sentence in row["missing"]].count(True) == 1
    alone.given("core.recompute_iteration_lines", "engine\n0")
    [row] = alone.rows("advice.verdicts").dicts()
    assert not [sentence for sentence in row["missing"] if "iteration" in sentence]


@pytest.mark.parametrize("verdict", ["preemption", "queue_unknown"])
def test_what_is_told_of_an_unseen_load_is_the_verdict_alone(alone, verdict):
    alone.given("core.engines", "engine  engine_kind\n0  vllm")
    alone.given("core.unjudged_inputs", "reason  sources  names  lines\nsays_nothing  1  x.jsonl  7")
    found(alone, f"{verdict} 0 60 30")
    assert [row["verdict"] for row in alone.rows("advice.verdicts").dicts()] == [verdict]


def test_a_full_pool_in_a_log_is_no_suspicion_beside_preemptions_that_are_told(alone):
    alone.given("core.engines", "engine  engine_kind  engine_generation\n0  vllm  v1")
    sampled(alone, origin="log", usage=0.95)
    assert primary(alone) == "insufficient_evidence"
    found(alone, "preemption 0 60 30")
    assert "insufficient_evidence" not in [row["verdict"] for row in alone.rows("advice.verdicts").dicts()]


def test_results_of_several_models_are_no_one_run(together):
    """What one of them shows is no headline of all; with an engine among the inputs they are what was sent to it."""
    results(together, "a", "b")
    found(together, "preemption 0 60 90")
    first, second = together.rows("advice.verdicts").dicts()
    assert (first["verdict"], first["severity"], first["window_start"]) == ("insufficient_evidence", 0, None)
    assert first["summary"].startswith(
        "These are results of 2 runs that have nothing to do with each other: analyze one at a time."
    )
    assert first["evidence"] == [
        "a: vllm_bench, r0.json, 100 requests, in 60 s.",
        "b: vllm_bench, r1.json, 100 requests, 1 of them failed, in 60 s.",
    ]
    assert (second["verdict"], second["is_primary"]) == ("preemption", False)
    together.given("raw.engine_samples", "source  line\nserver.log  1")
    assert together.rows("advice.verdicts").dicts()[0]["verdict"] == "preemption"


def test_while_an_engine_was_down_it_was_not_calm(sql):
    """A log is silent where its engine is idle; until it starts again there is none to be idle."""
    sampled(sql, origin="log", seconds=[0, 10, 20, 300, 310, 320])
    assert calm_s(sql) == [330]
    sql.given("core.engine_lives", "engine  life  life_start\n0  1  -\n0  2  12:04:30")
    assert calm_s(sql) == [20, 30]


def calm_s(sql):
    calm = [row for row in sql.rows("advice.verdicts").dicts() if row["verdict"] == "healthy"]
    return sorted((row["window_end"] - row["window_start"]).total_seconds() for row in calm)
