-- What each counter counted in each bucket of the timeline: a scrape interval is shared out over the buckets it covers.
--
-- grain: engine, signal, labels, bucket_at
-- column: engine    | Engine.
-- column: signal    | Our word for the counter.
-- column: labels    | Remaining labels.
-- column: bucket_at | Start of the bucket.
-- column: delta     | Increase that falls into it.
-- check:  delta >= 0 | Counts.
select
    buckets.engine,
    intervals.signal,
    intervals.labels,
    buckets.bucket_at,
    sum(
        intervals.delta
        * overlap_s(intervals.interval_start, intervals.interval_end, buckets.bucket_at, plus_seconds(buckets.bucket_at, buckets.bucket_s))
        / seconds_between(intervals.interval_start, intervals.interval_end)
    ) as delta,
from core.counter_intervals as intervals
inner join core.buckets
    on buckets.engine = intervals.engine
    and buckets.bucket_at < intervals.interval_end
    and plus_seconds(buckets.bucket_at, buckets.bucket_s) > intervals.interval_start
group by all
order by engine, signal, labels, bucket_at
