"""Metrics from a Prometheus server: a real one that scrapes a recording played again, and a stand-in for its faults."""

from __future__ import annotations

import base64
import gzip
import http.server
import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from pipelines import cli, prometheus
from pipelines.analysis import analyze
from pipelines.digest import Result
from pipelines.http_source import BASIC, BEARER, CA_FILE, HttpError, http_source
from pipelines.models import Run
from pipelines.prometheus import PrometheusError, Question, fetch, matchers_of
from tests.conftest import PROJECT

RECORDING = PROJECT / "sample_traces" / "vllm-0.32-recorder-killed" / "metrics.txt.gz"
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
SECRET = "s3cr3t-t0ken"
SERIES = {"__name__": "vllm:num_requests_running", "instance": "a:8000", "job": "vllm", "engine": "0"}

Handler = http.server.BaseHTTPRequestHandler
Answer = tuple[int, object]


@contextmanager
def serving(answer: Callable[[Handler], Answer], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server on a port of its own; an answer is its status, and bytes or what becomes JSON."""

    class Server(Handler):
        def do_GET(self):  # noqa: N802 - the library's name
            status, body = answer(self)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Location", "http://elsewhere.example/login")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


# a real server


def free_port() -> int:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def pages() -> list[tuple[int, list[str]]]:
    """The scrapes of the recording: time in milliseconds, and lines."""
    found: list[tuple[int, list[str]]] = []
    for line in gzip.decompress(RECORDING.read_bytes()).decode().splitlines():
        if line.startswith("# scrape_unix_ms "):
            found.append((int(line.split()[-1]), []))
        else:
            found[-1][1].append(line)
    return found


@contextmanager
def scraped(pages: list[tuple[int, list[str]]], folder: Path) -> Iterator[str]:
    """Debian's Prometheus, once it has scraped every page: each is served once, each sample with its time."""
    rest = iter(pages)
    is_through = threading.Event()

    def answer(_: Handler) -> Answer:
        at, lines = next(rest, (0, []))
        if not lines:
            is_through.set()
        return 200, "".join(f"{line} {at}\n" for line in lines).encode()

    with serving(answer) as exporter:
        port = free_port()
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 100ms}\n"
            f"scrape_configs: [{{job_name: vllm, static_configs: [{{targets: ['127.0.0.1:{exporter}']}}]}}]\n"
        )
        words = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        server = subprocess.Popen(
            ["prometheus", *words, f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            assert is_through.wait(60)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def told(database: Path) -> dict[str, list[dict]]:
    """The tables that make the answer, but for the name of the run."""
    with Result(database) as result:
        tables = ("verdicts", "preemptions", "waste", "queue_time", "timeline", "recommendations")
        return {table: [{**row, "run": None} for row in result.rows(table)] for table in tables}


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed; `make test-tools`")
def test_prometheus_tells_what_the_scrapes_told(tmp_path, capsys):
    recorded = pages()
    shift = (int(time.time()) - 75) * 1000 - recorded[0][0]  # a server takes no samples of long ago
    shifted = [(at + shift, lines) for at, lines in recorded]
    scrapes = tmp_path / "scrapes" / "metrics.txt"
    scrapes.parent.mkdir()
    scrapes.write_text("".join(f"# scrape_unix_ms {at}\n" + "\n".join(lines) + "\n" for at, lines in shifted))
    since, until = (datetime.fromtimestamp(at / 1000, UTC) for at in (shifted[0][0], shifted[-1][0] + 1))

    with scraped(shifted, tmp_path) as url:
        words = ["analyze", "--prometheus", url, "--since", since.isoformat(), "--until", until.isoformat()]
        assert cli.main([*words, "--match", 'job="vllm"', "--no-report", "--out", str(tmp_path / "asked")]) == 0
    assert "PREEMPTION" in capsys.readouterr().out
    run = Run("read", since=since.isoformat(), until=until.isoformat())
    expected = told(analyze([scrapes], tmp_path / "read", run, has_report=False).database)
    assert [row["count_best"] for row in expected["preemptions"]] == [164]
    assert told(tmp_path / "asked" / "analysis.duckdb") == expected


# a stand-in


class Api:
    """A Prometheus API with one series of one sample a second; `faults` are answers given first."""

    def __init__(self, *faults: Answer) -> None:
        self.faults, self.queries, self.headers = list(faults), [], []

    def __call__(self, request: Handler) -> Answer:
        self.headers.append(request.headers)
        address = urlsplit(request.path)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        if self.faults:
            return self.faults.pop(0)
        if address.path == "/api/v1/series":
            return 200, {"status": "success", "data": [SERIES]}
        length = int(re.fullmatch(r".*\[(\d+)ms\]", query["query"])[1]) / 1000
        end = float(query["time"])
        self.queries.append((query["query"], end - length, end))
        if "up|" in query["query"]:
            return 200, {"status": "success", "data": {"resultType": "matrix", "result": []}}
        values = [[at, "3"] for at in range(int(end - length) + 1, int(end) + 1)]
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": SERIES, "values": values}]}}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(prometheus, "sleep", lambda _: None)


def ask(port: int, folder: Path, *, hours: float = 1, selector: str = "", scheme: str = "http", **environ: str):
    question = Question(f"{scheme}://127.0.0.1:{port}", selector, NOON, NOON + timedelta(hours=hours))
    return fetch(question, folder / "fetched", environ=environ)


def test_pieces_follow_each_other_without_hole_and_grow_to_what_a_server_can_bear(tmp_path, monkeypatch):
    monkeypatch.setattr(prometheus, "SAMPLES_PER_QUERY", 1200)
    api = Api()
    with serving(api) as port:
        fetched = ask(port, tmp_path)
    spans = [(begin, end) for query, begin, end in api.queries if "up|" not in query]
    assert spans[0][0] == (NOON - prometheus.LEAD).timestamp()
    assert spans[-1][1] == (NOON + timedelta(hours=1)).timestamp()
    assert all(end == begin for (_, end), (begin, _) in pairwise(spans))
    assert [end - begin for begin, end in spans] == [300, 1200, 1200, 1020]
    assert fetched.samples == 3600 + prometheus.LEAD.total_seconds()
    assert len(list(fetched.folder.iterdir())) == len(spans)


def test_a_piece_that_is_too_much_is_asked_for_in_halves(tmp_path):
    api = Api()
    answer = api.__call__

    def short_only(request: Handler) -> Answer:
        span = re.search(r"%5B(\d+)ms%5D", request.path)
        if span and int(span[1]) > 80_000:
            return 422, {
                "status": "error",
                "error": "query processing would load too many samples into memory in query execution",
            }
        return answer(request)

    with serving(short_only) as port:
        assert ask(port, tmp_path, hours=0.1).samples == 360 + prometheus.LEAD.total_seconds()


def test_a_fault_that_passes_is_waited_out(tmp_path):
    with serving(Api((503, b"starting"), (502, b""), (429, b"slow down"))) as port:
        assert ask(port, tmp_path).samples > 3600


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, b""), f"answers 401 Unauthorized; it wants credentials; set {BEARER} or {BASIC}"),
        ((403, b"no"), "answers 403 Forbidden; these credentials may not read it"),
        ((302, b""), "it points to elsewhere.example; give that address"),
        ((400, {"status": "error", "error": "invalid parameter"}), "answers 400 Bad Request; invalid parameter"),
        ((404, b"\n<html><body>nginx</body></html>"), "answers 404 Not Found; see its log"),
        ((200, b"<html>login</html>"), 'not a Prometheus API (it answers "<html>login</html>")'),
        ((200, {"status": "success", "data": []}), "no series of an inference engine from 2026-11-29 12:00:00"),
    ],
)
def test_an_answer_that_is_none_is_said_in_one_line(tmp_path, answer, words):
    with serving(Api(answer)) as port, pytest.raises((HttpError, PrometheusError)) as fault:
        ask(port, tmp_path)
    assert words in str(fault.value)
    assert "\n" not in str(fault.value)
    assert not (tmp_path / "fetched").exists()


def test_nobody_there_is_said_with_the_address(tmp_path):
    with pytest.raises(HttpError, match=r"http://127\.0\.0\.1:\d+: connection refused; is it running"):
        ask(free_port(), tmp_path)


def test_a_fetch_that_fails_leaves_the_earlier_one(tmp_path):
    (tmp_path / "fetched").mkdir()
    (tmp_path / "fetched" / "earlier").touch()
    with serving(Api((200, {"status": "success", "data": [SERIES]}), (400, b"no"))) as port, pytest.raises(HttpError):
        ask(port, tmp_path)
    assert [file.name for file in tmp_path.rglob("*")] == ["fetched", "earlier"]


@pytest.mark.parametrize("selector", ["namespace=prod", 'a="b"} or {c="d"', 'a="b" c="d"', "up"])
def test_a_selector_that_is_none_is_refused(selector):
    with pytest.raises(PrometheusError, match="label matchers"):
        matchers_of(selector)


def test_a_selector_narrows_every_question(tmp_path):
    api = Api()
    with serving(api) as port:
        ask(port, tmp_path, selector='{namespace="prod",pod=~"vllm-.*",}')
    assert all(',namespace="prod",pod=~"vllm-.*"}' in query or 'instance=~"a:8000"' in query for query, _, _ in api.queries)


# secrets


@pytest.mark.parametrize(
    ("environ", "sent"),
    [
        ({BEARER: SECRET}, f"Bearer {SECRET}"),
        ({BASIC: f"ann:{SECRET}"}, f"Basic {base64.b64encode(f'ann:{SECRET}'.encode()).decode()}"),
    ],
)
def test_credentials_come_from_the_environment_and_appear_nowhere(tmp_path, environ, sent):
    api = Api()
    with serving(api) as port:
        fetched = ask(port, tmp_path, **environ)
        api.faults.append((400, b"no"))
        with pytest.raises(HttpError) as fault:
            ask(port, tmp_path, **environ)
    assert {headers["Authorization"] for headers in api.headers} == {sent}
    shown = "".join(traceback.format_exception(fault.value)) + repr(http_source("http://a", environ))
    assert SECRET not in shown
    assert sent not in shown
    assert all(SECRET.encode() not in gzip.decompress(file.read_bytes()) for file in fetched.folder.iterdir())


def test_a_password_in_the_address_is_sent_and_not_shown(tmp_path):
    api = Api((400, b"no"))
    with serving(api) as port, pytest.raises(HttpError) as fault:
        fetch(Question(f"http://ann:{SECRET}@127.0.0.1:{port}", "", NOON, NOON + timedelta(hours=1)), tmp_path, environ={})
    assert api.headers[0]["Authorization"].startswith("Basic ")
    assert SECRET not in str(fault.value)


@pytest.fixture
def certificate(tmp_path) -> Path:
    """A certificate that no system knows, with its key."""
    path = tmp_path / "server.pem"
    words = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", *words, "-keyout", path, "-out", tmp_path / "only.pem"], check=True, capture_output=True
    )
    path.write_text(path.read_text() + (tmp_path / "only.pem").read_text())
    return path


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_certificate_is_trusted_where_its_authority_is_named_and_only_there(tmp_path, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serving(Api(), context) as port:
        with pytest.raises(HttpError, match=f"certificate is not trusted .* in {CA_FILE}"):
            ask(port, tmp_path, scheme="https")
        assert ask(port, tmp_path, scheme="https", **{CA_FILE: str(tmp_path / "only.pem")}).samples > 3600


def test_a_file_of_authorities_that_is_none_is_said(tmp_path):
    with pytest.raises(HttpError, match=f"{CA_FILE}: nowhere is no readable PEM file"):
        ask(1, tmp_path, **{CA_FILE: "nowhere"})


# the command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prometheus", "http://127.0.0.1:1"], "--prometheus needs --since TIME"),
        ([], "a PATH or --prometheus URL is required"),
        (["--match", 'a="b"', "log"], "--match chooses among the series of --prometheus URL"),
        (["--prometheus", "ftp://host", "--since", "2026-01-01"], "not an address of a server"),
        (["--prometheus", "http://127.0.0.1:1", "--since", "2026-01-01", "--match", "job"], "is not a list of label matchers"),
    ],
)
def test_a_call_that_cannot_be_asked_is_one_line(tmp_path, capsys, words, said):
    assert cli.main(["analyze", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
