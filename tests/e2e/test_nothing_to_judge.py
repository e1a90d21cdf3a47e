"""Inputs that show no engine's load, or one instant of it: the answer says what cannot be told, why, and what to do."""

import json

import pytest

from pipelines import analysis, digest, publish
from pipelines.models import Run
from tests.conftest import read_into
from tests.typed_tables import Sql

PAGE = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 12.0
"""
TIMED = "".join(f"# scrape_unix_ms {1767225600000 + 5000 * number}\n{PAGE}" for number in range(4))
NONE_SENT = {
    "date": "20260101-000000", "backend": "openai", "endpoint_type": "openai", "model_id": "m", "tokenizer_id": "m",
    "num_prompts": 0, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 4, "duration": 0.0, "completed": 0,
    "failed": 0, "total_input_tokens": 0, "total_output_tokens": 0, "request_throughput": 0.0, "output_throughput": 0.0,
    "input_lens": [], "output_lens": [], "ttfts": [], "itls": [], "start_times": [], "errors": [], "mean_ttft_ms": 0.0,
}  # fmt: skip
CALM = NONE_SENT | {
    "num_prompts": 2, "duration": 2.0, "completed": 2, "total_input_tokens": 20, "total_output_tokens": 4,
    "input_lens": [10, 10], "output_lens": [2, 2], "ttfts": [0.05, 0.05], "itls": [[0.02], [0.02]], "start_times": [100.0, 101.0],
    "errors": ["", ""], "mean_ttft_ms": 50.0,
}  # fmt: skip
FAILED = CALM | {"completed": 0, "failed": 2, "errors": ["refused", "refused"], "ttfts": [0.0, 0.0], "itls": [[], []]}
LEVELS = {f"c{level}.json": json.dumps(NONE_SENT | {"max_concurrency": level}) for level in (1, 4, 8)}
LATE = {"since": "2026-02-01T00:00:00+00:00"}

CASES = {  # files, window; of the verdict: its sentence, a piece of its evidence, and of what it says to do
    "a page that hardly says anything": ({"metrics.txt": PAGE}, {}, "whether anybody waited", "3 requests ran.", "--metrics URL"),
    "pages without a time": ({"metrics.txt": PAGE}, LATE, "carries no time", "metrics.txt: 2 lines", "# scrape_unix_ms"),
    "a benchmark of nothing": ({"client.json": json.dumps(NONE_SENT)}, {}, "sent no request", "client.json", "run it again"),
    "a sweep of nothing": (LEVELS, {}, "sent no request", "c1.json, c4.json, c8.json", "run it again"),
    "after everything": ({"metrics.txt": TIMED}, LATE, "time asked for", "2026-01-01 00:00:15 UTC", "Leave out --since"),
    "clients, all failed": ({"client.json": json.dumps(FAILED)}, {}, "the engine's load", "2 of them failed", "Scrape /metrics"),
    "clients, all calm": ({"client.json": json.dumps(CALM)}, {}, "the engine's load", "2 requests as clients", "Scrape /metrics"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_says_what_was_given_why_it_cannot_be_judged_and_what_to_do(tmp_path, case):
    files, window, sentence, given, remedy = CASES[case]
    for name, content in files.items():
        (tmp_path / name).write_text(content)

    sql = read_into(Sql(), tmp_path, Run("run", **window))
    [main] = [row for row in sql.rows("advice.verdicts").dicts() if row["is_primary"]]
    assert (main["verdict"], main["severity"]) == ("insufficient_evidence", 0)
    assert sentence in main["summary"]
    assert given in " ".join(main["evidence"])
    assert remedy in " ".join(main["missing"])
    assert sql.rows("marts.sweep_knee").dicts() == []


def test_a_report_of_nothing_has_the_same_sentence(tmp_path):
    (tmp_path / "metrics.txt").write_text(PAGE)

    made = analysis.analyze([tmp_path / "metrics.txt"], tmp_path / "out", Run("run", **LATE))

    for file in (publish.REPORT, publish.TICKET):
        assert "What was given carries no time" in (made.out / file).read_text()


@pytest.mark.parametrize(
    ("stamp", "instant", "window", "remedy"),
    [
        ("# scrape_unix_ms 1767225600000\n", "the one instant seen", "00:00:00 UTC, severity", "Two samples at least"),
        (
            "",
            "the one instant seen, whose time is not known",
            "Severity",
            "Scrape /metrics again in a minute and give both pages",
        ),
    ],
)
def test_one_page_alone_is_told_as_the_instant_that_it_is(tmp_path, stamp, instant, window, remedy):
    load = {"num_requests_waiting": 9.0, "kv_cache_usage_perc": 0.99}
    page = PAGE + "".join(f'vllm:{name}{{engine="0",model_name="m"}} {value}\n' for name, value in load.items())
    (tmp_path / "metrics.txt").write_text(f"{stamp}{page}")

    made = analysis.analyze([tmp_path / "metrics.txt"], tmp_path / "out", Run("run"))

    screen, ticket = digest.text(made.database), (made.out / publish.TICKET).read_text()
    for told in (screen, ticket):
        assert f"At {instant}, 9 requests waited for room in the KV pool" in " ".join(told.split())
        assert "The engine has counted 12 preemptions since it started." in told
        assert remedy in told.replace("\n    ", " ")
        assert "15 s" not in told.replace("every 15 s or less", "")
    assert "| With a queue | not known |" in ticket
    assert "Who paid" not in screen
    assert f"{window} 43 of 100, confidence 45 %" in ticket
