-- The run on one time axis: load, pressure, speed and latency of each engine, bucket by bucket.
--
-- Everything is NULL where no input tells it. Repeated tokens are known as a total with a range (see `waste`); here the best
-- estimate is shared out over the buckets by the preemptions in each.
--
-- grain: run, engine, bucket_at
-- needs: core.bucket_states
-- column: run                     VARCHAR     | The analyzed run.
-- column: engine                  VARCHAR     | Engine.
-- column: bucket_at               TIMESTAMPTZ | Start of the bucket.
-- column: bucket_s                DOUBLE      | Its length, the same for the whole run.
-- column: running                 DOUBLE      | Mean requests running.
-- column: waiting                 DOUBLE      | Mean requests waiting, preempted and deferred ones among them.
-- column: deferred                DOUBLE      | Mean requests deferred.
-- column: kv_usage_ratio          DOUBLE      | Highest share of the KV pool held by active requests.
-- column: preemptions             DOUBLE      | Preemptions counted; fractional where a scrape interval spans buckets.
-- column: prompt_tokens_per_s     DOUBLE      | Prompt tokens computed (cached ones left out where the version tells them apart).
-- column: generation_tokens_per_s DOUBLE      | Tokens generated.
-- column: recomputed_tokens_per_s DOUBLE      | Tokens processed again after preemption, best estimate.
-- column: prefix_hit_ratio        DOUBLE      | Share of looked-up prompt tokens found in the prefix cache, from counters; else as the log printed.
-- column: ttft_p50_s              DOUBLE      | Median time to first token.
-- column: ttft_p99_s              DOUBLE      | 99th percentile of it.
-- column: itl_p50_s               DOUBLE      | Median inter-token latency.
-- column: itl_p99_s               DOUBLE      | 99th percentile of it.
-- column: queue_p50_s             DOUBLE      | Median wait before the first run.
-- column: queue_p99_s             DOUBLE      | 99th percentile of it.
-- column: gpu_util_ratio          DOUBLE      | GPU utilization, where recorded.
-- column: useful_token_ratio      DOUBLE      | Share of the tokens processed that were not repeated work.
-- check:  kv_usage_ratio between 0 and 1.005 | A share of the pool.
-- check:  preemptions >= 0 | Counts.
-- check:  useful_token_ratio between 0 and 1 | A share.
with counted as (
    select
        engine,
        bucket_at,
        sum(delta) filter (where signal = 'preemptions') as preemptions,
        sum(delta) filter (where signal = 'prompt_tokens') as prompt_tokens,
        sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%source=local_compute%') as computed_tokens,
        sum(delta) filter (where signal = 'generation_tokens') as generation_tokens,
        sum(delta) filter (where signal = 'prefix_queries') as prefix_queries,
        sum(delta) filter (where signal = 'prefix_hits') as prefix_hits,
    from core.bucket_counters
    group by all
),

latencies as (
    select
        engine,
        bucket_at,
        max(p50) filter (where signal = 'ttft_s') as ttft_p50_s,
        max(p99) filter (where signal = 'ttft_s') as ttft_p99_s,
        max(p50) filter (where signal = 'itl_s') as itl_p50_s,
        max(p99) filter (where signal = 'itl_s') as itl_p99_s,
        max(p50) filter (where signal = 'queue_s') as queue_p50_s,
        max(p99) filter (where signal = 'queue_s') as queue_p99_s,
    from core.bucket_latencies
    group by all
),

gpu as (
    select
        buckets.engine,
        buckets.bucket_at,
        avg(samples.value) as gpu_util_ratio,
    from core.buckets
    inner join (
        select sampled_at, value * factor as value
        from staging.metric_samples
        inner join signals() as signals using (name)
        where signals.signal = 'gpu_util_ratio'
    ) as samples
        on samples.sampled_at >= buckets.bucket_at
        and samples.sampled_at < plus_seconds(buckets.bucket_at, buckets.bucket_s)
    group by all
),

wasted as (
    select engine, tokens_best as recomputed_tokens
    from marts.waste
    where kind = 'preemption_recompute'
),

shared_out as (
    select
        counted.*,
        case
            when wasted.recomputed_tokens = 0 then 0
            else wasted.recomputed_tokens * ratio(counted.preemptions, sum(counted.preemptions) over (partition by counted.engine))
        end as recomputed_tokens,
    from counted
    left join wasted using (engine)
)

select
    getvariable('run') as run,
    states.engine,
    states.bucket_at,
    buckets.bucket_s,
    states.running,
    states.waiting,
    states.deferred,
    states.kv_usage_ratio,
    counted.preemptions,
    coalesce(
        counted.computed_tokens / buckets.bucket_s,
        counted.prompt_tokens / buckets.bucket_s,
        states.prompt_tokens_per_s_logged
    ) as prompt_tokens_per_s,
    coalesce(counted.generation_tokens / buckets.bucket_s, states.generation_tokens_per_s_logged) as generation_tokens_per_s,
    counted.recomputed_tokens / buckets.bucket_s as recomputed_tokens_per_s,
    coalesce(ratio(counted.prefix_hits, counted.prefix_queries), states.prefix_hit_ratio_logged) as prefix_hit_ratio,
    latencies.ttft_p50_s,
    latencies.ttft_p99_s,
    latencies.itl_p50_s,
    latencies.itl_p99_s,
    latencies.queue_p50_s,
    latencies.queue_p99_s,
    gpu.gpu_util_ratio,
    clamp(
        1 - ratio(
            counted.recomputed_tokens,
            counted.recomputed_tokens + coalesce(counted.computed_tokens, counted.prompt_tokens) + counted.generation_tokens
        ),
        0,
        1
    ) as useful_token_ratio,
from core.bucket_states as states
inner join core.buckets using (engine, bucket_at)
left join shared_out as counted using (engine, bucket_at)
left join latencies using (engine, bucket_at)
left join gpu using (engine, bucket_at)
order by states.engine, states.bucket_at
