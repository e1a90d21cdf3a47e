"""Pages that repeat are read as a whole; that must give what reading them line by line gives, whatever a recording does."""

# ruff: noqa: ARG005 - every chance gets the dice

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from parsers import prometheus_text
from parsers.prometheus_pages import Page
from parsers.source import Sink, Source

PAGE = (
    "# HELP vllm:num_requests_running Running.",
    "# TYPE vllm:num_requests_running gauge",
    'vllm:num_requests_running{{engine="0"}} {a}',
    "python_gc_objects_collected_total {b}",
    'vllm:e2e_request_latency_seconds_bucket{{engine="0",le="0.5"}} {a}.0',
    'vllm:e2e_request_latency_seconds_bucket{{engine="0",le="+Inf"}} {b}.0',
    "vllm:num_preemptions_total {b}",
)
CHANCES = (
    lambda dice, lines: lines.insert(dice.randrange(len(lines)), 'vllm:generation_tokens_total{engine="1"} 5'),
    lambda dice, lines: lines.pop(dice.randrange(len(lines))),
    lambda dice, lines: lines.insert(dice.randrange(len(lines)), "# a remark"),
    lambda dice, lines: lines.insert(dice.randrange(len(lines)), ""),
    lambda dice, lines: lines.append("vllm:num_preemptions_total NaN"),
    lambda dice, lines: lines.append("vllm:num_preemptions_total 7 1760000000123"),
    lambda dice, lines: lines.append("vllm:num_preemptions_total sev"),
    lambda dice, lines: lines.__setitem__(-1, "vllm:num_preemptions_total NaN"),
    lambda dice, lines: lines.__setitem__(-1, "vllm:num_preemptions_total sev"),
    lambda dice, lines: lines.__setitem__(2, 'vllm:num_requests_running{engine="1"} 5'),
    lambda dice, lines: lines.append("what is this"),
    lambda dice, lines: lines.insert(0, "# scrape failed"),
    lambda dice, lines: lines.append("# scrape_unix_ms 1760000099000"),
    lambda dice, lines: lines.reverse(),
)


def recording(seed: int) -> str:
    """Forty pages, most of which repeat the one before, and a cut somewhere in the last."""
    dice = random.Random(seed)
    lines = []
    for number in range(40):
        lines.append(f"# scrape_unix_ms {1760000000000 + 15000 * number}")
        page = [line.format(a=number // 3, b=number * 2) for line in PAGE]
        if dice.random() < 0.3:
            dice.choice(CHANCES)(dice, page)
        lines += page
    text = "\n".join(lines) + "\n"
    return text[: -dice.randrange(1, 60)] if dice.random() < 0.5 else text


def read(folder: Path, text: str):
    folder.mkdir()
    (folder / "metrics.txt").write_text(text)
    with Sink(folder) as sink:
        account = prometheus_text.FORMAT.parse(Source(folder / "metrics.txt", "metrics.txt"), sink)
    assert account.balanced
    return account, pq.read_table(folder / "metric_samples.parquet")


@pytest.mark.parametrize("seed", range(40))
def test_page_by_page_gives_what_line_by_line_gives(tmp_path, monkeypatch, seed):
    text, turned = recording(seed), []
    turn = Page.turn
    monkeypatch.setattr(Page, "turn", lambda page, lines: turned.append(turn(page, lines)) or turned[-1])
    by_page = read(tmp_path / "by_page", text)
    assert any(turned), "no page was read as a whole"
    monkeypatch.setattr(Page, "of", lambda *_: None)
    assert read(tmp_path / "by_line", text) == by_page
