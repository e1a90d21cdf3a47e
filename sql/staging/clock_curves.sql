-- The few quantities that more than one kind of source observes, as curves over each source's own time, summed over its engines:
-- what lets one clock be laid over another.
--
-- Running and waiting are told by statistics lines and by gauges; finished requests, first tokens and prompt tokens by counters
-- and by a client's results (those are read there, request by request).
--
-- grain: source, name, utc_at, local_at
-- column: source   | Input it was read from.
-- column: name     | running, waiting, finished, first_tokens or prompt_tokens; the last three are cumulative.
-- column: utc_at   | Absolute time of the sample; NULL where it has a stamp without a zone.
-- column: local_at | That stamp.
-- column: value    | The quantity over all engines of the source.
with samples as (
    select source, 'running' as name, at_utc, at_local, running::double as value from raw.engine_samples
    union all
    select source, 'waiting', at_utc, at_local, waiting::double from raw.engine_samples
    union all
    select
        source,
        case split_part(if(suffix(name, '_total'), left(name, -6), name), ':', 2)
            when 'num_requests_running' then 'running'
            when 'num_running_reqs' then 'running'
            when 'num_requests_waiting' then 'waiting'
            when 'num_queue_reqs' then 'waiting'
            when 'request_success' then 'finished'
            when 'num_requests' then 'finished'
            when 'time_to_first_token_seconds_count' then 'first_tokens'
            when 'prompt_tokens' then 'prompt_tokens'
        end,
        at_utc,
        null,
        value,
    from raw.metric_samples
    where at_utc is not null and le is null
)

select source, name, at_utc as utc_at, at_local as local_at, sum(value) as value,
from samples
where name is not null and value is not null and (at_utc is not null or at_local is not null)
group by all
order by source, name, utc_at nulls first, local_at nulls first
