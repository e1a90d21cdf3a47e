-- What to know of the clients' results before trusting the answer: what failed, and what each client does not write.
--
-- grain: source, flag
-- needs: core.client_sums or staging.client_requests or staging.client_runs or staging.repeated_results
-- column: source   VARCHAR | Input, or engine, it is about.
-- column: flag     VARCHAR | Short name of the condition.
-- column: severity VARCHAR | info, warning or error.
-- column: count    BIGINT  | How many lines, samples, requests or seconds it concerns.
-- column: detail   VARCHAR | One sentence with the numbers.
with repeated_results as (
    select
        source,
        'requests_repeated' as flag,
        'info' as severity,
        requests as count,
        format('Its {:,} requests are in {} and those beside it, too; they are counted once.', requests, held_in) as detail,
    from staging.repeated_results
),

failures as (
    select
        source,
        'failed_requests' as flag,
        'warning' as severity,
        count(*) as count,
        format('{} of the client''s requests failed; a request the client gave up on enters no histogram of the engine.', count(*)) as detail,
    from staging.client_requests
    where is_failed
    group by source
),

silent_reports as (
    select
        source,
        'kv_usage_never_exported' as flag,
        'warning' as severity,
        1 as count,
        'Its report shows KV usage as 0 in every stage although requests ran: taken as never exported, as is its count of preemptions.'
            as detail,
    from core.client_sums
    where list_contains(unexported, 'kv_usage_ratio')
),

clients as (
    select
        runs.source,
        max(runs.client) as client,
        count(distinct runs.run_index) as results,
        bool_and(coalesce(runs.completed, 1) = 0) as completed_none,
        max(runs.max_concurrency) as max_concurrency,
        max(ratio(runs.completed, runs.duration_s)) as achieved_rate,
        max(runs.request_rate) as request_rate,
        sum(runs.completed) as completed,
    from staging.client_runs as runs
    where runs.client is distinct from 'inference_perf_prometheus'
    group by runs.source
),

asked as (
    select
        source,
        count(*) as requests,
        count(sent_at) as sent,
        count(client_queue_s) as queued,
        count(*) filter (where not coalesce(is_failed, false)) as completed,
        count(*) filter (where gap_kind = 'smoothed_token') as smoothed,
        count(gaps_s) as with_gaps,
        count(ttft_s) as with_first_token,
    from staging.client_requests
    group by source
),

client_limits as (
    select
        clients.source,
        unnest([
            {
                flag: 'no_arrival_times', severity: 'warning', count: asked.requests, holds: asked.sent = 0,
                detail: format('{} does not write when a request was sent: its {} requests are in no interval of the timeline, and none of their pauses is laid beside what the engine did.', clients.client, asked.requests)
            },
            {
                flag: 'gaps_smoothed', severity: 'warning', count: asked.smoothed, holds: asked.smoothed > 0,
                detail: format('{} divides the wait for a chunk by its tokens in {} requests: a pause looks like several short ones, so the longest ones are longer than they look.', clients.client, asked.smoothed)
            },
            {
                flag: 'gaps_not_kept', severity: 'info', count: asked.requests, holds: asked.with_gaps = 0 and asked.with_first_token > 0,
                detail: format('{} keeps the first and the last token only: pauses within an answer, and so preempted requests, cannot be seen in it.', clients.client)
            },
            {
                flag: 'client_queue_hidden', severity: 'warning', count: clients.max_concurrency, holds: clients.max_concurrency > 0 and asked.queued = 0,
                detail: format('It had at most {} requests in flight and does not say how long others were held back: its users waited longer than its times to first token.', clients.max_concurrency)
            },
            {
                flag: 'zeros_without_requests', severity: 'warning', count: clients.results, holds: clients.completed_none,
                detail: 'None of its requests completed: the zeros that it sums up are no measurements, and are not used.'
            },
            {
                flag: 'requests_left_out', severity: 'info', count: clients.completed - coalesce(asked.requests, 0), holds: clients.completed > coalesce(asked.requests, 0),
                detail: format('It sums up {} requests and holds {} of them: what it says of single requests is of those alone.', clients.completed, coalesce(asked.requests, 0))
            },
            {
                flag: 'client_behind_its_rate', severity: 'warning', count: clients.results, holds: clients.results = 1 and clients.achieved_rate < 0.9 * clients.request_rate,
                detail: format('It meant to send {:.2f} requests per second and completed {:.2f}: either the server or the client itself was at its limit.', clients.request_rate, clients.achieved_rate)
            }
        ], recursive := true),
    from clients
    left join asked using (source)
)

select source, flag, severity, count::bigint as count, detail
from (
    from repeated_results
    union all by name
    from failures
    union all by name
    from silent_reports
    union all by name
    select source, flag, severity, count, detail from client_limits where holds
)
order by source, flag
