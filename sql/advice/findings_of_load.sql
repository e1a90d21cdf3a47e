-- What each spell of the load's shape amounts to: held back by its client, without end, or on one engine more than on the others.
--
-- step:  verdicts
-- grain: engine, verdict, window_start
-- needs: marts.spell_facts
-- column: engine           VARCHAR      | Engine.
-- column: verdict          VARCHAR      | What happened.
-- column: window_start     TIMESTAMPTZ  | When it began.
-- column: window_end       TIMESTAMPTZ  | When it was last seen.
-- column: peak_at          TIMESTAMPTZ  | When it was worst.
-- column: severity         DOUBLE       | As felt or paid, on the scale of all verdicts; not rounded, and not held to its ends.
-- column: confidence       DECIMAL(3,2) | 0 to 1.
-- column: summary          VARCHAR      | One sentence.
-- column: evidence         VARCHAR[]    | Sentences that speak for it.
-- column: evidence_against VARCHAR[]    | Sentences that speak against it, or bound it.
-- column: missing          VARCHAR[]    | What would settle it next time.
with held_back as (
    select
        facts.engine,
        facts.verdict,
        facts.window_start,
        facts.window_end,
        facts.peak_at,
        delay_severity(ratio(facts.weight, facts.signs), ratio(facts.weight, facts.weight + served.seconds)) as severity,
        0.85 as confidence,
        format(
            '{} were held back by their own client, for {} on average, while the engine had room.',
            if(facts.signs = 1, 'One request', format('{} requests', spoken_count(facts.signs))),
            spoken_duration(ratio(facts.weight, facts.signs))
        ) as summary,
        sentences([
            format('Nobody waited in the engine then: {} ran at most{}.', facts.max_running, coalesce(format(', of {} slots', setups.max_num_seqs), '')),
            format('KV usage at most {:.0f} %.', 100 * facts.max_kv_usage_ratio),
            format('The client had at most {} requests in flight.', limits.max_concurrency),
        ]) as evidence,
        ['Whether the engine serves more at once as fast, only the experiment shows.'] as evidence_against,
        []::varchar[] as missing,
    from marts.spell_facts as facts
    left join core.engine_setups as setups
        on setups.engine = facts.engine and is_within(facts.peak_at, setups.setup_start, setups.setup_end)
    left join lateral (
        select sum(seconds_between(requests.arrived_at, requests.finished_at)) as seconds
        from core.requests
        where requests.engine = facts.engine
            and requests.client_queue_s >= 0.1
            and requests.arrived_at between facts.window_start and facts.window_end
    ) as served on true
    left join lateral (
        select max(runs.max_concurrency) as max_concurrency
        from staging.client_runs as runs
        where runs.started_at <= facts.window_end and runs.ended_at >= facts.window_start
    ) as limits on true
    where facts.verdict = 'client_limited'
),

runaway as (
    select
        engine,
        verdict,
        window_start,
        window_end,
        peak_at,
        -- it costs others what it holds: more where they wait
        case when max_waiting > 0 then 50 else 25 end as severity,
        0.7 as confidence,
        format(
            '{} requests generated for {} without a pause, {} tokens each or more: an answer nobody limited.',
            max_running, spoken_duration(seconds_between(window_start, window_end)), spoken_count(peak_weight)
        ) as summary,
        sentences([
            format('No prompt was computed in that time, and {} requests ran throughout.', max_running),
            format('KV usage rose to {:.0f} %.', 100 * max_kv_usage_ratio),
            case when max_waiting > 0 then format('Up to {} requests waited behind them.', max_waiting) end,
        ]) as evidence,
        []::varchar[] as evidence_against,
        [to_tell_output_limits(engine_kind)] as missing,
    from marts.spell_facts
    left join core.engines using (engine)
    where verdict = 'runaway_generation'
),

uneven as (
    select
        facts.engine,
        facts.verdict,
        facts.window_start,
        facts.window_end,
        facts.peak_at,
        100 * sqrt(1 - ratio(loads.mean_running, loads.running)) * 0.7 as severity,
        case when facts.seconds = 0 then 0.4 else 0.85 end as confidence,
        format(
            'The load is uneven: this engine runs {:.0f} requests where the {} engines run {:.1f} on average and one only {:.0f}.',
            loads.running, loads.ranks, loads.mean_running, loads.least_running
        ) as summary,
        case when facts.seconds = 0 then [] else [format('Held for {} of the time observed.', spoken_duration(facts.seconds))] end as evidence,
        case when facts.seconds = 0 then [only_an_instant()] else [] end as evidence_against,
        case when facts.seconds = 0 then [a_second_look()] else [] end as missing,
    from marts.spell_facts as facts
    left join (
        select
            facts.engine,
            facts.window_start,
            avg(rank_loads.running) as running,
            avg(rank_loads.mean_running) as mean_running,
            avg(rank_loads.least_running) as least_running,
            max(rank_loads.ranks) as ranks,
        from marts.spell_facts as facts
        inner join core.rank_loads
            on rank_loads.engine = facts.engine
            and rank_loads.sampled_at between facts.window_start and facts.window_end
        where facts.verdict = 'imbalance'
        group by all
    ) as loads using (engine, window_start)
    where facts.verdict = 'imbalance'
)

select engine, verdict, window_start, window_end, peak_at, severity, confidence, summary, evidence, evidence_against, missing,
from (
    from held_back
    union all by name from runaway
    union all by name from uneven
)
order by engine, verdict, window_start
