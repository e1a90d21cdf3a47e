-- What to know about the inputs before trusting the answer: faults, holes, restarts and guesses, each counted.
--
-- severity says what it does to the answer: `info` nothing, `warning` bounds or widens it, `error` a part of the inputs is missing from it.
--
-- grain: run, source, flag
-- needs: core.faults_of_clients or core.faults_of_engines or core.faults_of_inputs or core.faults_of_settings
-- column: run      VARCHAR | The analyzed run.
-- column: source   VARCHAR | Input, or engine, it is about.
-- column: flag     VARCHAR | Short name of the condition.
-- column: severity VARCHAR | info, warning or error.
-- column: count    BIGINT  | How many lines, samples, requests or seconds it concerns.
-- column: detail   VARCHAR | One sentence with the numbers.
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
