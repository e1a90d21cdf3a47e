-- What to change: at most three levers per engine, each with a value worked out from the run's own numbers, its price and its
-- test.
--
-- How much of an effect to expect is told by a replay of the recorded requests under the setting where there is one
-- (advice.replayed_effects, the figures of `kvpressure whatif`), else by rule of thumb: told_by says which. Both figures of a
-- change are replays', with the setting as it was and as proposed, so that what the replay misses of the run is no effect.
--
-- grain: run, engine, rank
-- needs: advice.proposals
-- column: run             VARCHAR | The analyzed run.
-- column: engine          VARCHAR | Engine.
-- column: rank            BIGINT  | 1 is to be tried first.
-- column: title           VARCHAR | What to do.
-- column: setting         VARCHAR | The engine's setting that does it; NULL where callers, clients or routers do it.
-- column: from_value      VARCHAR | Its value in the run; NULL where no input says. Of other levers: the quantity it acts on.
-- column: to_value        VARCHAR | The value proposed, to be tried first.
-- column: expected_effect VARCHAR | What should change and by how much.
-- column: trade_off       VARCHAR | What it costs.
-- column: evidence        VARCHAR | The run's numbers the value rests on.
-- column: verify_by       VARCHAR | An experiment that changes this alone.
-- column: next_limit      VARCHAR | What will limit next.
-- column: method          VARCHAR | How value and effect were worked out.
-- column: flag            VARCHAR | How the setting is given to the engine.
-- column: verdict         VARCHAR | The verdict it answers.
-- column: lever           VARCHAR | The lever, as the catalogue calls it.
-- column: told_by         VARCHAR | What tells how much to expect: `replay` or `rule of thumb`.
-- check:  rank between 1 and 3 | More than three changes at once teach nothing.
-- check:  told_by in ('replay', 'rule of thumb') | One of the two.
with figures(place, figure, name, unit, is_count, is_more_better) as (
    values
        (1, 'preemptions', 'preemptions', '', true, false),
        (2, 'recomputed_tokens', 'tokens computed again', '', true, false),
        (3, 'queue_s', 'time with requests waiting', ' s', false, false),
        (4, 'itl_p99_ms', '99th percentile between tokens', ' ms', false, false),
        (5, 'ttft_p50_ms', 'median time to first token', ' ms', false, false),
        (6, 'output_tokens_per_s', 'output tokens per second', '', false, true)
),

-- a figure counts as moved where its interval leaves out what the run itself is replayed to, or its best estimate is a tenth away
moved as (
    select
        effects.engine,
        effects.rank,
        figures.place,
        (effects.best > effects.before) = figures.is_more_better as is_better,
        -- seconds, where neither is less than one
        if(unit = ' ms' and least(effects.before, effects.best) >= 1000, 1000, 1) as divisor,
        format(
            '{} from {}{} to {}{} ({} to {})',
            figures.name,
            told_figure(effects.before / divisor, is_count),
            -- a replay hardly ever counts exactly what the run did, and the reader has seen the run's own count
            if(
                is_count and told_figure(effects.recorded, is_count) <> told_figure(effects.before, is_count),
                format(' ({} recorded)', told_figure(effects.recorded, is_count)),
                ''
            ),
            told_figure(effects.best / divisor, is_count),
            if(divisor = 1000, ' s', unit),
            told_figure(effects.low / divisor, is_count), told_figure(effects.high / divisor, is_count)
        ) as words,
    from advice.replayed_effects as effects
    inner join figures using (figure)
    where effects.before not between effects.low and effects.high
        or abs(effects.best - effects.before) > 0.1 * greatest(effects.best, effects.before)
),

replayed as (
    select
        effects.engine,
        effects.rank,
        any_value(effects.reason) as reason,
        (
            select string_agg(words, ', ' order by place)
            from moved
            where moved.engine = effects.engine and moved.rank = effects.rank and is_better
        ) as gains,
        (
            select string_agg(words, ', ' order by place)
            from moved
            where moved.engine = effects.engine and moved.rank = effects.rank and not is_better
        ) as losses,
    from advice.replayed_effects as effects
    group by effects.engine, effects.rank
),

told as (
    select
        proposals.*,
        replayed.reason,
        replayed.engine is not null and replayed.reason is null as is_replayed,
        if(
            is_replayed,
            [coalesce(format('Replayed: {}.', replayed.gains), 'Replayed, nothing gets better by much.')],
            estimates
        ) as expectations,
        if(is_replayed, [format('Replayed: {}.', replayed.losses)], prices) as costs,
    from advice.proposals as proposals
    left join replayed using (engine, rank)
)

select
    getvariable('run') as run,
    engine,
    rank,
    title,
    setting,
    from_value,
    to_value,
    nullif(array_to_string(sentences(list_concat(effects, expectations)), ' '), '') as expected_effect,
    array_to_string(sentences(list_append(costs, trade_off)), ' ') as trade_off,
    nullif(array_to_string(sentences(evidence), ' '), '') as evidence,
    verify_by,
    next_limit,
    concat_ws('; ', method, if(is_replayed, 'effect and price by replay', format('not replayed: {}', reason))) as method,
    flag,
    verdict,
    lever,
    if(is_replayed, 'replay', 'rule of thumb') as told_by,
from told
order by engine, rank
