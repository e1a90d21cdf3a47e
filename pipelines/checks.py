"""Checks: what must hold in every table of every run, as queries that count the rows which break it; and of every day.

A check of a table comes from the header of a model (`grain:` gives the key, `check:` a condition on each row) or from the short
lists here, which look across tables. A condition that is NULL holds: not known is not wrong. A check of a day names the engines
that break it, and how; those with a limit take it from `[thresholds]`. Nothing here knows Dagster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import duckdb

from pipelines.models import Model

_WORDS = {">=": "ge", "<=": "le", "<>": "ne", "!=": "ne", "=": "eq", ">": "gt", "<": "lt"}


@dataclass(frozen=True)
class Check:
    """One rule on one table. `failing` is a query whose one number is the count of rows that break it."""

    name: str
    table: str
    meaning: str
    failing: str
    reads: tuple[str, ...]
    is_smell: bool = False  # worth a look, not necessarily wrong


RAW_CHECKS = (
    Check(
        "every_line_is_accounted_for",
        "raw.sources",
        "Used, ignored and not understood lines add up to the lines of the file.",
        "select count(*) from raw.sources where lines <> lines_used + lines_ignored + lines_not_understood",
        ("raw.sources",),
    ),
    Check(
        "lines_are_understood",
        "raw.sources",
        "Not more than one line in a hundred looks like a signal and does not follow its grammar.",
        "select count(*) from raw.sources where lines_not_understood > 0.01 * lines",
        ("raw.sources",),
        is_smell=True,
    ),
    Check(
        "every_file_is_read",
        "raw.sources",
        "Every file that was given was recognised and read to its end.",
        "select count(*) from raw.sources where error is not null",
        ("raw.sources",),
        is_smell=True,
    ),
)


def of_model(model: Model) -> tuple[Check, ...]:
    """The checks a model's header asks for, and those that look across tables from it."""
    key = ", ".join(model.grain)
    unique = Check(
        "key_is_unique",
        model.name,
        f"One row per {key}.",
        f"select count(*) from (select {key} from {model.name} group by all having count(*) > 1)",
        (model.name,),
    )
    documented = [
        Check(name, model.name, meaning, f"select count(*) from {model.name} where not ({condition})", (model.name,))
        for name, (condition, meaning) in zip(_names(each for each, _ in model.checks), model.checks, strict=True)
    ]
    return (unique, *documented, *(check for check in ACROSS if check.table == model.name))


def failing_rows(check: Check, con: duckdb.DuckDBPyConnection) -> int:
    """How many rows break the check; the tables it reads must be on the connection."""
    return con.sql(check.failing).fetchall()[0][0]


def _names(conditions: Iterable[str]) -> list[str]:
    """A condition as a name: `preemptions >= 0` -> `preemptions_ge_0`; numbered where two come out alike."""
    names: list[str] = []
    for condition in conditions:
        words = re.sub("|".join(_WORDS), lambda sign: f" {_WORDS[sign.group()]} ", condition)
        name = re.sub(r"\W+", "_", words).strip("_").lower()[:80]
        names.append(f"{name}_{names.count(name) + 1}" if name in names else name)
    return names


# parts and wholes: what two tables say of the same thing
ACROSS = (
    Check(
        "one_verdict_is_primary",
        "advice.verdicts",
        "Each engine has exactly one primary verdict.",
        """
        select count(*) from marts.engines as engines
        where (select count(*) from advice.verdicts as verdicts where verdicts.engine = engines.engine and is_primary) <> 1
        """,
        ("marts.engines", "advice.verdicts"),
    ),
    Check(
        "buckets_add_up_to_the_tokens_generated",
        "marts.timeline",
        "Tokens generated, over the buckets of an engine, are not fewer than its counter rose by; the log may tell of more time.",
        """
        with whole as (
            select engine, sum(delta) as tokens from core.counter_intervals where signal = 'generation_tokens' group by engine
        ),
        parts as (
            select engine, sum(generation_tokens_per_s * bucket_s) as tokens from marts.timeline group by engine
        )
        select count(*) from whole join parts using (engine) where parts.tokens < 0.99 * whole.tokens - 1
        """,
        ("core.counter_intervals", "marts.timeline"),
    ),
    Check(
        "buckets_add_up_to_the_preemptions",
        "marts.timeline",
        "Preemptions, over the buckets of an engine, are what its counter rose by.",
        """
        with whole as (
            select engine, sum(delta) as preemptions from core.counter_intervals where signal = 'preemptions' group by engine
        ),
        parts as (
            select engine, sum(preemptions) as preemptions from marts.timeline group by engine
        )
        select count(*) from whole join parts using (engine)
        where abs(whole.preemptions - parts.preemptions) > 1 + 0.01 * whole.preemptions
        """,
        ("core.counter_intervals", "marts.timeline"),
    ),
    Check(
        "phases_add_up_to_the_whole",
        "staging.spans",
        "Queue, prefill and decode of a request add up to its end-to-end time, but for what its server needs to take it in.",
        """
        select count(*) from staging.spans
        where e2e_s - queue_s - prefill_s - decode_s not between -0.05 and 1 + 0.05 * e2e_s
        """,
        ("staging.spans",),
        is_smell=True,
    ),
    Check(
        "buckets_of_a_histogram_are_cumulative",
        "core.histogram_intervals",
        "A wider bucket of a histogram never counts less than a narrower one in the same interval.",
        "select count(*) from core.histogram_intervals where delta < -0.5",
        ("core.histogram_intervals",),
        is_smell=True,
    ),
)


@dataclass(frozen=True)
class DayCheck:
    """One rule on the day of several engines. `failing` is a query of (engine, how) over `days.<table>`; $limit is its limit."""

    name: str
    table: str  # of the day: whose page shows it
    meaning: str
    failing: str
    limit: str | None = None  # key of [thresholds]
    untold: str | None = None  # query of the engines whose figure no input tells: these the limit is not held against
    is_blocking: bool = False  # what is made of the day must not be made of this

    def limit_of(self, thresholds: object) -> float | None:
        """The limit that is set; None where it has none, or none is set."""
        return getattr(thresholds, self.limit) if self.limit else None


DAY_CHECKS = (
    DayCheck(
        "every_line_is_accounted_for",
        "sources",
        "Used, ignored and not understood lines add up to the lines of each file.",
        """
        select run, format('{}: {} lines, {} accounted for', source, lines, lines_used + lines_ignored + lines_not_understood)
        from days.sources where lines <> lines_used + lines_ignored + lines_not_understood
        """,
        is_blocking=True,
    ),
    DayCheck(
        "one_verdict_is_primary",
        "verdicts",
        "Each engine has exactly one primary verdict.",
        """
        select engines.run, format('engine {}: {} primary verdicts', engines.engine, count(verdicts.run))
        from days.engines left join days.verdicts
            on verdicts.run = engines.run and verdicts.engine = engines.engine and verdicts.is_primary
        group by engines.run, engines.engine having count(verdicts.run) <> 1
        """,
        is_blocking=True,
    ),
    DayCheck(
        "lines_are_understood",
        "sources",
        "No more than `unparsed_share` of an engine's lines look like a signal and do not follow its grammar.",
        """
        select run, format('{:.1f} % of its lines not understood', 100 * sum(lines_not_understood) / sum(lines))
        from days.sources group by run having sum(lines_not_understood) > $limit * sum(lines)
        """,
        limit="unparsed_share",
    ),
    DayCheck(
        "files_are_whole",
        "data_quality",
        "Every file was read to its end.",
        "select run, detail from days.data_quality where flag = 'read_in_part'",
    ),
    DayCheck(
        "clocks_agree",
        "runs",
        "The clocks that were joined are within `clock_error_s` of each other, and none is assumed beside one that is known.",
        """
        select run, format('{:.1f} s apart', clock_error_s) from days.runs where clock_error_s > $limit
        union all
        select unsure.run, unsure.detail from days.data_quality as unsure
        where flag in ('clock_assumed', 'no_clock') and severity <> 'info' and exists (
            -- another input whose time is known: alone, or among guesses alike, no clock can disagree
            from days.sources as others
            left join days.data_quality as theirs
                on theirs.run = others.run and theirs.source = others.source and theirs.flag in ('clock_assumed', 'no_clock')
            where others.run = unsure.run and others.source <> unsure.source and others.lines_used > 0
                and others.format not in ('request_trace', 'recording_journal') -- of no engine's clock
                and (theirs.flag is null or (theirs.flag = 'clock_assumed' and unsure.flag = 'no_clock'))
        )
        """,
        limit="clock_error_s",
        untold="select run from days.data_quality where flag = 'clock_assumed' and severity <> 'info' group by run",
    ),
    DayCheck(
        "counters_rise",
        "data_quality",
        "No counter fell: no engine restarted.",
        "select run, detail from days.data_quality where flag = 'counter_reset'",
    ),
    DayCheck(
        "recompute_share",
        "waste",
        "No engine spent more than `recompute_share` of its tokens on computing again what preemption took.",
        """
        select run, format('{:.1f} % of all tokens were computed again after preemptions', 100 * share_best)
        from days.waste where kind = 'preemption_recompute' and share_best > $limit
        """,
        limit="recompute_share",
        untold="select run from days.waste where kind = 'preemption_recompute' group by run having count(share_best) = 0",
    ),
    DayCheck(
        "preemptions_per_hour",
        "preemptions",
        "No engine preempted more than `preemptions_per_hour` requests in an hour, on average over the time of its day that was "
        "observed; less than an hour observed counts as one, of which the rest had none.",
        """
        select run, concat(
            if(count_best is null, 'at least ', ''),
            if(round(preemptions) = 1, '1 preemption', spoken_count(preemptions) || ' preemptions'),
            ' in ' || spoken_duration(3600 * hours),
            case when hours > 1 then format(': {} an hour', spoken_count(preemptions / hours)) end
        )
        from (select *, coalesce(count_best, count_low) as preemptions from days.preemptions) inner join (
            select run, (epoch(ended_at) - epoch(started_at)) / 3600 as hours from days.runs
        ) using (run)
        where preemptions / greatest(hours, 1) > $limit
        """,
        limit="preemptions_per_hour",
        untold="select run from days.preemptions group by run having count(count_best) = 0",
    ),
)


def judged(check: DayCheck, con: duckdb.DuckDBPyConnection, limit: float | None) -> tuple[list[tuple[str, str]], list[str]]:
    """What `broken` finds, and of whom the check is `unjudged`."""
    found = broken(check, con, limit)
    return found, unjudged(check, con, limit, found)


def unjudged(check: DayCheck, con: duckdb.DuckDBPyConnection, limit: float | None, found: Iterable[tuple[str, str]]) -> list[str]:
    """Engines of the day that a limit which is set could not be held against; those found to break it all the same are none."""
    if not check.untold or limit is None:
        return []
    untold = {str(engine) for (engine,) in con.sql(check.untold).fetchall()}
    return sorted(untold - {engine for engine, _ in found})


def broken(check: DayCheck, con: duckdb.DuckDBPyConnection, limit: float | None) -> list[tuple[str, str]]:
    """Engines that break a check of the day, and how; none where its limit is not set."""
    if check.limit and limit is None:
        return []
    found = con.sql(check.failing, params={"limit": limit} if check.limit else None).fetchall()
    return sorted((str(engine), str(how)) for engine, how in found)
