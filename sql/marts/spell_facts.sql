-- What was measured during each spell: the numbers a verdict is made of.
--
-- Counters are shared out by overlap of scrape interval and spell. NULL where an input does not carry the quantity.
--
-- step:  verdicts
-- grain: engine, verdict, window_start
-- needs: core.spells
-- column: engine              VARCHAR     | Engine.
-- column: verdict             VARCHAR     | The verdict the spell's signs are of.
-- column: window_start        TIMESTAMPTZ | First sign.
-- column: window_end          TIMESTAMPTZ | Last sign.
-- column: peak_at             TIMESTAMPTZ | Start of its strongest sign.
-- column: seconds             DOUBLE      | Seconds in which a sign held.
-- column: signs               BIGINT      | Signs in it.
-- column: weight              DOUBLE      | Sum of the signs' weights.
-- column: peak_weight         DOUBLE      | Weight of the strongest.
-- column: weight_seconds      DOUBLE      | Weight times length, summed.
-- column: samples             BIGINT      | Samples of load in it.
-- column: mean_running        DOUBLE      | Mean requests running.
-- column: max_running         BIGINT      | Most requests running.
-- column: mean_waiting        DOUBLE      | Mean requests waiting.
-- column: max_waiting         BIGINT      | Most requests waiting.
-- column: max_kv_usage_ratio  DOUBLE      | Highest share of the pool held.
-- column: mean_kv_usage_ratio DOUBLE      | Mean share of the pool held.
-- column: preemptions         DOUBLE      | Preemptions counted.
-- column: first_tokens        DOUBLE      | Requests that got their first token.
-- column: queued_s            DOUBLE      | Waits before the first run, summed over requests that ended in the spell; by records of requests, that first ran in it.
-- column: queued_requests     DOUBLE      | Requests in that sum.
-- column: is_wait_recorded    BOOLEAN     | Whether records of requests tell it, for want of histograms.
-- column: e2e_s               DOUBLE      | Whole latencies of these requests, summed.
-- column: prompt_tokens       DOUBLE      | Prompt tokens computed.
-- column: generation_tokens   DOUBLE      | Tokens generated.
-- column: decode_s            DOUBLE      | Inter-token time, summed.
-- column: lost_s              DOUBLE      | Inter-token time above the median of slow gaps.
-- column: queried_tokens      DOUBLE      | Prompt tokens looked up in the prefix cache.
-- column: hit_tokens          DOUBLE      | Of these, found.
-- column: restored_tokens     DOUBLE      | Of these, come back from a tier that this engine's pool had lost them to.
-- column: missed_tokens       DOUBLE      | Tokens that would have been found at the best earlier ratio.
-- column: best_hit_ratio      DOUBLE      | That ratio.
-- column: paused_s            DOUBLE      | Seconds client streams were paused by preemption, summed.
-- column: paused_requests     BIGINT      | Client requests so paused.
-- column: longest_pause_s     DOUBLE      | Longest such pause.
with hours as (
    select distinct engine, hour_of(sampled_at) as hour from core.engine_states
),

-- made first, or every state would be compared with every spell
spells_by_hour as materialized (
    select spells.engine, spells.verdict, spells.window_start, spells.window_end, hours.hour
    from core.spells
    inner join hours
        on hours.engine = spells.engine
        and hours.hour between hour_of(spells.window_start) and hour_of(spells.window_end)
),

states as (
    select
        spells.engine,
        spells.verdict,
        spells.window_start,
        count(states.running) as samples,
        avg(states.running) as mean_running,
        max(states.running) as max_running,
        avg(states.waiting) as mean_waiting,
        max(states.waiting) as max_waiting,
        max(states.kv_usage_ratio) as max_kv_usage_ratio,
        avg(states.kv_usage_ratio) as mean_kv_usage_ratio,
    from spells_by_hour as spells
    inner join core.engine_states as states
        on states.engine = spells.engine
        and hour_of(states.sampled_at) = spells.hour
        and states.sampled_at >= spells.window_start
        and states.sampled_at <= spells.window_end
        -- the sample that ends a queue shows that nobody waits any more
        and (states.sampled_at < spells.window_end or spells.verdict not like 'queue%' or spells.window_start = spells.window_end)
    group by all
),

-- requests end after the wait they report: their counters are read to a little behind the spell
shares as (
    select
        spells.engine,
        spells.verdict,
        spells.window_start,
        intervals.signal,
        intervals.labels,
        sum(intervals.delta * overlap_s(intervals.interval_start, intervals.interval_end, spells.window_start, spells.window_end)
            / seconds_between(intervals.interval_start, intervals.interval_end)) as delta,
    from core.spells
    inner join core.counter_intervals as intervals
        on intervals.engine = spells.engine
        and intervals.interval_start < spells.window_end
        and intervals.interval_end > spells.window_start
    group by all
),

preempted as (
    select
        spells.engine,
        spells.verdict,
        spells.window_start,
        sum(
            intervals.preemptions
            * overlap_s(intervals.interval_start, intervals.interval_end, spells.window_start, spells.window_end)
            / seconds_between(intervals.interval_start, intervals.interval_end)
        ) as preemptions,
    from core.spells
    inner join core.preemption_intervals as intervals
        on intervals.engine = spells.engine
        and intervals.interval_start < spells.window_end
        and intervals.interval_end > spells.window_start
    group by all
),

counted as (
    select
        engine,
        verdict,
        window_start,
        sum(delta) filter (where signal = 'ttft_s_count') as first_tokens,
        sum(delta) filter (where signal = 'queue_s_sum') as queued_s,
        sum(delta) filter (where signal = 'queue_s_count') as queued_requests,
        sum(delta) filter (where signal = 'e2e_s_sum') as e2e_s,
        coalesce(
            sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%source=local_compute%'),
            sum(delta) filter (where signal = 'prompt_tokens')
        ) as prompt_tokens,
        sum(delta) filter (where signal = 'generation_tokens') as generation_tokens,
    from shares
    group by all
),

-- the same by the requests' own records: those that waited in the spell are known, and not only those that ended in it
recorded as (
    select
        spells.engine,
        spells.verdict,
        spells.window_start,
        sum(requests.queue_s) as queued_s,
        count(*) as queued_requests,
        sum(seconds_between(requests.arrived_at, requests.finished_at)) as e2e_s,
    from spells_by_hour as spells
    inner join core.requests
        on requests.engine = spells.engine
        and hour_of(plus_seconds(requests.arrived_at, requests.queue_s)) = spells.hour
        and plus_seconds(requests.arrived_at, requests.queue_s) > spells.window_start
        and plus_seconds(requests.arrived_at, requests.queue_s) <= spells.window_end
    where requests.queue_s is not null
    group by all
),

slowed as (
    select
        spells.engine,
        spells.verdict,
        spells.window_start,
        sum(intervals.decode_s) as decode_s,
        sum(intervals.lost_s) as lost_s,
    from core.spells
    inner join core.interference_intervals as intervals
        on intervals.engine = spells.engine
        and intervals.interval_end > spells.window_start
        and intervals.interval_end <= spells.window_end
    group by all
),

looked_up as (
    select
        spells.engine,
        spells.verdict,
        spells.window_start,
        sum(intervals.queried_tokens) as queried_tokens,
        sum(intervals.hit_tokens) as hit_tokens,
        sum(intervals.restored_tokens) as restored_tokens,
        sum(intervals.missed_tokens) as missed_tokens,
        max(intervals.best_hit_ratio) as best_hit_ratio,
    from core.spells
    inner join core.prefix_intervals as intervals
        on intervals.engine = spells.engine
        and intervals.interval_end > spells.window_start
        and intervals.interval_end <= spells.window_end
    group by all
),

paused as (
    select
        spells.engine,
        spells.verdict,
        spells.window_start,
        sum(stalls.duration_s) as paused_s,
        count(distinct (stalls.source_file, stalls.run_index, stalls.request_index)) as paused_requests,
        max(stalls.duration_s) as longest_pause_s,
    from core.spells
    inner join marts.stalls
        on stalls.cause = 'preemption'
        and (stalls.engine = spells.engine or stalls.engine like '%*')
        and plus_seconds(stalls.started_at, stalls.duration_s) >= spells.window_start
        and stalls.started_at <= spells.window_end
    where spells.verdict = 'preemption'
    group by all
)

select
    spells.engine,
    spells.verdict,
    spells.window_start,
    spells.window_end,
    spells.peak_at,
    spells.seconds,
    spells.signs,
    spells.weight,
    spells.peak_weight,
    spells.weight_seconds,
    coalesce(states.samples, 0) as samples,
    states.mean_running,
    states.max_running,
    states.mean_waiting,
    states.max_waiting,
    states.max_kv_usage_ratio,
    states.mean_kv_usage_ratio,
    preempted.preemptions,
    counted.first_tokens,
    if(counted.queued_requests is null, recorded.queued_s, counted.queued_s) as queued_s,
    coalesce(counted.queued_requests, recorded.queued_requests) as queued_requests,
    counted.queued_requests is null and recorded.queued_requests is not null as is_wait_recorded,
    if(is_wait_recorded, recorded.e2e_s, counted.e2e_s) as e2e_s,
    counted.prompt_tokens,
    counted.generation_tokens,
    slowed.decode_s,
    slowed.lost_s,
    looked_up.queried_tokens,
    looked_up.hit_tokens,
    looked_up.restored_tokens,
    looked_up.missed_tokens,
    looked_up.best_hit_ratio,
    paused.paused_s,
    paused.paused_requests,
    paused.longest_pause_s,
from core.spells
left join states using (engine, verdict, window_start)
left join preempted using (engine, verdict, window_start)
left join counted using (engine, verdict, window_start)
left join recorded using (engine, verdict, window_start)
left join slowed using (engine, verdict, window_start)
left join looked_up using (engine, verdict, window_start)
left join paused using (engine, verdict, window_start)
order by spells.engine, spells.verdict, spells.window_start
