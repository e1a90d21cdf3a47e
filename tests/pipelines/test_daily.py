"""The daily job's promises: what crosses midnight is counted once, and only what is new changes anything."""

from __future__ import annotations

import errno
import gzip
import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from pipelines import catalog, cli, cli_daily, daily, day_inputs, fleet_day, fleet_report, patterns, retention
from pipelines.checks import DAY_CHECKS
from pipelines.config import Config, load
from pipelines.contents import Contents
from pipelines.daily import EMPTY, MADE, UNCHANGED
from pipelines.day_inputs import Window
from pipelines.lake import Lake
from pipelines.models import from_sql
from pipelines.partition import days, finished
from tests.pipelines.engine_days import STEP, at, configured, lake_files, log_lines, scrapes, write

FIRST, SECOND = date(2026, 11, 26), date(2026, 11, 27)
BEGIN, SCRAPES = at("2026-11-26 23:50"), 81  # twenty minutes, midnight in the middle, one scrape exactly then
PREEMPTIONS = 3 * (SCRAPES - 1)


@dataclass(frozen=True)
class Job:
    """A configuration and what a test does with it."""

    config: Config

    def run(self, day: date, *, fresh: bool = False) -> str:
        """What became of the day of the engine `chat`."""
        return daily.analyze_day(self.config, self.config.engine("chat"), day, fresh=fresh).status

    def rows(self, day: date, table: str) -> list[dict]:
        """Rows of a published table."""
        return pq.read_table(Lake.of(self.config.store, day=str(day), engine="chat").path(f"days.{table}")).to_pylist()

    def files(self, day: date | None = None) -> dict[str, bytes]:
        """The lake's files, of one day where one is given; that something is lacking is noted beside them."""
        of_day = f"day={day}" if day else ""
        kept = lake_files(self.config.store).items()
        return {name: content for name, content in kept if of_day in name and not name.startswith("days/_lacking")}


def two_days(root: Path) -> Job:
    job = Job(configured(root))
    scrapes(root / "chat/logs/metrics.json", BEGIN, SCRAPES)
    write(root / "chat/logs/vllm.log", log_lines(BEGIN, 120))
    assert [job.run(FIRST), job.run(SECOND)] == [MADE, MADE]
    return job


@pytest.fixture
def made(shared) -> Job:
    """Two days out of files that hold both. Copy it before changing anything."""
    return shared.once("two-days", two_days)


@pytest.fixture
def unreduced(monkeypatch) -> None:
    """Nothing is made of the fleet."""
    monkeypatch.setattr(fleet_day, "reduce_from", lambda *_, **__: [])


@pytest.fixture
def job(made, tmp_path) -> Job:
    """The same, to be changed."""
    root = tmp_path / "copy"
    shutil.copytree(made.config.path.parent, root)
    return Job(configured(root))


# midnight


def preemptions(job: Job, day: date) -> tuple[float, float]:
    """Those counted of a day, and those its timeline shows."""
    [counted] = job.rows(day, "preemptions")
    return counted["count_low"], sum(row["preemptions"] for row in job.rows(day, "timeline") if row["preemptions"])


def test_two_days_cut_at_midnight_add_up_to_the_whole(made):
    first, second = preemptions(made, FIRST), preemptions(made, SECOND)
    assert first[0] + second[0] == PREEMPTIONS
    assert first[0] == 3 * 39, "the interval that ends at midnight is of the day it ends in"
    assert first[1] + second[1] == pytest.approx(PREEMPTIONS)


def test_nothing_of_a_day_lies_outside_of_it(made):
    for day in (FIRST, SECOND):
        begin = at(f"{day} 00:00")
        moments = [row["bucket_at"] for row in made.rows(day, "timeline")]
        assert moments
        assert all(begin - timedelta(minutes=1) <= moment < begin + timedelta(days=1) for moment in moments)
        assert {row["day"] for row in made.rows(day, "timeline")} == {day}
        assert {row["run"] for row in made.rows(day, "sources")} == {"chat"}


def test_files_cut_and_rotated_at_midnight_tell_the_same(made, tmp_path):
    job = Job(configured(tmp_path))
    scrapes(tmp_path / f"chat/{FIRST}/m.json", BEGIN, 40)
    scrapes(tmp_path / f"chat/{SECOND}/m.json", at("2026-11-27 00:00"), SCRAPES - 40, since=BEGIN)
    lines = log_lines(BEGIN, 120)
    write(tmp_path / "chat/logs/vllm.log.1", lines[:70])  # rotated ten minutes after midnight
    write(tmp_path / "chat/logs/vllm.log", lines[70:])
    assert [job.run(FIRST), job.run(SECOND)] == [MADE, MADE]
    for day in (FIRST, SECOND):
        for table in ("preemptions", "timeline", "queue_time", "waste", "verdicts", "engines"):
            assert job.rows(day, table) == made.rows(day, table), (day, table)


def kv_events(path: Path, *batches: tuple[str, list[dict]]) -> None:
    lines = [
        json.dumps({"topic": "kv-events", "seq": 100 + number, "batch": [at(time).timestamp(), events, 0]}) + "\n"
        for number, (time, events) in enumerate(batches)
    ]
    write(path, lines)


def test_what_was_cached_shortly_before_midnight_is_known_after_it_and_counted_on_its_own_day(tmp_path):
    job = Job(configured(tmp_path))
    shared = {"medium": "GPU", "block_size": 16, "parent_block_hash": None, "token_ids": []}

    def stored(end: int) -> list[dict]:
        """Three blocks that every prompt begins with, and one of its own."""
        return [shared | {"type": "BlockStored", "block_hashes": [1, 2, 3, end]}]

    def removed(*blocks: int) -> list[dict]:
        return [{"type": "BlockRemoved", "block_hashes": list(blocks), "medium": "GPU"}]

    kv_events(
        tmp_path / "chat/logs/kv_events.jsonl",
        ("2026-11-26 23:50", stored(4)),
        ("2026-11-26 23:52", removed(1, 2, 3)),
        ("2026-11-26 23:54", stored(5)),
        ("2026-11-26 23:58", removed(1, 2, 3)),
        ("2026-11-27 00:03", stored(6)),
        ("2026-11-27 00:05", removed(9)),
    )
    assert [job.run(FIRST), job.run(SECOND)] == [MADE, MADE]
    for day, evicted in ((FIRST, 6), (SECOND, 1)):
        buckets = job.rows(day, "evictions")
        assert sum(row["refilled_tokens"] for row in buckets) == 3 * 16, "once on each day"
        assert sum(row["evicted_blocks"] for row in buckets) == evicted
    [warming] = [row for row in job.rows(SECOND, "data_quality") if row["flag"] == "kv_events_warming"]
    assert warming["count"] == 1
    assert "cached before, the last 5 min 0 s into the window" in warming["detail"]


def test_parts_of_a_rotated_log_are_one_source_with_its_lines_counted_through(tmp_path):
    job = Job(configured(tmp_path))
    lines = log_lines(at("2026-11-27 10:00"), 30)
    write(tmp_path / "chat/logs/vllm.log.2", lines[:10])
    (tmp_path / "chat/logs/vllm.log.1.gz").write_bytes(gzip.compress("".join(lines[10:20]).encode()))
    write(tmp_path / "chat/logs/vllm.log", lines[20:])
    engine, contents = job.config.engine("chat"), Contents(job.config.store, "chat")
    window = Window.of(job.config, engine, SECOND)
    found = day_inputs.pieces(day_inputs.choose(job.config, engine, SECOND, contents), contents, window)
    assert [(piece.source, piece.lines_before) for piece in found] == [("vllm.log", 0), ("vllm.log", 10), ("vllm.log", 20)]
    lake = Lake.of(tmp_path / "run", run="chat")
    day_inputs.lay_out(found, window, contents, store=job.config.store, lake=lake)
    assert pq.read_table(lake.path("raw.engine_samples"))["line"].to_pylist() == list(range(1, 31))


def test_settings_said_on_an_earlier_day_still_hold(tmp_path):
    job = Job(configured(tmp_path))
    start = "(APIServer pid=1) INFO 11-20 08:00:00 [utils.py:253] non-default args: {'model': 'tiny', 'max_num_seqs': 16}\n"
    write(tmp_path / "chat/2026-11-20/vllm.log", [start, *log_lines(at("2026-11-20 08:01"), 3)])
    write(tmp_path / f"chat/{SECOND}/vllm.log", log_lines(at("2026-11-27 10:00"), 3))
    engine, contents = job.config.engine("chat"), Contents(job.config.store, "chat")
    window = Window.of(job.config, engine, SECOND)
    found = day_inputs.pieces(day_inputs.choose(job.config, engine, SECOND, contents), contents, window)
    lake = Lake.of(tmp_path / "run", run="chat")
    day_inputs.lay_out(found, window, contents, store=job.config.store, lake=lake)
    settings = {row["key"]: row["value_text"] for row in pq.read_table(lake.path("raw.engine_config")).to_pylist()}
    assert settings["max_num_seqs"] == "16"
    assert pq.read_metadata(lake.path("raw.engine_samples")).num_rows == 3, "of the earlier log only its settings"


# what changes what


def test_nothing_new_changes_nothing_and_the_same_again_is_the_same_bytes(job):
    before = job.files()
    assert [job.run(FIRST), job.run(SECOND)] == [UNCHANGED, UNCHANGED]
    assert job.files() == before
    assert job.run(SECOND, fresh=True) == MADE
    assert job.files() == before


def test_a_file_renamed_compressed_or_doubled_changes_no_byte(job):
    before, folder = job.files(), job.config.path.parent / "chat/logs"
    (folder / "vllm.log").rename(folder / "vllm.log.1")
    (folder / "again.json").write_bytes((folder / "metrics.json").read_bytes())
    (folder / "metrics.json.gz").write_bytes(gzip.compress((folder / "metrics.json").read_bytes()))
    (folder / "metrics.json").unlink()
    assert [job.run(FIRST), job.run(SECOND)] == [UNCHANGED, UNCHANGED]
    assert job.files() == before


def test_a_late_file_changes_the_day_it_covers_and_no_other(job):
    before, folder = job.files(), job.config.path.parent / "chat/logs"
    scrapes(folder / "late.json", at("2026-11-27 06:00"), 21)
    assert [job.run(FIRST), job.run(SECOND)] == [UNCHANGED, MADE]
    after = job.files()
    changed = {name for name in before if before[name] != after[name]}
    assert changed
    assert all(f"day={SECOND}" in name for name in changed)
    assert preemptions(job, SECOND)[0] > PREEMPTIONS / 2


@pytest.mark.usefixtures("unmodelled")
def test_a_log_that_grows_changes_no_day_that_is_over(job):
    with (job.config.path.parent / "chat/logs/vllm.log").open("a") as log:
        log.writelines(log_lines(at("2026-11-27 08:00"), 30))
    before = job.files(FIRST)
    assert job.run(FIRST) == UNCHANGED
    assert job.files(FIRST) == before
    assert job.run(SECOND) == MADE
    samples = {row["source"]: row["lines"] for row in job.rows(SECOND, "sources")}
    assert samples["vllm.log"] == 150


@pytest.mark.usefixtures("unmodelled")
def test_a_file_that_is_gone_takes_nothing_away_unless_the_day_is_made_fresh(job):
    (job.config.path.parent / "chat/logs/metrics.json").unlink()
    assert job.run(SECOND) == UNCHANGED
    scrapes(job.config.path.parent / "chat/logs/late.json", at("2026-11-27 06:00"), 21)
    assert job.run(SECOND) == MADE
    sources = {row["source"] for row in job.rows(SECOND, "sources")}
    assert sources == {"metrics.json", "late.json", "vllm.log"}
    assert job.run(SECOND, fresh=True) == MADE
    assert {row["source"] for row in job.rows(SECOND, "sources")} == {"late.json", "vllm.log"}


def test_fresh_takes_a_day_out_of_which_nothing_is_there(job):
    fleet_day.reduce_from(job.config, FIRST)
    before = job.files(FIRST)
    shutil.rmtree(job.config.path.parent / "chat/logs")
    report = cli_daily.run(job.config, job.config.fleet(), [SECOND], fresh=True)
    assert [line for line in report.lines() if "taken out" in line] == [
        f"{SECOND}  chat  taken out: --fresh, and nothing of it is there",
        "0 made, 0 unchanged, 0 without input, 1 taken out",
    ]
    [alert] = report.alerts
    assert "every_engine_is_there: chat: no file matches chat/logs/*" in alert
    assert days(job.config.store) == [FIRST]
    assert job.files(SECOND) == {}
    assert job.files(FIRST) == before


Told = tuple[int, list[str], str]


@pytest.fixture
def told_of(capsys, request) -> Callable[..., Told]:
    """Runs the command for the second day, but for the fleet: its exit status, what it alerts of files, the fault it says."""
    request.getfixturevalue("unreduced")

    def run(job: Job, *more: str) -> Told:
        status = cli.main(["daily", "--config", str(job.config.path), "--day", str(SECOND), *more])
        told, begin = capsys.readouterr(), f"alert: {SECOND}  even  {daily.MISSING}: "
        faults = [line.removeprefix("kvpressure: ") for line in told.err.splitlines() if not line.endswith(" s")]
        return status, [line.removeprefix(begin) for line in told.out.splitlines() if line.startswith(begin)], "".join(faults)

    return run


GARBAGE = bytes(range(256)) * 20


@pytest.mark.parametrize("content", [GARBAGE, b"", b"nothing that an engine wrote\n"])
@pytest.mark.parametrize("place", ["chat/logs/vllm.log", f"chat/{SECOND}/vllm.log"])
def test_a_day_whose_files_cannot_be_read_is_a_fault_and_an_alert(told_of, tmp_path, place, content):
    job = Job(configured(tmp_path))
    write(tmp_path / place, []).write_bytes(content)
    status, [alert], fault = told_of(job)
    assert status == 2
    assert alert.startswith("chat: its one file cannot be read: vllm.log: ")
    assert fault == f"chat on {SECOND}: {alert.removeprefix('chat: ')}"


def unopened(monkeypatch, *names: str) -> None:
    """Let these files be ones that nobody may open; root may open all."""

    def refused(path: Path, *given, **named):
        if path.name in names:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *given, **named)

    opened = Path.open
    monkeypatch.setattr(Path, "open", refused)


@pytest.mark.usefixtures("unmodelled")
def test_a_file_that_nobody_may_open_is_told_until_it_may_be(told_of, monkeypatch, tmp_path):
    job = Job(configured(tmp_path))
    write(tmp_path / "chat/logs/vllm.log", log_lines(at("2026-11-27 10:00"), 30))
    with monkeypatch.context() as rights:
        unopened(rights, "vllm.log")
        why = "its one file cannot be read: vllm.log: cannot be opened (Permission denied); check its permissions"
        assert told_of(job) == (2, [f"chat: {why}"], f"chat on {SECOND}: {why}")
    assert told_of(job) == (0, [], ""), "nothing but its rights has changed"
    scrapes(tmp_path / "chat/logs/metrics.json", at("2026-11-27 10:00"), 21)
    (tmp_path / "chat/logs/vllm.log").rename(tmp_path / "chat/logs/other.log")
    unopened(monkeypatch, "other.log")
    status, [alert], fault = told_of(job)
    assert (status, fault) == (0, "")
    assert "beside what is read, there is what cannot be: other.log: cannot be opened (Permission denied)" in alert


@pytest.mark.usefixtures("unmodelled")
def test_a_folder_that_may_not_be_looked_into_is_told_as_that(told_of, monkeypatch, tmp_path):
    job = Job(configured(tmp_path))
    path = write(tmp_path / "chat/logs/vllm.log", log_lines(at("2026-11-27 10:00"), 30))
    path.rename(aside := tmp_path / "vllm.log")
    why = f"{path.parent} cannot be looked into (Permission denied); check its permissions"
    with monkeypatch.context() as rights:
        rights.setattr(patterns, "closed", lambda pattern, *_, **__: [str(path.parent)] if "logs" in pattern else [])
        assert told_of(job) == (2, [f"chat: {why}"], f"chat on {SECOND}: {why}")
        unnamed = configured(tmp_path / "unnamed", (), extra='[[engines]]\npaths = ["logs/{engine}/*"]')
        assert [lack for _, lack in daily.missing(unnamed, SECOND, [], unnamed.groups)] == [why]
    aside.rename(path)
    assert told_of(job) == (0, [], "")


@pytest.mark.usefixtures("unmodelled")
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_log_that_is_garbage_by_now_is_told_and_its_day_kept_until_it_is_whole_again(told_of, tmp_path, is_alone):
    job, log = Job(configured(tmp_path)), tmp_path / "chat/logs/vllm.log"
    write(log, log_lines(at("2026-11-27 10:00"), 30))
    if not is_alone:
        scrapes(tmp_path / "chat/logs/metrics.json", at("2026-11-27 10:00"), 21)
    assert told_of(job) == (0, [], "")
    before, whole = job.files(SECOND), log.read_bytes()
    log.write_bytes(GARBAGE)
    for more in ((), ("--fail-on", "alert")):
        status, [alert], fault = told_of(job, *more)
        assert alert.startswith("chat: what was read of it before is kept, but it cannot be read any more: vllm.log: binary")
        assert (status, bool(fault)) == ((2, True) if is_alone else (1 if more else 0, False))
        assert job.files(SECOND) == before
    again = cli_daily.run(job.config, job.config.fleet(), [SECOND], again=[SECOND])
    assert len(again.alerts) == 1, "its night is over, but it was read then"
    if is_alone:
        assert told_of(job, "--fresh")[0] == 2
        assert job.files(SECOND) == before
    for content in (whole, b""):
        log.write_bytes(content)
        assert told_of(job) == (0, [], ""), "empty, as after rotation, it is as gone"
        assert job.files(SECOND) == before


def test_a_day_without_files_is_none(job):
    assert job.run(date(2026, 11, 28)) == EMPTY


@pytest.mark.usefixtures("unmodelled")
def test_a_day_of_another_code_is_made_again(job, monkeypatch):
    monkeypatch.setattr(daily, "code_version", lambda: "another")
    assert job.run(FIRST) == MADE
    assert finished(job.config.store, FIRST)["chat"].code == "another"


# the fleet, the catalog, retention


@pytest.fixture
def fleet_table(tmp_path, monkeypatch) -> str:
    """A table of the fleet: the preemptions of the day, and of the days before."""
    path = write(
        tmp_path / "fleet" / "preempted.sql",
        [
            "-- Preemptions of the fleet.\n--\n-- grain: day\n-- column: day DATE | The day.\n",
            "-- column: preemptions BIGINT | On it.\n-- column: before BIGINT | On the days before.\n",
            "select getvariable('day') as day, sum(count_best)::bigint as preemptions,\n",
            "    (select sum(preemptions) from history.preempted)::bigint as before\nfrom days.preemptions\n",
        ],
    )
    model = from_sql(path)
    monkeypatch.setattr(fleet_day, "fleet_models", lambda: {model.name: model})
    monkeypatch.setattr(catalog, "fleet_models", lambda: {model.name: model})
    return model.name


def test_the_fleet_is_reduced_where_a_day_or_its_past_has_changed(job, fleet_table):
    def told(day: date) -> dict:
        [row] = pq.read_table(Lake.of(job.config.store, day=str(day)).path(fleet_table)).to_pylist()
        return row

    assert fleet_day.reduce_from(job.config, FIRST) == [FIRST, SECOND]
    assert (told(FIRST)["before"], told(SECOND)["before"]) == (None, told(FIRST)["preemptions"])
    assert fleet_day.reduce_from(job.config, FIRST) == []
    scrapes(job.config.path.parent / "chat/logs/late.json", at("2026-11-26 06:00"), 21)
    assert job.run(FIRST) == MADE
    assert fleet_day.reduce_from(job.config, SECOND) == [FIRST, SECOND]
    assert told(SECOND)["before"] == told(FIRST)["preemptions"] > 3 * 39


@pytest.mark.usefixtures("fleet_table")
def test_the_catalog_reads_every_table_and_is_left_alone_where_nothing_is_new(job):
    fleet_day.reduce_from(job.config, FIRST)
    catalog.publish(job.config.store)
    database = job.config.store.folder / catalog.DATABASE
    with duckdb.connect(str(database), read_only=True) as con:
        assert con.sql("select count(distinct day) from verdicts").fetchall() == [(2,)]
        assert con.sql("select count(*) from fleet.preempted").fetchall() == [(2,)]
        views = {name for (name,) in con.sql("select view_name from duckdb_views() where not internal").fetchall()}
    assert views == {*daily.tables(), "preempted"}
    before = database.stat().st_mtime_ns
    catalog.publish(job.config.store)
    assert database.stat().st_mtime_ns == before


@pytest.mark.usefixtures("fleet_table", "unmodelled")
def test_days_older_than_asked_are_dropped_with_what_only_they_were_made_of(job):
    path = job.config.path
    path.write_text(path.read_text().replace('url = "lake"', 'url = "lake"\nretention_days = 1'))
    scrapes(path.parent / f"chat/{FIRST}/only.json", at("2026-11-26 06:00"), 21)
    job.run(FIRST)
    fleet_day.reduce_from(job.config, FIRST)
    kept = Job(load(path))
    assert retention.drop_old(kept.config, SECOND + timedelta(days=1)) == [FIRST]
    assert days(kept.config.store) == [SECOND]
    assert not kept.files(FIRST)
    contents = {name.split("/")[1] for name in kept.files() if name.startswith("raw/")}
    assert contents == {each.content for each in finished(kept.config.store, SECOND)["chat"].inputs}


# the command


def test_the_command_tells_each_day_made_its_alerts_and_what_it_left_alone(job):
    text = job.config.path.read_text() + "[thresholds]\npreemptions_per_hour = 100\n"
    job.config.path.write_text(text)
    config = load(job.config.path)
    scrapes(config.path.parent / "chat/logs/late.json", at("2026-11-27 06:00"), 21)
    lines = list(cli_daily.run(config, config.fleet(), [FIRST, SECOND]).lines())
    assert lines[0].startswith("2026-11-27  chat  ")
    assert any(line.startswith("alert: 2026-11-26  chat  preemptions_per_hour: ") for line in lines)
    assert lines[-1] == "1 made, 1 unchanged, 0 without input"


def test_a_threshold_that_no_input_lets_it_judge_is_said(tmp_path):
    config = configured(tmp_path, ("chat",), extra="[thresholds]\npreemptions_per_hour = 100\n")
    write(tmp_path / f"chat/{SECOND}/vllm.log", log_lines(at("2026-11-27 10:00"), 20))
    lines = list(cli_daily.run(config, config.fleet(), [SECOND]).lines())
    assert f"not judged: {SECOND}  preemptions_per_hour: no input tells it of chat" in lines
    assert not any(line.startswith("alert") for line in lines)
    name = fleet_report.name_of(SECOND)
    assert "<code>preemptions_per_hour</code>: not judged of chat." in (config.store.read(name) or b"").decode()
    config.path.write_text(config.path.read_text().replace("preemptions_per_hour = 100", ""))
    later = load(config.path)
    assert fleet_day.reduce_from(later, SECOND, then=fleet_report.publish) == [SECOND]
    assert "preemptions_per_hour" not in (config.store.read(name) or b"").decode()


@pytest.mark.usefixtures("unmodelled")
def test_an_engine_without_input_is_an_alert_of_its_group_that_says_what_was_looked_for(capsys, tmp_path):
    config = configured(
        tmp_path, ("chat", "silent", "elsewhere"), extra='[[engines]]\npaths = ["gone/{engine}/*.log"]\ngroup = "fleet"'
    )
    scrapes(tmp_path / f"chat/{SECOND}/m.json", at("2026-11-27 10:00"), 21)
    write(tmp_path / "elsewhere/logs/vllm.log", log_lines(at("2026-11-20 10:00"), 5))
    call = ["daily", "--config", str(config.path), "--day", str(SECOND)]
    assert cli.main([*call, "--fail-on", "alert"]) == 1
    told = [line for line in capsys.readouterr().out.splitlines() if "every_engine_is_there" in line]
    begin = f"alert: {SECOND}"
    elsewhere = "what matches elsewhere/logs/*, elsewhere/{day}/* tells nothing of this day; "
    silent = "no file matches silent/logs/*, silent/{day}/*; check the paths in the configuration, and that the engine's data "
    unnamed = "no file matches gone/{engine}/*.log, which is to name the engines; check the paths in"
    written = "check that it is still written, and the `timezone` of its stamps"
    assert told == [
        f"{begin}  even  every_engine_is_there: elsewhere: {elsewhere}{written}",
        f"{begin}  odd  every_engine_is_there: silent: {silent}still arrives",
        f"{begin}  fleet  every_engine_is_there: {unnamed} {config.path}",
    ]
    assert cli.main(call) == 0
    assert cli.main([*call, "--fail-on", "alert", "--engine", "chat"]) == 0, "what was not asked for is not missed"


def test_the_fleets_page_names_engines_without_input_until_it_comes(tmp_path):
    config = configured(tmp_path, ("chat", "silent", "broken"))
    scrapes(tmp_path / f"chat/{SECOND}/m.json", at("2026-11-27 10:00"), 21)
    write(tmp_path / f"broken/{SECOND}/vllm.log", []).write_bytes(GARBAGE)

    def said() -> str:
        cli_daily.run(config, config.fleet(), [SECOND])
        return (config.store.read(fleet_report.name_of(SECOND)) or b"").decode()

    page = said()
    assert "of 2 more nothing was seen" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "<strong>silent</strong>: no file matches silent/logs/*" in page
    assert "<strong>broken</strong>: its one file cannot be read: vllm.log: " in page
    scrapes(tmp_path / f"silent/{SECOND}/m.json", at("2026-11-27 10:00"), 21)
    page = said()
    assert "of 1 more nothing was seen" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "<strong>silent</strong>: no file" not in page
    retention.drop_old(replace(config, lake=replace(config.lake, retention_days=1)), SECOND + timedelta(days=9))
    assert config.store.names("**/day=*/**/*") == []


def fleet(root: Path, retired: str = "[]") -> Config:
    """A configuration whose engines are those that files name, but for one."""
    path = root / "kvpressure.toml"
    path.write_text(
        '[lake]\nurl = "lake"\n[[engines]]\nname = "named"\npaths = ["named.log"]\ntimezone = "UTC"\ngroup = "fleet"\n'
        f'[[engines]]\npaths = ["logs/{{engine}}.log"]\ntimezone = "UTC"\ngroup = "fleet"\nretired = {retired}\n'
    )
    return load(path)


def missed(config: Config, day: date) -> list[str]:
    alerts = cli_daily.run(config, config.fleet(), [day]).alerts
    return [alert for alert in alerts if daily.MISSING in alert]


@pytest.mark.usefixtures("unmodelled", "unreduced")
def test_an_engine_that_only_its_files_named_is_missed_for_a_week_or_until_it_is_retired(tmp_path):
    for name in ("named", "logs/chat-0", "logs/chat-1"):
        write(tmp_path / f"{name}.log", [*log_lines(at("2026-11-20 10:00"), 5), *log_lines(at("2026-11-27 10:00"), 5)])
    earlier = SECOND - timedelta(days=7)
    assert missed(fleet(tmp_path), earlier) == []
    (tmp_path / "logs/chat-1.log").unlink()
    (tmp_path / "named.log").unlink()
    assert missed(fleet(tmp_path), earlier) == [], "the lake has that day"
    named = "named: no file matches named.log; check the paths in the configuration, and that the engine's data still arrives"
    gone = (
        f"chat-1: no file of logs/{{engine}}.log names it any more, and the lake has it until {earlier}; "
        f"check that its data still arrives, or add its name to `retired` in {tmp_path}/kvpressure.toml"
    )
    alert = f"{SECOND}  fleet  every_engine_is_there: "
    assert missed(fleet(tmp_path), SECOND) == [alert + named, alert + gone]
    for retired in ('["chat-1"]', '["chat-*"]'):
        assert missed(fleet(tmp_path, retired), SECOND) == [alert + named]
    later = SECOND + timedelta(days=1)
    assert not any("chat-1" in each for each in missed(fleet(tmp_path), later)), "nobody waits for its files any longer"
    assert any("chat-0: what matches logs/{engine}.log" in each for each in missed(fleet(tmp_path), later))
    assert len(missed(fleet(tmp_path, '["*"]'), later)) == 1, "of engines that come and go, only the one that is named is missed"


def test_a_log_cut_inside_its_gzip_makes_its_day_and_the_whole_copy_takes_its_place(tmp_path):
    job, lines = Job(configured(tmp_path)), log_lines(at("2026-11-27 10:00"), 600)
    packed = gzip.compress("".join(lines).encode())
    path = write(tmp_path / "chat/logs/vllm.log", [])
    path.write_bytes(packed[: 9 * len(packed) // 10])
    assert job.run(SECOND) == MADE
    [source] = job.rows(SECOND, "sources")
    assert 0 < source["lines_used"] < 600
    assert [row["flag"] for row in job.rows(SECOND, "data_quality") if row["severity"] == "error"] == ["read_in_part"]
    path.write_bytes(packed)
    assert job.run(SECOND) == MADE
    [source] = job.rows(SECOND, "sources")
    assert (source["lines_used"], source["error"]) == (600, None), "each line once"


def test_on_a_day_looked_at_again_nothing_is_missed_anew(tmp_path):
    config = configured(tmp_path)
    report = cli_daily.run(config, config.fleet(), [FIRST, SECOND], again=[FIRST])
    assert [alert[:10] for alert in report.alerts] == [str(SECOND)]
    assert report.empty == 2


@pytest.mark.usefixtures("unmodelled", "unreduced")
@pytest.mark.parametrize(("how", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended from outside")])
def test_interrupted_it_says_that_finished_days_are_kept(capsys, monkeypatch, tmp_path, how, word):
    config, analyze_all = configured(tmp_path), daily.analyze_all
    write(tmp_path / "chat/logs/vllm.log", log_lines(BEGIN, 120))

    def interrupted(config, engines, day, **more):
        if day == SECOND:
            signal.raise_signal(how)
        return analyze_all(config, engines, day, **more)

    call = ["daily", "--config", str(config.path), "--day", str(FIRST), "--day", str(SECOND)]
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patched:
        patched.setattr(daily, "analyze_all", interrupted)
        try:
            status = cli.main(call)
        except SystemExit as left:
            status = int(left.code or 0)
        finally:
            signal.signal(signal.SIGTERM, before)
    said = capsys.readouterr().err.splitlines()[-1]
    assert (status, said) == (
        2,
        f"kvpressure: {word}; the days that were finished are in the lake, the next call makes the others",
    )
    assert finished(config.store, FIRST).keys() == {"chat"}
    assert cli.main(call) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 made, 1 unchanged, 0 without input"


@pytest.mark.usefixtures("unmodelled")
def test_a_day_that_has_begun_nowhere_is_refused(capsys, tmp_path):
    config, last = configured(tmp_path), (datetime.now(UTC) + timedelta(hours=14)).date()
    write(tmp_path / "chat/logs/vllm.log", log_lines(at("2026-11-27 10:00"), 5))
    call = ["daily", "--config", str(config.path), "--day"]
    assert cli.main([*call, str(last + timedelta(days=2))]) == 2
    told = f"kvpressure: --day {last + timedelta(days=2)}: that day has begun nowhere yet; give one up to {last}\n"
    assert capsys.readouterr().err == told
    assert not config.store.exists("days")
    assert cli.main([*call, str(last)]) == 0


def test_days_are_yesterday_and_some_before_in_the_zone_of_the_lake(made):
    assert cli_daily.days_of(made.config, [], 2, at("2026-11-28 00:30")) == [SECOND - timedelta(days=each) for each in (2, 1, 0)]
    assert cli_daily.days_of(made.config, [FIRST], 2, at("2026-11-28 00:30")) == [FIRST]


def test_a_step_between_scrapes_is_shorter_than_the_reach_before_midnight():
    assert STEP < day_inputs.REACH


def test_every_check_of_a_day_is_of_a_table_that_a_day_has():
    assert {check.table for check in DAY_CHECKS} <= set(daily.tables())
