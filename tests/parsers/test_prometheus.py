"""Prometheus metrics, as text and as JSON of its HTTP API."""

import gzip
import json
import re
import shutil
import subprocess
from array import array
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import SHARED, cells, read, read_any, refusal

from parsers import InputError
from parsers.prometheus_json import FORMAT as JSON
from parsers.prometheus_names import config, identity, kept_name
from parsers.prometheus_samples import Samples
from parsers.prometheus_text import FORMAT as TEXT
from parsers.prometheus_text import parse_labels, scrape_time

NOON = 1764417600  # 2025-11-29 12:00:00 UTC
RECORDING = Path(__file__).resolve().parents[2] / "sample_traces" / "vllm-0.32-recorder-killed" / "metrics.txt.gz"


def test_each_scrape_has_the_time_of_the_comment_above_it():
    page = read(
        TEXT,
        """
# scrape_unix_ms 1764417600000
# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 30.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7644176e+09
python_info{version="3.11.7"} 1.0
# scrape_unix_ms 1764417615000
vllm:num_preemptions_total{engine="0",model_name="m"} 60.0
""",
    )
    assert page.table("metric_samples", "at_utc engine model name value") == cells("""
        2025-11-29T12:00:00  0  m  vllm:num_preemptions_total  30
        2025-11-29T12:00:15  0  m  vllm:num_preemptions_total  60
    """)
    assert (page.account.used, page.account.ignored, page.account.not_understood) == (4, 5, 0)  # two of the used are times


def test_a_page_is_told_from_a_log_that_quotes_one():
    page = b"# HELP vllm:a A.\n# TYPE vllm:a gauge\nvllm:a 1\n"
    assert TEXT.detect(page) == 0.95
    assert TEXT.detect(page.replace(b"vllm:", b"python_")) == 0.6
    assert TEXT.detect(page + b"INFO 01-23 06:33:37 and so on\n") == 0


def test_a_page_without_any_time_leaves_it_null():
    page = read(TEXT, "# TYPE up gauge\nup 1\nvllm:num_requests_running 3\n")
    assert page.table("metric_samples", "at_utc name value") == cells("""
        -  up                         1
        -  vllm:num_requests_running  3
    """)


def test_a_sample_s_own_time_wins_over_its_scrape():
    page = read(
        TEXT,
        "# timestamp: 1764417600\n"
        "vllm:num_requests_running 1\n"
        "vllm:num_requests_running 2 1764417601500\n"
        "vllm:num_requests_running 2.5\t1764417601500\n"
        "vllm:num_requests_running 3 1764417602.25\n"
        'vllm:request_success_total{finished_reason="stop"} 7 1764417603 # {trace_id="4b # {f9"} 1.0 1764417599.1\n'
        'vllm:request_success_total{finished_reason="stop"} 8.0 # {trace_id="4bf9"} 1.0\n'
        "# EOF\n",
    )
    assert page.table("metric_samples", "at_utc labels value") == cells("""
        2025-11-29T12:00:00      ''                     1
        2025-11-29T12:00:01.5    ''                     2
        2025-11-29T12:00:01.5    ''                     2.5
        2025-11-29T12:00:02.25   ''                     3
        2025-11-29T12:00:03      finished_reason=stop   7
        2025-11-29T12:00:00      finished_reason=stop   8
    """)


@pytest.mark.parametrize(
    "line",
    [
        "# scrape_unix_ms 1764417600000",
        "# timestamp: 1764417600",
        "# timestamp=1764417600.000",
        "# time 2025-11-29T12:00:00Z",
        "# 2025-11-29T12:00:00Z",
        "# 2025-11-29T13:00:00+01:00",
        "# 2025-11-29 12:00:00",
        "# 2025-11-29 12:00",
        "# 2025-11-29 12:00:00 UTC",
        "# 2025-11-29T12:00:00,000000000+00:00",
        "# scrape 17 at 2025-11-29T12:00:00.000Z",
        "#1764417600",
        "# 1764417600000000",
        "# 1764417600000000000",
        "# Sat Nov 29 12:00:00 UTC 2025",
        "# Sat Nov 29 12:00:00 PM UTC 2025",
        "=== 2025-11-29T12:00:00Z ===",
        "1764417600",
        "Sat Nov 29 12:00:00 UTC 2025",
        "# scraped_at: [2025-11-29T12:00:00Z]",
    ],
)
def test_ways_to_date_a_scrape(line):
    assert scrape_time(line.encode()) == NOON * 1_000_000


@pytest.mark.parametrize(
    "line",
    ["# process started 2025-11-29T12:00:00Z", "# 42", "# scrape", "# 17644176001", "# 2025-13-29T12:00:00Z", "# EOF", "##"],
)
def test_what_does_not_date_a_scrape(line):
    assert scrape_time(line.encode()) is None


def test_a_scrape_under_an_unreadable_time_does_not_take_the_one_before():
    page = read(TEXT, "# scrape 1764417600\nup 1\n# scrape at noon\nup 0\n")
    assert page.table("metric_samples", "at_utc value") == cells("""
        2025-11-29T12:00:00  1
        -                    0
    """)
    assert page.account.first_not_understood == 3


def test_nan_is_no_sample_but_its_line_is_used():
    page = read(
        TEXT,
        "vllm:a NaN\nvllm:b +Inf\nvllm:c -Inf\n"
        'vllm:ttft_seconds_bucket{le="+Inf"} 4\nvllm:ttft_seconds_bucket{le="0.5"} 3\nvllm:d nan\nvllm:d 1\nvllm:d nan\n',
    )
    assert page.table("metric_samples", "name le value") == cells("""
        vllm:b                    -    inf
        vllm:c                    -   -inf
        vllm:ttft_seconds_bucket  inf  4
        vllm:ttft_seconds_bucket  0.5  3
        vllm:d                    -    1
    """)
    assert page.account.used == 8


def test_garbage_among_samples_is_counted_and_named():
    page = read(TEXT, 'up 1\nup one\nup\ncurl: (7) Failed to connect\nvllm:x{a="b} 1\nvllm:x{a=b} 1\nup 1\n')
    assert (page.account.used, page.account.not_understood, page.account.first_not_understood) == (2, 5, 2)


def test_label_order_and_escapes_do_not_matter():
    page = read(
        TEXT,
        'vllm:x{model_name="a\\\\b",engine="1",q="say \\"hi\\", ok # {\\n}"} 1\r\n'
        'vllm:x{ engine = "1" , model_name="m" , } 2\n'
        "vllm:y\t{}  3 \n",
    )
    assert [(row["engine"], row["model"], row["labels"], row["value"]) for row in page.rows["metric_samples"]] == [
        ("1", "a\\b", 'q=say "hi", ok # {\n}', 1.0),
        ("1", "m", "", 2.0),
        (None, None, "", 3.0),
    ]


def test_cache_config_is_written_once_per_set_of_values_and_not_once_per_scrape():
    info = (
        'vllm:cache_config_info{{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="{}",sliding_window="None"}} 1.0\n'
    )
    scrapes = [f"# scrape {NOON + 15 * i}\n{info.format(blocks)}" for i, blocks in enumerate((100, 100, 200, 200))]
    page = read(TEXT, "".join(scrapes))
    assert page.table("engine_config", "line at_utc engine key value_text") == cells("""
        2  2025-11-29T12:00:00  0  block_size      16
        2  2025-11-29T12:00:00  0  kv_cache_dtype  auto
        2  2025-11-29T12:00:00  0  num_gpu_blocks  100
        6  2025-11-29T12:00:30  0  block_size      16
        6  2025-11-29T12:00:30  0  kv_cache_dtype  auto
        6  2025-11-29T12:00:30  0  num_gpu_blocks  200
    """)
    assert len(page.rows["metric_samples"]) == 4
    other_order = read(TEXT, 'vllm:cache_config_info{a="1",block_size="16"} 1\nvllm:cache_config_info{block_size="16",a="1"} 1\n')
    assert other_order.table("engine_config", "line key") == cells("1  a\n1  block_size")


def test_samples_are_written_in_batches_in_which_a_text_is_kept_once(monkeypatch):
    monkeypatch.setattr("parsers.prometheus_samples.BATCH_ROWS", 3)
    written = []
    samples = Samples("input", SimpleNamespace(write=lambda _, batch: written.append(batch)))
    index = samples.describe("vllm:num_requests_running", {"engine": "0"}, 1, None)
    for value in range(4):
        samples.add(index, value, None)
    samples.add_page(array("i", [index] * 2), array("d", [4, 5]), 7)
    assert not samples.drop_last()  # it is written
    assert [batch["value"].to_pylist() for batch in written] == [[0, 1, 2], [3, 4, 5]]
    assert {pa.types.is_dictionary(written[0][text].type) for text in ("name", "engine", "labels", "source")} == {True}
    assert written[0]["le"].type == pa.float64()


@pytest.mark.parametrize(
    ("exposed", "kept"),
    [
        ("vllm:num_preemptions_total", "vllm:num_preemptions_total"),
        ("vllm_num_preemptions_total", "vllm:num_preemptions_total"),
        ("ray_vllm_num_preemptions_total", "vllm:num_preemptions_total"),
        ("sglang:num_retracted_reqs", "sglang:num_retracted_reqs"),
        ("llamacpp:requests_deferred", "llamacpp:requests_deferred"),
        ("trtllm_kv_cache_hit_rate", "trtllm_kv_cache_hit_rate"),
        ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL"),
        ("process_start_time_seconds", "process_start_time_seconds"),
        ("up", "up"),
        ("vllm:num_preemptions_created", None),
        ("vllm:", None),
        ("upstream_requests", None),
        ("process_cpu_seconds_total", None),
    ],
)
def test_which_series_are_kept_under_what_name(exposed, kept):
    assert kept_name(exposed) == kept


def test_labels_that_say_whose_series_it_is_become_columns():
    whose = identity("x", {"job": "vllm", "pod": "p-0", "instance": "10.0.0.7:8000", "dp_rank": "1", "tp_rank": "0", "le": "0.5"})
    assert (whose.instance, whose.engine, whose.le, whose.labels) == ("p-0", "1", 0.5, "instance=10.0.0.7:8000,tp_rank=0")


def test_capacity_has_the_name_the_log_gives_it():
    labels = {"kv_cache_size_tokens": "4096", "engine": "0", "_block_size_resolved": "True", "num_cpu_blocks": "None"}
    assert config("vllm:cache_config_info", labels) == {"kv_capacity_tokens": "4096"}


def test_a_truncated_gzip_keeps_the_scrapes_before_the_cut():
    whole = "".join(f"# scrape {NOON + i}\nvllm:num_requests_running {i * 7919 % 104729}\n" for i in range(20_000)).encode()
    cut = read(TEXT, gzip.compress(whole)[:60_000])
    rows = cut.rows["metric_samples"]
    assert len(rows) > 5_000
    assert [row["value"] for row in rows] == [i * 7919 % 104729 for i in range(len(rows))]
    assert cut.account.error == "input: compressed file ends early; copy it again"


def test_a_file_of_ever_new_series_does_not_keep_them_all(monkeypatch):
    monkeypatch.setattr("parsers.prometheus_text.MAX_REMEMBERED", 10)
    page = read(TEXT, "".join(f'vllm:x{{request="{i}"}} {i}\n' for i in range(1000)))
    assert [(row["labels"], row["value"]) for row in page.rows["metric_samples"]] == [(f"request={i}", i) for i in range(1000)]


def matrix(*series: dict) -> dict:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(series)}}


WAITING = {
    "metric": {"__name__": "vllm:num_requests_waiting", "engine": "0", "instance": "10.0.0.7:8000", "job": "vllm", "reason": "x"},
    "values": [[NOON, "0"], [NOON + 1.5, "12"], [NOON + 2, "NaN"]],
}
TWO = "\n2025-11-29T12:00:00    10.0.0.7:8000  0  reason=x  0\n2025-11-29T12:00:01.5  10.0.0.7:8000  0  reason=x  12"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(matrix(WAITING)),
        json.dumps(matrix(WAITING), indent=2, sort_keys=True),
        json.dumps([WAITING]),
        "\ufeff" + json.dumps(matrix(WAITING)) + "\n",
    ],
    ids=["compact", "indented and sorted", "bare list", "byte order mark"],
)
def test_a_range_query_in_any_dress(text):
    assert JSON.detect(text.encode()) > 0.5
    answer = read(JSON, text)
    assert answer.table("metric_samples", "at_utc instance engine labels value") == cells(TWO)
    assert (answer.account.lines, answer.account.used) == (1, 1)


def test_several_answers_in_one_file_and_an_instant_query():
    instant = {
        "status": "success",
        "data": {"resultType": "vector", "result": [{"metric": {"__name__": "up"}, "value": [NOON, "1"]}]},
    }
    answer = read(
        JSON, json.dumps(matrix(WAITING)) + "\n" + json.dumps({"status": "success", "data": instant}) + json.dumps(matrix())
    )
    assert [row["name"] for row in answer.rows["metric_samples"]] == ["vllm:num_requests_waiting"] * 2 + ["up"]


def test_expressions_histograms_and_other_names_are_ignored_and_broken_series_counted():
    answer = read(
        JSON,
        json.dumps(
            matrix(
                {"metric": {"engine": "0"}, "values": [[NOON, "1"]]},
                {"metric": {"__name__": "vllm:x"}, "histograms": []},
                {"metric": {"__name__": "go_goroutines"}, "values": [[NOON, "1"]]},
                {"metric": {"__name__": "vllm:x"}, "values": [[NOON, "1", "2"]]},
            )
        ),
    )
    assert (answer.account.ignored, answer.account.not_understood, answer.account.first_not_understood) == (3, 1, 4)


def test_an_answer_that_is_all_computed_says_what_to_fetch_instead():
    computed = {"metric": {"instance": "a:8000"}, "values": [[NOON, "0.5"]]}
    assert "fetch the metrics themselves" in read(JSON, json.dumps(matrix(computed, computed))).account.error
    assert read(JSON, json.dumps(matrix(computed, WAITING))).account.error is None


def test_the_server_s_own_error_is_passed_on():
    text = '{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution of 11,000 points"}'
    assert JSON.detect(text.encode()) > 0.5
    with pytest.raises(InputError, match=r"^input: the server answered with an error \(exceeded maximum resolution"):
        read(JSON, text)


def test_an_answer_cut_in_the_middle_keeps_the_series_before_the_cut():
    text = json.dumps(matrix(WAITING, WAITING))
    cut = read(JSON, text[: len(text) // 2 + 120])
    assert cut.table("metric_samples", "at_utc instance engine labels value") == cells(TWO)
    assert re.fullmatch(r"input: JSON ends in the middle \(byte \d+\); fetch it again", cut.account.error)


def test_an_answer_cut_in_its_first_series_is_refused():
    with pytest.raises(InputError, match=r"^input: JSON ends in the middle \(byte 120\); fetch it again$"):
        read(JSON, json.dumps(matrix(WAITING))[:120])


needs_recordings = pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not beside this checkout")
ENGINE_LINE = re.compile(r"(vllm|sglang|llamacpp):(?!\w+_created)|process_start_time_seconds|up\b")


@needs_recordings
@pytest.mark.parametrize(
    "pattern", ["truth/*/metrics/*.txt", "scenarios/*.prom", "engines/*/*/metrics_*.txt", "engines/*/*.metrics.txt"]
)
def test_recorded_pages_give_as_many_samples_as_they_have_lines(pattern):
    pages = sorted(SHARED.glob(pattern))
    assert pages
    for path in pages:
        lines = path.read_text().splitlines()
        samples = [line for line in lines if ENGINE_LINE.match(line)]
        page = read(TEXT, path)
        assert page.account.used == len(samples) + sum(line.startswith("# scrape_unix_ms") for line in lines)
        assert page.account.not_understood == 0
        assert len(page.rows["metric_samples"]) == sum(not line.endswith(" NaN") for line in samples)


@needs_recordings
def test_recorded_answers_give_as_many_samples_as_they_have_points():
    for path in sorted(SHARED.glob("truth/*/prometheus.json.gz")):
        result = json.loads(gzip.decompress(path.read_bytes()))["data"]["result"]
        kept = [series for series in result if ENGINE_LINE.match(series["metric"]["__name__"])]
        answer = read(JSON, path)
        assert (answer.account.lines, answer.account.used) == (len(result), len(kept))
        points = sum(value != "NaN" for series in kept for _, value in series["values"])
        assert len(answer.rows["metric_samples"]) == points


label_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), label_text, max_size=5))
def test_labels_survive_the_way_through_the_text(labels):
    escaped = {key: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key, value in labels.items()}
    assert parse_labels("{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}") == labels


lines_like_metrics = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from(
            [b"# scrape 1764417600", b"up 1", b'vllm:x{a="1"} 2', b'vllm:x{a="1"} x', b"# HELP up", b"#", b"", b"up 1 9e999"]
        ),
    ),
    max_size=20,
).map(b"\n".join)


@given(lines_like_metrics)
def test_no_bytes_break_the_text_reader(content):
    assert 0 <= TEXT.detect(content) <= 1
    assert re.fullmatch(r"(input: .+)?", refusal(TEXT, content))


@given(st.one_of(st.binary(max_size=80), st.text(max_size=40).map(str.encode)), st.integers(0, 400))
def test_no_bytes_break_the_json_reader(junk, cut):
    for content in (junk, json.dumps(matrix(WAITING, WAITING)).encode()[:cut] + junk):
        assert 0 <= JSON.detect(content) <= 1
        assert re.fullmatch(r"(input: .+)?", refusal(JSON, content))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["metric", "values", "value", "result", "a"]), inner)
    ),
    max_leaves=20,
)


@given(json_values)
def test_no_json_breaks_the_json_reader(value):
    for document in (value, matrix(value), [value], {"result": [value]}):
        assert re.fullmatch(r"(input: .+)?", refusal(JSON, json.dumps(document)))


# promtool


def recorded_series() -> dict[str, list[tuple[int, str]]]:
    """The sample recording by series: time in milliseconds, and value."""
    series: dict[str, list[tuple[int, str]]] = {}
    at = 0
    for line in gzip.decompress(RECORDING.read_bytes()).decode().splitlines():
        if line.startswith("# scrape_unix_ms "):
            at = int(line.split()[-1])
        else:
            text, value = line.rsplit(" ", 1)
            series.setdefault(text, []).append((at, value))
    return series


def open_metrics(series: dict[str, list[tuple[int, str]]]) -> str:
    """The same as an OpenMetrics file: times in seconds, one family behind the other, stamps of creation, an end."""
    lines, known = [], set()
    for text, samples in sorted(series.items()):
        name = text.partition("{")[0]
        if name.endswith("_total") and name not in known:
            lines.append(f"# TYPE {name.removesuffix('_total')} counter")
            known.add(name)
        lines += [f"{text} {value} {at / 1000:.3f}" for at, value in samples]
        if name.endswith("_total"):
            lines.append(f"{text.replace('_total', '_created', 1)} 1764417600.5 {samples[-1][0] / 1000:.3f}")
    return "\n".join(lines) + "\n# EOF\n"


def samples_of(reading) -> list[tuple]:
    keys = ("name", "engine", "model", "le", "labels", "at_utc", "value")
    return sorted(tuple(str(row[key]) for key in keys) for row in reading.rows["metric_samples"])


def test_openmetrics_with_times_is_what_the_scrapes_were():
    recorded = read(TEXT, RECORDING)
    written = read(TEXT, open_metrics(recorded_series()))
    assert written.account.not_understood == 0
    assert samples_of(written) == samples_of(recorded)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed; `make test-tools`")
def test_a_dump_by_promtool_is_what_the_scrapes_were(tmp_path):
    series = {text: samples for text, samples in recorded_series().items() if "bucket" not in text}
    (tmp_path / "run.om").write_text(open_metrics(series))
    blocks = tmp_path / "blocks"
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", tmp_path / "run.om", blocks], check=True, capture_output=True
    )
    (blocks / "wal").mkdir()  # as a server's own folder has
    dump = subprocess.run(["promtool", "tsdb", "dump", blocks], check=True, capture_output=True).stdout
    form, dumped = read_any(dump)
    recorded = read(TEXT, RECORDING)
    assert (form.name, dumped.account.not_understood) == ("prometheus_text", 0)
    assert samples_of(dumped) == [row for row in samples_of(recorded) if "bucket" not in row[0]]


def test_a_dump_for_import_elsewhere_names_series_in_front():
    page = 'vllm:num_preemptions_total{engine="0", instance="a:8000", job="vllm"} 30 1760000015.250\n# EOF\n'
    assert read(TEXT, page).table("metric_samples", "at_utc instance engine value") == cells("2025-10-09T08:53:35.25 a:8000 0 30")


def test_a_native_histogram_of_a_dump_is_ignored():
    dump = '{__name__="vllm:a"} 1 1760000015000\n{__name__="go_x", job="a"} {count:3, sum:2, (1,2]:3} 1760000015000\n'
    account = read(TEXT, dump).account
    assert (account.used, account.ignored, account.not_understood) == (1, 1, 0)


@pytest.mark.parametrize("labels", ["", '{engine="0"}'])
def test_a_value_that_was_cut_at_the_end_of_a_recording_is_no_value(labels):
    page = f"# scrape_unix_ms 1760000015000\nvllm:a{labels} 3\n# scrape_unix_ms 1760000016000\nvllm:a{labels} 3012"
    cut = read(TEXT, page[:-3])
    assert (cut.table("metric_samples", "value"), cut.account.not_understood) == (cells("3"), 1)
    assert read(TEXT, page + "\n").table("metric_samples", "value") == cells("3\n3012")
    assert read(TEXT, page + "\nvllm:b NaN").table("metric_samples", "value") == cells("3\n3012")  # which is none that was kept
    assert read(TEXT, "vllm:a 3").table("metric_samples", "value") == cells("3")  # pasted, not recorded
