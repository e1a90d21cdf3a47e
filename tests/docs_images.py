"""`make images`: the pictures of the README, from the report of `make demo` in a headless Chromium."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.chromium import launch

PROJECT = Path(__file__).parent.parent
REPORT = PROJECT / "out" / "demo" / "report.html"
IMAGES = PROJECT / "docs" / "images"
TOP = {"width": 1280, "height": 770}  # the verdict and its numbers


def main() -> None:
    """Light and dark: what is seen first, and the run on one time axis."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for theme in ("light", "dark"):
            _draw(browser, theme)
        browser.close()


def _draw(browser: Browser, theme: str) -> None:
    page = browser.new_page(viewport=TOP, color_scheme=theme)
    page.goto(REPORT.as_uri())
    page.wait_for_selector("body[data-drawn]", timeout=60_000)
    page.screenshot(path=IMAGES / f"report-{theme}.png")
    page.locator("#chart-timeline").screenshot(path=IMAGES / f"timeline-{theme}.png")
    page.close()


if __name__ == "__main__":
    main()
