-- Results that belong to a sweep: the same client and model (and name of stages), at two or more levels of concurrency or of request rate.
--
-- What varies is taken for the level: the limit of requests in flight, else the offered rate (of two that vary, the one with more
-- values). Nothing names the levels; they are in the results. Clients of different load that ran at the same time are no levels: the engine
-- had the sum of them. Nor are results whose requests are of other lengths: of prompts or of answers that differ by a quarter on average, and
-- by more than chance does (where lengths are not told one by one, they are taken to spread as widely as their mean). Answers
-- are compared where none failed: what was given up on is not as long as it would have been. What an engine counts of a level may come a scrape late, so that a
-- level's count runs on to the next level's start, at most fifteen seconds.
--
-- grain: source, run_index
-- needs: staging.client_runs
-- column: source        VARCHAR     | Input the result was read from.
-- column: source_file   VARCHAR     | Its file name alone.
-- column: run_index     BIGINT      | Result object within the file.
-- column: client        VARCHAR     | Load generator.
-- column: sweep         VARCHAR     | Name of the sweep it belongs to: of its stages' files, else of client and model; with its lengths, where several loads share that.
-- column: dimension     VARCHAR     | concurrency or rate: what was raised.
-- column: level         DOUBLE      | Its value: requests in flight at most, or requests per second offered.
-- column: window_start  TIMESTAMPTZ | First request sent; NULL where the result has no times.
-- column: window_end    TIMESTAMPTZ | End of the result.
-- column: counted_until TIMESTAMPTZ | Until when counters are taken for this level's.
-- column: duration_s    DOUBLE      | Duration the client measured.
-- column: completed     BIGINT      | Requests completed.
-- column: failed        BIGINT      | Requests failed; NULL where not said.
-- check:  level > 0 | A level is an amount of load.
with named as (
    select *, coalesce(nullif(regexp_extract(source, '^(.*?)[_/]*stage_[0-9]+_', 1), ''), concat_ws(' ', client, model)) as sweep,
    from staging.client_runs
    where client is distinct from 'inference_perf_prometheus'
        -- one that sent nothing measured no level; one whose requests all failed did
        and not coalesce(completed + coalesce(failed, 0) = 0, false)
),

-- how long the requests of each result are: all prompts that were sent, the answers that were complete
asked as (
    select
        source,
        run_index,
        avg(input_tokens) as prompt_mean,
        ratio(var_samp(input_tokens), count(input_tokens)) as prompt_error,
        avg(output_tokens) filter (not coalesce(is_failed, false)) as answer_mean,
        ratio(
            var_samp(output_tokens) filter (not coalesce(is_failed, false)), count(output_tokens) filter (not coalesce(is_failed, false))
        ) as answer_error,
    from staging.client_requests
    group by all
),

lengths as (
    select
        named.source,
        named.run_index,
        named.client,
        named.sweep,
        coalesce(named.failed, 0) as failed,
        -- one whose lengths are not told agrees with all, and is the first of nothing
        row_number() over (
            partition by named.client, named.sweep
            order by mean.of_prompt is null, named.started_at nulls last, named.source, named.run_index
        ) as place,
        mean.of_prompt as prompt_mean,
        mean.of_answer as answer_mean,
        coalesce(asked.prompt_error, ratio(mean.of_prompt ** 2, named.completed)) as prompt_error,
        coalesce(asked.answer_error, ratio(mean.of_answer ** 2, named.completed)) as answer_error,
    from named
    left join asked using (source, run_index)
    cross join lateral (
        select
            coalesce(asked.prompt_mean, ratio(named.total_input_tokens, named.completed)) as of_prompt,
            coalesce(asked.answer_mean, ratio(named.total_output_tokens, named.completed)) as of_answer,
    ) as mean
),

-- a result is of the load of the first that it agrees with
loads as (
    select results.client, results.sweep, results.source, results.run_index, min(firsts.place) as load
    from lengths as results
    inner join lengths as firsts
        on firsts.client is not distinct from results.client and firsts.sweep = results.sweep and firsts.place <= results.place
    where not (
        coalesce(differs(results.prompt_mean, results.prompt_error, firsts.prompt_mean, firsts.prompt_error), false)
        or results.failed + firsts.failed = 0
            and coalesce(differs(results.answer_mean, results.answer_error, firsts.answer_mean, firsts.answer_error), false)
    )
    group by all
),

of_loads as (
    select
        named.* exclude (sweep),
        loads.load,
        named.sweep as shared_name,
        case
            when count(distinct loads.load) over (partition by named.client, named.sweep) = 1 then named.sweep
            else concat_ws(
                ', ',
                named.sweep,
                format('prompts of {} tokens', spoken_roughly(firsts.prompt_mean)),
                format('answers of {}', spoken_roughly(firsts.answer_mean))
            )
        end as sweep,
    from named
    inner join loads using (source, run_index)
    inner join lengths as firsts
        on firsts.client is not distinct from named.client and firsts.sweep = named.sweep and firsts.place = loads.load
),

-- beyond what their clocks may be off by, and a moment for the last answers
apart as (
    select runs.*
    from of_loads as runs
    anti join of_loads as others
        on others.client is not distinct from runs.client
        and others.shared_name is not distinct from runs.shared_name
        and (others.max_concurrency is distinct from runs.max_concurrency or others.request_rate is distinct from runs.request_rate)
        and overlap_s(runs.started_at, runs.ended_at, others.started_at, others.ended_at)
            > 0.1 * least(runs.duration_s, others.duration_s) + coalesce(runs.clock_error_s, 0) + coalesce(others.clock_error_s, 0)
),

runs as (
    select
        *,
        count(distinct max_concurrency) over of_load as concurrencies,
        count(distinct request_rate) over of_load as rates,
    from apart
    window of_load as (partition by client, shared_name, load)
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
