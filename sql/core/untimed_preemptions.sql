-- Preemptions that metrics pages tell between which no time is known: counted since a start that a log shows, else between two pages of
-- one life.
--
-- A start that is in a log makes all that its process has counted since then a part of the run, up to the last page there is; the run may
-- have had more.
--
-- grain: engine
-- needs: core.counts_at_an_instant or core.untimed_rises
-- column: engine         VARCHAR | Engine.
-- column: preemptions    BIGINT  | Preemptions counted.
-- column: finished       BIGINT  | Requests finished meanwhile; NULL where a page does not say.
-- column: is_since_start BOOLEAN | Whether they are counted since the start: the least that there were. Else they are all between the pages.
-- check:  preemptions >= 0 | A count.
with since_start as (
    select counted.engine, counted.preemptions::bigint as preemptions, counted.finished::bigint as finished
    from core.counts_at_an_instant as counted
    where counted.preemptions is not null
        and exists (
            from staging.engine_events as starts
            where starts.event = 'engine_start'
                and list_contains(names_of_engine(counted.engine), starts.engine)
                -- a server reads its settings, and loads libraries, before its engine says that it starts
                and counted.started_at between plus_seconds(starts.happened_at, -300) and plus_seconds(starts.happened_at, 1)
        )
)

select engine, preemptions, finished, true as is_since_start
from since_start
union all by name
select engine, preemptions, finished, false as is_since_start
from core.untimed_rises
where is_one_life and preemptions is not null and engine not in (select engine from since_start)
order by engine
