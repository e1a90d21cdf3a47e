-- What an engine of which one metrics page is there, or pages without a time, had counted by then since it started.
--
-- grain: engine, started_at
-- needs: core.untimed_pages or staging.metric_samples
-- needs: core.engine_states or core.untimed_pages
-- column: engine          VARCHAR     | Engine.
-- column: preemptions     DOUBLE      | Preemptions counted.
-- column: finished        DOUBLE      | Requests finished.
-- column: queued_s        DOUBLE      | Time that requests waited in all.
-- column: queued_requests DOUBLE      | Requests whose wait was counted.
-- column: started_at      TIMESTAMPTZ | Since when, as its process says; NULL where not exported.
with scraped_once as (
    select engine, min(sampled_at) as sampled_at
    from core.engine_states
    where origin = 'metrics'
    group by engine
    having count(distinct sampled_at) = 1
)

select
    scraped_once.engine,
    sum(samples.value) filter (where signals.signal = 'preemptions') as preemptions,
    sum(samples.value) filter (where signals.signal = 'finished') as finished,
    sum(samples.value) filter (where signals.signal = 'queue_s' and suffix(samples.name, '_sum')) as queued_s,
    sum(samples.value) filter (where signals.signal = 'queue_s' and suffix(samples.name, '_count')) as queued_requests,
    make_timestamptz((max(samples.value) filter (where signals.signal = 'process_start_epoch_s') * 1e6)::bigint) as started_at,
from scraped_once
inner join staging.metric_samples as samples
    on samples.sampled_at = scraped_once.sampled_at
    and list_contains(names_of_engine(scraped_once.engine), samples.engine)
inner join signals() as signals on samples.name in (signals.name, concat(signals.name, '_sum'), concat(signals.name, '_count'))
where signals.signal in ('preemptions', 'finished', 'queue_s', 'process_start_epoch_s')
group by scraped_once.engine
union all by name
select engine, preemptions, finished, queued_s, queued_requests, started_at
from core.untimed_pages
qualify row_number() over (partition by engine order by generation_tokens desc nulls last, source, page) = 1
order by engine
