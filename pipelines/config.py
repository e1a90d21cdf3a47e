"""Configuration of the daily job: `kvpressure.toml` -> what is read, where the lake lies, and what counts as too much.

    [lake]
    url = "lake"                      # a folder, relative to this file, or s3://bucket/prefix
    retention_days = 90

    [[engines]]
    group = "chat"
    paths = ["logs/{engine}/vllm.log*", "metrics/{day}/{engine}.prom*"]

Every key is in one of the dataclasses here; one that is not is an error which names the line. A path is a glob; `{engine}` in it
stands for the engine's name, `{day}` (or `{day:%Y/%m/%d}`) for the day, any other `{word}` becomes a label of the engine.
Secrets are never in the file: object stores and Prometheus servers take theirs from the environment.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from parsers.source import InputError
from pipelines import patterns
from pipelines.nearest import meant
from pipelines.patterns import Found
from pipelines.storage import Store
from pipelines.zone import NoZoneError, zone_name

FILE = "kvpressure.toml"
NAMED = 5  # engines that are listed where another was asked for
_CREDENTIALS = re.compile(r"://[^\s'\"]*@")  # in an address


class ConfigError(InputError):
    """A configuration that cannot be used. One line: which key, in which line, and what it should be."""


@dataclass(frozen=True)
class LakeSettings:
    """`[lake]`: where it lies, how long a day is kept, and when what happens.

    A day begins at midnight in `timezone`; it is analyzed at `nightly` of the next, and again where files come up to `late_days`
    later. What a collector still held at midnight should have arrived by then.
    """

    url: str
    retention_days: int | None = None
    timezone: str = "UTC"
    first_day: date | None = None
    late_days: int = 7
    nightly: time = time(0, 30)


@dataclass(frozen=True)
class Thresholds:
    """`[thresholds]`: what counts as too much on one engine's day. An alert is a check that fails."""

    recompute_share: float | None = None
    preemptions_per_hour: float | None = None
    unparsed_share: float = 0.01
    clock_error_s: float = 60.0


@dataclass(frozen=True)
class EngineSettings:
    """`[[engines]]`: one engine, or with `{engine}` in its paths a fleet of them.

    `selector` says which series of the server are the engine's: label matchers, such as `pod="{engine}"`. Engines of a fleet that
    are no more are `retired`, by name or glob.
    """

    paths: tuple[str, ...] = ()
    name: str | None = None
    group: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    timezone: str | None = None
    gpu_cost: float | None = None
    prometheus: str | None = None
    selector: str | None = None
    retired: tuple[str, ...] = ()

    def has_retired(self, engine: str) -> bool:
        """Whether an engine of these paths is no more, so that nothing of it is missed."""
        return any(fnmatchcase(engine, each) for each in self.retired)


@dataclass(frozen=True)
class Engine:
    """One engine of the fleet."""

    name: str
    group: str
    settings: EngineSettings
    labels: Mapping[str, str]
    base: Path

    def files(self, days: tuple[date, ...] = ()) -> list[Found]:
        """Its files, sorted. Where a path names the day, only those of `days`, all where none are given."""
        matches = (
            match
            for pattern in self.settings.paths
            for match in patterns.matches(pattern, self.base, engine=self.name, days=days)
        )
        found = {each.uri: each for each, _ in matches}
        return [found[uri] for uri in sorted(found)]

    def closed(self, days: tuple[date, ...] = ()) -> list[str]:
        """Folders of its paths that may not be looked into, sorted."""
        return _closed(self.settings, self.base, self.name, days)


@dataclass(frozen=True)
class Config:
    """A valid configuration. Paths in it are relative to the folder of its file."""

    path: Path
    lake: LakeSettings
    engines: tuple[EngineSettings, ...]
    thresholds: Thresholds

    @property
    def store(self) -> Store:
        """The lake's root."""
        return Store.at(self.lake.url if "://" in self.lake.url else self.path.absolute().parent / self.lake.url)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups, in the order they are first named."""
        return tuple(dict.fromkeys(each.group for each in self.engines))

    def fleet(self, group: str | None = None) -> list[Engine]:
        """Every engine that is named, or has a file that names it; sorted. ConfigError where two entries have one."""
        return [engine for _, engine in sorted(self._found.items()) if group in (None, engine.group)]

    @cached_property
    def _found(self) -> dict[str, Engine]:
        """The engines by name, as they were when first asked for: a fleet's files are listed once."""
        engines: dict[str, Engine] = {}
        for settings in self.engines:
            for engine in self._engines_of(settings):
                if (other := engines.get(engine.name)) and other.settings is not settings:
                    raise ConfigError(f"{self.path}: two [[engines]] both have an engine `{engine.name}`; name them apart")
                engines[engine.name] = engine
        return engines

    def engine(self, name: str) -> Engine:
        """One engine by its name. ConfigError where there is none."""
        known = self._found
        if name not in known:
            few = f"there {'is' if len(known) == 1 else 'are'} {', '.join(sorted(known)) or 'none'}"
            hint = meant(name, known, few if len(known) <= NAMED else f"there are {len(known)} engines")
            raise ConfigError(f"{self.path}: no engine `{name}` and no file that names it; {hint}")
        return known[name]

    def closed(self, settings: EngineSettings) -> list[str]:
        """Folders of an entry's paths that may not be looked into, sorted."""
        return _closed(settings, self.path.absolute().parent, settings.name)

    def window(self, day: date) -> tuple[datetime, datetime]:
        """Begin and end of a day, in UTC; a day of 23 or 25 hours is one."""
        zone = ZoneInfo(self.lake.timezone)
        begin, end = (datetime.combine(each, time(), zone).astimezone(UTC) for each in (day, day + timedelta(days=1)))
        return begin, end

    def day_of(self, moment: datetime) -> date:
        """The day in which a moment lies."""
        return moment.astimezone(ZoneInfo(self.lake.timezone)).date()

    def _engines_of(self, settings: EngineSettings) -> Iterator[Engine]:
        base = self.path.absolute().parent
        if settings.name:
            yield Engine(settings.name, settings.group, settings, settings.labels, base)
            return
        seen: dict[str, dict[str, str]] = {}
        for pattern in settings.paths:
            for _, captured in patterns.matches(pattern, base):
                words = {key: value for key, value in captured.items() if key not in ("engine", "day")}
                seen.setdefault(captured["engine"], {}).update(words)
        for name, words in seen.items():
            yield Engine(name, settings.group, settings, {**words, **settings.labels}, base)


def _closed(settings: EngineSettings, base: Path, name: str | None, days: tuple[date, ...] = ()) -> list[str]:
    return sorted({folder for each in settings.paths for folder in patterns.closed(each, base, engine=name, days=days)})


def load(path: Path) -> Config:
    """Read and check a configuration. ConfigError where it cannot be used."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}; give --config FILE or write a {FILE}") from error
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML ({error}); text stands in quotes, lists in brackets") from error
    return _Reader(path, text).config(told)


# reading with errors that say where


@dataclass(frozen=True)
class _Reader:
    """Turns parsed TOML into dataclasses and knows in which line of the text a key stands."""

    path: Path
    text: str

    def config(self, told: dict[str, Any]) -> Config:
        sections = {"lake", "engines", "thresholds"}
        for key in sorted(told.keys() - sections):
            below = f"stands outside of the sections; put it below {_owners(key)}"
            hint = below if _owners(key) else f"is no section; {_nearest(key, sections)}"
            raise self._wrong(key, None, f"`{key}` {hint}")
        if "url" not in told.get("lake", {}):
            raise ConfigError(f'{self.path}: lake.url is missing; add `url = "lake"` below [lake]')
        if not isinstance(told.get("engines"), list) or not told["engines"]:
            raise ConfigError(f"{self.path}: no [[engines]]; add one with the paths of its logs and metrics")
        lake = self._section(LakeSettings, told["lake"], "lake", None)
        lake = dataclasses.replace(lake, timezone=self._zone(lake.timezone, "lake.timezone", ("lake", None)))
        self._without_credentials(lake.url, "url", "lake.url", ("lake", None))
        if lake.retention_days is not None and lake.retention_days < 1:
            raise self._wrong("retention_days", ("lake", None), "lake.retention_days is at least 1; leave it out to keep all")
        engines = tuple(self._engine(each, number) for number, each in enumerate(told["engines"]))
        thresholds = self._section(Thresholds, told.get("thresholds", {}), "thresholds", None)
        for limit in dataclasses.fields(Thresholds):
            if (value := getattr(thresholds, limit.name)) is not None and value < 0:
                raise self._wrong(limit.name, ("thresholds", None), f"thresholds.{limit.name} is {value}; a limit is 0 or more")
        return Config(self.path, lake, engines, thresholds)

    def _engine(self, told: Any, number: int) -> EngineSettings:
        where, name = ("engines", number), f"engines[{number}]"
        engine = self._section(EngineSettings, told, "engines", number)
        if not engine.paths and not engine.prometheus:
            raise self._wrong(None, where, f"{name} has neither paths nor prometheus; say where its logs and metrics are")
        for path in engine.paths:
            self._without_credentials(path, "paths", f"{name}.paths", where)
        captures = all("engine" in patterns.words(path) for path in engine.paths)
        if not engine.name and not (engine.paths and captures):
            raise self._wrong("paths", where, f"{name} has no name; give it one, or put {{engine}} into each of its paths")
        if engine.name and engine.retired:
            raise self._wrong(
                "retired", where, f"{name}.retired is for engines that paths name; take `{engine.name}` out instead"
            )
        if not re.fullmatch(r"\w+", engine.group, re.ASCII):  # it becomes a part of the names in Dagster
            raise self._wrong("group", where, f"{name}.group is `{engine.group}`; use letters, digits and _ only")
        if engine.timezone is not None:
            engine = dataclasses.replace(engine, timezone=self._zone(engine.timezone, f"{name}.timezone", where))
        if engine.gpu_cost is not None and engine.gpu_cost <= 0:
            raise self._wrong("gpu_cost", where, f"{name}.gpu_cost is {engine.gpu_cost}; a price per hour is above 0")
        return engine

    def _section(self, kind: type, told: Any, section: str, number: int | None) -> Any:
        spoken = section if number is None else f"{section}[{number}]"
        if not isinstance(told, dict):
            raise self._wrong(section, None, f"{spoken} is a section; write [{section}] on a line of its own")
        fields = {each.name: str(each.type) for each in dataclasses.fields(kind)}
        values = {}
        for key, value in told.items():
            if key not in fields:
                hint = f"it belongs below {_owners(key)}" if _owners(key) else _nearest(key, set(fields))
                raise self._wrong(key, (section, number), f"{spoken}.{key} is no key; {hint}")
            values[key] = self._value(value, fields[key], f"{spoken}.{key}", (section, number))
        return kind(**values)

    def _value(self, value: Any, kind: str, spoken: str, where: tuple[str, int | None]) -> Any:
        _, accept, convert, wanted = next(each for each in _KINDS if kind.startswith(each[0]))
        if accept(value):
            return convert(value)
        raise self._wrong(spoken.rsplit(".", 1)[1], where, f"{spoken} is {value!r}; it should be {wanted}")

    def _zone(self, text: str, spoken: str, where: tuple[str, int | None]) -> str:
        try:
            return zone_name(text)
        except NoZoneError as error:
            raise self._wrong("timezone", where, f"{spoken}: {error}") from None

    def _without_credentials(self, url: str, key: str, spoken: str, where: tuple[str, int | None]) -> None:
        if _CREDENTIALS.search(url):
            raise self._wrong(key, where, f"{spoken} holds credentials; object stores take theirs from the environment (AWS_…)")

    def _wrong(self, key: str | None, where: tuple[str, int | None] | None, message: str) -> ConfigError:
        line = self._line(key, where)
        return ConfigError(f"{self.path}{f', line {line}' if line else ''}: {_CREDENTIALS.sub('://…@', message)}")

    def _line(self, key: str | None, where: tuple[str, int | None] | None) -> int | None:
        """Line of a key within its section (the n-th of that name), or of the section itself; None where it is not found."""
        section, number = where or (None, None)
        header = re.compile(r"\s*\[+\s*([\w.-]+)\s*\]+")
        current, seen, begins = None, -1, None
        for line_number, line in enumerate(self.text.splitlines(), start=1):
            if told := header.match(line):
                current = told[1].split(".")[0]
                seen += current == section and told[1] == section
                if (current == section and number in (None, seen)) or (section is None and current == key):
                    begins = begins or line_number
            elif key and current == section and number in (None, seen) and re.match(rf'\s*"?{re.escape(key)}"?\s*[.=]', line):
                return line_number
        return begins


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


# how a field's type begins -> whether a value is one, how it is kept, and what it should have been
_KINDS: tuple[tuple[str, Callable[[Any], bool], Callable[[Any], Any], str], ...] = (
    ("tuple", lambda value: isinstance(value, list) and all(map(_is_text, value)), tuple, 'a list of texts: ["logs/*.log"]'),
    ("Mapping", lambda value: isinstance(value, dict) and all(map(_is_text, value.values())), dict, 'texts: { model = "llama" }'),
    (
        "date",
        lambda value: isinstance(value, date) and not isinstance(value, datetime),
        lambda value: value,
        "a date: 2026-11-01",
    ),
    ("time", lambda value: isinstance(value, time), lambda value: value, "a time without quotes: 00:30:00"),
    ("int", lambda value: isinstance(value, int) and not isinstance(value, bool), int, "a whole number"),
    ("float", lambda value: isinstance(value, (int, float)) and not isinstance(value, bool), float, "a number"),
    ("str", _is_text, str, "a text in quotes"),
)


def _owners(key: str) -> str:
    """The sections that have the key, as they are written."""
    kinds = {"[lake]": LakeSettings, "[[engines]]": EngineSettings, "[thresholds]": Thresholds}
    return " or ".join(header for header, kind in kinds.items() if key in {each.name for each in dataclasses.fields(kind)})


def _nearest(key: str, known: set[str]) -> str:
    return meant(key, known, f"known are {', '.join(sorted(known))}")
