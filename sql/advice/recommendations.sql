-- What to change: at most three levers per engine, each with a value worked out from the run's own numbers, its price and its
-- test.
--
-- The catalogue (sql/lib/remedies.sql) says which lever helps against which verdict and what setting it is on this engine and
-- version; here each lever gets its value, or falls away: where the setting already stands there, where the version lacks it,
-- where the run carries no number to set it by. Only verdicts that matter (severity 20 or more, or the primary one) are advised
-- on; `healthy` and `insufficient_evidence` are not: what to record next time stands in verdicts.missing.
--
-- grain: run, engine, rank
-- column: run             | The analyzed run.
-- column: engine          | Engine.
-- column: rank            | 1 is to be tried first.
-- column: title           | What to do.
-- column: setting         | The engine's setting that does it; NULL where callers, clients or routers do it.
-- column: from_value      | Its value in the run; NULL where no input says. Of other levers: the quantity it acts on.
-- column: to_value        | The value proposed, to be tried first.
-- column: expected_effect | What should change and by how much.
-- column: trade_off       | What it costs.
-- column: evidence        | The run's numbers the value rests on.
-- column: verify_by       | An experiment that changes this alone.
-- column: next_limit      | What will limit next.
-- column: method          | How value and effect were worked out.
-- column: flag            | How the setting is given to the engine.
-- column: verdict         | The verdict it answers.
-- column: lever           | The lever, as the catalogue calls it.
-- check:  rank between 1 and 3 | More than three changes at once teach nothing.
with told as (
    select engine, verdict, max(severity) as severity, bool_or(is_primary) as is_primary
    from advice.verdicts
    where verdict not in ('healthy', 'insufficient_evidence')
    group by engine, verdict
    having max(severity) >= 20 or bool_or(is_primary)
),

settings as (
    select
        engine,
        max(try_cast(value_text as double)) filter (where key = 'watermark') as watermark,
        max(try_cast(value_text as double)) filter (where key = 'schedule_conservativeness') as conservativeness,
        bool_or(try_cast(value_text as boolean)) filter (where key = 'scheduler_reserve_full_isl') as reserves_whole_prompt,
        bool_or(key in ('num_gpu_blocks_override', 'max_total_tokens')) as has_fixed_pool,
        max(try_cast(value_text as bigint)) filter (where key = 'long_prefill_token_threshold') as long_prompt_cap,
        max(try_cast(value_text as bigint)) filter (where key in ('max_loras', 'max_loras_per_batch')) as max_loras,
        bool_or(key in ('max_loras', 'max_loras_per_batch') or (key = 'enable_lora' and value_text = 'True')) as has_lora,
        bool_or(key in ('kv_offloading_size', 'hicache_size') and value_text <> '0') as has_host_tier,
        max(value_text) filter (where key = 'capacity_scheduler_policy') as capacity_policy,
        max(value_text) filter (where key = 'device') as device,
        max(try_cast(value_text as double)) filter (where key = 'weights_gib') as weights_gib,
        max(try_cast(value_text as double)) filter (where key = 'kv_cache_memory_gib') as kv_cache_memory_gib,
    from core.engine_settings
    group by engine
),

spells as (
    select
        engine,
        verdict,
        min(window_start) as first_at,
        sum(seconds) as seconds,
        sum(seconds_between(window_start, window_end)) as window_s,
        ratio(sum(mean_running * seconds), sum(seconds) filter (where mean_running is not null)) as mean_running,
        ratio(sum(mean_waiting * seconds), sum(seconds) filter (where mean_waiting is not null)) as mean_waiting,
        max(max_running) as max_running,
        max(max_waiting) as max_waiting,
        sum(preemptions) as preemptions,
        sum(first_tokens) as first_tokens,
        ratio(sum(queued_s), sum(queued_requests)) as queued_s,
        sum(prompt_tokens) as prompt_tokens,
        sum(generation_tokens) as generation_tokens,
        sum(lost_s) as lost_s,
        sum(decode_s) as decode_s,
        sum(missed_tokens) as missed_tokens,
        ratio(sum(hit_tokens), sum(queried_tokens)) as hit_ratio,
        max(best_hit_ratio) as best_hit_ratio,
    from marts.spell_facts
    group by engine, verdict
),

-- the lengths under pressure, where enough requests show them (20: a mean is then known to about a tenth), else those of the run
demand as (
    select distinct on (engine) *
    from core.pool_demand
    where scope = 'run' or (scope = 'pressure' and requests >= 20)
    order by engine, scope = 'pressure' desc
),

lengths as (
    select distinct on (engine) *
    from core.sequence_lengths
    where scope = 'run' or (scope = 'pressure' and requests >= 20)
    order by engine, scope = 'pressure' desc
),

-- where no lengths are known: the mix of prompt and generated tokens the engine worked off
mixes as (
    select
        engine,
        ratio(
            sum(prompt_tokens_per_s * bucket_s),
            sum(prompt_tokens_per_s * bucket_s) + sum(generation_tokens_per_s * bucket_s) / 2
        ) as prompt_share,
    from marts.timeline
    group by engine
),

repeated as (
    select engine, share_best from marts.waste where kind = 'preemption_recompute'
),

evicted as (
    select engine, sum(evicted_tokens) as evicted_tokens from marts.evictions group by engine
),

usual as (
    select engine, median(median_gap_s) as gap_s from core.interference_intervals where gaps > 0 group by engine
),

-- the class of lengths that held most of the pool, of those that held clearly more of it than their number lets expect
heaviest as (
    select distinct on (engine, verdict, dimension)
        engine,
        verdict,
        dimension,
        format(
            '{}s of {} to {} tokens are {:.0f} % of the requests and held {:.0f} % of the pool-seconds.',
            case dimension when 'prompt' then 'Prompt' else 'Answer' end,
            spoken_count(from_tokens), spoken_count(to_tokens), 100 * request_share, 100 * pool_share
        ) as sentence,
    from marts.pressure_sources
    where pool_share >= request_share + 0.1
    order by engine, verdict, dimension, pool_share desc
),

-- everything a lever's value may be worked out from, one row per verdict to be advised on
facts as (
    select
        told.*,
        spells.* exclude (engine, verdict),
        settings.* exclude (engine),
        demand.* exclude (engine, scope, requests, prompt_share),
        coalesce(demand.prompt_share, mixes.prompt_share) as prompt_share,
        lengths.prompt_mean,
        lengths.output_mean,
        lengths.output_p90,
        lengths.output_p99,
        engines.engine_kind,
        engines.max_num_seqs,
        engines.max_num_seqs_source,
        coalesce(engines.max_num_seqs, spells.max_running) as running_limit,
        engines.max_num_batched_tokens,
        engines.max_model_len,
        engines.kv_connector,
        engines.kv_cache_dtype,
        engines.kv_capacity_tokens,
        engines.num_gpu_blocks,
        engines.tensor_parallel_size,
        engines.gpu_memory_utilization,
        gpu_memory.free_memory_ratio,
        repeated.share_best as repeated_share,
        evicted.evicted_tokens,
        usual.gap_s,
        ratio(spells.generation_tokens, spells.window_s) as generated_per_s,
        spells.mean_running + spells.mean_waiting as in_house,
        prompts.sentence as heaviest_prompts,
        outputs.sentence as heaviest_outputs,
        coalesce(
            format(
                '{} sequences {} fit the pool of {} tokens 95 % of the time, {} of them 99 % of it: one holds {:.0f} tokens, '
                'give or take {:.0f}.',
                demand.fits_95,
                case demand.method when 'usage' then 'as large as those that ran' else 'of this run''s lengths' end,
                spoken_count(demand.pool_tokens), demand.fits_99, demand.held_tokens, demand.held_deviation_tokens
            ),
            format('{} sequences as large as those that ran fit the pool 95 % of the time.', demand.fits_95)
        ) as fit_sentence,
    from told
    inner join core.engines using (engine)
    left join spells using (engine, verdict)
    left join settings using (engine)
    left join demand using (engine)
    left join lengths using (engine)
    left join core.gpu_memory using (engine)
    left join mixes using (engine)
    left join repeated using (engine)
    left join evicted using (engine)
    left join usual using (engine)
    left join heaviest as prompts
        on prompts.engine = told.engine and prompts.verdict = told.verdict and prompts.dimension = 'prompt'
    left join heaviest as outputs
        on outputs.engine = told.engine and outputs.verdict = told.verdict and outputs.dimension = 'output'
    -- a resumed request is prefilled again: without the preemptions part of the slow steps goes by itself
    where told.verdict <> 'prefill_interference'
        or told.engine not in (select engine from told where verdict = 'preemption')
),

-- fewer at once: as many as fit 95 % of the time; without lengths or pool size, a fifth less than what ran while the pool
-- overflowed
capped as (
    select *, greatest(1, least(coalesce(fits_95, floor(0.8 * mean_running)), running_limit - 1))::bigint as cap
    from facts
    where verdict = 'preemption' and severity >= 20 and running_limit > 1 and coalesce(fits_95, mean_running) is not null
),

fewer_sequences as (
    select
        engine,
        verdict,
        'fewer_sequences' as lever,
        max_num_seqs::varchar as from_value,
        cap::varchar as to_value,
        [
            format('{} at once instead of {}: ', cap, coalesce(max_num_seqs::varchar, format('the up to {} seen', max_running)))
            || coalesce(
                format('the pool then overflows less than 5 % of the time (less than 1 % at {})', fits_99),
                'a fifth less than ran while it overflowed'
            )
            || coalesce(
                format('; {:.0f} preemptions were counted with {:.1f} running on average.', preemptions, mean_running), '.'
            ),
            format('The {:.0f} % of all tokens that were computed again are saved.', 100 * repeated_share),
        ] as effects,
        [
            case
                when cap < mean_running then format(
                    'Tokens per second fall by about {:.0f} % (now {:.0f}/s in these windows): {} run instead of {:.1f}, and a '
                    'step '
                    'takes nearly as long with fewer.',
                    100 * (1 - cap / mean_running), generated_per_s, cap, mean_running
                )
                when cap >= mean_running then format(
                    'Little throughput: {:.1f} ran on average, so the limit of {} binds in peaks only.', mean_running, cap
                )
            end,
            -- Little's law: as many in the house leave at the rate of finished answers; those beyond the cap wait
            case
                when in_house > cap then format(
                    'The median time to first token rises: with as many in the house ({:.0f}), each waits about {} before it '
                    'starts{}.',
                    in_house,
                    spoken_duration((in_house - cap) * output_mean / (generated_per_s * least(1, cap / mean_running))),
                    coalesce(format(' (measured now: {})', spoken_duration(queued_s)), '')
                )
            end,
        ] as prices,
        [
            fit_sentence,
            format('{:.1f} ran and {:.1f} waited on average while requests were preempted.', mean_running, mean_waiting),
        ] as evidence,
        coalesce(
            format(
                'central limit over sequence lengths [{}]; price by Little''s law and step time independent of batch size', method
            ),
            'a fifth less than the mean running count under preemption'
        ) as method,
    from capped
    where cap < running_limit
),

-- headroom: the spread of what as many sequences need, beyond their mean; two in a hundred blocks where preemption is mild
headroom as (
    select
        *,
        case
            when severity < 20 then 0.02
            when held_deviation_tokens is null or coalesce(fits_95, 0) < 1 then 0.05
            else clamp(round(1.645 * held_deviation_tokens * sqrt(fits_95) / pool_tokens, 2), 0.02, 0.25)
        end as share,
    from facts
    where verdict = 'preemption'
),

admission_headroom as (
    select
        engine,
        verdict,
        'admission_headroom' as lever,
        case engine_kind when 'vllm' then watermark else conservativeness end::varchar as from_value,
        case
            when engine_kind = 'vllm' then share
            -- SGLang's default is 1; its manual goes to 1.3 where retractions are frequent
            when conservativeness < 1 then 1.0
            else round(1.3 * coalesce(conservativeness, 1), 2)
        end::varchar as to_value,
        [
            case
                when engine_kind = 'vllm' then format(
                    'No request is admitted into the last {:.0f} % of the pool{}: running answers grow into it instead of '
                    'pushing each other out.',
                    100 * share, coalesce(format(' ({:.0f} blocks)', floor(share * num_gpu_blocks)), '')
                )
                else 'The scheduler expects longer answers of those it admits, so that fewer have to be retracted.'
            end,
            case
                when engine_kind = 'vllm' and severity >= 20
                    then 'Fewer preemptions, not none: on vLLM''s own scheduler, under one other load, 5 % avoided a third and '
                        '20 % three quarters of them.'
            end,
            case when severity < 20 then 'Preemption is mild here: this is the gentlest lever, and leaving it is sound too.' end,
        ] as effects,
        [
            case
                when severity >= 20 and fits_on_average * (1 - share) < mean_running then format(
                    'Tokens per second fall by up to {:.0f} %: about {:.1f} run on average instead of {:.1f}.',
                    100 * (1 - fits_on_average * (1 - share) / mean_running), fits_on_average * (1 - share), mean_running
                )
            end,
            case
                when in_house > mean_running and severity >= 20
                    then 'Requests that wait now wait longer for their first token, for the same reason.'
            end,
        ] as prices,
        [fit_sentence] as evidence,
        'one-sided 95 % spread of the need of the sequences that fit, as a share of the pool; its effect on counts was '
        'measured on another load'
            as method,
    from headroom
    where case engine_kind when 'vllm' then coalesce(watermark, 0) < share else true end
),

leave_it as (
    select
        engine,
        verdict,
        'leave_it' as lever,
        null as from_value,
        null as to_value,
        [format('{:.2f} preemptions per request: mild, and no setting is worth its price.', ratio(preemptions, first_tokens))]
            as effects,
        []::varchar[] as prices,
        [fit_sentence] as evidence,
        'severity below 20' as method,
    from facts
    where verdict = 'preemption' and severity < 20
),

reserve_whole_prompt as (
    select
        engine,
        verdict,
        'reserve_whole_prompt' as lever,
        'False' as from_value,
        'True' as to_value,
        ['Prompts that run out of blocks half-way are no longer started: that part of the preemptions goes.'] as effects,
        []::varchar[] as prices,
        ['The engine''s arguments switch it off.'] as evidence,
        'the setting is off in this run' as method,
    from facts
    where not reserves_whole_prompt
),

no_evict_policy as (
    select
        engine,
        verdict,
        'no_evict_policy' as lever,
        capacity_policy as from_value,
        'GUARANTEED_NO_EVICT' as to_value,
        ['No running request is paused any more.'] as effects,
        []::varchar[] as prices,
        [format('{:.0f} pauses were counted.', preemptions)] as evidence,
        'the policy decides whether requests are paused' as method,
    from facts
    where engine_kind = 'tensorrt_llm' and capacity_policy <> 'GUARANTEED_NO_EVICT' and severity >= 20
),

-- a pool that fails requests instead of queueing them: more room, or fewer that share it
failing as (
    select facts.*, failures.requests as failed_requests
    from facts
    inner join (select engine, sum(requests) as requests from core.failed_requests group by engine) as failures using (engine)
    where facts.verdict = 'queue_kv_capacity'
),

larger_context as (
    select
        engine,
        verdict,
        'larger_context' as lever,
        kv_capacity_tokens::varchar as from_value,
        (2 * kv_capacity_tokens)::varchar as to_value,
        [format('The {} requests that failed find room.', failed_requests)] as effects,
        []::varchar[] as prices,
        [format('Up to {} requests shared a cache of {} tokens.', max_running, spoken_count(kv_capacity_tokens))] as evidence,
        'twice the size: a first step, no length of a failed request is known' as method,
    from failing
    where kv_capacity_tokens is not null
),

fewer_slots as (
    select
        engine,
        verdict,
        'fewer_slots' as lever,
        max_num_seqs::varchar as from_value,
        (max_running - 1)::bigint::varchar as to_value,
        [format('Each of {} requests then has a larger share of the cache.', (max_running - 1)::bigint)] as effects,
        []::varchar[] as prices,
        [format('{} requests failed with up to {} at once.', failed_requests, max_running)] as evidence,
        'one fewer than ran when the cache overflowed' as method,
    from failing
    where max_running > 1
),

-- a third less of what holds most of the pool: how many more fit then
shortened as (
    select
        *,
        -- what else of a sequence's tokens stays: two thirds of one part, all of the other
        most_sequences(
            pool_tokens, held_tokens * (1 - prompt_share / 3), held_deviation_tokens * (1 - prompt_share / 3), 1.645
        ) as fits_with_shorter_prompts,
        most_sequences(
            pool_tokens, held_tokens * (1 - (1 - prompt_share) / 3), held_deviation_tokens * (1 - (1 - prompt_share) / 3), 1.645
        ) as fits_with_shorter_outputs,
    from facts
    where severity >= 20
),

shorter_prompts as (
    select
        engine,
        verdict,
        'shorter_prompts' as lever,
        format('{} prompt tokens on average', spoken_count(prompt_mean)) as from_value,
        format('{} prompt tokens on average', spoken_count(prompt_mean * 2 / 3)) as to_value,
        [
            case
                when verdict in ('preemption', 'queue_kv_capacity') then coalesce(
                    format('With prompts a third shorter {} sequences fit where {} do now.', fits_with_shorter_prompts, fits_95),
                    format('With prompts a third shorter {:.0f} % more sequences fit.', 100 / (1 - prompt_share / 3) - 100)
                )
                when verdict = 'queue_token_budget' then 'With prompts a third shorter the same steps admit half as many again.'
                else 'With prompts a third shorter the slow steps are a third fewer.'
            end,
        ] as effects,
        []::varchar[] as prices,
        [format('Prompts are {:.0f} % of what a running sequence holds.', 100 * prompt_share), heaviest_prompts] as evidence,
        'the same formula with two thirds of the prompt tokens' as method,
    from shortened
    -- preemption comes from growth: there prompts must hold clearly more than half to be the lever
    where prompt_share >= case verdict when 'preemption' then 0.6 else 0.5 end
        or (verdict not in ('preemption', 'queue_kv_capacity') and prompt_mean is not null)
),

shorter_outputs as (
    select
        engine,
        verdict,
        'shorter_outputs' as lever,
        format('{} output tokens on average, {} at the 90th percentile', spoken_count(output_mean), spoken_count(output_p90))
            as from_value,
        format('{} output tokens on average', spoken_count(output_mean * 2 / 3)) as to_value,
        [
            case
                when verdict = 'queue_max_num_seqs' then format(
                    'With answers a third shorter a slot is free half as often again. More slots are no way out: the pool '
                    'holds {}, and '
                    '{} run now.',
                    fits_95, running_limit
                )
                else coalesce(
                    format(
                        'With answers a third shorter {} sequences fit where {} do now, and each leaves sooner.',
                        fits_with_shorter_outputs, fits_95
                    ),
                    format(
                        'With answers a third shorter {:.0f} % more sequences fit, and each leaves sooner.',
                        100 / (1 - (1 - prompt_share) / 3) - 100
                    )
                )
            end,
        ] as effects,
        []::varchar[] as prices,
        [format('Answers are {:.0f} % of what a running sequence holds.', 100 * (1 - prompt_share)), heaviest_outputs]
            as evidence,
        'the same formula with two thirds of the output tokens' as method,
    from shortened
    where (prompt_share < case verdict when 'preemption' then 0.6 when 'queue_kv_capacity' then 0.5 else 0 end)
        or (verdict = 'queue_max_num_seqs' and fits_95 < 1.25 * running_limit and output_mean is not null)
),

-- memory that was measured free, less three points left to it for peaks
more_memory as (
    select
        engine,
        verdict,
        'more_memory' as lever,
        gpu_memory_utilization::varchar as from_value,
        least(0.97, round(gpu_memory_utilization + free_memory_ratio - 0.03, 2))::varchar as to_value,
        [
            format(
                '{:.0f} % of GPU memory was free at the fullest moment seen: all but 3 % of it goes to the pool.',
                100 * free_memory_ratio
            ),
        ] as effects,
        []::varchar[] as prices,
        [fit_sentence] as evidence,
        'lowest free memory the GPU exporter showed' as method,
    from facts
    where free_memory_ratio >= 0.05
        and gpu_memory_utilization <= 0.94
        and not coalesce(has_fixed_pool, false)
        and severity >= 20
),

-- the model leaves little cache: fewer than sixteen sequences at once keep a GPU's arithmetic mostly idle while it decodes
cramped as (
    select *
    from facts
    where severity >= 20
        and fits_on_average < 16
        and not coalesce(has_fixed_pool, false)
        and coalesce(device, '') <> 'cpu'
),

smaller_kv_entries as (
    select
        engine,
        verdict,
        'smaller_kv_entries' as lever,
        kv_cache_dtype as from_value,
        case engine_kind when 'sglang' then 'fp8_e5m2' else 'fp8' end as to_value,
        [
            format(
                'The pool holds about {} tokens instead of {}: {} sequences fit where {} do now.',
                spoken_count(2 * kv_capacity_tokens), spoken_count(kv_capacity_tokens),
                most_sequences(2 * pool_tokens, held_tokens, held_deviation_tokens, 1.645), fits_95
            ),
        ] as effects,
        []::varchar[] as prices,
        [fit_sentence] as evidence,
        'half the bytes for a token, and the same formula' as method,
    from cramped
    where kv_cache_dtype is not null
        and kv_cache_dtype not like '%fp8%'
        and kv_cache_dtype not like '%int8%'
        and kv_cache_dtype not like '%nvfp4%'
),

split_weights as (
    select
        engine,
        verdict,
        'split_weights' as lever,
        tensor_parallel_size::varchar as from_value,
        (2 * tensor_parallel_size)::varchar as to_value,
        [
            format(
                'Each GPU holds half of its {:.1f} GiB of weights: the pool grows about {:.1f}-fold, to {} tokens.',
                weights_gib, 2 + weights_gib / kv_cache_memory_gib,
                spoken_count(kv_capacity_tokens * (2 + weights_gib / kv_cache_memory_gib))
            ),
        ] as effects,
        []::varchar[] as prices,
        [format('Weights take {:.1f} GiB of each GPU, the KV pool {:.1f} GiB.', weights_gib, kv_cache_memory_gib), fit_sentence]
            as evidence,
        'weights and cache memory the engine printed at start-up' as method,
    from cramped
    where weights_gib >= kv_cache_memory_gib and kv_cache_memory_gib > 0 and verdict in ('preemption', 'queue_kv_capacity')
),

-- a host tier as large as what was reclaimed in the run, where KV events tell; at most four times the pool, and else twice it
tiers as (
    select
        *,
        case
            when evicted_tokens > 0 then least(evicted_tokens, 4 * kv_capacity_tokens)
            else 2 * kv_capacity_tokens
        end as tier_tokens,
        case when not coalesce(has_fixed_pool, false) then ratio(kv_cache_memory_gib, kv_capacity_tokens) end as gib_per_token,
    from facts
    where verdict = 'prefix_eviction' and kv_connector is null and not coalesce(has_host_tier, false)
),

host_tier as (
    select
        engine,
        verdict,
        unnest(['host_tier', 'host_tier_connector']) as lever,
        null as from_value,
        coalesce(
            format('{:.0f} GiB', ceil(tier_tokens * gib_per_token)),
            format('memory for {} tokens', spoken_count(tier_tokens))
        ) as to_value,
        [
            format(
                'Up to {} prompt tokens would have been copied back instead of computed: hits go from {:.0f} % back towards '
                '{:.0f} %.',
                spoken_count(missed_tokens), 100 * hit_ratio, 100 * best_hit_ratio
            ),
        ] as effects,
        []::varchar[] as prices,
        [
            format(
                '{} tokens of reusable blocks were reclaimed in the run; the pool holds {}.',
                spoken_count(evicted_tokens), spoken_count(kv_capacity_tokens)
            ),
        ] as evidence,
        case
            when evicted_tokens > 0 then 'blocks removed, from KV events, at most four times the pool'
            else 'twice the pool, as a start: no input shows how much was reclaimed'
        end as method,
    from tiers
),

locality as (
    select
        engine,
        verdict,
        'locality' as lever,
        format('{:.0f} % of prompt tokens found', 100 * hit_ratio) as from_value,
        format('{:.0f} %, as before', 100 * best_hit_ratio) as to_value,
        [
            coalesce(
                format('Up to {} prompt tokens of the run need not be computed again.', spoken_count(missed_tokens)),
                'Prefixes are asked for while they are still in the pool.'
            ),
        ] as effects,
        []::varchar[] as prices,
        [format('The hit ratio fell from {:.0f} % to {:.0f} %.', 100 * best_hit_ratio, 100 * hit_ratio)] as evidence,
        'tokens found at the best earlier hit ratio and not found now' as method,
    from facts
    where verdict in ('prefix_eviction', 'offload_pressure') and severity >= 20
),

-- more at once: all that were in the house, as far as the pool holds them; one doubling where no input tells the pool's need
slots as (
    select *, ceil(max_running + max_waiting)::bigint as wanted,
    from facts
    where verdict = 'queue_max_num_seqs' and max_num_seqs is not null
),

more_sequences as (
    select
        engine,
        verdict,
        'more_sequences' as lever,
        max_num_seqs::varchar as from_value,
        least(wanted, coalesce(fits_95, 2 * max_num_seqs))::varchar as to_value,
        [
            case
                when fits_95 >= wanted then format(
                    'All {} that were in the house at most run at once; the pool allows up to {}.', wanted, fits_95
                )
                when fits_95 is not null then format('{} run at once: as many as the pool allows.', fits_95)
                else 'Twice as many run at once; how many the pool allows cannot be told without sequence lengths and its size.'
            end,
            format(
                'The wait before the first run, {} a request now, shrinks with the {:.0f} that waited on average.',
                spoken_duration(queued_s), mean_waiting
            ),
        ] as effects,
        []::varchar[] as prices,
        [
            case max_num_seqs_source
                when 'inferred' then format(
                    'The running count stood at {}: taken for the setting, which no input states.', max_num_seqs
                )
            end,
            fit_sentence,
        ] as evidence,
        coalesce(format('most in the house, at most what the pool holds 95 % of the time [{}]', method), 'one doubling')
            as method,
    from slots
    -- a quarter more at least: less is not worth a restart, and so near to the pool's limit it trades a queue for preemption
    where least(wanted, coalesce(fits_95, 2 * max_num_seqs)) >= 1.25 * max_num_seqs
),

larger_steps as (
    select
        engine,
        verdict,
        'larger_steps' as lever,
        max_num_batched_tokens::varchar as from_value,
        coalesce((2 * max_num_batched_tokens)::varchar, 'twice the current value') as to_value,
        [
            coalesce(
                format(
                    'Prompts are worked off at {} tokens/s now, {:.0f} waiting: at best twice that, and half the wait.',
                    spoken_count(ratio(prompt_tokens, window_s)), mean_waiting
                ),
                'At best prompts are worked off twice as fast, and the wait is halved.'
            ),
        ] as effects,
        []::varchar[] as prices,
        [fit_sentence] as evidence,
        'one doubling: whether steps are bound by compute only the experiment shows' as method,
    from facts
    where verdict = 'queue_token_budget'
),

more_adapters as (
    select
        engine,
        verdict,
        case when has_lora then 'more_adapters' else 'tell_deferrals_apart' end as lever,
        case when has_lora then max_loras::varchar end as from_value,
        case when has_lora then coalesce((2 * max_loras)::varchar, 'one more than now') end as to_value,
        [
            format(
                '{:.0f} requests on average were deferred, for {}, while slots and pool had room.',
                mean_waiting, spoken_duration(seconds)
            ),
        ] as effects,
        []::varchar[] as prices,
        case when has_lora then ['The engine serves LoRA adapters.'] else ['No input says which of them it is.'] end as evidence,
        'requests the engine itself counts as deferred' as method,
    from facts
    where verdict = 'queue_deferred'
),

-- pieces so small that a step with one takes at most five usual steps, the bound from which a gap counts as slow. Every stream
-- loses the same time to a slow step, so prompt tokens over (lost time / streams) is the rate prefill runs at. Below 256 tokens
-- a piece costs a GPU about as much as a full one.
paced as (
    select *, ratio(prompt_tokens * mean_running, lost_s) as prefill_per_s
    from facts
    where verdict = 'prefill_interference'
        and severity >= 20
),

pieces as (
    select
        *,
        -- halves of the present budget at least, whole powers of two
        least(
            coalesce(max_num_batched_tokens / 2, 2048),
            greatest(256, power(2, floor(log2(4 * gap_s * prefill_per_s))))
        )::bigint as piece,
    from paced
    where prefill_per_s > 0 and gap_s > 0
),

smaller_chunks as (
    select
        engine,
        verdict,
        'smaller_chunks' as lever,
        max_num_batched_tokens::varchar as from_value,
        piece::varchar as to_value,
        [
            format(
                'The gap between tokens in a step full of prompt falls to about {:.0f} ms{}.',
                1000 * (gap_s + piece / prefill_per_s),
                coalesce(
                    format(' from about {:.0f} ms', 1000 * (gap_s + least(max_num_batched_tokens, prompt_mean) / prefill_per_s)),
                    ''
                )
            ),
        ] as effects,
        [
            format(
                'A mean prompt of {} tokens takes {:.0f} steps instead of {:.0f}: its first token comes about {:.0f} ms later.',
                spoken_count(prompt_mean), ceil(prompt_mean / piece), ceil(prompt_mean / max_num_batched_tokens),
                1000 * gap_s * (ceil(prompt_mean / piece) - ceil(prompt_mean / max_num_batched_tokens))
            ),
        ] as prices,
        [
            format(
                'Usual gap {:.1f} ms; {:.0f} % of the time between tokens was lost to slow steps.',
                1000 * gap_s, 100 * ratio(lost_s, decode_s)
            ),
            format('Prefill runs at about {} tokens/s.', spoken_count(prefill_per_s)),
        ] as evidence,
        'prefill rate from the time slow steps cost; a step may take five usual ones' as method,
    from pieces
    where piece < coalesce(max_num_batched_tokens, 8192)
),

long_prompt_cap as (
    select
        engine,
        verdict,
        'long_prompt_cap' as lever,
        long_prompt_cap::varchar as from_value,
        piece::varchar as to_value,
        [
            format(
                'One long prompt takes {} tokens of a step at most: the gap beside it is about {:.0f} ms.',
                spoken_count(piece), 1000 * (gap_s + piece / prefill_per_s)
            ),
        ] as effects,
        []::varchar[] as prices,
        [format('Prefill runs at about {} tokens/s.', spoken_count(prefill_per_s))] as evidence,
        'as for the token budget of a step' as method,
    from pieces
    where coalesce(nullif(long_prompt_cap, 0), 1e9) > piece
),

output_limits as (
    select
        engine,
        verdict,
        unnest(['output_limit', 'default_output_limit']) as lever,
        null as from_value,
        coalesce(format('{:.0f} output tokens', 2 * output_p90), 'twice the 90th percentile of ordinary answers') as to_value,
        ['An answer that does not end by itself stops there and gives its slot and blocks back.'] as effects,
        []::varchar[] as prices,
        [format('Nine in ten answers have at most {:.0f} tokens.', output_p90)] as evidence,
        'twice the 90th percentile of the answers seen' as method,
    from facts
    where verdict = 'runaway_generation'
),

-- levers outside of the engine that need no value: the finding itself says how much
outside as (
    select
        facts.engine,
        facts.verdict,
        levers.lever,
        null as from_value,
        null as to_value,
        [levers.effect] as effects,
        []::varchar[] as prices,
        []::varchar[] as evidence,
        'the verdict''s own numbers' as method,
    from facts
    inner join (
        values
            ('imbalance', 'spread_load', 'The engine that queues gives its surplus to those that do not.'),
            ('client_limited', 'client_concurrency', 'The engine had room: it gets more to do, and the client''s queue goes.'),
            ('cold_start', 'warm_up', 'The first requests no longer pay for compilation and cold caches.')
    ) as levers(verdict, lever, effect) using (verdict)
),

proposed as (
    from fewer_sequences
    union all by name from admission_headroom
    union all by name from leave_it
    union all by name from reserve_whole_prompt
    union all by name from no_evict_policy
    union all by name from larger_context
    union all by name from fewer_slots
    union all by name from shorter_prompts
    union all by name from shorter_outputs
    union all by name from more_memory
    union all by name from smaller_kv_entries
    union all by name from split_weights
    union all by name from host_tier
    union all by name from locality
    union all by name from more_sequences
    union all by name from larger_steps
    union all by name from more_adapters
    union all by name from smaller_chunks
    union all by name from long_prompt_cap
    union all by name from output_limits
    union all by name from outside
),

-- the versions an engine may be: the one it states; else every one of its generation (V0 ended with 0.10, V1 is the rule since
-- 0.8)
versions as (
    select
        engine,
        engine_kind,
        engine_generation,
        coalesce(version_number(engine_version), version_number(case engine_generation when 'v0' then '0.4.0' else '0.8.0' end))
            as oldest,
        coalesce(version_number(engine_version), version_number(case engine_generation when 'v0' then '0.10.2' else '9999.0' end))
            as newest,
    from core.engines
),

available as (
    select versions.engine, known.lever, known.setting, known.flag
    from versions
    inner join engine_settings_known() as known
        on known.engine_kind = versions.engine_kind
        and (known.generation is null or known.generation = coalesce(versions.engine_generation, 'v1'))
        and coalesce(version_number(known.first_version), 0) <= versions.oldest
        -- a setting's last version has it in all of its releases
        and coalesce(version_number(known.last_version) // 1000, 1e9) >= versions.newest // 1000
),

usable as (
    select
        proposed.*,
        remedies.preference,
        remedies.title,
        remedies.trade_off,
        remedies.next_limit,
        remedies.verify_by,
        available.setting,
        available.flag,
        told.severity,
        told.is_primary,
        coalesce(available.setting, proposed.lever) as acts_on,
    from proposed
    inner join remedies() as remedies using (verdict, lever)
    inner join told using (engine, verdict)
    left join available using (engine, lever)
    where available.setting is not null
        or proposed.lever not in (select known.lever from engine_settings_known() as known)
),

-- one proposal for each thing to act on, and nothing is left alone beside a lever that works on the same verdict
chosen as (
    select *
    from usable
    where lever <> 'leave_it'
        or not exists (
            from usable as others
            where others.engine = usable.engine and others.verdict = usable.verdict and others.lever <> 'leave_it'
        )
    qualify row_number() over (partition by engine, acts_on order by is_primary desc, severity desc, preference, lever) = 1
),

ranked as (
    select
        *,
        row_number() over (partition by engine order by is_primary desc, severity desc, preference, lever) as rank,
    from chosen
)

select
    getvariable('run') as run,
    engine,
    rank,
    title,
    setting,
    from_value,
    to_value,
    nullif(array_to_string(sentences(effects), ' '), '') as expected_effect,
    array_to_string(sentences(list_append(prices, trade_off)), ' ') as trade_off,
    nullif(array_to_string(sentences(evidence), ' '), '') as evidence,
    verify_by,
    next_limit,
    method,
    flag,
    verdict,
    lever,
from ranked
where rank <= 3
order by engine, rank
