-- Each engine's day against its last weeks: which of its figures are outside what they have been.
--
-- What is usual is the median of the days before, give or take three of their (scaled) median absolute deviations, a tenth of the
-- median, or a floor below which nobody cares, whichever is widest. It takes five days to know what is usual.
--
-- grain: day, run, engine, measure
-- column: day         DATE    | The day.
-- column: run         VARCHAR | Engine, by its name in the configuration.
-- column: engine      VARCHAR | Rank within it.
-- column: measure     VARCHAR | A column of fleet.engine_days; a day that does not have it has no row.
-- column: value       DOUBLE  | The day's.
-- column: usual       DOUBLE  | Median of the days before; NULL for fewer than five.
-- column: usual_low   DOUBLE  | Least that is usual.
-- column: usual_high  DOUBLE  | Most that is usual.
-- column: days_before BIGINT  | Days it was compared with.
-- column: is_unusual  BOOLEAN | Whether it is outside; NULL where what is usual is not known.
-- column: is_workload BOOLEAN | Whether it says what was asked of the engine, rather than how it did.
-- check:  usual_low <= usual_high | A range.
with measures as (
    from (values
        ('severity', 10.0, false),
        ('pressure_hours', 0.25, false),
        ('preemptions_best', 10.0, false),
        ('recompute_share_best', 0.01, false),
        ('wasted_gpu_seconds_best', 60.0, false),
        ('queue_seconds', 60.0, false),
        ('ttft_p50_s', 0.05, false),
        ('itl_p99_s', 0.02, false),
        ('prompt_tokens', 1000.0, true),
        ('generation_tokens', 1000.0, true),
        ('mean_running', 1.0, true)
    ) as measures(measure, floor, is_workload)
),

all_days as (
    from fleet.engine_days
    union all by name
    from history.engine_days
),

-- one row a figure; a NULL has none
told as (
    unpivot (
        select
            day,
            run,
            engine,
            severity::double as severity,
            pressure_hours::double as pressure_hours,
            preemptions_best::double as preemptions_best,
            recompute_share_best::double as recompute_share_best,
            wasted_gpu_seconds_best::double as wasted_gpu_seconds_best,
            queue_seconds::double as queue_seconds,
            ttft_p50_s::double as ttft_p50_s,
            itl_p99_s::double as itl_p99_s,
            prompt_tokens::double as prompt_tokens,
            generation_tokens::double as generation_tokens,
            mean_running::double as mean_running,
        from all_days
    ) on columns(* exclude (day, run, engine)) into name measure value value
),

usual as (
    select
        run,
        engine,
        measure,
        count(*) as days_before,
        median(value) as usual,
        1.4826 * mad(value) as deviation, -- of a normal distribution, one standard deviation
    from told
    where day < getvariable('day')::date
    group by all
)

select
    told.day,
    told.run,
    told.engine,
    told.measure,
    told.value,
    case when days_before >= 5 then usual end as usual,
    case when days_before >= 5 then at_least_zero(usual - greatest(3 * deviation, 0.1 * usual, measures.floor)) end as usual_low,
    case when days_before >= 5 then usual + greatest(3 * deviation, 0.1 * usual, measures.floor) end as usual_high,
    coalesce(days_before, 0) as days_before,
    told.value not between usual_low and usual_high as is_unusual,
    measures.is_workload,
from told
inner join measures using (measure)
left join usual using (run, engine, measure)
where told.day = getvariable('day')::date
order by told.run, told.engine, told.measure
