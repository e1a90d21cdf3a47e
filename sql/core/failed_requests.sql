-- Requests that failed because the KV pool had no room for them: not delayed, not preempted, but lost.
--
-- llama.cpp has no preemption: a full pool fails every request that runs, and no metric of it counts them. SGLang fails the last
-- request that is left when retracting all others did not help. Told by the server's log; where only its answers were kept, by
-- these, which carry no time.
--
-- grain: engine, failed_at
-- needs: staging.engine_events
-- column: engine      VARCHAR     | Engine.
-- column: failed_at   TIMESTAMPTZ | When they failed; NULL where only answers tell.
-- column: requests    BIGINT      | Requests that failed then.
-- column: of_requests BIGINT      | Requests the same inputs saw begin or answered over the whole run; NULL where they do not say.
-- check:  requests > 0 | A moment without failures has no row.
with events as (
    select engine, event, happened_at, coalesce(count, 1) as requests
    from staging.engine_events
    where event in ('request_failed_no_kv', 'answer_failed_no_kv')
),

begun as (
    select count(distinct request_id) as requests
    from staging.request_lines
    where event in ('started', 'received')
    having count(distinct request_id) > 0
),

answered as (
    select count(*) as requests
    from staging.spans
    where arrived_at is null
)

select
    events.engine,
    events.happened_at as failed_at,
    sum(events.requests)::bigint as requests,
    case
        when any_value(events.event) = 'request_failed_no_kv' then any_value(begun.requests)
        else any_value(answered.requests) + sum(sum(events.requests)) over (partition by events.engine)
    end::bigint as of_requests,
from events
left join begun on true
cross join answered
-- an answer and a line are of the same request
where events.event = 'request_failed_no_kv' or events.engine not in (select engine from events where event = 'request_failed_no_kv')
group by events.engine, events.happened_at
order by events.engine, failed_at
