-- KV-cache events of the quarter of an hour before the window: what the pool was told to hold when it began. None is counted.
--
-- A day of the daily job begins so: without them all that was cached before midnight would look new.
--
-- grain: engine, source, line, event_index
-- needs: raw.kv_events
-- column: engine       VARCHAR     | Engine (data-parallel rank) that published it.
-- column: source       VARCHAR     | Input it was read from.
-- column: line         BIGINT      | Line number of the batch in that input.
-- column: published_at TIMESTAMPTZ | Time the engine stamped on the batch.
-- column: seq          BIGINT      | Sequence number of the batch.
-- column: event_index  BIGINT      | Order within the batch.
-- column: event        VARCHAR     | stored, removed, cleared or restored.
-- column: block_hash   UBIGINT     | Hash of the block; NULL for cleared.
-- column: parent_hash  UBIGINT     | Hash of the block before it in its sequence; NULL for a first block.
-- column: block_size   BIGINT      | Tokens in a full block.
-- column: medium       VARCHAR     | GPU, CPU, STORAGE, …; NULL where not said.
-- column: group_idx    BIGINT      | KV-cache group of a hybrid model.
select
    coalesce(engine_names.engine, '0') as engine,
    events.source,
    events.line,
    events.at_utc as published_at,
    events.seq,
    events.event_index,
    events.event,
    events.block_hash,
    events.parent_hash,
    events.block_size,
    events.medium,
    events.group_idx,
from raw.kv_events as events
left join staging.input_servers using (source)
left join staging.engine_names
    on engine_names.instance is not distinct from coalesce(events.instance, input_servers.instance)
    and engine_names.label is not distinct from events.dp_rank::varchar
where within_reach(events.at_utc) and not within_window(events.at_utc)
order by events.source, events.line, events.event_index
