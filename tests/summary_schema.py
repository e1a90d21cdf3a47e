"""`make schema`: write the JSON Schema of summary.json from the tables of an analyzed sample."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import duckdb

from pipelines import publish
from pipelines.analysis import analyze
from pipelines.models import Run
from tests.conftest import SAMPLES


def main() -> None:
    with tempfile.TemporaryDirectory() as out:
        analysis = analyze([SAMPLES[0]], Path(out), Run("schema"))
        with duckdb.connect(str(analysis.database), read_only=True) as con:
            publish.SUMMARY_SCHEMA.write_text(json.dumps(publish.summary_schema(con), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
