"""The recorder beside a stand-in for an engine: what it keeps, what it never writes, and what a kill or a full disk costs."""

from __future__ import annotations

import errno
import http.server
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from parsers import Sink, Source, prometheus_text
from pipelines import cli
from pipelines.analysis import parse_only
from pipelines.http_source import HttpSource, http_source
from pipelines.record.journal import Journal
from pipelines.record.kv_stream import KvStream, kept_batch
from pipelines.record.log_tail import LogTail
from pipelines.record.parts import Folder, FolderInUseError, Parts
from pipelines.record.recorder import Plan, record
from pipelines.record.scrapes import NoMetricsError, Scraper, kept_lines
from pipelines.record.scrub import scrubbed

zmq = pytest.importorskip("zmq")
msgpack = pytest.importorskip("msgpack")

PAGE = b"""# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} %d.0
vllm:num_requests_running{engine="0",model_name="m"} 3.0
python_gc_objects_collected_total{generation="0"} 4711.0
http_requests_total{handler="/v1/completions"} 12.0
"""
SECRET = 7_654_321  # a token id that must not reach the disk


class Engine:
    """A page of metrics whose counter goes up by one with each scrape, and a publisher of KV events like vLLM's."""

    def __init__(self) -> None:
        self.preemptions, self.batches = 0, []
        page, engine = http.server.BaseHTTPRequestHandler, self

        class Handler(page):
            def do_GET(self):  # noqa: N802 - the library's name
                engine.preemptions += 1
                self.send_response(200)
                self.end_headers()
                self.wfile.write(PAGE % engine.preemptions)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.context = zmq.Context()
        self.publisher, self.replay = self.context.socket(zmq.PUB), self.context.socket(zmq.ROUTER)
        self.kv_events, self.kv_replay = (
            f"tcp://127.0.0.1:{each.bind_to_random_port('tcp://127.0.0.1')}" for each in (self.publisher, self.replay)
        )
        self.stop = threading.Event()
        self.answering = threading.Thread(target=self.answer_replays, daemon=True)
        self.answering.start()

    def publish(self, count: int, *, lost: bool = False) -> None:
        """Batches that are published, or, where `lost`, only kept for replay."""
        for _ in range(count):
            number = len(self.batches)
            event = {
                "type": "BlockStored",
                "block_hashes": [number],
                "parent_block_hash": None,
                "token_ids": [SECRET],
                "block_size": 16,
            }
            self.batches.append(msgpack.packb([1764417600.5 + number, [event], 0]))
            if not lost:
                self.publisher.send_multipart((b"kv", number.to_bytes(8, "big"), self.batches[number]))

    def restart(self) -> None:
        self.batches.clear()

    def answer_replays(self) -> None:
        while not self.stop.is_set():
            if self.replay.poll(50):
                client, _, start = self.replay.recv_multipart()
                for number in range(int.from_bytes(start, "big"), len(self.batches)):
                    self.replay.send_multipart((client, b"", b"kv", number.to_bytes(8, "big"), self.batches[number]))
                self.replay.send_multipart((client, b"", b"", (-1).to_bytes(8, "big", signed=True), b""))

    def close(self) -> None:
        self.stop.set()
        self.answering.join()
        self.http.shutdown()
        self.http.server_close()
        self.context.destroy(linger=0)


@pytest.fixture
def engine():
    with closing(Engine()) as made:
        yield made


@pytest.fixture
def journal(tmp_path):
    return Journal(Parts(tmp_path / "recording.jsonl", 1 << 20), lambda _: None)


def events(folder: Path) -> list[str]:
    journal = folder / "recording.jsonl"
    return [json.loads(line)["event"] for line in journal.read_text().splitlines()] if journal.exists() else []


def wait_for(condition, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def recorder(engine: Engine, log: Path, out: Path) -> subprocess.Popen:
    """The command in a process of its own."""
    words = ["record", "--metrics", engine.url, "--kv-events", engine.kv_events, "--kv-replay", engine.kv_replay]
    words += ["--log", str(log), "--interval", "0.1", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def batch_numbers(out: Path) -> list[int]:
    """Of the lines that are whole: the recorder may be amid a write."""
    path = out / "kv_events.jsonl"
    if not path.exists():
        return []
    whole, _, _ = path.read_text().rpartition("\n")
    return [json.loads(line)["seq"] for line in whole.splitlines()]


def test_a_killed_recorder_loses_nothing_and_goes_on_where_it_was(engine, tmp_path):
    log, out = tmp_path / "engine.log", tmp_path / "recording"
    log.write_text("line 1\nline 2\n")
    first = recorder(engine, log, out)
    wait_for(lambda: size(out / "metrics.txt") > 3 * len(PAGE) and size(out / "server.log"))
    wait_for(lambda: engine.publish(1) or batch_numbers(out))  # until the subscription is there
    engine.publish(5)
    wait_for(lambda: batch_numbers(out)[-1] == len(engine.batches) - 1)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    with (out / "metrics.txt").open("ab") as file:
        file.write(b'vllm:num_preemptions_total{engine="0",model_name="m"} 1')  # a write the kill has cut
    scraped = engine.preemptions
    engine.publish(7)
    with log.open("a") as file:
        file.write("line 3\n")
    second = recorder(engine, log, out)
    wait_for(lambda: engine.preemptions > scraped + 3 and (out / "server.log").read_text().endswith("line 3\n"))
    wait_for(lambda: batch_numbers(out)[-1] == len(engine.batches) - 1)
    second.send_signal(signal.SIGTERM)
    told, said = second.communicate(timeout=30)
    assert (second.returncode, said) == (0, "")
    assert f"kvpressure analyze {out}" in told

    assert events(out) == ["started", "resumed", "stopped"]
    assert (out / "server.log").read_text() == "line 1\nline 2\nline 3\n"
    numbers = batch_numbers(out)
    assert numbers == list(range(numbers[0], len(engine.batches)))
    assert str(SECRET) not in (out / "kv_events.jsonl").read_text()
    intake = parse_only([out], tmp_path / "tables")
    assert {each.source.name: each.account.not_understood for each in intake.outcomes if each.format} == {
        "kv_events.jsonl": 0,
        "metrics.txt": 0,
        "recording.jsonl": 0,
    }
    values = [float(line.split()[1]) for line in (out / "metrics.txt").read_text().splitlines() if "preemptions" in line]
    assert values == list(range(1, engine.preemptions + 1))


# what is kept of each thing


def test_of_a_page_only_what_an_analysis_reads_is_kept():
    kept = kept_lines(PAGE % 5, None).decode().splitlines()
    assert [line.partition("{")[0] for line in kept] == ["vllm:num_preemptions_total", "vllm:num_requests_running"]


def test_servers_beside_each_other_are_told_apart():
    page = b'vllm:a{engine="0"} 1\nvllm:b 2\n'
    assert kept_lines(page, "pod-a:8000") == b'vllm:a{instance="pod-a:8000",engine="0"} 1\nvllm:b{instance="pod-a:8000"} 2\n'


def test_a_page_that_is_none_is_said_with_its_first_line():
    with pytest.raises(NoMetricsError, match=r"no metric of an inference engine there .*<html>"):
        kept_lines(b"<html>\n<body>login</body>\n", None)


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (
            "INFO Received request a: prompt: 'Dear \\'Ann\\', SECRET', n: 1, prompt_token_ids: [7, 8], lora: None.",
            "INFO Received request a: prompt: <dropped>, n: 1, prompt_token_ids: <dropped>, lora: None.",
        ),
        (
            'INFO Generated response a: output: "SECRET", output_token_ids: [3, 4], finish_reason: stop',
            "INFO Generated response a: output: <dropped>, output_token_ids: <dropped>, finish_reason: stop",
        ),
        (
            "Finish: obj=R(rid='a', text='SECRET', input_ids=None, n=8), out={'text': 'SECRET', 'meta_info': {'id': 'a'}}",
            "Finish: obj=R(rid='a', text=<dropped>, input_ids=None, n=8), out={'text': <dropped>, 'meta_info': {'id': 'a'}}",
        ),
        (
            '{"request": {"messages": [{"role": "user", "content": "SECRET ]"}], "max_tokens": 5}}',
            '{"request": {"messages": <dropped>, "max_tokens": 5}}',
        ),
        ('{"msg": "{\\"prompt\\": \\"SECRET\\", \\"n\\": 1}"}', None),
        ("Received request a: prompt: 'SECRET without an end", "Received request a: prompt: <dropped>"),
    ],
)
def test_what_users_wrote_is_taken_out_of_a_line(line, left):
    scrubs = scrubbed(line.encode()).decode()
    assert "SECRET" not in scrubs
    assert left in (None, scrubs)


def test_the_lines_of_the_sample_logs_are_left_as_they_are():
    """What was recorded of engines that print no prompts must reach the analysis unchanged."""
    for log in (Path(__file__).parents[2] / "sample_traces").glob("*/server.log"):
        for line in log.read_bytes().splitlines():
            assert scrubbed(line) == line


def test_events_of_before_0_24_are_kept_in_the_form_of_later_ones():
    old = [
        1.5,
        [["BlockStored", [b"\x01\xff"], b"\x02", [SECRET], 16, None, "GPU"], ["BlockRemoved", [3], "GPU"], ["AllBlocksCleared"]],
    ]
    assert kept_batch(old) == [
        1.5,
        [
            {"type": "BlockStored", "block_hashes": ["01ff"], "parent_block_hash": "02", "block_size": 16, "medium": "GPU"},
            {"type": "BlockRemoved", "block_hashes": [3], "medium": "GPU"},
            {"type": "AllBlocksCleared"},
        ],
        None,
    ]


# KV events, one step at a time


class Following:
    """A KV stream run to its end over what is published meanwhile."""

    def __init__(self, engine: Engine, folder: Path, journal: Journal, *, replay: bool = True) -> None:
        self.engine, self.folder, self.stop = engine, folder, threading.Event()
        parts = Parts(folder / "kv_events.jsonl", 1 << 20)
        stream = KvStream(engine.kv_events, engine.kv_replay if replay else None, parts, journal)
        self.thread = threading.Thread(target=stream.run, args=(self.stop,))

    def __enter__(self):
        before = batch_numbers(self.folder)
        self.thread.start()
        wait_for(lambda: self.engine.publish(1) or batch_numbers(self.folder) != before)
        return self

    def __exit__(self, *_):
        wait_for(lambda: batch_numbers(self.folder)[-1] == len(self.engine.batches) - 1)
        self.stop.set()
        self.thread.join()


def test_a_hole_in_the_stream_is_filled_from_the_replay_socket(engine, tmp_path, journal):
    with Following(engine, tmp_path, journal):
        engine.publish(2500, lost=True)
        engine.publish(1)
    numbers = batch_numbers(tmp_path)
    assert numbers == list(range(numbers[0], len(engine.batches)))
    assert events(tmp_path) == []


def test_a_hole_that_nobody_can_fill_is_counted(engine, tmp_path, journal):
    with Following(engine, tmp_path, journal, replay=False):
        engine.publish(3, lost=True)
        engine.publish(1)
    assert [json.loads(line)["count"] for line in (tmp_path / "recording.jsonl").read_text().splitlines()] == [3]


@pytest.mark.parametrize("replay", [True, False])
def test_an_engine_that_was_restarted_while_no_recorder_ran_is_recorded_from_its_first_batch(engine, tmp_path, journal, replay):
    with Following(engine, tmp_path, journal, replay=replay):
        engine.publish(9)
    before = batch_numbers(tmp_path)
    engine.restart()
    engine.batches += [msgpack.packb([1764499999.5 + number, [], 0]) for number in range(4)]  # published to nobody
    with Following(engine, tmp_path, journal, replay=replay):
        engine.publish(1)
    after = batch_numbers(tmp_path)[len(before) :]
    assert after == (list(range(len(engine.batches))) if replay else list(range(after[0], len(engine.batches))))
    assert events(tmp_path).count("kv_publisher_restarted") == 1


# the log


def followed(log: Path, folder: Path, journal: Journal) -> str:
    """The recording after one look at the log."""
    tail = LogTail(log, Parts(folder / "server.log", 1 << 20), journal)
    stop = threading.Event()
    stop.set()
    tail.run(stop)
    return (folder / "server.log").read_text()


def test_a_log_is_followed_across_its_rotation_while_the_recorder_runs(tmp_path, journal):
    log, stop = tmp_path / "engine.log", threading.Event()
    log.write_text("a\nb")
    tail = LogTail(log, Parts(tmp_path / "server.log", 1 << 20), journal)
    thread = threading.Thread(target=tail.run, args=(stop,))
    thread.start()
    wait_for(lambda: size(tmp_path / "server.log") == 2)
    with log.open("a") as file:
        log.rename(tmp_path / "engine.log.1")
        file.write("b\nc\n")  # the writer has not noticed yet
    log.write_text("d\n")
    wait_for(lambda: size(tmp_path / "server.log") == len("a\nbb\nc\nd\n"))
    stop.set()
    thread.join()
    assert (tmp_path / "server.log").read_text() == "a\nbb\nc\nd\n"


def test_a_log_rotated_while_no_recorder_ran_is_found_again(tmp_path, journal):
    log = tmp_path / "engine.log"
    log.write_text("a\n")
    assert followed(log, tmp_path, journal) == "a\n"
    with log.open("a") as file:
        file.write("b\n")
    log.rename(tmp_path / "engine.log.1")
    log.write_text("c\n")
    assert followed(log, tmp_path, journal) == "a\nb\nc\n"
    log.unlink()
    log.write_text("d\n")
    assert followed(log, tmp_path, journal) == "a\nb\nc\nd\n"
    assert events(tmp_path) == ["log_lost"]


def test_a_file_beside_the_log_is_not_taken_for_its_rotated_part(tmp_path, journal):
    log = tmp_path / "engine.log"
    log.write_text("a\n")
    followed(log, tmp_path, journal)
    log.rename(tmp_path / "engine.log.1")
    (tmp_path / "engine.log.errors").write_text("of another\n")
    log.write_text("b\n")
    assert followed(log, tmp_path, journal) == "a\nb\n"


def test_a_line_that_is_not_ended_waits_for_its_end(tmp_path, journal):
    log = tmp_path / "engine.log"
    log.write_text("a\nhal")
    assert followed(log, tmp_path, journal) == "a\n"
    with log.open("a") as file:
        file.write("f\n")
    assert followed(log, tmp_path, journal) == "a\nhalf\n"


def test_a_log_emptied_in_place_begins_anew_and_the_loss_is_said(tmp_path, journal):
    log = tmp_path / "engine.log"
    log.write_text("a\nb\nc\n")
    followed(log, tmp_path, journal)
    log.write_text("d\n")
    assert followed(log, tmp_path, journal) == "a\nb\nc\nd\n"
    assert events(tmp_path) == ["log_lost"]


def test_a_piece_of_the_log_that_was_only_half_written_is_written_once(tmp_path, journal):
    log = tmp_path / "engine.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    whole = followed(log, tmp_path, journal)
    os.truncate(tmp_path / "server.log", 333)  # what a kill leaves of a write
    assert followed(log, tmp_path, journal) == whole


# the disk


def test_a_recording_stays_within_its_limit_and_is_read_as_one(tmp_path):
    dropped = []
    folder = Folder(tmp_path, 1_000_000, 1, lambda name, _: dropped.append(name))
    parts = folder.parts("metrics.txt")
    for number in range(1, 2501):
        noise = os.urandom(1000).hex()
        parts.append(b'# scrape_unix_ms %d\n%sx{noise="%s"} 1\n' % (1764417600000 + number * 1000, PAGE % number, noise.encode()))
        assert sum(size(file) for file in tmp_path.iterdir()) <= 1_000_000
    parts.close()
    folder.close()
    assert dropped
    with Sink(tmp_path / "tables") as sink:
        names = [each.source.name for each in parse_only([tmp_path], tmp_path / "out").outcomes]
        assert names == ["metrics.txt"]
        assert prometheus_text.parse(Source(tmp_path / "metrics.txt", "metrics.txt"), sink).not_understood == 0


def test_one_recorder_for_a_folder(tmp_path):
    folder = Folder(tmp_path, 10**9, 1, lambda *_: None)
    with pytest.raises(FolderInUseError, match="another recorder writes there"):
        Folder(tmp_path, 10**9, 1, lambda *_: None)
    folder.close()
    Folder(tmp_path, 10**9, 1, lambda *_: None).close()


def test_a_part_half_compressed_when_the_recorder_was_killed_is_compressed_again(tmp_path):
    (tmp_path / "metrics.txt.part-000001").write_bytes(PAGE % 1)
    (tmp_path / ".metrics.txt.part-000001.gz").write_bytes(b"\x1f\x8b")
    folder = Folder(tmp_path, 10**9, 1, lambda *_: None)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".lock", "metrics.txt.part-000001.gz"]
    assert folder.parts("metrics.txt").number == 1
    folder.close()


def test_a_publisher_that_says_nothing_leaves_no_file_to_complain_of(engine, tmp_path, capsys):
    out = tmp_path / "recording"
    plan = Plan((engine.url,), (engine.kv_events,), interval_s=0.1, duration_s=0.5)
    assert record(plan, out, lambda _: None).kv_batches == 0
    assert sorted(file.name for file in out.iterdir()) == [".lock", "metrics.txt", "recording.jsonl"]
    assert cli.main(["parse", str(out), "--out", str(tmp_path / "tables")]) == 0
    assert "empty" not in "".join(capsys.readouterr())


def test_a_first_line_that_a_kill_or_a_full_disk_cut_leaves_no_file(tmp_path, monkeypatch):
    class Full(io.FileIO):
        def write(self, data):
            super().write(data[:2])
            raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "kv_events.jsonl"
    path.write_bytes(b'{"seq": 0, "ba')
    parts = Parts(path, 1 << 20)
    assert not path.exists()
    with monkeypatch.context() as disk:
        disk.setattr(Path, "open", lambda path, *_, **__: Full(path, "ab"))
        with pytest.raises(OSError, match="No space"):
            parts.append(b"{}\n")
    assert not path.exists()
    parts.append(b"{}\n")
    assert path.read_bytes() == b"{}\n"


def test_a_full_disk_leaves_no_half_scrape_and_is_said(tmp_path, journal, monkeypatch):
    parts = Parts(tmp_path / "metrics.txt", 1 << 20)
    scraper = Scraper(http_source("http://127.0.0.1:1"), parts, journal, 1.0, None)
    monkeypatch.setattr(HttpSource, "get", lambda *_, **__: PAGE % 1)
    scraper.scrape()
    good = size(tmp_path / "metrics.txt")
    file = parts._file

    class Full:
        truncate = file.truncate

        def write(self, data):
            if len(data) < 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            return file.write(data[:50])

    monkeypatch.setattr(parts, "_file", Full())
    scraper.scrape()
    assert size(tmp_path / "metrics.txt") == good
    monkeypatch.setattr(parts, "_file", file)
    scraper.scrape()
    entry = json.loads((tmp_path / "recording.jsonl").read_text())
    assert (entry["event"], entry["count"]) == ("scrapes_missed", 1)
    assert "no space left on device" in entry["detail"]


def test_an_engine_that_is_not_there_yet_is_waited_for_and_said_once(tmp_path):
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        said = []
        plan = Plan(metrics=(f"http://127.0.0.1:{taken.getsockname()[1]}",), interval_s=0.1, duration_s=0.6)
        record(plan, tmp_path / "out", said.append)
    assert len(said) == 1
    assert "connection refused" in said[0]
    assert events(tmp_path / "out") == ["started", "scrapes_missed", "stopped"]


# the command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to record; give --metrics"),
        (["--metrics", "a:1", "--metrics", "b:1", "--log", "log"], "several --metrics cannot share"),
        (["--kv-replay", "tcp://a:1", "--log", "log"], "more --kv-replay than --kv-events"),
        (["--kv-events", "tcp://*:5557"], "`tcp://*:5557` is not a ZMQ endpoint to connect to"),
        (["--metrics", "http://ann:secret@"], "not an address of a server"),
        (["--metrics", "a:1", "--max-bytes", "1MB"], "is not a size of 10MB or more"),
        (["--metrics", "127.0.0.1:1", "--duration", "0.1"], "nothing came to record"),
    ],
)
def test_a_call_that_cannot_record_is_said_at_its_end_in_one_line(tmp_path, capsys, words, said):
    try:
        status = cli.main(["record", *words, "--out", str(tmp_path / "out")])
    except SystemExit as left:
        status = left.code
    error = capsys.readouterr().err
    assert status == 2
    assert said in error.splitlines()[-1]
    assert "secret" not in error


@pytest.mark.parametrize("missing", ["zmq", "msgpack"])
def test_what_is_not_installed_is_named_with_how_to_install_it(tmp_path, capsys, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    assert cli.main(["record", "--kv-events", "tcp://a:1", "--out", str(tmp_path / "out")]) == 2
    assert (
        f"--kv-events needs {missing}, which is not installed; run `pip install 'kvpressure[record]'`" in capsys.readouterr().err
    )
