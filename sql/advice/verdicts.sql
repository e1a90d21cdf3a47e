-- The verdicts of the run: each in its own window, one of them primary for each engine.
--
-- A queue behind a full pool and preemption are one shortage: where the pool also preempts, materially and in the same time, preemption
-- is the diagnosis, and what the queue cost counts for it; so it is with a stalled engine and whoever waits in it. What does not matter
-- (advice.weighed_findings) is a remark. Time in which nothing was wrong is `healthy`, in its own windows; where the inputs cannot show
-- pressure at all, that is `insufficient_evidence`, with what to record next time.
--
-- grain: run, engine, verdict, window_start
-- column: run              VARCHAR     | The analyzed run.
-- column: engine           VARCHAR     | Engine.
-- column: window_start     TIMESTAMPTZ | When it began; NULL where only metrics pages without a time show it.
-- column: window_end       TIMESTAMPTZ | When it was last seen.
-- column: verdict          VARCHAR     | What happened.
-- column: severity         DOUBLE      | 0 to 100: what users felt and the operator paid; of the main verdict with the queue that is of the same shortage.
-- column: confidence       DOUBLE      | 0 to 1.
-- column: is_primary       BOOLEAN     | Whether it is the engine's one main verdict.
-- column: summary          VARCHAR     | One sentence.
-- column: title            VARCHAR     | What to call it where the verdict's own word says something else; NULL where that word will do.
-- column: evidence         VARCHAR[]   | Sentences that speak for it, with numbers.
-- column: evidence_against VARCHAR[]   | Sentences that speak against it, or bound it.
-- column: missing          VARCHAR[]   | What to record next time to know more.
-- column: peak_at          TIMESTAMPTZ | When it was worst.
-- check:  severity between 0 and 100 | A scale.
-- check:  confidence between 0 and 1 | A probability.
-- check:  window_start <= window_end | Windows.
with counted as (
    select
        engine,
        flatten(list(counted_since_start(preemptions, finished, queued_s, queued_requests, started_at))) as sentences,
    from core.counts_at_an_instant
    group by engine
),

told as (
    from advice.weighed_findings
    union all by name
    from advice.verdicts_healthy
    union all by name
    from advice.verdicts_blind
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
                from advice.weighed_findings as companion
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

weighed as (
    select
        *,
        -- a cause that is not told counts half: one that is told says more
        max(case when matters then severity * if(verdict = 'queue_unknown', 0.5, 1) + queue_severity end) over of_its_kind as weight,
        max(queue_severity) over of_its_kind > 0 as has_queue,
    from ranked
    window of_its_kind as (partition by engine, verdict)
),

chosen as (
    select
        *,
        row_number() over (
            partition by engine
            -- a finding that does not matter is a remark: the run's verdict is then that it cannot be told, or healthy
            order by matters desc,
                -- what happened is told by its worst window, with or without a queue beside it
                weight desc nulls last, case when matters then severity end desc,
                verdict = 'insufficient_evidence' desc, verdict = 'healthy' desc, window_s desc nulls last, window_start
        ) = 1 as is_primary,
        -- which need not be the one that is chosen
        arg_max(verdict, severity) filter (where matters) over (partition by engine) as severest,
        max(severity) filter (where matters) over (partition by engine) as most_severity,
    from weighed
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
    title,
    case
        when is_primary
            then list_concat(evidence, list_filter(coalesce(counted.sentences, []), lambda sentence: not list_contains(evidence, sentence)))
        else evidence
    end as evidence,
    case
        when is_primary and matters and most_severity > greatest(severity, queue_severity) then list_append(
            evidence_against,
            format(
                'By itself {} is more severe ({:.0f}); {}.',
                spoken_verdict(severest),
                most_severity,
                if(has_queue, 'with this counts the queue that is of the same shortage', 'its cause is not told, and of this one it is')
            )
        )
        else evidence_against
    end as evidence_against,
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
left join core.engines using (engine)
left join counted using (engine)
order by engine, is_primary desc, severity desc, window_start, verdict
