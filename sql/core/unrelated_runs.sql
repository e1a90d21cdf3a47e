-- Runs that have nothing to do with each other, where the inputs are results of several: of each, what its results say of it.
--
-- Inputs of one call are taken for one run. They are not where all they hold is results of clients, and those are of several models: then
-- no engine is among them that all were sent to. Where an engine itself is among the inputs, or no two models are, there is nothing here.
--
-- grain: measured
-- needs: staging.client_runs
-- column: measured   VARCHAR     | What was measured: the model, or the name of the test's files where they say none.
-- column: client     VARCHAR     | The load generators, as their results name them.
-- column: sources    BIGINT      | Results of it.
-- column: names      VARCHAR     | The first of them.
-- column: requests   BIGINT      | Requests that completed; NULL where not said.
-- column: failed     BIGINT      | Requests that failed; NULL where not said.
-- column: tested_s   DOUBLE      | Seconds of load, summed; NULL where not said.
-- column: started_at TIMESTAMPTZ | When the first began; NULL where not said.
-- check:  sources > 0 | There is something of each.
with results as (
    select
        runs.source,
        runs.client,
        runs.model,
        coalesce(runs.model, nullif(regexp_extract(runs.source, '^(.*?)[_/]*stage_[0-9]+_', 1), ''), regexp_replace(runs.source, '/[^/]*$', ''))
            as measured,
        runs.completed,
        runs.failed,
        runs.duration_s,
        runs.started_at,
    from staging.client_runs as runs
    -- what Prometheus knew of a test, and a sum over tests that are here one by one, lie beside it
    where runs.client is distinct from 'inference_perf_prometheus'
        and runs.source not in (select source from staging.repeated_results)
),

engines as (
    select source from raw.engine_samples
    union
    select source from raw.engine_config
    union
    select source from raw.metric_samples
    union
    select source from raw.spans
    union
    select source from raw.kv_events
)

select
    measured,
    string_agg(distinct client, ', ' order by client) as client,
    count(distinct source) as sources,
    min(source) as names,
    sum(completed)::bigint as requests,
    sum(failed)::bigint as failed,
    sum(duration_s) as tested_s,
    min(started_at) as started_at,
from results
where (select count(distinct model) from results) > 1
    and not exists (from engines where source not in (select source from staging.client_runs))
group by measured
order by measured
