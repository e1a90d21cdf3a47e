"""The time axis of an engine is its own: what lies beside it among the inputs changes nothing of it."""

import pytest

HEADER = "engine  sampled_at  origin  scrape_s"


def buckets(sql, *rows):
    sql.given("core.engine_states", "\n".join([HEADER, *rows]))
    return [(row["engine"], str(row["bucket_at"])[:19], row["bucket_s"]) for row in sql.rows("core.buckets").dicts()]


X = [f"x  2026-01-01 12:00:{second}+00  log  10" for second in ("00", "10", "20")]


@pytest.mark.parametrize(
    "beside",
    [
        ["y  2026-01-01 12:00:00+00  metrics  600", "y  2026-01-01 13:00:00+00  metrics  600"],
        ["y  2026-03-01 12:00:00+00  log  10", "y  2026-06-01 12:00:10+00  log  10"],
    ],
)
def test_a_neighbour_with_other_steps_or_weeks_away_widens_no_bucket(sql, beside):
    alone = buckets(sql, *X)
    assert alone == [("x", f"2026-01-01 12:00:{second}", 10) for second in ("00", "10", "20")]
    assert [row for row in buckets(sql, *X, *beside) if row[0] == "x"] == alone


def test_two_logs_of_one_engine_weeks_apart_are_as_fine_as_each_alone(sql):
    later = [row.replace("2026-01-01", "2026-02-01") for row in X]
    assert buckets(sql, *X, *later) == buckets(sql, *X) + buckets(sql, *later)


def test_an_engine_that_was_down_has_no_buckets_until_it_serves_again(sql):
    later = [row.replace("12:00", "18:00") for row in X]
    assert len(buckets(sql, *X, *later)) > 1_000
    sql.given(
        "core.engine_lives",
        "engine  life  life_start  life_end\nx  1  -  2026-01-01 17:59:00+00\nx  2  2026-01-01 17:59:00+00  -",
    )
    assert buckets(sql, *X, *later) == buckets(sql, *X) + buckets(sql, *later)


def test_over_a_hole_between_scrapes_counters_go_on(sql):
    scraped = [row.replace("  log  ", "  metrics  ") for row in X]
    later = [row.replace("2026-01-01", "2026-01-03") for row in scraped]
    (width,) = {row[2] for row in buckets(sql, *scraped, *later)}
    assert width == 120
    assert len(buckets(sql, *scraped, *later)) == 2 * 24 * 30 + 1
