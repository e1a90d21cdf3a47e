-- The few quantities that more than one kind of source observes, as curves over each source's own time, summed over its engines:
-- what lets one clock be laid over another.
--
-- Running, waiting and KV usage are told by statistics lines and by gauges; finished requests, first tokens and prompt tokens by counters
-- and by a client's results (those are read there, request by request).
--
-- grain: source, name, utc_at, local_at
-- needs: raw.engine_samples or raw.metric_samples
-- column: source   VARCHAR     | Input it was read from.
-- column: name     VARCHAR     | running, waiting, kv_usage_ratio, finished, first_tokens or prompt_tokens; the last three are cumulative.
-- column: utc_at   TIMESTAMPTZ | Absolute time of the sample; NULL where it has a stamp without a zone.
-- column: local_at TIMESTAMP   | That stamp.
-- column: value    DOUBLE      | The quantity over all engines of the source.
-- column: is_log   BOOLEAN     | Whether statistics lines say it.
with curves as (
    select
        metric,
        case split_part(if(suffix(spelled, '_total'), left(spelled, -6), spelled), ':', 2)
            when 'num_requests_running' then 'running'
            when 'num_running_reqs' then 'running'
            when 'num_requests_waiting' then 'waiting'
            when 'num_queue_reqs' then 'waiting'
            when 'request_success' then 'finished'
            when 'num_requests' then 'finished'
            when 'time_to_first_token_seconds_count' then 'first_tokens'
            when 'prompt_tokens' then 'prompt_tokens'
            when 'kv_cache_usage_perc' then 'kv_usage_ratio'
            when 'gpu_cache_usage_perc' then 'kv_usage_ratio'
            when 'token_usage' then 'kv_usage_ratio'
        end as name,
    -- any_value: what is asked of a name is asked once, and not of each of its samples
    from (select name as metric, any_value(name) as spelled from raw.metric_samples where le is null group by name)
    where name is not null
),

samples as (
    select source, 'running' as name, at_utc, at_local, running::double as value, true as is_log from raw.engine_samples
    union all
    select source, 'waiting', at_utc, at_local, waiting::double, true from raw.engine_samples
    union all
    select source, 'kv_usage_ratio', at_utc, at_local, kv_usage_ratio, true from raw.engine_samples
    union all
    select samples.source, curves.name, samples.at_utc, null, samples.value, false
    from raw.metric_samples as samples
    inner join curves on curves.metric = samples.name
    where samples.at_utc is not null and samples.le is null
)

select source, name, at_utc as utc_at, at_local as local_at, sum(value) as value, is_log,
from samples
where value is not null and (at_utc is not null or at_local is not null)
group by all
order by source, name, utc_at nulls first, local_at nulls first
