"""The checks of a day that have a limit: which engines break it, and in which words."""

import pytest

from pipelines.checks import DAY_CHECKS, broken, unjudged
from pipelines.duck import connect

CHECKS = {check.name: check for check in DAY_CHECKS}


@pytest.mark.parametrize(
    ("best", "least", "ended_at", "limit", "told"),
    [
        (152, 152, "12:01:18", 151, ["152 preemptions in 78 s"]),
        (152, 152, "12:01:18", 152, []),  # 7,015 an hour, had it gone on for one
        (200, 200, "14:00:00", 99, ["200 preemptions in 2 h 0 min: 100 an hour"]),
        (200, 200, "14:00:00", 100, []),
        (1, 1, "12:00:00", 0, ["1 preemption in 0.0 s"]),
        ("null", 152, "12:01:18", 151, ["at least 152 preemptions in 78 s"]),
        ("null", 152, "12:01:18", 152, []),
        ("null", "null", "14:00:00", 0, []),
    ],
)
def test_less_than_an_hour_observed_is_held_against_the_hour_by_what_was_seen_in_it(best, least, ended_at, limit, told):
    with connect() as con:
        con.execute(f"""
            create schema days;
            create table days.preemptions as select 'chat' as run, {best}::double as count_best, {least}::double as count_low;
            create table days.runs as select 'chat' as run, timestamptz '2026-01-01 12:00:00+00' as started_at,
                timestamptz '2026-01-01 {ended_at}+00' as ended_at;
        """)
        assert broken(CHECKS["preemptions_per_hour"], con, limit) == [("chat", each) for each in told]


@pytest.mark.parametrize(
    ("name", "table", "figures"),
    [
        (
            "preemptions_per_hour",
            "preemptions (run, count_best, count_low)",
            "('told', 0, 0), ('both', 3, 3), ('both', null, null), ('log', null, 2)",
        ),
        (
            "recompute_share",
            "waste (run, kind, share_best)",
            "('told', 'preemption_recompute', 0), ('log', 'preemption_recompute', null), ('other', 'prefix_refill', null)",
        ),
    ],
)
def test_a_limit_that_is_set_names_who_it_cannot_be_held_against(name, table, figures):
    with connect() as con:
        con.execute(f"create schema days; create table days.{table.split()[0]} as select * from (values {figures}) as {table}")
        con.execute("create table days.runs (run varchar, started_at timestamptz, ended_at timestamptz)")
        assert unjudged(CHECKS[name], con, 5, broken(CHECKS[name], con, 5)) == ["log"]
        assert unjudged(CHECKS[name], con, None, []) == []
        assert unjudged(CHECKS["files_are_whole"], con, None, []) == []


@pytest.mark.parametrize(
    ("inputs", "told", "is_unjudged"),
    [
        ({"server.log": "clock_assumed"}, [], True),
        ({"server.log": "clock_assumed", "journal": "recording_journal", "notes": "unused"}, [], True),
        ({"server.log": "clock_assumed", "server-2.log": "clock_assumed"}, [], True),
        ({"server.log": "clock_assumed", "metrics.json": None}, ["server.log"], False),
        ({"page.txt": "no_clock"}, [], False),
        ({"page.txt": "no_clock", "server.log": "clock_assumed"}, ["page.txt"], False),
        ({"page.txt": "no_clock", "metrics.json": None}, ["page.txt"], False),
        ({"server.log": None}, [], False),
        ({"server.log": None, "server-2.log": "borrowed"}, [], False),
    ],
)
def test_a_clock_disagrees_with_another_or_cannot_be_judged(inputs, told, is_unjudged):
    with connect() as con:
        con.execute("""
            create schema days;
            create table days.runs as select 'chat' as run, null::double as clock_error_s;
            create table days.sources (run varchar, source varchar, format varchar, lines_used bigint);
            create table days.data_quality (run varchar, source varchar, flag varchar, severity varchar, detail varchar);
            insert into days.sources values ('other', 'metrics.json', 'prometheus_json', 9);
        """)
        for source, kind in inputs.items():
            form = kind if kind == "recording_journal" else "any"
            con.execute("insert into days.sources values ('chat', ?, ?, ?)", [source, form, 0 if kind == "unused" else 9])
            if kind in ("clock_assumed", "no_clock"):
                con.execute("insert into days.data_quality values ('chat', ?, ?, 'warning', ?)", [source, kind, source])
            if kind == "borrowed":
                con.execute("insert into days.data_quality values ('chat', ?, 'clock_assumed', 'info', ?)", [source, source])
        found = broken(CHECKS["clocks_agree"], con, 60)
        assert found == [("chat", each) for each in told]
        assert unjudged(CHECKS["clocks_agree"], con, 60, found) == ["chat"] * is_unjudged
