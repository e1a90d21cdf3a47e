-- How much decode time slow steps cost in each scrape interval, and whether prefill was there to slow them.
--
-- A stream's next token comes with the next step; a step that carries a long prefill chunk is slow for every stream in it. From the
-- inter-token histogram: a gap over five times the interval's median is a slow one (Sarathi-Serve's definition of a generation stall
-- is a multiple of the uncontended step; five keeps ordinary batch growth out), and what it has over the median is lost.
-- A preempted request gives one slow gap too, when it runs again, so those that can have done so are counted beside them: it waits
-- at the head of the queue, so no more than waited, nor more than were preempted since the queue was last empty.
--
-- Slow gaps have other reasons too (a pause of the whole engine). The prompts of an interval took no more of it than they would have at
-- the highest rate at which this engine was seen to compute any, and no more than that is said to be lost.
--
-- Where every step carries prefill there is no quiet median to compare with. Then the step's own tokens tell: a step's time goes by the
-- tokens in it, so of a step with `prompt_tokens_per_step` beside one token a running request, that share is the prefill's.
--
-- grain: engine, interval_end
-- needs: core.histogram_intervals
-- column: engine                 VARCHAR     | Engine.
-- column: interval_start         TIMESTAMPTZ | Scrape before.
-- column: interval_end           TIMESTAMPTZ | Scrape.
-- column: gaps                   DOUBLE      | Inter-token gaps observed.
-- column: slow_gaps              DOUBLE      | Those over five times the median.
-- column: median_gap_s           DOUBLE      | Median inter-token gap.
-- column: decode_s               DOUBLE      | Sum of all gaps.
-- column: lost_s                 DOUBLE      | What the slow gaps have over the median, summed (bucket midpoints), as far as prompts can have caused it.
-- column: prefill_lost_s         DOUBLE      | The share of all gaps that prompt tokens took in the steps, by tokens; NULL where load is not known.
-- column: prompt_tokens          DOUBLE      | Prompt tokens computed in the interval.
-- column: prompt_tokens_per_step DOUBLE      | Prompt tokens an average step carried.
-- column: first_tokens           DOUBLE      | Requests that got their first token in it.
-- column: preemptions            DOUBLE      | Preemptions counted in it; NULL where not exported.
-- column: most_resumes           DOUBLE      | Preempted requests that can have run again in it: these, and those that may have waited from before.
-- check:  slow_gaps <= gaps | A part of the whole.
with counted as (
    select engine, interval_start, interval_end, above, le, sum(delta) as inside
    from core.histogram_intervals
    where signal = 'itl_s'
    group by all
),

bounded as (
    select
        *,
        sum(inside) over (scrape order by le) as at_or_below,
        at_or_below - inside as below,
        sum(inside) over scrape as gaps,
    from counted
    window scrape as (partition by engine, interval_end)
),

medians as (
    select engine, interval_end, min(within_bucket(0.5, gaps, below, at_or_below, above, le)) as median_gap_s
    from bounded
    where gaps > 0
    group by all
),

slowed as (
    select
        bounded.engine,
        bounded.interval_start,
        bounded.interval_end,
        max(bounded.gaps) as gaps,
        sum(bounded.inside) filter (where bounded.above >= 5 * medians.median_gap_s) as slow_gaps,
        any_value(medians.median_gap_s) as median_gap_s,
        sum(bounded.inside * (case when isinf(bounded.le) then bounded.above else (bounded.above + bounded.le) / 2 end - medians.median_gap_s))
            filter (where bounded.above >= 5 * medians.median_gap_s) as lost_s,
    from bounded
    inner join medians using (engine, interval_end)
    group by bounded.engine, bounded.interval_start, bounded.interval_end
),

counters as (
    select
        engine,
        interval_end,
        sum(delta) filter (where signal = 'itl_s_sum') as decode_s,
        sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%source=local_compute%') as computed_tokens,
        sum(delta) filter (where signal = 'prompt_tokens') as prompt_tokens,
        sum(delta) filter (where signal = 'ttft_s_count') as first_tokens,
        sum(delta) filter (where signal = 'preemptions') as preemptions,
    from core.counter_intervals
    group by all
),

queued as (
    select
        engine,
        sampled_at,
        waiting,
        count(*) filter (where waiting = 0) over (partition by engine order by sampled_at) as emptied,
    from core.engine_states
),

-- of the victims since the queue was last empty, as many as it held when the interval began can still wait
victims as (
    select
        intervals.engine,
        intervals.interval_end,
        least(
            queued.waiting,
            coalesce(sum(intervals.preemptions) over before, 0)
        ) as still_waiting,
    from core.preemption_intervals as intervals
    asof inner join queued on queued.engine = intervals.engine and queued.sampled_at <= intervals.interval_start
    window before as (
        partition by intervals.engine, queued.emptied
        order by intervals.interval_end
        rows between unbounded preceding and 1 preceding
    )
)

select
    slowed.engine,
    slowed.interval_start,
    slowed.interval_end,
    slowed.gaps,
    coalesce(slowed.slow_gaps, 0) as slow_gaps,
    slowed.median_gap_s,
    counters.decode_s,
    -- all streams wait for the prompts, so their share of the interval is their share of all gaps
    least(
        coalesce(slowed.lost_s, 0),
        counters.decode_s * ratio(steps.prompt_rate, max(steps.prompt_rate) over (partition by slowed.engine))
    ) as lost_s,
    counters.decode_s * ratio(steps.prompt_tokens_per_step, steps.prompt_tokens_per_step + greatest(states.running, 1)) as prefill_lost_s,
    coalesce(counters.computed_tokens, counters.prompt_tokens) as prompt_tokens,
    steps.prompt_tokens_per_step,
    counters.first_tokens,
    counters.preemptions,
    counters.preemptions + coalesce(victims.still_waiting, 0) as most_resumes,
from slowed
left join counters using (engine, interval_end)
left join victims using (engine, interval_end)
left join core.engine_states as states on states.engine = slowed.engine and states.sampled_at = slowed.interval_end
cross join lateral (
    select
        ratio(
            coalesce(counters.computed_tokens, counters.prompt_tokens), seconds_between(slowed.interval_start, slowed.interval_end)
        ) as prompt_rate,
        slowed.median_gap_s * prompt_rate as prompt_tokens_per_step,
) as steps
order by slowed.engine, slowed.interval_end
