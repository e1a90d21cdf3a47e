"""LMCache's lines: what a tier gave back is restored, never recomputed."""

import pytest
from reading import cells, read

from parsers.lmcache_log import FORMAT as LOG
from parsers.sglang_engine_log import FORMAT as SGLANG
from parsers.vllm_engine_log import FORMAT as VLLM

LINES = """\
[2026-03-01 10:00:00,123] LMCache INFO: Reqid: cmpl-1, Total tokens 5120, Inference Engine computed tokens: 512, \
LMCache hit tokens: 4096, need to load: 3584 (vllm_v1_adapter.py:1234:lmcache.integration.vllm.vllm_v1_adapter)
[2026-03-01 10:00:00,223] LMCache INFO: [req_id=cmpl-1] Retrieved 3584 out of 3584 required tokens (from 5120 total tokens).
\x1b[32;20m[2026-03-01 10:00:01,000] LMCache INFO:\x1b[0m Stored 4096 out of total 5120 tokens. size: 0.5 gb, cost 12.3 ms
[2026-03-01 10:00:02,000] LMCache WARNING: Local cpu memory under pressure so choosing to not store the KV cache.
[2026-03-01 10:00:02,500] LMCache WARNING: Local cpu memory under pressure so choosing to store only  3 total chunks of KV cache.
[2026-03-01 10:00:03,000] LMCache INFO: Initializing LMCacheConfig
"""
EVENTS = """
    kv_lookup     cmpl-1  4096
    kv_restored   cmpl-1  3584
    kv_offloaded  -       4096
    kv_dropped    -       -
    kv_dropped    -       3
"""


def test_each_line_is_its_event_with_its_tokens():
    reading = read(LOG, LINES)
    assert reading.table("engine_events", "event request_id count") == cells(EVENTS)
    assert reading.rows["engine_events"][0]["at_local"].microsecond == 123_000
    assert (reading.account.ignored, reading.account.not_understood) == (1, 0)


@pytest.mark.parametrize("form", [SGLANG, VLLM], ids=["sglang", "vllm"])
def test_the_lines_are_read_among_those_of_an_engine(form):
    rows = read(form, LINES).table("engine_events", "event request_id count")
    assert rows == cells(EVENTS)
