"""Clocks: whatever the true origin, zone and year are, the sources' own times give them back, within the error that is told."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsers import InputError
from parsers.columns import START_OF_CLOCK, TABLES, schema
from pipelines.clock.model import SCHEMA, clocks
from pipelines.duck import connect
from pipelines.models import Run, models

SQL_MODELS = ("staging.clock_sources", "staging.clock_curves", "staging.clock_snapshots")
TRUE_ZONES = ("UTC", "Etc/GMT-2", "Etc/GMT+8", "Asia/Kolkata", "Asia/Kathmandu", "Etc/GMT-14", "Etc/GMT+12", "America/St_Johns")
START = datetime(2026, 11, 29, 13, 11, 29, tzinfo=UTC)


@dataclass
class World:
    """A server and a client that saw the same requests, each through a clock of its own."""

    origin_s: float = 1_795_956_625.862
    zone: str = "UTC"
    start: datetime = START
    count: int = 40
    seed: int = 1
    scrape_s: float = 1.0
    is_alike: bool = False  # all requests of the same size
    rows: dict[str, list[dict]] = field(default_factory=dict)

    def __post_init__(self):
        chance = random.Random(self.seed)
        self.requests = []
        sent = self.start + timedelta(seconds=20)
        for index in range(self.count):
            sent += timedelta(seconds=chance.expovariate(3))
            prompt, output = (100, 50) if self.is_alike else (chance.randrange(20, 800), chance.randrange(20, 800))
            ttft, latency = chance.uniform(0.05, 0.4), chance.uniform(1, 6)
            self.requests.append((index, sent, prompt, output, ttft, latency))

    def add(self, table, **row):
        self.rows.setdefault(table, []).append(row)

    def local(self, moment, *, has_year=False):
        """What a wall clock of the world's zone shows, to the second."""
        wall = moment.astimezone(ZoneInfo(self.zone)).replace(tzinfo=None, microsecond=0)
        if has_year:
            return wall
        year = moment.astimezone(ZoneInfo(self.zone)).year - self.start.astimezone(ZoneInfo(self.zone)).year
        return wall.replace(year=2000 + year)

    def client(self, name="client.json", *, has_date=True):
        end = max(sent + timedelta(seconds=latency) for _, sent, *_, latency in self.requests)
        first = self.requests[0][1]
        date = self.local(end + timedelta(seconds=0.3), has_year=True) if has_date else None
        duration = (end - first).total_seconds()
        self.add("bench_runs", source=name, run_index=0, date_local=date, duration_s=duration, completed=self.count)
        for index, sent, prompt, output, ttft, latency in self.requests:
            mono = sent.timestamp() - self.origin_s
            times = {"start_mono_s": mono, "ttft_s": ttft, "latency_s": latency, "gaps_s": [latency - ttft]}
            sizes = {"input_tokens": prompt, "output_tokens": output}
            self.add("bench_requests", source=name, run_index=0, request_index=index, is_failed=False, **times, **sizes)
        return self

    def spans(self, *, has_index=False):
        for index, sent, prompt, output, ttft, latency in self.requests:
            request_id = f"cmpl-bench-ab12cd34-{index}-0" if has_index else f"cmpl-{random.Random(index).getrandbits(64):016x}"
            sizes = {"input_tokens": prompt, "output_tokens": output, "ttft_s": ttft - 0.004, "e2e_s": latency - 0.004}
            arrived = sent + timedelta(seconds=0.002)
            self.add("spans", source="spans.jsonl", line=index, request_id=request_id, start_at=arrived, end_at=arrived, **sizes)
        return self

    def log(self, *, has_requests=True, has_load=False):
        self.add("engine_config", source="server.log", line=1, at_local=self.local(self.start), key="engine_version")
        for index, sent, *_ in self.requests if has_requests else ():
            request_id = f"cmpl-bench-ab12cd34-{index}-0"
            at = self.local(sent + timedelta(seconds=0.005))
            self.add("request_lines", source="server.log", line=index + 2, at_local=at, request_id=request_id, event="received")
        for second in range(0, 60, 5) if has_load else ():
            at = self.start + timedelta(seconds=second)
            running, waiting = self.running(at), 0
            load = {"running": running, "waiting": waiting}
            self.add("engine_samples", source="server.log", line=100 + second, at_local=self.local(at), **load)
        return self

    def metrics(self, *, before_s=60, after_s=120, is_late=False):
        seconds = -before_s
        while seconds < after_s:
            at = self.start + timedelta(seconds=seconds + 0.275)
            seen = at - timedelta(seconds=self.scrape_s * 0.9) if is_late else at
            ended = [r for r in self.requests if r[1] + timedelta(seconds=r[5]) <= seen]
            begun = [r for r in self.requests if r[1] + timedelta(seconds=r[4]) <= seen]
            for name, value in (
                ("vllm:request_success_total", len(ended)),
                ("vllm:prompt_tokens_total", sum(r[2] for r in begun)),
                ("vllm:num_requests_running", self.running(seen)),
            ):
                self.add("metric_samples", source="prometheus.json", at_utc=at, name=name, labels="", value=float(value))
            seconds += self.scrape_s
        return self

    def running(self, at):
        return sum(sent <= at < sent + timedelta(seconds=latency) for _, sent, *_, latency in self.requests)

    def clocks(self, run=Run("test"), *, shuffled=None):  # noqa: B008 - frozen
        con = database()
        for table in TABLES:
            rows = self.rows.get(table, [])
            if table == "sources":
                rows = [{"source": name, "format": "x"} for name in sorted({r["source"] for t in self.rows.values() for r in t})]
            if shuffled is not None:
                rows = random.Random(shuffled).sample(rows, len(rows))
            filled = [{name: row.get(name) for name in TABLES[table]} for row in rows]
            con.register(f"_{table}", pa.Table.from_pylist(filled, schema=schema(table)))
            con.execute(f"create or replace table raw.{table} as from _{table}")
        for name in SQL_MODELS:
            con.execute(f"create or replace table {name} as {models()[name].query}")
        made = clocks({read: con.sql(f"from {read}").pl() for read in clocks.model.reads}, run)
        assert made.schema == pl.Schema(SCHEMA)
        return {row["source"]: row for row in made.iter_rows(named=True)}


@cache
def database():
    """One database for all worlds, for opening one takes longer than filling it."""
    con = connect()
    con.execute("create schema raw; create schema staging")
    return con


QUICK = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
origins = st.floats(-1e6, 1.79e9)
zones = st.sampled_from(TRUE_ZONES)
starts = st.datetimes(datetime(2021, 1, 1), datetime(2030, 12, 31)).map(lambda moment: moment.replace(tzinfo=UTC))  # noqa: DTZ001
seeds = st.integers(0, 999)


def placed(told, world, *, within_s):
    assert abs(told["mono_epoch_s"] - world.origin_s) <= told["error_s"] <= within_s, told


def reads_right(told, world):
    """Whether the log's stamps come out at the true time under what was told."""
    stamp = world.local(world.start)
    year = told["base_year"] + stamp.year - 2000
    read = pl.Series([stamp.replace(year=year)]).dt.replace_time_zone(told["zone"])
    assert abs(read.dt.epoch("us")[0] / 1e6 - world.start.timestamp()) <= told["error_s"], told


@QUICK
@given(origins, seeds, st.booleans())
def test_spans_place_a_client_to_milliseconds(origin_s, seed, has_index):
    world = World(origin_s=origin_s, seed=seed).client().spans(has_index=has_index)
    placed(world.clocks()["client.json"], world, within_s=0.01)


@QUICK
@given(origins, seeds)
def test_requests_of_one_size_are_told_apart_by_when_they_came(origin_s, seed):
    world = World(origin_s=origin_s, seed=seed, is_alike=True).client().spans()
    placed(world.clocks()["client.json"], world, within_s=1.0)


@QUICK
@given(origins, starts, zones, seeds)
def test_request_lines_to_the_second_place_a_client_to_tenths_and_spans_the_log(origin_s, start, zone, seed):
    world = World(origin_s=origin_s, start=start, zone=zone, seed=seed).client().spans(has_index=True).log()
    told = world.clocks()
    placed(told["client.json"], world, within_s=0.01)
    reads_right(told["server.log"], world)


@QUICK
@given(origins, zones, seeds, st.booleans())
def test_counters_place_a_client_and_the_client_the_log(origin_s, zone, seed, is_late):
    world = World(origin_s=origin_s, zone=zone, seed=seed).client().metrics(is_late=is_late).log()
    told = world.clocks()
    placed(told["client.json"], world, within_s=0.3)
    reads_right(told["server.log"], world)


@QUICK
@given(origins, zones, seeds, st.sampled_from([1.0, 5.0, 15.0]))
def test_counters_alone_are_right_to_a_scrape(origin_s, zone, seed, scrape_s):
    world = World(origin_s=origin_s, zone=zone, seed=seed, scrape_s=scrape_s, count=200).client().metrics()
    placed(world.clocks()["client.json"], world, within_s=scrape_s)


@QUICK
@given(starts, zones)
def test_a_log_is_read_in_the_only_zone_in_which_it_meets_the_metrics(start, zone):
    world = World(start=start, zone=zone).log(has_requests=False).metrics()
    reads_right(world.clocks()["server.log"], world)


@QUICK
@given(zones, seeds)
def test_where_many_zones_meet_them_the_load_decides(zone, seed):
    world = World(zone=zone, seed=seed, scrape_s=5.0).log(has_requests=False, has_load=True)
    world.metrics(before_s=8_000, after_s=8_000)
    reads_right(world.clocks()["server.log"], world)


@QUICK
@given(zones, seeds)
def test_the_load_of_a_time_without_metrics_does_not_speak_against_a_zone(zone, seed):
    """A log of weeks beside the metrics of an hour, or a day's folder that the night before reaches into."""
    world = World(zone=zone, seed=seed, scrape_s=5.0).log(has_requests=False, has_load=True)
    world.metrics(before_s=300, after_s=300)
    busy = [world.start - timedelta(hours=9, seconds=10 * second) for second in range(60)]
    for line, at in enumerate(busy):
        world.add("engine_samples", source="server.log", line=1000 + line, at_local=world.local(at), running=32, waiting=9)
    reads_right(world.clocks()["server.log"], world)


@QUICK
@given(seeds, st.integers(0, 99))
def test_the_order_of_rows_and_files_changes_nothing(seed, shuffled):
    world = World(seed=seed, count=15).client("b.json").client("a.json").spans().log().metrics()
    assert world.clocks() == world.clocks(shuffled=shuffled)


def test_new_year_and_a_leap_day_are_not_a_year_apart():
    for start in (datetime(2026, 12, 31, 23, 59, 30, tzinfo=UTC), datetime(2028, 2, 29, 12, 0, 0, tzinfo=UTC)):
        world = World(start=start, zone="Etc/GMT-1").client().spans(has_index=True).log()
        reads_right(world.clocks()["server.log"], world)


def test_a_result_with_no_evidence_of_its_own_takes_its_hosts_clock():
    world = World().client("one.json").spans(has_index=True)
    world.requests = [(i, sent + timedelta(seconds=300), 7, 7, 0.1, 2.0) for i, sent, *_ in world.requests]
    told = world.client("two.json").clocks()
    assert told["two.json"]["method"] == "same clock as one.json, confirmed by its date"
    placed(told["two.json"], world, within_s=0.01)


def test_another_boot_is_not_the_same_clock():
    world = World().client("one.json").spans(has_index=True)
    world.origin_s += 100_123.4
    world.requests = [(i, sent + timedelta(seconds=300), 7, 7, 0.1, 2.0) for i, sent, *_ in world.requests]
    told = world.client("two.json").clocks()
    assert told["two.json"]["method"].startswith("date at its end")


def test_a_log_alone_is_taken_as_utc_and_says_so():
    told = World().log(has_requests=False).clocks()["server.log"]
    assert (told["zone"], told["error_s"]) == ("UTC", None)
    assert told["method"] == "assumed UTC, year from today's date"
    assert told["base_year"] <= datetime.now(UTC).year


@pytest.mark.parametrize(("zone", "method"), [(None, "assumed UTC"), ("Etc/GMT-2", "zone as given (UTC+2)")])
def test_stamps_that_have_a_year_take_none_from_anywhere(zone, method):
    world = World()
    world.add("engine_samples", source="server.log", line=1, at_local=world.local(world.start, has_year=True), running=1)
    told = world.clocks(Run("test", timezone=zone))["server.log"]
    assert (told["base_year"], told["method"]) == (None, method)


@pytest.mark.parametrize("dated_s", [-3600, 3600])
def test_lines_without_a_year_are_of_the_year_that_other_lines_of_the_log_have(dated_s):
    """Of two writers one stamps its lines with a year: an earlier line or a later one, also behind New Year's Eve."""
    for start in (datetime(2021, 6, 1, 12, 0, tzinfo=UTC), datetime(2021, 12, 31, 23, 59, 30, tzinfo=UTC)):
        world = World(start=start).log()
        at = world.local(world.start + timedelta(seconds=dated_s), has_year=True)
        world.add("engine_samples", source="server.log", line=0, at_local=at, running=1)
        told = world.clocks()["server.log"]
        assert (told["base_year"], told["method"]) == (2021, "assumed UTC, year from its own stamps")


def test_a_log_beside_a_result_takes_its_year_and_the_result_stands_right_beside_it():
    world = World(start=datetime(2024, 5, 5, 10, 0, tzinfo=UTC)).client().log()
    told = world.clocks()
    assert told["server.log"]["base_year"] == 2024
    assert told["client.json"]["error_s"] is None
    assert abs(told["client.json"]["mono_epoch_s"] - world.origin_s) < 0.3


def test_a_zone_that_was_given_is_used():
    world = World(zone="America/St_Johns").log(has_requests=False).metrics()
    told = world.clocks(Run("test", timezone="America/St_Johns"))["server.log"]
    assert (told["zone"], told["base_year"]) == ("America/St_Johns", 2026)
    assert "as given" in told["method"]


def test_a_zone_that_was_given_and_meets_nothing_is_doubted_where_another_would():
    world = World(zone="America/St_Johns").log(has_requests=False).metrics()
    told = world.clocks(Run("test", timezone="Asia/Tokyo"))["server.log"]
    assert (told["zone"], told["error_s"]) == ("Asia/Tokyo", None)
    assert re.fullmatch(r"Asia/Tokyo, as given, in which it meets no other input; in .+ it would", told["method"])


def test_a_zone_that_does_not_exist_is_refused_in_one_line():
    with pytest.raises(InputError, match=r"^timezone: `Mars/Olympus` is not a time zone; use a name such as "):
        World().log().clocks(Run("test", timezone="Mars/Olympus"))


def test_a_page_without_a_time_goes_where_its_counters_fit():
    world = World().metrics()
    asked = [row for row in world.rows["metric_samples"] if row["name"].endswith("_total")]
    page = [row | {"source": "metrics.txt", "at_utc": None} for row in asked if row["at_utc"] == asked[180]["at_utc"]]
    world.rows["metric_samples"] += page
    told = world.clocks()["metrics.txt"]
    assert told["clock"] == "none"
    assert abs((told["placed_at"] - asked[180]["at_utc"]).total_seconds()) <= told["error_s"] <= 5


def test_a_source_with_absolute_times_needs_nothing():
    told = World().metrics().clocks()["prometheus.json"]
    assert (told["clock"], told["error_s"]) == ("epoch", 0.0)


def test_nothing_at_all_gives_an_empty_table():
    assert World().clocks() == {}


# clocks that count from a start


def counted(world, *, start, folder="r", lasts=60, step=1):
    """A recording of the load whose stamps are seconds since `start`, which is that of the sources of the same folder."""
    for second in range(step, lasts, step):
        at = start + timedelta(seconds=second)
        stamp = START_OF_CLOCK + timedelta(seconds=second)
        world.add(
            "engine_samples", source=f"{folder}/load.csv", line=second, at_local=stamp, running=world.running(at), waiting=0
        )
    return world


@given(after_s=st.floats(0, 18), seed=seeds)
@QUICK
def test_the_start_of_a_counting_clock_is_told_by_requests_that_others_saw(after_s, seed):
    """Whatever the settings beside it say: they are of another run."""
    world = World(seed=seed, count=60)
    start = world.start + timedelta(seconds=after_s)
    counted(world.spans(), start=start)
    world.add("engine_config", source="r/meta.json", line=1, at_utc=START - timedelta(days=3), key="max_num_seqs")
    told = world.clocks()["r/load.csv"]
    assert told["clock"] == "monotonic"
    assert abs(told["mono_epoch_s"] - start.timestamp()) <= told["error_s"] == 1.0, told


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"r/meta.json": START}, (START.timestamp(), 1.0, "start of the run in meta.json")),
        ({"other/meta.json": START}, (START.timestamp(), None, "taken to be when the other inputs begin")),
        ({}, (0.0, None, "told as of 1 January 1970")),
    ],
)
def test_without_requests_the_start_is_what_the_settings_beside_it_name_else_assumed(named, told):
    world = counted(World(), start=START + timedelta(days=9))
    for source, at in named.items():
        world.add("engine_config", source=source, line=1, at_utc=at, key="max_num_seqs")
    row = world.clocks()["r/load.csv"]
    assert (row["mono_epoch_s"], row["error_s"]) == told[:2]
    assert told[2] in row["method"]
    assert row["zone"] is row["base_year"] is None


def test_the_time_asked_for_begins_with_a_counting_clock_that_nothing_else_tells():
    row = counted(World(), start=START).clocks(Run("test", since="2026-11-29T00:00:00+00:00"))["r/load.csv"]
    assert datetime.fromtimestamp(row["mono_epoch_s"], UTC) == datetime(2026, 11, 29, tzinfo=UTC)
    assert row["error_s"] is None


def test_a_counting_clock_says_nothing_of_a_log_s_zone():
    world = counted(World(zone="Etc/GMT-2").log(has_requests=False), start=START)
    assert "year from today's date" in world.clocks()["server.log"]["method"]
