-- What to know about the inputs before trusting the answer: faults, holes, restarts and guesses, each counted.
--
-- severity says what it does to the answer: `info` nothing, `warning` bounds or widens it, `error` a part of the inputs is missing from it.
--
-- grain: run, source, flag
-- column: run      | The analyzed run.
-- column: source   | Input, or engine, it is about.
-- column: flag     | Short name of the condition.
-- column: severity | info, warning or error.
-- column: count    | How many lines, samples, requests or seconds it concerns.
-- column: detail   | One sentence with the numbers.
-- check:  severity in ('info', 'warning', 'error') | Three levels.
select getvariable('run') as run, source, flag, severity, count, detail
from (
    from core.faults_of_inputs
    union all by name
    from core.faults_of_settings
    union all by name
    from core.faults_of_engines
    union all by name
    from core.faults_of_clients
)
order by case severity when 'error' then 0 when 'warning' then 1 else 2 end, source, flag
