-- Results that belong to a sweep: the same client and model (and name of stages), at two or more levels of concurrency or of request rate.
--
-- What varies is taken for the level: the limit of requests in flight, else the offered rate (of two that vary, the one with more
-- values). Nothing names the levels; they are in the results. Clients of different load that ran at the same time are no levels: the engine
-- had the sum of them. What an engine counts of a level may come a scrape late, so that a
-- level's count runs on to the next level's start, at most fifteen seconds.
--
-- grain: source, run_index
-- column: source       | Input the result was read from.
-- column: source_file  | Its file name alone.
-- column: run_index    | Result object within the file.
-- column: client       | Load generator.
-- column: sweep        | Name of the sweep it belongs to: of its stages' files, else of client and model.
-- column: dimension    | concurrency or rate: what was raised.
-- column: level        | Its value: requests in flight at most, or requests per second offered.
-- column: window_start | First request sent; NULL where the result has no times.
-- column: window_end   | End of the result.
-- column: counted_until | Until when counters are taken for this level's.
-- column: duration_s   | Duration the client measured.
-- column: completed    | Requests completed.
-- column: failed       | Requests failed; NULL where not said.
-- check:  level > 0 | A level is an amount of load.
with named as (
    select *, coalesce(nullif(regexp_extract(source, '^(.*?)[_/]*stage_[0-9]+_', 1), ''), concat_ws(' ', client, model)) as sweep,
    from staging.client_runs
    where client is distinct from 'inference_perf_prometheus'
        -- one that sent nothing measured no level; one whose requests all failed did
        and not coalesce(completed + coalesce(failed, 0) = 0, false)
),

-- beyond what their clocks may be off by, and a moment for the last answers
apart as (
    select runs.*
    from named as runs
    anti join named as others
        on others.client is not distinct from runs.client
        and others.sweep is not distinct from runs.sweep
        and (others.max_concurrency is distinct from runs.max_concurrency or others.request_rate is distinct from runs.request_rate)
        and overlap_s(runs.started_at, runs.ended_at, others.started_at, others.ended_at)
            > 0.1 * least(runs.duration_s, others.duration_s) + coalesce(runs.clock_error_s, 0) + coalesce(others.clock_error_s, 0)
),

runs as (
    select
        *,
        count(distinct max_concurrency) over load as concurrencies,
        count(distinct request_rate) over load as rates,
    from apart
    window load as (partition by client, sweep)
),

levels as (
    select
        *,
        case
            when concurrencies >= 2 and concurrencies >= rates then 'concurrency'
            when rates >= 2 then 'rate'
        end as dimension,
        case dimension when 'concurrency' then max_concurrency::double when 'rate' then request_rate end as level,
    from runs
),

followed as (
    select *, min(started_at) over (order by started_at range between interval 1 microsecond following and unbounded following) as next_at,
    from levels
    where level > 0
)

select
    source,
    source_file,
    run_index,
    client,
    sweep,
    dimension,
    level,
    started_at as window_start,
    ended_at as window_end,
    case
        when ended_at is null then null
        else greatest(ended_at, least(plus_seconds(ended_at, 15), coalesce(next_at, plus_seconds(ended_at, 15))))
    end as counted_until,
    duration_s,
    completed,
    failed,
from followed
order by sweep, dimension, level, source, run_index
