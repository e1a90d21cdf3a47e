"""Opening inputs: compression, damage, and the account that no line is lost from."""

import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from parsers import Account, InputError, Sink, Source, UnrecognisedFormat, detect, parse
from parsers.encodings import as_utf8
from parsers.json_text import decode_line
from parsers.source import HEAD_BYTES, lines_of

PAGE = "".join(f'vllm:num_requests_running{{engine="{i}"}} {i * 7919 % 997}\n' for i in range(40_000)).encode()


def given_file(folder: Path, content: bytes, name: str = "metrics.txt") -> Source:
    path = folder / name
    path.write_bytes(content)
    return Source(path, name)


def refused(source: Source) -> str:
    """The one line a user sees."""
    with pytest.raises(InputError) as error, Sink(source.path.parent / "tables") as sink:
        parse(source, sink)
    assert "\n" not in str(error.value)
    return str(error.value)


def drain(parts: Iterable[bytes], into: bytearray) -> str:
    """Collect parts up to the fault, and the fault; empty where there is none."""
    try:
        for part in parts:
            into += part
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("compression", "stored"),
    [
        (None, PAGE),
        ("gzip", gzip.compress(PAGE)),
        ("gzip", gzip.compress(PAGE[:1000]) + gzip.compress(PAGE[1000:])),
        ("zstd", zstandard.ZstdCompressor().compress(PAGE)),
        ("zstd", zstandard.ZstdCompressor().compress(PAGE[:1000]) + zstandard.ZstdCompressor().compress(PAGE[1000:])),
    ],
    ids=["plain", "gzip", "gzip of two members", "zstd", "zstd of two frames"],
)
def test_compression_is_told_by_the_first_bytes(tmp_path, compression, stored):
    source = given_file(tmp_path, stored)
    assert source.compression == compression
    assert source.head() == PAGE[:HEAD_BYTES]
    with source.open() as stream:
        assert stream.read() == PAGE


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gzip", "zstd"])
def test_a_cut_in_compressed_data_loses_nothing_before_it(tmp_path, compress):
    stored = compress(PAGE)
    got = bytearray()
    with given_file(tmp_path, stored[: len(stored) * 3 // 4]).open() as stream:
        error = drain(iter(stream.read1, b""), got)
    assert error == "metrics.txt: compressed file ends early; copy it again"
    assert len(PAGE) // 2 < len(got) < len(PAGE)
    assert PAGE.startswith(got)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gzip", "zstd"])
def test_lines_before_a_cut_are_passed_on_whole(tmp_path, compress):
    stored = compress(PAGE)
    got = bytearray()
    with given_file(tmp_path, stored[: len(stored) * 3 // 4]).open() as stream:
        error = drain((chunk[:size] for chunk, size in lines_of(stream, 1 << 16)), got)
    assert error == "metrics.txt: compressed file ends early; copy it again"
    assert len(got) > len(PAGE) // 2
    assert got.endswith(b"\n")
    assert PAGE.startswith(got)


def test_damaged_compressed_data_is_an_error_and_not_a_crash(tmp_path):
    stored = bytearray(gzip.compress(os.urandom(200_000)))
    stored[100_000:100_010] = b"0123456789"
    with given_file(tmp_path, bytes(stored)).open() as stream, pytest.raises(InputError, match=r"compressed data is damaged"):
        stream.read()


def test_an_empty_file_says_what_to_check(tmp_path):
    expected = "metrics.txt: empty; check that whatever writes it was running and had permission to"
    assert refused(given_file(tmp_path, b"")) == expected
    assert refused(given_file(tmp_path, b" \n\n")) == expected
    assert refused(given_file(tmp_path, gzip.compress(b""))) == expected


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_says_so(tmp_path):
    source = given_file(tmp_path, PAGE)
    source.path.chmod(0)
    assert refused(source) == "metrics.txt: cannot be opened (Permission denied); check its permissions"


def test_a_file_that_is_gone_or_a_folder_is_an_input_error(tmp_path):
    assert refused(Source(tmp_path / "gone.txt", "gone.txt")).startswith("gone.txt: cannot be opened (No such file")
    assert refused(Source(tmp_path, "folder")).startswith("folder: cannot be opened (Is a directory")


def tar_of(content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        told = tarfile.TarInfo("run/metrics.txt")
        told.size = len(content)
        archive.addfile(told, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!DOCTYPE html>\n<html><title>Sign in</title>", r"an HTML page \(line 1: \"<!DOCTYPE html>\"\)"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", r"a PNG picture"),
        (b"PK\x03\x04\0\0\0", r"an archive of several files; unpack it and give the folder"),
        (tar_of(PAGE), r"an archive of several files; unpack it"),
        (b'{"id": "cmpl-1"}', r"JSON, but not a result"),
        (b'{"status": "success", "da', r"JSON ends in the middle \(byte 25\); fetch it again"),
        (b'{"a": [' + b"1, " * 22_000, r"JSON, but not a result"),
        (
            b"Starting\n============ Serving Benchmark Result ============\nMean TTFT (ms): 9\n",
            r"what a benchmark printed on .*detailed",
        ),
        (b"Dear colleague,\nplease find attached\n", r"no line of an engine log, metric or result"),
    ],
)
def test_what_is_no_input_is_named_for_what_it_seems(tmp_path, content, message):
    source = given_file(tmp_path, content)
    with pytest.raises(UnrecognisedFormat):
        detect(source)
    assert re.match(rf"metrics\.txt: {message}", refused(source))


def test_json_cut_in_its_middle_says_where(tmp_path):
    result = {"metric": {"__name__": "up"}, "values": [[1764417600, "1"]]}
    text = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [result]}})
    assert refused(given_file(tmp_path, text[:110].encode())) == "metrics.txt: JSON ends in the middle (byte 110); fetch it again"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\ud83d and \ude00"', "\ufffd and \ufffd"),
        (b'"\xed\xa0\x80"', "\ufffd" * 3),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b"[" * 200_000, None),
        (b"9" * 5_000, None),
        (b'{"a":', None),
    ],
    ids=["a pair", "half pairs", "an encoded half pair", "byte order mark", "deep", "a long number", "cut"],
)
def test_a_json_line_holds_only_what_a_table_can(text, value):
    assert decode_line(text) == value


def test_parse_keeps_what_came_before_a_cut_and_says_so(tmp_path):
    stored = gzip.compress(PAGE)
    with Sink(tmp_path / "tables") as sink:
        form, account = parse(given_file(tmp_path, stored[: len(stored) // 2]), sink)
    assert form.name == "prometheus_text"
    assert account.error == "metrics.txt: compressed file ends early; copy it again"
    assert account.used == sink.rows["metric_samples"] > 10_000


def test_the_account_balances_and_remembers_the_first_line_misread():
    account = Account(lines=4, used=2)
    assert not account.balanced
    account.misread(4)
    account.misread(3)
    assert account.balanced
    assert account.first_not_understood == 3


def test_the_sink_adds_missing_columns_as_null_and_refuses_unknown_ones(tmp_path):
    with Sink(tmp_path) as sink:
        sink.write_rows("metric_samples", [{"name": "up", "value": 1.0}])
        sink.write("metric_samples", pa.RecordBatch.from_pydict({"name": ["up"], "source": ["b"]}))
        with pytest.raises(KeyError, match="metric_samples has no column colour"):
            sink.write_rows("metric_samples", [{"colour": "red"}])
    rows = pq.read_table(tmp_path / "metric_samples.parquet").to_pylist()
    assert [(row["source"], row["name"], row["value"]) for row in rows] == [(None, "up", 1.0), ("b", "up", None)]


@given(st.lists(st.text("ab\n", max_size=12).map(str.encode), max_size=12).map(b"".join), st.integers(1, 20))
def test_chunks_of_lines_are_whole_and_add_up(content, size):
    chunks = [bytes(chunk[:used]) for chunk, used in lines_of(io.BytesIO(content), size)]
    assert b"".join(chunks) == content
    assert all(chunk.endswith(b"\n") for chunk in chunks[:-1])


def test_a_text_that_comes_as_a_dictionary_is_stored_as_one_and_takes_plain_texts_too(tmp_path):
    with Sink(tmp_path) as sink:
        sink.write(
            "metric_samples", pa.RecordBatch.from_pydict({"name": pa.array(["a", "a"]).dictionary_encode(), "value": [1.0, 2.0]})
        )
        sink.write("metric_samples", pa.RecordBatch.from_pydict({"name": ["b"], "value": [3.0]}))
    table = pq.read_table(tmp_path / "metric_samples.parquet")
    assert pa.types.is_dictionary(table.schema.field("name").type)
    assert table.column("name").to_pylist() == ["a", "a", "b"]


LOG = "INFO 11-29 13:12:06 [loggers.py:259] Engine 000: GPU KV cache usage: 92.1%, über 一 🜂\r\n" * 3000


@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstandard.ZstdCompressor().compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_text_in_utf_16_is_read_as_the_text_that_it_is(tmp_path, encoding, packed):
    """As PowerShell's `>` writes it; without the mark of its byte order, as after a cut in front, it is told by its NULs."""
    with given_file(tmp_path, packed(LOG.encode(encoding)), "server.log").open() as stream:
        assert stream.read() == LOG.encode()


def test_utf_16_that_ends_within_a_character_is_read_up_to_it(tmp_path):
    source = given_file(tmp_path, LOG.encode("utf-16")[:-1])
    with source.open() as stream:
        assert stream.read().decode() == LOG[:-1] + "\ufffd"


@given(st.one_of(st.binary(), st.text().map(str.encode), st.text(st.characters(codec="ascii"), min_size=40).map(str.encode)))
def test_what_is_not_utf_16_goes_through_as_it_is(content):
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return
    with as_utf8(io.BytesIO(content)) as stream:  # type: ignore[arg-type]
        assert stream.read() == content


@pytest.mark.parametrize(
    "content",
    [
        b"".join(number.to_bytes(2, "little") for number in range(2000)),
        b"".join(number.to_bytes(4, "little") for number in range(32, 127)) * 9,
        b"\0" * 3000 + b"INFO a log behind what a rotation left" * 40,
        "INFO in four bytes each".encode("utf-32") * 9,
        b"I\0N\0F\0O\0",
    ],
    ids=["small integers", "integers of four bytes", "a sparse log", "UTF-32", "too little to tell"],
)
def test_nul_bytes_alone_make_no_text_of_a_file(content):
    with as_utf8(io.BytesIO(content)) as stream:  # type: ignore[arg-type]
        assert stream.read() == content
