-- What each spell of the engine's steps amounts to: steps that took long, and such as did not come.
--
-- step:  verdicts
-- grain: engine, verdict, window_start
-- needs: marts.spell_facts
-- column: engine           VARCHAR      | Engine.
-- column: verdict          VARCHAR      | What happened.
-- column: window_start     TIMESTAMPTZ  | When it began.
-- column: window_end       TIMESTAMPTZ  | When it was last seen.
-- column: peak_at          TIMESTAMPTZ  | When it was worst.
-- column: severity         DOUBLE       | As felt or paid, on the scale of all verdicts; not rounded, and not held to its ends.
-- column: confidence       DECIMAL(3,2) | 0 to 1.
-- column: summary          VARCHAR      | One sentence.
-- column: evidence         VARCHAR[]    | Sentences that speak for it.
-- column: evidence_against VARCHAR[]    | Sentences that speak against it, or bound it.
-- column: missing          VARCHAR[]    | What would settle it next time.
with interference as (
    select
        engine,
        verdict,
        window_start,
        window_end,
        peak_at,
        delay_severity(ratio(weight, greatest(first_tokens, 1)), ratio(weight, decode_s)) as severity,
        case when max_kv_usage_ratio < 0.9 and coalesce(preemptions, 0) = 0 then 0.85 else 0.6 end as confidence,
        format(
            'Long prefills slowed every running answer: {:.0f} % of the time between tokens went to steps that carried them.',
            100 * least(1, ratio(weight, decode_s))
        ) as summary,
        sentences([
            format('{:.1f} s of inter-token time beyond what decoding needed, summed over the streams.', weight),
            format('{} prompt tokens were computed meanwhile, {} a request.', spoken_count(prompt_tokens), spoken_count(ratio(prompt_tokens, first_tokens))),
            format('KV usage at most {:.0f} %.', 100 * max_kv_usage_ratio),
            case when preemptions = 0 then 'No preemption was counted: nobody lost KV state.' end,
        ]) as evidence,
        sentences([
            case when preemptions > 0 then format('{:.0f} preemptions in the same time explain part of the slow gaps.', preemptions) end,
        ]) as evidence_against,
        []::varchar[] as missing,
    from marts.spell_facts
    where verdict = 'prefill_interference'
),

slow as (
    select
        engine,
        verdict,
        window_start,
        window_end,
        peak_at,
        delay_severity(ratio(decode_s, greatest(first_tokens, 1)), 0.5) as severity,
        0.5 as confidence,
        format('Every token took long: {:.2f} s between tokens at {:.0f} running, without prefill, preemption or a queue to explain it.',
            ratio(decode_s, generation_tokens), mean_running) as summary,
        sentences([
            format('KV usage at most {:.0f} %, {:.0f} requests waiting on average.', 100 * max_kv_usage_ratio, mean_waiting),
        ]) as evidence,
        []::varchar[] as evidence_against,
        ['GPU utilization and clocks of that time (DCGM), and whether the batch outgrew the captured CUDA graphs (the engine''s start-up lines).'] as missing,
    from marts.spell_facts
    where verdict = 'decode_slow'
),

cold as (
    select
        engine,
        verdict,
        window_start,
        window_end,
        peak_at,
        delay_severity(ratio(weight, greatest(first_tokens, 1)), 0.8) as severity,
        0.75 as confidence,
        format(
            'The engine had just started: the first tokens of its first requests took {} on average, with nobody waiting.',
            spoken_duration(ratio(weight, first_tokens))
        ) as summary,
        sentences([
            format('{:.0f} requests got their first token in this time; {:.0f} ran on average, none waited.', first_tokens, mean_running),
            format('KV usage at most {:.0f} %.', 100 * max_kv_usage_ratio),
        ]) as evidence,
        []::varchar[] as evidence_against,
        []::varchar[] as missing,
    from marts.spell_facts
    where verdict = 'cold_start'
),

counted as (
    select
        engine,
        sum(delta) filter (where signal = 'ttft_s_count') as first_tokens,
        sum(delta) filter (where signal = 'itl_s_sum') as decode_s,
    from core.counter_intervals
    where signal in ('ttft_s_count', 'itl_s_sum')
    group by engine
),

recorded as (
    select engine, count(first_token_at) as first_tokens, sum(decode_s) as decode_s from core.requests group by engine
),

-- clients see pauses also of an engine that nobody scraped: then their own requests are all there are
totals as (
    select
        engine,
        coalesce(counted.first_tokens, recorded.first_tokens) as first_tokens,
        coalesce(counted.decode_s, recorded.decode_s) as decode_s,
    from counted
    full join recorded using (engine)
),

halted as (
    select
        facts.engine,
        facts.verdict,
        facts.window_start,
        facts.window_end,
        facts.peak_at,
        -- a pause of a second is an instant of the run: it is felt by what it adds to all of the run's requests
        delay_severity(
            ratio(facts.weight, greatest(totals.first_tokens, 1)),
            ratio(facts.weight, greatest(totals.decode_s, facts.weight))
        ) as severity,
        0.8 as confidence,
        format(
            'All answers stood still together, for {} at the longest: the engine, its host or the way to the clients paused.',
            spoken_duration(facts.peak_weight)
        ) as summary,
        [
            format('Client streams lost {:.1f} s in all to pauses of a second or more that every stream shared.', facts.weight),
            'Nobody lost KV state by it: in a preemption the other streams run on.',
        ] as evidence,
        []::varchar[] as evidence_against,
        [to_tell_whether_it_stepped(engines.engine_kind, engines.engine_generation)] as missing,
    from marts.spell_facts as facts
    left join core.engines using (engine)
    left join totals using (engine)
    where facts.verdict = 'engine_pause'
),

-- a silence that ended in prompts, but is too long to have been their prefill
ended as (
    select facts.engine, facts.window_start, arg_max(silences, silences.silence_end) as silence
    from marts.spell_facts as facts
    inner join core.silences
        on silences.engine = facts.engine
        and silences.silence_start < facts.window_end
        and silences.silence_end > facts.window_start
    where facts.verdict = 'engine_stalled' and silences.prompt_tokens > 0 and not silences.is_prefill
    group by all
),

stalled as (
    select
        engine,
        verdict,
        window_start,
        window_end,
        peak_at,
        least(100, 60 + seconds_between(window_start, window_end) / 10) as severity,
        0.85 as confidence,
        format(
            'The engine held {:.0f} running and {:.0f} waiting requests and produced no token for {}: stalled, not idle.',
            mean_running, mean_waiting, spoken_duration(seconds_between(window_start, window_end))
        ) as summary,
        sentences([
            'Prompt and generation counters stood still while requests were in the engine.',
            format(
                'About {} prompt tokens followed: at the speed this engine has shown, their prefill accounts for {} of it at most.',
                spoken_roughly(ended.silence.prompt_tokens), spoken_duration(ended.silence.prefill_s)
            ),
        ]) as evidence,
        []::varchar[] as evidence_against,
        ['The engine''s log of that time, for the error or lock behind it.'] as missing,
    from marts.spell_facts
    left join ended using (engine, window_start)
    where verdict = 'engine_stalled'
)

select engine, verdict, window_start, window_end, peak_at, severity, confidence, summary, evidence, evidence_against, missing,
from (
    from interference
    union all by name from slow
    union all by name from cold
    union all by name from halted
    union all by name from stalled
)
order by engine, verdict, window_start
