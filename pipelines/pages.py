"""What all pages share: their templates, the frame they stand in, and what makes a page safe to open.

The templates are in `report_page/`; `base.html` is the frame, with one policy for every page: no script but those that came with
it, and no request at all. Everything from an input passes through Jinja's escaping on its way into HTML and through `script_json`
on its way into a script element. What does not belong here: what any page says.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipelines.charts import language
from pipelines.charts.language import between, count, duration, percent, short
from pipelines.texttable import printable

FOLDER = Path(__file__).with_name("report_page")


def html(template: str, said: Mapping[str, Any], scripts: Mapping[str, str] | None = None) -> str:
    """A page of `report_page/`: what it says, in the frame that all pages share."""
    return (
        environment(is_html=True)
        .get_template(template)
        .render(
            said,
            style=(FOLDER / "page.css").read_text(encoding="utf-8"),
            scripts=scripts or {},
            policy=policy((scripts or {}).values()),
            tones_by_name=tones_by_name(),
            version=version("kvpressure"),
        )
    )


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element whatever texts are in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def policy(scripts: Iterable[str]) -> str:
    """The page's Content-Security-Policy: these scripts and no other, and no request to anywhere."""
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts]
    allowed = " ".join(hashes or ["'none'"])
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def tones_by_name() -> dict[str, language.Tone]:
    """The tones that the style sheet knows by name."""
    paper = {
        "ink": language.INK,
        "soft": language.SOFT,
        "hair": language.HAIR,
        "grid": language.GRID,
        "paper": language.PAPER,
        "work": language.WORK,
        "work-soft": language.WORK_SOFT,
        "look-alike": language.LOOK_ALIKE,
    }
    return paper | {event.key.replace("_", "-"): event.tone for event in language.EVENTS}


@cache
def environment(*, is_html: bool) -> Environment:
    """The templates of `report_page/`, each compiled once, with their filters; what is given is escaped where they make HTML."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=is_html,  # noqa: S701 - Markdown has escaping of its own: the filter `md`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_unbroken if is_html else None,
    )
    environment.filters |= {
        "count": count,
        "short": short,
        "percent": percent,
        "duration": duration,
        "milliseconds": language.finite,
        "spoken": lambda key: (key or "").replace("_", " "),
        "sentence": sentence,
        "md": _markdown,
        "arrows": lambda words: words.replace(" -> ", "\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}"),
    }
    environment.globals |= {
        "between": between,
        "duration_of": duration,
        "estimate": language.estimate,
        "dollars": "{:,.4f}".format,
        "window": language.window,
        "how_much": language.how_much,
        "word": language.word,
        "verdict_word": language.verdict_word,
        "dated": language.dated,
        "source_name": language.source_name,
    }
    return environment


def _unbroken(value: Any) -> Any:
    """A text in which no line breaks between a number and its unit; what is escaped already, such as a query, stays as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return language.NUMBER_AND_UNIT.sub("\N{NO-BREAK SPACE}", value)


def sentence(text: str | None) -> str:
    """With a full stop at its end."""
    stripped = (text or "").strip()
    return stripped if not stripped or stripped.endswith((".", "!", "?", ":")) else f"{stripped}."


def _markdown(text: Any) -> str:
    """Text as one line of Markdown that shows it as it is, also inside a table."""
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", printable(" ".join(str(text or "").split())))
