"""Paths with placeholders: which files a pattern of the configuration stands for, and what each of its words is in a file's name.

    logs/{engine}/vllm.log*          metrics/{day:%Y/%m/%d}/{engine}-*.prom          s3://bucket/{cluster}/{engine}/

`*`, `?`, `[…]` and `**` are those of a glob; a pattern that ends in `/` stands for everything below it. `{day}` is a date,
written 2026-11-27 unless it says otherwise; any other word is a part of one name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from pipelines.storage import Store

_PLACEHOLDER = re.compile(r"\{(\w+)(?::([^{}]+))?\}")
_DAY_FORMAT = "%Y-%m-%d"
_DIGITS = {"%Y": r"\d{4}", "%m": r"\d{2}", "%d": r"\d{2}", "%j": r"\d{3}", "%y": r"\d{2}"}
_GLOB = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
_GLOB_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]]*\]|[^*?\[]+|\[")


@dataclass(frozen=True)
class Found:
    """A file that a pattern stands for: where it lies, and the day its path names."""

    store: Store
    name: str
    day: date | None

    @property
    def uri(self) -> str:
        """Its full name."""
        return self.store.uri(self.name)


def words(pattern: str) -> list[str]:
    """The words a pattern has a place for."""
    return [word for word, _ in _PLACEHOLDER.findall(pattern)]


def matches(
    pattern: str, base: Path, *, engine: str | None = None, days: tuple[date, ...] = ()
) -> Iterator[tuple[Found, dict[str, str]]]:
    """Files that match a pattern, each with what its words stand for. Hidden files are left alone.

    Only those of one engine, and of `days`, where these are given; a pattern that names no day has files of any.
    """
    pattern = _whole(pattern, base, engine)
    regex = re.compile(_as_regex(pattern))
    for day in days if days and "day" in words(pattern) else (None,):
        glob = _as_glob(pattern, day)
        root = re.split(r"[*?\[]", glob, maxsplit=1)[0].rpartition("/")[0]
        store = Store.at(root)
        for name in store.names(glob.removeprefix(f"{root}/")):
            told = regex.fullmatch(f"{root}/{name}")
            if told and not any(part.startswith(".") for part in name.split("/")):
                captured = told.groupdict()
                yield Found(store, name, day or _named_day(captured.get("day"), pattern)), captured


def closed(pattern: str, base: Path, *, engine: str | None = None, days: tuple[date, ...] = ()) -> list[str]:
    """Folders on a pattern's way that may not be looked into, so that nothing in them matches; sorted."""
    pattern, refused = _whole(pattern, base, engine), set[str]()
    if "://" not in pattern:
        for day in days if days and "day" in words(pattern) else (None,):
            _look_into("/", _as_glob(pattern, day).split("/")[1:], refused)
    return sorted(refused)


def _look_into(folder: str, parts: Sequence[str], refused: set[str]) -> None:
    part, *rest = parts
    try:
        if set(part) & set("*?["):
            here = list(os.scandir(folder))
            names = [each.name for each in here if _is_named(each, part)]
        else:
            here, names = [], [part]
        for name in names[:1] or [each.name for each in here[:1]]:
            os.lstat(f"{folder}/{name}")  # a folder that may be listed may be closed for all that
    except PermissionError:
        refused.add(folder)
        return
    except OSError:  # not there, or a file
        return
    below = parts if part == "**" else rest
    for name in names if below else ():
        _look_into(f"{folder.rstrip('/')}/{name}", below, refused)


def _is_named(entry: os.DirEntry[str], part: str) -> bool:
    """Whether an entry of a folder is one that the part of a glob stands for: of `**` the folders."""
    is_asked = entry.is_dir(follow_symlinks=False) if part == "**" else re.fullmatch(_glob_regex(part), entry.name) is not None
    return is_asked and not entry.name.startswith(".")


def _whole(pattern: str, base: Path, engine: str | None) -> str:
    """The pattern from its root on, with all that is below a folder, of one engine where it is given."""
    if "://" not in pattern:
        is_folder = pattern.endswith("/")
        pattern = Path(os.path.normpath(base / pattern)).as_posix() + ("/" if is_folder else "")
    if pattern.endswith("/"):
        pattern += "**/*"
    if engine is not None:
        pattern = pattern.replace("{engine}", "".join(f"[{each}]" if each in "*?[" else each for each in engine))
    return pattern


def _as_glob(pattern: str, day: date | None) -> str:
    def filled(match: re.Match[str]) -> str:
        form = match[2] or _DAY_FORMAT
        if match[1] != "day":
            return "*"
        return day.strftime(form) if day else re.sub(r"%\w", "*", form)

    parts = _PLACEHOLDER.sub(filled, pattern).split("/")
    # words beside each other, or beside a star, are one star: two within a name are no glob
    return "/".join(part if part == "**" else re.sub(r"\*{2,}", "*", part) for part in parts)


def _named_day(text: str | None, pattern: str) -> date | None:
    form = next((form or _DAY_FORMAT for word, form in _PLACEHOLDER.findall(pattern) if word == "day"), None)
    try:
        return datetime.strptime(text, form).date() if text and form else None  # noqa: DTZ007 - a date, of the lake's zone
    except ValueError:
        return None


def _as_regex(pattern: str) -> str:
    """The pattern as an expression for full names; a word that comes again stands for the same."""
    parts, seen, position = [], set(), 0
    for match in _PLACEHOLDER.finditer(pattern):
        parts.append(_glob_regex(pattern[position : match.start()]))
        word, position = match[1], match.end()
        body = r"[^/]+?"
        if word == "day":
            body = re.sub(r"%\w", lambda part: _DIGITS.get(part[0], r"\w+"), match[2] or _DAY_FORMAT)
        parts.append(f"(?P<{word}>{body})" if word not in seen else body if word == "day" else f"(?P={word})")
        seen.add(word)
    return "".join([*parts, _glob_regex(pattern[position:])])


def _glob_regex(glob: str) -> str:
    return "".join(
        _GLOB.get(token) or (f"[{re.escape(token[1:-1])}]" if token.startswith("[") and len(token) > 2 else re.escape(token))
        for token in _GLOB_TOKEN.findall(glob)
    )
