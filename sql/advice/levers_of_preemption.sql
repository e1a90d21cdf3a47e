-- What to change where running requests lose their blocks: admit fewer, admit later, let them find what is left, or leave it.
--
-- Each lever gets its value from the run's own numbers, or falls away. Which of them the engine has, and which are told:
-- advice.proposals.
--
-- step:  recommendations
-- grain: engine, verdict, lever
-- needs: advice.lever_facts
-- column: engine     VARCHAR   | Engine.
-- column: verdict    VARCHAR   | The verdict it answers.
-- column: lever      VARCHAR   | The lever, as the catalogue calls it.
-- column: from_value VARCHAR   | Its value in the run; NULL where no input says. Of levers outside of the engine: the quantity it acts on.
-- column: to_value   VARCHAR   | The value proposed; NULL for a lever that has none.
-- column: effects    VARCHAR[] | Sentences on what should change; NULL among them where the run lacks a number.
-- column: estimates  VARCHAR[] | Sentences on how much of it to expect by rule of thumb; a replay, where there is one, takes their place.
-- column: prices     VARCHAR[] | Sentences on what it costs by rule of thumb; a replay takes their place, too.
-- column: evidence   VARCHAR[] | Sentences with the run's numbers that the value rests on.
-- column: method     VARCHAR   | How value and effect were worked out.

-- preemption alone may be mild where the pool is too small all the same, and others wait for room in it
with mild as (
    select engine
    from advice.lever_facts
    where verdict in ('preemption', 'queue_kv_capacity')
    group by engine
    having max(severity) < 20
),

-- fewer at once: as many as fit 95 % of the time; without lengths or pool size, a fifth less than what ran while the pool
-- overflowed
capped as (
    select *, greatest(1, least(coalesce(fits_95, floor(0.8 * mean_running)), running_limit - 1))::bigint as cap
    from advice.lever_facts
    where verdict = 'preemption' and severity >= 20 and coalesce(running_limit > 1, true) and coalesce(fits_95, mean_running) is not null
),

fewer_sequences as (
    select
        engine,
        verdict,
        'fewer_sequences' as lever,
        (max_num_seqs // ranks_summed)::varchar as from_value,
        greatest(1, cap // ranks_summed)::varchar as to_value,
        [
            coalesce(
                format('{} at once instead of {}: ', cap, coalesce(max_num_seqs::varchar, format('the up to {} seen then', running_limit))),
                format('{} at once: ', cap)
            )
            || coalesce(
                case when fits_99 >= cap then 'the pool then overflows less than 1 % of the time' end,
                format('the pool then overflows less than 5 % of the time (less than 1 % at {})', fits_99),
                'a fifth less than ran while it overflowed'
            )
            || coalesce(
                format('; {:.0f} preemptions were counted with {:.1f} running on average.', preemptions, mean_running),
                format('; {:.0f} preemptions were counted. How many ran meanwhile, the samples are too few to say.', preemptions),
                '.'
            ),
        ] as effects,
        [format('The {:.0f} % of all tokens that were computed again are saved.', 100 * repeated_share)] as estimates,
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
                    'The median time to first token rises: with as many running or waiting ({:.0f}), each waits about {} before it '
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
            format('central limit over sequence lengths [{}]', method),
            'a fifth less than the mean running count under preemption'
        ) as method,
    from capped
    where coalesce(cap < running_limit, true)
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
    from advice.lever_facts
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
            case when engine in (select engine from mild) then 'Preemption is mild here: this is the gentlest lever, and leaving it is sound too.' end,
        ] as effects,
        [
            case
                when engine_kind = 'vllm' and severity >= 20
                    then 'Fewer preemptions, not none: on vLLM''s own scheduler, under one other load, 5 % avoided a third and '
                        '20 % three quarters of them.'
            end,
        ] as estimates,
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
        'one-sided 95 % spread of the need of the sequences that fit, as a share of the pool' as method,
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
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [fit_sentence] as evidence,
        'severity below 20, as of the queue for KV room' as method,
    from advice.lever_facts
    where verdict = 'preemption' and engine in (select engine from mild)
),

reserve_whole_prompt as (
    select
        engine,
        verdict,
        'reserve_whole_prompt' as lever,
        'False' as from_value,
        'True' as to_value,
        ['Prompts that run out of blocks half-way are no longer started: that part of the preemptions goes.'] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        ['The engine''s arguments switch it off.'] as evidence,
        'the setting is off in this run' as method,
    from advice.lever_facts
    where not reserves_whole_prompt
),

-- SGLang's switch turns the cache off; its tree keeps prompts, vLLM's blocks keep all that was computed
prefix_cache as (
    select
        engine,
        verdict,
        'prefix_cache' as lever,
        if(engine_kind = 'sglang', 'True', 'False') as from_value,
        if(engine_kind = 'sglang', 'False', 'True') as to_value,
        [
            format(
                'A request that resumes finds {} in the cache, as far as nobody took the room meanwhile; now it is computed again from '
                'its first token.',
                if(engine_kind = 'sglang', 'its prompt', 'its blocks')
            ),
            'Prompts that begin alike find each other''s, too: how many would is not recorded while it is off.',
        ] as effects,
        [format('At most the {:.0f} % of all tokens that were computed again are saved.', 100 * repeated_share)] as estimates,
        []::varchar[] as prices,
        [
            format(
                'Prefix caching is off in this run, and {} counted.',
                if(round(preemptions) = 1, 'one preemption was', spoken_count(preemptions) || ' preemptions were')
            ),
        ] as evidence,
        'the setting is off in this run' as method,
    from advice.lever_facts
    where verdict = 'preemption' and severity >= 20 and has_cache_to_turn_on
),

no_evict_policy as (
    select
        engine,
        verdict,
        'no_evict_policy' as lever,
        capacity_policy as from_value,
        'GUARANTEED_NO_EVICT' as to_value,
        ['No running request is paused any more.'] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [format('{:.0f} pauses were counted.', preemptions)] as evidence,
        'the policy decides whether requests are paused' as method,
    from advice.lever_facts
    where engine_kind = 'tensorrt_llm' and capacity_policy <> 'GUARANTEED_NO_EVICT' and severity >= 20
),

proposed as (
    from fewer_sequences
    union all by name from admission_headroom
    union all by name from leave_it
    union all by name from reserve_whole_prompt
    union all by name from prefix_cache
    union all by name from no_evict_policy
)

select engine, verdict, lever, from_value, to_value, effects, estimates, prices, evidence, method,
from proposed
order by engine, verdict, lever
