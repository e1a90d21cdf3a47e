-- What to know of what the engines told before trusting the answer: restarts, holes, gauges and counters that do not say what they seem to.
--
-- grain: source, flag
-- needs: core.counter_intervals or core.engine_lives or core.engine_states or core.kv_events_unseen or core.recompute_conflicts or staging.kv_events
-- column: source   VARCHAR | Input, or engine, it is about.
-- column: flag     VARCHAR | Short name of the condition.
-- column: severity VARCHAR | info, warning or error.
-- column: count    BIGINT  | How many lines, samples, requests or seconds it concerns.
-- column: detail   VARCHAR | One sentence with the numbers.
with resets as (
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

-- of which no counter tells
restarts as (
    select
        engine as source,
        'restarted' as flag,
        'warning' as severity,
        count(*) as count,
        format('The engine was started anew {}, the last time at {}.', spoken_times(count(*)), strftime(max(life_start), '%Y-%m-%d %H:%M:%S UTC'))
            as detail,
    from core.engine_lives
    where is_stated and life > 1 and engine not in (select source from resets)
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
)

select source, flag, severity, count::bigint as count, detail
from (
    from resets
    union all by name
    from restarts
    union all by name
    from holes
    union all by name
    from lost_batches
    union all by name
    from unseen_blocks
    union all by name
    from rejections
    union all by name
    from contradictions
    union all by name
    from cut_short
    union all by name
    from silent_gauges
    union all by name
    from clamped
)
order by source, flag
