-- What metrics pages without a time amount to: each an instant, nobody knows which, and between two of them what counters rose by.
--
-- They say as much as a page with a time does of its instant. Windows are NULL: an instant that is not known is not made up, and a
-- file's own date is not the time at which its page was fetched.
--
-- step:  verdicts
-- grain: engine, verdict
-- needs: core.untimed_pages
-- needs: core.engines
-- column: engine           VARCHAR       | Engine.
-- column: verdict          VARCHAR       | queue_*, healthy, preemption, or insufficient_evidence where no page says whether anybody waits.
-- column: severity         DOUBLE        | 0 to 100.
-- column: confidence       DECIMAL(17,5) | 0 to 1.
-- column: summary          VARCHAR       | One sentence.
-- column: evidence         VARCHAR[]     | Sentences that speak for it.
-- column: evidence_against VARCHAR[]     | Sentences that speak against it, or bound it.
-- column: missing          VARCHAR[]     | What to do next.
-- check:  severity between 0 and 100 | A scale.
-- check:  confidence between 0 and 1 | A probability.
with pages as (
    select
        pages.*,
        engines.max_num_seqs,
        engines.max_num_seqs_source,
        coalesce(slots.setting, 'max_num_seqs') as slots_setting,
        coalesce(
            capacity_cause(
                pages.waiting,
                pages.deferred,
                pages.running,
                engines.max_num_seqs,
                pages.kv_usage_ratio,
                ratio(pages.kv_usage_ratio, pages.running)
            ),
            'unknown'
        ) as cause,
        instant_severity(ratio(pages.waiting, pages.waiting + pages.running)) as severity,
        count(*) over (partition by pages.engine) as pages,
        count(*) filter (where pages.waiting > 0) over (partition by pages.engine) as queued_pages,
        max(pages.running) over (partition by pages.engine) as most_running,
        min(pages.running) over (partition by pages.engine) as least_running,
        max(pages.waiting) over (partition by pages.engine) as most_waiting,
        max(pages.kv_usage_ratio) over (partition by pages.engine) as most_kv_usage_ratio,
    from core.untimed_pages as pages
    inner join core.engines using (engine)
    left join engine_settings_known() as slots on slots.lever = 'more_sequences' and slots.engine_kind = engines.engine_kind
    where not exists (from core.engine_states as states where states.engine = pages.engine)
),

-- the page with the worst queue speaks for all; where nobody waits, the fullest
worst as (
    from pages
    qualify row_number() over (partition by engine order by severity desc nulls last, kv_usage_ratio desc nulls last, source, page) = 1
),

seen as (
    select
        worst.engine,
        case
            when worst.waiting > 0 then concat('queue_', worst.cause)
            when worst.waiting = 0 and has_preempted is null then 'healthy'
            else 'insufficient_evidence'
        end as verdict,
        if(worst.waiting > 0, worst.severity, 0) as severity,
        -- of an instant: half as sure
        case
            when worst.waiting > 0 then 0.5 * queue_confidence(worst.cause, worst.max_num_seqs_source, worst.kv_usage_ratio)
            when worst.waiting = 0 and has_preempted is null then 0.45
            else 0.9
        end as confidence,
        case
            when worst.waiting > 0 then format(
                'At {} not known, {} requests waited for {}, beside {} running.',
                case
                    when worst.pages = 1 then 'the one instant seen, whose time is'
                    when worst.queued_pages = 1 then format('one of {} instants seen, whose times are', worst.pages)
                    else format('the worst of {} instants seen, whose times are', worst.pages)
                end,
                worst.waiting,
                waited_for(worst.cause, worst.max_num_seqs, worst.slots_setting, worst.kv_usage_ratio),
                worst.running
            )
            else format(
                'At {} not known, {}{}',
                if(worst.pages = 1, 'the one instant seen, whose time is', format('the {} instants seen, whose times are', worst.pages)),
                case
                    when worst.waiting is null then 'whether anybody waited cannot be told'
                    when worst.most_running > 0 then 'nobody waited'
                    else 'the engine was idle'
                end,
                coalesce(', ' || has_preempted, '.')
            )
        end as summary,
        sentences([
            case
                when worst.pages > 1 then format(
                    'In the {} pages {} requests ran and up to {} waited{}.',
                    worst.pages,
                    if(worst.least_running = worst.most_running, worst.most_running::varchar, format('{} to {}', worst.least_running, worst.most_running)),
                    worst.most_waiting,
                    coalesce(format('; KV usage was {:.0f} % at most', 100 * worst.most_kv_usage_ratio), '')
                )
                when worst.waiting > 0 then format('KV usage was {:.0f} %.', 100 * worst.kv_usage_ratio)
                else format('{} requests ran{}.', worst.running, coalesce(format('; KV usage was {:.0f} %', 100 * worst.kv_usage_ratio), ''))
            end,
            case
                when rises.generation_tokens = 0 then 'The pages show the same counts: nothing was generated between them.'
                when rises.preemptions = 0 then 'No preemption was counted between the pages.'
                when not rises.is_one_life then format(
                    'What the pages count as preemptions lies {} apart: if they are of one server that was not started anew, that many were counted between them.',
                    spoken_count(rises.preemptions)
                )
            end,
        ]) as evidence,
        [
            if(
                worst.pages = 1,
                only_an_instant(),
                'Each page is one instant, and in which order they were taken only their counters can say: how long anything lasted is not known.'
            )
        ] as evidence_against,
    from worst
    left join core.untimed_rises as rises using (engine)
    -- of several pages it is told between them
    cross join lateral (
        select if(worst.pages = 1, but_it_has_preempted(worst.preemptions, worst.finished), null) as has_preempted,
    ) as counted
),

preempted as (
    select
        rises.engine,
        'preemption' as verdict,
        preemption_severity(ratio(rises.preemptions, rises.finished), null) as severity,
        0.9 as confidence,
        format(
            '{} counted between the pages, whose times are not known: running requests lost their KV blocks.',
            -- how many requests they hit is not counted: one may be preempted again and again
            if(rises.preemptions = 1, 'One preemption was', spoken_count(rises.preemptions) || ' preemptions were')
        ) as summary,
        sentences([
            format('The counter of preemptions rose by {}, while {} requests finished.', spoken_count(rises.preemptions), spoken_count(rises.finished)),
            case
                -- the pages were taken before and after the load
                when worst.most_running = 0 and worst.most_waiting = 0
                    then 'On every page the engine is idle: how full the pool was when it preempted lies between them.'
                else format(
                    'On the pages {} requests ran and {} waited at most{}.',
                    worst.most_running,
                    worst.most_waiting,
                    coalesce(format('; KV usage was {:.0f} % at most', 100 * worst.most_kv_usage_ratio), '')
                )
            end,
        ]) as evidence,
        ['How far apart the pages lie is not known: a rate cannot be told.'] as evidence_against,
    from core.untimed_rises as rises
    inner join worst using (engine)
    where rises.is_one_life and rises.preemptions > 0
)

select
    engine,
    verdict,
    round(clamp(coalesce(severity, 0), 0, 100), 1) as severity,
    confidence,
    summary,
    evidence,
    evidence_against,
    [a_dated_look()] as missing,
from (
    from seen
    union all by name
    from preempted
)
order by engine, severity desc, verdict
