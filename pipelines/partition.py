"""One engine's day in the lake: its tables, and the manifest that says what they were made of.

    days/<table>/day=2026-11-27/engine=chat-0/data.parquet
    days/_done/day=2026-11-27/engine=chat-0.json               written first without tables, and last with them
    days/_lacking/day=2026-11-27/engine=chat-0.json            what of its files is missing or cannot be read, where anything is

A day whose manifest has no tables is one that is being made, or was when its process was killed: its files are whole, but some
may be of the analysis before. The manifest has no time of day in it: the same inputs and the same code give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow.parquet as pq

from pipelines.lake import Lake
from pipelines.storage import Store

SCHEMA_VERSION = 1  # of the tables in days/ and fleet/ and of the manifest: raised when a column is renamed or removed
INPUT, SETTINGS = (
    "input",
    "settings",
)  # what a content is to a day: part of it, or an earlier log that states the engine's settings


@dataclass(frozen=True)
class Used:
    """A content that a day was made of."""

    content: str  # its hash
    name: str
    bytes: int
    role: str
    last: str | None  # its last time, absolute


@dataclass(frozen=True)
class Made:
    """A table of a day: the hash and size of its file, and its rows."""

    content: str
    bytes: int
    rows: int


@dataclass(frozen=True)
class Manifest:
    """What a day of an engine is."""

    day: str
    engine: str
    code: str
    parameters: Mapping[str, object]
    inputs: tuple[Used, ...]
    found_in: str | None = None  # the group in whose paths its name was found; None where the configuration has the name
    tables: Mapping[str, Made] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def as_json(self) -> bytes:
        """As it is written."""
        return (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode()


def lake_of(store: Store, engine: str, day: date) -> Lake:
    """The partition's part of the lake; its tables are `days.<table>`."""
    return Lake.of(store, day=day.isoformat(), engine=engine)


def manifest_name(engine: str, day: date) -> str:
    """Where the manifest lies."""
    return f"days/_done/day={day.isoformat()}/engine={quote(engine, safe='')}.json"


def read_manifest(store: Store, engine: str, day: date) -> Manifest | None:
    """The manifest of a day, which has no tables while it is made; None where there is none, or one of another schema."""
    told = json.loads(store.read(manifest_name(engine, day)) or b"{}")
    if told.get("schema_version") != SCHEMA_VERSION:
        return None
    told["inputs"] = tuple(Used(**each) for each in told["inputs"])
    told["tables"] = {table: Made(**each) for table, each in told["tables"].items()}
    return Manifest(**told)


def seen(store: Store, day: date) -> list[str]:
    """The engines of which a day is there, sorted."""
    names = store.names(f"days/_done/day={day.isoformat()}/engine=*.json")
    return sorted(map(_engine_of, names))


def manifests(store: Store, day: date) -> dict[str, Manifest]:
    """The manifests of a day by engine, sorted."""
    told = {engine: read_manifest(store, engine, day) for engine in seen(store, day)}
    return {engine: manifest for engine, manifest in told.items() if manifest}


def finished(store: Store, day: date) -> dict[str, Manifest]:
    """The same for what is finished of the day."""
    return {engine: manifest for engine, manifest in manifests(store, day).items() if manifest.tables}


def keep_lacks(store: Store, day: date, lacks: Mapping[str, str]) -> None:
    """Keep in a sentence what was lacking of these engines that day; an empty one where nothing is."""
    for engine, told in kept_lacks(store, day).items():
        if not lacks.get(engine, told):
            store.delete(_lack_name(engine, day))
    for engine, told in lacks.items():
        if told:
            store.put_bytes(_lack_name(engine, day), json.dumps(told).encode())


def kept_lacks(store: Store, day: date) -> dict[str, str]:
    """Engines of which something was lacking when their day was last looked at, and what, sorted."""
    names = store.names(f"days/_lacking/day={day.isoformat()}/engine=*.json")
    return {_engine_of(name): json.loads(store.read(name) or b'""') for name in names}


def _engine_of(name: str) -> str:
    return unquote(Path(name).stem.removeprefix("engine="))


def _lack_name(engine: str, day: date) -> str:
    return f"days/_lacking/day={day.isoformat()}/engine={quote(engine, safe='')}.json"


def days(store: Store) -> list[date]:
    """The days of which anything is there, sorted."""
    found = {name.split("/")[2].removeprefix("day=") for name in store.names("days/_done/day=*/engine=*.json")}
    return sorted(map(date.fromisoformat, found))


def publish(store: Store, manifest: Manifest, made: Mapping[str, Path]) -> Manifest:
    """Move the tables made (table -> file) into the lake, then write the manifest, completed with what they are."""
    day = date.fromisoformat(manifest.day)
    lake, name = lake_of(store, manifest.engine, day), manifest_name(manifest.engine, day)
    done = replace(manifest, tables={table: _described(made[table]) for table in sorted(made)})
    if store.read(name) == done.as_json():
        return done
    store.put_bytes(name, manifest.as_json())
    for table, path in made.items():
        lake.put(f"days.{table}", path.replace)
    store.put_bytes(name, done.as_json())
    return done


def withdraw(store: Store, engine: str, day: date) -> None:
    """Take an engine's day out of the lake, and what was made of the fleet's where no engine's is left."""
    manifest, name = read_manifest(store, engine, day), manifest_name(engine, day)
    if manifest:
        store.put_bytes(name, replace(manifest, tables={}).as_json())  # not finished, and looked at again, if this is the end
    for table in store.names(f"days/*/day={day.isoformat()}/engine={quote(engine, safe='')}/*"):
        store.delete(table)
    store.delete(name)
    if not seen(store, day):
        for made in (*store.names(f"fleet/*/day={day.isoformat()}/*"), f"fleet/_done/day={day.isoformat()}.json"):
            store.delete(made)


def _described(path: Path) -> Made:
    with path.open("rb") as file:
        content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    return Made(content, path.stat().st_size, pq.read_metadata(path).num_rows)
