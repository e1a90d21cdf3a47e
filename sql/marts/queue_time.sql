-- How long requests waited, by what they waited for.
--
-- Wall seconds come from the load samples (each stands for the time to the next); a preempted request that waits again is in
-- them. Request-seconds are the waits before the first run only, as the engine's queue-time histogram or its spans total them,
-- shared out over the causes by the requests that waited for each; NULL where neither was recorded. Where no sample shows who waits, both
-- are of the requests that records tell of, their cause unknown.
--
-- grain: run, engine, cause
-- needs: core.queue_states or staging.spans
-- column: run             VARCHAR | The analyzed run.
-- column: engine          VARCHAR | Engine.
-- column: cause           VARCHAR | max_num_seqs, kv_capacity, token_budget, deferred or unknown.
-- column: seconds         DOUBLE  | Wall seconds with a non-empty queue for that cause, preempted requests that wait again included; NULL where one sample alone shows it.
-- column: request_seconds DOUBLE  | Seconds waited before the first run, summed over requests.
-- check:  seconds >= 0 | Durations.
with recorded as (
    select engine, arrived_at as wait_start, plus_seconds(arrived_at, queue_s) as wait_end, queue_s
    from staging.spans
    where queue_s > 0
        and engine not in (
            select engine from core.engine_states where running is not null or waiting is not null
            union all
            select engine from core.queue_states
        )
),

-- waits that overlap are one time with a queue
in_order as (
    select
        *,
        greatest(
            wait_start,
            coalesce(
                max(wait_end) over (partition by engine order by wait_start, wait_end rows between unbounded preceding and 1 preceding),
                wait_start
            )
        ) as new_from,
    from recorded
),

waited as (
    select engine, cause, nullif(sum(scrape_s), 0) as seconds, sum(scrape_s * waiting) as waiting_seconds
    from core.queue_states
    group by all
    union all
    select engine, 'unknown', sum(at_least_zero(seconds_between(new_from, wait_end))), sum(queue_s)
    from in_order
    group by engine
),

measured as (
    select engine, if(any_value(coalesce(uncounted_to, uncounted_from)) is null, sum(delta), null) as request_seconds
    from core.counter_intervals
    left join core.seen_loads using (engine)
    where signal = 'queue_s_sum'
    group by engine
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
