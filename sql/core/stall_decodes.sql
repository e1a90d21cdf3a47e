-- Decode time of each request beside what its tokens should have taken, from the server's spans alone.
--
-- A request's decode time holds its waits after preemption. What its tokens usually take is read from the requests that were
-- decoding in the same seconds: the lower quartile of their mean time between tokens, since victims are among them.
--
-- grain: request_key
-- needs: core.requests
-- column: request_key VARCHAR | Request.
-- column: decode_s    DOUBLE  | First to last token.
-- column: usual_s     DOUBLE  | What as many tokens took its neighbours.
-- column: excess_s    DOUBLE  | Decode time beyond that; NULL where it had no neighbour.
-- column: preemptions DOUBLE  | Preemptions the engine counted in its life; NULL where it counts none or nobody looked.
with decodes as (
    select
        request_key,
        first_token_at,
        plus_seconds(first_token_at, decode_s) as last_token_at,
        decode_s,
        output_tokens,
        decode_s / (output_tokens - 1) as token_s,
    from core.requests
    where has_span and output_tokens > 1 and decode_s > 0 and first_token_at is not null
),

seconds as (
    select
        *,
        unnest(range(floor(epoch(first_token_at))::bigint, floor(epoch(last_token_at))::bigint + 1)) as tick,
    from decodes
),

usual as (
    select tick, quantile_cont(token_s, 0.25) as token_s, count(*) as requests
    from seconds
    group by tick
),

counted as (
    select min(interval_start) as first_at, max(interval_end) as last_at from core.preemption_intervals
),

begun as (
    select interval_start, sum(sum(preemptions)) over (order by interval_start) as preemptions
    from core.preemption_intervals
    group by interval_start
),

over_with as (
    select interval_end, sum(sum(preemptions)) over (order by interval_end) as preemptions
    from core.preemption_intervals
    group by interval_end
),

expected as (
    select
        seconds.request_key,
        any_value(seconds.first_token_at) as first_token_at,
        any_value(seconds.last_token_at) as last_token_at,
        any_value(seconds.decode_s) as decode_s,
        (any_value(seconds.output_tokens) - 1) * avg(usual.token_s) filter (usual.requests > 1) as usual_s,
    from seconds
    inner join usual using (tick)
    group by seconds.request_key
)

select
    expected.request_key,
    expected.decode_s,
    expected.usual_s,
    greatest(expected.decode_s - expected.usual_s, 0.0) as excess_s,
    case
        when expected.first_token_at >= counted.first_at and expected.last_token_at <= counted.last_at
        then coalesce(begun.preemptions, 0) - coalesce(over_with.preemptions, 0)
    end as preemptions,
from expected
cross join counted
asof left join begun on begun.interval_start <= expected.last_token_at
asof left join over_with on over_with.interval_end <= expected.first_token_at
order by expected.request_key
