"""The code location that `dagster` loads."""

from __future__ import annotations

from pipelines.build import build_defs

defs = build_defs()
