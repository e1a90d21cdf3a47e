-- For each pause, the streams to compare it with: up to sixteen that ran before it, through it and to its end, the oldest first.
--
-- Under first come, first served the oldest running requests are the last to be preempted, so they show what the engine did.
-- Streams are looked up by the quarter of a second in which the pause ended, so that the cost grows with the streams' time.
--
-- grain: stream, gap_index, peer
-- needs: core.request_gaps
-- column: stream    BIGINT | Stream that paused.
-- column: gap_index BIGINT | Its pause.
-- column: peer      BIGINT | Stream to compare with.
-- column: silent_s  DOUBLE | How long the peer paused within the pause.
-- check:  silent_s >= 0 | A length.
with gaps as (
    select
        gaps.stream,
        gaps.gap_index,
        gaps.started_at,
        gaps.ended_at,
        streams.witness_group,
        floor(epoch(gaps.ended_at) * 4)::bigint as tick,
    from core.request_gaps as gaps
    inner join core.gap_streams as streams using (stream)
),

lives as (
    select
        witness_group,
        stream,
        first_at,
        last_at,
        unnest(range(floor(epoch(first_at) * 4)::bigint, floor(epoch(last_at) * 4)::bigint + 1)) as tick,
    from core.gap_streams
),

oldest as (
    select witness_group, tick, stream, first_at, last_at,
    from lives
    semi join gaps using (witness_group, tick)
    qualify row_number() over (partition by witness_group, tick order by first_at, stream) <= 64
),

peers as (
    select gaps.stream, gaps.gap_index, gaps.started_at, gaps.ended_at, oldest.stream as peer,
    from gaps
    inner join oldest using (witness_group, tick)
    where oldest.stream <> gaps.stream
        and oldest.first_at <= plus_seconds(gaps.started_at, -0.05)
        and oldest.last_at >= plus_seconds(gaps.ended_at, -0.05)
    -- those that also ran on after it come first: one that ended in it has no tokens to compare
    qualify row_number() over (
        partition by gaps.stream, gaps.gap_index
        order by oldest.last_at < plus_seconds(gaps.ended_at, 0.25), oldest.first_at, oldest.stream
    ) <= 16
)

select
    peers.stream,
    peers.gap_index,
    peers.peer,
    coalesce(
        sum(overlap_s(peers.started_at, peers.ended_at, pauses.started_at, pauses.ended_at))
            filter (pauses.stream is not null),
        0.0
    ) as silent_s,
from peers
left join core.request_gaps as pauses
    on pauses.stream = peers.peer
    and pauses.started_at < peers.ended_at
    and pauses.ended_at > peers.started_at
group by peers.stream, peers.gap_index, peers.peer
order by peers.stream, peers.gap_index, peers.peer
