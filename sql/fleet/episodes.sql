-- The hundred worst episodes of a day: the windows in which a verdict held, hardest felt first.
--
-- grain: day, position
-- column: day          DATE        | The day.
-- column: position     BIGINT      | 1 is the worst.
-- column: run          VARCHAR     | Engine, by its name in the configuration.
-- column: engine       VARCHAR     | Rank within it.
-- column: verdict      VARCHAR     | What happened.
-- column: window_start TIMESTAMPTZ | When it began.
-- column: window_end   TIMESTAMPTZ | When it was last seen.
-- column: severity     DOUBLE      | 0 to 100.
-- column: confidence   DOUBLE      | 0 to 1.
-- column: summary      VARCHAR     | One sentence.
-- check:  window_start <= window_end | Windows.
select
    getvariable('day')::date as day,
    row_number() over (
        order by severity desc, seconds_between(window_start, window_end) desc, run, engine, window_start, verdict
    ) as position,
    run,
    engine,
    verdict,
    window_start,
    window_end,
    severity,
    confidence,
    summary,
from days.verdicts
where severity >= 20 and verdict not in ('healthy', 'insufficient_evidence')
order by position
limit 100
