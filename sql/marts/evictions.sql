-- Reusable blocks that were reclaimed, and prefixes that were computed again, in equal buckets of ten seconds.
--
-- Only from KV events: no counter tells evictions. A block evicted and never asked for again costs nothing; what was asked for
-- again is refilled_tokens. Blocks that preempted requests rebuilt are not among these (see waste), nor does a restart evict.
--
-- grain: run, engine, bucket_at
-- column: run             | The analyzed run.
-- column: engine          | Engine.
-- column: bucket_at       | Start of the bucket.
-- column: bucket_s        | Its length.
-- column: evicted_blocks  | Blocks reclaimed.
-- column: evicted_tokens  | Tokens in them.
-- column: refilled_tokens | Tokens of blocks stored again for other prompts, loaded from an external tier or computed.
-- check:  evicted_blocks >= 0 and refilled_tokens >= 0 | Counts.
with block_sizes as (
    select engine, max(block_size) as block_size from staging.kv_events group by engine
),

removed as (
    select
        events.engine,
        time_bucket(interval 10 second, events.published_at) as bucket_at,
        count(*) as evicted_blocks,
        count(*) * any_value(block_sizes.block_size) as evicted_tokens,
    from staging.kv_events as events
    left join block_sizes using (engine)
    where events.event = 'removed'
        and coalesce(upper(events.medium), 'GPU') = 'GPU'
        and coalesce(events.group_idx, 0) = 0
    group by all
),

refilled as (
    select
        engine,
        time_bucket(interval 10 second, stored_at) as bucket_at,
        sum(blocks_again * block_size) as refilled_tokens,
    from core.blocks_stored_again
    -- without any preemption counted a resume is not one
    where kind <> 'resume' or engine in (select engine from core.preemption_intervals group by engine having sum(preemptions) = 0)
    group by all
)

select
    getvariable('run') as run,
    engine,
    bucket_at,
    10.0::double as bucket_s,
    coalesce(removed.evicted_blocks, 0) as evicted_blocks,
    coalesce(removed.evicted_tokens, 0)::bigint as evicted_tokens,
    coalesce(refilled.refilled_tokens, 0)::bigint as refilled_tokens,
from removed
full join refilled using (engine, bucket_at)
order by engine, bucket_at
