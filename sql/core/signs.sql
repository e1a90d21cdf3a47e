-- Signs of trouble: instants and intervals at which one kind of pressure shows, whatever input shows it.
--
-- Each later verdict is a spell of such signs (core.spells). What is a sign of what stands here and nowhere else.
--
-- grain: engine, verdict, sign_start, sign_end
-- column: engine     VARCHAR     | Engine.
-- column: verdict    VARCHAR     | The verdict it is a sign of.
-- column: sign_start TIMESTAMPTZ | When it began to hold.
-- column: sign_end   TIMESTAMPTZ | When it was last seen to hold.
-- column: weight     DOUBLE      | How strong, in the sign's own measure: requests waiting, preemptions, seconds lost, tokens missed.
-- check:  sign_start <= sign_end | Intervals.
with waiting as (
    select
        engine,
        concat('queue_', cause) as verdict,
        sampled_at as sign_start,
        plus_seconds(sampled_at, scrape_s) as sign_end,
        waiting::double as weight,
    from core.queue_states
),

preempted as (
    select engine, 'preemption' as verdict, interval_start as sign_start, interval_end as sign_end, preemptions::double as weight
    from core.preemption_intervals
    where preemptions > 0
),

-- V0 warns of every fiftieth preemption: where no counter was scraped, each line stands for at least one, at most fifty
warned as (
    select
        engine,
        'preemption' as verdict,
        happened_at as sign_start,
        plus_seconds(happened_at, 1) as sign_end,
        coalesce(count - lag(count) over (partition by engine order by happened_at, line), least(count, 1))::double as weight,
    from staging.engine_events
    where event like 'preemption_warning%'
        and happened_at is not null
        and engine not in (select engine from core.preemption_intervals)
),

slowed as (
    select engine, 'prefill_interference' as verdict, interval_start as sign_start, interval_end as sign_end, lost_s as weight
    from core.interference_intervals
    -- a tenth of the decode time lost, to more gaps than preemptions explain, while prompts were being computed: enough of them to
    -- dominate a step, as below
    where lost_s >= 0.1 * decode_s
        and slow_gaps > 2 * coalesce(most_resumes, 0)
        and prompt_tokens >= 512
        and first_tokens > 0
),

-- every step slow: there is no quiet median within the interval to measure slow gaps by, so it is taken from the run's quietest tenth
quiet as (
    select engine, quantile_cont(median_gap_s, 0.1) as median_gap_s
    from core.interference_intervals
    group by engine
),

slow_throughout as (
    select
        intervals.engine,
        -- 512 prompt tokens a step are a prefill chunk that dominates it; with fewer the steps are slow by themselves
        case when intervals.prompt_tokens_per_step >= 512 then 'prefill_interference' else 'decode_slow' end as verdict,
        intervals.interval_start as sign_start,
        intervals.interval_end as sign_end,
        case when intervals.prompt_tokens_per_step >= 512 then intervals.prefill_lost_s else intervals.decode_s end as weight,
    from core.interference_intervals as intervals
    left join quiet using (engine)
    where coalesce(intervals.preemptions, 0) = 0
        and (
            -- beyond the decode step of any model that is served to people, whatever the batch
            intervals.median_gap_s >= 0.3
            or (intervals.median_gap_s >= 5 * quiet.median_gap_s and intervals.prompt_tokens_per_step >= 512)
        )
),

missed as (
    select engine, 'prefix_eviction' as verdict, interval_start as sign_start, interval_end as sign_end, missed_tokens as weight
    from core.prefix_intervals
    -- a third of the lookups' tokens that used to be found are not, and the pool has been written over
    where near_lookups >= 10 -- fewer prompts than this are chance
        and (
            (best_hit_ratio - hit_ratio - coalesce(restored_ratio, 0) >= 0.33 and missed_tokens > 0 and written_tokens > kv_capacity_tokens)
            -- KV events show the same without a better time to compare with
            or refilled_tokens >= 0.33 * queried_tokens
        )
),

-- a third of the prompt tokens come back from a tier, of an engine whose pool has been written over since they were in it
restored as (
    select engine, 'offload_pressure' as verdict, interval_start as sign_start, interval_end as sign_end, restored_tokens as weight
    from core.prefix_intervals
    where near_lookups >= 10
        and restored_ratio >= 0.33
        and restored_tokens > 0
        and written_tokens > kv_capacity_tokens
),

-- the same by the lines of a tier that says what it takes in and gives back, minute by minute, where no counter says so
moved as (
    select
        events.engine,
        time_bucket(interval 1 minute, events.happened_at) as minute,
        min(events.happened_at) as first_at,
        max(events.happened_at) as last_at,
        count(*) as moves,
        coalesce(sum(events.count) filter (where events.event = 'kv_restored'), 0) as restored_tokens,
        coalesce(sum(events.count) filter (where events.event = 'kv_offloaded'), 0) as stored_tokens,
        sum(sum(events.count) filter (where events.event = 'kv_offloaded')) over (partition by events.engine order by minute) as stored_so_far,
    from staging.engine_events as events
    where events.event in ('kv_restored', 'kv_offloaded')
        and events.happened_at is not null
        and events.engine not in (select engine from core.prefix_intervals where restored_tokens is not null)
    group by events.engine, minute
),

restored_by_log as (
    select
        moved.engine,
        'offload_pressure' as verdict,
        moved.first_at as sign_start,
        moved.last_at as sign_end,
        moved.restored_tokens::double as weight,
    from moved
    inner join core.engine_setups as setups
        on setups.engine = moved.engine and is_within(moved.first_at, setups.setup_start, setups.setup_end)
    where moved.moves >= 10
        and moved.restored_tokens >= 0.33 * (moved.restored_tokens + moved.stored_tokens)
        and moved.stored_so_far > setups.kv_capacity_tokens
),

-- requests that their client held back before it sent them, while no engine sample shows that it had no room
loaded as (
    select
        states.engine,
        states.sampled_at,
        states.scrape_s,
        max(states.sampled_at) filter (
            where states.waiting > 0 or states.kv_usage_ratio >= 0.9 or states.running >= setups.max_num_seqs
        ) over (partition by states.engine order by states.sampled_at) as full_at,
    from core.engine_states as states
    left join core.engine_setups as setups
        on setups.engine = states.engine and is_within(states.sampled_at, setups.setup_start, setups.setup_end)
),

held as (
    select
        requests.engine,
        'client_limited' as verdict,
        plus_seconds(requests.arrived_at, -requests.client_queue_s) as sign_start,
        requests.arrived_at as sign_end,
        requests.client_queue_s as weight,
    from core.requests
    inner join staging.client_runs as runs using (source, run_index)
    asof inner join loaded on loaded.engine = requests.engine and loaded.sampled_at <= requests.arrived_at
    where requests.client_queue_s >= 0.1 -- less is hardly noticed
        and runs.request_rate is not null -- as fast as answers come is what a closed loop is meant to do
        and requests.arrived_at <= plus_seconds(loaded.sampled_at, loaded.scrape_s)
        and coalesce(loaded.full_at < plus_seconds(requests.arrived_at, -requests.client_queue_s), true)
),

-- an engine that was not scraped is unknown: over a hole, or a restart, counters that stand still say nothing of what it held meanwhile
scraped as (
    select engine, 3 * median(scrape_s) as longest_s from core.engine_states group by engine
),

without_tokens as (
    select
        states.engine,
        states.sampled_at,
        intervals.interval_start as sign_start,
        intervals.interval_end as sign_end,
        states.running + states.waiting as requests,
    from core.engine_states as states
    inner join (
        select engine, interval_start, interval_end, sum(delta) as tokens, bool_or(is_reset) as has_reset
        from core.counter_intervals
        where signal in ('prompt_tokens', 'generation_tokens')
        group by all
    ) as intervals
        on intervals.engine = states.engine
        and intervals.interval_end = states.sampled_at
    inner join scraped
        on scraped.engine = states.engine
        and seconds_between(intervals.interval_start, intervals.interval_end) <= scraped.longest_s
    where intervals.tokens = 0 and not intervals.has_reset
    union all
    select
        samples.engine,
        samples.sampled_at,
        samples.sampled_at,
        plus_seconds(samples.sampled_at, states.scrape_s),
        samples.running + samples.waiting,
    from staging.engine_samples as samples
    inner join core.engine_states as states using (engine, sampled_at)
    where states.origin = 'log'
        and samples.prompt_tokens_per_s = 0
        and samples.generation_tokens_per_s = 0
),

stuck as (
    select engine, 'engine_stalled' as verdict, sign_start, sign_end, requests::double as weight
    from without_tokens
    where requests > 0
        and not exists (
            from core.silences
            where silences.engine = without_tokens.engine
                and silences.is_prefill
                and without_tokens.sampled_at > silences.silence_start
                and without_tokens.sampled_at < silences.silence_end
        )
),

cold as (
    select engine, 'cold_start' as verdict, interval_start as sign_start, interval_end as sign_end, ttft_s * first_tokens as weight
    from core.first_token_intervals
    -- seconds to the first token although nobody waited: and the engine is young
    where ttft_s >= 3
        and ttft_s >= 3 * coalesce(later_ttft_s, 0)
        and queue_s < 0.2 * ttft_s
        and waiting = 0
        and is_young
        and coalesce(prompt_tokens_per_s, 0) < 500 -- a long prompt takes its time; no accelerator prefills slower than this
),

-- clients' streams that stood still together for a second or more: shorter than that is a long step
paused as (
    select
        gaps.engine,
        'engine_pause' as verdict,
        gaps.started_at as sign_start,
        gaps.ended_at as sign_end,
        gaps.duration_s as weight,
    from core.request_gaps as gaps
    inner join core.stall_causes as causes using (stream, gap_index)
    where causes.cause = 'engine_pause' and gaps.duration_s >= 1 and gaps.started_at is not null
),

runaway as (
    select
        engine,
        'runaway_generation' as verdict,
        stretch_start as sign_start,
        stretch_end as sign_end,
        tokens_per_request as weight,
    from core.generation_stretches
    -- longer than nearly any answer a person waits for; a few requests, for a batch of many is a batch job
    where tokens_per_request >= 8192
        and running <= 4
        -- faster than any model decodes one sequence: then a request is several (n > 1), and their length is not known
        and tokens_per_request <= 500 * seconds_between(stretch_start, stretch_end)
),

uneven as (
    select
        loads.engine,
        'imbalance' as verdict,
        loads.sampled_at as sign_start,
        plus_seconds(loads.sampled_at, states.scrape_s) as sign_end,
        loads.running - loads.mean_running as weight,
    from core.rank_loads as loads
    inner join core.engine_states as states using (engine, sampled_at)
    -- one rank with twice its share and at least four requests more than the idlest: less is chance
    where loads.is_busiest and loads.running >= 2 * loads.mean_running and loads.running - loads.least_running >= 4
),

failed as (
    select
        engine,
        'queue_kv_capacity' as verdict,
        failed_at as sign_start,
        failed_at as sign_end,
        requests::double as weight,
    from core.failed_requests
    where failed_at is not null
)

from waiting
union all
from failed
union all
from restored
union all
from restored_by_log
union all
from held
union all
from preempted
union all
from warned
union all
from slowed
union all
from slow_throughout
union all
from missed
union all
from stuck
union all
from cold
union all
from paused
union all
from runaway
union all
from uneven
order by engine, verdict, sign_start, sign_end, weight
