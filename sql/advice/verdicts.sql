-- The verdicts of the run: each in its own window, one of them primary for each engine.
--
-- A queue behind a full pool and preemption are one shortage: where the pool also preempts, materially and in the same time, preemption
-- is the diagnosis, and what the queue cost counts for it; so it is with a stalled engine and whoever waits in it. Interrupted answers matter from two
-- requests in a hundred on, delays from a severity of ten; below that a finding is a remark. Time in which nothing was wrong is `healthy`, in its own windows; where
-- the inputs cannot show pressure at all, that is `insufficient_evidence`, with what to record next time.
--
-- grain: run, engine, verdict, window_start
-- column: run              | The analyzed run.
-- column: engine           | Engine.
-- column: window_start     | When it began; NULL where only metrics pages without a time show it.
-- column: window_end       | When it was last seen.
-- column: verdict          | What happened.
-- column: severity         | 0 to 100: what users felt and the operator paid; of the main verdict with the queue that is of the same shortage.
-- column: confidence       | 0 to 1.
-- column: is_primary       | Whether it is the engine's one main verdict.
-- column: summary          | One sentence.
-- column: evidence         | Sentences that speak for it, with numbers.
-- column: evidence_against | Sentences that speak against it, or bound it.
-- column: missing          | What to record next time to know more.
-- column: peak_at          | When it was worst.
-- check:  severity between 0 and 100 | A scale.
-- check:  confidence between 0 and 1 | A probability.
-- check:  window_start <= window_end | Windows.
with findings as (
    select
        *,
        severity >= case when verdict = 'preemption' then 2 else 10 end
            -- what was found in one of several runs is no verdict of all
            and not exists (from core.unrelated_runs) as matters,
    from (
        from advice.findings
        union all by name
        from advice.verdicts_untimed where severity > 0
    )
    where severity >= 1
),

ends as (
    select named.engine, max(events.happened_at) as ended_at
    from (select engine, unnest(names_of_engine(engine)) as said_of from core.engines) as named
    inner join staging.engine_events as events on events.engine = named.said_of
    where events.event in ('engine_shutdown', 'engine_dead', 'engine_failure')
    group by named.engine
),

engines as (
    select
        engines.engine,
        engines.engine_generation,
        engines.engine_kind,
        engines.engine_version,
        engines.prefix_caching,
        coalesce(min(states.sampled_at), engines.first_seen_at) as first_at,
        -- a last sample stands for the time to the next, unless the engine ended before
        coalesce(
            least(
                max(plus_seconds(states.sampled_at, states.scrape_s)),
                case when any_value(ends.ended_at) >= engines.last_seen_at then any_value(ends.ended_at) end
            ),
            engines.last_seen_at
        ) as last_at,
        count(states.sampled_at) filter (where states.running is not null or states.waiting is not null) as samples,
        any_value(states.origin) as origin,
        max(states.kv_usage_ratio) as max_kv_usage_ratio,
        max(states.waiting) as max_waiting,
        max(states.running) as max_running,
        coalesce(median(states.scrape_s), 10) as step_s,
    from core.engines
    left join core.engine_states as states using (engine)
    left join ends using (engine)
    group by
        engines.engine,
        engines.engine_generation,
        engines.engine_kind,
        engines.engine_version,
        engines.prefix_caching,
        engines.first_seen_at,
        engines.last_seen_at
),

-- scrapes so far apart that nobody knows what was between them; a log is silent where its engine is idle, and where it is down
holes as (
    select
        states.engine,
        states.sampled_at as window_start,
        lead(states.sampled_at) over in_order as window_end,
    from core.engine_states as states
    inner join engines using (engine)
    asof left join core.engine_lives as lives on lives.engine = states.engine and lives.life_start <= states.sampled_at
    window in_order as (partition by states.engine order by states.sampled_at)
    qualify seconds_between(window_start, window_end) > greatest(10, 3 * engines.step_s)
        and (engines.origin = 'metrics' or lives.life is distinct from lead(lives.life) over in_order)
),

-- calm: what is left of an engine's observed time once every finding that matters is cut out, and every hole
edges as (
    select engine, first_at as edge_at, 0 as opens from engines where samples > 0
    union all
    select engine, window_start as edge_at, 1 as opens from findings where matters and window_start is not null
    union all
    select engine, window_end as edge_at, -1 as opens from findings where matters and window_end is not null
    union all
    select engine, window_start as edge_at, 1 as opens from holes
    union all
    select engine, window_end as edge_at, -1 as opens from holes
    union all
    select engine, last_at as edge_at, 0 as opens from engines where samples > 0
),

depths as (
    select
        engine,
        edge_at,
        sum(sum(opens)) over (partition by engine order by edge_at) as depth,
        lead(edge_at) over (partition by engine order by edge_at) as next_edge_at,
    from edges
    group by engine, edge_at
),

hours as (
    select distinct engine, hour_of(sampled_at) as hour from core.engine_states
),

quiet as (
    select depths.engine, depths.edge_at as window_start, depths.next_edge_at as window_end, engines.origin
    from depths
    inner join engines using (engine)
    where depths.depth = 0
        and depths.next_edge_at is not null
        and (
            seconds_between(depths.edge_at, depths.next_edge_at) >= greatest(10, 3 * engines.step_s)
            or not exists (from findings where findings.engine = depths.engine)
        )
    union all
    -- a lone sample: an instant, with no time before or after it
    select engine, first_at as window_start, last_at as window_end, origin
    from engines
    where samples = 1 and not exists (from findings where findings.matters and findings.engine = engines.engine)
),

-- made first, or every state would be compared with every window
quiet_by_hour as materialized (
    select quiet.*, hours.hour
    from quiet
    left join hours
        on hours.engine = quiet.engine
        and hours.hour between hour_of(quiet.window_start) and hour_of(quiet.window_end)
),

calm as (
    select
        quiet.engine,
        quiet.window_start,
        quiet.window_end,
        seconds_between(quiet.window_start, quiet.window_end) as window_s,
        any_value(quiet.origin) as origin,
        max(states.running) as max_running,
        max(states.waiting) as max_waiting,
        max(states.kv_usage_ratio) as max_kv_usage_ratio,
    from quiet_by_hour as quiet
    left join core.engine_states as states
        on states.engine = quiet.engine
        and hour_of(states.sampled_at) = quiet.hour
        and states.sampled_at between quiet.window_start and quiet.window_end
    -- the sample at which a finding begins ends the calm and is none of it
    anti join (from findings where matters) as begun
        on begun.engine = states.engine and begun.window_start = states.sampled_at
    group by quiet.engine, quiet.window_start, quiet.window_end
    -- how full a pool is says nothing of who runs or waits
    having count(states.running) + count(states.waiting) > 0
),

-- prefills so long that they look like a stall
prefills as (
    select
        calm.engine,
        calm.window_start,
        count(*) as prefills,
        max(seconds_between(silences.silence_start, silences.silence_end)) as longest_s,
        arg_max(silences.prompt_tokens, seconds_between(silences.silence_start, silences.silence_end)) as prompt_tokens,
    from calm
    inner join core.silences
        on silences.engine = calm.engine
        and silences.is_prefill
        and silences.silence_start >= calm.window_start
        and silences.silence_end <= calm.window_end
        and seconds_between(silences.silence_start, silences.silence_end) >= 60
    group by all
),

-- a log's only line may find an engine idle and tell in its rates that it had worked: of that time nothing is known
worked as (
    select samples.engine, max(samples.generation_tokens_per_s) as tokens_per_s
    from staging.engine_samples as samples
    inner join engines using (engine)
    where engines.samples = 1 and engines.origin = 'log' and engines.max_running = 0
    group by samples.engine
),

healthy as (
    select
        calm.engine,
        'healthy' as verdict,
        calm.window_start,
        calm.window_end,
        calm.window_start as peak_at,
        0.0 as severity,
        case when origin = 'metrics' then 0.9 else 0.6 end * case when window_s = 0 then 0.5 else 1 end as confidence,
        case
            when window_s = 0 and max_waiting > 0
                then format('At the one instant seen, {} waited beside {} running.', max_waiting, max_running)
            when window_s = 0 and max_running > 0 then 'At the one instant seen, nobody waited.'
            when window_s = 0 then 'At the one instant seen, the engine was idle.'
            when max_running > 0
                then format(
                    'No pressure for {}: {}{}.',
                    spoken_duration(window_s),
                    -- a queue that is a remark, or too little for one
                    if(max_waiting > 0, 'few waited, or not for long', 'nothing waited long'),
                    if(preemptions.count_best is null, '', ', nobody was interrupted')
                )
            else format('Idle for {}.', spoken_duration(window_s))
        end as summary,
        sentences([
            format('KV usage at most {:.0f} %.', 100 * max_kv_usage_ratio),
            format('{} requests running at most, {} waiting.', max_running, max_waiting),
        ]) as evidence,
        sentences([
            case when window_s = 0 then only_an_instant() end,
            format(
                'No token came for {}, until about {} prompt tokens were booked at once: taken as their prefill under way, not as a stall{}.',
                spoken_duration(prefills.longest_s),
                spoken_roughly(prefills.prompt_tokens),
                case when prefills.prefills > 1 then format('; so {} times', prefills.prefills) else '' end
            ),
        ]) as evidence_against,
        case when window_s = 0 then [a_second_look()] else [] end as missing,
    from calm
    left join prefills using (engine, window_start)
    left join marts.preemptions using (engine)
    where not exists (from core.unrelated_runs)
        -- idle after work that no line tells of: that cannot be told, and is not calm beside
        and calm.engine not in (select engine from worked where tokens_per_s > 0)
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

-- no input puts any engine on the time axis: then it is the ones that inputs name
unseen as (
    select distinct names.engine
    from staging.engine_names as names
    where not exists (from core.engines)
        and (names.engine not like '%*' or not exists (from staging.engine_names as others where others.engine not like '%*'))
        and names.engine not in (select findings.engine from findings where findings.matters and findings.engine is not null)
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
    from (select engine from engines union select engine from unseen) as engines
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
),

-- a V1 log says nothing of preemption: with a full pool it is only suspected, without load samples nothing is known
blind as (
    select
        engines.engine,
        'insufficient_evidence' as verdict,
        if(unrelated.runs is null, engines.first_at, null) as window_start,
        if(unrelated.runs is null, engines.last_at, null) as window_end,
        window_start as peak_at,
        case when engines.samples = 0 or unrelated.runs > 0 then 0.0 else 15.0 end as severity,
        0.9 as confidence,
        case
            when unrelated.runs > 0 then format(
                'These are results of {} runs that have nothing to do with each other: analyze one at a time. Nothing is judged over all of them.',
                unrelated.runs
            )
            when worked.tokens_per_s > 0 then format(
                'The log''s only line of load finds the engine idle, after {} tokens/s on average: what happened meanwhile is in no line.',
                told_figure(worked.tokens_per_s, is_count := false)
            )
            when engines.samples > 0 then format(
                'KV usage reached {:.0f} % with {} waiting: preemption is likely, but a log of this version does not show it.',
                100 * engines.max_kv_usage_ratio, engines.max_waiting
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
                when worked.tokens_per_s > 0 then [a_second_look()]
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
    from (
        from engines
        union all by name
        select
            engine,
            (select case when count(distinct engine_kind) = 1 then any_value(engine_kind) end from core.client_sums) as engine_kind,
            0 as samples,
        from unseen
    ) as engines
    cross join unjudged
    cross join reported
    left join unrelated on true
    left join worked using (engine)
    left join heard using (engine)
    where unrelated.runs > 0
        or (
            engines.samples = 0
            and engines.engine not in (select engine from advice.verdicts_untimed)
            and engines.engine not in (select engine from core.failed_starts)
            and not exists (
                from findings
                where findings.matters
                    and findings.engine = engines.engine
                    and (findings.verdict = 'preemption' or findings.verdict like 'queue%')
            )
        )
        or worked.tokens_per_s > 0
        or (
            engines.origin = 'log'
            and coalesce(engines.engine_generation, 'v1') <> 'v0'
            and engines.max_kv_usage_ratio >= 0.9
            and not exists (from core.preemption_intervals where preemption_intervals.engine = engines.engine)
            and not exists (from findings where findings.matters and findings.engine = engines.engine and findings.verdict = 'preemption')
        )
),

-- of an engine seen at one instant, or on pages without a time: what it had counted by then, since it started
lone as (
    select
        engines.engine,
        sum(samples.value) filter (where signals.signal = 'preemptions') as preemptions,
        sum(samples.value) filter (where signals.signal = 'finished') as finished,
        sum(samples.value) filter (where signals.signal = 'queue_s' and suffix(samples.name, '_sum')) as queued_s,
        sum(samples.value) filter (where signals.signal = 'queue_s' and suffix(samples.name, '_count')) as queued_requests,
        make_timestamptz((max(samples.value) filter (where signals.signal = 'process_start_epoch_s') * 1e6)::bigint) as started_at,
    from engines
    inner join staging.metric_samples as samples
        on samples.sampled_at = engines.first_at
        and samples.engine in (engines.engine, '*', concat(split_part(engines.engine, '/', 1), '/*'))
    inner join signals() as signals on samples.name in (signals.name, concat(signals.name, '_sum'), concat(signals.name, '_count'))
    where engines.samples = 1 and signals.signal in ('preemptions', 'finished', 'queue_s', 'process_start_epoch_s')
    group by engines.engine
    union all by name
    select engine, preemptions, finished, queued_s, queued_requests, started_at
    from core.untimed_pages
    qualify row_number() over (partition by engine order by generation_tokens desc nulls last, source, page) = 1
),

counted as (
    select
        engine,
        flatten(list(counted_since_start(preemptions, finished, queued_s, queued_requests, started_at))) as sentences,
    from lone
    group by engine
),

told as (
    from findings
    union all by name
    from healthy
    union all by name
    from blind
    union all by name
    from advice.verdicts_untimed where severity = 0
),

-- with each verdict the worst queue that is of the same shortage: it counts for it when the main one is chosen
ranked as (
    select
        told.* exclude (matters),
        coalesce(
            (
                select max(companion.severity)
                from findings as companion
                where told.matters
                    and companion.engine = told.engine
                    and (
                        companion.window_start <= told.window_end and companion.window_end >= told.window_start
                        or companion.window_start is null and told.window_start is null
                    )
                    and (
                        told.verdict = 'preemption' and companion.verdict in ('queue_kv_capacity', 'queue_unknown')
                        or told.verdict = 'engine_stalled' and companion.verdict like 'queue%'
                    )
            ),
            0
        ) as queue_severity,
        coalesce(told.matters, false) as matters,
        seconds_between(told.window_start, told.window_end) as window_s,
    from told
),

chosen as (
    select
        *,
        row_number() over (
            partition by engine
            -- a finding that does not matter is a remark: the run's verdict is then that it cannot be told, or healthy
            order by matters desc,
                -- a cause that is not told counts half: one that is told says more
                case when matters then severity * if(verdict = 'queue_unknown', 0.5, 1) + queue_severity end desc nulls last,
                verdict = 'insufficient_evidence' desc, verdict = 'healthy' desc, window_s desc nulls last, window_start
        ) = 1 as is_primary,
    from ranked
)

select
    getvariable('run') as run,
    engine,
    window_start,
    window_end,
    verdict,
    case when is_primary then greatest(severity, queue_severity) else severity end::double as severity,
    confidence::double as confidence,
    is_primary,
    summary,
    case when is_primary then list_concat(evidence, coalesce(counted.sentences, [])) else evidence end as evidence,
    evidence_against,
    case
        -- what tells preemptions, where nothing did
        when is_primary and verdict <> 'insufficient_evidence' and preemptions.engine is not null and preemptions.count_best is null
            then list_concat(
                missing,
                list_filter(
                    what_to_record(engines.engine_kind, engines.engine_version, engines.prefix_caching)[1:1],
                    lambda sentence: not list_contains(missing, sentence)
                )
            )
        else missing
    end as missing,
    peak_at,
from chosen
left join marts.preemptions using (engine)
left join engines using (engine)
left join counted using (engine)
order by engine, is_primary desc, severity desc, window_start, verdict
