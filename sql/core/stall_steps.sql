-- For each pause, how many engine steps the paused stream missed, by what its peers received meanwhile.
--
-- A stream gets a token in each step it runs in. When answers are held up on their way (a busy server process, a slow network),
-- all streams fall silent while the engine goes on, and what was held up then comes at once: a stream that ran has as many tokens
-- in that burst as its peers, a preempted one has fewer for good. So tokens are counted from just before (or just after) the pause
-- to a while after its end, for several of these edges, and the smallest deficit counts: one that does not last is only delay.
--
-- grain: stream, gap_index
-- needs: core.request_gaps
-- column: stream       BIGINT | Stream that paused.
-- column: gap_index    BIGINT | Its pause.
-- column: peers        BIGINT | Streams it was compared with.
-- column: silent_s     DOUBLE | Time within the pause in which every peer was silent too.
-- column: steps        BIGINT | Steps from edge to edge: the upper quartile of what the peers received.
-- column: missed_steps BIGINT | Steps it has fewer than that; NULL without peers.
-- column: step_s       DOUBLE | Time of a missed step.
-- column: away_s       DOUBLE | Time in which it did not run: missed steps times their time; NULL without peers.
-- check:  silent_s >= 0 | A length.
with gaps as (
    select gaps.stream, gaps.gap_index, gaps.started_at, gaps.ended_at, gaps.duration_s, streams.witness_group, streams.last_at,
    from core.request_gaps as gaps
    inner join core.gap_streams as streams using (stream)
),

-- chunks less than a millisecond apart came in one read
reads as (
    select stream, date_trunc('milliseconds', received_at) as read_at, max(chunk_index) + 1 as chunks
    from core.gap_chunks
    group by all
),

-- a plain decode step, as the client sees it: the lower quartile of the times between reads, in ten seconds of the run
plain_steps as (
    select
        streams.witness_group,
        floor(epoch(chunks.received_at) / 10)::bigint as decade,
        quantile_cont(chunks.gap_s, 0.25) as plain_step_s,
    from core.gap_chunks as chunks
    inner join core.gap_streams as streams using (stream)
    where chunks.gap_s >= 0.001
    group by all
),

quiet as (
    select stream, gap_index, count(*) as peers, min(silent_s) as silent_s,
    from core.stall_peers
    group by all
),

members as (
    select stream, gap_index, stream as member from gaps
    union all
    select stream, gap_index, peer from core.stall_peers
),

edges as (
    from (values ('before', -0.05), ('after', 0.05)) as leads(lead_edge, lead_s)
    cross join (values ('short', 0.05), ('middle', 0.1), ('long', 0.25)) as tails(tail_edge, tail_s)
),

-- counts at the five edges: two at the start, three at the end
moments as (
    select gaps.stream, gaps.gap_index, members.member, edge.edge, plus_seconds(edge.base, edge.shift_s) as edge_at,
    from gaps
    inner join members using (stream, gap_index)
    cross join lateral (
        values
            ('before', gaps.started_at, -0.05), ('after', gaps.started_at, 0.05),
            ('short', gaps.ended_at, 0.05), ('middle', gaps.ended_at, 0.1), ('long', gaps.ended_at, 0.25)
    ) as edge(edge, base, shift_s)
),

counts as (
    select moments.stream, moments.gap_index, moments.member, moments.edge, coalesce(reads.chunks, 0) as chunks,
    from moments
    asof left join reads on reads.stream = moments.member and reads.read_at <= moments.edge_at
),

received as (
    select
        first_count.stream,
        first_count.gap_index,
        first_count.member,
        edges.lead_edge,
        edges.tail_edge,
        edges.lead_s,
        edges.tail_s,
        last_count.chunks - first_count.chunks as chunks,
    from counts as first_count
    inner join edges on edges.lead_edge = first_count.edge
    inner join counts as last_count
        on last_count.stream = first_count.stream
        and last_count.gap_index = first_count.gap_index
        and last_count.member = first_count.member
        and last_count.edge = edges.tail_edge
),

-- a stream that ended before the edge tells nothing about the steps to it
compared as (
    select
        gaps.stream,
        gaps.gap_index,
        gaps.duration_s,
        gaps.started_at,
        gaps.witness_group,
        received.tail_edge,
        gaps.duration_s - any_value(received.lead_s) + any_value(received.tail_s) as window_s,
        any_value(received.chunks) filter (received.member = gaps.stream) as own_chunks,
        bool_or(received.member = gaps.stream and gaps.last_at <= plus_seconds(gaps.ended_at, received.tail_s)) as is_ended,
        quantile_disc(received.chunks, 0.75) filter (
            received.member <> gaps.stream and members_lives.last_at >= plus_seconds(gaps.ended_at, received.tail_s)
        ) as steps,
    from received
    inner join gaps using (stream, gap_index)
    inner join core.gap_streams as members_lives on members_lives.stream = received.member
    group by gaps.stream, gaps.gap_index, gaps.duration_s, gaps.started_at, gaps.witness_group, received.lead_edge, received.tail_edge
),

-- While answers flow, a missed step lasted as long as the average one. While they are held up nothing tells how long each step
-- took; the long ones rebuild or prefill, and in its own rebuild the stream is not away, so a missed one counts as plain decode.
timed as (
    select
        compared.*,
        quiet.silent_s,
        steps - own_chunks as missed_steps,
        ratio(window_s, steps) as mean_step_s,
        ratio(quiet.silent_s, duration_s) as silent_share,
        (1 - silent_share) * mean_step_s + silent_share * least(mean_step_s, plain_steps.plain_step_s) as step_s,
        case
            when not is_ended then missed_steps * step_s
            -- the answer ended with the pause, so that it has fewer tokens anyway: away at most while the others were served
            when tail_edge = 'short' then least(duration_s - quiet.silent_s, missed_steps * mean_step_s)
        end as away_s,
    from compared
    inner join quiet using (stream, gap_index)
    left join plain_steps
        on plain_steps.witness_group = compared.witness_group
        and plain_steps.decade = floor(epoch(compared.started_at) / 10)::bigint
    where steps > 0
),

-- of edges that tell the same the fewest steps count, so that the order of rows decides nothing
nearest as (
    select
        stream,
        gap_index,
        arg_min(
            struct_pack(steps, missed_steps, step_s, away_s), struct_pack(away_s, steps, missed_steps, step_s)
        ) as told,
    from timed
    where away_s is not null
    group by all
)

select
    gaps.stream,
    gaps.gap_index,
    coalesce(quiet.peers, 0) as peers,
    quiet.silent_s,
    nearest.told.steps as steps,
    nearest.told.missed_steps as missed_steps,
    nearest.told.step_s as step_s,
    clamp(nearest.told.away_s, 0, gaps.duration_s) as away_s,
from gaps
left join quiet using (stream, gap_index)
left join nearest using (stream, gap_index)
order by gaps.stream, gaps.gap_index
