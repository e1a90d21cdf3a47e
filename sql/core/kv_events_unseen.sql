-- Blocks that the pool lost in the window and no event had stored: cached before the KV events that were kept begin.
--
-- As long as such blocks go, the record is warming: what is stored again may be one of them, and looks new. What was lost even
-- before leaves no trace at all.
--
-- grain: engine
-- needs: staging.kv_events or staging.kv_events_before
-- column: engine       VARCHAR     | Engine that published events.
-- column: known_from   TIMESTAMPTZ | First event there is, of the quarter of an hour before the window as well.
-- column: blocks       BIGINT      | Blocks lost that were not seen stored.
-- column: last_lost_at TIMESTAMPTZ | When the last of them went.
-- column: warming_s    DOUBLE      | Seconds of the window until then.
-- check:  blocks > 0 and warming_s >= 0 | An engine without any has no row.
with events as (
    select engine, published_at, event, block_hash, medium, group_idx, false as is_within from staging.kv_events_before
    union all
    select engine, published_at, event, block_hash, medium, group_idx, true as is_within from staging.kv_events
),

of_pool as (
    from events where coalesce(upper(medium), 'GPU') = 'GPU' and coalesce(group_idx, 0) = 0
),

stored as (
    select engine, block_hash, min(published_at) as stored_at from of_pool where event = 'stored' group by all
),

begun as (
    select engine, min(published_at) as known_from, min(published_at) filter (where is_within) as begins_at
    from events
    group by engine
)

select
    removed.engine,
    any_value(begun.known_from) as known_from,
    count(*) as blocks,
    max(removed.published_at) as last_lost_at,
    seconds_between(coalesce(getvariable('since')::timestamptz, any_value(begun.begins_at)), max(removed.published_at)) as warming_s,
from of_pool as removed
inner join begun using (engine)
left join stored on stored.engine = removed.engine and stored.block_hash = removed.block_hash
where removed.event = 'removed'
    and removed.is_within
    and coalesce(stored.stored_at > removed.published_at, true)
group by removed.engine
order by removed.engine
