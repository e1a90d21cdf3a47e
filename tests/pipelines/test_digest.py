"""The screen of an analysis: it fits, it says the same without colour, and many engines cost no more queries than two."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from pipelines import digest
from pipelines.charts import language
from tests import synthetic
from tests.conftest import SAMPLES

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def test_a_run_that_has_much_to_say_fits_one_screen(tmp_path):
    long = """
        update verdicts set evidence = list_transform(range(12), lambda n: 'Sentence ' || n || repeat(' of some length', 9)),
            missing = ['Record this next time.', 'And this.'];
        update recommendations set expected_effect = repeat('It would be better. ', 40), verify_by = repeat('Look. ', 60);
    """
    analysis = synthetic.analysis(tmp_path, afterwards=long)
    (tmp_path / "report.html").touch()
    screen = digest.text(analysis, report=tmp_path / "report.html")
    lines = screen.splitlines()
    assert len(lines) <= digest.HEIGHT
    assert max(len(line) for line in lines if not line.startswith("Report: ")) <= digest.WIDTH
    for told in (
        "PREEMPTION",
        "51 running requests",
        "1. Run fewer requests at once",
        "more lines of this are in it",
        "Could not be told",
    ):
        assert told in screen


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_sample_fits_one_screen(sample, analyze_sample):
    for height in (24, digest.HEIGHT):
        lines = digest.text(analyze_sample(sample).analysis.database, height=height).splitlines()
        assert len(lines) <= height
        assert max(map(len, lines)) <= digest.WIDTH
        assert "Change" in lines or lines[0].startswith("NO PRESSURE"), "the remedy is the last to go"


def test_a_number_that_other_sources_contradict_says_so_beside_it(tmp_path):
    said = "Other sources say otherwise (KV events: 5)."
    words = f"update waste set contradiction = '{said}' where kind = 'preemption_recompute'"
    screen = digest.text(synthetic.analysis(tmp_path, afterwards=words), height=200)
    assert f"Told by a replay of the recorded requests. {said}" in " ".join(screen.split())


def test_what_is_likely_and_no_input_shows_stands_where_the_count_would(tmp_path):
    likely = """
        update preemptions set count_low = null, count_best = null, count_high = null, told_by = 'no input';
        insert into verdicts by name
            select engine, 'insufficient_evidence' as verdict, 15.0 as severity, false as is_primary, window_start, window_end,
                'Preemption is likely.' as summary, ['Record it.'] as missing
            from verdicts where is_primary;
    """
    screen = " ".join(digest.text(synthetic.analysis(tmp_path, afterwards=likely), height=200).split())
    assert "Could not be told Preemption is likely." in screen
    assert screen.count("Preemption is likely.") == 1
    assert "Record it." in screen
    assert "Preemptions: no input" not in screen


def test_a_severity_trips_as_it_is_shown(tmp_path):
    for severity, worst in ((59.8, 60), (59.4, 59)):
        words = f"update verdicts set severity = {severity} where severity > {severity}"
        analysis = synthetic.analysis(tmp_path / str(worst), afterwards=words)
        assert digest.worst_severity(analysis) == worst
        assert f"severity {worst} of 100" in digest.text(analysis)


def test_of_a_time_that_cannot_be_told_the_reason_comes_before_what_would_tell_it():
    row = {"is_primary": False, "window_start": None, "window_end": None, "missing": ["Record this.", "And that."]}
    blind = row | {"verdict": "insufficient_evidence", "summary": "The pool was full, and no line tells preemptions."}
    assert list(language.wishes([blind, row | {"verdict": "preemption", "summary": "3.", "missing": ["This, too."]}])) == [
        "Cannot be told: The pool was full, and no line tells preemptions. Record this.",
        "Cannot be told. And that.",
        "Preemption. This, too.",
    ]


def test_what_is_the_same_of_many_files_is_said_once(tmp_path):
    said = """
        insert into data_quality (run, source, flag, severity, count, detail)
        select 'storm', format('page-{:02}.prom', n), 'no_clock', 'error', 1, 'It carries no time.' from range(24) as pages (n)
        union all
        select 'storm', format('log-{}', n), 'read_in_part', 'error', 1, format('log-{}: ends early.', n) from range(3) as l (n);
    """
    screen = digest.text(synthetic.analysis(tmp_path, afterwards=said), height=200)
    assert screen.count("It carries no time.") == screen.count("ends early.") == 1
    assert "  page-00.prom (23 more alike): It carries no time.\n" in screen
    assert "  log-0 (2 more alike): ends early.\n" in screen


def test_latency_as_clients_summed_it_up_is_a_line_each_with_the_file_where_there_are_several(tmp_path):
    one = synthetic.analysis(tmp_path / "one")
    assert "As the client measured\n  TTFT 1 min 50 s (p99 2 min 2 s), between tokens 211 ms (p99 259 ms)," in digest.text(
        one, height=200
    )
    more = """
        update core.client_latencies set is_alone = false;
        insert into core.client_latencies values ('b', 'b.json', 0, null, 1, null, 0.05, null, null, 0.02, false);
    """
    two = digest.text(synthetic.analysis(tmp_path / "two", afterwards=more), height=200)
    assert "  b.json: TTFT 50 ms, between tokens p99 20 ms, 1 request completed.\n" in two
    none = synthetic.analysis(tmp_path / "none", afterwards="drop table core.client_latencies;")
    assert "As the client measured" not in digest.text(none, height=200)


AGAIN = "; ".join(
    f"""
    insert into verdicts by name
    select * replace (
        window_start + to_minutes({n}) as window_start, window_end + to_minutes({n}) as window_end,
        {severity} as severity, 'Wait {n}.' as summary
    )
    from verdicts where verdict = 'queue_kv_capacity' and severity = 48
    """
    for n, severity in ((1, 30), (2, 59), (3, 30))
)


def test_what_else_held_is_told_once_with_its_worst_time(tmp_path):
    analysis = synthetic.analysis(tmp_path, afterwards=AGAIN)
    screen = " ".join(digest.text(analysis, height=200).split())
    assert screen.count("also queue for KV room") == 1
    assert "also queue for KV room (severity 59, 13:11:15 to 13:13:00 UTC, and 3 more times): Wait 2." in screen
    assert "(severity 24): Long prefills slowed every stream." in screen


def test_colour_adds_nothing_but_colour_and_names_the_event_in_its_own(tmp_path):
    analysis = synthetic.analysis(tmp_path)
    plain, coloured = (digest.text(analysis, colour=colour) for colour in (False, True))
    assert "\x1b" not in plain
    assert ESCAPES.sub("", coloured) == plain
    assert coloured.startswith(f"\x1b[38;5;{language.PREEMPTION.tone.ansi}m")


def test_what_no_input_tells_is_blank_in_a_curve_and_nothing_is_the_lowest_step():
    assert digest.spark([[0], [7], [None], [3.5], []]) == "▁█ ▅ "
    assert digest.spark([[0, 0], [0, 9]]) == "▁█", "a column shows its highest value"
    assert digest.spark([[0.02], [0.5], [1]], most=1) == "▁▅█", "a share tells how full, not only how it went"


def test_a_curve_keeps_time_and_is_blank_where_nothing_was_seen(tmp_path):
    """Ten minutes of a busy engine, then nothing for as long, as of a server that is down, then ten more."""
    second_half = "bucket_at >= (select median(bucket_at) from timeline)"
    later = f"update timeline set bucket_at = bucket_at + interval 10 minute where {second_half}"
    screen = digest.text(synthetic.analysis(tmp_path, afterwards=later))
    [pool] = [line for line in screen.splitlines() if "KV pool  " in line]
    curve = pool[18 : 18 + digest.CURVE]
    filled = [place for place, step in enumerate(curve) if step != " "]
    assert (filled[0], filled[-1]) == (0, digest.CURVE - 1)
    assert re.fullmatch(r"[▁-█]{8,10} {24,28}[▁-█]{8,10}", curve)


def test_a_line_breaks_neither_between_a_number_and_its_unit_nor_in_a_clause(tmp_path):
    long = f"update verdicts set summary = '{'x' * 74} 12 %, and it went on for 8 s' where is_primary"
    screen = digest.text(synthetic.analysis(tmp_path, afterwards=long))
    assert "\n  12 %, and it went on for 8 s\n" in screen
    assert digest._shortened("It waited for 5 s, 12 % of its time; " + "it ran. " * 40, 1).endswith(" …")
    assert digest._shortened("a" * 40 + ", " + "b " * 40, 1) == "a" * 40 + " …"


def test_thousands_of_engines_are_counted_and_cost_no_query_each(tmp_path, monkeypatch):
    asked = []
    rows = digest.Result.rows
    monkeypatch.setattr(digest.Result, "rows", lambda self, *args, **kwargs: asked.append(args) or rows(self, *args, **kwargs))
    few = digest.text(synthetic.analysis(tmp_path / "few", engines=("a/0", "b/0")))
    number = len(asked)
    many = digest.text(synthetic.analysis(tmp_path / "many", engines=tuple(f"node{n}/0" for n in range(2000))))
    assert len(asked) == 2 * number
    assert few.startswith("2 engines: 2 preemption. The hardest pressed:")
    assert many.startswith("2,000 engines: 2,000 preemption.")
    assert "1. Run fewer requests at once (max_num_seqs: 32 -> 16), engine node0/0 and 1,999 more." in " ".join(many.split())
    assert len(many.splitlines()) <= digest.HEIGHT


def test_who_was_stopped_longest_is_named_unless_names_are_to_be_hidden(analyzed):
    named = " ".join(digest.text(analyzed.analysis.database, height=200).split())
    paused = Counter()
    for row in analyzed.rows("stalls", "cause = 'preemption'"):
        paused[row["request_id"]] += row["duration_s"]
    longest = ", ".join(f"{name} ({language.duration(seconds)})" for name, seconds in paused.most_common(3))
    assert f"Longest stopped by it: {longest}." in named
    hidden = digest.text(analyzed.analysis.database, height=200, anonymize=True)
    assert not any(name in hidden for name in paused)


def test_hostile_names_steer_no_terminal(tmp_path):
    analysis = synthetic.analysis(tmp_path, engines=("a/0", "b\x1b[2J/0"), hostile="\x1b]0;owned\x07\n\n")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", digest.text(analysis))


def test_what_the_metrics_lack_is_named_where_it_is_why_a_number_is_not_known():
    row = {"method": "not_told", "told_by": "no input"}
    assert language.reason_untold(row | {"missing_series": None}) == language.reason_untold(row) == "no input tells it"
    assert language.reason_untold(row | {"missing_series": ["vllm:a", "vllm:b"]}) == "the metrics lack vllm:a, vllm:b"
