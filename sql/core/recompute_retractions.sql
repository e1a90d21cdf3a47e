-- What retracted requests (SGLang) cost in tokens processed again: exactly from 0.5.18's counters, else between bounds.
--
-- SGLang frees a victim's KV at once and keeps none of its output, so outputs are always processed again; of its prompt, what the
-- radix tree still holds is found. From 0.5.18 on two counters tell: prefill that was really computed
-- (`realtime_tokens_total{mode="prefill_compute"}`), and the part of it that was not for a retracted request
-- (`prefill_effective_tokens_total{mode="input"}`). From 0.5.7 on the victims' tokens are counted. Before, and from a log alone,
-- there is the number of victims, and from 0.5.7 on what each retraction freed: its KV, and prefix blocks evicted with it.
-- TensorRT-LLM counts the KV tokens of the requests it paused.
--
-- grain: engine, method
-- needs: core.counter_intervals or core.preemption_intervals or staging.engine_events or staging.spans
-- column: engine           VARCHAR | Engine.
-- column: kind             VARCHAR | preemption_recompute.
-- column: method           VARCHAR | retraction_counters_exact, retracted_tokens_counter, retraction_log, request_records or no_preemption.
-- column: rung             INTEGER | Place on the ladder of evidence: 1 is the surest.
-- column: is_partial       BOOLEAN | Its inputs have holes.
-- column: tokens_low       DOUBLE  | Least tokens.
-- column: tokens_best      DOUBLE  | Expected tokens.
-- column: tokens_high      DOUBLE  | Most tokens.
-- column: preemptions_low  DOUBLE  | Least preemptions.
-- column: preemptions_best DOUBLE  | Expected preemptions.
-- column: preemptions_high DOUBLE  | Most preemptions.
-- column: assumptions      VARCHAR | What it rests on.
-- column: evidence         VARCHAR | The numbers it comes from, in a sentence.
-- check:  tokens_low <= tokens_best and tokens_best <= tokens_high | A range holds its best estimate.
with counted as (
    select engine, sum(preemptions)::double as preemptions from core.preemption_intervals group by engine
),

totals as (
    select
        engine,
        sum(delta) filter (where signal = 'realtime_tokens' and labels like '%mode=prefill_compute%') as computed_tokens,
        sum(delta) filter (where signal = 'prefill_effective_tokens' and labels like '%mode=input%') as new_tokens,
        sum(delta) filter (where signal = 'retracted_input_tokens') as input_tokens,
        sum(delta) filter (where signal = 'retracted_output_tokens') as output_tokens,
    from core.counter_intervals
    group by engine
),

exact as (
    select
        engine,
        'retraction_counters_exact' as method,
        1 as rung,
        at_least_zero(computed_tokens - new_tokens) as tokens_low,
        at_least_zero(computed_tokens - new_tokens) as tokens_best,
        at_least_zero(computed_tokens - new_tokens) as tokens_high,
        'Both counters are of the same scrapes.' as assumptions,
        format(
            '{} prompt and output tokens went through prefill, {} of them for the first time.',
            computed_tokens::bigint, new_tokens::bigint
        ) as evidence,
    from totals
    where computed_tokens is not null and new_tokens is not null
),

victims as (
    select
        engine,
        'retracted_tokens_counter' as method,
        2 as rung,
        output_tokens as tokens_low,
        output_tokens + input_tokens / 2 as tokens_best,
        output_tokens + input_tokens as tokens_high,
        'A victim''s output is always processed again, its prompt as far as the radix tree lost it: between none and all.' as assumptions,
        format('The victims held {} prompt and {} output tokens.', input_tokens::bigint, output_tokens::bigint) as evidence,
    from totals
    where input_tokens is not null and output_tokens is not null
),

-- what one request held where the pool was all but full
held as (
    select
        states.engine,
        avg(states.kv_usage_ratio / states.running) * any_value(engines.kv_capacity_tokens) as context_tokens,
    from core.engine_states as states
    inner join core.engines using (engine)
    where states.running > 0 and states.kv_usage_ratio >= 0.9
    group by states.engine
),

logged as (
    select
        engine,
        sum(count) filter (where event = 'retraction') as retractions,
        sum(count) filter (where event = 'retraction_freed_tokens') as freed_tokens,
    from staging.engine_events
    where event in ('retraction', 'retraction_freed_tokens')
    group by engine
),

from_log as (
    select
        logged.engine,
        'retraction_log' as method,
        if(logged.freed_tokens is null, 4, 3) as rung,
        if(logged.freed_tokens is null, 0, 0.8 * logged.freed_tokens) as tokens_low,
        -- half of a victim's prompt, which is about half of what it holds, is found again
        coalesce(logged.freed_tokens, 0.75 * logged.retractions * held.context_tokens) as tokens_best,
        greatest(1.2 * logged.freed_tokens, logged.retractions * held.context_tokens) as tokens_high,
        if(
            logged.freed_tokens is null,
            'Each victim held an even share of the full pool; its output and half of its prompt were processed again.',
            'What a retraction frees is what must be processed again; shared prefixes that stay and others that go with it are the error.'
        ) as assumptions,
        format(
            '{} request(s) retracted in the log{}.',
            logged.retractions, coalesce(format(', which freed {} tokens', logged.freed_tokens), '')
        ) as evidence,
    from logged
    left join held using (engine)
        where logged.retractions > 0
),

-- records of the requests alone: how far a victim had come is not in them
from_records as (
    select
        engine,
        'request_records' as method,
        5 as rung,
        0 as tokens_low,
        sum(preemptions * (input_tokens + output_tokens)) / 2 as tokens_best,
        sum(preemptions * (input_tokens + output_tokens)) as tokens_high,
        'A victim had given half of its answer, and found half of its prompt again.' as assumptions,
        format(
            '{} retraction(s) of {} request(s), which waited {:.1f} s in all to run again.',
            sum(preemptions)::bigint, count(*), coalesce(sum(requeue_s), 0)
        ) as evidence,
    from staging.spans
    where preemptions > 0
    group by engine
),

-- a log in which no request was retracted, and an engine that has no preemption
none as (
    select
        counted.engine,
        'no_preemption' as method,
        3 as rung,
        0 as tokens_low,
        0 as tokens_best,
        0 as tokens_high,
        if(engines.engine_kind = 'llamacpp', 'llama.cpp has no preemption.', 'The log has a line for each retraction.') as assumptions,
        'None was logged.' as evidence,
    from counted
    inner join core.engines using (engine)
    where counted.preemptions = 0 and engines.engine_kind in ('sglang', 'llamacpp')
)

select
    methods.engine,
    'preemption_recompute' as kind,
    methods.method,
    methods.rung,
    false as is_partial,
    methods.tokens_low::double as tokens_low,
    methods.tokens_best::double as tokens_best,
    methods.tokens_high::double as tokens_high,
    counted.preemptions as preemptions_low,
    counted.preemptions as preemptions_best,
    counted.preemptions as preemptions_high,
    methods.assumptions,
    methods.evidence,
from (
    from exact
    union all by name
    from victims
    union all by name
    from from_log
    union all by name
    from from_records
    union all by name
    from none
) as methods
left join counted using (engine)
where methods.tokens_best is not null
order by methods.engine, methods.rung, methods.method
