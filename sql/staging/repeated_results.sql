-- Results whose requests are in other results beside them, too: a sum over stages that are here one by one, a list of all requests.
--
-- inference-perf writes a run three times: stage by stage, as a sum, and request by request. Of those that were given the telling with the
-- most requests counts, stages before the others (they have the levels); the rest say the same again.
--
-- grain: source
-- needs: raw.bench_runs
-- column: source     VARCHAR | Result whose requests are counted elsewhere.
-- column: requests   BIGINT  | Requests in it.
-- column: held_in    VARCHAR | First of the results that count.
-- column: held_again BIGINT  | Requests of all those that count; as many as here, or more.
-- check:  held_again >= requests | What counts holds at least as many.
with results as (
    select
        runs.source,
        regexp_extract(runs.source, '^(.*?)(stage_[0-9]+|summary|per_request)_lifecycle_metrics[^/]*$', ['run', 'telling']) as named,
        coalesce(max(listed.requests), sum(runs.completed + coalesce(runs.failed, 0))) as requests,
    from raw.bench_runs as runs
    left join (select source, count(*) as requests from raw.bench_requests group by source) as listed using (source)
    where runs.client = 'inference_perf'
    group by runs.source
),

told as (
    select source, requests, named.run as run, regexp_replace(named.telling, '_[0-9]+', '') as telling,
    from results
    where named.telling <> ''
),

tellings as (
    select run, telling, min(source) as held_in, sum(requests) as held_again from told group by run, telling
),

counted as (
    from tellings
    qualify row_number() over (partition by run order by held_again desc nulls last, telling = 'stage' desc, telling) = 1
)

select
    told.source,
    told.requests::bigint as requests,
    counted.held_in,
    counted.held_again::bigint as held_again,
from told
inner join counted using (run)
where told.telling <> counted.telling
order by told.source
