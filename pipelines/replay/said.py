"""What a run says of an engine, read as numbers, and reasons for no replay that more than one engine has."""

from __future__ import annotations

import re
from collections.abc import Mapping

RESTORED = "blocks come back by another way than recomputation"
SPECULATIVE = "speculative decoding: a step's tokens depend on what is accepted, and that is not modelled"


def version_of(engine: Mapping[str, object]) -> tuple[int, ...] | None:
    """The engine's version; None where no input says it."""
    version = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", str(engine["engine_version"] or ""))
    return tuple(int(part or 0) for part in version.groups()) if version else None


def real(text: str | None) -> float | None:
    """A number that an engine printed; None where it is none."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
