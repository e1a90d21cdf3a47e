-- An engine's day in one row: its verdict, how long it was under pressure, what it wasted, and what it did.
--
-- Under pressure is the time in which a verdict held that is worth a word (severity 20 and up); windows that overlap count once.
-- Recomputed and refilled tokens are two kinds of waste: each has its own columns, and only their GPU time and cost are added up.
--
-- grain: day, run, engine
-- column: day                     DATE    | The day.
-- column: run                     VARCHAR | Engine, by its name in the configuration.
-- column: engine                  VARCHAR | Rank within it.
-- column: engine_group            VARCHAR | Its group in the configuration.
-- column: model                   VARCHAR | Its label `model`; else the model it says it serves.
-- column: cluster                 VARCHAR | Its label `cluster`.
-- column: engine_kind             VARCHAR | vllm, sglang, ….
-- column: engine_version          VARCHAR | As printed.
-- column: verdict                 VARCHAR | The day's primary verdict.
-- column: severity                DOUBLE  | Of that verdict, 0 to 100.
-- column: confidence              DOUBLE  | Of that verdict, 0 to 1.
-- column: summary                 VARCHAR | Of that verdict, one sentence.
-- column: observed_hours          DOUBLE  | Hours for which load samples speak.
-- column: pressure_hours          DOUBLE  | Hours under pressure; NULL where nothing shows the load.
-- column: preemptions_low         DOUBLE  | Least preemptions; NULL where no input tells.
-- column: preemptions_best        DOUBLE  | Expected preemptions; NULL where no input tells.
-- column: preemptions_high        DOUBLE  | Most preemptions; NULL where no input tells.
-- column: recomputed_tokens_low   DOUBLE  | Least tokens processed again after preemption.
-- column: recomputed_tokens_best  DOUBLE  | Expected; NULL where it cannot be told.
-- column: recomputed_tokens_high  DOUBLE  | Most.
-- column: recompute_share_low     DOUBLE  | Least share of all tokens computed.
-- column: recompute_share_best    DOUBLE  | Expected share.
-- column: recompute_share_high    DOUBLE  | Most.
-- column: refilled_tokens_low     DOUBLE  | Least prompt tokens computed again after prefix eviction.
-- column: refilled_tokens_best    DOUBLE  | Expected; NULL where it cannot be told.
-- column: refilled_tokens_high    DOUBLE  | Most.
-- column: wasted_gpu_seconds_low  DOUBLE  | Least GPU time for both kinds together, of those that are known.
-- column: wasted_gpu_seconds_best DOUBLE  | Expected GPU time for both kinds together; NULL where of one only a bound is known.
-- column: wasted_gpu_seconds_high DOUBLE  | Most GPU time for both kinds together; NULL where one of them has no bound.
-- column: wasted_cost_low         DOUBLE  | The same in USD; NULL without a price.
-- column: wasted_cost_best        DOUBLE  | The same in USD; NULL without a price.
-- column: wasted_cost_high        DOUBLE  | The same in USD; NULL without a price.
-- column: queue_seconds           DOUBLE  | Seconds with a non-empty queue, whatever for.
-- column: paused_requests         BIGINT  | Requests whose answer a preemption paused; NULL where no client or span tells, unless no preemption was counted.
-- column: paused_s                DOUBLE  | Seconds of these pauses, summed.
-- column: prompt_tokens           DOUBLE  | Prompt tokens computed.
-- column: generation_tokens       DOUBLE  | Tokens generated.
-- column: mean_running            DOUBLE  | Mean requests running.
-- column: max_waiting             DOUBLE  | Most requests waiting, on average of a bucket.
-- column: max_kv_usage_ratio      DOUBLE  | Highest share of the pool held.
-- column: ttft_p50_s              DOUBLE  | Median, over the day's buckets, of the bucket's median time to first token.
-- column: itl_p99_s               DOUBLE  | Median, over the day's buckets, of the bucket's 99th percentile of inter-token latency.
-- check:  pressure_hours >= 0 and observed_hours >= 0 | Times.
-- check:  wasted_gpu_seconds_low <= wasted_gpu_seconds_best | A range.
with told as (
    from days.verdicts
    where is_primary
),

pressed as (
    select run, engine, window_start, window_end
    from days.verdicts
    where severity >= 20 and verdict not in ('healthy', 'insufficient_evidence')
),

-- a window opens a stretch of its own where it begins behind the end of all before it
opened as (
    select
        *,
        coalesce(
            window_start > max(window_end) over (
                partition by run, engine order by window_start, window_end rows between unbounded preceding and 1 preceding
            ),
            true
        ) as opens,
    from pressed
),

stretched as (
    select *, sum(opens::int) over (partition by run, engine order by window_start, window_end) as stretch
    from opened
),

stretches as (
    select run, engine, stretch, seconds_between(min(window_start), max(window_end)) as seconds
    from stretched
    group by all
),

pressure as (
    select run, engine, sum(seconds) / 3600 as pressure_hours
    from stretches
    group by all
),

kinds as (
    select
        run,
        engine,
        any_value(tokens_low) filter (where kind = 'preemption_recompute') as recomputed_tokens_low,
        any_value(tokens_best) filter (where kind = 'preemption_recompute') as recomputed_tokens_best,
        any_value(tokens_high) filter (where kind = 'preemption_recompute') as recomputed_tokens_high,
        any_value(share_low) filter (where kind = 'preemption_recompute') as recompute_share_low,
        any_value(share_best) filter (where kind = 'preemption_recompute') as recompute_share_best,
        any_value(share_high) filter (where kind = 'preemption_recompute') as recompute_share_high,
        any_value(tokens_low) filter (where kind = 'prefix_refill') as refilled_tokens_low,
        any_value(tokens_best) filter (where kind = 'prefix_refill') as refilled_tokens_best,
        any_value(tokens_high) filter (where kind = 'prefix_refill') as refilled_tokens_high,
    from days.waste
    group by all
),

wasted as (
    select
        run,
        engine,
        sum(gpu_seconds_low) as wasted_gpu_seconds_low,
        sum_where_each_is_told(gpu_seconds_best, gpu_seconds_high) as wasted_gpu_seconds_best,
        case when count(*) = count(gpu_seconds_high) then sum(gpu_seconds_high) end as wasted_gpu_seconds_high,
        sum(cost_low) as wasted_cost_low,
        sum_where_each_is_told(cost_best, cost_high) as wasted_cost_best,
        case when count(*) = count(cost_high) then sum(cost_high) end as wasted_cost_high,
    from days.waste
    where kind in ('preemption_recompute', 'prefix_refill')
    group by all
),

loads as (
    select
        run,
        engine,
        sum(bucket_s) filter (where running is not null) / 3600 as observed_hours,
        sum(prompt_tokens_per_s * bucket_s) as prompt_tokens,
        sum(generation_tokens_per_s * bucket_s) as generation_tokens,
        avg(running) as mean_running,
        max(waiting) as max_waiting,
        max(kv_usage_ratio) as max_kv_usage_ratio,
        median(ttft_p50_s) as ttft_p50_s,
        median(itl_p99_s) as itl_p99_s,
    from days.timeline
    group by all
),

queues as (
    select run, engine, sum(seconds) as queue_seconds
    from days.queue_time
    group by all
),

clients as (
    select run, count(*) as requests
    from days.requests
    group by all
),

pauses as (
    select
        run,
        engine,
        count(distinct (source_file, run_index, request_index)) as paused_requests,
        sum(duration_s) as paused_s,
    from days.stalls
    where cause = 'preemption'
    group by all
)

select
    getvariable('day')::date as day,
    engines.run,
    engines.engine,
    fleet.engine_group,
    coalesce(fleet.model, engines.model) as model,
    fleet.cluster,
    engines.engine_kind,
    engines.engine_version,
    told.verdict,
    told.severity,
    told.confidence,
    told.summary,
    loads.observed_hours,
    case when loads.observed_hours > 0 then coalesce(pressure.pressure_hours, 0) end as pressure_hours,
    preemptions.count_low::double as preemptions_low,
    preemptions.count_best::double as preemptions_best,
    preemptions.count_high::double as preemptions_high,
    kinds.* exclude (run, engine),
    wasted.* exclude (run, engine),
    queues.queue_seconds,
    case when clients.requests > 0 or preemptions.count_high = 0 then coalesce(pauses.paused_requests, 0) end as paused_requests,
    case when clients.requests > 0 or preemptions.count_high = 0 then coalesce(pauses.paused_s, 0) end as paused_s,
    loads.prompt_tokens,
    loads.generation_tokens,
    loads.mean_running,
    loads.max_waiting,
    loads.max_kv_usage_ratio,
    loads.ttft_p50_s,
    loads.itl_p99_s,
from days.engines
left join days.fleet using (run)
left join told on told.run = engines.run and told.engine = engines.engine
left join pressure on pressure.run = engines.run and pressure.engine = engines.engine
left join days.preemptions on preemptions.run = engines.run and preemptions.engine = engines.engine
left join kinds on kinds.run = engines.run and kinds.engine = engines.engine
left join wasted on wasted.run = engines.run and wasted.engine = engines.engine
left join loads on loads.run = engines.run and loads.engine = engines.engine
left join queues on queues.run = engines.run and queues.engine = engines.engine
left join clients on clients.run = engines.run
left join pauses on pauses.run = engines.run and pauses.engine = engines.engine
order by engines.run, engines.engine
