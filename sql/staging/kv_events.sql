-- KV-cache events, one row per block, in the order they were published.
--
-- grain: engine, source, line, event_index
-- needs: raw.kv_events
-- column: engine       VARCHAR     | Engine (data-parallel rank) that published it.
-- column: source       VARCHAR     | Input it was read from.
-- column: line         BIGINT      | Line number of the batch in that input.
-- column: published_at TIMESTAMPTZ | Time the engine stamped on the batch.
-- column: seq          BIGINT      | Sequence number of the batch; a gap is a lost batch, a fall a restart.
-- column: event_index  BIGINT      | Order within the batch.
-- column: event        VARCHAR     | stored, removed or cleared; restored where the engine says that a block came back from a lower tier.
-- column: block_hash   UBIGINT     | Hash of the block; NULL for cleared.
-- column: parent_hash  UBIGINT     | Hash of the block before it in its sequence; NULL for a first block.
-- column: block_size   BIGINT      | Tokens in a full block.
-- column: medium       VARCHAR     | GPU, CPU, STORAGE, …; NULL where not said.
-- column: group_idx    BIGINT      | KV-cache group of a hybrid model.
-- column: dp_rank      BIGINT      | Data-parallel rank as published.
-- check:  event in ('stored', 'removed', 'cleared', 'restored') | No other event is known.
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
    events.dp_rank,
from raw.kv_events as events
left join staging.input_servers using (source)
left join staging.engine_names
    on engine_names.instance is not distinct from coalesce(events.instance, input_servers.instance)
    and engine_names.label is not distinct from events.dp_rank::varchar
where within_window(events.at_utc)
order by events.source, events.line, events.event_index
