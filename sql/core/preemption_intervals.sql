-- Preemptions as they happened: a counter's increase between two scrapes, or the lines of a log that says each one.
--
-- A counter is late and lossy: vLLM V1 counts a preemption with the victim's next output (after its resume, with the synchronous
-- scheduler), and never where the victim was aborted while it waited. SGLang logs every retraction of decode requests to the second
-- (several requests in a line are several preemptions); where its log holds at least as many as its counter, the log answers.
-- SGLang's request records tell whose they were, each between the request's first token and its end. An engine that neither
-- counts nor logs them has no row here.
--
-- grain: engine, interval_end
-- needs: core.counter_intervals or core.engines or staging.engine_events or staging.spans
-- needs: core.counter_intervals or core.engine_states or staging.engine_events or staging.spans
-- column: engine         VARCHAR     | Engine.
-- column: interval_start TIMESTAMPTZ | Scrape before, or the instant logged: the event lies between the two, or a wait earlier.
-- column: interval_end   TIMESTAMPTZ | Scrape that first showed the new value; for a log the next second.
-- column: preemptions    DOUBLE      | Requests preempted in the interval.
-- column: method         VARCHAR     | What told it, as a key of sql/lib/words.sql: one for all of an engine's rows.
-- check:  preemptions >= 0 | A counter that falls is a restart, not a negative event.
-- check:  interval_start < interval_end | Intervals have a length.
with counted as (
    select engine, interval_start, interval_end, sum(delta) as preemptions, 'preemption_counter' as method
    from core.counter_intervals
    where signal = 'preemptions'
    group by all
),

logged as (
    select
        engine,
        date_trunc('second', happened_at) as interval_start,
        plus_seconds(date_trunc('second', happened_at), 1) as interval_end,
        sum(count)::double as preemptions,
        'retraction_log' as method,
    from staging.engine_events
    where event = 'retraction' and happened_at is not null
    group by all
),

from_logs as (
    select logs.engine
    from (select engine, sum(preemptions) as preemptions from logged group by engine) as logs
    left join (select engine, sum(preemptions) as preemptions from counted group by engine) as counters using (engine)
    where counters.preemptions is null or logs.preemptions >= counters.preemptions
),

asked as (
    select samples.engine
    from staging.engine_samples as samples
    inner join raw.sources using (source)
    group by samples.engine
    having bool_and(coalesce(sources.format = 'sglang_api_json', false))
),

-- a log that says each preemption says with its other lines that there was none; llama.cpp has no preemption at all
silent as (
    select
        states.engine,
        min(states.sampled_at) as interval_start,
        max(states.sampled_at) as interval_end,
        0.0 as preemptions,
        if(engines.engine_kind = 'llamacpp', 'no_preemption', 'retraction_log') as method,
    from core.engine_states as states
    inner join core.engines using (engine)
    where states.origin = 'log'
        -- what a server answers when asked for its load is no log of retractions
        and (engines.engine_kind = 'llamacpp' or (engines.engine_kind = 'sglang' and states.engine not in (select engine from asked)))
        and states.engine not in (select engine from logged)
        and states.engine not in (select engine from counted)
    group by states.engine, engines.engine_kind
    having min(states.sampled_at) < max(states.sampled_at)
),

recorded as (
    select
        engine,
        min(coalesce(plus_seconds(arrived_at, ttft_s), arrived_at)) as interval_start,
        ended_at as interval_end,
        sum(preemptions)::double as preemptions,
        'request_records' as method,
    from staging.spans
    where preemptions > 0
        and ended_at > coalesce(plus_seconds(arrived_at, ttft_s), arrived_at)
        and engine not in (select engine from counted)
        and engine not in (select engine from logged)
        and engine not in (select engine from silent)
    group by engine, ended_at
)

select engine, interval_start, interval_end, preemptions, method,
from (
    from counted where engine not in (select engine from from_logs)
    union all by name
    from logged where engine in (select engine from from_logs)
    union all by name
    from silent
    union all by name
    from recorded
)
order by engine, interval_end
