"""Lines found by what they hold, against the same lines found one by one."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_vllm_engine_log import LINES

from parsers import vllm_engine_log
from parsers.signal_lines import signal_lines

LITERALS = ["Running: ", "ab", "ba", " é"]
PIECES = st.sampled_from(
    [b"ab", b"a", b"b", b"\n", b"\r", b"Running: ", b"Running", b" \xc3\xa9", b"\xc3", b"\xff", b"\0", b"x" * 70]
)


@given(st.lists(PIECES, min_size=1, max_size=60).map(b"".join), st.binary(max_size=20))
def test_the_lines_with_a_literal_are_found_with_their_numbers(content, stale):
    lines = [line for line in re.split(rb"(?<=\n)", content) if line]
    expected = [
        (number, text)
        for number, text in enumerate(line.decode("utf-8", "replace") for line in lines)
        if any(literal in text for literal in LITERALS)
    ]
    count, numbers, texts = signal_lines(bytearray(content + stale), len(content), LITERALS)
    assert count == len(lines)
    assert list(zip(numbers, texts, strict=True)) == expected


class Memory:
    """A source and a sink that need no file: no content is taken for a compressed one."""

    name = "log"

    def __init__(self, content):
        self.content, self.rows = content, {}

    def open(self):
        return io.BytesIO(self.content)

    def write(self, table, batch):
        self.rows.setdefault(table, []).extend(batch.to_pylist())


def rows_of(content, chunk_bytes, *, with_line=True):
    """The account of a log, and its rows with or without their line numbers."""
    memory = Memory(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm_engine_log, "CHUNK_BYTES", chunk_bytes)
        account = vllm_engine_log.parse(memory, memory)
    assert account.balanced
    left_out = () if with_line else ("line",)
    rows = {
        table: [{k: v for k, v in row.items() if k not in left_out and v is not None} for row in each]
        for table, each in memory.rows.items()
    }
    return account, rows


@given(
    st.lists(st.one_of(LINES.map(str.encode), st.binary(max_size=80)), max_size=40),
    st.sampled_from([1, 64, 300, 1000]),
    st.sampled_from([b"\n", b"\r\n"]),
    st.integers(0, 30),
)
def test_a_log_gives_the_same_rows_whatever_its_chunks_and_however_rare_its_signals(lines, chunk_bytes, ending, filler):
    others = (b'INFO:     127.0.0.1:35394 - "POST /v1/completions HTTP/1.1" 200 OK' + ending) * filler
    sparse, dense = b"".join(others + line + ending for line in lines), b"".join(line + ending for line in lines)
    assert rows_of(sparse, chunk_bytes) == rows_of(sparse, 1 << 20)
    account, rows = rows_of(dense, 1 << 20, with_line=False)
    sparse_account, sparse_rows = rows_of(sparse, 1 << 20, with_line=False)
    assert (rows, account.used, account.not_understood) == (sparse_rows, sparse_account.used, sparse_account.not_understood)
