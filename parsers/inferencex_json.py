"""InferenceX (InferenceMAX) `agg_*.json`: one benchmark result reduced to its numbers, per GPU, in seconds.

    {"hw":"h200","conc":64,"model":"deepseek-r1","framework":"vllm","precision":"fp8","tp":8,"ep":1,"dp_attention":"false",
     "tput_per_gpu":812.4,"output_tput_per_gpu":402.1,"mean_ttft":0.61,"p99_ttft":2.2,"median_tpot":0.021,"median_intvty":47.6}

Each becomes a row of `bench_runs` with nothing but its limit of concurrency, its model and its numbers, names as written: a name
without `_ms` is in seconds. Results that were not reduced keep the form of `vllm bench serve` and are read as such.
"""

from __future__ import annotations

from typing import Any

from parsers import Format
from parsers.bench_rows import begins_as_json, has_keys, numbers_in, read_documents, text, whole
from parsers.source import Account, Sink, Source


def parse(source: Source, sink: Sink) -> Account:
    """Read one file; the account counts documents, a list being one."""
    runs = 0

    def read(document: Any, _: int, name: str, sink: Sink) -> bool:
        nonlocal runs
        results = document if isinstance(document, list) else [document]
        mine = [result for result in results if isinstance(result, dict) and "tput_per_gpu" in result]
        for result in mine:
            run = {
                "source": name,
                "run_index": runs,
                "client": "inferencex",
                "model": text(result.get("model")),
                "max_concurrency": whole(result.get("conc")),
                "has_details": False,
                "aggregates": numbers_in(result, but=("conc",)),
            }
            sink.write_rows("bench_runs", [run])
            runs += 1
        return bool(mine)

    return read_documents(source, sink, read)


def detect(head: bytes) -> float:
    """Throughput per GPU beside the hardware it was measured on."""
    return 0.9 if begins_as_json(head) and has_keys(head, "hw", "conc", "tput_per_gpu") else 0.0


FORMAT = Format(
    name="inferencex_json",
    title="InferenceX agg_*.json",
    engine_kind=None,
    versions="InferenceMAX and InferenceX, 2025 to 2026",
    can_tell="latency and throughput of a configuration at one concurrency, as its authors summed them up",
    cannot_tell="anything of single requests, or when it ran",
    tables=("bench_runs",),
    detect=detect,
    parse=parse,
)
