-- The ladder of evidence: each way to tell wasted tokens that the inputs allow, its range, and which one answers.
--
-- One row per method and kind of waste; the method with the smallest rung answers unless its inputs have holes. A method that
-- cannot tell keeps its row with NULL and says why, so that "cannot be told" is not mistaken for none.
--
-- grain: engine, kind, method
-- column: engine           VARCHAR   | Engine.
-- column: kind             VARCHAR   | preemption_recompute, prefix_refill or offload_restore.
-- column: method           VARCHAR   | How it was told.
-- column: rung             INTEGER   | Place on the ladder: 1 is the surest.
-- column: is_partial       BOOLEAN   | Its inputs have holes: another method goes before it.
-- column: tokens_low       DOUBLE    | Least tokens; NULL where it cannot be told.
-- column: tokens_best      DOUBLE    | Expected tokens; NULL where it cannot be told.
-- column: tokens_high      DOUBLE    | Most tokens; NULL where nothing bounds it.
-- column: preemptions_low  DOUBLE    | Least preemptions, where the method tells any.
-- column: preemptions_best DOUBLE    | Expected preemptions.
-- column: preemptions_high DOUBLE    | Most preemptions.
-- column: assumptions      VARCHAR   | What it rests on, or why it cannot tell.
-- column: evidence         VARCHAR   | The numbers it comes from, in a sentence.
-- column: missing_series   VARCHAR[] | Series that /metrics as recorded lacks and that would tell it; NULL where none is missing, or no metric was recorded.
-- column: is_used          BOOLEAN   | Whether it answers.
-- check:  tokens_low is null or tokens_best is null or tokens_low <= tokens_best | A range holds its best estimate.
-- check:  tokens_high is null or tokens_best is null or tokens_best <= tokens_high | A range holds its best estimate.
with counted as (
    select engine, sum(preemptions)::double as preemptions from core.preemption_intervals group by engine
),

totals as (
    select
        engine,
        sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%local_compute%') as local_tokens,
        sum(delta) filter (where signal = 'prompt_tokens') as prompt_tokens,
        coalesce(sum(delta) filter (where signal in ('prefix_hits', 'external_prefix_hits')), 0) as hit_tokens,
        sum(delta) filter (where signal = 'generation_tokens') as generation_tokens,
        coalesce(
            sum(delta) filter (where signal = 'external_prefix_hits'),
            sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%external_kv_transfer%')
        ) as restored_tokens,
    from core.counter_intervals
    group by engine
),

iteration_lines as (
    select
        engine,
        'preemption_recompute' as kind,
        'iteration_lines_with_counters' as method,
        1 as rung,
        uncovered_tokens > 0.05 * scheduled_tokens or missing_steps > 0.05 * scheduled_tokens as is_partial,
        tokens_low,
        tokens_best,
        tokens_high,
        null::double as preemptions_low,
        null::double as preemptions_best,
        null::double as preemptions_high,
        'Every step has its line, and no drafts are rejected.' as assumptions,
        format(
            '{} tokens scheduled, of which {} were new prompt or output; {} step(s) without a line.',
            scheduled_tokens::bigint, useful_tokens::bigint, missing_steps
        ) as evidence,
    from core.recompute_iteration_lines
),

kv_events as (
    select
        engine,
        'preemption_recompute' as kind,
        'kv_events' as method,
        2 as rung,
        lost_batches > 0 or not is_begin_known as is_partial,
        recompute_low as tokens_low,
        recompute_best as tokens_best,
        recompute_high as tokens_high,
        resumes_seen::double as preemptions_low,
        resumes_seen + coalesce(resumes_unseen, 0)::double as preemptions_best,
        resumes_seen + coalesce(resumes_unseen, resumes_seen)::double as preemptions_high,
        'A sequence rebuilt to where it stood was preempted; a last block is filled evenly by chance.' as assumptions,
        format(
            '{} resume(s) seen to store blocks again, {} counted beyond these; {} batch(es) lost.',
            resumes_seen, coalesce(resumes_unseen::varchar, 'an unknown number'), lost_batches
        ) as evidence,
    from core.recompute_kv_events
),

replays as (
    select
        replays.engine,
        'preemption_recompute' as kind,
        replays.method,
        if(replays.method = 'replay', 3, 4) as rung,
        false as is_partial,
        replays.tokens_low,
        replays.tokens_best,
        replays.tokens_high,
        replays.preemptions_low,
        replays.preemptions_best,
        replays.preemptions_high,
        'The engine schedules as its version does; which prompts begin alike is drawn by chance.' as assumptions,
        format(
            '{} requests replayed {} times over the block pool: {:.0f} preemptions on average, {} counted.',
            replays.requests, replays.replays, replays.replayed_preemptions, coalesce(counted.preemptions::bigint::varchar, 'none')
        ) as evidence,
    from core.recompute_replays as replays
    left join counted using (engine)
    where replays.reason is null
),

-- metrics without a preemption, or with preemptions that nothing replays: between none and all that the victims can have held
counters as (
    select
        counted.engine,
        'preemption_recompute' as kind,
        'preemption_counter' as method,
        4 as rung,
        false as is_partial,
        0 as tokens_low,
        if(counted.preemptions = 0, 0, counted.preemptions * held.context_tokens / 2) as tokens_best,
        if(counted.preemptions = 0, 0, counted.preemptions * held.most_context_tokens) as tokens_high,
        counted.preemptions as preemptions_low,
        counted.preemptions as preemptions_best,
        counted.preemptions as preemptions_high,
        case
            when counted.preemptions = 0 then 'A request aborted while preempted is not counted.'
            else concat(
                'No replay: ', replays.reason,
                '. Each victim held an even share of the full pool, and found between none and all of it again.'
            )
        end as assumptions,
        format('{} preemption(s) counted.', counted.preemptions::bigint) as evidence,
    from counted
    inner join core.recompute_replays as replays
        on replays.engine = counted.engine and replays.method = 'preemption_counter' and replays.reason is not null
    left join (
        select
            states.engine,
            avg(states.kv_usage_ratio / states.running) * any_value(engines.kv_capacity_tokens) as context_tokens,
            max(states.kv_usage_ratio / states.running) * any_value(engines.kv_capacity_tokens) as most_context_tokens,
        from core.engine_states as states
        inner join core.engines using (engine)
        where states.running > 0 and states.kv_usage_ratio >= 0.9
        group by states.engine
    ) as held
        on held.engine = counted.engine
    where counted.preemptions = 0 or held.context_tokens is not null
),

-- V0 warned of the 1st, 51st, 101st, … preemption with the number so far; a number that falls is a restart
warnings as (
    select
        *,
        coalesce(count < lag(count) over (partition by engine order by happened_at, source, line), false)::int as is_restart,
        happened_at as warned_at,
    from staging.engine_events
    where event like 'preemption_warning%' and count is not null
),

warned as (
    select engine, sum(last_count) as preemptions, count(*) as lives
    from (
        select engine, life, max(count) as last_count
        from (select *, sum(is_restart) over (partition by engine order by warned_at, source, line) as life from warnings)
        group by all
    )
    group by engine
),

v0_log as (
    select
        warned.engine,
        'preemption_recompute' as kind,
        'v0_log' as method,
        5 as rung,
        false as is_partial,
        0 as tokens_low,
        (warned.preemptions + 24.5 * warned.lives) * held.context_tokens as tokens_best,
        (warned.preemptions + 49 * warned.lives) * engines.kv_capacity_tokens as tokens_high,
        warned.preemptions::double as preemptions_low,
        warned.preemptions + 24.5 * warned.lives as preemptions_best,
        warned.preemptions + 49.0 * warned.lives as preemptions_high,
        'One warning stands for up to 50 preemptions; each victim held an even share of the pool in use.' as assumptions,
        format('The last warning counts {} preemption(s).', warned.preemptions::bigint) as evidence,
    from warned
    left join core.engines using (engine)
    left join (
        select states.engine, avg(states.kv_usage_ratio / states.running) * any_value(engines.kv_capacity_tokens) as context_tokens
        from core.engine_states as states
        inner join core.engines using (engine)
        where states.running > 0 and states.kv_usage_ratio >= 0.5
        group by states.engine
    ) as held
        using (engine)
),

-- what an estimate from metrics needs at least: of vLLM the preemptions and what a victim can have held, of SGLang either two counters
needed as (
    select
        engine,
        engine_kind,
        engine_version,
        unnest(case
            when engine_kind = 'vllm' then ['preemptions', 'running', 'kv_usage_ratio']
            when engine_kind <> 'sglang' or version_number(engine_version) < version_number('0.5.7') then []
            when version_number(engine_version) < version_number('0.5.18') then ['retracted_input_tokens', 'retracted_output_tokens']
            else ['realtime_tokens', 'prefill_effective_tokens']
        end) as signal,
    from core.engines
),

scraped as (
    select distinct samples.engine, signals.signal
    from (select distinct engine, name from staging.metric_samples) as samples
    inner join signals() as signals using (name)
),

unscraped as (
    select needed.engine, list(exposed_as(needed.signal, needed.engine_kind, needed.engine_version) order by needed.signal) as missing_series,
    from needed
    left join scraped using (engine, signal)
    where scraped.engine is null and needed.engine in (select engine from scraped)
    group by needed.engine
),

untold as (
    select
        engine,
        'preemption_recompute' as kind,
        'not_told' as method,
        9 as rung,
        true as is_partial,
        null::double as tokens_low,
        null::double as tokens_best,
        null::double as tokens_high,
        null::double as preemptions_low,
        null::double as preemptions_best,
        null::double as preemptions_high,
        if(
            missing_series is null,
            'A vLLM V1 log says nothing of preemptions, and no metric that counts them was recorded.',
            format('The metrics recorded lack {}.', array_to_string(missing_series, ', '))
        ) as assumptions,
        null::varchar as evidence,
        missing_series,
    from core.engines
    left join unscraped using (engine)
),

refills_seen as (
    select
        engine,
        'prefix_refill' as kind,
        'kv_events' as method,
        2 as rung,
        lost_batches > 0 or not is_from_start as is_partial,
        refill_low as tokens_low,
        refill_best as tokens_best,
        refill_high as tokens_high,
        null::double as preemptions_low,
        null::double as preemptions_best,
        null::double as preemptions_high,
        'Blocks stored again that no preempted request rebuilt; what an external tier loaded is not among them.' as assumptions,
        format('{} tokens of blocks stored again.', stored_again::bigint) as evidence,
    from core.recompute_kv_events
),

-- what is never kept for reuse is never evicted
uncached as (
    select
        engine,
        'prefix_refill' as kind,
        'caching_off' as method,
        1 as rung,
        false as is_partial,
        0 as tokens_low,
        0 as tokens_best,
        0 as tokens_high,
        null::double as preemptions_low,
        null::double as preemptions_best,
        null::double as preemptions_high,
        'The settings read are those that it ran with.' as assumptions,
        'Prefix caching is off.' as evidence,
    from core.engines
    where prefix_caching = false
),

-- no hash says what was there before, but nothing is evicted before the pool was once written full
bounded as (
    select
        totals.engine,
        coalesce(local_tokens, prompt_tokens - hit_tokens) as local_tokens,
        at_least_zero(
            coalesce(local_tokens, prompt_tokens - hit_tokens) + coalesce(restored_tokens, 0) + generation_tokens
                - engines.kv_capacity_tokens
        ) as evicted_tokens,
        engines.block_size,
        coalesce(restored_tokens, 0) > 0 as has_tier,
    from totals
    inner join core.engines using (engine)
),

-- while a tier gives prompts back, what is computed beside is the rest of prompts that came before, or of new ones; no cache
-- keeps a prompt's last partial block, half a block on average
beside_tier as (
    select
        engine,
        sum(local_tokens) as local_tokens,
        sum(restored_tokens) as restored_tokens,
        sum(first_tokens) as first_tokens,
    from (
        select
            engine,
            interval_end,
            sum(delta) filter (where signal = 'prompt_tokens_by_source' and labels like '%local_compute%') as local_tokens,
            sum(delta) filter (where signal = 'external_prefix_hits') as restored_tokens,
            sum(delta) filter (where signal = 'ttft_s_count') as first_tokens,
        from core.counter_intervals
        group by all
    )
    where restored_tokens > 0
    group by engine
),

refills_bounded as (
    select
        bounded.engine,
        'prefix_refill' as kind,
        if(bounded.evicted_tokens = 0, 'pool_never_full', if(bounded.has_tier, 'counters_beside_tier', 'capacity_bound')) as method,
        6 as rung,
        false as is_partial,
        0 as tokens_low,
        case
            when bounded.evicted_tokens = 0 then 0
            when bounded.has_tier then
                at_least_zero(beside_tier.local_tokens - beside_tier.first_tokens * bounded.block_size / 2)
                * beside_tier.restored_tokens / (beside_tier.restored_tokens + beside_tier.local_tokens)
        end as tokens_best,
        least(bounded.local_tokens, bounded.evicted_tokens) as tokens_high,
        null::double as preemptions_low,
        null::double as preemptions_best,
        null::double as preemptions_high,
        case
            when bounded.evicted_tokens = 0 then 'All that was ever computed fits into the pool: nothing was evicted.'
            when bounded.has_tier then 'Of what was computed while the tier gave prompts back, the share of prompts it knew.'
            else 'Without block hashes (KV events) a prompt computed again looks like a new one.'
        end as assumptions,
        format('{} prompt tokens computed; the pool was written over by {}.', bounded.local_tokens::bigint, bounded.evicted_tokens::bigint)
            as evidence,
    from bounded
    left join beside_tier using (engine)
    where bounded.local_tokens is not null and bounded.evicted_tokens is not null
),

restores as (
    select
        engine,
        'offload_restore' as kind,
        'external_hit_counter' as method,
        1 as rung,
        false as is_partial,
        restored_tokens as tokens_low,
        restored_tokens as tokens_best,
        restored_tokens as tokens_high,
        null::double as preemptions_low,
        null::double as preemptions_best,
        null::double as preemptions_high,
        'Requests that load a second time, after a preemption, are not counted.' as assumptions,
        format('{} prompt tokens came from an external tier.', restored_tokens::bigint) as evidence,
    from totals
    where restored_tokens is not null
),

tier_restores as (
    select
        engine,
        'offload_restore' as kind,
        method,
        rung,
        false as is_partial,
        restored_tokens as tokens_low,
        restored_tokens as tokens_best,
        restored_tokens as tokens_high,
        null::double as preemptions_low,
        null::double as preemptions_best,
        null::double as preemptions_high,
        'What the tier gave back was loaded, not computed.' as assumptions,
        format(
            '{} tokens given back{}{}.',
            restored_tokens::bigint,
            coalesce(format(', {} taken in', stored_tokens::bigint), ''),
            coalesce(format(', {} lost for want of room', dropped_tokens::bigint), '')
        ) as evidence,
    from core.tier_restores
),

-- vLLM's blocks and scheduler are not SGLang's: it keeps no hash of what a request generated, and chooses other victims
as_vllm as (
    from kv_events
    union all by name
    from replays
    union all by name
    from counters
),

ladder as (
    from iteration_lines
    union all by name
    from as_vllm where engine not in (select engine from core.engines where engine_kind = 'sglang')
    union all by name
    from core.recompute_retractions
    union all by name
    from tier_restores
    union all by name
    from v0_log
    union all by name
    from untold
    union all by name
    from uncached
    union all by name
    from refills_seen
    union all by name
    from refills_bounded
    union all by name
    from restores
)

select
    engine,
    kind,
    method,
    rung,
    is_partial,
    tokens_low::double as tokens_low,
    tokens_best::double as tokens_best,
    tokens_high::double as tokens_high,
    preemptions_low,
    preemptions_best,
    preemptions_high,
    assumptions,
    evidence,
    missing_series,
    row_number() over (partition by engine, kind order by is_partial, rung, method) = 1 as is_used,
from ladder
order by engine, kind, rung, method
