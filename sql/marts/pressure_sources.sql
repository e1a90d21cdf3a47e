-- Which requests held the KV pool under pressure, by the length of their prompts and of their answers, against calm times.
--
-- A request holds its prompt from its first scheduling to its last token, and of its answer what it has generated so far: pool-
-- seconds are those tokens times the seconds. Without spans its first scheduling is not known: then it counts from its first
-- token. Waiting again after a preemption is counted as holding, which overstates victims. Classes are powers of four, the same
-- for every run.
--
-- grain: run, engine, verdict, dimension, from_tokens
-- needs: core.requests
-- needs: core.spells
-- needs: core.engines
-- column: run                VARCHAR | The analyzed run.
-- column: engine             VARCHAR | Engine.
-- column: verdict            VARCHAR | Pressure whose windows are meant: preemption, queueing, ….
-- column: dimension          VARCHAR | prompt or output: the length that is classed.
-- column: from_tokens        BIGINT  | Shortest length of the class.
-- column: to_tokens          BIGINT  | Shortest length of the class above.
-- column: requests           BIGINT  | Requests of the class that held KV in the windows.
-- column: request_share      DOUBLE  | Their share of all that did.
-- column: pool_token_seconds DOUBLE  | Tokens times seconds they held in the windows.
-- column: pool_share         DOUBLE  | Their share of all held.
-- column: prompt_share       DOUBLE  | Share of what they held that was prompt.
-- column: calm_requests      BIGINT  | Requests of the class that held KV outside of any pressure.
-- column: calm_pool_share    DOUBLE  | Their share of what was held then; NULL where there was no calm.
-- check:  pool_share between 0 and 1 | A share.
-- check:  pool_token_seconds >= 0 | Amounts.
with requests as (
    select
        engines.engine,
        requests.request_key,
        requests.input_tokens,
        requests.output_tokens,
        coalesce(plus_seconds(requests.arrived_at, requests.queue_s), requests.first_token_at) as scheduled_at,
        requests.first_token_at,
        requests.finished_at,
    from core.requests
    inner join core.engines on requests.engine = engines.engine or requests.engine like '%*' or requests.engine is null
    where requests.input_tokens > 0
        and requests.output_tokens > 0
        and requests.finished_at >= requests.first_token_at
),

windows as (
    select engine, verdict, window_start, window_end
    from core.spells
    where verdict in ('preemption', 'prefix_eviction', 'prefill_interference', 'offload_pressure', 'runaway_generation')
        or verdict like 'queue%'
),

-- calm lies between the ends of all windows: what a request held in all, less what it held in any window, joined where they
-- overlap
merged as (
    select engine, min(window_start) as window_start, max(window_end) as window_end
    from (
        select *, sum(opens) over (partition by engine order by window_start, window_end) as island
        from (
            select
                *,
                (window_start > coalesce(
                    max(window_end) over (
                        partition by engine order by window_start, window_end rows between unbounded preceding and 1 preceding
                    ),
                    '-infinity'::timestamptz
                ))::int as opens,
            from windows
        )
    )
    group by engine, island
),

spans as (
    select engine, verdict, window_start, window_end from windows
    union all
    select engine, 'any' as verdict, window_start, window_end from merged
    union all
    select engine, 'all' as verdict, '-infinity'::timestamptz as window_start, 'infinity'::timestamptz as window_end
    from (select distinct engine from windows)
),

-- a request's stay cut to a window: its prompt all of the time, its answer by the middle of the cut
cuts as (
    select
        requests.engine,
        spans.verdict,
        requests.request_key,
        requests.input_tokens,
        requests.output_tokens,
        overlap_s(
            requests.scheduled_at, requests.finished_at,
            greatest(spans.window_start, requests.scheduled_at), least(spans.window_end, requests.finished_at)
        ) as stay_s,
        overlap_s(
            requests.first_token_at, requests.finished_at,
            greatest(spans.window_start, requests.first_token_at), least(spans.window_end, requests.finished_at)
        ) as decode_s,
        (
            seconds_between(requests.first_token_at, greatest(spans.window_start, requests.first_token_at))
            + seconds_between(requests.first_token_at, least(spans.window_end, requests.finished_at))
        ) / 2 as middle_s,
        seconds_between(requests.first_token_at, requests.finished_at) as whole_decode_s,
    from requests
    inner join spans
        on spans.engine = requests.engine
        and spans.window_start < requests.finished_at
        and spans.window_end > requests.scheduled_at
),

held as (
    select
        engine,
        verdict,
        request_key,
        any_value(input_tokens) as input_tokens,
        any_value(output_tokens) as output_tokens,
        sum(input_tokens * stay_s) as prompt_token_seconds,
        sum(case when decode_s > 0 then output_tokens * clamp(ratio(middle_s, whole_decode_s), 0, 1) * decode_s else 0 end)
            as output_token_seconds,
    from cuts
    group by engine, verdict, request_key
),

classed as (
    select held.*, 'prompt' as dimension, length_class(input_tokens) as from_tokens from held
    union all
    select held.*, 'output' as dimension, length_class(output_tokens) as from_tokens from held
),

totals as (
    select
        engine,
        verdict,
        dimension,
        from_tokens,
        count(*) filter (where prompt_token_seconds > 0) as requests,
        sum(prompt_token_seconds) as prompt_token_seconds,
        sum(prompt_token_seconds + output_token_seconds) as pool_token_seconds,
    from classed
    group by all
),

calm as (
    select
        whole.engine,
        whole.dimension,
        whole.from_tokens,
        at_least_zero(whole.pool_token_seconds - coalesce(pressed.pool_token_seconds, 0)) as pool_token_seconds,
    from totals as whole
    left join totals as pressed
        on pressed.engine = whole.engine
        and pressed.dimension = whole.dimension
        and pressed.from_tokens = whole.from_tokens
        and pressed.verdict = 'any'
    where whole.verdict = 'all'
),

calm_requests as (
    select whole.engine, whole.dimension, whole.from_tokens, count(*) as requests
    from classed as whole
    left join held as pressed
        on pressed.engine = whole.engine
        and pressed.request_key = whole.request_key
        and pressed.verdict = 'any'
    where whole.verdict = 'all' and pressed.request_key is null
    group by all
)

select
    getvariable('run') as run,
    totals.engine,
    totals.verdict,
    totals.dimension,
    totals.from_tokens,
    4 * totals.from_tokens as to_tokens,
    totals.requests,
    ratio(totals.requests, sum(totals.requests) over whole) as request_share,
    totals.pool_token_seconds,
    ratio(totals.pool_token_seconds, sum(totals.pool_token_seconds) over whole) as pool_share,
    ratio(totals.prompt_token_seconds, totals.pool_token_seconds) as prompt_share,
    coalesce(calm_requests.requests, 0) as calm_requests,
    ratio(calm.pool_token_seconds, sum(calm.pool_token_seconds) over whole) as calm_pool_share,
from totals
left join calm using (engine, dimension, from_tokens)
left join calm_requests using (engine, dimension, from_tokens)
where totals.verdict not in ('any', 'all') and totals.pool_token_seconds > 0
window whole as (partition by totals.engine, totals.verdict, totals.dimension)
order by totals.engine, totals.verdict, totals.dimension, totals.from_tokens
