-- The day of the fleet, and of each group, model and cluster in it.
--
-- Sums of ranges add up the ends: right for what cannot be told, wide where errors would cancel out. An engine whose figure is not
-- known is in no sum; `engines_known` says how many are.
--
-- grain: day, dimension, member
-- column: day                     DATE    | The day.
-- column: dimension               VARCHAR | fleet, group, model or cluster.
-- column: member                  VARCHAR | Which; `all` for the fleet. What has no label is in none.
-- column: engines                 BIGINT  | Engines seen.
-- column: engines_under_pressure  BIGINT  | Of these, those whose verdict is one that costs somebody something (severity 20 and up).
-- column: engines_not_told        BIGINT  | Of these, those whose inputs do not show.
-- column: engines_known           BIGINT  | Of these, those whose GPU time of waste is known, or the most that it was.
-- column: engines_counted         BIGINT  | Of these, those whose preemptions are known.
-- column: pressure_hours          DOUBLE  | Hours under pressure, summed.
-- column: observed_hours          DOUBLE  | Hours observed, summed.
-- column: preemptions_best        DOUBLE  | Expected preemptions, summed.
-- column: recomputed_tokens_low   DOUBLE  | Least tokens processed again after preemption, summed.
-- column: recomputed_tokens_best  DOUBLE  | Expected.
-- column: recomputed_tokens_high  DOUBLE  | Most; NULL where one of them has no bound.
-- column: wasted_gpu_seconds_low  DOUBLE  | Least GPU time wasted on recomputation and refill together, summed.
-- column: wasted_gpu_seconds_best DOUBLE  | Expected; NULL where of one of them only a bound is known.
-- column: wasted_gpu_seconds_high DOUBLE  | Most; NULL where one of them has no bound.
-- column: wasted_cost_best        DOUBLE  | Expected cost of it in USD; NULL without a price, or where of one of them only a bound is known.
-- column: queue_seconds           DOUBLE  | Seconds with a queue, summed.
-- column: generation_tokens       DOUBLE  | Tokens generated.
-- check:  engines_under_pressure + engines_not_told <= engines | Parts of a whole.
with members as (
    select 'fleet' as dimension, 'all' as member, * from fleet.engine_days
    union all
    select 'group' as dimension, engine_group as member, * from fleet.engine_days
    union all
    select 'model' as dimension, model as member, * from fleet.engine_days
    union all
    select 'cluster' as dimension, cluster as member, * from fleet.engine_days
)

select
    getvariable('day')::date as day,
    dimension,
    member,
    count(*) as engines,
    count(*) filter (where severity >= 20 and verdict not in ('healthy', 'insufficient_evidence')) as engines_under_pressure,
    count(*) filter (where verdict = 'insufficient_evidence' or verdict is null) as engines_not_told,
    count(coalesce(wasted_gpu_seconds_best, wasted_gpu_seconds_high)) as engines_known,
    count(preemptions_best) as engines_counted,
    sum(pressure_hours) as pressure_hours,
    sum(observed_hours) as observed_hours,
    sum(preemptions_best) as preemptions_best,
    sum(recomputed_tokens_low) as recomputed_tokens_low,
    sum(recomputed_tokens_best) as recomputed_tokens_best,
    case when count(recomputed_tokens_best) = count(recomputed_tokens_high) then sum(recomputed_tokens_high) end as recomputed_tokens_high,
    sum(wasted_gpu_seconds_low) as wasted_gpu_seconds_low,
    sum_where_each_is_told(wasted_gpu_seconds_best, wasted_gpu_seconds_high) as wasted_gpu_seconds_best,
    case
        when bool_and(wasted_gpu_seconds_best is null or wasted_gpu_seconds_high is not null) then sum(wasted_gpu_seconds_high)
    end as wasted_gpu_seconds_high,
    sum_where_each_is_told(wasted_cost_best, wasted_cost_high) as wasted_cost_best,
    sum(queue_seconds) as queue_seconds,
    sum(generation_tokens) as generation_tokens,
from members
where member is not null
group by dimension, member
order by dimension <> 'fleet', dimension, member
