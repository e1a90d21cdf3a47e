"""An analysis made up for the tests of what people look at: a calm phase, a storm of preemptions, calm again.

`analysis()` has every contract table filled; its arguments empty them, drop columns, add engines, or put hostile names in.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

HOSTILE = """</script><script>document.title='owned'</script><img src=x onerror="document.title='owned'">'"`{{7*7}}\u2028&amp;"""

HUNDRED = tuple(f"gpu{number:03}:8000/0" for number in range(100))  # engines

A_DAY = """
    create table day as
        select * exclude bucket_at, bucket_at + to_seconds(300 * part) as bucket_at from timeline, range(0, 288) as parts(part);
    drop table timeline;
    alter table day rename to timeline;
"""  # the five minutes of the timeline again and again

SQL = Path(__file__).with_suffix(".sql").read_text()


def analysis(
    folder: Path,
    *,
    run: str = "storm",
    engines: tuple[str, ...] = ("0",),
    model: str = "tiny-llama",
    file: str = "bench.json",
    hostile: str = "",
    afterwards: str = "",
) -> Path:
    """Make `analysis.duckdb` in the folder and return its path. `afterwards` is SQL that takes things away again."""
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "analysis.duckdb"
    database.write_bytes(_made(run=run, engines=engines, model=model, file=file, hostile=hostile))
    if afterwards:
        with duckdb.connect(str(database)) as con:
            con.execute("set timezone = 'UTC'")
            con.execute(afterwards)
    return database


@cache
def _made(**values: str | tuple[str, ...]) -> bytes:
    """The database before anything is taken away: most tests want the same one, and making it takes as long as they do."""
    with TemporaryDirectory() as folder:
        database = Path(folder, "analysis.duckdb")
        with duckdb.connect(str(database)) as con:
            con.execute("set timezone = 'UTC'")
            for statement in filter(str.strip, SQL.split(";\n")):
                con.execute(statement, {name: value for name, value in values.items() if f"${name}" in statement})
        return database.read_bytes()


def everything_hostile(folder: Path) -> Path:
    """Markup, quotes, template syntax and a line separator in every name that an input can choose."""
    return analysis(
        folder, run=f"run {HOSTILE}", engines=("0", f"host{HOSTILE}/0"), model=HOSTILE, file=f"{HOSTILE}.json", hostile=HOSTILE
    )
