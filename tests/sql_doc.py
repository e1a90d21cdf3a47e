"""The worked queries of docs/sql.md: found in it, and with `python -m tests.sql_doc` their rows written into it anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from pipelines.sqlshell import open_read_only, render, run
from tests import sample_lake

DOCUMENT = Path(__file__).parent.parent / "docs" / "sql.md"
_EXAMPLE = re.compile(
    r"## (?P<title>[^\n]+)\n(?:(?!\n## ).)*?```sql\n(?P<query>.*?)```\n(?:\n(?P<rows>(?:\|[^\n]*\n)+))?", re.DOTALL
)


@dataclass(frozen=True)
class Example:
    """A worked query: the question, the SQL, and the rows below it as Markdown."""

    title: str
    query: str
    rows: str

    def answered(self, con: duckdb.DuckDBPyConnection) -> str:
        """What it gives, as Markdown."""
        return render(run(con, self.query), "markdown")


def examples(text: str) -> Iterator[Example]:
    """Every query of the document."""
    for found in _EXAMPLE.finditer(text):
        yield Example(found["title"], found["query"], found["rows"] or "")


def refreshed(text: str, con: duckdb.DuckDBPyConnection) -> str:
    """The document with the rows that the queries give now."""
    for example in examples(text):
        block = f"```sql\n{example.query}```\n"
        text = text.replace(block + (f"\n{example.rows}" if example.rows else ""), f"{block}\n{example.answered(con)}")
    return text


def main() -> None:
    """Write the rows anew."""
    with TemporaryDirectory() as folder, open_read_only(sample_lake.make(Path(folder))) as con:
        DOCUMENT.write_text(refreshed(DOCUMENT.read_text(), con))


if __name__ == "__main__":
    main()
