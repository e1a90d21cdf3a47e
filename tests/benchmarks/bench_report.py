"""How soon a report shows its first chart: `python -m tests.benchmarks.bench_report`. Needs a Chromium and `playwright`.

Two pages are opened: of five minutes of two engines, and of a day of a hundred. Measured is the work of the page's main thread
until the first chart is drawn. The floor is a page with the same script of Vega that draws one bar.

    time    the first chart costs at most 7.5 times the floor: 1.5 s where one bar takes 0.2 s

It prints the figures and exits with 1 where one misses.
"""

# ruff: noqa: T201 - the table goes to the terminal

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import altair as alt
from playwright.sync_api import Browser, sync_playwright

from pipelines.charts import bundle
from pipelines.report import write_report
from tests import synthetic
from tests.chromium import CHROMIUM, LACKING, launch

TIMES, MOST_RATIO = 5, 7.5


def bare(page: Path) -> Path:
    """One bar, drawn by the script that draws a report's charts."""
    bar = alt.Chart(alt.Data(values=[{"one": 1}])).mark_bar().encode(x="one:Q").to_dict()
    drawn = f"vegaEmbed('#chart', {json.dumps(bar)}, {{renderer: 'svg', ast: true}}).then(() => chart.dataset.drawn = 1)"
    scripts = "".join(f"<script>{script}</script>" for script in (bundle.vega(), drawn))
    page.write_text(f"<!doctype html><meta charset=utf-8><div id=chart data-chart=bar></div>{scripts}")
    return page


def reported(folder: Path, engines: Sequence[str], afterwards: str = "") -> Path:
    folder.mkdir()
    page = folder / "report.html"
    write_report(synthetic.analysis(folder, engines=tuple(engines), afterwards=afterwards), page)
    return page


def first_chart_s(browser: Browser, page: Path) -> float:
    """CPU seconds of the page's main thread until its first chart is drawn; the median of some."""
    return median(_opened(browser, page) for _ in range(TIMES))


def _opened(browser: Browser, page: Path) -> float:
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab.goto(page.as_uri(), wait_until="commit")
    tab.wait_for_selector("[data-chart][data-drawn]", timeout=60_000)
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    tab.close()
    return metrics["TaskDuration"]


def main() -> int:
    if CHROMIUM is None:
        sys.exit(LACKING)
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        pages = {
            "a run of two engines": reported(Path(folder) / "two", ("0", "1")),
            "a day of a hundred": reported(Path(folder) / "hundred", synthetic.HUNDRED, synthetic.A_DAY),
        }
        browser = launch(playwright)
        floor = first_chart_s(browser, bare(Path(folder) / "bare.html"))
        print(f"{'one bar':24} {floor:6.2f} s")
        holds = True
        for name, page in pages.items():
            took = first_chart_s(browser, page)
            print(f"{name:24} {took:6.2f} s  {took / floor:5.2f} of the floor (at most {MOST_RATIO:g})")
            holds = holds and took <= MOST_RATIO * floor
        browser.close()
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
