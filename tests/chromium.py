"""The system's Chromium, which tests, benchmarks and pictures drive: found on the path, and not brought by any package."""

from __future__ import annotations

import shutil
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LACKING = "no Chromium found: apt-get install chromium"


def launch(playwright: Any) -> Any:
    """A browser of its own, without a window."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
