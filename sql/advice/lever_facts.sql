-- Everything that the value of a lever may be worked out from: one row for each verdict that is advised on.
--
-- Only verdicts that matter (severity 20 or more, or the primary one) are advised on; `healthy` and `insufficient_evidence` are
-- not: what to record next time stands in verdicts.missing; nor is what pages without a time show. NULL where no input says.
--
-- step:  recommendations
-- grain: engine, verdict
-- needs: core.engines
-- column: engine                 VARCHAR | Engine.
-- column: verdict                VARCHAR | The verdict to be answered.
-- column: severity               DOUBLE  | Its worst severity, 0 to 100.
-- column: is_primary             BOOLEAN | Whether it is the engine's primary verdict.
-- column: seconds                DOUBLE  | Seconds in which its signs held.
-- column: window_s               DOUBLE  | Seconds of its windows.
-- column: samples                BIGINT  | Samples of load in them.
-- column: mean_running           DOUBLE  | Mean requests running in them; NULL where too few samples show it.
-- column: mean_waiting           DOUBLE  | Mean requests waiting in them; NULL where too few samples show it.
-- column: max_running            BIGINT  | Most requests running in them.
-- column: max_waiting            BIGINT  | Most requests waiting in them.
-- column: preemptions            DOUBLE  | Preemptions counted in them.
-- column: first_tokens           DOUBLE  | Requests that got their first token in them.
-- column: queued_s               DOUBLE  | Mean wait before the first run of the requests that ended in them.
-- column: prompt_tokens          DOUBLE  | Prompt tokens computed in them.
-- column: generation_tokens      DOUBLE  | Tokens generated in them.
-- column: lost_s                 DOUBLE  | Inter-token time above the median of slow gaps in them.
-- column: decode_s               DOUBLE  | Inter-token time in them.
-- column: missed_tokens          DOUBLE  | Prompt tokens that would have been found at the best earlier hit ratio.
-- column: hit_ratio              DOUBLE  | Share of the prompt tokens looked up that the prefix cache had, in them.
-- column: restored_tokens        DOUBLE  | Of them, tokens that were in the pool before and came back from a tier.
-- column: restored_ratio         DOUBLE  | Their share.
-- column: best_hit_ratio         DOUBLE  | The share that there may be: the best earlier one, or what the refilled prefixes would make of it, where KV events tell.
-- column: watermark              DOUBLE  | vLLM's setting of that name.
-- column: conservativeness       DOUBLE  | SGLang's schedule_conservativeness.
-- column: reserves_whole_prompt  BOOLEAN | vLLM's scheduler_reserve_full_isl.
-- column: has_fixed_pool         BOOLEAN | Whether the pool's size was given in blocks or tokens: memory settings do not change it then.
-- column: long_prompt_cap        BIGINT  | vLLM's long_prefill_token_threshold.
-- column: max_loras              BIGINT  | Adapters that may be in a batch.
-- column: has_lora               BOOLEAN | Whether the engine serves LoRA adapters.
-- column: has_host_tier          BOOLEAN | Whether a tier in host memory is set.
-- column: capacity_policy        VARCHAR | TensorRT-LLM's capacity_scheduler_policy.
-- column: device                 VARCHAR | Kind of device the engine runs on.
-- column: weights_gib            DOUBLE  | Memory that the weights take on a GPU.
-- column: kv_cache_memory_gib    DOUBLE  | Memory that the KV pool takes on a GPU.
-- column: has_cache_to_turn_on   BOOLEAN | Whether prefix caching is off, by a setting and not because the model has none.
-- column: pool_tokens            BIGINT  | Tokens that the pool holds, for this estimate.
-- column: held_tokens            DOUBLE  | Tokens that a running sequence holds, on average.
-- column: held_deviation_tokens  DOUBLE  | Their standard deviation.
-- column: fits_on_average        DOUBLE  | Sequences that fit the pool on average.
-- column: fits_95                BIGINT  | Sequences that fit it 95 % of the time.
-- column: fits_99                BIGINT  | Sequences that fit it 99 % of the time.
-- column: method                 VARCHAR | How that was told (core.pool_demand).
-- column: prompt_share           DOUBLE  | Share of prompt in what a sequence holds.
-- column: prompt_mean            DOUBLE  | Mean prompt tokens of a request.
-- column: output_mean            DOUBLE  | Mean output tokens of a request.
-- column: output_p90             DOUBLE  | 90th percentile of output tokens.
-- column: engine_kind            VARCHAR | vllm, sglang and so on.
-- column: max_num_seqs           BIGINT  | Requests that may run at once.
-- column: max_num_seqs_source    VARCHAR | argument or inferred.
-- column: ranks_summed           BIGINT  | Data-parallel ranks whose sum max_num_seqs and the samples are; 1 where they are of one.
-- column: running_limit          BIGINT  | max_num_seqs, or the most seen running; NULL where too few samples show that.
-- column: max_num_batched_tokens BIGINT  | Tokens that a step may have.
-- column: kv_connector           VARCHAR | KV connector in use.
-- column: kv_cache_dtype         VARCHAR | Type of the KV entries.
-- column: kv_capacity_tokens     BIGINT  | Tokens that the KV pool holds.
-- column: num_gpu_blocks         BIGINT  | Blocks of the KV pool.
-- column: tensor_parallel_size   BIGINT  | GPUs that the weights are split over.
-- column: gpu_memory_utilization DOUBLE  | Share of GPU memory that the engine may use; NULL where the pool's bytes are set instead.
-- column: free_memory_ratio      DOUBLE  | Share of GPU memory free at the fullest moment seen.
-- column: repeated_share         DOUBLE  | Share of all tokens that preemption had computed again.
-- column: evicted_tokens         BIGINT  | Tokens of reusable blocks that were reclaimed.
-- column: gap_s                  DOUBLE  | Usual time between two tokens of an answer.
-- column: generated_per_s        DOUBLE  | Tokens generated per second in the verdict's windows.
-- column: in_house               DOUBLE  | Mean requests running and waiting in them.
-- column: heaviest_prompts       VARCHAR | Sentence: prompts of which lengths held most of the pool.
-- column: heaviest_outputs       VARCHAR | Sentence: answers of which lengths held most of the pool.
-- column: fit_sentence           VARCHAR | Sentence: how many sequences fit the pool.
-- check:  severity between 0 and 100 | A scale.
with told as (
    select engine, verdict, max(severity) as severity, bool_or(is_primary) as is_primary
    from advice.verdicts
    where verdict not in ('healthy', 'insufficient_evidence')
        -- of an unknown instant nothing can be worked out
        and not (window_start is null and engine in (select engine from core.untimed_pages))
    group by engine, verdict
    having max(severity) >= 20 or bool_or(is_primary)
),

-- what is advised starts from the settings under which it happened: of several setups, those of the one that had most of it
placed as (
    select facts.*, setups.setup, setups.life, sum(facts.seconds) over (partition by facts.engine, facts.verdict, setups.setup) as setup_s
    from marts.spell_facts as facts
    inner join core.engine_setups as setups
        on setups.engine = facts.engine and is_within(facts.peak_at, setups.setup_start, setups.setup_end)
),

foremost as (
    select *
    from placed
    qualify dense_rank() over (partition by engine, verdict order by setup_s desc, setup desc) = 1
),

advised as (
    select distinct told.engine, told.verdict, coalesce(foremost.setup, last.setup) as setup, coalesce(foremost.life, last.life) as life
    from told
    left join foremost using (engine, verdict)
    left join (select engine, max(setup) as setup, max(life) as life from core.engine_setups group by engine) as last
        on last.engine = told.engine
),

several_parts as (
    select
        engine,
        life,
        bool_or((key = 'speculative_config' and value_text <> 'None') or key in ('swa_layer_tokens', 'max_mamba_cache_size'))
            as has_several_parts,
    from core.life_settings
    group by engine, life
),

settings as (
    select
        engine,
        life,
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
        -- a draft model and each pool of a hybrid one say the same of themselves, and were heard last
        max(try_cast(value_text as double)) filter (where key = 'weights_gib' and not has_several_parts) as weights_gib,
        max(try_cast(value_text as double)) filter (where key = 'kv_cache_memory_gib' and not has_several_parts)
            as kv_cache_memory_gib,
        bool_or(key = 'kv_cache_memory_bytes') as has_fixed_memory,
    from core.life_settings
    left join several_parts using (engine, life)
    group by engine, life
),

-- vLLM switches prefix caching off by itself for models that cannot have it: then its summary at start-up, which names its version,
-- says that it is off, and no argument does. Info series, which have the number of blocks beside it, only repeat the summary. Models
-- whose state is not in blocks (mamba) say so where they say anything of their memory.
off_lines as (
    select
        engines.engine,
        bool_or(settings.key = 'engine_version') as is_summary,
        bool_or(settings.key in ('engine_version', 'num_gpu_blocks')) as is_outcome,
    from core.engines
    inner join staging.settings on list_contains(names_of_engine(engines.engine), settings.engine)
    group by engines.engine, settings.source, settings.line
    having bool_or(settings.key = 'enable_prefix_caching' and lower(settings.value_text) = 'false')
),

cacheless as (
    select
        engine,
        bool_or(
            key in ('mamba_block_size', 'mamba_page_size_padded', 'max_mamba_cache_size')
            or (key = 'is_attention_free' and lower(value_text) = 'true')
        ) as is_without_blocks,
    from core.engine_settings
    group by engine
),

cache_switches as (
    select
        engine,
        not coalesce(prefix_caching, true)
        and not coalesce(is_without_blocks, false)
        and (engine_kind <> 'vllm' or coalesce(bool_or(not is_outcome) or not bool_or(is_summary), true)) as has_cache_to_turn_on,
    from core.engines
    left join off_lines using (engine)
    left join cacheless using (engine)
    group by engine, prefix_caching, is_without_blocks, engine_kind
),

-- what was evicted and asked for again, where KV events tell: prompts that were never in the cache would not have been found there
refilled as (
    select engine, tokens_high as tokens from marts.waste where kind = 'prefix_refill' and method = 'kv_events'
),

spells as (
    select
        engine,
        verdict,
        sum(seconds) as seconds,
        sum(seconds_between(window_start, window_end)) as window_s,
        sum(samples)::bigint as samples,
        case
            when are_enough_samples(sum(samples)) then ratio(sum(mean_running * seconds), sum(seconds) filter (where mean_running is not null))
        end as mean_running,
        case
            when are_enough_samples(sum(samples)) then ratio(sum(mean_waiting * seconds), sum(seconds) filter (where mean_waiting is not null))
        end as mean_waiting,
        max(max_running) as max_running,
        max(max_waiting) as max_waiting,
        sum(preemptions) as preemptions,
        sum(first_tokens) as first_tokens,
        ratio(sum(queued_s), sum(queued_requests)) as queued_s,
        sum(prompt_tokens) as prompt_tokens,
        sum(generation_tokens) as generation_tokens,
        sum(lost_s) as lost_s,
        sum(decode_s) as decode_s,
        least(sum(missed_tokens), any_value(refilled.tokens)) as missed_tokens,
        ratio(sum(hit_tokens), sum(queried_tokens)) as hit_ratio,
        sum(restored_tokens) as restored_tokens,
        ratio(sum(restored_tokens), sum(queried_tokens)) as restored_ratio,
        least(max(best_hit_ratio), hit_ratio + ratio(any_value(refilled.tokens), sum(queried_tokens))) as best_hit_ratio,
    from foremost
    left join refilled using (engine)
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
    select engine, sum(evicted_tokens)::bigint as evicted_tokens from marts.evictions group by engine
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
)

select
    told.*,
    spells.* exclude (engine, verdict),
    settings.* exclude (engine, life, has_fixed_memory),
    cache_switches.has_cache_to_turn_on,
    demand.* exclude (engine, scope, requests, prompt_share),
    coalesce(demand.prompt_share, mixes.prompt_share) as prompt_share,
    lengths.prompt_mean,
    lengths.output_mean,
    lengths.output_p90,
    engines.engine_kind,
    setups.max_num_seqs,
    setups.max_num_seqs_source,
    coalesce(setups.ranks_summed, 1) as ranks_summed,
    coalesce(setups.max_num_seqs, if(are_enough_samples(spells.samples), spells.max_running, null)) as running_limit,
    setups.max_num_batched_tokens,
    setups.kv_connector,
    setups.kv_cache_dtype,
    setups.kv_capacity_tokens,
    setups.num_gpu_blocks,
    setups.tensor_parallel_size,
    case when not coalesce(settings.has_fixed_memory, false) then setups.gpu_memory_utilization end as gpu_memory_utilization,
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
            '{} sequences {} fit the pool of {} tokens {} of the time{}: one holds {:.0f} tokens, give or take {:.0f}.',
            demand.fits_95,
            case demand.method when 'usage' then 'as large as those that ran' else 'of this run''s lengths' end,
            spoken_count(demand.pool_tokens),
            if(demand.fits_99 = demand.fits_95, '99 %', '95 %'),
            if(demand.fits_99 <> demand.fits_95, format(', {} of them 99 % of it', demand.fits_99), ''),
            demand.held_tokens, demand.held_deviation_tokens
        ),
        format('{} sequences as large as those that ran fit the pool {} of the time.', demand.fits_95, if(demand.fits_99 = demand.fits_95, '99 %', '95 %'))
    ) as fit_sentence,
from told
inner join core.engines using (engine)
left join advised using (engine, verdict)
left join core.engine_setups as setups on setups.engine = told.engine and setups.setup = advised.setup
left join spells using (engine, verdict)
left join settings on settings.engine = told.engine and settings.life = advised.life
left join cache_switches using (engine)
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
order by told.engine, told.verdict
