-- What each counter counted in each bucket of the timeline: a scrape interval is shared out over the buckets it covers.
--
-- Preemptions are those of `core.preemption_intervals`, whatever counted them: an engine's log or its request records, too.
--
-- grain: engine, signal, labels, bucket_at
-- needs: core.buckets
-- needs: core.counter_intervals or core.preemption_intervals
-- column: engine    VARCHAR     | Engine.
-- column: signal    VARCHAR     | Our word for the counter.
-- column: labels    VARCHAR     | Remaining labels.
-- column: bucket_at TIMESTAMPTZ | Start of the bucket.
-- column: delta     DOUBLE      | Increase that falls into it.
-- check:  delta >= 0 | Counts.
with intervals as (
    select
        engine,
        signal,
        labels,
        delta,
        -- what reaches into the window asked for is shared out within it; greatest passes over NULL
        greatest(interval_start, getvariable('since')::timestamptz) as shared_from,
        greatest(interval_end, plus_seconds(getvariable('since')::timestamptz, 1)) as shared_to,
    from (
        from core.counter_intervals where signal <> 'preemptions'
        union all by name
        select engine, 'preemptions' as signal, '' as labels, preemptions as delta, interval_start, interval_end from core.preemption_intervals
    )
),

sized as (
    select engine, any_value(bucket_s) as bucket_s from core.buckets group by engine
),

-- an interval once for each bucket it covers
covered as (
    select
        intervals.*,
        unnest(range(floor(epoch(shared_from) / bucket_s)::bigint, ceil(epoch(shared_to) / bucket_s)::bigint)) * bucket_s as bucket_epoch_s,
    from intervals
    inner join sized using (engine)
)

select
    buckets.engine,
    covered.signal,
    covered.labels,
    buckets.bucket_at,
    sum(
        covered.delta
        * overlap_s(covered.shared_from, covered.shared_to, buckets.bucket_at, plus_seconds(buckets.bucket_at, buckets.bucket_s))
        / seconds_between(covered.shared_from, covered.shared_to)
    ) as delta,
from covered
inner join core.buckets
    on buckets.engine = covered.engine and buckets.bucket_at = make_timestamptz((covered.bucket_epoch_s * 1e6)::bigint)
group by all
order by engine, signal, labels, bucket_at
