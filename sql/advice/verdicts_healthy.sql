-- What is left of an engine's observed time once every finding that matters is cut out, and every hole: there nothing was wrong.
--
-- step:  verdicts
-- grain: engine, window_start
-- needs: core.seen_loads
-- column: engine           VARCHAR       | Engine.
-- column: verdict          VARCHAR       | healthy.
-- column: window_start     TIMESTAMPTZ   | When it began.
-- column: window_end       TIMESTAMPTZ   | When it ended; the same instant where there is one sample only.
-- column: peak_at          TIMESTAMPTZ   | When it began.
-- column: severity         DECIMAL(2,1)  | 0.
-- column: confidence       DECIMAL(13,2) | 0 to 1.
-- column: summary          VARCHAR       | One sentence.
-- column: evidence         VARCHAR[]     | How full the pool was, and how many ran and waited.
-- column: evidence_against VARCHAR[]     | What bounds it.
-- column: missing          VARCHAR[]     | What to do next.
-- check:  window_start <= window_end | Windows.
with findings as (
    from advice.weighed_findings where matters
),

-- scrapes so far apart that nobody knows what was between them; a log is silent where its engine is idle, and where it is down
holes as (
    select
        states.engine,
        states.sampled_at as window_start,
        lead(states.sampled_at) over in_order as window_end,
    from core.engine_states as states
    inner join core.seen_loads as loads using (engine)
    asof left join core.engine_lives as lives on lives.engine = states.engine and lives.life_start <= states.sampled_at
    window in_order as (partition by states.engine order by states.sampled_at)
    qualify seconds_between(window_start, window_end) > greatest(10, 3 * loads.step_s)
        and (loads.origin = 'metrics' or lives.life is distinct from lead(lives.life) over in_order)
),

edges as (
    select engine, first_at as edge_at, 0 as opens from core.seen_loads where samples > 0
    union all
    select engine, window_start as edge_at, 1 as opens from findings where window_start is not null
    union all
    select engine, window_end as edge_at, -1 as opens from findings where window_end is not null
    union all
    select engine, window_start as edge_at, 1 as opens from holes
    union all
    select engine, window_end as edge_at, -1 as opens from holes
    union all
    select engine, last_at as edge_at, 0 as opens from core.seen_loads where samples > 0
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
    select depths.engine, depths.edge_at as window_start, depths.next_edge_at as window_end, loads.origin
    from depths
    inner join core.seen_loads as loads using (engine)
    where depths.depth = 0
        and depths.next_edge_at is not null
        and (
            seconds_between(depths.edge_at, depths.next_edge_at) >= greatest(10, 3 * loads.step_s)
            or depths.engine not in (select weighed.engine from advice.weighed_findings as weighed where weighed.engine is not null)
        )
    union all
    -- a lone sample: an instant, with no time before or after it
    select engine, first_at as window_start, last_at as window_end, origin
    from core.seen_loads as loads
    where samples = 1 and not exists (from findings where findings.engine = loads.engine)
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
    anti join findings as begun
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
)

select
    calm.engine,
    'healthy' as verdict,
    calm.window_start,
    calm.window_end,
    calm.window_start as peak_at,
    0.0 as severity,
    case when calm.origin = 'metrics' then 0.9 else 0.6 end * case when window_s = 0 then 0.5 else 1 end as confidence,
    case
        when window_s = 0 and calm.max_waiting > 0
            then format('At the one instant seen, {} waited beside {} running.', calm.max_waiting, calm.max_running)
        when window_s = 0 and calm.max_running > 0 then 'At the one instant seen, nobody waited.'
        when window_s = 0 then 'At the one instant seen, the engine was idle.'
        when calm.max_running > 0
            then format(
                'No pressure for {}: {}{}.',
                spoken_duration(window_s),
                -- a queue that is a remark, or too little for one
                if(calm.max_waiting > 0, 'few waited, or not for long', 'nothing waited long'),
                if(preemptions.count_best is null, '', ', nobody was interrupted')
            )
        else format('Idle for {}.', spoken_duration(window_s))
    end as summary,
    sentences([
        format('KV usage at most {:.0f} %.', 100 * calm.max_kv_usage_ratio),
        format('{} requests running at most, {} waiting.', calm.max_running, calm.max_waiting),
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
inner join core.seen_loads as loads using (engine)
left join prefills using (engine, window_start)
left join marts.preemptions using (engine)
where not exists (from core.unrelated_runs)
    -- an engine that has preempted before the one instant seen was not calm
    and calm.engine not in (
        select counted.engine
        from core.counts_at_an_instant as counted
        where but_it_has_preempted(counted.preemptions, counted.finished) is not null
    )
    -- idle after work that no line tells of: that cannot be told, and is not calm beside
    and coalesce(loads.untold_tokens_per_s, 0) = 0
order by calm.engine, calm.window_start
