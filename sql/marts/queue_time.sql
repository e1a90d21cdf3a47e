-- How long requests waited, by what they waited for.
--
-- Wall seconds come from the load samples (each stands for the time to the next); a preempted request that waits again is in
-- them. Request-seconds are the waits before the first run only, as the engine's queue-time histogram or its spans total them,
-- shared out over the causes by the requests that waited for each; NULL where neither was recorded.
--
-- grain: run, engine, cause
-- column: run             | The analyzed run.
-- column: engine          | Engine.
-- column: cause           | max_num_seqs, kv_capacity, token_budget, deferred or unknown.
-- column: seconds         | Wall seconds with a non-empty queue for that cause, preempted requests that wait again included; NULL where one sample alone shows it.
-- column: request_seconds | Seconds waited before the first run, summed over requests.
-- check:  seconds >= 0 | Durations.
with waited as (
    select engine, cause, nullif(sum(scrape_s), 0) as seconds, sum(scrape_s * waiting) as waiting_seconds
    from core.queue_states
    group by all
),

measured as (
    select engine, sum(delta) as request_seconds from core.counter_intervals where signal = 'queue_s_sum' group by engine
    union all
    select engine, sum(queue_s) as request_seconds
    from staging.spans
    where engine not in (select engine from core.counter_intervals where signal = 'queue_s_sum')
    group by engine
)

select
    getvariable('run') as run,
    waited.engine,
    waited.cause,
    waited.seconds,
    measured.request_seconds
        * ratio(waited.waiting_seconds, sum(waited.waiting_seconds) over (partition by waited.engine)) as request_seconds,
from waited
left join measured using (engine)
order by engine, cause
