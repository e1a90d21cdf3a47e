-- What each metrics page without a time says of its engine: its load at that instant, and what it had counted by then.
--
-- grain: engine, source, page
-- needs: staging.untimed_samples
-- column: engine            VARCHAR     | Engine.
-- column: source            VARCHAR     | Input the page was read from.
-- column: page              BIGINT      | Its number within the input, from 1.
-- column: running           BIGINT      | Requests in the running batch; NULL where the page does not say.
-- column: waiting           BIGINT      | Requests waiting.
-- column: deferred          BIGINT      | Waiting ones that capacity alone would not admit; NULL where not exported.
-- column: kv_usage_ratio    DOUBLE      | Share of the KV pool held by active requests; NULL where never measured: 0 although requests run.
-- column: started_at        TIMESTAMPTZ | When the process started; NULL where the page does not say.
-- column: preemptions       BIGINT      | Requests preempted since then.
-- column: finished          BIGINT      | Requests finished since then.
-- column: prompt_tokens     BIGINT      | Prompt tokens since then.
-- column: generation_tokens BIGINT      | Tokens generated since then.
-- column: queued_s          DOUBLE      | Seconds that requests waited before their first run, summed, since then.
-- column: queued_requests   BIGINT      | Requests that this is the sum of.
-- check:  running >= 0 and waiting >= 0 | Counts of requests.
with meant as (
    select name, signal, kind, factor, preferred from signals() where kind in ('gauge', 'counter')
    union all
    select name || '_sum', signal || '_sum', 'counter', factor, preferred from signals() where kind = 'histogram'
    union all
    select name || '_count', signal || '_count', 'counter', 1.0, preferred from signals() where kind = 'histogram'
),

-- of several names for one signal the preferred one; what is counted is counted for each of its labels
told as (
    select
        engine,
        source,
        page,
        signal,
        if(any_value(kind) = 'counter', sum(value), max(value)) as value,
        bool_or(is_rounded) as is_rounded,
    from (
        select
            samples.engine,
            samples.source,
            samples.page,
            meant.signal,
            meant.kind,
            samples.value * meant.factor as value,
            samples.name like 'sglang:%' as is_rounded,
        from staging.untimed_samples as samples
        inner join meant using (name)
        where meant.signal <> 'waiting_by_reason' or samples.labels like '%reason=deferred%'
        qualify meant.preferred = min(meant.preferred) over (partition by samples.engine, samples.source, samples.page, meant.signal)
    )
    group by engine, source, page, signal
),

pages as (
    select
        engine,
        source,
        page,
        max(value) filter (where signal = 'running') as running,
        max(value) filter (where signal = 'waiting') as waiting,
        max(value) filter (where signal = 'waiting_by_reason') as deferred,
        max(value) filter (where signal = 'kv_usage_ratio') as kv_usage_ratio,
        max(value) filter (where signal = 'process_start_epoch_s') as started_s,
        max(value) filter (where signal = 'preemptions') as preemptions,
        max(value) filter (where signal = 'finished') as finished,
        max(value) filter (where signal = 'prompt_tokens') as prompt_tokens,
        max(value) filter (where signal = 'generation_tokens') as generation_tokens,
        max(value) filter (where signal = 'queue_s_sum') as queued_s,
        max(value) filter (where signal = 'queue_s_count') as queued_requests,
        bool_or(is_rounded) as is_rounded,
    from told
    group by engine, source, page
)

-- what a page says of its server as a whole holds for each of its ranks
select
    pages.engine,
    pages.source,
    pages.page,
    pages.running::bigint as running,
    pages.waiting::bigint as waiting,
    pages.deferred::bigint as deferred,
    if(blind.engine is null, pages.kv_usage_ratio, null) as kv_usage_ratio,
    make_timestamptz(try_cast(coalesce(pages.started_s, servers.started_s) * 1e6 as bigint)) as started_at,
    pages.preemptions::bigint as preemptions,
    pages.finished::bigint as finished,
    pages.prompt_tokens::bigint as prompt_tokens,
    pages.generation_tokens::bigint as generation_tokens,
    pages.queued_s,
    pages.queued_requests::bigint as queued_requests,
from pages
left join pages as servers
    on servers.source = pages.source
    and servers.page = pages.page
    and servers.engine in ('*', concat(split_part(pages.engine, '/', 1), '/*'))
left join (
    select engine
    from pages
    where kv_usage_ratio is not null
    group by engine
    having is_never_measured(max(kv_usage_ratio), max(running), bool_or(is_rounded))
) as blind on blind.engine = pages.engine
where pages.running is not null or pages.waiting is not null or pages.kv_usage_ratio is not null
order by pages.engine, pages.source, pages.page
