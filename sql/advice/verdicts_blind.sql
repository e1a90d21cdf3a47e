-- Engines of which the inputs cannot show pressure at all: why, what they tell all the same, and what to record next time.
--
-- A V1 log says nothing of preemption: with a full pool it is only suspected. Without samples of the load nothing is known.
--
-- step:  verdicts
-- grain: engine
-- column: engine           VARCHAR      | Engine; NULL where no input names one.
-- column: verdict          VARCHAR      | insufficient_evidence.
-- column: window_start     TIMESTAMPTZ  | First observation; NULL where none has a time.
-- column: window_end       TIMESTAMPTZ  | Last observation.
-- column: peak_at          TIMESTAMPTZ  | As window_start.
-- column: severity         DECIMAL(3,1) | 15 where preemption is likely, else 0.
-- column: confidence       DECIMAL(2,1) | That it cannot be told.
-- column: summary          VARCHAR      | One sentence.
-- column: evidence         VARCHAR[]    | What is told all the same.
-- column: evidence_against VARCHAR[]    | Nothing.
-- column: missing          VARCHAR[]    | What to record next time.
-- check:  window_start <= window_end | Windows.
with findings as (
    from advice.weighed_findings where matters
),

-- why nothing can be said where no engine's load was seen: one row, of the reason that most of what was given has
unjudged as (
    select
        arg_max(reason, (reason = 'outside_window', reason = 'not_reached', sources)) as reason,
        list(
            case reason
                when 'no_requests' then format('{}: a benchmark result without a single request.', names)
                when 'outside_window' then format(
                    '{}: from {} to {} UTC, outside the time asked for.',
                    names, strftime(first_at, '%Y-%m-%d %H:%M:%S'), strftime(last_at, '%Y-%m-%d %H:%M:%S')
                )
                when 'not_reached' then format('{}: {}.', names, detail)
                when 'no_time' then format('{}: {} lines that carry no time, and nothing beside them that places them.', names, lines)
                when 'clients_only' then concat(
                    format('{}: ', names),
                    coalesce(format('{} requests', requests), 'requests'),
                    ' as clients saw them',
                    case when failed > 0 then format(', {} of them failed', failed) end,
                    '; what the engine did meanwhile is in no input.'
                )
                else format('{}: {} lines, none of them of how many requests ran or waited.', names, lines)
            end
            order by reason = 'not_reached' desc, sources desc, reason
        ) as evidence,
        list(
            case reason
                when 'no_requests' then 'Look in the client''s own output for why it sent nothing, and run it again; keep its per-request results.'
                when 'outside_window' then 'Leave out --since and --until, widen them, or give the files of that time; --timezone says whose time stamps without a zone are.'
                when 'not_reached' then 'Start the engine, or correct the address, and record again: `kvpressure record` says at once what it cannot reach.'
                when 'no_time' then 'Save each /metrics page with its time in a line above it (# scrape_unix_ms 1767225600000), again every 15 s or less; `kvpressure record` does.'
            end
            order by reason = 'not_reached' desc, sources desc, reason
        ) as remedies,
    from core.unjudged_inputs
),

engines as (
    select loads.*, engines.engine_kind, engines.engine_generation, engines.engine_version, engines.prefix_caching,
    from core.seen_loads as loads
    inner join core.engines using (engine)
    union all by name
    -- no input puts any engine on the time axis: then it is the ones that inputs name
    select distinct
        names.engine,
        0 as samples,
        (select case when count(distinct engine_kind) = 1 then any_value(engine_kind) end from core.client_sums) as engine_kind,
    from staging.engine_names as names
    where not exists (from core.engines)
        and (names.engine not like '%*' or not exists (from staging.engine_names as others where others.engine not like '%*'))
        and names.engine not in (select findings.engine from findings where findings.engine is not null)
),

-- the most that a benchmark's report tells of its engine's load, at a time that it does not say
reported as (
    select
        max(kv_usage_ratio) as kv_usage_ratio,
        max(most_running) as most_running,
        max(most_waiting) as most_waiting,
    from core.client_sums
    where (most_running is not null or most_waiting is not null) and (select count(*) from core.engines) <= 1
),

-- of an engine whose load no input shows, what others tell all the same: too little for a verdict, or none at all
heard as (
    select
        engines.engine,
        case
            when waits.longest_s < 0.1 then format('none of {} requests waited a tenth of a second before it first ran', spoken_count(waits.requests))
            when waits.requests > 0
                then format('{} requests waited {} at most before they first ran', spoken_count(waits.requests), spoken_duration(waits.longest_s))
            else format('up to {} requests waited at once, for how long is not told', spoken_count(reported.most_waiting))
        end as waited,
        case
            when counted.count_best > 0 then format('{} preemption(s) told by {}', spoken_count(counted.count_best), counted.told_by)
            when counted.count_best = 0 then format('no preemption shows ({})', counted.told_by)
            when pauses.answers > 0 then format('{} answer(s) paused as preemption makes them pause', spoken_count(pauses.answers))
        end as interrupted,
    from engines
    cross join reported
    left join marts.preemptions as counted using (engine)
    left join (
        select engine, count(queue_s) as requests, max(queue_s) as longest_s from core.requests group by engine having count(queue_s) > 0
    ) as waits using (engine)
    left join (
        select engine, count(distinct (source_file, run_index, request_index, request_id)) as answers
        from marts.stalls
        where cause = 'preemption'
        group by engine
    ) as pauses using (engine)
),

-- seen at one instant in which nothing that was found matters: what advice.verdicts_healthy leaves out
preempted as (
    select
        loads.engine,
        concat(
            'At the one instant seen ',
            case
                when loads.max_waiting > 0 then format('{} waited beside {} running, ', loads.max_waiting, loads.max_running)
                when loads.max_waiting = 0 then 'nobody waited, '
                else format('{} ran, ', loads.max_running)
            end,
            any_value(but_it_has_preempted(counted.preemptions, counted.finished))
        ) as summary,
    from core.seen_loads as loads
    inner join core.counts_at_an_instant as counted using (engine)
    where loads.samples = 1
        and but_it_has_preempted(counted.preemptions, counted.finished) is not null
        and loads.engine not in (select findings.engine from findings where findings.engine is not null)
    group by loads.engine, loads.max_waiting, loads.max_running
),

-- results of runs that have nothing to do with each other: nothing holds for all of them
unrelated as (
    select
        count(*) as runs,
        list(
            concat(
                format('{}: ', measured),
                concat_ws(
                    ', ',
                    client,
                    case when sources > 1 then format('{} results', sources) else names end,
                    format('{} requests', spoken_count(requests)),
                    case when failed > 0 then format('{} of them failed', spoken_count(failed)) end,
                    'in ' || spoken_duration(tested_s)
                ),
                '.'
            )
            order by measured
        ) as evidence,
    from core.unrelated_runs
    having count(*) > 0
)

select
    engines.engine,
    'insufficient_evidence' as verdict,
    case when has_window then engines.first_at end as window_start,
    case when has_window then engines.last_at end as window_end,
    window_start as peak_at,
    case when engines.samples = 0 or unrelated.runs > 0 or preempted.engine is not null then 0.0 else 15.0 end as severity,
    0.9 as confidence,
    case
        when unrelated.runs > 0 then format(
            'These are results of {} runs that have nothing to do with each other: analyze one at a time. Nothing is judged over all of them.',
            unrelated.runs
        )
        when engines.untold_tokens_per_s > 0 then format(
            'The log''s only line of load finds the engine idle, after {} tokens/s on average: what happened meanwhile is in no line.',
            told_figure(engines.untold_tokens_per_s, is_count := false)
        )
        when preempted.engine is not null then preempted.summary
        when engines.samples > 0 then format(
            'KV usage reached {:.0f} %{}: preemption is likely, but a log of this version does not show it.',
            100 * engines.max_kv_usage_ratio,
            case
                when engines.max_waiting > 0 then format(', and up to {} waited', engines.max_waiting)
                when engines.max_waiting = 0 then ', with nobody waiting'
                else ''
            end
        )
        when unjudged.reason = 'no_requests' then 'The benchmark sent no request: there is nothing that could have waited or been interrupted.'
        when unjudged.reason = 'outside_window' then 'Nothing of what was given is of the time asked for (--since, --until): nothing can be said of it.'
        when unjudged.reason = 'not_reached' then 'The recorder did not reach the engine: whether anything waited or was interrupted cannot be told.'
        when unjudged.reason = 'no_time' then 'What was given carries no time: what rose between two looks, and for how long anything lasted, cannot be told.'
        else 'No input shows the engine''s load: ' || case
            when heard.waited is not null and heard.interrupted is not null then concat(heard.waited, '; ', heard.interrupted, '.')
            when heard.waited is not null then concat(heard.waited, '; whether anybody was interrupted cannot be told.')
            when heard.interrupted is not null then concat(heard.interrupted, '; whether anything waited cannot be told.')
            else 'whether anything waited or was interrupted cannot be told.'
        end
    end as summary,
    case
        when unrelated.runs > 0 then unrelated.evidence
        when engines.samples = 0
            then sentences(list_append(
                unjudged.evidence,
                coalesce(
                    format(
                        'Of the engine''s load the benchmark''s report tells the most: {} requests running, {} waiting{}.',
                        spoken_count(reported.most_running),
                        spoken_count(reported.most_waiting),
                        coalesce(format(', {:.0f} % of the KV cache used', 100 * greatest(engines.max_kv_usage_ratio, reported.kv_usage_ratio)), '')
                    ),
                    format('Of the engine, its KV usage alone was seen: at most {:.0f} %.', 100 * engines.max_kv_usage_ratio)
                )
            ))
        else []
    end as evidence,
    []::varchar[] as evidence_against,
    list_concat(
        case
            when engines.samples = 0 then sentences(unjudged.remedies)
            when engines.untold_tokens_per_s > 0 or preempted.engine is not null then [a_second_look()]
            else []
        end,
        what_to_record(
            engines.engine_kind,
            engines.engine_version,
            engines.prefix_caching,
            has_iteration_lines := engines.engine in (select engine from core.recompute_iteration_lines),
            has_kv_events := engines.engine in (select engine from core.recompute_kv_events)
        )
    ) as missing,
from engines
cross join unjudged
cross join reported
left join unrelated on true
left join heard using (engine)
left join preempted using (engine)
-- times of other runs, or outside the time asked for, are no window of what is said here
cross join lateral (
    select unrelated.runs is null and not coalesce(engines.samples = 0 and unjudged.reason = 'outside_window', false) as has_window,
) as windows
where unrelated.runs > 0
    or (
        engines.samples = 0
        and engines.engine not in (select engine from advice.verdicts_untimed)
        and engines.engine not in (select engine from core.failed_starts)
        and not exists (
            from findings
            where findings.engine = engines.engine
                and (findings.verdict = 'preemption' or findings.verdict like 'queue%')
        )
    )
    or engines.untold_tokens_per_s > 0
    or preempted.engine is not null
    or (
        engines.origin = 'log'
        and coalesce(engines.engine_generation, 'v1') <> 'v0'
        and engines.max_kv_usage_ratio >= 0.9
        and not exists (from core.preemption_intervals where preemption_intervals.engine = engines.engine)
        and not exists (from findings where findings.engine = engines.engine and findings.verdict = 'preemption')
    )
order by engines.engine
