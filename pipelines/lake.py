"""The lake: where each table's Parquet lies, and how it gets there whole or not at all.

`<root>/<layer>/<table>/run=<run>/data.parquet`. A table is written under a temporary name and renamed, so a reader sees the
old file or the new one and never half of one. Nothing here knows what is in a table.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True)
class Lake:
    """One run's part of a lake."""

    root: Path
    run: str

    def path(self, table: str) -> Path:
        """Where `layer.table` of this run lies, written or not."""
        layer, name = table.split(".")
        return self.root / layer / name / f"run={quote(self.run, safe='')}" / "data.parquet"

    def has(self, table: str) -> bool:
        """Whether the table has been written."""
        return self.path(table).exists()

    def put(self, table: str, write: Callable[[Path], object]) -> Path:
        """Let `write` make the file under a temporary name, then give it its own. What was there before is replaced."""
        target = self.path(table)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            write(temporary)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        return target
