"""The report as text: what it says of a run, what it says where nothing is known, and that no input can speak in its place."""

from __future__ import annotations

import itertools
import json
import math
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import altair as alt
import duckdb
import jsonschema
import pytest

from pipelines import digest, pages, report
from pipelines.charts import language, requests, timeline
from pipelines.charts.data import TABLES, Data
from pipelines.charts.picture import verdict_png, write_timeline
from pipelines.sqlshell import open_read_only, run
from tests import synthetic

CONTRACT = [table for table in TABLES if table != "sources"]
EMPTIES = [f"delete from {table}" for table in TABLES]
DROPS = [f"drop table {table}" for table in TABLES]


class Page(HTMLParser):
    """The parts of a page that the tests ask about."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags, self.attributes, self.scripts = [], [], [], []
        self._open = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self._open = tag
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, _tag):
        self._open = ""

    def handle_data(self, data):
        if self._open != "style":
            (self.scripts if self._open == "script" else self.text).append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def written(analysis, tmp_path, **kwargs) -> Page:
    out = tmp_path / "report.html"
    report.write_report(analysis, out, **kwargs)
    return Page(out.read_text(encoding="utf-8"))


def test_latency_as_a_client_summed_it_up_is_on_the_page_and_in_the_summary(tmp_path):
    analysis = synthetic.analysis(tmp_path)
    told = "TTFT 1 min 50 s (p99 2 min 2 s), between tokens 211 ms (p99 259 ms), 640 requests completed, 3 failed."
    assert f"As the client measured {told}" in written(analysis, tmp_path).words
    report.write_markdown(analysis, out := tmp_path / "summary.md")
    assert "As the client measured:" in (text := out.read_text(encoding="utf-8"))
    assert f"- {told}" in text


def test_the_verdict_and_the_numbers_come_first_and_the_advice_after_them(tmp_path):
    words = written(synthetic.analysis(tmp_path), tmp_path).words
    told = [
        "51 running requests were preempted",
        "num_preemptions_total rose by 51",
        "49 to 53",
        "38.4 k",
        "12 % of all tokens computed (9.5 % to 14 %)",
        "KV room: 83 s",
        "Also held",
        "Run fewer requests at once",
        "max_num_seqs 32 → 16",
        "Trade-off",
        "Verify",
        "KV events (--kv-events-config) would narrow the recomputed tokens.",
        "What happened, and when?",
    ]
    places = [words.index(sentence) for sentence in told]
    assert places == sorted(places)


def test_every_figure_names_its_query_and_its_rows(tmp_path):
    analysis = synthetic.analysis(tmp_path, engines=("0", "1"))
    with Data.open(analysis) as data:
        figures = report.drawn(data)
        assert len(figures) == len(report.FIGURES)
        for figure in figures.values():
            assert figure.question.endswith("?")
            assert figure.spec is not None, figure.key
            assert len(data.rows(figure.query)) == figure.rows > 0
            assert not set('"$`\\') & set(figure.query), "the query stands in double quotes in a shell command"


def test_every_query_of_a_figure_runs_on_the_analysis_as_it_is(analyzed):
    """The page says `kvpressure sql DIR "..."`: no view of the report may be needed."""
    with Data.open(analyzed.analysis.database) as data:
        figures = report.drawn(data)
    with open_read_only(analyzed.analysis.out) as con:
        for figure in figures.values():
            assert run(con, figure.query).num_rows == figure.rows, figure.key
        for what, query in report.BEHIND_THE_NUMBERS:
            assert run(con, query).num_rows > 0, what


def test_every_chart_is_valid_vega_lite(tmp_path):
    validator = jsonschema.Draft7Validator(alt.load_schema())
    with Data.open(synthetic.analysis(tmp_path, engines=("0", "1"))) as data:
        for figure in report.drawn(data).values():
            assert not list(validator.iter_errors(figure.spec)), figure.key


@pytest.mark.parametrize("afterwards", [*DROPS, "; ".join(EMPTIES), "; ".join(DROPS)])
def test_a_missing_or_empty_table_leaves_a_page_that_says_what_would_fill_it(tmp_path, afterwards, monkeypatch):
    monkeypatch.setattr(report, "vega", lambda: "")
    analysis = synthetic.analysis(tmp_path, afterwards=afterwards)
    words = written(analysis, tmp_path).words
    assert "What could not be told" in words
    assert "None" not in words.replace("None seen", "").replace("None counted", "").replace("None by preemption", "")
    if afterwards.count(";") > 1:
        assert "The inputs tell too little to say what happened." in words
        with Data.open(analysis) as data:
            assert words.count("Nothing to draw. ") == len(report.drawn(data)) > 0
        assert "Cannot be told" in words


@pytest.mark.parametrize("table", [table for table in CONTRACT if table != "runs"])
def test_null_in_every_column_that_may_be_null_is_not_an_error(tmp_path, table, monkeypatch):
    monkeypatch.setattr(report, "vega", lambda: "")
    keys = {
        "run",
        "engine",
        "kind",
        "cause",
        "verdict",
        "bucket_at",
        "bucket_s",
        "request_key",
        "source",
        "flag",
        "rank",
        "title",
    }
    columns = [column.split()[0] for column in TABLES[table].split(", ")]
    analysis = synthetic.analysis(tmp_path)
    with duckdb.connect(str(analysis)) as con:
        there = {name for (name,) in con.sql(f"select column_name from (describe {table})").fetchall()}
        for column in columns:
            if column in there - keys:
                con.execute(f"update {table} set {column} = null")
    assert "What could not be told" in written(analysis, tmp_path).words


def test_a_count_of_which_only_the_least_is_known_is_told_as_that(tmp_path):
    least = "update preemptions set count_low = 152, count_best = null, count_high = null"
    words = written(database := synthetic.analysis(tmp_path, afterwards=least), tmp_path).words
    assert "Preemptions at least 152" in words
    assert "Preemptions could not be counted" not in words
    screen = " ".join(digest.text(database, height=200).split())
    assert "Preemptions: at least 152. Told by" in screen
    assert "Preemptions: told only by" not in screen


def test_a_count_no_input_tells_is_not_known_and_not_zero(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "vega", lambda: "")
    blind = "update preemptions set count_low = null, count_best = null, count_high = null, told_by = 'no input'"
    words = written(synthetic.analysis(tmp_path, afterwards=blind), tmp_path).words
    assert "Preemptions Cannot be told" in words
    assert "Preemptions could not be counted: no input tells it." in words


@pytest.mark.parametrize(
    ("counted", "told"),
    [
        (
            "0",
            ["Paused by preemption 0 No preemption was counted.", "None by preemption: no preemption was counted. Other pauses"],
        ),
        ("null", ["Paused by preemption Cannot be told No input has the time of each token."]),
        ("3", ["Paused by preemption Cannot be told No input has the time of each token."]),
    ],
)
def test_where_no_preemption_was_counted_none_paused_an_answer_whether_or_not_tokens_have_times(
    tmp_path, counted, told, monkeypatch
):
    """Of two engines both must have counted none."""
    monkeypatch.setattr(report, "vega", lambda: "")
    unseen = "delete from stalls; update preemptions set count_low = 0, count_best = 0, count_high = 0"
    of_one = f"update preemptions set count_low = {counted}, count_best = {counted}, count_high = {counted} where engine = '1'"
    analysis = synthetic.analysis(tmp_path, engines=("0", "1"), afterwards=f"{unseen}; {of_one}")
    words = written(analysis, tmp_path).words
    assert [sentence for sentence in told if sentence not in words] == []
    assert ("None by preemption" in words) == (counted == "0")


@pytest.mark.parametrize(
    ("afterwards", "told"),
    [
        ("update stalls set cause = 'engine_pause'", "Engine-wide pause: "),
        ("delete from stalls; update verdicts set verdict = 'healthy'", "None seen; whether answers paused, no input tells."),
        ("delete from stalls; update verdicts set verdict = 'insufficient_evidence'", "Cannot be told from these inputs."),
    ],
)
def test_what_looks_like_an_event_is_told_by_its_pauses_too(tmp_path, afterwards, told, monkeypatch):
    monkeypatch.setattr(report, "vega", lambda: "")
    words = written(synthetic.analysis(tmp_path, afterwards=afterwards), tmp_path).words
    assert words.split("Look-alikes", 1)[1].split("In this run", 1)[1].strip().startswith(told)


def test_a_queue_that_was_watched_and_stayed_empty_is_none_and_not_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "vega", lambda: "")
    words = written(synthetic.analysis(tmp_path, afterwards="delete from queue_time"), tmp_path).words
    assert "With a queue 0 s" in words
    assert "No queue was seen." in words
    blind = "delete from queue_time; update timeline set waiting = null"
    assert "With a queue Cannot be told" in written(synthetic.analysis(tmp_path / "blind", afterwards=blind), tmp_path).words


def test_the_parts_of_a_bar_add_up_to_the_time_the_requests_took(tmp_path):
    """Pauses are taken out of the streaming they interrupt, and a request without one adds none."""
    with Data.open(synthetic.analysis(tmp_path)) as data:
        rows = data.rows(requests.TIME_QUERY)
    assert any(row["paused"] and row["rebuild"] for row in rows)
    for row in rows:
        parts = [row[part] or 0 for part in requests.PARTS if part in row]
        assert sum(parts) == pytest.approx(row["whole_s"])


def test_the_caption_of_the_timeline_names_the_verdict_though_another_window_is_graver(tmp_path):
    graver = "update verdicts set severity = 99 where verdict = 'prefill_interference'"
    with Data.open(synthetic.analysis(tmp_path, afterwards=graver)) as data:
        answer = report.drawn(data)["timeline"].answer
    assert answer.startswith("Preemption, 13:09:10 to 13:11:10 UTC. Beside it: prefill interference, ")


def test_a_usage_that_was_told_and_never_measured_is_not_called_missing(tmp_path):
    untold = "update timeline set kv_usage_ratio = null"
    stuck = f"{untold}; insert into data_quality values ('storm', '0', 'kv_usage_stuck_at_zero', 'warning', 9, 'It reads 0.')"
    notes = []
    for name, afterwards in (("untold", untold), ("stuck", stuck)):
        with Data.open(synthetic.analysis(tmp_path / name, afterwards=afterwards)) as data:
            notes += report.drawn(data)["timeline"].notes
    assert notes == [
        "KV pool held by active requests: not in the inputs; an engine log or /metrics would fill it.",
        "KV pool held by active requests: It reads 0.",
    ]


def test_hostile_text_stays_text(tmp_path):
    page = written(synthetic.everything_hostile(tmp_path), tmp_path)
    assert page.tags.count("script") == 4
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "{{7*7}}" in page.words, "a template in a name is shown, not run"
    assert "onerror" in page.words
    tones, specs = (json.loads(script) for script in page.scripts[:2])
    assert tones == language.dark_tones()
    assert "timeline" in specs


def test_the_policy_names_the_two_scripts_and_allows_no_request(tmp_path):
    page = written(synthetic.analysis(tmp_path), tmp_path)
    policy = next(value for name, value in page.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy == pages.policy(page.scripts[2:])
    assert "unsafe-eval" not in policy
    assert not [value for name, value in page.attributes if name in ("src", "href") and not value.startswith("#")]


def test_anonymize_hides_names_ids_hosts_and_paths_everywhere(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "vega", lambda: "")
    secrets = {"run": "acme-prod", "model": "acme/secret-70b", "file": "acme-bench.json"}
    leaky = """
        update verdicts set summary = summary || ' acme/secret-70b on 10.0.0.7:8000 from /home/alice/logs/acme-bench.json';
        update data_quality set detail = 'acme-bench.json is cut off; see https://acme.example/x';
        update stalls set request_id = 'cmpl-acme-' || request_index;
        update core.requests set request_id = 'cmpl-acme-' || request_index;
    """
    analysis = synthetic.analysis(tmp_path, engines=("gpu07.acme/0", "gpu08.acme/0"), **secrets, afterwards=leaky)
    out = tmp_path / "report.html"
    report.write_report(analysis, out, anonymize=True)
    html = out.read_text(encoding="utf-8")
    report.write_markdown(analysis, tmp_path / "summary.md", anonymize=True)
    write_timeline(analysis, tmp_path / "timeline.png", tmp_path / "timeline.svg", anonymize=True)
    for text in (html, (tmp_path / "summary.md").read_text(), (tmp_path / "timeline.svg").read_text()):
        for secret in ("acme", "secret-70b", "alice", "10.0.0.7", "gpu07"):
            assert secret not in text
    assert "host-1/0" in html
    assert "model-1" in html
    assert "Preemption" in html


def test_a_run_named_like_a_word_of_the_product_is_hidden_without_harm(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "vega", lambda: "")
    words = written(synthetic.analysis(tmp_path, run="preemption"), tmp_path, anonymize=True).words
    assert "run-1" in words
    assert "Queue for KV room" in words


def test_a_day_of_100_engines_stays_small(tmp_path, monkeypatch):
    engines = tuple(f"node{number:02}/0" for number in range(100))
    analysis = synthetic.analysis(tmp_path, engines=engines, afterwards=synthetic.A_DAY)
    with Data.open(analysis) as data:
        figures = report.drawn(data)
        monkeypatch.setattr(report, "drawn", lambda _: figures)
        assert 1_000_000 < len(report.page(data).encode()) < 5_000_000
        assert figures["timeline"].rows <= 6_000
        assert "The 24 under most pressure are shown, the hardest pressed first." in figures["engines"].answer


def test_markdown_says_the_same_in_a_screenful(tmp_path):
    report.write_markdown(synthetic.analysis(tmp_path, hostile="|# <b>bold</b> `code`"), tmp_path / "summary.md")
    text = (tmp_path / "summary.md").read_text()
    assert text.startswith("# Preemption: storm\n")
    assert "| Preemptions | 51 | 49 to 53 |" in text
    assert "1. **Run fewer requests at once** (max\\_num\\_seqs: 32 → 16)." in text
    assert "<b>" not in text
    assert len(text.splitlines()) < 45


def test_the_picture_is_small_and_there_even_where_nothing_is_known(tmp_path):
    for number, afterwards in enumerate(["", "; ".join(EMPTIES)]):
        png = verdict_png(synthetic.analysis(tmp_path / str(number), afterwards=afterwards))
        assert png.startswith(b"\x89PNG")
        assert len(png) < 120_000
        files = tmp_path / f"{number}.png", tmp_path / f"{number}.svg"
        write_timeline(tmp_path / str(number), *files)
        assert files[0].read_bytes().startswith(b"\x89PNG")
        assert ("51 running requests were preempted" in files[1].read_text()) is not bool(afterwards)


def test_a_run_over_midnight_is_told_with_both_days_and_one_within_a_day_with_one():
    late, later = datetime(2026, 8, 1, 23, 43, 46, tzinfo=UTC), datetime(2026, 8, 1, 23, 59, 1, tzinfo=UTC)
    assert language.dated(late, later) == "1 August 2026, 23:43:46 to 23:59:01 UTC"
    assert language.dated(late, later + timedelta(minutes=10)) == "1 August 2026, 23:43:46 to 2 August 2026, 00:09:01 UTC"
    assert (language.dated(late, late), language.dated(None, None)) == ("1 August 2026, 23:43:46 UTC", "")


def test_shaded_windows_never_overlap():
    def window(start, end, severity):
        return {"engine": "0", "verdict": "preemption", "window_start": start, "window_end": end, "severity": severity}

    told = timeline.worded([window(0, 10, 90), window(5, 20, 60), window(10, 12, 50), window(30, 40, 5)])
    assert [each["is_shaded"] for each in told] == [True, False, True, False]


# the visual language

MACHADO = {  # how eyes without one cone type see linear RGB (Machado, Oliveira and Fernandes 2009, severity 1)
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in channels]


def contrast(one, other):
    luminances = sorted(sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(each), strict=True)) for each in (one, other))
    return (luminances[1] + 0.05) / (luminances[0] + 0.05)


def lab(colour, eyes):
    seen = [
        min(1, max(0, sum(weight * channel for weight, channel in zip(row, linear(colour), strict=True))))
        for row in MACHADO[eyes]
    ]
    xyz = [
        sum(weight * channel for weight, channel in zip(row, seen, strict=True)) / white
        for row, white in (((0.4124, 0.3576, 0.1805), 0.9505), ((0.2126, 0.7152, 0.0722), 1), ((0.0193, 0.1192, 0.9505), 1.089))
    ]
    x, y, z = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in xyz)
    return (116 * y - 16, 500 * (x - y), 200 * (y - z))


@pytest.mark.parametrize("side", ["light", "dark"])
@pytest.mark.parametrize("eyes", MACHADO)
def test_the_five_events_and_ordinary_work_stay_apart_for_all_eyes(side, eyes):
    tones = [getattr(tone, side) for tone in (language.WORK, *(event.tone for event in language.EVENTS))]
    nearest = min(math.dist(lab(one, eyes), lab(other, eyes)) for one, other in itertools.combinations(tones, 2))
    assert nearest > 12, "about five times a just noticeable difference"


@pytest.mark.parametrize("side", ["light", "dark"])
def test_text_reaches_aa_and_marks_reach_three_to_one(side):
    paper = getattr(language.PAPER, side)
    assert all(contrast(getattr(tone, side), paper) >= 4.5 for tone in (language.INK, language.SOFT))
    assert contrast(getattr(language.SOFT, side), getattr(language.GRID, side)) >= 4.5
    assert all(contrast(getattr(event.tone, side), paper) >= 3 for event in language.EVENTS)


def test_no_two_tones_share_a_colour():
    lights = [tone.light for tone in language.TONES]
    assert len(set(lights)) == len(lights) == len(language.dark_tones())


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (language.short, 38_412, "38.4 k"),
        (language.short, 999.9, "1.00 k"),
        (language.short, 0, "0"),
        (language.short, None, "not known"),
        (language.count, 23_196.5, "23,197"),
        (language.percent, 0.121, "12 %"),
        (language.percent, 0.0004, "0.04 %"),
        (language.duration, 0.04, "40 ms"),
        (language.duration, 99.6, "1 min 40 s"),
        (language.duration, 7500, "2 h 5 min"),
    ],
)
def test_numbers_read_as_people_write_them(form, value, text):
    assert form(value) == text


def test_the_summary_says_what_else_held_and_how_severe_it_was(tmp_path):
    again = """
        insert into verdicts by name
        select * replace (window_start - to_minutes(1) as window_start, 12.0 as severity)
        from verdicts where verdict = 'queue_kv_capacity'
    """
    said = "Other sources say otherwise (KV events: 5)."
    waste = f"update waste set contradiction = '{said}' where kind = 'preemption_recompute'"
    report.write_markdown(synthetic.analysis(tmp_path, afterwards=f"{again}; {waste}"), tmp_path / "summary.md")
    text = (tmp_path / "summary.md").read_text()
    assert text.count("84 requests waited for KV room.") == 1
    assert "(severity 48, 13:09:15 to 13:11:00 UTC, and once more): 84 requests waited for KV room." in text
    assert "(severity 24): Long prefills slowed every stream." in text
    assert said in text.split("## Also held")[0]
