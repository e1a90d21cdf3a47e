"""The skew of a log's clock: found to some seconds where the load or the requests decide it, and not told anywhere else."""

import random
import time
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.clock.skew import LOAD, by_load, by_requests, skew_of
from tests.pipelines.test_clock import World, placed

START = datetime(2026, 11, 29, 13, 0, tzinfo=UTC)
SCHEMA = {
    "source": pl.String,
    "name": pl.String,
    "utc_at": pl.Datetime("us", "UTC"),
    "local_at": pl.Datetime("us"),
    "value": pl.Float64,
    "is_log": pl.Boolean,
}
NONE_SEEN = pl.DataFrame(schema={"at_local": pl.Datetime("us"), "utc_s": pl.Float64, "seen_s": pl.Float64})


def load(seed, *, seconds=3600, period_s=None):
    """Requests running at each second: a walk that is drawn anew or repeats, between 0 and 40."""
    chance, walk, level = random.Random(seed), [], 12.0
    for _ in range(seconds):
        level = min(40.0, max(0.0, level + chance.gauss(0, 0.8)))
        walk.append(round(level))
    return [walk[second % period_s] for second in range(seconds)] if period_s else walk


def curves(load_of_log, load_of_metrics, *, ahead_s=0, lines=range(600, 2400, 10), scrape_s=15, metrics="page.txt"):
    """What a log of some lines and a page scraped all along say of their loads."""
    rows = []
    for source, walk, seconds, moved in (
        ("server.log", load_of_log, lines, ahead_s),
        (metrics, load_of_metrics, range(3, len(load_of_metrics), scrape_s), 0),
    ):
        for second in seconds:
            running = walk[second]
            said = {"running": running, "waiting": max(0, running - 20), "kv_usage_ratio": min(1.0, running / 25)}
            at = START + timedelta(seconds=second + moved)
            rows += [(source, name, at, None, float(said[name]), source == "server.log") for name in LOAD]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


@pytest.mark.parametrize("ahead_s", [120, 420, 1200, -420])
@pytest.mark.parametrize("scrape_s", [1, 15])
def test_the_lag_at_which_lines_and_scrapes_say_the_same_is_the_skew(ahead_s, scrape_s):
    told = by_load("server.log", None, curves(load(1), load(1), ahead_s=ahead_s, scrape_s=scrape_s))
    assert told is not None
    assert abs(told - ahead_s) <= scrape_s + 2


@pytest.mark.parametrize("ahead_s", [0, 15, -30])
def test_clocks_that_agree_are_not_spoken_of(ahead_s):
    skew = skew_of("server.log", None, NONE_SEEN, curves(load(1), load(1), ahead_s=ahead_s))
    assert skew is None


@pytest.mark.parametrize(
    "both",
    [
        curves([7] * 3600, [7] * 3600, ahead_s=420),
        curves([7, *[8] * 3599], [7, *[8] * 3599], ahead_s=420),
        curves(load(1), load(1), ahead_s=420, lines=range(600, 640, 10)),
        curves(load(1, period_s=300), load(1, period_s=300), ahead_s=120),
        curves(load(1), load(2)),
        curves(load(1), load(1), ahead_s=420, lines=range(0)),
        curves(load(1), load(1)[:600], ahead_s=420),
    ],
    ids=["flat", "hardly moving", "four lines", "every five minutes the same", "another engine", "no line", "other hours"],
)
def test_what_does_not_decide_it_is_silent(both):
    assert by_load("server.log", None, both) is None


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 9), st.sampled_from([1, 15, 60]))
@settings(max_examples=20, deadline=None)
def test_loads_that_have_nothing_to_do_with_each_other_are_no_skew(one, other, minutes, scrape_s):
    lines = range(1200, 1260 + 60 * minutes, 10)
    assert by_load("server.log", None, curves(load(one), load(-1 - other), lines=lines, scrape_s=scrape_s)) is None


def test_the_metrics_of_the_log_are_among_several():
    """One page that agrees as it stands is enough: the other is of another server."""
    both = curves(load(1), load(1))
    other = curves(load(1), load(1), ahead_s=420, metrics="other.txt").filter(~pl.col("is_log"))
    moved = other.with_columns(pl.col("utc_at") + timedelta(seconds=420))
    assert by_load("server.log", None, pl.concat([both, moved])) is None


def test_a_day_takes_a_few_times_what_an_hour_takes():
    def cost(hours: int) -> float:
        seconds = 3600 * hours
        both = curves(load(1, seconds=seconds), load(2, seconds=seconds), lines=range(0, seconds, 10))
        began = time.process_time()
        assert by_load("server.log", None, both) is None
        return time.process_time() - began

    cost(1)  # what is done once
    assert cost(24) < 8 * cost(1)


@pytest.mark.parametrize(
    ("late_s", "told"), [([420.0, 420.4, 419.9, 421.0], True), ([420.0, 380.0, 90.0, 7.0], False), ([420.0], False)]
)
def test_requests_say_it_where_they_say_one_thing(late_s, told):
    at_s = [START.timestamp() + 7 * number for number in range(len(late_s))]
    seen = pl.DataFrame(
        {"at_local": [None] * len(at_s), "utc_s": at_s, "seen_s": [at - late for at, late in zip(at_s, late_s, strict=True)]}
    )
    found = by_requests(seen, None)
    assert (found is not None and abs(found - 420) < 1) if told else found is None


@pytest.mark.parametrize("minutes", [2, 7, 20, -7])
def test_a_skewed_log_is_told_and_moves_no_client(minutes):
    world = World(zone="Etc/GMT-2").client().log().spans(has_index=True)
    for row in world.rows["request_lines"] + world.rows["engine_config"]:
        row["at_local"] += timedelta(minutes=minutes)
    told = world.clocks()
    assert abs(told["server.log"]["ahead_s"] - 60 * minutes) < 1
    assert told["server.log"]["error_s"] == abs(told["server.log"]["ahead_s"])
    assert told["server.log"]["zone"] == "Etc/GMT-2"
    assert told["client.json"]["ahead_s"] is None
    placed(told["client.json"], world, within_s=0.01)
    world = World(zone="Etc/GMT-2").client().log().metrics()
    for row in world.rows["request_lines"] + world.rows["engine_config"]:
        row["at_local"] += timedelta(minutes=minutes)
    told = world.clocks()
    assert abs(told["server.log"]["ahead_s"] - 60 * minutes) < 2
    placed(told["client.json"], world, within_s=2)
