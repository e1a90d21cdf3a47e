"""An analysis made up for the tests of what people look at: a calm phase, a storm of preemptions, calm again.

`analysis()` has every contract table filled; its arguments empty them, drop columns, add engines, or put hostile names in.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

HOSTILE = """</script><script>document.title='owned'</script><img src=x onerror="document.title='owned'">'"`{{7*7}}\u2028&amp;"""

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
    values = {"run": run, "engines": list(engines), "model": model, "file": file, "hostile": hostile}
    with duckdb.connect(str(database)) as con:
        con.execute("set timezone = 'UTC'")
        for statement in filter(str.strip, SQL.split(";\n")):
            con.execute(statement, {name: value for name, value in values.items() if f"${name}" in statement})
        if afterwards:
            con.execute(afterwards)
    return database


def everything_hostile(folder: Path) -> Path:
    """Markup, quotes, template syntax and a line separator in every name that an input can choose."""
    return analysis(
        folder, run=f"run {HOSTILE}", engines=("0", f"host{HOSTILE}/0"), model=HOSTILE, file=f"{HOSTILE}.json", hostile=HOSTILE
    )
