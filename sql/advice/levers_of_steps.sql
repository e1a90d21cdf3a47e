-- What to change about slots, a step's tokens and what fills them, and about load that is neither the pool's nor the scheduler's.
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

-- more at once: all that were in the house, as far as the pool holds them; one doubling where no input tells the pool's need
with slots as (
    select
        facts.*,
        ceil(facts.max_running + facts.max_waiting)::bigint as wanted,
        -- what samples far apart do not show: more may have come and gone between two of them
        if(samples.step_s >= 5, format('; more may have been there between the samples, {:.0f} s apart', samples.step_s), '') as unseen,
        format('The {} that ran or waited when most were seen', wanted) as seen,
    from advice.lever_facts as facts
    left join (select engine, median(scrape_s) as step_s from core.engine_states group by engine) as samples using (engine)
    where verdict = 'queue_max_num_seqs' and max_num_seqs is not null
),

more_sequences as (
    select
        engine,
        verdict,
        'more_sequences' as lever,
        (max_num_seqs // ranks_summed)::varchar as from_value,
        ceil(least(wanted, coalesce(fits_95, 2 * max_num_seqs)) / ranks_summed)::bigint::varchar as to_value,
        [
            case
                when fits_95 >= wanted then format(
                    '{} run at once{}; the pool allows up to {}{}.',
                    seen, unseen, if(method = 'usage', 'about ', ''), fits_95
                )
                when fits_95 is not null then format('{} run at once: as many as the pool allows.', fits_95)
                else format(
                    '{} run at once{}; whether the pool has room for them cannot be told without its size and the lengths of sequences.',
                    if(wanted > 2 * max_num_seqs, 'Twice as many', seen),
                    if(wanted > 2 * max_num_seqs, '', unseen)
                )
            end,
        ] as effects,
        [
            format(
                'The wait before the first run, {} a request now, shrinks with the {:.0f} that waited on average.',
                spoken_duration(queued_s), mean_waiting
            ),
        ] as estimates,
        []::varchar[] as prices,
        [
            case max_num_seqs_source
                when 'inferred' then format(
                    'The running count stood at {}: taken for the setting, which no input states.', max_num_seqs
                )
            end,
            case when ranks_summed > 1 then format('The numbers are sums over {} data-parallel ranks, each of which has the setting.', ranks_summed) end,
            fit_sentence,
        ] as evidence,
        coalesce(format('most running or waiting at once, at most what the pool holds 95 % of the time [{}]', method), 'most running or waiting at once, at most one doubling')
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
        []::varchar[] as effects,
        [
            coalesce(
                format(
                    'Prompts are worked off at {} tokens/s now, {:.0f} waiting: at best twice that, and half the wait.',
                    spoken_count(ratio(prompt_tokens, window_s)), mean_waiting
                ),
                'At best prompts are worked off twice as fast, and the wait is halved.'
            ),
        ] as estimates,
        []::varchar[] as prices,
        [fit_sentence] as evidence,
        'one doubling: whether steps are bound by compute only the experiment shows' as method,
    from advice.lever_facts
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
        []::varchar[] as estimates,
        []::varchar[] as prices,
        case when has_lora then ['The engine serves LoRA adapters.'] else ['No input says which of them it is.'] end as evidence,
        'requests the engine itself counts as deferred' as method,
    from advice.lever_facts
    where verdict = 'queue_deferred'
),

-- pieces so small that a step with one takes at most five usual steps, the bound from which a gap counts as slow. Every stream
-- loses the same time to a slow step, so prompt tokens over (lost time / streams) is the rate prefill runs at. Below 256 tokens
-- a piece costs a GPU about as much as a full one.
paced as (
    select *, ratio(prompt_tokens * mean_running, lost_s) as prefill_per_s
    from advice.lever_facts
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

-- a prompt that is shorter than a piece is not worked off in smaller ones
cut as (
    select * from pieces where coalesce(prompt_mean > piece, true)
),

smaller_chunks as (
    select
        engine,
        verdict,
        'smaller_chunks' as lever,
        max_num_batched_tokens::varchar as from_value,
        piece::varchar as to_value,
        []::varchar[] as effects,
        [
            format(
                'The gap between tokens in a step full of prompt falls to about {:.0f} ms{}.',
                1000 * (gap_s + piece / prefill_per_s),
                coalesce(
                    format(' from about {:.0f} ms', 1000 * (gap_s + least(max_num_batched_tokens, prompt_mean) / prefill_per_s)),
                    ''
                )
            ),
        ] as estimates,
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
            format('Prefill runs at about {} tokens/s.', spoken_roughly(prefill_per_s)),
        ] as evidence,
        'prefill rate from the time slow steps cost; a step may take five usual ones' as method,
    from cut
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
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [format('Prefill runs at about {} tokens/s.', spoken_roughly(prefill_per_s))] as evidence,
        'as for the token budget of a step' as method,
    from cut
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
        []::varchar[] as estimates,
        []::varchar[] as prices,
        [format('Nine in ten answers have at most {:.0f} tokens.', output_p90)] as evidence,
        'twice the 90th percentile of the answers seen' as method,
    from advice.lever_facts
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
        []::varchar[] as estimates,
        []::varchar[] as prices,
        []::varchar[] as evidence,
        'the verdict''s own numbers' as method,
    from advice.lever_facts as facts
    inner join (
        values
            ('imbalance', 'spread_load', 'The engine that queues gives its surplus to those that do not.'),
            ('client_limited', 'client_concurrency', 'The engine had room: it gets more to do, and the client''s queue goes.'),
            ('cold_start', 'warm_up', 'The first requests no longer pay for compilation and cold caches.')
    ) as levers(verdict, lever, effect) using (verdict)
),

proposed as (
    from more_sequences
    union all by name from larger_steps
    union all by name from more_adapters
    union all by name from smaller_chunks
    union all by name from long_prompt_cap
    union all by name from output_limits
    union all by name from outside
)

select engine, verdict, lever, from_value, to_value, effects, estimates, prices, evidence, method,
from proposed
order by engine, verdict, lever
