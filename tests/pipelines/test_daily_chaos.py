"""The daily job killed at twenty moments, with files that come late and twice, under the eyes of a reader who never stops."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path

import duckdb
import pytest

from pipelines import catalog, cli_daily
from pipelines.config import Config, load
from pipelines.partition import finished
from tests.conftest import PROJECT
from tests.pipelines.engine_days import at, configured, lake_files, log_lines, scrapes, write

DAYS = (date(2026, 11, 26), date(2026, 11, 27))
KILLS = 20
LONGEST_S = 4.0  # a whole run takes this on an idle machine
TABLES = ("verdicts", "timeline", "sources")


def arrivals(root: Path) -> list[tuple[Path, Path]]:
    """The files of two days in the order they come: where each is made, and where it goes. Some come late, some twice."""
    made = [scrapes(root / f"made/{day}.json", at(f"{day} 10:00"), 20) for day in DAYS]
    made += [write(root / f"made/{day}.log", log_lines(at(f"{day} 10:00"), 12)) for day in DAYS]
    late = scrapes(root / "made/late.json", at(f"{DAYS[0]} 18:00"), 12)
    chat = root / "fleet/chat"
    return [
        (made[0], chat / f"{DAYS[0]}/metrics.json"),
        (made[3], chat / "logs/vllm.log"),
        (made[1], chat / f"{DAYS[1]}/metrics.json"),
        (made[0], chat / f"{DAYS[0]}/metrics (copy).json"),
        (late, chat / "logs/late.json"),
        (made[2], chat / "logs/vllm.log.1"),
        (late, chat / f"{DAYS[1]}/late again.json"),
    ]


class Reader(threading.Thread):
    """Reads the lake over and over: by the catalog, and by the files themselves."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.store, self.reads, self.faults, self.is_over = config.store, 0, [], threading.Event()

    def run(self) -> None:
        """Until it is told to stop."""
        while not self.is_over.is_set():
            for table in TABLES:
                if self.store.names(f"days/{table}/*/*/data.parquet"):
                    self._read(f"from read_parquet('{self.store.uri(f'days/{table}/*/*/data.parquet')}', union_by_name = true)")
            if (database := self.store.folder / catalog.DATABASE).exists():
                self._read("from verdicts", database)
            time.sleep(0.05)

    def _read(self, query: str, database: Path | str = ":memory:") -> None:
        try:
            with duckdb.connect(str(database), read_only=database != ":memory:") as con:
                con.sql(query).fetchall()
            self.reads += 1
        except duckdb.Error as error:
            self.faults.append(f"{query}: {error}")


@contextmanager
def reading(config: Config) -> Iterator[Reader]:
    reader = Reader(config)
    reader.start()
    try:
        yield reader
    finally:
        reader.is_over.set()
        reader.join()


def night(config: Config, *, killed_after: float | None = None) -> int:
    """The command as cron runs it; or, to be killed after so many seconds, one that makes every day anew and so is never idle."""
    command = [sys.executable, "-m", "pipelines.cli", "daily", "--config", str(config.path), *(f"--day={day}" for day in DAYS)]
    command += ["--fresh"] if killed_after else []
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    with suppress(subprocess.TimeoutExpired):
        process.wait(killed_after)
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode


@pytest.mark.drill
def test_killed_at_any_moment_the_next_run_completes_what_a_clean_run_makes_and_no_reader_fails(tmp_path):
    chance, coming = random.Random(7), arrivals(tmp_path)
    config = configured(tmp_path / "fleet")
    killed = 0
    with reading(config) as reader:
        for number in range(KILLS):
            if number % 3 == 0 and coming:
                source, target = coming.pop(0)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target.with_name(".coming"))
                target.with_name(".coming").rename(target)
            killed += night(config, killed_after=chance.uniform(0.3, LONGEST_S)) == -signal.SIGKILL
        assert not coming
        assert night(config) == 0
    assert killed >= KILLS / 2
    assert reader.reads > 0
    assert reader.faults == []
    assert all(set(finished(config.store, day)) == {"chat"} for day in DAYS)

    clean = tmp_path / "clean"
    shutil.copytree(tmp_path / "fleet", clean, ignore=shutil.ignore_patterns("lake"))
    again = load(clean / "kvpressure.toml")
    cli_daily.run(again, again.fleet(), DAYS)
    after, wanted = lake_files(config.store), lake_files(again.store)
    assert set(after) == set(wanted)
    assert [name for name in sorted(wanted) if after[name] != wanted[name]] == []
    assert not config.store.names("_tmp/**/*"), "what killed runs left is swept away"
