-- The load of each engine in each bucket of the timeline: samples averaged, each weighted by the time it stands for.
--
-- grain: engine, bucket_at
-- needs: core.buckets
-- column: engine                         VARCHAR     | Engine.
-- column: bucket_at                      TIMESTAMPTZ | Start of the bucket.
-- column: running                        DOUBLE      | Mean requests running.
-- column: waiting                        DOUBLE      | Mean requests waiting.
-- column: deferred                       DOUBLE      | Mean requests deferred; NULL where not exported.
-- column: kv_usage_ratio                 DOUBLE      | Highest share of the pool held in the bucket: a mean would hide a full pool.
-- column: prefix_hit_ratio_logged        DOUBLE      | The log's own hit ratio, over its own window.
-- column: prompt_tokens_per_s_logged     DOUBLE      | As the log printed.
-- column: generation_tokens_per_s_logged DOUBLE      | As the log printed.
with states as (
    select
        states.engine,
        time_bucket(to_seconds(sized.bucket_s), states.sampled_at, timestamptz '1970-01-01 00:00:00+00') as bucket_at,
        states.*,
    from core.engine_states as states
    inner join (select engine, any_value(bucket_s) as bucket_s from core.buckets group by engine) as sized using (engine)
),

logged as (
    select
        samples.engine,
        time_bucket(to_seconds(sized.bucket_s), samples.sampled_at, timestamptz '1970-01-01 00:00:00+00') as bucket_at,
        avg(samples.prefix_hit_ratio) as prefix_hit_ratio,
        avg(samples.prompt_tokens_per_s) as prompt_tokens_per_s,
        avg(samples.generation_tokens_per_s) as generation_tokens_per_s,
    from staging.engine_samples as samples
    inner join (select engine, any_value(bucket_s) as bucket_s from core.buckets group by engine) as sized using (engine)
    group by all
)

select
    buckets.engine,
    buckets.bucket_at,
    avg(states.running) as running,
    avg(states.waiting) as waiting,
    avg(states.deferred) as deferred,
    max(states.kv_usage_ratio) as kv_usage_ratio,
    any_value(logged.prefix_hit_ratio) as prefix_hit_ratio_logged,
    any_value(logged.prompt_tokens_per_s) as prompt_tokens_per_s_logged,
    any_value(logged.generation_tokens_per_s) as generation_tokens_per_s_logged,
from core.buckets
left join states using (engine, bucket_at)
left join logged using (engine, bucket_at)
group by buckets.engine, buckets.bucket_at
order by buckets.engine, buckets.bucket_at
