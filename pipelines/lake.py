"""The lake: where each table's Parquet lies, and how it gets there whole or not at all.

    <root>/<layer>/<table>/run=<run>/data.parquet                          a run given by hand, every layer
    <root>/days/<table>/day=2026-11-27/engine=<engine>/data.parquet        what is published of one engine's day
    <root>/fleet/<table>/day=2026-11-27/data.parquet                       what is made of all engines of a day

The keys of a partition are in its path, percent-encoded, and nowhere else decided. In `days/` every table begins with a column
`day` (DATE); its column `run` is the configured name of the engine, its column `engine` the rank within that server. So read it
with `hive_partitioning = false`: the key `engine` of the path would hide the column. A table is written under a temporary name
and renamed (see `pipelines.storage`), so a reader sees the old file or the new one and never half of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from pipelines.storage import Store


@dataclass(frozen=True)
class Lake:
    """One partition of a lake: its keys are its run, its day, or its day and engine."""

    store: Store
    keys: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, root: Store | str | Path, **keys: str) -> Self:
        """The partition with these keys, in the order of the path."""
        return cls(root if isinstance(root, Store) else Store.at(root), tuple(keys.items()))

    @property
    def place(self) -> str:
        """The partition's part of every path: `day=2026-11-27/engine=chat-0`."""
        return "/".join(f"{key}={quote(value, safe='')}" for key, value in self.keys)

    def name(self, table: str) -> str:
        """The file of `layer.table` below the root, written or not."""
        layer, bare = table.split(".")
        return f"{layer}/{bare}/{self.place}/data.parquet"

    def uri(self, table: str) -> str:
        """What DuckDB reads `layer.table` by."""
        return self.store.uri(self.name(table))

    def path(self, table: str) -> Path:
        """The same as a path, where the lake is a folder."""
        return self.store.folder / self.name(table)

    def has(self, table: str) -> bool:
        """Whether the table has been written."""
        return self.store.exists(self.name(table))

    def put(self, table: str, write: Callable[[Path], object]) -> None:
        """Let `write` make the file under a temporary name, then give it its own. What was there before is replaced."""
        self.store.put(self.name(table), write)
