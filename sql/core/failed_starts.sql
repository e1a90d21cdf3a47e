-- Engines that began to start and were never seen to serve: why, as far as their logs say.
--
-- A log that ends before the engine was ready may have been taken while it still started, or its process was killed, which writes nothing:
-- then there is no cause. Where several lines name one, the nearest to the memory that was missing is it: what failed because of it says less.
--
-- grain: engine
-- needs: core.seen_engines
-- needs: staging.engine_events
-- column: engine     VARCHAR     | Engine.
-- column: started_at TIMESTAMPTZ | First line of its last start.
-- column: ended_at   TIMESTAMPTZ | Last line of the log; NULL where none carries a time.
-- column: cause      VARCHAR     | kv_too_small, slots_beyond_pool, no_kv_memory, memory_taken, out_of_memory or failed (a cause that is not known here); NULL where no line says one.
-- column: source     VARCHAR     | Input that says it, or that ends.
-- column: line       BIGINT      | Line that says it, or the last one.
-- column: fits       BIGINT      | What the engine says would fit: of kv_too_small the longest sequence in tokens, of slots_beyond_pool the requests at once.
with lines as (
    select seen.engine, events.source, events.line, events.happened_at, events.event, events.count
    from (select engine, unnest(names_of_engine(engine)) as said_of from core.seen_engines) as seen
    inner join staging.engine_events as events on events.engine = seen.said_of
    where seen.engine not in (select engine from core.engine_states)
),

starts as (
    select engine, arg_max(source, (happened_at, source, line)) as source, arg_max(line, (happened_at, source, line)) as line
    from lines
    where event = 'engine_start'
    group by engine
),

since as (
    select lines.*
    from lines
    left join starts using (engine)
    where starts.engine is null or lines.source <> starts.source or lines.line >= starts.line
),

causes(event, cause, nearness) as (
    values
        ('start_kv_too_small', 'kv_too_small', 1),
        ('start_slots_beyond_pool', 'slots_beyond_pool', 2),
        ('start_no_kv_memory', 'no_kv_memory', 3),
        ('start_memory_taken', 'memory_taken', 4),
        ('engine_failure', 'out_of_memory', 5),
        ('start_failed', 'failed', 6),
        ('engine_dead', 'failed', 7)
),

told as (
    select since.engine, causes.cause, since.source, since.line, max(since.count) over (partition by since.engine, causes.cause) as fits
    from since
    inner join causes using (event)
    qualify row_number() over (partition by since.engine order by causes.nearness, since.source, since.line) = 1
),

ends as (
    select engine, max(happened_at) as ended_at, arg_max(source, happened_at) as source, arg_max(line, happened_at) as line
    from since
    group by engine
)

select
    seen.engine,
    coalesce(lives.started_at, seen.first_seen_at) as started_at,
    ends.ended_at,
    told.cause,
    coalesce(told.source, ends.source) as source,
    coalesce(told.line, ends.line) as line,
    told.fits,
from core.seen_engines as seen
inner join ends using (engine)
left join starts using (engine)
left join told using (engine)
left join (
    select engine, arg_max(life_start, life) as started_at from core.engine_lives group by engine
) as lives using (engine)
where (starts.engine is not null or told.cause is not null)
    -- one that was ready, or that was sent requests, served: its log has no statistics lines
    and not exists (from since where since.engine = seen.engine and since.event in ('engine_ready', 'engine_shutdown'))
    and not exists (from staging.request_lines where list_contains(names_of_engine(seen.engine), request_lines.engine))
    and not exists (from staging.spans)
    and not exists (from staging.iteration_steps)
order by seen.engine
