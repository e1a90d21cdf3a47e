-- Latency quantiles in each bucket of the timeline, from the engine's histograms, interpolated within the histogram's own buckets.
--
-- A scrape interval belongs to the timeline bucket its end falls into. A quantile in the open last bucket is its lower bound.
--
-- grain: engine, signal, bucket_at
-- needs: core.buckets
-- needs: core.histogram_intervals
-- column: engine       VARCHAR     | Engine.
-- column: signal       VARCHAR     | ttft_s, itl_s, queue_s, e2e_s, ….
-- column: bucket_at    TIMESTAMPTZ | Start of the bucket.
-- column: observations DOUBLE      | Observations in the bucket.
-- column: p50          DOUBLE      | Median, in the signal's unit.
-- column: p99          DOUBLE      | 99th percentile.
-- check:  p50 <= p99 | Quantiles are in order.
with counted as (
    select
        intervals.engine,
        intervals.signal,
        time_bucket(to_seconds(sized.bucket_s), intervals.interval_end, timestamptz '1970-01-01 00:00:00+00') as bucket_at,
        intervals.above,
        intervals.le,
        sum(intervals.delta) as inside,
    from core.histogram_intervals as intervals
    inner join (select engine, any_value(bucket_s) as bucket_s from core.buckets group by engine) as sized using (engine)
    group by all
),

bounded as (
    select
        *,
        sum(inside) over (bucket order by le) as at_or_below,
        at_or_below - inside as below,
        sum(inside) over bucket as observations,
    from counted
    window bucket as (partition by engine, signal, bucket_at)
)

select
    engine,
    signal,
    bucket_at,
    max(observations) as observations,
    min(within_bucket(0.5, observations, below, at_or_below, above, le)) as p50,
    min(within_bucket(0.99, observations, below, at_or_below, above, le)) as p99,
from bounded
where observations > 0
group by all
order by engine, signal, bucket_at
