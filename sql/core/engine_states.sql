-- The load of each engine at each instant it was observed: from its metrics where they were recorded, else from its log.
--
-- Where the metrics stop, have a hole or begin late, the log tells what lies there; metrics that never say how many ran or waited leave all
-- of it to the log. SGLang's gauges only repeat its last batch line, late: its log goes before them. A hybrid model has several pools; the
-- fullest of them is the one that binds. A usage that reads 0 throughout although requests run was never measured, and is NULL.
--
-- A sample stands for the time to the next one, at most three usual steps of its origin (a longer silence is a hole, not a state), and not
-- beyond the end of its engine, or the start of the next, where a log has it; a lone one is an instant, and stands for no time.
--
-- grain: engine, sampled_at
-- needs: staging.engine_samples or staging.metric_samples
-- column: engine         VARCHAR     | Engine observed.
-- column: sampled_at     TIMESTAMPTZ | Instant of the scrape or line.
-- column: running        BIGINT      | Requests in the running batch.
-- column: waiting        BIGINT      | Requests waiting; preempted and deferred ones are among them.
-- column: deferred       BIGINT      | Waiting ones that capacity alone would not admit; NULL where not exported.
-- column: kv_usage_ratio DOUBLE      | Share of the KV pool held by active requests; NULL where not exported, or never measured.
-- column: is_usage_blind BOOLEAN     | Whether its usage was told, but never measured.
-- column: origin         VARCHAR     | metrics or log.
-- column: scrape_s       DOUBLE      | Seconds this sample stands for; 0 for a lone one.
-- check:  scrape_s >= 0 | Samples are in order.
with logged as (
    select engine from staging.engine_samples where running is not null and sampled_at is not null group by engine
),

-- of whose load only the log speaks
loadless as (
    select metric_samples.engine
    from staging.metric_samples
    inner join signals() as signals using (name)
    where signals.kind = 'gauge' and metric_samples.engine in (select engine from logged)
    group by metric_samples.engine
    having bool_and(signals.signal not in ('running', 'waiting') or metric_samples.name like 'sglang:%')
),

gauges as (
    select
        metric_samples.engine,
        metric_samples.sampled_at,
        signals.signal,
        arg_min(metric_samples.value * signals.factor, signals.preferred) as value,
        bool_or(metric_samples.name like 'sglang:%') as is_rounded,
    from staging.metric_samples
    inner join signals() as signals using (name)
    where signals.kind = 'gauge'
        and within_window(metric_samples.sampled_at)
        and metric_samples.engine not in (select engine from loadless)
    group by all
),

deferred as (
    select engine, sampled_at, sum(value) as deferred
    from staging.metric_samples
    inner join signals() as signals using (name)
    where signal = 'waiting_by_reason' and labels like '%reason=deferred%' and within_window(sampled_at)
    group by all
),

from_metrics as (
    select
        gauges.engine,
        gauges.sampled_at,
        max(value) filter (where signal = 'running') as running,
        max(value) filter (where signal = 'waiting') as waiting,
        any_value(deferred.deferred) as deferred,
        max(value) filter (where signal = 'kv_usage_ratio') as kv_usage_ratio,
        bool_or(is_rounded) as is_usage_rounded,
        'metrics' as origin,
    from gauges
    left join deferred using (engine, sampled_at)
    where signal in ('running', 'waiting', 'kv_usage_ratio')
    group by gauges.engine, gauges.sampled_at
),

from_log as (
    select
        engine,
        sampled_at,
        max(running) as running,
        max(waiting) as waiting,
        max(deferred) as deferred,
        max(greatest(kv_usage_ratio, swa_usage_ratio, mamba_usage_ratio)) as kv_usage_ratio,
        true as is_usage_rounded,
        max(kv_used_tokens) as kv_used_tokens,
        'log' as origin,
    from staging.engine_samples
    where running is not null and sampled_at is not null
    group by engine, sampled_at
),

scraped as (
    select engine, coalesce(median(step_s), 0) as step_s -- a lone one speaks for no time
    from (
        select engine, seconds_between(lag(sampled_at) over (partition by engine order by sampled_at), sampled_at) as step_s from from_metrics
    )
    group by engine
),

-- of the log what lies further from every scrape than a scrape speaks for
in_holes as (
    select from_log.*
    from from_log
    left join scraped using (engine)
    asof left join from_metrics as before on before.engine = from_log.engine and before.sampled_at <= from_log.sampled_at
    asof left join from_metrics as after on after.engine = from_log.engine and after.sampled_at >= from_log.sampled_at
    where coalesce(seconds_between(before.sampled_at, from_log.sampled_at) > 3 * scraped.step_s, true)
        and coalesce(seconds_between(from_log.sampled_at, after.sampled_at) > 3 * scraped.step_s, true)
),

observed as (
    from from_metrics
    union all by name
    from in_holes
),

blind as (
    select engine
    from observed
    where kv_usage_ratio is not null
    group by engine
    having is_never_measured(max(kv_usage_ratio), max(running), bool_or(is_usage_rounded)) and coalesce(max(kv_used_tokens), 0) = 0
),

ended as (
    select named.engine, events.happened_at as ended_at
    from (select distinct engine, unnest(names_of_engine(engine)) as said_of from observed) as named
    inner join staging.engine_events as events on events.engine = named.said_of
    where events.event in ('engine_shutdown', 'engine_dead', 'engine_failure', 'engine_start')
),

stepped as (
    select
        observed.*,
        seconds_between(sampled_at, lead(sampled_at) over (partition by observed.engine order by sampled_at)) as step_s,
        seconds_between(sampled_at, ended.ended_at) as left_s,
    from observed
    asof left join ended on ended.engine = observed.engine and ended.ended_at > observed.sampled_at
),

usual as (
    select engine, origin, median(step_s) as step_s from stepped group by engine, origin
)

select
    stepped.engine,
    stepped.sampled_at,
    stepped.running::bigint as running,
    stepped.waiting::bigint as waiting,
    stepped.deferred::bigint as deferred,
    if(blind.engine is null, stepped.kv_usage_ratio, null) as kv_usage_ratio,
    blind.engine is not null as is_usage_blind,
    stepped.origin,
    -- the last one for a usual step: least() passes over a NULL
    coalesce(least(if(stepped.step_s is null, usual.step_s, least(stepped.step_s, 3 * usual.step_s)), stepped.left_s), 0) as scrape_s,
from stepped
left join usual using (engine, origin)
left join blind using (engine)
order by engine, sampled_at
