-- The hundred worst episodes of a day: the windows in which a verdict held, hardest felt first.
--
-- grain: day, position
-- column: day          | The day.
-- column: position     | 1 is the worst.
-- column: run          | Engine, by its name in the configuration.
-- column: engine       | Rank within it.
-- column: verdict      | What happened.
-- column: window_start | When it began.
-- column: window_end   | When it was last seen.
-- column: severity     | 0 to 100.
-- column: confidence   | 0 to 1.
-- column: summary      | One sentence.
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
