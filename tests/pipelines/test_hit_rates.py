"""The hit-rate curve of a workload: an ideal cache on prompts small enough to follow by hand, and a published ceiling."""

import json
from pathlib import Path

import pytest

from pipelines.replay.hit_rates import hit_ratio, sizes

MOONCAKE = Path(__file__).resolve().parents[3] / "shared" / "traces" / "mooncake_synthetic_trace.jsonl"


def test_a_block_is_found_only_with_all_before_it():
    assert hit_ratio([[1, 2, 3], [1, 2, 3]], 3) == 3 / 6
    assert hit_ratio([[1, 2, 3], [9, 2, 3]], 4) == 0
    assert hit_ratio([[1, 2, 3], [1, 2, 9]], 4) == 2 / 6


def test_a_cache_too_small_loses_the_end_of_a_prompt_first():
    assert hit_ratio([[1, 2, 3], [1, 2, 3]], 2) == 2 / 6
    assert hit_ratio([[1, 2], [3, 4], [1, 2]], 2) == 0
    assert hit_ratio([[1, 2], [3, 4], [1, 2]], 3) == 1 / 6
    assert hit_ratio([], 3) == 0


def test_sizes_double_up_to_all_the_blocks_there_are():
    assert sizes(300) == [64, 128, 256, 300]
    assert sizes(64) == [64]
    assert sizes(5) == [5]


@pytest.mark.skipif(not MOONCAKE.is_file(), reason="the trace is not beside this checkout")
def test_the_ceiling_of_a_published_trace():
    prompts = [json.loads(line)["hash_ids"] for line in MOONCAKE.read_text().splitlines()]
    seen: set[int] = set()
    again = 0
    for prompt in prompts:  # ids stand for whole prefixes: what was seen before was seen with all before it
        again += sum(block in seen for block in prompt)
        seen.update(prompt)
    ceiling = again / sum(map(len, prompts))
    assert round(ceiling, 3) == 0.640
    assert hit_ratio(prompts, len(seen)) == pytest.approx(ceiling)
    curve = [hit_ratio(prompts, size) for size in sizes(len(seen))]
    assert curve == sorted(curve)
