"""Small engines for the tests of the daily job: scrapes and log lines of any time, in files that a test may cut and move."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.config import Config, load
from pipelines.storage import Store

STEP = timedelta(seconds=15)
COUNTERS = {"vllm:num_preemptions_total": 3.0, "vllm:generation_tokens_total": 900.0, "vllm:prompt_tokens_total": 600.0}
GAUGES = {"vllm:num_requests_running": 8.0, "vllm:num_requests_waiting": 4.0, "vllm:kv_cache_usage_perc": 0.97}


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def scrapes(path: Path, begin: datetime, count: int, *, since: datetime | None = None, per_step: float = 1.0) -> Path:
    """A saved range query: gauges that stand still, and counters that rise since `since` (where not given: `begin`)."""
    times = [begin + STEP * number for number in range(count)]
    risen = [(each - (since or begin)) / STEP * per_step for each in times]
    series = [(name, [rise * steps for steps in risen]) for name, rise in COUNTERS.items()]
    series += [(name, [value] * count) for name, value in GAUGES.items()]
    result = [
        {
            "metric": {"__name__": name, "instance": "gpu-1:8000", "job": "vllm", "engine": "0", "model_name": "tiny"},
            "values": [[each.timestamp(), str(value)] for each, value in zip(times, values, strict=True)],
        }
        for name, values in series
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
    return path


def log_lines(begin: datetime, count: int, *, running: int = 8) -> list[str]:
    """Statistics lines of a vLLM log, one in ten seconds, without year and zone."""
    form = (
        "(APIServer pid=1) INFO {:%m-%d %H:%M:%S} [loggers.py:335] Engine 000: Avg prompt throughput: 40.0 tokens/s, "
        "Avg generation throughput: 60.0 tokens/s, Running: {} reqs, Waiting: 4 reqs, GPU KV cache usage: 97.0%, "
        "Prefix cache hit rate: 0.0%\n"
    )
    return [form.format(begin + timedelta(seconds=10 * number), running) for number in range(count)]


def write(path: Path, lines: Iterable[str]) -> Path:
    """A text file, with the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))
    return path


def configured(root: Path, engines: Sequence[str] = ("chat",), *, url: str = "lake", extra: str = "") -> Config:
    """A configuration beside the folders of its engines: logs by any name, scrapes below the day's."""
    tables = "".join(
        f'[[engines]]\nname = "{name}"\ngroup = "{"even" if number % 2 == 0 else "odd"}"\ntimezone = "UTC"\n'
        f'labels = {{ model = "tiny" }}\npaths = ["{name}/logs/*", "{name}/{{day}}/*"]\n'
        for number, name in enumerate(engines)
    )
    path = root / "kvpressure.toml"
    root.mkdir(parents=True, exist_ok=True)
    path.write_text(f'[lake]\nurl = "{url}"\n{tables}{extra}')
    return load(path)


def lake_files(store: Store) -> dict[str, bytes]:
    """Everything a lake holds but what was remembered for the next time to be quick, and the catalog's paths."""
    names = [name for pattern in ("days/**/*", "fleet/**/*", "raw/**/*") for name in store.names(pattern)]
    return {name: store.read(name) or b"" for name in names}
