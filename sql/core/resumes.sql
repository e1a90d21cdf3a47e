-- Runs of blocks that end where a request stood: whether that request can have been preempted, or a prompt only ends there as well.
--
-- A prompt that is asked again ends at its own end, which is where its first answer stood if that was shorter than a block. A counter
-- of no preemption rules one out. Where none tells, two things do: the pool had room all the while, from before the request stood still
-- until it was rebuilt; or it would have stood still for longer than any request is known to have taken.
--
-- grain: engine, again_index
-- needs: core.blocks_stored_again
-- column: engine      VARCHAR     | Engine that published the events.
-- column: again_index BIGINT      | The run of blocks, in core.blocks_stored_again.
-- column: resumed_at  TIMESTAMPTZ | When it was stored.
-- column: is_possible BOOLEAN     | Whether a preempted request may have been rebuilt there.
with counted as (
    select engine, sum(preemptions) as preemptions from core.preemption_intervals group by engine
),

requests as (
    select max(seconds_between(arrived_at, finished_at)) as longest_s from core.requests
),

pools as (
    select
        again.engine,
        again.again_index,
        max(states.kv_usage_ratio) as most_held,
        count(states.kv_usage_ratio) as samples,
    from core.blocks_stored_again as again
    inner join core.engine_states as states
        on states.engine = again.engine
        -- a sample more than that on either side: log lines are ten seconds apart
        and states.sampled_at between plus_seconds(again.stored_at, -again.idle_s - 10) and plus_seconds(again.stored_at, 10)
    where again.kind = 'resume'
    group by again.engine, again.again_index
)

select
    again.engine,
    again.again_index,
    again.stored_at as resumed_at,
    coalesce(
        counted.preemptions > 0,
        not coalesce(pools.samples >= 2 and pools.most_held < 0.5, false)
        and not coalesce(again.idle_s > 2 * requests.longest_s, false) -- twice: some may be in no input
    ) as is_possible,
from core.blocks_stored_again as again
left join counted using (engine)
cross join requests
left join pools using (engine, again_index)
where again.kind = 'resume'
order by again.engine, again.again_index
