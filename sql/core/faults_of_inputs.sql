-- What to know of the inputs themselves before trusting the answer: what was not read, whose clock or name was guessed, what a recorder missed.
--
-- grain: source, flag
-- needs: raw.engine_samples or raw.recordings or raw.sources or staging.clocks or staging.input_servers or staging.repeated_lines
-- column: source   VARCHAR | Input, or engine, it is about.
-- column: flag     VARCHAR | Short name of the condition.
-- column: severity VARCHAR | info, warning or error.
-- column: count    BIGINT  | How many lines, samples, requests or seconds it concerns.
-- column: detail   VARCHAR | One sentence with the numbers.
with unread as (
    select
        source,
        case
            when copy_of is not null then 'copy'
            when is_other then 'not_recognised'
            when format is null then 'not_read'
            else 'read_in_part'
        end as flag,
        if(is_other, 'info', 'error') as severity,
        1 as count,
        error as detail,
    from raw.sources
    where error is not null
),

misread as (
    select
        source,
        'lines_not_understood' as flag,
        'warning' as severity,
        lines_not_understood as count,
        format(
            '{} of {} lines look like a signal but do not follow its grammar; the first is line {}{}.',
            lines_not_understood, lines, first_not_understood, if(first_not_understood = lines, ', the last: it may have been cut there', '')
        ) as detail,
    from raw.sources
    where lines_not_understood > 0
),

clocks as (
    select
        source,
        case
            when clock = 'none' and placed_at is null then 'no_clock'
            when ahead_s is not null then 'clock_skew'
            when error_s is null then 'clock_assumed'
            else 'clock_error'
        end as flag,
        case
            when clock = 'none' and placed_at is null and not is_told then 'error'
            when method like '%as given, in which it meets no other input%' then 'error' -- what is told of both together may be told twice
            when error_s is null and method like 'assumed the zone of %' then 'info' -- of a log beside it, which is placed
            else 'warning'
        end as severity,
        if(ahead_s is null, 1, round(abs(ahead_s))) as count,
        case
            when ahead_s is not null then format(
                'Its clock is {} {} that of the other inputs, as {} say. Its times are used as they stand: set the hosts'' clocks alike, and leave it '
                || 'out if it is of another run.',
                spoken_duration(abs(ahead_s)), if(ahead_s > 0, 'ahead of', 'behind'), method
            )
            when clock = 'none' and placed_at is null and is_told then
                'It carries no time: told as of an unknown instant, not on the timeline. Its file''s own date, which a copy changes, is not used.'
            when clock = 'none' and placed_at is null then 'It carries no time and could not be placed: its rows are not on the timeline.'
            when error_s is null and method like 'assumed%'
                then format('Its zone is assumed ({}); --timezone, or `timezone` in kvpressure.toml, gives it.', replace(method, 'assumed ', ''))
            when error_s is null then format('Its times rest on an assumption: {}.', method)
            else format('Its times may be off by {:.1f} s ({}).', error_s, method)
        end as detail,
    from staging.clocks
    cross join lateral (select source in (select source from core.untimed_pages) as is_told)
    where ((clock = 'none' and placed_at is null) or error_s is null or error_s > 1.5)
        -- a workload to replay is not part of what happened; a recorder's own account has its times in UTC
        and source not in (select source from raw.workload_requests union all select source from raw.recordings)
),

servers as (
    select
        source,
        'server_told' as flag,
        'info' as severity,
        1 as count,
        case told_by
            when 'name' then format('It names no server; it is called as {}, and taken for its.', instance)
            when 'ordinal' then format(
                'It names no server; it begins with a start of its own and is called as one of several replicas, which were there at one time or '
                'are set up otherwise, so it is taken for the log of {}. Parts of one log end in .1, .2.', instance
            )
            else format(
                'It names no server, and logs beside it show another load or start at the same time, or another engine, so it is taken for the log '
                'of a server of its own, {}.', instance
            )
        end as detail,
    from staging.input_servers
    where source in (select source from raw.engine_samples)
),

-- a process that goes on after another of its kind has begun was not replaced by it
mixed as (
    select
        source,
        'servers_mixed' as flag,
        'warning' as severity,
        processes as count,
        format(
            'Lines of {} servers ({}) alternate in it, and nothing but their processes tells them apart: they are told as one that was started anew. '
            'Give the log of each; `kubectl logs --prefix` names its pod on every line.',
            processes, names
        ) as detail,
    from (
        select
            source,
            count(distinct process) as processes,
            string_agg(distinct process, ', ' order by process) as names,
            count_if(is_other) as turns,
        from (
            select
                source,
                process,
                regexp_replace(process, '\s*pid=\d+', '') as kind,
                instance,
                process <> lag(process) over (partition by source, instance, kind order by line) as is_other,
            from raw.engine_samples
            where process like '%pid=%'
        )
        group by source, instance, kind
        having turns > processes -- each that replaces one is a turn
    )
    qualify row_number() over (partition by source order by turns desc, names) = 1
),

repeats as (
    select
        source,
        'lines_repeated' as flag,
        'warning' as severity,
        last_line - first_line + 1 as count,
        format('Its lines {:,} to {:,} are in {}, too; they are counted once.', first_line, last_line, copy_of) as detail,
    from staging.repeated_lines
),

-- what a recorder says it could not keep; holes between scrapes and batch numbers are told from the data itself
recorder_faults as (
    select
        coalesce(subject, source) as source,
        flag,
        severity,
        count,
        detail,
    from (
        select
            min(source) as source,
            subject,
            case event
                when 'resumed' then 'recorder_was_down'
                when 'scrapes_missed' then 'engine_not_answering'
                when 'log_lost' then 'log_lines_lost'
                when 'part_dropped' then 'recording_trimmed'
            end as flag,
            case event when 'part_dropped' then 'info' else 'warning' end as severity,
            sum(coalesce(count, 1)) as count,
            case event
                when 'resumed' then format(
                    'The recorder was down {}, {} in all, the last until {}: only what the engine keeps (its log, its latest KV events) was caught up.',
                    spoken_times(count(*)), spoken_duration(sum(seconds_between(since_utc, at_utc))), strftime(max(at_utc), '%Y-%m-%d %H:%M:%S UTC')
                )
                when 'scrapes_missed' then format(
                    '{} scrapes failed, {} in all, the last until {}: {}.',
                    sum(count), spoken_duration(sum(seconds_between(since_utc, at_utc))),
                    strftime(max(at_utc), '%Y-%m-%d %H:%M:%S UTC'), max_by(rtrim(detail, '?.'), at_utc)
                )
                when 'log_lost' then format('Lines were lost {}, the last time at {}: {}.', spoken_times(count(*)), strftime(max(at_utc), '%Y-%m-%d %H:%M:%S UTC'), max_by(detail, at_utc))
                when 'part_dropped' then format('What was recorded until {} was thrown away to stay within the limit of the disk.', strftime(max(since_utc), '%Y-%m-%d %H:%M:%S UTC'))
            end as detail,
        from raw.recordings
        where event in ('resumed', 'scrapes_missed', 'log_lost', 'part_dropped')
        group by event, subject
    )
)

select source, flag, severity, count::bigint as count, detail
from (
    from unread
    union all by name
    from misread
    union all by name
    from clocks
    union all by name
    from servers
    union all by name
    from mixed
    union all by name
    from repeats
    union all by name
    from recorder_faults
)
order by source, flag
