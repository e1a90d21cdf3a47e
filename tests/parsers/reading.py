"""What the parser tests share: bytes in, account and rows out, and rows as a small table to read beside the input."""

import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import settings

from parsers import Account, Format, InputError, Sink, Source, parse

SHARED = Path(__file__).resolve().parents[3] / "shared"  # real recordings, where they are kept beside the checkout

settings.register_profile(
    "parsers", deadline=None, max_examples=50
)  # how long one takes says more of the machine than of the parser
settings.load_profile("parsers")


@dataclass(frozen=True)
class Reading:
    account: Account
    rows: dict[str, list[dict]]

    def table(self, table: str, columns: str) -> list[list[str]]:
        """The named columns of a table's rows, each cell as text; null is `-`."""
        return [[_cell(row[column]) for column in columns.split()] for row in self.rows.get(table, [])]


def read(form: Format, content: bytes | str | Path, name: str = "input") -> Reading:
    """Parse content (or a file) with one format, whatever it detects."""
    return _read(form, content, name)[1]


def read_any(content: bytes | str | Path, name: str = "input") -> tuple[Format, Reading]:
    """Parse content (or a file) with the format that is detected."""
    return _read(None, content, name)


def _read(form: Format | None, content: bytes | str | Path, name: str) -> tuple[Format, Reading]:
    with tempfile.TemporaryDirectory() as folder:
        path = content if isinstance(content, Path) else Path(folder) / name
        if not isinstance(content, Path):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with Sink(Path(folder) / "tables") as sink:
            chosen, account = parse(Source(path, name), sink, form)
        assert account.balanced, account
        rows = {table: pq.read_table(Path(folder) / "tables" / f"{table}.parquet").to_pylist() for table in sink.rows}
        return chosen, Reading(account, rows)


def refusal(form: Format, content: bytes | str) -> str:
    """Why the content is refused; empty where it is read."""
    try:
        read(form, content)
    except InputError as error:
        return str(error)
    return ""


def cells(text: str) -> list[list[str]]:
    """A table as written in a test: one row per line, cells apart by white space."""
    return [line.split() for line in text.strip().splitlines()]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S") + (f".{value.microsecond:06}".rstrip("0") if value.microsecond else "")
    return f"{value:g}" if isinstance(value, float) else str(value) or "''"
