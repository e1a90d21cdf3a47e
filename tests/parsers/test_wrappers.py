"""A log under any two wrappers reads as it does without; so do several servers in one file, replays, and lines out of order."""

import csv
import gzip
import io
import itertools
import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from reading import SHARED, read_any

from parsers import InputError, Source
from parsers.rotated import RotatedSource, joined
from parsers.wrappers import chain_of

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
BEGAN = datetime(2026, 11, 29, 12, 11, 29, 123, tzinfo=UTC)


def at(index):
    return BEGAN + timedelta(milliseconds=10 * index)


def cri(index, line):
    time = at(index).isoformat().replace("+00:00", "789Z")
    if len(line) > 100:
        return [f"{time} stdout P {line[:60]}", f"{time} stdout F {line[60:]}"]
    return [f"{time} stdout F {line}"]


def docker(index, line):
    entry = {"stream": "stdout", "time": at(index).isoformat()}
    if len(line) > 16 * 1024:
        return [json.dumps({"log": line[: 16 * 1024], **entry}), json.dumps({"log": line[16 * 1024 :] + "\n", **entry})]
    return [json.dumps({"log": line + "\n", **entry})]


WRAPPERS = {
    "CRI": cri,
    "docker json-file": docker,
    "kubectl --timestamps": lambda i, line: [f"{at(i).isoformat().replace('+00:00', 'Z')} {line}"],
    "kubectl --prefix": lambda _, line: [f"[pod/vllm-0/server] {line}"],
    "docker compose": lambda _, line: [f"\x1b[36mvllm-1  | \x1b[0m{line}"],
    "journald short": lambda i, line: [f"{at(i):%b %d %H:%M:%S} node-3 vllm[812]: {line}"],
    "journald JSON": lambda i, line: [
        json.dumps({"MESSAGE": line, "__REALTIME_TIMESTAMP": str(round(at(i).timestamp() * 1e6)), "_HOSTNAME": "node-3"})
    ],
    "syslog": lambda i, line: [f"<134>1 {at(i).isoformat()} node-3 vllm 812 - - {line}"],
    "logcli": lambda i, line: [f'{at(i).isoformat()} {{app="vllm", pod="vllm-0"}} {line}'],
    "CloudWatch": lambda i, line: [
        json.dumps({"timestamp": round(at(i).timestamp() * 1e3), "message": line, "logStreamName": "s"})
    ],
    "Vector": lambda i, line: [
        json.dumps({"message": line, "timestamp": at(i).isoformat(), "kubernetes": {"pod_name": "vllm-0"}})
    ],
    "Fluent Bit": lambda i, line: [json.dumps({"date": at(i).timestamp(), "log": line, "stream": "stdout"})],
}
LOGS = {
    "vLLM": SAMPLES / "vllm-0.32-preemption" / "server.log",
    "SGLang": SAMPLES / "sglang-0.5.23-retraction" / "server.log.gz",
    "llama.cpp": SAMPLES / "llamacpp-b11549-exhaustion" / "server.log",
}
EXPORTS = {
    "Datadog": (
        ("Date", "Host", "Service", "Message"),
        lambda i, line: (f"{at(i):%Y-%m-%dT%H:%M:%S.%f}Z", "node-3", "vllm", line),
    ),
    "Splunk": (
        ("_raw", "_time", "host", "index"),
        lambda i, line: (line, f"{at(i):%Y-%m-%dT%H:%M:%S.%f}+0000", "node-3", "main"),
    ),
    "CloudWatch Insights": (
        ("@timestamp", "@message", "@logStream"),
        lambda i, line: (f"{at(i):%Y-%m-%d %H:%M:%S.%f}", line, "vllm-0"),
    ),
    "Grafana": (("Line", "tsNs", "pod"), lambda i, line: (line, round(at(i).timestamp() * 1e6) * 1000, "vllm-0")),
}
CAME_FROM_STAMP = {"at_utc", "line"}
LLAMACPP_STAMP = {
    "at_local",
    "start_at",
    "end_at",
}  # its own stamp is the time since its start, of use only where nothing wraps it


def wrapped(lines, name):
    return [each for index, line in enumerate(lines) for each in WRAPPERS[name](index, line)]


def tables(content, *, but=CAME_FROM_STAMP):
    """The format, and all rows; a ratio is the same to nine digits, for lines read together divide otherwise."""
    form, result = read_any(content)
    rows = {
        table: [{k: round(v, 9) if isinstance(v, float) else v for k, v in row.items() if k not in but} for row in rows]
        for table, rows in result.rows.items()
    }
    return form.name, rows


def lines_of(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return text.decode().splitlines()


def excerpt(path):
    """The start of a log and every fourth line after it: rows of every table that it has, and little that is said again."""
    lines = lines_of(path)
    return lines[:100] + lines[100:700:4]


@cache
def bare(engine):
    """The excerpt of an engine's log as it is read without a wrapper, and which columns a wrapper changes."""
    but = CAME_FROM_STAMP | (LLAMACPP_STAMP if engine == "llama.cpp" else set())
    return tables("\n".join(excerpt(LOGS[engine])) + "\n", but=but), but


@pytest.mark.parametrize("inner", WRAPPERS)
@pytest.mark.parametrize("engine", LOGS)
def test_a_log_in_a_wrapper_reads_as_the_bare_one(engine, inner):
    expected, but = bare(engine)
    assert tables("\n".join(wrapped(excerpt(LOGS[engine]), inner)) + "\n", but=but) == expected


@pytest.mark.parametrize("inner", WRAPPERS)
def test_a_log_in_two_wrappers_reads_as_the_bare_one(inner):
    for number, outer in enumerate(WRAPPERS, list(WRAPPERS).index(inner)):
        engine = list(LOGS)[number % len(LOGS)]  # each pair with one of them: what it peels off is no engine's
        expected, but = bare(engine)
        content = wrapped(wrapped(excerpt(LOGS[engine]), inner), outer)
        assert tables("\n".join(content) + "\n", but=but) == expected, (engine, outer)


def exported(lines, name, *, newest_first=True):
    """A CSV export, its records quoted as its store does."""
    header, record = EXPORTS[name]
    rows = [record(index, line) for index, line in enumerate(lines)]
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_MINIMAL if name == "Splunk" else csv.QUOTE_ALL).writerows(
        [header, *(reversed(rows) if newest_first else rows)]
    )
    return file.getvalue()


@pytest.mark.parametrize("inner", [None, "docker compose", "journald JSON"])
@pytest.mark.parametrize("store", EXPORTS)
@pytest.mark.parametrize("engine", LOGS)
def test_a_log_exported_as_csv_reads_as_the_bare_one(engine, store, inner):
    expected, but = bare(engine)
    lines = excerpt(LOGS[engine])
    assert tables(exported(lines if inner is None else wrapped(lines, inner), store), but=but) == expected


def test_an_exported_record_has_its_stores_time_and_server():
    assert samples(exported(LINES, "CloudWatch Insights"), "line at_utc prompt_tokens_per_s")[0] == [
        "13",
        "2026-11-29T12:11:29.000123",
        "0",
    ]
    two = "_time,_raw,host\n" + "".join(f'2026-11-29T12:00:{n:02}Z,"{line}",node-{n % 2}\n' for n, line in enumerate(LINES))
    assert {instance for _, _, instance, _ in samples(two)} == {"node-0", "node-1"}


@pytest.mark.parametrize("header", ["timestamp,running,waiting", "message,id", "TIMESTAMP,ContextTokens,GeneratedTokens", "Date"])
def test_other_csv_is_no_export(header):
    assert not chain_of(f"{header}\n1,2,3\n4,5,6\n".encode())


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not beside this checkout")
@pytest.mark.parametrize(
    ("outer", "inner"), list(zip(itertools.cycle(("docker json-file", "journald JSON", "logcli")), WRAPPERS, strict=False))
)
def test_a_whole_recording_in_two_wrappers_reads_as_the_bare_one(outer, inner):
    path = SHARED / "truth" / "preempt" / "server.log"
    content = "\n".join(wrapped(wrapped(lines_of(path), inner), outer)) + "\n"
    assert tables(content) == tables(path.read_bytes())


STATS = (
    "Engine 000: Avg prompt throughput: {n}.0 tokens/s, Avg generation throughput: 5.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs"
)
LINES = [f"(APIServer pid=1) INFO 11-29 13:00:{n:02} [loggers.py:335] {STATS.format(n=n)}" for n in range(12)]


def samples(content, columns="line at_utc instance prompt_tokens_per_s"):
    return read_any(content)[1].table("engine_samples", columns)


def test_the_wrappers_time_stands_beside_the_engines_own_stamp():
    content = "".join(f"2026-11-29T12:00:{n:02}.123456789Z stdout F {line}\n" for n, line in enumerate(LINES))
    assert samples(content, "line at_utc at_local prompt_tokens_per_s")[:2] == [
        ["1", "2026-11-29T12:00:00.123456", "2000-11-29T13:00:00", "0"],
        ["2", "2026-11-29T12:00:01.123456", "2000-11-29T13:00:01", "1"],
    ]


@pytest.mark.parametrize("form", ["[pod/{pod}/server] {time} {line}", '{time} {{pod="{pod}"}} {line}', "{pod}  | {time} {line}"])
def test_two_pods_in_one_file_are_two_servers(form):
    content = "".join(
        form.format(pod=pod, time=f"2026-11-29T12:00:{n:02}.{pod[-1]}Z", line=line) + "\n"
        for n, line in enumerate(LINES)
        for pod in ("vllm-0", "vllm-1")
    )
    found = samples(content)
    assert len(found) == 24
    assert {instance for _, _, instance, _ in found} == {"vllm-0", "vllm-1"}
    assert found[12] == ["2", "2026-11-29T12:00:00.1", "vllm-1", "0"]


def test_what_another_program_wrote_is_ignored_and_one_server_needs_no_name():
    others = [f"proxy-1  | GET /v1/completions {n}\n" for n in range(12)]
    form, result = read_any("".join(itertools.chain(*zip([f"vllm-1  | {line}\n" for line in LINES], others, strict=True))))
    assert (form.name, result.account.lines, result.account.used, result.account.ignored) == ("vllm_engine_log", 24, 12, 12)
    assert {row["instance"] for row in result.rows["engine_samples"]} == {None}


def test_a_replay_is_read_once_and_newest_first_is_turned_round():
    content = [f"2026-11-29T12:00:{n:02}.5Z {line}\n" for n, line in enumerate(LINES)]
    in_order = samples("".join(content), "at_utc prompt_tokens_per_s")
    assert samples("".join(content + content[5:]), "at_utc prompt_tokens_per_s") == in_order
    assert samples("".join(reversed(content)), "at_utc prompt_tokens_per_s") == in_order
    assert samples("".join(content[6:] + content[:6]), "at_utc prompt_tokens_per_s") == in_order
    assert [line for line, *_ in samples("".join(reversed(content)))] == [str(n) for n in range(12, 0, -1)]


def nanoseconds(index):
    return str(round(at(index).timestamp()) * 10**9)


DOCUMENTS = {
    "Loki": lambda: {
        "status": "success",
        "data": {
            "resultType": "streams",
            "result": [{"stream": {"pod": "a"}, "values": [[nanoseconds(100 * n), line] for n, line in enumerate(LINES)][::-1]}],
        },
    },
    "Grafana": lambda: [{"line": line, "timestamp": nanoseconds(100 * n), "fields": {}} for n, line in enumerate(LINES)],
    "CloudWatch": lambda: {
        "events": [
            {"logStreamName": "a", "timestamp": int(nanoseconds(100 * n)) // 10**6, "message": x} for n, x in enumerate(LINES)
        ]
    },
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("store", DOCUMENTS)
def test_an_answer_of_a_log_store_is_its_lines(store, indent):
    content = json.dumps(DOCUMENTS[store](), indent=indent)
    assert samples(content, "at_utc prompt_tokens_per_s") == [[f"2026-11-29T12:11:{29 + n}", str(n)] for n in range(12)]


def test_journald_writes_bytes_where_a_message_is_not_plain():
    entries = [{"MESSAGE": list(f"\x1b[32m{line}\x1b[0m".encode()), "__REALTIME_TIMESTAMP": "1795953600000000"} for line in LINES]
    assert len(samples("\n".join(map(json.dumps, entries)))) == 12


def test_a_line_longer_than_docker_takes_is_put_together():
    long = LINES[3].replace("(APIServer", "x" * 16_000 + " (APIServer").replace("INFO", "y" * 50 + " INFO") + "." * 600
    lines = [docker(n, LINES[n]) for n in range(12)]
    split = [
        json.dumps({"log": text, "stream": "stdout", "time": at(0).isoformat()}) for text in (long[:16384], long[16384:] + "\n")
    ]
    _, result = read_any("\n".join([*itertools.chain(*lines), *split]))
    assert (result.account.lines, result.account.balanced) == (14, True)


def test_metrics_under_a_wrapper_are_metrics():
    page = '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} 3.0\n' * 3
    content = "".join(f"2026-11-29T12:00:00.5Z stdout F {line}\n" for line in page.splitlines())
    form, result = read_any(content)
    assert form.name == "prometheus_text"
    assert result.rows["metric_samples"][0]["value"] == 3


@pytest.mark.parametrize(
    "head",
    [
        "".join(f"{line}\n" for line in LINES),
        '{"asctime": "2026-11-29 13:06:38,201", "message": "Engine 000: …", "processName": "MainProcess"}\n',
        "t,running,waiting\n1.0,5,2\n",
        '[{"role": "user", "message": "hello"}]',
        "",
        "{",
    ],
)
def test_nothing_is_peeled_off_what_has_no_wrapper(head):
    assert not chain_of(head.encode())


def test_a_rotated_log_is_one_text_oldest_first(tmp_path):
    parts = {"server.log": LINES[8:], "server.log.1": LINES[4:8], "server.log.2.gz": LINES[:4]}
    for name, lines in parts.items():
        content = "\n".join(lines).encode()  # the last line of each is not ended
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    (tmp_path / "metrics.1").write_text("vllm:num_requests_running 1\n")
    sources = joined([Source(tmp_path / name, name.removesuffix(".gz")) for name in [*sorted(parts), "metrics.1"]])
    assert [source.name for source in sources] == ["server.log", "metrics.1"]
    assert sources[0].open().read().decode().splitlines() == LINES


def test_a_cut_part_of_a_rotated_log_costs_only_its_end(tmp_path):
    (tmp_path / "a.log").write_text("new\n")
    (tmp_path / "a.log.1").write_bytes(gzip.compress(b"old\n" * 50_000, 0)[:-1000])
    parts = RotatedSource(tmp_path / "a.log", "a.log", (Source(tmp_path / "a.log.1", "a.log.1"),))
    with parts.open() as stream:
        lines = []
        with pytest.raises(InputError, match="ends early"):
            lines.extend(stream)
    assert lines[-1] == b"new\n"
