-- What a load generator itself sums up of each result, in our units: the one place where clients' names for their sums are known.
--
-- Some results hold nothing else: a sweep table with one line a level, the stages of a run. A report of server metrics that lies
-- beside a stage is joined to it by name. A column of such reports that is zero in every stage although requests ran was never
-- exported (its query asks for a metric that the server does not have): it is NULL here, and `unexported` names it.
--
-- grain: source, run_index
-- needs: staging.client_runs
-- column: source              VARCHAR     | Input it was read from.
-- column: run_index           BIGINT      | Result object within the file.
-- column: client              VARCHAR     | Load generator.
-- column: started_at          TIMESTAMPTZ | First request sent; NULL where the result has no times.
-- column: duration_s          DOUBLE      | Duration the client measured.
-- column: max_concurrency     BIGINT      | Limit of requests in flight; NULL where unlimited.
-- column: request_rate        DOUBLE      | Offered rate; NULL where unlimited.
-- column: completed           BIGINT      | Requests completed.
-- column: failed              BIGINT      | Requests failed; NULL where not said.
-- column: ttft_p50_s          DOUBLE      | Median time to first token.
-- column: ttft_p99_s          DOUBLE      | 99th percentile of it.
-- column: itl_p50_s           DOUBLE      | Median time between tokens or chunks; of tokens per request on average, where only that is told.
-- column: itl_p99_s           DOUBLE      | 99th percentile of it.
-- column: longest_gap_s       DOUBLE      | Longest time between two chunks; its 99th percentile over requests, where only that is told.
-- column: output_tokens_per_s DOUBLE      | Generated tokens per second.
-- column: requests_per_s      DOUBLE      | Requests completed per second.
-- column: goodput_per_s       DOUBLE      | Requests per second that met the client's own target.
-- column: kv_usage_ratio      DOUBLE      | Highest KV usage it reports; NULL where never exported.
-- column: preemptions         DOUBLE      | Preemptions or retractions it reports.
-- column: waiting             DOUBLE      | Requests waiting, on average.
-- column: most_running        DOUBLE      | Most requests that ran at once.
-- column: most_waiting        DOUBLE      | Most requests that waited at once.
-- column: offered_rate        DOUBLE      | Requests per second it meant to send.
-- column: sent_rate           DOUBLE      | Requests per second it did send.
-- column: engine_kind         VARCHAR     | Engine in whose words it sums up what the server exports; NULL where in nobody's.
-- column: unexported          VARCHAR[]   | Reported quantities that are zero throughout, and were never exported.
with numbers as (
    select source, run_index, client, unnest(json_keys(aggregates)) as key, aggregates
    from staging.client_runs
    where aggregates is not null
),

told as (
    select
        source,
        run_index,
        client,
        names.quantity,
        names.preferred,
        names.engine_kind,
        try_cast(json_extract_string(aggregates, concat('$."', key, '"')) as double) * names.factor as value,
    from numbers
    inner join client_sum_names() as names using (key)
),

best as (
    select source, run_index, client, quantity, arg_min(value, preferred) as value, any_value(engine_kind) as engine_kind
    from told
    where value is not null
    group by all
),

-- stage_3_prometheus_metrics.json lies beside stage_3_lifecycle_metrics.json, and says of the server what that says of requests
attached as (
    select if(client = 'inference_perf_prometheus', replace(source, 'prometheus_metrics', 'lifecycle_metrics'), source) as source,
        run_index, quantity, value, engine_kind, client = 'inference_perf_prometheus' as is_report
    from best
),

zeros as (
    select regexp_replace(source, '[0-9]+', '#', 'g') as family, quantity
    from attached
    where is_report and quantity in ('kv_usage_ratio', 'preemptions')
    group by all
    having max(abs(value)) = 0
),

kept as (
    select
        attached.*,
        -- preemptions of zero are taken for told only where the same reports show a pool in use
        zeros.quantity is not null and family_is_blind.family is not null as is_unexported,
    from attached
    left join zeros on zeros.family = regexp_replace(attached.source, '[0-9]+', '#', 'g') and zeros.quantity = attached.quantity
        and attached.is_report
    left join (from zeros where quantity = 'kv_usage_ratio') as family_is_blind
        on family_is_blind.family = regexp_replace(attached.source, '[0-9]+', '#', 'g') and attached.is_report
)

select
    runs.source,
    runs.run_index,
    any_value(runs.client) as client,
    any_value(runs.started_at) as started_at,
    any_value(runs.duration_s) as duration_s,
    any_value(runs.max_concurrency) as max_concurrency,
    any_value(runs.request_rate) as request_rate,
    any_value(runs.completed) as completed,
    any_value(runs.failed) as failed,
    max(value) filter (where quantity = 'ttft_p50_s') as ttft_p50_s,
    max(value) filter (where quantity = 'ttft_p99_s') as ttft_p99_s,
    max(value) filter (where quantity = 'itl_p50_s') as itl_p50_s,
    max(value) filter (where quantity = 'itl_p99_s') as itl_p99_s,
    max(value) filter (where quantity = 'longest_gap_s') as longest_gap_s,
    max(value) filter (where quantity = 'output_tokens_per_s') as output_tokens_per_s,
    max(value) filter (where quantity = 'requests_per_s') as requests_per_s,
    max(value) filter (where quantity = 'goodput_per_s') as goodput_per_s,
    max(value) filter (where quantity = 'kv_usage_ratio' and not is_unexported) as kv_usage_ratio,
    max(value) filter (where quantity = 'preemptions' and not is_unexported) as preemptions,
    max(value) filter (where quantity = 'waiting') as waiting,
    max(value) filter (where quantity = 'most_running') as most_running,
    max(value) filter (where quantity = 'most_waiting') as most_waiting,
    max(value) filter (where quantity = 'offered_rate') as offered_rate,
    max(value) filter (where quantity = 'sent_rate') as sent_rate,
    case when count(distinct engine_kind) = 1 then any_value(engine_kind) end as engine_kind,
    list(distinct quantity order by quantity) filter (where is_unexported) as unexported,
from staging.client_runs as runs
left join kept using (source, run_index)
where runs.client is distinct from 'inference_perf_prometheus'
group by runs.source, runs.run_index
order by runs.source, runs.run_index
