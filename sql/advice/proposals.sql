-- The levers that are told: those the engine has, one for each thing to act on, at most three per engine.
--
-- The catalogue (sql/lib/remedies.sql) says which lever helps against which verdict and what setting it is on this engine and
-- version; advice.levers_of_* give each its value. One falls away where the version lacks it, or where another proposal acts on
-- the same setting.
--
-- step:  recommendations
-- grain: engine, rank
-- needs: advice.levers_of_pool_size or advice.levers_of_preemption or advice.levers_of_prefixes or advice.levers_of_starts or advice.levers_of_steps
-- column: engine     VARCHAR   | Engine.
-- column: rank       BIGINT    | 1 is to be tried first.
-- column: verdict    VARCHAR   | The verdict it answers.
-- column: lever      VARCHAR   | The lever, as the catalogue calls it.
-- column: title      VARCHAR   | What to do.
-- column: setting    VARCHAR   | The engine's setting that does it; NULL where callers, clients or routers do it.
-- column: flag       VARCHAR   | How the setting is given to the engine.
-- column: from_value VARCHAR   | Its value in the run; NULL where no input says. Of other levers: the quantity it acts on.
-- column: to_value   VARCHAR   | The value proposed, to be tried first.
-- column: effects    VARCHAR[] | Sentences on what should change; NULL among them where the run lacks a number.
-- column: estimates  VARCHAR[] | Sentences on how much of it to expect by rule of thumb; a replay, where there is one, takes their place.
-- column: prices     VARCHAR[] | Sentences on what it costs by rule of thumb; a replay takes their place, too.
-- column: trade_off  VARCHAR   | What it costs in any run.
-- column: evidence   VARCHAR[] | Sentences with the run's numbers that the value rests on.
-- column: verify_by  VARCHAR   | An experiment that changes this alone.
-- column: next_limit VARCHAR   | What will limit next.
-- column: method     VARCHAR   | How value and effect were worked out.
-- check:  rank between 1 and 3 | More than three changes at once teach nothing.
with proposed as (
    from advice.levers_of_preemption
    union all by name from advice.levers_of_pool_size
    union all by name from advice.levers_of_prefixes
    union all by name from advice.levers_of_steps
    union all by name from advice.levers_of_starts
),

-- the versions an engine may be: the one it states; else every one of its generation (V0 ended with 0.10, V1 is the rule since
-- 0.8)
versions as (
    select
        engine,
        engine_kind,
        engine_generation,
        coalesce(version_number(engine_version), version_number(case engine_generation when 'v0' then '0.4.0' else '0.8.0' end))
            as oldest,
        coalesce(version_number(engine_version), version_number(case engine_generation when 'v0' then '0.10.2' else '9999.0' end))
            as newest,
    from core.engines
),

available as (
    select versions.engine, known.lever, known.setting, known.flag
    from versions
    inner join engine_settings_known() as known
        on known.engine_kind = versions.engine_kind
        and (known.generation is null or known.generation = coalesce(versions.engine_generation, 'v1'))
        and coalesce(version_number(known.first_version), 0) <= versions.oldest
        -- a setting's last version has it in all of its releases
        and coalesce(version_number(known.last_version) // 1000, 1e9) >= versions.newest // 1000
),

usable as (
    select
        proposed.* exclude (evidence),
        list_append(
            proposed.evidence,
            case
                when engines.was_set_up_anew and now.value_text <> proposed.from_value
                    then format('With its last start the engine says {} {}: then this was done since.', now.key, now.value_text)
            end
        ) as evidence,
        remedies.preference,
        remedies.title,
        remedies.trade_off,
        remedies.next_limit,
        remedies.verify_by,
        available.setting,
        available.flag,
        told.severity,
        told.is_primary,
        coalesce(available.setting, proposed.lever) as acts_on,
    from proposed
    inner join remedies() as remedies using (verdict, lever)
    inner join advice.lever_facts as told using (engine, verdict)
    inner join core.engines on engines.engine = proposed.engine
    left join available on available.engine = proposed.engine and available.lever = proposed.lever
    left join core.engine_settings as now on now.engine = proposed.engine and now.key = available.setting
    where available.setting is not null
        or proposed.lever not in (select known.lever from engine_settings_known() as known)
),

-- one proposal for each thing to act on, and nothing is left alone beside a lever that works on the same verdict
chosen as (
    select *
    from usable
    where lever <> 'leave_it'
        or not exists (
            from usable as others
            where others.engine = usable.engine and others.verdict = usable.verdict and others.lever <> 'leave_it'
        )
    qualify row_number() over (partition by engine, acts_on order by is_primary desc, severity desc, preference, lever) = 1
),

ranked as (
    select
        *,
        row_number() over (partition by engine order by is_primary desc, severity desc, preference, lever) as rank,
    from chosen
)

select
    engine,
    rank,
    verdict,
    lever,
    title,
    setting,
    flag,
    from_value,
    to_value,
    effects,
    estimates,
    prices,
    trade_off,
    evidence,
    verify_by,
    next_limit,
    method,
from ranked
where rank <= 3
order by engine, rank
