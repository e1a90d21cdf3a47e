"""LLMServingSim's folder: the settings that its meta.json states, in every place it does."""

import json

from parsers.llmservingsim import FORMAT
from tests.parsers.reading import read

META = {
    "schema_version": 1,
    "model": "m",
    "vllm_version": "0.19.0",
    "engine_kwargs": {"model": "m", "max_num_seqs": 128, "data_parallel_size": 2, "max_model_len": None, "seed": 42},
    "started_at": "2026-04-25T18:47:18.273385Z",
}
SIZES = {"num_gpu_blocks": 2588, "num_cpu_blocks": None, "block_size": 16, "num_kv_tokens": 41408, "enable_prefix_caching": True}
MADE_OF_IT = {
    "cache_config": {"cache_dtype": "fp8", "num_gpu_blocks": 2588, "kv_offloading_size": None},
    "scheduler_config": {"policy": "priority", "max_num_seqs": 96},
    "speculative_config": {"model": "draft"},
    "compilation_config": {"mode": 3},
}


def said(meta):
    reading = read(FORMAT, json.dumps(meta, indent=2), "meta.json")
    assert {row["at_utc"].isoformat() for row in reading.rows["engine_config"]} == {"2026-04-25T18:47:18.273385+00:00"}
    return {row["key"]: row["value_text"] for row in reading.rows["engine_config"]}


def test_what_was_asked_for_is_kept_where_it_bears_on_scheduling_and_memory():
    assert said(META) == {"model": "m", "engine_version": "0.19.0", "max_num_seqs": "128", "data_parallel_size": "2"}


def test_the_pool_that_it_found_room_for_is_told_and_what_it_made_of_its_arguments_stands_above_them():
    told = said(META | {"kv_cache": SIZES, "resolved_config": MADE_OF_IT})
    assert told == {
        "model": "m",
        "engine_version": "0.19.0",
        "data_parallel_size": "2",
        "max_num_seqs": "96",
        "scheduling_policy": "priority",
        "kv_cache_dtype": "fp8",
        "num_gpu_blocks": "2588",
        "kv_capacity_tokens": "41408",
        "block_size": "16",
        "enable_prefix_caching": "True",
    }
