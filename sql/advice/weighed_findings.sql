-- Every finding worth a remark, of inputs with a time and without, and whether it matters.
--
-- Interrupted answers matter from two requests in a hundred on, delays from a severity of ten; below that a finding is a remark.
--
-- step:  verdicts
-- grain: engine, verdict, window_start
-- needs: advice.findings or advice.verdicts_untimed
-- column: engine           VARCHAR       | Engine.
-- column: verdict          VARCHAR       | What happened.
-- column: window_start     TIMESTAMPTZ   | When it began; NULL where only metrics pages without a time show it.
-- column: window_end       TIMESTAMPTZ   | When it was last seen.
-- column: peak_at          TIMESTAMPTZ   | When it was worst.
-- column: severity         DOUBLE        | 0 to 100.
-- column: confidence       DECIMAL(18,5) | 0 to 1.
-- column: summary          VARCHAR       | One sentence.
-- column: evidence         VARCHAR[]     | Sentences that speak for it.
-- column: evidence_against VARCHAR[]     | Sentences that speak against it, or bound it.
-- column: missing          VARCHAR[]     | What would settle it next time.
-- column: title            VARCHAR       | What to call it where the verdict's own word says something else; NULL where that word will do.
-- column: matters          BOOLEAN       | Whether it may be the engine's main verdict.
-- check:  severity between 1 and 100 | Less is not worth a remark.
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
order by engine, verdict, window_start
