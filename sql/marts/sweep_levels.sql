-- A sweep, level by level: what more load bought, and what it cost.
--
-- Rows are there where the results given stand at two or more levels (core.sweep_runs); a level measured several times has several
-- rows. What the engine says is taken between a level's first request and its end. A counter's scrape interval that spans two
-- levels could belong to either: preemptions have a low and a high end for that. Repeated tokens are the run's best estimate,
-- shared out by preemptions. The latency target is the caller's; where none was given, a first token within 2 s and no pause
-- longer than that.
--
-- grain: run, source, run_index
-- needs: core.sweep_runs
-- column: run                 VARCHAR     | The analyzed run.
-- column: sweep               VARCHAR     | Name of the sweep.
-- column: dimension           VARCHAR     | concurrency or rate: what was raised.
-- column: level               DOUBLE      | Requests in flight at most, or requests per second offered.
-- column: source              VARCHAR     | Result it is from.
-- column: run_index           BIGINT      | Result object within the file.
-- column: window_start        TIMESTAMPTZ | First request sent; NULL where the result has no times.
-- column: window_end          TIMESTAMPTZ | End of the result.
-- column: duration_s          DOUBLE      | Its length, as the client measured it.
-- column: requests            BIGINT      | Requests completed.
-- column: failed              BIGINT      | Requests failed.
-- column: in_flight           DOUBLE      | Requests in flight on average, from their latencies; NULL without them.
-- column: kv_usage_mean       DOUBLE      | Mean share of the KV pool held by active requests, over time and engines; NULL where never exported.
-- column: kv_usage_max        DOUBLE      | Its highest sample; NULL where never exported.
-- column: running             DOUBLE      | Requests running on average, all engines together.
-- column: waiting             DOUBLE      | Requests waiting on average, all engines together.
-- column: preemptions_low     DOUBLE      | Preemptions that can only be this level's; NULL where nothing counts them.
-- column: preemptions         DOUBLE      | Preemptions, an interval that spans two levels shared out by time.
-- column: preemptions_high    DOUBLE      | Preemptions that may be this level's.
-- column: recomputed_tokens   DOUBLE      | Tokens processed again after preemption, best estimate.
-- column: recomputed_share    DOUBLE      | Their share of all tokens processed.
-- column: queue_p50_s         DOUBLE      | Median wait before the first run; NULL without spans.
-- column: queue_p99_s         DOUBLE      | 99th percentile of it.
-- column: ttft_p50_s          DOUBLE      | Median time to first token.
-- column: ttft_p99_s          DOUBLE      | 99th percentile of it.
-- column: itl_p50_s           DOUBLE      | Median time between chunks.
-- column: itl_p99_s           DOUBLE      | 99th percentile of it.
-- column: longest_gap_s       DOUBLE      | Longest time between two chunks of one answer.
-- column: tail_s              DOUBLE      | Longest wait of a request (first token or a later pause): 95th percentile over requests, 99th from sums.
-- column: useful_tokens_per_s DOUBLE      | Generated tokens of completed requests per second.
-- column: total_tokens_per_s  DOUBLE      | Tokens processed per second: prompts that were in no cache, output, and what was repeated.
-- column: target_ttft_s       DOUBLE      | Target: time to first token.
-- column: target_gap_s        DOUBLE      | Target: longest pause after it.
-- column: goodput_per_s       DOUBLE      | Requests per second that met the target (of sums: the client's own target).
-- column: met_target_share    DOUBLE      | Share of all requests that met it; NULL from sums.
-- column: sent_share          DOUBLE      | Share of the offered rate that the client did send; NULL where not told.
-- column: method              VARCHAR     | requests or sums: what the latencies are of.
-- check:  preemptions_low <= preemptions and preemptions <= preemptions_high | A range holds its best estimate.
-- check:  kv_usage_max between 0 and 1.005 | A share of the pool.
-- check:  recomputed_share between 0 and 1 | A share.
with levels as (
    select
        *,
        coalesce(getvariable('target_ttft_s')::double, 2.0) as target_ttft_s,
        coalesce(getvariable('target_gap_s')::double, 2.0) as target_gap_s,
    from core.sweep_runs
),

by_request as (
    select
        requests.source,
        requests.run_index,
        count(*) filter (not is_failed) as requests,
        count(*) filter (is_failed) as failed,
        sum(input_tokens) filter (not is_failed) as input_tokens,
        sum(output_tokens) filter (not is_failed) as output_tokens,
        sum(latency_s) as latency_s,
        quantile_cont(queue_s, 0.5) as queue_p50_s,
        quantile_cont(queue_s, 0.99) as queue_p99_s,
        quantile_cont(ttft_s, 0.5) filter (not is_failed) as ttft_p50_s,
        quantile_cont(ttft_s, 0.99) filter (not is_failed) as ttft_p99_s,
        max(longest_gap_s) filter (not is_failed) as longest_gap_s,
        quantile_cont(longest_wait_s, 0.95) filter (not is_failed) as tail_s,
        count(*) filter (
            not is_failed and ttft_s <= target_ttft_s and coalesce(longest_gap_s, 0) <= target_gap_s
        ) as met_target,
    from core.sweep_requests as requests
    inner join levels using (source, run_index)
    group by all
),

by_gap as (
    select source, run_index, quantile_cont(gap_s, 0.5) as itl_p50_s, quantile_cont(gap_s, 0.99) as itl_p99_s
    from (
        select source, run_index, unnest(gaps_s) as gap_s
        from staging.client_requests
        inner join levels using (source, run_index)
        where not coalesce(is_failed, false)
    )
    group by all
),

-- what each engine says of itself within the window, weighted by how long each sample stands
by_engine as (
    select
        levels.source,
        levels.run_index,
        states.engine,
        ratio(sum(weights.s * kv_usage_ratio), sum(weights.s) filter (kv_usage_ratio is not null)) as kv_usage_mean,
        max(kv_usage_ratio) filter (weights.s > 0) as kv_usage_max,
        ratio(sum(weights.s * running), sum(weights.s) filter (running is not null)) as running,
        ratio(sum(weights.s * waiting), sum(weights.s) filter (waiting is not null)) as waiting,
    from levels
    cross join core.engine_states as states
    cross join lateral (
        select overlap_s(states.sampled_at, plus_seconds(states.sampled_at, states.scrape_s), levels.window_start, levels.window_end) as s
    ) as weights
    where weights.s > 0
    group by all
),

observed as (
    select
        source,
        run_index,
        avg(kv_usage_mean) as kv_usage_mean,
        max(kv_usage_max) as kv_usage_max,
        sum(running) as running,
        sum(waiting) as waiting,
    from by_engine
    group by all
),

counted as (
    select
        levels.source,
        levels.run_index,
        coalesce(sum(preemptions) filter (is_inside), 0) as preemptions_low,
        sum(preemptions * share) as preemptions,
        sum(preemptions) as preemptions_high,
    from levels
    cross join core.preemption_intervals as intervals
    cross join lateral (
        select
            ratio(
                overlap_s(interval_start, interval_end, levels.window_start, levels.counted_until),
                seconds_between(interval_start, interval_end)
            ) as share,
            interval_start >= levels.window_start and interval_end <= levels.counted_until as is_inside,
    ) as parts
    where parts.share > 0
    group by all
),

repeated as (
    select sum(waste.tokens_best) as tokens, (select sum(preemptions) from core.preemption_intervals) as preemptions
    from marts.waste
    where kind = 'preemption_recompute'
),

-- prompts as computed, where the engine tells those found in a cache apart
prompts as (
    select
        levels.source,
        levels.run_index,
        sum(delta * share) filter (signal = 'prompt_tokens_by_source') as computed_tokens,
    from levels
    cross join core.counter_intervals as intervals
    cross join lateral (
        select ratio(
            overlap_s(interval_start, interval_end, levels.window_start, levels.counted_until),
            seconds_between(interval_start, interval_end)
        ) as share
    ) as parts
    where signal = 'prompt_tokens_by_source' and labels like '%local_compute%' and parts.share > 0
    group by all
),

joined as (
    select
        levels.*,
        sums.* exclude (source, run_index, client, started_at, duration_s, max_concurrency, request_rate, completed, failed),
        by_request.* exclude (source, run_index, ttft_p50_s, ttft_p99_s, longest_gap_s, failed),
        by_request.failed as failed_requests,
        coalesce(by_request.ttft_p50_s, sums.ttft_p50_s) as first_token_p50_s,
        coalesce(by_request.ttft_p99_s, sums.ttft_p99_s) as first_token_p99_s,
        coalesce(by_gap.itl_p50_s, sums.itl_p50_s) as gap_p50_s,
        coalesce(by_gap.itl_p99_s, sums.itl_p99_s) as gap_p99_s,
        coalesce(by_request.longest_gap_s, sums.longest_gap_s) as gap_longest_s,
        by_request.requests is not null as has_requests,
        observed.kv_usage_mean,
        coalesce(observed.kv_usage_max, sums.kv_usage_ratio) as kv_usage_max,
        observed.running,
        coalesce(observed.waiting, sums.waiting) as waiting_mean,
        coalesce(counted.preemptions_low, sums.preemptions) as preempted_low,
        coalesce(counted.preemptions, sums.preemptions) as preempted,
        coalesce(counted.preemptions_high, sums.preemptions) as preempted_high,
        case
            when counted.preemptions = 0 then 0
            else repeated.tokens * ratio(counted.preemptions, repeated.preemptions)
        end as recomputed_tokens,
        coalesce(prompts.computed_tokens, by_request.input_tokens) as prompt_tokens,
    from levels
    left join core.client_sums as sums using (source, run_index)
    left join by_request using (source, run_index)
    left join by_gap using (source, run_index)
    left join observed using (source, run_index)
    left join counted using (source, run_index)
    left join prompts using (source, run_index)
    cross join repeated
)

select
    getvariable('run') as run,
    sweep,
    dimension,
    level,
    source,
    run_index,
    window_start,
    window_end,
    duration_s,
    coalesce(requests, completed) as requests,
    coalesce(failed_requests, failed) as failed,
    ratio(latency_s, duration_s) as in_flight,
    kv_usage_mean,
    kv_usage_max,
    running,
    waiting_mean as waiting,
    preempted_low::double as preemptions_low,
    preempted::double as preemptions,
    preempted_high::double as preemptions_high,
    recomputed_tokens,
    ratio(recomputed_tokens, recomputed_tokens + prompt_tokens + output_tokens) as recomputed_share,
    queue_p50_s,
    queue_p99_s,
    first_token_p50_s as ttft_p50_s,
    first_token_p99_s as ttft_p99_s,
    gap_p50_s as itl_p50_s,
    gap_p99_s as itl_p99_s,
    gap_longest_s as longest_gap_s,
    case
        when has_requests then tail_s
        when first_token_p99_s is not null then greatest(first_token_p99_s, coalesce(gap_longest_s, gap_p99_s, 0))
    end as tail_s,
    coalesce(ratio(output_tokens, duration_s), output_tokens_per_s) as useful_tokens_per_s,
    ratio(prompt_tokens + output_tokens + coalesce(recomputed_tokens, 0), duration_s) as total_tokens_per_s,
    target_ttft_s,
    target_gap_s,
    if(has_requests, ratio(met_target, duration_s), goodput_per_s) as goodput_per_s,
    ratio(met_target, requests + failed_requests) as met_target_share,
    ratio(sent_rate, offered_rate) as sent_share,
    if(has_requests, 'requests', 'sums') as method,
from joined
order by sweep, dimension, level, source, run_index
