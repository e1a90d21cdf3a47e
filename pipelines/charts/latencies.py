"""What a client measured, in a sentence: of results that hold sums and no requests, the only word on what its users felt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.charts.language import count, duration

QUERY = "from core.client_latencies order by started_at nulls last, source, run_index"
MEASURES = (("TTFT", "ttft_p50_s", "ttft_p99_s"), ("between tokens", "itl_p50_s", "itl_p99_s"))


def sentences(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """`TTFT 1 min 50 s (p99 2 min 2 s), between tokens 211 ms, 640 requests.`; with its file where the run has other results."""
    for row in rows:
        told = [*filter(None, (_measure(row, *each) for each in MEASURES)), *_requests(row)]
        name = "" if row["is_alone"] else f"{row['source_file']}: "
        yield f"{name}{', '.join(told)}."


def _measure(row: Mapping[str, Any], name: str, median: str, tail: str) -> str:
    half = duration(row[median]) if row[median] is not None else ""
    rest = f"p99 {duration(row[tail])}" if row[tail] is not None else ""
    return f"{name} {f'{half} ({rest})' if half and rest else half or rest}" if half or rest else ""


def _requests(row: Mapping[str, Any]) -> Iterator[str]:
    if row["completed"] is not None:
        yield f"{count(row['completed'])} request{'' if row['completed'] == 1 else 's'} completed"
    if row["failed"]:
        yield f"{count(row['failed'])} failed"
