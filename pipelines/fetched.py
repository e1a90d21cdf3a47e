"""Metrics that a Prometheus server is asked for: one engine's day, brought once and kept in the lake as the answers it gave.

    <lake>/fetched/<engine>/day=2026-11-27/prometheus-….json.gz, and `done` once the day was over when it was asked for

A server forgets after weeks what the lake keeps; so a day that was brought is not asked for again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import quote

from parsers import InputError
from pipelines.config import Config, Engine
from pipelines.http_source import HttpError
from pipelines.patterns import Found
from pipelines.prometheus import PrometheusError, Question, fetch

Tell = Callable[[str], object]
DONE = "done"


def bring(config: Config, engine: Engine, day: date, *, tell: Tell = lambda _: None) -> None:
    """Ask for the day where the engine has a server and the day was not brought. InputError where the server does not answer."""
    settings, store, place = engine.settings, config.store, _place(engine, day)
    if settings.prometheus is None or store.exists(f"{place}/{DONE}"):
        return
    since, until = config.window(day)
    asked_at = datetime.now(UTC)
    selector = (settings.selector or "").replace("{engine}", engine.name)
    with store.workplace() as folder:
        try:
            fetch(Question(settings.prometheus, selector, since, min(until, asked_at)), folder / "answers", tell=tell)
        except HttpError as error:
            raise InputError(str(error)) from error
        except PrometheusError as nothing:  # the engine may have stood still all day; its log may say so
            tell(str(nothing))
            return
        for path in sorted((folder / "answers").iterdir()):
            store.put(f"{place}/{path.name}", path.replace)
    if asked_at >= until:
        store.put_bytes(f"{place}/{DONE}", b"")


def found(config: Config, engine: Engine, days: tuple[date, ...]) -> list[Found]:
    """The answers kept of these days."""
    if engine.settings.prometheus is None:
        return []
    return [
        Found(config.store, name, day)
        for day in days
        for name in config.store.names(f"{_place(engine, day)}/*")
        if Path(name).name != DONE
    ]


def _place(engine: Engine, day: date) -> str:
    return f"fetched/{quote(engine.name, safe='')}/day={day.isoformat()}"
