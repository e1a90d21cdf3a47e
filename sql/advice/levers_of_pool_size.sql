-- What to change about the pool's size and about what a request takes of it: memory, bytes for a token, lengths.
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

-- a pool that fails requests instead of queueing them: more room, or fewer that share it
with failing as (
    select facts.*, failures.requests as failed_requests
    from advice.lever_facts as facts
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
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [format('Up to {} requests shared a cache of {} tokens.', max_running, spoken_count(kv_capacity_tokens))] as evidence,
        'twice the size: a first step, for how long the failed requests would have become is not known' as method,
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
        [
            coalesce(
                format(
                    'Each of {} requests then has {} tokens of the cache, where each of {} had {}; how many they need, no input tells.',
                    (max_running - 1)::bigint,
                    spoken_count(floor(kv_capacity_tokens / (max_running - 1))),
                    max_running,
                    spoken_count(floor(kv_capacity_tokens / max_running))
                ),
                format('Each of {} requests then has a larger share of the cache.', (max_running - 1)::bigint)
            ),
        ] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [format('{} requests failed with up to {} at once.', failed_requests, max_running)] as evidence,
        'one fewer than ran when the cache overflowed: a first step, for how long the failed requests would have become is not known' as method,
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
    from advice.lever_facts
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
                    case
                        when fits_with_shorter_prompts > fits_95 then format(
                            'With prompts a third shorter {} sequences fit 95 % of the time where {} do now.', fits_with_shorter_prompts, fits_95
                        )
                    end,
                    format('With prompts a third shorter {:.0f} % more sequences fit.', 100 / (1 - prompt_share / 3) - 100)
                )
                when verdict = 'queue_token_budget' then 'With prompts a third shorter the same steps admit half as many again.'
                else 'With prompts a third shorter the slow steps are a third fewer.'
            end,
        ] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [format('Prompts are {:.0f} % of what a running sequence holds.', 100 * prompt_share), heaviest_prompts] as evidence,
        'the pool over what a sequence needs, with two thirds of the prompt tokens' as method,
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
                    'holds {} 95 % of the time, and '
                    '{} run now.',
                    fits_95, running_limit
                )
                else coalesce(
                    case
                        when fits_with_shorter_outputs > fits_95 then format(
                            'With answers a third shorter {} sequences fit 95 % of the time where {} do now, and each leaves sooner.',
                            fits_with_shorter_outputs, fits_95
                        )
                    end,
                    format(
                        'With answers a third shorter {:.0f} % more sequences fit, and each leaves sooner.',
                        100 / (1 - (1 - prompt_share) / 3) - 100
                    )
                )
            end,
        ] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [format('Answers are {:.0f} % of what a running sequence holds.', 100 * (1 - prompt_share)), heaviest_outputs]
            as evidence,
        'the pool over what a sequence needs, with two thirds of the output tokens' as method,
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
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [fit_sentence] as evidence,
        'lowest free memory the GPU exporter showed' as method,
    from advice.lever_facts
    where free_memory_ratio >= 0.05
        and gpu_memory_utilization <= 0.94
        and not coalesce(has_fixed_pool, false)
        and severity >= 20
),

-- the model leaves little cache: fewer than sixteen sequences at once keep a GPU's arithmetic mostly idle while it decodes
cramped as (
    select *
    from advice.lever_facts
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
                'The pool holds about {} tokens instead of {}: {} sequences fit 95 % of the time where {} do now.',
                spoken_roughly(2 * kv_capacity_tokens), spoken_count(kv_capacity_tokens),
                most_sequences(2 * pool_tokens, held_tokens, held_deviation_tokens, 1.645), fits_95
            ),
        ] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [fit_sentence] as evidence,
        'half the bytes for a token, and the pool over what a sequence needs' as method,
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
                spoken_roughly(kv_capacity_tokens * (2 + weights_gib / kv_cache_memory_gib))
            ),
        ] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [format('Weights take {:.1f} GiB of each GPU, the KV pool {:.1f} GiB.', weights_gib, kv_cache_memory_gib), fit_sentence]
            as evidence,
        'weights and cache memory the engine printed at start-up' as method,
    from cramped
    where weights_gib >= kv_cache_memory_gib and kv_cache_memory_gib > 0 and verdict in ('preemption', 'queue_kv_capacity')
),

proposed as (
    from larger_context
    union all by name from fewer_slots
    union all by name from shorter_prompts
    union all by name from shorter_outputs
    union all by name from more_memory
    union all by name from smaller_kv_entries
    union all by name from split_weights
)

select engine, verdict, lever, from_value, to_value, effects, estimates, prices, evidence, method,
from proposed
order by engine, verdict, lever
