-- What the KV pool held over time: what active requests held, what was kept for reuse, what was free, each as a share of the pool.
--
-- What is active the engine's own gauge says. What is kept for reuse SGLang has a gauge of, too; else only KV events tell, and only
-- from the engine's start: a block stored and not yet removed has a hash, whether an active request holds it or nobody. Of what active requests hold, all
-- but the block that each is filling has one, so reusable = blocks with a hash - (active blocks - running requests): off by one
-- block for each running request at most.
--
-- grain: run, engine, bucket_at
-- needs: core.buckets
-- column: run            VARCHAR     | The analyzed run.
-- column: engine         VARCHAR     | Engine.
-- column: bucket_at      TIMESTAMPTZ | Start of the bucket, as in `timeline`.
-- column: bucket_s       DOUBLE      | Its length.
-- column: active_ratio   DOUBLE      | Mean share of the pool held by active requests.
-- column: reusable_ratio DOUBLE      | Mean share kept for reuse, held by nobody; NULL where no input tells it from free.
-- column: free_ratio     DOUBLE      | Mean share that holds nothing of use; NULL where no input tells it from reusable.
-- check:  active_ratio between 0 and 1.005 | A share of the pool.
-- check:  reusable_ratio is null or reusable_ratio between 0 and 1 | A share of the pool.
with followed as (
    select
        engine,
        published_at,
        source,
        line,
        event_index,
        case event when 'stored' then 1 when 'removed' then -1 else 0 end as step,
        event = 'cleared' or coalesce(seq < lag(seq) over in_order, false) as is_emptied,
    from staging.kv_events
    where coalesce(upper(medium), 'GPU') = 'GPU' and coalesce(group_idx, 0) = 0
    window in_order as (partition by engine order by published_at, source, line, event_index)
),

lives as (
    select *, count_if(is_emptied) over (partition by engine order by published_at, source, line, event_index) as life
    from followed
),

hashed as (
    select
        engine,
        published_at,
        sum(step) over (partition by engine, life order by published_at, source, line, event_index) as blocks,
    from lives
    qualify row_number() over (partition by engine, published_at order by source desc, line desc, event_index desc) = 1
),

telling as (
    select engines.engine, engines.kv_capacity_tokens / engines.block_size as pool_blocks
    from core.engines
    inner join core.recompute_kv_events as events using (engine)
    where engines.engine_kind = 'vllm' and events.is_from_start and events.lost_batches = 0
),

sampled as (
    select
        states.engine,
        states.sampled_at,
        states.kv_usage_ratio as active_ratio,
        if(
            telling.engine is null,
            null,
            clamp(
                coalesce(hashed.blocks, 0) / telling.pool_blocks
                    - at_least_zero(states.kv_usage_ratio - states.running / telling.pool_blocks),
                0,
                at_least_zero(1 - states.kv_usage_ratio)
            )
        ) as hashed_ratio,
    from core.engine_states as states
    left join telling using (engine)
    asof left join hashed on hashed.engine = states.engine and hashed.published_at <= states.sampled_at
    where states.kv_usage_ratio is not null
),

gauged as (
    select
        samples.engine,
        time_bucket(to_seconds(sized.bucket_s), samples.sampled_at, timestamptz '1970-01-01 00:00:00+00') as bucket_at,
        avg(samples.value / engines.kv_capacity_tokens) as evictable_ratio,
    from staging.metric_samples as samples
    inner join signals() as signals using (name)
    inner join core.engines using (engine)
    inner join (select engine, any_value(bucket_s) as bucket_s from core.buckets group by engine) as sized using (engine)
    where signals.signal = 'kv_evictable_tokens'
    group by all
)

select
    getvariable('run') as run,
    buckets.engine,
    buckets.bucket_at,
    buckets.bucket_s,
    avg(sampled.active_ratio) as active_ratio,
    coalesce(clamp(any_value(gauged.evictable_ratio), 0, 1 - avg(sampled.active_ratio)), avg(sampled.hashed_ratio)) as reusable_ratio,
    clamp(1 - avg(sampled.active_ratio) - reusable_ratio, 0, 1) as free_ratio,
from core.buckets
inner join sampled
    on sampled.engine = buckets.engine
    and sampled.sampled_at >= buckets.bucket_at
    and sampled.sampled_at < plus_seconds(buckets.bucket_at, buckets.bucket_s)
left join gauged on gauged.engine = buckets.engine and gauged.bucket_at = buckets.bucket_at
group by buckets.engine, buckets.bucket_at, buckets.bucket_s
order by buckets.engine, buckets.bucket_at
