-- Times and intervals. Seconds are doubles; timestamps are TIMESTAMPTZ.

-- Seconds from one time to another.
create or replace macro seconds_between(earlier, later) as epoch(later) - epoch(earlier);

-- A timestamp some (fractional, possibly negative) seconds later; NULL where that is beyond all calendars.
create or replace macro plus_seconds(moment, seconds) as
    make_timestamptz(try_cast(epoch_us(moment) + round(seconds * 1e6) as bigint));

-- Whether a stamp counts from a start, and is of no wall clock: the parser's, before any log of an engine was written.
create or replace macro is_counted(at_local) as year(at_local) < 1990;

-- The absolute time of a wall-clock stamp: its own `at_utc` where the line had one, else the stamp read in `zone`, its year
-- replaced where the stamp had none (years before 2010 are the parser's placeholder; a stamp behind a New Year's Eve has 2001). A clock
-- that counts from a start stands in 1970, and began at the epoch second `start_s`.
create or replace macro absolute_time(at_utc, at_local, zone, base_year, start_s) as coalesce(
    at_utc,
    case
        when is_counted(at_local) then make_timestamptz(try_cast((start_s + epoch(at_local)) * 1e6 as bigint))
        when at_local is null or zone is null then null
        when year(at_local) < 2010 then timezone(
            zone,
            make_timestamp(
                (base_year + year(at_local) - 2000)::bigint, month(at_local), day(at_local),
                hour(at_local), minute(at_local), second(at_local) + (microsecond(at_local) % 1000000) / 1e6
            )
        )
        else timezone(zone, at_local)
    end
);

-- Length of the overlap of two intervals in seconds, 0 where they do not meet; NULL where an end is not known (least and greatest
-- would pass over it).
create or replace macro overlap_s(start_a, end_a, start_b, end_b) as
    case
        when start_a is null or end_a is null or start_b is null or end_b is null then null
        else greatest(0.0, least(epoch(end_a), epoch(end_b)) - greatest(epoch(start_a), epoch(start_b)))
    end;

-- Whether a moment lies before the end of the window the caller asked for (--until); true where none was asked for.
create or replace macro before_the_end(moment) as
    getvariable('until') is null or moment < getvariable('until')::timestamptz;

-- Whether a moment lies in the window the caller asked for (--since, --until); true where no window was asked for.
create or replace macro within_window(moment) as
    (getvariable('since') is null or moment >= getvariable('since')::timestamptz) and before_the_end(moment);

-- The same with a quarter of an hour before it: a counter's first rise within the window is told by the scrape before it.
create or replace macro within_reach(moment) as
    (getvariable('since') is null or epoch(moment) >= epoch(getvariable('since')::timestamptz) - 900) and before_the_end(moment);

-- The hour a moment lies in, since 1970: what is many is joined by it before it is compared moment by moment.
create or replace macro hour_of(moment) as floor(epoch(moment) / 3600)::bigint;

-- Whether a moment lies in a stretch of time; an end that is NULL is open.
create or replace macro is_within(moment, stretch_start, stretch_end) as
    (stretch_start is null or moment >= stretch_start) and (stretch_end is null or moment < stretch_end);
