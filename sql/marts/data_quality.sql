-- What to know about the inputs before trusting the answer: faults, holes, restarts and guesses, each counted.
--
-- severity says what it does to the answer: `info` nothing, `warning` bounds or widens it, `error` a part of the inputs is missing from it.
--
-- grain: run, source, flag
-- column: run      | The analyzed run.
-- column: source   | Input, or engine, it is about.
-- column: flag     | Short name of the condition.
-- column: severity | info, warning or error.
-- column: count    | How many lines, samples, requests or seconds it concerns.
-- column: detail   | One sentence with the numbers.
-- check:  severity in ('info', 'warning', 'error') | Three levels.
with unread as (
    select
        source,
        case when is_other then 'not_recognised' when format is null then 'not_read' else 'read_in_part' end as flag,
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
            '{} of {} lines look like a signal but do not follow its grammar; the first is line {}.',
            lines_not_understood, lines, first_not_understood
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
        case when clock = 'none' and placed_at is null and not is_told then 'error' else 'warning' end as severity,
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
                then format('Its times rest on an assumption: {}. --timezone (`timezone` in kvpressure.toml) says whose zone its stamps are in.', method)
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
            else format(
                'It names no server, and logs beside it show another load at the same time or another engine, so it is taken for the log '
                'of a server of its own, {}.', instance
            )
        end as detail,
    from staging.input_servers
    where source in (select source from raw.engine_samples)
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

repeated_results as (
    select
        source,
        'requests_repeated' as flag,
        'info' as severity,
        requests as count,
        format('Its {:,} requests are in {} and those beside it, too; they are counted once.', requests, held_in) as detail,
    from staging.repeated_results
),

resets as (
    select
        engine as source,
        'counter_reset' as flag,
        'info' as severity,
        count(distinct interval_end) as count,
        format(
            'Counters fell {}, the last time at {}: the engine restarted; what it counted after is added to what it counted before.',
            spoken_times(count(distinct interval_end)), strftime(max(interval_end), '%Y-%m-%d %H:%M:%S UTC')
        ) as detail,
    from core.counter_intervals
    where is_reset and signal = 'generation_tokens'
    group by engine
),

holes as (
    select
        engine as source,
        'missing_scrapes' as flag,
        'warning' as severity,
        count(*) as count,
        format('Scrapes were {} further apart than three usual intervals, {} in all.', spoken_times(count(*)), spoken_duration(sum(step_s))) as detail,
    from (
        select
            engine,
            seconds_between(sampled_at, lead(sampled_at) over (partition by engine order by sampled_at)) as step_s,
            median(scrape_s) over (partition by engine) as usual_s,
        from core.engine_states
        where origin = 'metrics'
    )
    where step_s > 3 * usual_s
    group by engine
),

lost_batches as (
    select
        source,
        'kv_event_batches_lost' as flag,
        'warning' as severity,
        sum(seq - seq_before - 1) as count,
        format('{} KV-event batches are missing ({} gaps in the sequence numbers).', sum(seq - seq_before - 1), count(*)) as detail,
    from (
        select source, seq, lag(seq) over (partition by source, engine order by line, event_index) as seq_before from staging.kv_events
    )
    -- a step that published nothing has no number: only a jump is a loss, and a fall is a restart
    where seq > seq_before + 1
    group by source
),

unseen_blocks as (
    select
        engine as source,
        'kv_events_warming' as flag,
        'info' as severity,
        blocks as count,
        format(
            'KV events are known from {} on, and the pool lost {} blocks cached before, the last {} into the window: what was asked for '
            'again until then may look new, and refilled tokens be more.',
            strftime(known_from, '%Y-%m-%d %H:%M:%S UTC'), spoken_count(blocks), spoken_duration(warming_s)
        ) as detail,
    from core.kv_events_unseen
),

failures as (
    select
        source,
        'failed_requests' as flag,
        'warning' as severity,
        count(*) as count,
        format('{} of the client''s requests failed; a request the client gave up on enters no histogram of the engine.', count(*)) as detail,
    from staging.client_requests
    where is_failed
    group by source
),

rejections as (
    select
        engine as source,
        'rejected_requests' as flag,
        'warning' as severity,
        round(sum(delta))::bigint as count,
        format('{} requests were turned away at admission: they waited nowhere, and are in no figure of this run.', spoken_count(sum(delta)))
            as detail,
    from core.counter_intervals
    where signal = 'rejections'
    group by engine
    having round(sum(delta)) > 0
),

contradictions as (
    select
        engine as source,
        'methods_contradict' as flag,
        'warning' as severity,
        count(*) as count,
        string_agg(detail, ' ' order by kind, method) as detail,
    from core.recompute_conflicts
    group by engine
),

cut_short as (
    select
        states.engine as source,
        'metrics_end_under_load' as flag,
        'warning' as severity,
        states.running as count,
        format(
            'The last scrape ({}) still shows {} requests running: what they went through afterwards is not counted, only bounded.',
            strftime(states.sampled_at, '%H:%M:%S UTC'), states.running
        ) as detail,
    from core.engine_states as states
    where states.origin = 'metrics'
        and states.running > 0
        and states.scrape_s > 0 -- of a lone scrape nothing is counted at all
        and states.sampled_at = (select max(last.sampled_at) from core.engine_states as last where last.engine = states.engine)
),

silent_gauges as (
    select
        engine as source,
        'kv_usage_stuck_at_zero' as flag,
        'warning' as severity,
        count(*) as count,
        format('KV usage reads 0 in every sample although up to {} requests ran at once: taken as never measured.', max(running)) as detail,
    from core.engine_states
    where is_usage_blind
    group by engine
),

silent_reports as (
    select
        source,
        'kv_usage_never_exported' as flag,
        'warning' as severity,
        1 as count,
        'Its report shows KV usage as 0 in every stage although requests ran: taken as never exported, as is its count of preemptions.'
            as detail,
    from core.client_sums
    where list_contains(unexported, 'kv_usage_ratio')
),

clients as (
    select
        runs.source,
        max(runs.client) as client,
        count(distinct runs.run_index) as results,
        bool_and(coalesce(runs.completed, 1) = 0) as completed_none,
        max(runs.max_concurrency) as max_concurrency,
        max(ratio(runs.completed, runs.duration_s)) as achieved_rate,
        max(runs.request_rate) as request_rate,
        sum(runs.completed) as completed,
    from staging.client_runs as runs
    where runs.client is distinct from 'inference_perf_prometheus'
    group by runs.source
),

asked as (
    select
        source,
        count(*) as requests,
        count(sent_at) as sent,
        count(client_queue_s) as queued,
        count(*) filter (where not coalesce(is_failed, false)) as completed,
        count(*) filter (where gap_kind = 'smoothed_token') as smoothed,
        count(gaps_s) as with_gaps,
        count(ttft_s) as with_first_token,
    from staging.client_requests
    group by source
),

client_limits as (
    select
        clients.source,
        unnest([
            {
                flag: 'no_arrival_times', severity: 'warning', count: asked.requests, holds: asked.sent = 0,
                detail: format('{} does not write when a request was sent: its {} requests are in no interval of the timeline, and none of their pauses is laid beside what the engine did.', clients.client, asked.requests)
            },
            {
                flag: 'gaps_smoothed', severity: 'warning', count: asked.smoothed, holds: asked.smoothed > 0,
                detail: format('{} divides the wait for a chunk by its tokens in {} requests: a pause looks like several short ones, so the longest ones are longer than they look.', clients.client, asked.smoothed)
            },
            {
                flag: 'gaps_not_kept', severity: 'info', count: asked.requests, holds: asked.with_gaps = 0 and asked.with_first_token > 0,
                detail: format('{} keeps the first and the last token only: pauses within an answer, and so preempted requests, cannot be seen in it.', clients.client)
            },
            {
                flag: 'client_queue_hidden', severity: 'warning', count: clients.max_concurrency, holds: clients.max_concurrency > 0 and asked.queued = 0,
                detail: format('It had at most {} requests in flight and does not say how long others were held back: its users waited longer than its times to first token.', clients.max_concurrency)
            },
            {
                flag: 'zeros_without_requests', severity: 'warning', count: clients.results, holds: clients.completed_none,
                detail: 'None of its requests completed: the zeros that it sums up are no measurements, and are not used.'
            },
            {
                flag: 'requests_left_out', severity: 'info', count: clients.completed - coalesce(asked.requests, 0), holds: clients.completed > coalesce(asked.requests, 0),
                detail: format('It sums up {} requests and holds {} of them: what it says of single requests is of those alone.', clients.completed, coalesce(asked.requests, 0))
            },
            {
                flag: 'client_behind_its_rate', severity: 'warning', count: clients.results, holds: clients.results = 1 and clients.achieved_rate < 0.9 * clients.request_rate,
                detail: format('It meant to send {:.2f} requests per second and completed {:.2f}: either the server or the client itself was at its limit.', clients.request_rate, clients.achieved_rate)
            }
        ], recursive := true),
    from clients
    left join asked using (source)
),

without_settings as (
    select
        source,
        'settings_not_scraped' as flag,
        'info' as severity,
        1 as count,
        'AIPerf leaves out the series that carry settings: the size of the KV pool must come from the engine''s log.' as detail,
    from raw.sources
    where format in ('aiperf_server_metrics', 'aiperf_server_parquet')
),

clamped as (
    select
        sources.source,
        'counter_reset_clamped' as flag,
        'warning' as severity,
        count(distinct intervals.interval_end) as count,
        format(
            'The engine restarted ({}): AIPerf then writes 0 until a counter has passed its first reading again, so what was counted meanwhile is missing.',
            strftime(min(intervals.interval_end), '%Y-%m-%d %H:%M:%S UTC')
        ) as detail,
    from raw.sources as sources
    cross join core.counter_intervals as intervals
    where sources.format = 'aiperf_server_parquet' and intervals.is_reset
    group by sources.source
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

select getvariable('run') as run, source, flag, severity, count::bigint as count, detail
from (
    from unread
    union all by name
    from misread
    union all by name
    from clocks
    union all by name
    from servers
    union all by name
    from repeats
    union all by name
    from repeated_results
    union all by name
    from resets
    union all by name
    from holes
    union all by name
    from lost_batches
    union all by name
    from unseen_blocks
    union all by name
    from failures
    union all by name
    from rejections
    union all by name
    from contradictions
    union all by name
    from cut_short
    union all by name
    from silent_gauges
    union all by name
    select source, flag, severity, count, detail from client_limits where holds
    union all by name
    from core.faults_of_settings
    union all by name
    from without_settings
    union all by name
    from clamped
    union all by name
    from silent_reports
    union all by name
    from recorder_faults
)
order by case severity when 'error' then 0 when 'warning' then 1 else 2 end, source, flag
