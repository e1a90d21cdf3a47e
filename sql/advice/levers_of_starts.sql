-- What to change where an engine did not come up for want of memory for its KV pool.
--
-- Each lever gets its value from what the engine said as it started, or falls away. Which of them are told: advice.proposals.
--
-- step:  recommendations
-- grain: engine, verdict, lever
-- needs: core.failed_starts
-- needs: advice.lever_facts
-- column: engine     VARCHAR   | Engine.
-- column: verdict    VARCHAR   | The verdict it answers.
-- column: lever      VARCHAR   | The lever, as the catalogue calls it.
-- column: from_value VARCHAR   | Its value in the run; NULL where no input says.
-- column: to_value   VARCHAR   | The value proposed; NULL for a lever that has none.
-- column: effects    VARCHAR[] | Sentences on what should change; NULL among them where the run lacks a number.
-- column: estimates  VARCHAR[] | Sentences on how much of it to expect by rule of thumb; a replay, where there is one, takes their place.
-- column: prices     VARCHAR[] | Sentences on what it costs by rule of thumb; a replay takes their place, too.
-- column: evidence   VARCHAR[] | Sentences with the run's numbers that the value rests on.
-- column: method     VARCHAR   | How value and effect were worked out.
with facts as (
    select
        facts.*,
        starts.cause,
        starts.fits,
        setups.max_model_len,
        coalesce(facts.gpu_memory_utilization, fractions.mem_fraction_static) as memory_ratio,
        format('Weights take {:.1f} GiB of each GPU; {:.1f} GiB were left for the KV pool.', facts.weights_gib, facts.kv_cache_memory_gib)
            as memory_sentence,
    from advice.lever_facts as facts
    inner join core.failed_starts as starts using (engine)
    left join core.engine_setups as setups on setups.engine = facts.engine and setups.setup_end is null
    left join (
        select engine, max(try_cast(value_text as double)) as mem_fraction_static
        from core.engine_settings
        where key = 'mem_fraction_static'
        group by engine
    ) as fractions on fractions.engine = facts.engine
    where facts.verdict = 'never_served' and starts.cause in ('kv_too_small', 'no_kv_memory')
),

shorter_limit as (
    select
        engine,
        verdict,
        'shorter_limit' as lever,
        max_model_len::varchar as from_value,
        fits::varchar as to_value,
        ['The pool then holds one request of the longest length, and the engine starts.'] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [format('The engine itself says that {} tokens would fit.', spoken_count(fits)), memory_sentence] as evidence,
        'the longest length that the engine worked out' as method,
    from facts
    where fits is not null
),

-- a twentieth of the GPU at a time: what else is needed of it at the peak, no start-up line says
more_memory as (
    select
        engine,
        verdict,
        'more_memory' as lever,
        memory_ratio::varchar as from_value,
        least(0.95, round(memory_ratio + 0.05, 2))::varchar as to_value,
        ['The pool gets what the engine may use and its weights and activations leave.'] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [memory_sentence] as evidence,
        'a twentieth more: a first step' as method,
    from facts
    where memory_ratio < 0.95 or memory_ratio is null
),

split_weights as (
    select
        engine,
        verdict,
        'split_weights' as lever,
        tensor_parallel_size::varchar as from_value,
        (2 * tensor_parallel_size)::varchar as to_value,
        [format('Each GPU then holds half of its {:.1f} GiB of weights, and as much more of the pool.', weights_gib)] as effects,
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [memory_sentence] as evidence,
        'weights and cache memory the engine printed at start-up' as method,
    from facts
    where coalesce(weights_gib >= kv_cache_memory_gib, weights_gib is not null) and tensor_parallel_size is not null
),

proposed as (
    from shorter_limit
    union all by name from more_memory
    union all by name from split_weights
)

select engine, verdict, lever, from_value, to_value, effects, estimates, prices, evidence, method,
from proposed
order by engine, verdict, lever
