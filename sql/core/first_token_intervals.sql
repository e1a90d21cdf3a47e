-- Time to first token in each scrape interval, beside what could explain it: the queue, the load, and the engine's youth.
--
-- An engine is young within ten minutes of a start that an input tells (its process start time, or a counter reset), while it has
-- answered fewer than a hundred requests in its life, or while all it ever answered would take less than ten minutes at the rate of
-- this recording: kernels compile, graphs are captured and caches fill on first use.
--
-- grain: engine, interval_end
-- needs: core.counter_intervals
-- column: engine              VARCHAR     | Engine.
-- column: interval_start      TIMESTAMPTZ | Scrape before.
-- column: interval_end        TIMESTAMPTZ | Scrape.
-- column: first_tokens        DOUBLE      | Requests that got their first token.
-- column: ttft_s              DOUBLE      | Their mean time to it.
-- column: prompt_tokens_per_s DOUBLE      | Prompt tokens computed for each second of their times to first token: low where it is not the prompts that take it.
-- column: later_ttft_s        DOUBLE      | Median of the intervals from ten minutes on, or from the hundredth request on; NULL where there are none.
-- column: queue_s             DOUBLE      | Mean wait before the first run of the requests that ended in the interval; 0 where none ended.
-- column: waiting             BIGINT      | Requests waiting at the scrape.
-- column: running             BIGINT      | Requests running at the scrape.
-- column: is_young            BOOLEAN     | Whether the engine is.
-- check:  ttft_s >= 0 | Durations.
with counted as (
    select
        engine,
        interval_start,
        interval_end,
        sum(delta) filter (where signal = 'ttft_s_count') as first_tokens,
        ratio(sum(delta) filter (where signal = 'ttft_s_sum'), sum(delta) filter (where signal = 'ttft_s_count')) as ttft_s,
        ratio(
            coalesce(
                sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%source=local_compute%'),
                sum(delta) filter (where signal = 'prompt_tokens')
            ),
            sum(delta) filter (where signal = 'ttft_s_sum')
        ) as prompt_tokens_per_s,
        coalesce(
            ratio(sum(delta) filter (where signal = 'queue_s_sum'), sum(delta) filter (where signal = 'queue_s_count')),
            0
        ) as queue_s,
    from core.counter_intervals
    group by all
),

lifetimes as (
    select engine, sampled_at as interval_end, sum(value) as answered
    from staging.metric_samples
    inner join signals() as signals on concat(signals.name, '_count') = metric_samples.name and signals.signal = 'ttft_s'
    group by all
),

starts as (
    select engine, make_timestamptz((value * 1e6)::bigint) as started_at
    from staging.metric_samples
    inner join signals() as signals using (name)
    where signals.signal = 'process_start_epoch_s'
    union
    select engine, interval_end from core.counter_intervals where is_reset
),

rates as (
    select
        engine,
        ratio(sum(first_tokens), sum(seconds_between(interval_start, interval_end))) as answered_per_s,
    from counted
    group by engine
),

aged as (
    select
        counted.*,
        coalesce(lifetimes.answered < 100, false)
        or coalesce(ratio(lifetimes.answered, rates.answered_per_s) <= 600, false)
        or exists (
            from starts
            where (starts.engine = counted.engine or starts.engine like '%*')
                and starts.started_at <= counted.interval_end
                and seconds_between(starts.started_at, counted.interval_end) <= 600
        ) as is_young,
    from counted
    left join lifetimes using (engine, interval_end)
    left join rates using (engine)
)

select
    aged.engine,
    aged.interval_start,
    aged.interval_end,
    aged.first_tokens,
    aged.ttft_s,
    aged.prompt_tokens_per_s,
    median(aged.ttft_s) filter (where not aged.is_young) over (
        partition by aged.engine order by aged.interval_end groups between 1 following and unbounded following
    ) as later_ttft_s,
    aged.queue_s,
    states.waiting,
    states.running,
    aged.is_young,
from aged
left join core.engine_states as states on states.engine = aged.engine and states.sampled_at = aged.interval_end
qualify aged.first_tokens > 0
order by aged.engine, aged.interval_end
