-- Why each pause happened, with what says so.
--
-- preemption: the stream missed steps that its peers had, for a third of the pause or more, and the engine counted preemptions
-- about then (or exports no count). A third: with less, two thirds of the pause would have been there anyway. prefill_interference:
-- the streams paused together, and the prompts whose first tokens came at its end take half of it or more to compute.
-- engine_pause: they paused together for another reason; the engine stood still, or its answers were held up on their way.
-- unknown: only this stream paused and nothing was preempted (a slow reader, tokens held back), or there was no other stream.
--
-- grain: stream, gap_index
-- needs: core.stall_steps
-- column: stream               BIGINT  | Stream that paused.
-- column: gap_index            BIGINT  | Its pause.
-- column: cause                VARCHAR | preemption, prefill_interference, engine_pause or unknown.
-- column: away_s               DOUBLE  | Time in which the stream did not run, by the steps it missed; NULL without other streams.
-- column: silent_s             DOUBLE  | Time in which every other stream was silent too; NULL without other streams.
-- column: peers                BIGINT  | Streams it was compared with.
-- column: preemptions          DOUBLE  | Preemptions the engine counted about then; NULL where it counts none or nobody looked.
-- column: prompt_tokens_at_end BIGINT  | Prompt tokens of the requests whose first token came when the pause ended.
-- check:  cause in ('preemption', 'prefill_interference', 'engine_pause', 'unknown') | The four words.
with gaps as (
    select
        gaps.stream,
        gaps.gap_index,
        gaps.started_at,
        gaps.ended_at,
        gaps.duration_s,
        coalesce(gaps.clock_error_s, 2.0) as clock_error_s,
        streams.witness_group,
    from core.request_gaps as gaps
    inner join core.gap_streams as streams using (stream)
),

counted as (
    select
        interval_start,
        interval_end,
        preemptions,
        median(seconds_between(interval_start, interval_end)) over () as scrape_s,
    from core.preemption_intervals
),

begun as (
    select interval_start, any_value(scrape_s) as scrape_s, sum(sum(preemptions)) over (order by interval_start) as preemptions
    from counted
    group by interval_start
),

over_with as (
    select interval_end, sum(sum(preemptions)) over (order by interval_end) as preemptions
    from counted
    group by interval_end
),

watched as (
    select min(interval_start) as first_at, max(interval_end) as last_at, any_value(scrape_s) as scrape_s from counted
),

-- a preemption is counted with the victim's next token, so up to a scrape after the pause
near as (
    select
        gaps.stream,
        gaps.gap_index,
        case
            when gaps.started_at >= watched.first_at and gaps.ended_at <= plus_seconds(watched.last_at, watched.scrape_s)
            then coalesce(begun.preemptions, 0) - coalesce(over_with.preemptions, 0)
        end as preemptions,
    from gaps
    cross join watched
    asof left join begun on begun.interval_start <= plus_seconds(gaps.ended_at, gaps.clock_error_s + watched.scrape_s)
    asof left join over_with on over_with.interval_end <= plus_seconds(gaps.started_at, -gaps.clock_error_s)
),

first_tokens as (
    select
        streams.witness_group,
        streams.first_at,
        sum(sum(requests.input_tokens)) over (partition by streams.witness_group order by streams.first_at) as input_tokens,
    from core.gap_streams as streams
    inner join core.requests as requests using (request_key)
    group by streams.witness_group, streams.first_at
),

prompts as (
    select
        gaps.stream,
        gaps.gap_index,
        coalesce(until_end.input_tokens, 0) - coalesce(until_shortly_before.input_tokens, 0) as prompt_tokens,
    from gaps
    asof left join first_tokens as until_end
        on until_end.witness_group = gaps.witness_group and until_end.first_at <= plus_seconds(gaps.ended_at, 0.05)
    asof left join first_tokens as until_shortly_before
        on until_shortly_before.witness_group = gaps.witness_group
        and until_shortly_before.first_at <= plus_seconds(gaps.ended_at, -0.05)
),

judged as (
    select
        gaps.stream,
        gaps.gap_index,
        gaps.duration_s,
        steps.away_s,
        steps.silent_s,
        steps.peers,
        near.preemptions,
        prompts.prompt_tokens,
        -- three steps: fewer are what two streams of equal pace differ by when read a moment apart
        coalesce(steps.missed_steps >= 3 and steps.away_s >= gaps.duration_s / 3, false) as was_away,
        coalesce(near.preemptions > 0, true) as may_be_preempted,
        coalesce(steps.silent_s >= gaps.duration_s / 2, steps.peers = 0) as was_shared,
        coalesce(ratio(prompts.prompt_tokens, rates.prefill_tokens_per_s) >= gaps.duration_s / 2, false) as was_prefilling,
    from gaps
    inner join core.stall_steps as steps using (stream, gap_index)
    inner join near using (stream, gap_index)
    inner join prompts using (stream, gap_index)
    cross join core.stall_rates as rates
)

select
    stream,
    gap_index,
    case
        when was_away and may_be_preempted then 'preemption'
        when was_shared and was_prefilling then 'prefill_interference'
        when was_shared and peers > 0 then 'engine_pause'
        else 'unknown'
    end as cause,
    away_s,
    silent_s,
    peers,
    preemptions,
    prompt_tokens::bigint as prompt_tokens_at_end,
from judged
order by stream, gap_index
