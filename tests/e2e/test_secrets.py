"""Secrets, planted wherever the product takes one: nothing that is printed, logged, raised or written may hold them.

Passwords and tokens for a Prometheus server and for an engine's /metrics (environment, address, kvpressure.toml), keys of an
object store (environment). Each is used in a call that succeeds and in ones that fail, by a server that repeats what it was sent.
"""

from __future__ import annotations

import base64
import gzip
import logging
import os
import re
from datetime import date
from pathlib import Path
from urllib.parse import quote

import dagster as dg
import duckdb
import pytest

from pipelines import cli, prometheus
from pipelines.build import build_defs
from pipelines.config import load
from pipelines.http_source import BASIC, BEARER
from tests.object_store import serving_buckets
from tests.pipelines.engine_days import at, configured, scrapes
from tests.pipelines.test_prometheus import Api, free_port, serving

SECRET = "Pa55/w0rd+plant3d"
FORMS = {SECRET, quote(SECRET, safe=""), base64.b64encode(f"ann:{SECRET}".encode()).decode(), f"ann:{SECRET}"[:12]}
DAY = date(2026, 11, 27)
SINCE, UNTIL = "2026-11-27T12:00:00Z", "2026-11-27T12:05:00Z"
AS_ADDRESS = "http://ann:{}@127.0.0.1:{}"

pytestmark = pytest.mark.filterwarnings("ignore")


def leaks(text: str) -> list[str]:
    return [form for form in FORMS if form in text]


def written(folder: Path) -> list[str]:
    """Files below the folder that hold a secret, also within what is compressed."""
    return [
        f"{path.relative_to(folder)}: {found}" for path in folder.rglob("*") if path.is_file() and (found := leaks(_text(path)))
    ]


def _text(path: Path) -> str:
    content = path.read_bytes()
    told = content.decode("utf-8", "replace")
    if content.startswith(b"\x1f\x8b"):
        return gzip.decompress(content).decode("utf-8", "replace")
    if path.suffix == ".parquet":
        return told + str(duckdb.sql(f"from read_parquet('{path}')").fetchall())
    if path.suffix == ".duckdb":
        with duckdb.connect(str(path), read_only=True) as con:
            tables = con.sql("select schema_name || '.' || table_name from duckdb_tables()").fetchall()
            return told + "".join(str(con.sql(f"from {table}").fetchall()) for (table,) in tables)
    return told


def repeating(status: int):
    """A server that refuses, and says with what it was asked."""

    def answer(request):
        sent = request.headers.get("Authorization", "")
        known = base64.b64decode(sent.removeprefix("Basic ")).decode() if sent.startswith("Basic ") else sent
        return status, f"not allowed: {sent} is {known}, which is {SECRET if SECRET in known else 'nobody'}".encode()

    return answer


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(prometheus, "sleep", lambda _: None)


@pytest.fixture
def address(request, monkeypatch):
    """Where the secret stands; the address of a server on a port."""
    if request.param == "bearer":
        monkeypatch.setenv(BEARER, SECRET)
    if request.param == "basic":
        monkeypatch.setenv(BASIC, f"ann:{SECRET}")
    user = quote(SECRET, safe="") if request.param == "address" else None
    return lambda port: AS_ADDRESS.format(user, port) if user else f"http://127.0.0.1:{port}"


def called(capsys, caplog, *words) -> tuple[int, str]:
    """A call's status, and all that was printed and logged of it."""
    caplog.set_level(logging.INFO)
    status = cli.main(list(map(str, words)))
    return status, "".join(capsys.readouterr()) + caplog.text


def test_the_search_finds_what_is_there(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(SECRET.encode()))
    duckdb.sql(f"select '{SECRET}' as a").write_parquet(str(tmp_path / "b.parquet"), compression="zstd")
    with duckdb.connect(str(tmp_path / "c.duckdb")) as con:
        con.sql(f"create table c as select '{SECRET}' as a")
    assert len(written(tmp_path)) == 3


@pytest.mark.parametrize("address", ["bearer", "address"], indirect=True)
@pytest.mark.parametrize("status", [200, 400, 401, 503, None])
def test_analyze_of_a_server(address, capsys, caplog, tmp_path, status):
    api = Api() if status == 200 else repeating(status or 0)
    window = (
        "--since",
        SINCE,
        "--until",
        UNTIL,
        "--out",
        tmp_path / "out",
        *(["--no-report"] if BEARER not in os.environ else []),
    )
    with serving(api) as port:
        told, said = called(capsys, caplog, "analyze", "--prometheus", address(port if status else free_port()), *window)
    assert told == (0 if status == 200 else 2)
    assert "Traceback" not in said
    assert (leaks(said), written(tmp_path)) == ([], [])


@pytest.mark.parametrize("address", ["bearer", "basic", "address"], indirect=True)
def test_record_of_an_engine(address, capsys, caplog, tmp_path):
    pages = [(200, b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n")]
    refuse = repeating(401)
    with serving(lambda request: pages.pop() if pages else refuse(request)) as port:
        call = ("record", "--metrics", address(port), "--interval", 0.1, "--duration", 0.5, "--out", tmp_path / "recording")
        _, said = called(capsys, caplog, *call)
    assert (leaks(said), written(tmp_path)) == ([], [])


@pytest.mark.parametrize(
    "wrong",
    [
        'prometheus = ["{}"]',
        'prometheus = "{}"\nselector = 3',
        'prometheus = "{}\n',
        'promtheus = "{}"',
        'prometheus = "{}"\ntimezone = "Nowhere"',
        'paths = ["{}/logs/*"]',
    ],
)
def test_a_configuration_that_is_wrong(capsys, caplog, tmp_path, wrong):
    server = AS_ADDRESS.format(SECRET.replace("/", "%2F"), 9)
    path = tmp_path / "kvpressure.toml"
    path.write_text(f'[lake]\nurl = "lake"\n[[engines]]\nname = "a"\n{wrong.format(server, server)}\n')
    told, said = called(capsys, caplog, "daily", "--config", path, "--day", DAY)
    path.unlink()
    assert told == 2
    assert "w0rd+plant3d" not in said
    assert written(tmp_path) == []


@pytest.mark.drill  # half a minute each
@pytest.mark.parametrize(("address", "status"), [("address", 200), ("basic", 401), ("bearer", 400)], indirect=["address"])
def test_a_night_in_dagster_and_from_cron(address, capfd, caplog, tmp_path, status):
    config = configured(tmp_path)
    scrapes(tmp_path / f"chat/{DAY}/metrics.json", at(f"{DAY} 10:00"), 3)
    with serving(Api() if status == 200 else repeating(status)) as port:
        text = config.path.read_text().replace("timezone", f'prometheus = "{address(port)}"\ntimezone', 1)
        config.path.write_text(text)
        cli.main(["daily", "--config", str(config.path), "--day", str(DAY), "--back", "0"])
        with dg.instance_for_test(temp_dir=str(_folder(tmp_path / "dagster"))) as instance:
            job = build_defs(config=load(config.path)).resolve_job_def("daily")
            job.execute_in_process(instance=instance, partition_key=str(DAY), raise_on_error=False)
            events = [str(each) for record in instance.get_runs() for each in instance.all_logs(record.run_id)]
            kept = written(tmp_path / "dagster")
    config.path.unlink()
    said = "".join(capfd.readouterr()) + caplog.text
    assert events
    assert (leaks(said), leaks("".join(events)), kept, written(tmp_path)) == ([], [], [], [])


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAPLANTED",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": f"session-{SECRET}",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_MAX_ATTEMPTS": "1",
}


def night_in_a_bucket(folder: Path) -> tuple[str | Path | int, ...]:
    """An engine's day, and the call that writes it to the object store."""
    config = configured(folder, url="s3://planted/night")
    scrapes(folder / f"chat/{DAY}/metrics.json", at(f"{DAY} 10:00"), 3)
    return ("daily", "--config", config.path, "--day", DAY, "--back", 0)


@pytest.mark.drill  # a thousand calls of a store
@pytest.mark.usefixtures("unmodelled")  # a table is made of inputs, and never of a key
def test_keys_of_an_object_store(capsys, caplog, tmp_path):
    call = night_in_a_bucket(tmp_path)
    with serving_buckets("planted", credentials=KEYS) as files:
        told, said = called(capsys, caplog, *call)
        names = files.find("planted")
        files.get(names, [str(tmp_path / "got" / re.sub(r"\W", "_", name)) for name in names])
    assert (told, len(names) > 10) == (0, True)
    assert (leaks(said), written(tmp_path)) == ([], [])


@pytest.mark.parametrize("fault", ["refused", "closed"])
def test_keys_of_an_object_store_that_fails(capsys, caplog, tmp_path, monkeypatch, fault):
    s3fs = pytest.importorskip("s3fs")
    call = night_in_a_bucket(tmp_path)
    denied = b"<?xml version='1.0'?><Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>"
    with serving(lambda _: (403, denied)) as port:
        address = f"http://127.0.0.1:{port if fault == 'refused' else free_port()}"
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": address}.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        told, said = called(capsys, caplog, *call)
    s3fs.S3FileSystem.clear_instance_cache()
    assert told == 2
    assert "s3://planted/night" in said
    assert said.count("\n") <= 3
    assert (leaks(said), written(tmp_path)) == ([], [])
