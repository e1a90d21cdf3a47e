-- What to change: at most three levers per engine, each with a value worked out from the run's own numbers, its price and its
-- test.
--
-- grain: run, engine, rank
-- column: run             | The analyzed run.
-- column: engine          | Engine.
-- column: rank            | 1 is to be tried first.
-- column: title           | What to do.
-- column: setting         | The engine's setting that does it; NULL where callers, clients or routers do it.
-- column: from_value      | Its value in the run; NULL where no input says. Of other levers: the quantity it acts on.
-- column: to_value        | The value proposed, to be tried first.
-- column: expected_effect | What should change and by how much.
-- column: trade_off       | What it costs.
-- column: evidence        | The run's numbers the value rests on.
-- column: verify_by       | An experiment that changes this alone.
-- column: next_limit      | What will limit next.
-- column: method          | How value and effect were worked out.
-- column: flag            | How the setting is given to the engine.
-- column: verdict         | The verdict it answers.
-- column: lever           | The lever, as the catalogue calls it.
-- check:  rank between 1 and 3 | More than three changes at once teach nothing.
select
    getvariable('run') as run,
    engine,
    rank,
    title,
    setting,
    from_value,
    to_value,
    nullif(array_to_string(sentences(effects), ' '), '') as expected_effect,
    array_to_string(sentences(list_append(prices, trade_off)), ' ') as trade_off,
    nullif(array_to_string(sentences(evidence), ' '), '') as evidence,
    verify_by,
    next_limit,
    method,
    flag,
    verdict,
    lever,
from advice.proposals
order by engine, rank
