-- What each spell amounts to: severity, confidence, and the sentences that say so, before the verdicts are ranked.
--
-- advice.findings_of_* work them out. Severity is on one scale (sql/lib/severity.sql). Confidence is how well the inputs that showed the
-- spell can tell its cause from its look-alikes. Evidence sentences carry the numbers and their units; what speaks against, and what is
-- missing, is said beside; a sentence whose figures are not known is left out.
--
-- step:  verdicts
-- grain: engine, verdict, window_start
-- column: engine           VARCHAR       | Engine.
-- column: verdict          VARCHAR       | What happened.
-- column: window_start     TIMESTAMPTZ   | When it began.
-- column: window_end       TIMESTAMPTZ   | When it was last seen.
-- column: peak_at          TIMESTAMPTZ   | When it was worst.
-- column: severity         DOUBLE        | 0 to 100.
-- column: confidence       DECIMAL(18,5) | 0 to 1.
-- column: summary          VARCHAR       | One sentence.
-- column: evidence         VARCHAR[]     | Sentences that speak for it.
-- column: evidence_against VARCHAR[]     | Sentences that speak against it, or bound it.
-- column: missing          VARCHAR[]     | What would settle it next time.
-- column: title            VARCHAR       | What to call it where the verdict's own word says something else; NULL where that word will do.
-- check:  severity between 0 and 100 | A scale.
-- check:  confidence between 0 and 1 | A probability.
select * replace (round(clamp(severity, 0, 100), 1) as severity),
from (
    from advice.findings_of_preemption
    union all by name from advice.findings_of_queues
    union all by name from advice.findings_of_prefixes
    union all by name from advice.findings_of_steps
    union all by name from advice.findings_of_load
    union all by name from advice.findings_of_starts
    union all by name from advice.findings_of_records
)
order by engine, verdict, window_start
