-- How often a running request lost its KV blocks.
--
-- The counter answers where it was exported, a log where it says each one (core.preemption_intervals); what a counter missed
-- after its last scrape is expected from the replay of what requests were still there. vLLM never counts a victim that was aborted
-- while it waited, so aborted requests widen the range upwards. Of metrics pages without a time it is what core.untimed_preemptions tells.
-- A counter that begins after a load that a log tells, or ends before it does, is a least number.
-- Where no engine was seen, a client's table of levels may have what was counted at each: that is of the only engine there is.
--
-- grain: run, engine
-- needs: core.client_sums or core.engines
-- column: run        VARCHAR | The analyzed run.
-- column: engine     VARCHAR | Engine.
-- column: count_low  DOUBLE  | Least preemptions; NULL where no input tells.
-- column: count_best DOUBLE  | Expected preemptions; NULL where no input tells.
-- column: count_high DOUBLE  | Most preemptions; NULL where no input tells.
-- column: method     VARCHAR | What told it, as a key.
-- column: told_by    VARCHAR | The same in words.
-- check:  count_low <= count_best and count_best <= count_high | A range holds its best estimate.
with counted as (
    select engine, sum(preemptions)::double as preemptions, any_value(method) as method, '' as of_pages, false as ends_early
    from core.preemption_intervals
    group by engine
    union all
    select
        engine,
        preemptions::double,
        'preemption_counter',
        if(is_since_start, ', from the start to the last page there is', ', between pages whose times are not known'),
        is_since_start,
    from core.untimed_preemptions
    where engine not in (select engine from core.preemption_intervals)
        -- of no time that is known: whatever else tells them is of the run
        and engine not in (
            select engine from core.recompute_estimates where kind = 'preemption_recompute' and preemptions_best is not null
        )
),

aborted as (
    select engine, sum(requests) as requests
    from (
        select engine, sum(delta) as requests
        from core.counter_intervals
        where signal = 'finished' and labels like '%finished_reason=abort%'
        group by engine
        union all
        -- the log's request lines name no engine: with one engine they are its own
        select (select min(engine) from core.engines), count(distinct request_id)
        from staging.request_lines
        where event = 'aborted' and (select count(*) from core.engines) = 1
    )
    group by engine
),

expected as (
    select
        engine,
        arg_min(preemptions_best, rung) as preemptions_best,
        max(preemptions_high) as preemptions_high,
    from core.recompute_estimates
    where kind = 'preemption_recompute'
        and method in ('kv_events', 'replay', 'preemption_counter')
        and not is_partial
        -- what an engine has counted when it is idle is all there is
        and engine not in (
            select engine
            from core.engine_states
            where origin = 'metrics'
            group by engine
            having arg_max(running + waiting, sampled_at) = 0
        )
        -- counted to the end of the time asked for: a replay goes on beyond it
        and engine not in (select seen.engine from core.seen_loads as seen where seen.last_at >= getvariable('until')::timestamptz)
    group by engine
),

others as (
    select engine, method, preemptions_low, preemptions_best, preemptions_high
    from core.recompute_estimates
    where kind = 'preemption_recompute' and preemptions_best is not null
    qualify row_number() over (partition by engine order by is_partial, rung, method) = 1
),

-- a column that some level leaves empty counts the others alone
tabled as (
    select
        names.engine,
        sum(sums.preemptions)::double as count_low,
        if(count(*) = count(sums.preemptions), count_low, null) as count_best,
        count_best as count_high,
        'client_counts' as method,
    from core.client_sums as sums
    cross join (select min(engine) as engine from staging.engine_names having count(distinct engine) = 1) as names
    where sums.client = 'sweep_table' and not exists (from core.engines)
    group by names.engine
    having count(sums.preemptions) > 0
)

select
    getvariable('run') as run,
    engines.engine,
    coalesce(counted.preemptions, others.preemptions_low) as count_low,
    case
        when not is_least then coalesce(
            greatest(counted.preemptions, round(expected.preemptions_best)), counted.preemptions, round(others.preemptions_best)
        )
    end as count_best,
    case
        when not is_least then coalesce(
            greatest(counted.preemptions, round(expected.preemptions_best), ceil(expected.preemptions_high)),
            counted.preemptions,
            ceil(others.preemptions_high)
        ) + if(counted.preemptions is null, 0, coalesce(aborted.requests, 0))
    end as count_high,
    if(counted.preemptions is null, others.method, counted.method) as method,
    told_by(if(counted.preemptions is null, others.method, counted.method))
    || coalesce(counted.of_pages, '')
    || case when counted.ends_early then '' else left_out(uncounted.uncounted_to, uncounted.uncounted_from) end
    || if(not is_least and round(expected.preemptions_best) > counted.preemptions, ', and a replay of what its last scrape left unfinished', '') as told_by,
from core.engines
left join counted using (engine)
left join expected on expected.engine = engines.engine and counted.preemptions is not null
left join others on others.engine = engines.engine
left join aborted on aborted.engine = engines.engine
left join core.seen_loads as uncounted
    on uncounted.engine = engines.engine
    and coalesce(uncounted.uncounted_to, uncounted.uncounted_from) is not null
    and counted.method = 'preemption_counter'
cross join lateral (select uncounted.engine is not null or coalesce(counted.ends_early, false) as is_least) as bounded
union all by name
select getvariable('run') as run, engine, count_low, count_best, count_high, method, told_by(method) as told_by
from tabled
order by engine
