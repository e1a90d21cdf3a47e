-- What each counter counted in each bucket of the timeline: a scrape interval is shared out over the buckets it covers.
--
-- grain: engine, signal, labels, bucket_at
-- column: engine    | Engine.
-- column: signal    | Our word for the counter.
-- column: labels    | Remaining labels.
-- column: bucket_at | Start of the bucket.
-- column: delta     | Increase that falls into it.
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
    from core.counter_intervals
)

select
    buckets.engine,
    intervals.signal,
    intervals.labels,
    buckets.bucket_at,
    sum(
        intervals.delta
        * overlap_s(intervals.shared_from, intervals.shared_to, buckets.bucket_at, plus_seconds(buckets.bucket_at, buckets.bucket_s))
        / seconds_between(intervals.shared_from, intervals.shared_to)
    ) as delta,
from intervals
inner join core.buckets
    on buckets.engine = intervals.engine
    and buckets.bucket_at < intervals.shared_to
    and plus_seconds(buckets.bucket_at, buckets.bucket_s) > intervals.shared_from
group by all
order by engine, signal, labels, bucket_at
