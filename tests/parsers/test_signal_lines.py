"""Lines found by what they hold, against the same lines found one by one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import read
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
    count, found = signal_lines(bytearray(content + stale), len(content), LITERALS)
    assert count == len(lines)
    assert found.rows() == expected


@given(
    st.lists(st.one_of(LINES.map(str.encode), st.binary(max_size=80)), max_size=40),
    st.sampled_from([1, 64, 300, 1000]),
    st.sampled_from([b"\n", b"\r\n"]),
    st.integers(0, 30),
)
def test_a_log_gives_the_same_rows_whatever_its_chunks_and_however_rare_its_signals(lines, size, ending, filler):
    access = b'INFO:     127.0.0.1:35394 - "POST /v1/completions HTTP/1.1" 200 OK' + ending
    content = b"".join(access * filler + line + ending for line in lines)
    whole = read(vllm_engine_log.FORMAT, content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm_engine_log, "CHUNK_BYTES", size)
        chunked = read(vllm_engine_log.FORMAT, content)
    dense = read(vllm_engine_log.FORMAT, b"".join(line + ending for line in lines))
    assert chunked == whole
    assert (dense.account.used, dense.account.not_understood) == (whole.account.used, whole.account.not_understood)
    assert _without_line(dense.rows) == _without_line(whole.rows)


def _without_line(rows):
    return {
        table: [{name: value for name, value in row.items() if name != "line"} for row in each] for table, each in rows.items()
    }
