-- What is not as it was: verdict, version, settings and workload of each engine against the last day it was seen before.
--
-- On the day an engine's verdict turned, what else changed that day stands beside it: the first place to look, not yet the cause.
-- Sizes that follow from what an engine measures at each start waver by a few blocks; they count as changed from two in a hundred on,
-- and those that follow from one another (tokens, blocks and requests that the pool holds) are one change, named once. The measured
-- itself (memory of the weights, memory free before) is nobody's change.
--
-- grain: day, run, engine, kind, name
-- column: day        DATE    | The day.
-- column: run        VARCHAR | Engine, by its name in the configuration.
-- column: engine     VARCHAR | Rank within it.
-- column: kind       VARCHAR | verdict, version, setting or workload.
-- column: name       VARCHAR | Which setting, or which figure.
-- column: before     VARCHAR | As it was.
-- column: after      VARCHAR | As it is.
-- column: before_day DATE    | The day it was last so; NULL for a figure, which is compared with weeks.
-- column: is_turn    BOOLEAN | Whether the engine's verdict turned that day.
with settings_before as (
    select run, engine, key, arg_max(value_text, day) as before, max(day) as before_day
    from history.settings
    group by all
),

settings as (
    select
        now.run,
        now.engine,
        case when now.key in ('engine_version', 'engine_generation') then 'version' else 'setting' end as kind,
        now.key as name,
        settings_before.before,
        now.value_text as after,
        settings_before.before_day,
    from fleet.settings as now
    inner join settings_before using (run, engine, key)
    left join setting_roles() as roles using (key)
    where now.value_text <> settings_before.before
        and roles.role is distinct from 'measured'
        and not coalesce(
            roles.role = 'derived'
            and abs(ratio(try_cast(now.value_text as double), try_cast(settings_before.before as double)) - 1) < 0.02,
            false
        )
    qualify roles.role is distinct from 'derived'
        or kind = 'version'
        or row_number() over (
            partition by now.run, now.engine, kind, roles.role = 'derived'
            order by now.key = 'kv_capacity_tokens' desc, now.key = 'num_gpu_blocks' desc, now.key
        ) = 1
),

verdicts_before as (
    select run, engine, arg_max(verdict, day) as before, max(day) as before_day
    from history.engine_days
    where verdict is not null
    group by all
),

verdicts as (
    select
        now.run,
        now.engine,
        'verdict' as kind,
        'verdict' as name,
        verdicts_before.before,
        now.verdict as after,
        verdicts_before.before_day,
    from fleet.engine_days as now
    inner join verdicts_before using (run, engine)
    where now.verdict <> verdicts_before.before
),

workload as (
    select
        run,
        engine,
        'workload' as kind,
        measure as name,
        spoken_count(usual) as before,
        spoken_count(value) as after,
        null::date as before_day,
    from fleet.trends
    where is_unusual and is_workload
),

changed as (
    from verdicts
    union all by name
    from settings
    union all by name
    from workload
)

select
    getvariable('day')::date as day,
    changed.run,
    changed.engine,
    changed.kind,
    changed.name,
    changed.before,
    changed.after,
    changed.before_day,
    verdicts.run is not null as is_turn,
from changed
left join verdicts using (run, engine)
order by changed.run, changed.engine, changed.kind = 'verdict' desc, changed.kind = 'version' desc, changed.kind, changed.name
