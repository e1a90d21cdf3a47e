"""The lake in an object store: the same files as on disk, whichever executor ran the steps that wrote them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import cli_daily
from pipelines.config import load
from pipelines.storage import Store
from tests.conftest import PROJECT
from tests.object_store import serving_buckets
from tests.pipelines.engine_days import at, configured, lake_files, log_lines, scrapes, write

DAY = date(2026, 11, 27)
ENGINES = ("chat", "documents")
# executors that run steps in other processes, each with the package it needs
EXECUTORS = {"multiprocess": "dagster", "dask": "dagster_dask"}


@pytest.fixture(scope="module")
def files() -> Iterator[Any]:
    """A file system of an object store with one bucket."""
    with serving_buckets("lake") as files:
        yield files


@pytest.fixture(scope="module")
def bucket(files) -> str:  # noqa: ARG001 - it stands for as long as the bucket is used
    return "s3://lake"


def inputs(root: Path) -> None:
    """A day of each engine: its metrics and its log."""
    for engine in ENGINES:
        scrapes(root / f"{engine}/{DAY}/metrics.json", at("2026-11-27 10:00"), 20)
        write(root / f"{engine}/logs/vllm.log", log_lines(at("2026-11-27 10:00"), 30))


def test_a_store_is_the_same_in_a_bucket_and_in_a_folder(bucket, tmp_path):
    for store in (Store.at(f"{bucket}/store"), Store.at(tmp_path / "store")):
        store.put_bytes("a/b=1%2F2/c", b"once")
        store.put_bytes("a/b=1%2F2/c", b"twice")
        store.put_bytes("a/d", b"")
        assert store.names("a/*/c") == ["a/b=1%2F2/c"]
        assert store.names("a/**/*") == ["a/b=1%2F2/c", "a/d"]
        assert (store.read("a/b=1%2F2/c"), store.read("a/e"), store.stat("a/e")) == (b"twice", None, None)
        assert (store.exists("a/d"), store.exists("a/b=1%2F2")) == (True, False)
        with store.fetched("a/b=1%2F2/c") as path:
            assert path.read_bytes() == b"twice"
        store.put("one.parquet", lambda path: pq.write_table(pa.table({"one": [1]}), path))
        with duckdb.connect() as con:
            for _ in range(2):
                store.open_on(con)
            assert con.sql(f"from read_parquet('{store.uri('*.parquet')}')").fetchall() == [(1,)]
        store.delete("one.parquet")
        store.delete("a")
        assert store.names("**/*") == []


@pytest.mark.drill
@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_lake_that_an_executor_makes_in_a_bucket_is_that_of_one_process_on_disk(bucket, tmp_path, executor):
    pytest.importorskip(EXECUTORS[executor])
    inputs(tmp_path)
    local = configured(tmp_path, ENGINES)
    cli_daily.run(local, local.fleet(), [DAY])
    path = tmp_path / "bucket.toml"
    path.write_text(local.path.read_text().replace('url = "lake"', f'url = "{bucket}/{executor}"'))
    night = subprocess.run(
        [sys.executable, "-m", "tests.pipelines.executor_night", str(DAY)],
        cwd=PROJECT,
        env=os.environ | {"KVPRESSURE_EXECUTOR": executor, "KVPRESSURE_CONFIG": str(path), "KVPRESSURE_DASK_WORKERS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert night.returncode == 0, night.stderr[-3000:]
    on_disk, in_bucket = lake_files(local.store), lake_files(load(path).store)
    assert len([name for name in on_disk if name.startswith("days/")]) > 2 * 20
    assert set(in_bucket) == set(on_disk)
    assert [name for name in sorted(on_disk) if on_disk[name] != in_bucket[name]] == []


def test_inputs_in_a_bucket_are_read_as_those_on_disk(files, bucket, tmp_path):
    inputs(tmp_path)
    files.put(str(tmp_path / "chat"), "lake/in/", recursive=True)
    path = tmp_path / "kvpressure.toml"
    path.write_text(f'[lake]\nurl = "lake"\n[[engines]]\npaths = ["{bucket}/in/{{engine}}/{{day}}/*.json"]\n')
    [engine] = load(path).fleet()
    assert engine.name == "chat"
    [found] = engine.files((DAY,))
    assert (found.uri, found.day) == (f"{bucket}/in/chat/{DAY}/metrics.json", DAY)
    with found.store.fetched(found.name) as fetched:
        assert fetched.read_bytes() == (tmp_path / f"chat/{DAY}/metrics.json").read_bytes()
