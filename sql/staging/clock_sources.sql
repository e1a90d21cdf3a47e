-- What each source says of its own time, before any of it is compared: the evidence `pipelines.clock` begins with.
--
-- grain: source
-- column: source          VARCHAR     | Input it was read from.
-- column: first_utc       TIMESTAMPTZ | Earliest absolute time in it; NULL where it has none.
-- column: last_utc        TIMESTAMPTZ | Latest absolute time in it.
-- column: first_local     TIMESTAMP   | Earliest zone-less stamp; its year is the parser's placeholder where the input has none.
-- column: last_local      TIMESTAMP   | Latest zone-less stamp.
-- column: first_dated     TIMESTAMP   | Earliest of them that has a year of its own; NULL where none has.
-- column: last_undated    TIMESTAMP   | Latest of them that has none; NULL where each has one.
-- column: first_counted_s DOUBLE      | Earliest stamp of a clock that counts from a start, in its seconds; NULL where none does.
-- column: last_counted_s  DOUBLE      | Latest one.
-- column: local_ahead_s   DOUBLE      | Median of stamp minus absolute time over the rows that carry both; NULL where none does.
-- column: has_untimed     BOOLEAN     | Whether it has rows with neither (a metrics page saved without its time).
-- column: has_leap_day    BOOLEAN     | Whether a stamp lies on 29 February: then its year is a leap year.
with moments as (
    select source, at_utc, at_local from raw.engine_samples
    union all
    select source, at_utc, at_local from raw.iteration_steps
    union all
    select source, at_utc, at_local from raw.engine_config
    union all
    select source, at_utc, at_local from raw.engine_events
    union all
    select source, at_utc, at_local from raw.request_lines
    union all
    select source, at_utc, null from raw.metric_samples
    union all
    select source, start_at, date_local from raw.bench_runs
    union all
    select source, start_at, null from raw.bench_requests
    union all
    select source, start_at, null from raw.spans
    union all
    select source, end_at, null from raw.spans
    union all
    select source, at_utc, null from raw.kv_events
),

named as (
    select source, at_utc, at_local from moments
    union all
    select source, null, null from raw.sources where format is not null
)

select
    source,
    min(at_utc) as first_utc,
    max(at_utc) as last_utc,
    min(at_local) filter (where not is_counted(at_local)) as first_local,
    max(at_local) filter (where not is_counted(at_local)) as last_local,
    min(at_local) filter (where year(at_local) >= 2010) as first_dated,
    max(at_local) filter (where year(at_local) < 2010 and not is_counted(at_local)) as last_undated,
    min(epoch(at_local)) filter (where is_counted(at_local)) as first_counted_s,
    max(epoch(at_local)) filter (where is_counted(at_local)) as last_counted_s,
    median(epoch(at_local) - epoch(at_utc)) filter (where not is_counted(at_local)) as local_ahead_s,
    bool_or(at_utc is null and at_local is null) as has_untimed,
    coalesce(bool_or(month(at_local) = 2 and day(at_local) = 29), false) as has_leap_day,
from named
group by source
order by source
