-- What a tier behind the KV pool gave back (host memory, disk, a peer): tokens loaded, none of them computed again.
--
-- Told by the engine's own counter of external hits where it has one (core.recompute_estimates); here by the tier's: SGLang's
-- hierarchical cache, LMCache, Dynamo's block manager, or the lines LMCache, llama.cpp's prompt cache and TensorRT-LLM log.
--
-- grain: engine, method
-- needs: core.counter_intervals or staging.engine_events
-- column: engine          VARCHAR | Engine.
-- column: method          VARCHAR | tier_counter or tier_log.
-- column: rung            INTEGER | 2 for a counter, 3 for a log.
-- column: restored_tokens DOUBLE  | Tokens given back.
-- column: stored_tokens   DOUBLE  | Tokens taken in; NULL where not said.
-- column: dropped_tokens  DOUBLE  | Tokens lost for want of room in the tier; NULL where not said.
-- check:  restored_tokens >= 0 | A count.
with counters as (
    select
        engine,
        'tier_counter' as method,
        2 as rung,
        sum(delta) filter (where signal = 'tier_restored_tokens') as restored_tokens,
        sum(delta) filter (where signal = 'tier_stored_tokens') as stored_tokens,
        sum(delta) filter (where signal = 'tier_dropped_tokens') as dropped_tokens,
    from core.counter_intervals
    -- a hybrid model's other pools move with the KV pool: their tokens are the same ones
    where is_of_kv_pool(labels)
    group by engine
),

log_lines as (
    select
        engine,
        'tier_log' as method,
        3 as rung,
        sum(count) filter (where event = 'kv_restored')::double as restored_tokens,
        sum(count) filter (where event = 'kv_offloaded')::double as stored_tokens,
        sum(count) filter (where event = 'kv_dropped')::double as dropped_tokens,
    from staging.engine_events
    where event in ('kv_restored', 'kv_offloaded', 'kv_dropped')
    group by engine
)

select engine, method, rung, restored_tokens, stored_tokens, dropped_tokens,
from (
    from counters
    union all by name
    from log_lines
)
where restored_tokens is not null
order by engine, rung
