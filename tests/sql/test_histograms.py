"""Histogram buckets: what fell into each between two scrapes, and what a restart, a late series and a copy make of it."""

from dataclasses import replace
from math import inf

BUCKET = "vllm:time_to_first_token_seconds_bucket"


def told(sql, *columns):
    """The rows in order of time, whatever order they came in: the table is too large to be sorted."""
    rows = sorted(
        sql.rows("core.histogram_intervals").dicts(), key=lambda row: (row["interval_end"], row["labels"] or "", row["le"])
    )
    return [tuple(f"{row[name]:%H:%M:%S}" if name.startswith("interval") else row[name] for name in columns) for row in rows]


def scraped(sql, *scrapes):
    """Cumulative counts as `source engine labels time`, then a count for each of the bounds 0.1, 1 and infinity."""
    rows = [
        f"{source}  {engine}  {labels}  {at}  {BUCKET}  {bound}  {count}"
        for source, engine, labels, at, *counts in (scrape.split() for scrape in scrapes)
        for bound, count in zip(("0.1", "1", "inf"), counts, strict=True)
    ]
    sql.given("raw.metric_samples", "\n".join(["source  engine  labels  at_utc  name  le  value", *rows]))


def test_each_bucket_has_what_fell_into_it_and_a_fall_counts_from_nothing(sql):
    scraped(
        sql,
        "m 0 - 12:00:00 1 2 2",
        "m 0 - 12:00:15 3 6 7",
        "m 0 - 12:00:30 1 1 2",
        "m 0 - 12:00:45 1 1 2",
        "m 0 - 12:01:00 1 4 5",
    )
    name = "vllm:time_to_first_token_seconds"
    assert told(sql, "engine", "signal", "name", "above", "le", "interval_start", "interval_end", "delta") == [
        ("0", "ttft_s", name, 0, 0.1, "12:00:00", "12:00:15", 2),
        ("0", "ttft_s", name, 0.1, 1, "12:00:00", "12:00:15", 2),
        ("0", "ttft_s", name, 1, inf, "12:00:00", "12:00:15", 1),
        ("0", "ttft_s", name, 0, 0.1, "12:00:15", "12:00:30", 1),
        ("0", "ttft_s", name, 1, inf, "12:00:15", "12:00:30", 1),
        ("0", "ttft_s", name, 0.1, 1, "12:00:45", "12:01:00", 3),
    ]


def test_a_series_that_appears_later_had_counted_nothing_at_the_engine_s_scrape_before(sql):
    """Engine 1 is first scraped when the series of the other one appears: of it nothing can be told."""
    scraped(sql, "m 0 x=1 12:00:00 1 1 1", "m 0 x=1 12:00:15 1 1 2", "m 0 x=2 12:00:15 2 2 3", "m 1 x=1 12:00:15 5 5 5")
    assert told(sql, "engine", "labels", "le", "interval_start", "interval_end", "delta") == [
        ("0", "x=1", inf, "12:00:00", "12:00:15", 1),
        ("0", "x=2", 0.1, "12:00:00", "12:00:15", 2),
        ("0", "x=2", inf, "12:00:00", "12:00:15", 1),
    ]


def test_the_same_scrape_in_two_inputs_counts_once_and_what_is_no_count_not_at_all(sql):
    scraped(
        sql,
        "a 0 - 12:00:00 1 1 1",
        "b 0 - 12:00:00 1 1 1",
        "a 0 - 12:00:15 4 4 4",
        "b 0 - 12:00:15 4 4 4",
        "b 0 - 12:00:20 -1 -1 -1",
        "b 0 - 12:00:30 4 6 6",
    )
    assert told(sql, "above", "le", "interval_start", "interval_end", "delta") == [
        (0, 0.1, "12:00:00", "12:00:15", 3),
        (0.1, 1, "12:00:15", "12:00:30", 2),
    ]


def test_only_what_ends_within_the_window_counts_from_the_scrape_before_it(sql):
    sql.run = replace(sql.run, since="2026-01-01T12:00:20Z", until="2026-01-01T12:00:45Z")
    scraped(sql, "m 0 - 11:45:19 0 0 0", "m 0 - 12:00:15 2 2 2", "m 0 - 12:00:30 3 3 3", "m 0 - 12:00:45 9 9 9")
    assert told(sql, "le", "interval_start", "interval_end", "delta") == [(0.1, "12:00:15", "12:00:30", 1)]


def test_buckets_that_contradict_each_other_add_up_to_what_the_widest_counted(sql):
    scraped(sql, "m 0 - 12:00:00 1 2 3", "m 0 - 12:00:15 6 5 9")
    assert told(sql, "le", "delta") == [(0.1, 5), (1, -2), (inf, 3)]
