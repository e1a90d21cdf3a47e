-- Reusable blocks that were reclaimed, and prefixes that were computed again, in equal buckets of ten seconds.
--
-- Only from KV events: no counter tells evictions. A block evicted and never asked for again costs nothing; what was asked for
-- again is refilled_tokens. Blocks that preempted requests rebuilt are not among these (see waste), nor does a restart evict.
--
-- grain: run, engine, bucket_at
-- needs: core.blocks_stored_again or staging.kv_events
-- column: run             VARCHAR     | The analyzed run.
-- column: engine          VARCHAR     | Engine.
-- column: bucket_at       TIMESTAMPTZ | Start of the bucket.
-- column: bucket_s        DOUBLE      | Its length.
-- column: evicted_blocks  BIGINT      | Blocks reclaimed.
-- column: evicted_tokens  BIGINT      | Tokens in them.
-- column: unwanted_blocks BIGINT      | Of the evicted blocks, those that nobody stored again later in the recording: they cost nothing.
-- column: refilled_tokens BIGINT      | Tokens of blocks stored again for other prompts, loaded from an external tier or computed.
-- check:  evicted_blocks >= 0 and refilled_tokens >= 0 | Counts.
-- check:  unwanted_blocks <= evicted_blocks | A part of the whole.
with block_sizes as (
    select engine, max(block_size) as block_size from staging.kv_events group by engine
),

followed as (
    select
        engine,
        event,
        published_at,
        lead(event) over (partition by engine, block_hash order by source, line, event_index) as next_event,
    from staging.kv_events
    where event in ('stored', 'removed')
        and coalesce(upper(medium), 'GPU') = 'GPU'
        and coalesce(group_idx, 0) = 0
),

removed as (
    select
        followed.engine,
        time_bucket(interval 10 second, followed.published_at) as bucket_at,
        count(*) as evicted_blocks,
        count(*) * any_value(block_sizes.block_size) as evicted_tokens,
        count(*) filter (where followed.next_event is null) as unwanted_blocks,
    from followed
    left join block_sizes using (engine)
    where followed.event = 'removed'
    group by all
),

refilled as (
    select
        engine,
        time_bucket(interval 10 second, stored_at) as bucket_at,
        sum(blocks_again * block_size) as refilled_tokens,
    from core.blocks_stored_again
    left join core.resumes using (engine, again_index)
    where kind <> 'resume' or not resumes.is_possible
    group by all
)

select
    getvariable('run') as run,
    engine,
    bucket_at,
    10.0::double as bucket_s,
    coalesce(removed.evicted_blocks, 0) as evicted_blocks,
    coalesce(removed.evicted_tokens, 0)::bigint as evicted_tokens,
    coalesce(removed.unwanted_blocks, 0) as unwanted_blocks,
    coalesce(refilled.refilled_tokens, 0)::bigint as refilled_tokens,
from removed
full join refilled using (engine, bucket_at)
order by engine, bucket_at
