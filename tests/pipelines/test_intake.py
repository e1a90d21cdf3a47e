"""Intake: which files are read, under which name, and what is said of one that cannot be read."""

from __future__ import annotations

import gzip
import os
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard

from parsers import InputError, Source
from parsers.columns import TABLES, schema
from pipelines import intake
from pipelines.lake import Lake
from tests.conftest import PROJECT
from tests.pipelines.engine_days import at, log_lines

SAMPLE = PROJECT / "sample_traces" / "vllm-0.32-preemption"
LOG = (SAMPLE / "server.log").read_bytes()
PROMETHEUS = (SAMPLE / "prometheus.json.gz").read_bytes()
REPORT_OF_OURS = b"""version: 0.2.1
run: {uid: a}
results:
  request_performance: {aggregate: {}}
  observability:
    kvpressure: {}
"""
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8


def names(*paths: Path) -> list[str]:
    return [source.name for source in intake.find(paths)]


def write(folder: Path, **files: bytes) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def outcome(path: Path, tmp_path: Path) -> intake.Outcome:
    return intake.read_into([path], tmp_path / "tables").outcomes[0]


# which files, under which name


def test_a_folder_is_read_in_order_to_its_depths_and_hidden_files_are_left_alone(tmp_path):
    write(tmp_path, b=b"1", a__c=b"1", a__b=b"1", **{".hidden": b"1", ".git__config": b"1"})
    assert names(tmp_path) == ["b", "a/b", "a/c"]


def test_a_name_has_no_compression_suffix_and_is_relative_to_the_folder_given(tmp_path):
    write(tmp_path, **{"day__server.log.gz": b"1", "bench.json.zst": b"1"})
    assert names(tmp_path) == ["bench.json", "day/server.log"]
    assert names(tmp_path / "day" / "server.log.gz") == ["server.log"]


def test_a_folder_that_cannot_be_opened_is_named_and_one_within_stops_nothing(tmp_path, monkeypatch):
    write(tmp_path, a__server_log=LOG, b__more=b"1")
    listed = os.scandir

    def refused(path):
        if Path(path) == shut:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refused)
    shut = tmp_path / "b"
    with pytest.raises(InputError, match=r"b: cannot be opened \(Permission denied\); check its permissions"):
        names(shut)
    made = intake.read_into([tmp_path], tmp_path / "tables")
    assert made.unread == ["b: a folder that cannot be opened; check its permissions"]
    assert [each.source.name for each in made.outcomes if each.is_used] == ["a/server_log"]


def test_two_files_never_share_a_name(tmp_path):
    one, two = write(tmp_path / "one", log=b"1"), write(tmp_path / "two", log=b"2")
    assert names(one, two) == ["log", "two/log"]
    assert names(one, one / "log", one) == ["log", "one/log", "log (2)"]


def test_a_circle_of_links_stops_nothing(tmp_path):
    write(tmp_path, log=LOG)
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "here").symlink_to(".")
    outcomes = intake.read_into([tmp_path], tmp_path / "out", skip=tmp_path / "out").outcomes
    assert [(each.source.name, each.is_used) for each in outcomes] == [("a", False), ("b", False), ("log", True)]


def test_a_name_that_is_no_text_is_written_as_one(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff")
    write(folder, **{os.fsdecode(b"\xfe.log"): LOG, "a\nb {}%s'.log": LOG[:-500]})
    read = intake.read_into([folder], tmp_path / "tables")
    assert all(each.is_used for each in read.outcomes)
    assert pq.read_table(tmp_path / "tables" / "sources.parquet")["source"].to_pylist() == ["a\nb {}%s'.log", "\ufffd.log"]


def test_inputs_within_the_output_are_named_as_what_is_wrong(tmp_path):
    told = f"lies in the output folder {tmp_path}; give --out a folder of its own, such as {tmp_path}/result"
    with pytest.raises(InputError, match=re.escape(told)):
        intake.find([write(tmp_path, log=b"1")], skip=tmp_path)


def test_an_input_within_the_output_is_told_and_not_read(tmp_path):
    out = tmp_path / "out"
    write(tmp_path, log=LOG, **{"out__server.log.gz": gzip.compress(LOG), "out__empty": b""})
    write(out, **{"report.html": b"<!doctype html>", "prometheus__a.json": PROMETHEUS, "bench.yaml": REPORT_OF_OURS})
    made = intake.read_into([tmp_path, tmp_path], tmp_path / "out", skip=out)
    assert [each.source.name for each in made.outcomes if each.is_used] == ["log"]
    where = f"lies in the output folder {out}, and what lies there is not read"
    assert made.unread[0] == f"out/server.log: {where}; give --out a folder of its own, such as {out}/result"
    assert not any(re.search("report|prometheus|bench|empty", told) for told in made.unread)


def test_the_output_is_not_input(tmp_path):
    write(tmp_path, log=b"1", **{"out__summary.json": b"{}"})
    assert [source.name for source in intake.find([tmp_path], skip=tmp_path / "out")] == ["log"]


def test_a_folder_within_the_output_is_input_where_it_is_named(tmp_path):
    write(tmp_path, **{"out__prometheus__a.json": b"{}", "out__summary.json": b"{}"})
    found = intake.find([tmp_path / "out" / "prometheus"], skip=tmp_path / "out")
    assert [source.name for source in found] == ["a.json"]


@pytest.mark.parametrize("missing", ["nowhere", "empty"])
def test_a_path_that_leads_to_no_file_is_named(tmp_path, missing):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=missing):
        intake.find([tmp_path / missing])


def test_the_same_content_is_read_once_however_it_is_stored(tmp_path):
    write(tmp_path, **{"a.log": LOG, "b.log.gz": gzip.compress(LOG), "c.log": LOG + b"\n"})
    read = intake.read_into([tmp_path], tmp_path / "out", skip=tmp_path / "out")
    told = {each.source.name: each.error for each in read.outcomes}
    assert told["a.log"] is None
    assert told["b.log"] == "b.log: the same content as a.log, which is read; this copy is left out"
    assert told["c.log"] is None


def test_of_the_same_content_the_plainest_name_is_read(tmp_path):
    write(tmp_path, **{"server - Copy.log": LOG, "server.log": LOG})
    read = intake.read_into([tmp_path], tmp_path / "out", skip=tmp_path / "out")
    assert {each.source.name: each.copy_of for each in read.outcomes} == {"server - Copy.log": "server.log", "server.log": None}


# what cannot be read

BROKEN = {
    "an empty file": (b"", "empty"),
    "blank lines": (b"\n\n\n", "empty"),
    "a picture": (PNG, "PNG"),
    "a log cut inside its gzip": (gzip.compress(LOG)[:4000], "early"),
    "no gzip at all": (b"\x1f\x8b" + b"nonsense" * 9, "damaged"),
    "a result cut in the middle": (gzip.decompress((SAMPLE / "client-calm.json.gz").read_bytes())[:5000], ""),
    "an answer cut in the middle": (gzip.decompress((SAMPLE / "prometheus.json.gz").read_bytes())[:50000], ""),
    "a login page saved as metrics": (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n", "HTML"),
    "a log in UTF-32": (LOG.decode().encode("utf-32"), "iconv -f UTF-32"),
    "a log of something else": (b"Nov 29 12:00:00 host sshd[1]: Accepted publickey for root\n" * 50, "no line of an engine log"),
}
READ_IN_PART = ("a log cut inside its gzip", "an answer cut in the middle")  # of these, what comes before the cut is used


@pytest.mark.parametrize("content", BROKEN)
def test_a_file_that_cannot_be_read_is_one_line_that_names_it(tmp_path, content):
    data, word = BROKEN[content]
    (tmp_path / "given").write_bytes(data)
    told = outcome(tmp_path / "given", tmp_path)
    assert told.error
    assert told.error.startswith("given: ")
    assert word in told.error
    assert "\n" not in told.error
    assert "fault of kvpressure" not in told.error


def test_a_file_without_read_permission_is_one_line_that_names_it(tmp_path, monkeypatch):
    """Root may read everything, so the refusal is played."""
    (tmp_path / "server.log").write_bytes(LOG)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "server.log")

    monkeypatch.setattr(Path, "open", refuse)
    told = outcome(tmp_path / "server.log", tmp_path)
    assert told.error == "server.log: cannot be opened (Permission denied); check its permissions"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_for_real(tmp_path):
    (tmp_path / "server.log").write_bytes(LOG)
    (tmp_path / "server.log").chmod(0)
    assert "Permission denied" in (outcome(tmp_path / "server.log", tmp_path).error or "")


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in (outcome(tmp_path / "pipe", tmp_path).error or "")


def test_a_fault_in_a_parser_costs_only_its_file(tmp_path, monkeypatch):
    shutil.copy(SAMPLE / "server.log", tmp_path)
    shutil.copy(SAMPLE / "spans.jsonl.gz", tmp_path)
    real = intake.parsers.parse

    def parse(source: Source, sink):
        if source.name == "server.log":
            raise ZeroDivisionError("oops")
        return real(source, sink)

    monkeypatch.setattr(intake.parsers, "parse", parse)
    log, spans = intake.read_into([tmp_path], tmp_path / "out").outcomes
    assert "fault of kvpressure (ZeroDivisionError in test_intake.py, line" in (log.error or "")
    assert "oops" not in (log.error or "")  # it may be of the input
    assert spans.is_used


def test_the_rest_of_a_mixed_folder_is_still_read(tmp_path):
    mixed = tmp_path / "mixed"
    shutil.copytree(SAMPLE, mixed)
    for number, (data, _) in enumerate(BROKEN.values()):
        (mixed / f"broken-{number}").write_bytes(data)
    read = intake.read_into([mixed], tmp_path / "tables")
    read.require_any()
    assert {each.source.name for each in read.outcomes if each.is_used and not each.is_broken} == {
        path.name.removesuffix(".gz") for path in SAMPLE.iterdir() if path.name not in ("README.md", "expected.json")
    }


def test_a_readme_is_no_fault_and_a_cut_file_is(tmp_path):
    write(tmp_path, **{"README.md": b"# Notes\n\nof the run\n", "server.log.gz": gzip.compress(LOG)[:4000]})
    readme, log = intake.read_into([tmp_path], tmp_path / "out").outcomes
    assert (readme.is_broken, log.is_broken) == (False, True)
    assert log.error == "server.log: compressed file ends early; copy it again; what was read of it is used"


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gzip", "zstd"])
def test_of_a_file_cut_inside_its_compression_the_whole_lines_before_the_cut_are_used(tmp_path, compress):
    lines = log_lines(at("2026-11-27 10:00"), 6000)
    packed = compress("".join(lines).encode())
    write(tmp_path / "in", packed=packed[: 9 * len(packed) // 10])
    read = intake.read_into([tmp_path / "in"], tmp_path / "tables")
    [told] = read.outcomes
    assert (told.is_used, told.is_broken, told.account.balanced) == (True, True, True)
    assert 4000 < told.account.lines == told.account.used < 6000
    read.require_any()
    [row] = pq.read_table(tmp_path / "tables" / "sources.parquet").to_pylist()
    assert (row["lines_used"], row["error"]) == (told.account.used, told.error)


def test_what_a_benchmark_printed_is_no_log_although_a_line_of_it_looks_like_one(tmp_path):
    told = "(MainProcess pid=1) INFO 11-30 04:14:04 [utils.py:88] Sampling input_len from [35, 324]\n"
    (tmp_path / "bench.out").write_text(f"{told}============ Serving Benchmark Result ============\nMean TTFT (ms): 9\n")
    (tmp_path / "server.log").write_text(told)
    printed, log = intake.read([tmp_path], Lake.of(tmp_path / "lake")).outcomes
    assert printed.is_other
    assert "--save-result --save-detailed" in (printed.error or "")
    assert not log.is_other


def test_what_a_script_printed_beside_a_line_of_a_server_is_not_called_a_log_that_was_cut(tmp_path):
    line = "(APIServer pid=5) INFO 08-21 11:10:59 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 4.00\n"
    (tmp_path / "bench.log").write_text("== waiting for the server ==\nready after 43s\nc=1 ttft=0.3s\n" * 4 + line)
    (tmp_path / "server.log").write_text(line + "  a banner\n" * 9)
    printed, log = intake.read([tmp_path], Lake.of(tmp_path / "lake")).outcomes
    assert printed.is_other
    assert "hardly a vLLM server log: 1 of its 13 lines is like one's" in (printed.error or "")
    assert not log.is_other
    assert "was it cut" in (log.error or "")


# the raw tables


def test_every_raw_table_is_there_with_its_schema_even_where_nothing_filled_it(tmp_path):
    lake = Lake.of(tmp_path / "lake", run="a run/1")
    intake.read([SAMPLE / "spans.jsonl.gz"], lake)
    for table in TABLES:
        assert pq.read_schema(lake.path(f"raw.{table}")).equals(schema(table)), table
    assert pq.read_metadata(lake.path("raw.spans")).num_rows > 0
    assert {path.relative_to(tmp_path / "lake").parts[0] for path in (tmp_path / "lake").rglob("*") if path.is_file()} == {"raw"}


def test_a_run_that_is_read_again_keeps_nothing_of_the_first_time(tmp_path):
    lake = Lake.of(tmp_path / "lake", run="run")
    intake.read([SAMPLE / "spans.jsonl.gz"], lake)
    intake.read([SAMPLE / "client-calm.json.gz"], lake)
    assert pq.read_metadata(lake.path("raw.spans")).num_rows == 0


@pytest.mark.parametrize(("file", "made"), [("analysis.duckdb", "a result"), ("catalog.duckdb", "a lake")])
def test_what_kvpressure_made_is_no_input_and_told_as_what_it_is(tmp_path, file, made):
    for name in (file, "report.html", "summary.json"):
        (tmp_path / name).write_text("<p>nothing that an engine wrote</p>")
    with pytest.raises(InputError) as told:
        intake.read_into([tmp_path], tmp_path / "out").require_any()
    assert str(told.value) == f"{tmp_path}: {made} of kvpressure and no input; `kvpressure sql {tmp_path}` reads it"


def test_each_file_has_one_row_of_sources_whatever_became_of_it(tmp_path):
    write(tmp_path, **{"server.log": LOG, "notes.txt": b"notes\n", "empty": b""})
    intake.read_into([tmp_path], tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "sources.parquet").select(["source", "format", "lines"]).to_pylist()
    assert [(row["source"], row["format"]) for row in rows] == [
        ("empty", None),
        ("notes.txt", None),
        ("server.log", "vllm_engine_log"),
    ]
    assert rows[2]["lines"] == LOG.count(b"\n")
