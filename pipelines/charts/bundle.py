"""The one script that draws the charts in a page: Vega, Vega-Lite and their embedder, bundled once and then kept.

Bundling takes longer than the rest of a report, and gives the same text for the same version: it is kept in the user's cache
(`$XDG_CACHE_HOME`, else `~/.cache`), and made anew where it cannot be.
"""

from __future__ import annotations

import contextlib
import os
from functools import cache
from importlib.metadata import version
from pathlib import Path

import altair as alt
import vl_convert


@cache
def vega() -> str:
    """The script, of the versions that the charts are written for."""
    kept = _cache() / f"vega-{version('vl-convert-python')}-{alt.SCHEMA_VERSION}.js"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return kept.read_text(encoding="utf-8")
    major_minor = alt.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", major_minor)
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        made = kept.with_name(f".{kept.name}.{os.getpid()}")
        made.write_text(script, encoding="utf-8")
        made.replace(kept)
    return script


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvpressure"
