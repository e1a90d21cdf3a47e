-- What KV events and requests' own records amount to where nothing else tells it: preemptions and prefixes computed again that no counter
-- counts in time, waits of an engine whose load no input shows.
--
-- KV events tell a preempted request by the blocks that it stored again, streams by the steps that they missed and their peers had, spans
-- how long each request waited before it first ran. Of what a request waited for, and of how full the pool was, they say nothing.
--
-- step:  verdicts
-- grain: engine, verdict, window_start
-- needs: core.blocks_stored_again or core.requests or core.seen_loads
-- needs: core.blocks_stored_again or core.engine_states or core.requests
-- needs: core.blocks_stored_again or core.requests or core.untimed_preemptions
-- needs: core.requests or core.untimed_preemptions or marts.preemptions or marts.waste
-- needs: core.engine_states or core.requests or marts.preemptions or marts.waste
-- needs: core.requests or core.seen_loads or marts.preemptions or marts.waste
-- column: engine           VARCHAR       | Engine.
-- column: verdict          VARCHAR       | preemption, prefix_eviction or queue_unknown.
-- column: window_start     TIMESTAMPTZ   | The first of it; NULL where the requests have no time.
-- column: window_end       TIMESTAMPTZ   | The last of it.
-- column: peak_at          TIMESTAMPTZ   | When it was worst.
-- column: severity         DOUBLE        | As felt or paid, on the scale of all verdicts; not rounded, and not held to its ends.
-- column: confidence       DECIMAL(15,4) | 0 to 1.
-- column: summary          VARCHAR       | One sentence.
-- column: evidence         VARCHAR[]     | Sentences that speak for it.
-- column: evidence_against VARCHAR[]     | Sentences that speak against it, or bound it.
-- column: missing          VARCHAR[]     | What would settle it next time.
with loaded as (
    select distinct engine from core.engine_states where running is not null or waiting is not null
    union
    select engine from advice.verdicts_untimed
),

recorded as (
    select
        engine,
        count(*) as requests,
        bool_or(has_client) as has_client,
        count(queue_s) as queued_requests,
        sum(queue_s) as queued_s,
        max(queue_s) as longest_s,
        -- a tenth of a second is hardly noticed
        count(*) filter (where queue_s >= 0.1) as felt_waits,
        min(arrived_at) filter (where queue_s >= 0.1) as first_wait_at,
        max(plus_seconds(arrived_at, queue_s)) filter (where queue_s >= 0.1) as last_wait_at,
        arg_max(arrived_at, queue_s) as longest_wait_at,
        sum(seconds_between(arrived_at, finished_at)) filter (where queue_s is not null) as e2e_s,
    from core.requests
    where engine <> '*'
    group by engine
),

paused as (
    select
        engine,
        count(*) as pauses,
        count(distinct (source_file, run_index, request_index, request_id)) as answers,
        sum(duration_s) as paused_s,
        max(duration_s) as longest_s,
        min(started_at) as first_at,
        max(plus_seconds(started_at, duration_s)) as last_at,
        arg_max(started_at, duration_s) as peak_at,
    from marts.stalls
    where cause = 'preemption' and engine <> '*'
    group by engine
),

-- what was published of the first group of blocks: all that was computed, to a block
stored as (
    select engine, sum(block_size) as tokens
    from staging.kv_events
    where event = 'stored' and coalesce(group_idx, 0) = 0
    group by engine
),

-- the time of what was stored again, of rebuilt requests and of prompts
stored_again as (
    select engine, kind, min(stored_at) as first_at, max(stored_at) as last_at, arg_max(stored_at, blocks_again) as peak_at
    from core.blocks_stored_again
    left join core.resumes using (engine, again_index)
    where kind = 'refill' or resumes.is_possible
    group by engine, kind
),

told_by_events as (
    select
        counted.engine,
        'preemption' as verdict,
        resumed.first_at as window_start,
        resumed.last_at as window_end,
        resumed.peak_at,
        preemption_severity(
            ratio(counted.count_best, recorded.requests),
            coalesce(waste.share_best, ratio(waste.tokens_best, stored.tokens))
        ) as severity,
        0.85 as confidence,
        format(
            '{} told by KV events: running requests lost their KV blocks{}{}.',
            if(counted.count_best = 1, 'One preemption is', spoken_count(counted.count_best) || ' preemptions are'),
            if(
                paused.answers > 0,
                format('; {} of the answers seen paused, the longest for {}', paused.answers, spoken_duration(paused.longest_s)),
                ''
            ),
            if(loaded.engine is null, '; how the load was, no input shows', '')
        ) as summary,
        sentences([
            'A request that stores again the blocks it had, up to where it stood, had lost them while it ran.',
            format(
                'Over the run {} tokens were processed again (between {} and {}){}. Told by {}.',
                spoken_count(waste.tokens_best), spoken_count(waste.tokens_low), spoken_count(waste.tokens_high),
                coalesce(
                    format(': {:.0f} % of all tokens computed', 100 * waste.share_best),
                    format('; all blocks that were stored hold {}', spoken_count(stored.tokens)),
                    ''
                ),
                waste.told_by
            ),
            format('Client streams stood still for {:.1f} s in all.', paused.paused_s),
        ]) as evidence,
        sentences([
            case
                when counted.count_high > counted.count_best then format(
                    'Who finds all full blocks again stores none, and is not seen: there may have been up to {}.', spoken_count(counted.count_high)
                )
            end,
            -- a main verdict counts the queue of the same shortage
            case
                when loaded.engine is null and coalesce(recorded.queued_requests, 0) = 0
                    then 'Whether requests waited for room meanwhile is not told, and not in the severity: it may be worse.'
            end,
        ]) as evidence_against,
        sentences([
            what_to_record(engines.engine_kind, engines.engine_version, engines.prefix_caching)[1],
            case when recorded.has_client is not true then to_tell_whose_answers_paused(engines.engine_kind) end,
        ]) as missing,
    from marts.preemptions as counted
    inner join (from stored_again where kind = 'resume') as resumed using (engine)
    left join core.engines using (engine)
    left join marts.waste on waste.engine = counted.engine and waste.kind = 'preemption_recompute'
    left join stored on stored.engine = counted.engine
    left join recorded on recorded.engine = counted.engine
    left join paused on paused.engine = counted.engine
    left join loaded on loaded.engine = counted.engine
    where counted.method = 'kv_events'
        and counted.count_best >= 1
        and counted.engine not in (select engine from core.spells where verdict = 'preemption')
),

-- what was computed in the time of refills, and the prompts that were asked for in it, where requests are known
again as (
    select refills.*, computed.tokens as stored_tokens, greatest(computed.tokens, asked.tokens) as asked_tokens,
    from stored_again as refills
    left join lateral (
        select sum(events.block_size) as tokens
        from staging.kv_events as events
        where events.engine = refills.engine
            and events.event = 'stored'
            and coalesce(events.group_idx, 0) = 0
            and events.published_at between refills.first_at and refills.last_at
    ) as computed on true
    left join lateral (
        select sum(requests.input_tokens) as tokens
        from core.requests as requests
        where requests.engine = refills.engine
            and requests.arrived_at between plus_seconds(refills.first_at, -1) and refills.last_at
    ) as asked on true
    where refills.kind = 'refill'
),

told_by_refills as (
    select
        again.engine,
        'prefix_eviction' as verdict,
        again.first_at as window_start,
        again.last_at as window_end,
        again.peak_at,
        100 * sqrt(clamp(ratio(waste.tokens_best, again.asked_tokens), 0, 1)) as severity,
        0.85 as confidence,
        format(
            'Reusable prefix blocks were reclaimed before they were asked for again: {} tokens of them were computed a second time, {:.0f} % of all that was '
            || 'computed in that time.',
            spoken_count(waste.tokens_best), 100 * ratio(waste.tokens_best, again.stored_tokens)
        ) as summary,
        sentences([
            format('{} tokens of blocks removed earlier were stored again, told by {}.', spoken_count(waste.tokens_best), waste.told_by),
            'The requests that stored them were not rebuilt: these blocks are of prompts that had been computed before.',
        ]) as evidence,
        sentences([
            case when counted.count_best > 0 then 'Requests were preempted as well: what they hold again is not cache.' end,
        ]) as evidence_against,
        sentences([what_to_record(engines.engine_kind, engines.engine_version, engines.prefix_caching)[1]]) as missing,
    from again
    inner join marts.waste on waste.engine = again.engine and waste.kind = 'prefix_refill' and waste.method = 'kv_events'
    left join marts.waste as repeated on repeated.engine = again.engine and repeated.kind = 'preemption_recompute'
    left join marts.preemptions as counted on counted.engine = again.engine
    left join core.engines on engines.engine = again.engine
    -- as much as the sign of it asks for where the hits are counted
    where waste.tokens_best >= 0.33 * again.stored_tokens
        and waste.tokens_best > coalesce(repeated.tokens_best, 0)
        and engines.kv_connector is null -- what stands behind the pool may have had them
        and again.engine not in (select engine from core.prefix_intervals)
),

-- when a log shows the pool at its fullest, or else requests running: nearer the pages' counts cannot be placed
pressed as (
    select
        engine,
        max(kv_usage_ratio) >= 0.9 as is_full,
        arg_max(sampled_at, coalesce(kv_usage_ratio, 0)) as peak_at,
        coalesce(min(sampled_at) filter (where kv_usage_ratio >= 0.9), min(sampled_at)) as first_at,
        coalesce(
            max(plus_seconds(sampled_at, scrape_s)) filter (where kv_usage_ratio >= 0.9), max(plus_seconds(sampled_at, scrape_s))
        ) as last_at,
    from core.engine_states
    where running > 0
    group by engine
),

told_by_pages as (
    select
        counted.engine,
        'preemption' as verdict,
        pressed.first_at as window_start,
        pressed.last_at as window_end,
        pressed.peak_at,
        preemption_severity(ratio(counted.preemptions, counted.finished), null) as severity,
        if(pressed.is_full, 0.8, 0.6) as confidence,
        format(
            '{}{} counted {}: running requests lost their KV blocks.',
            case when counted.is_since_start then 'At least ' else '' end,
            case
                when counted.preemptions > 1 then spoken_count(counted.preemptions) || ' preemptions were'
                when counted.is_since_start then 'one preemption was'
                else 'One preemption was'
            end,
            if(counted.is_since_start, 'since the engine started', 'between the metrics pages, whose times are not known')
        ) as summary,
        sentences([
            -- as the main verdict says it of any page, so that it is there once
            if(
                instants.preemptions = counted.preemptions,
                counted_since_start(instants.preemptions, instants.finished, null, null, instants.started_at)[1],
                format('The counter of preemptions rose by {}, while {} requests finished.', spoken_count(counted.preemptions), spoken_count(counted.finished))
            ),
            case
                when pressed.is_full then format('The log shows KV usage at {:.0f} % at most, in this time.', 100 * loads.max_kv_usage_ratio)
            end,
        ]) as evidence,
        [
            format(
                'When they were, no input tells: the time is that in which the log shows {}.',
                if(pressed.is_full, 'the pool nearly full', 'requests running')
            ),
        ] as evidence_against,
        sentences([
            what_to_record(engines.engine_kind, engines.engine_version, engines.prefix_caching)[1],
            to_tell_repeated_tokens(engines.engine_kind, engines.engine_generation, engines.prefix_caching),
        ]) as missing,
    from core.untimed_preemptions as counted
    inner join pressed using (engine)
    inner join core.seen_loads as loads using (engine)
    left join core.counts_at_an_instant as instants using (engine)
    left join core.engines using (engine)
    where counted.preemptions > 0
        and counted.engine not in (select engine from core.preemption_intervals)
        and counted.engine not in (select engine from core.spells where verdict = 'preemption')
        and counted.engine not in (select engine from told_by_events)
),

told_by_streams as (
    select
        paused.engine,
        'preemption' as verdict,
        paused.first_at as window_start,
        paused.last_at as window_end,
        paused.peak_at,
        preemption_severity(ratio(paused.pauses, recorded.requests), null) as severity,
        0.6 as confidence,
        format(
            '{} of {} answers paused as preemption makes them pause, the longest for {}; how often the engine preempted, and how the load was, no input shows.',
            spoken_count(paused.answers), spoken_count(recorded.requests), spoken_duration(paused.longest_s)
        ) as summary,
        [
            format(
                '{}, {} in all: a stream missed steps that its peers had.',
                if(paused.pauses = 1, 'One pause', spoken_count(paused.pauses) || ' pauses'), spoken_duration(paused.paused_s)
            ),
        ] as evidence,
        ['That is how preemption looks to its victims; no count of the engine confirms it.'] as evidence_against,
        sentences([
            what_to_record(engines.engine_kind, engines.engine_version, engines.prefix_caching)[1],
            to_tell_repeated_tokens(engines.engine_kind, engines.engine_generation, engines.prefix_caching),
        ]) as missing,
    from paused
    inner join recorded using (engine)
    left join core.engines using (engine)
    left join marts.preemptions as counted using (engine)
    where counted.count_best is null
        and paused.engine not in (select engine from loaded)
        and paused.engine not in (select engine from core.spells where verdict = 'preemption')
),

told_by_waits as (
    select
        recorded.engine,
        'queue_unknown' as verdict,
        recorded.first_wait_at as window_start,
        recorded.last_wait_at as window_end,
        recorded.longest_wait_at as peak_at,
        delay_severity(ratio(recorded.queued_s, recorded.queued_requests), ratio(recorded.queued_s, recorded.e2e_s)) as severity,
        queue_confidence('unknown', null, null) as confidence,
        format(
            'Requests waited {} in all before they first ran ({} seen), {} at most; for what, no input tells.',
            spoken_duration(recorded.queued_s), spoken_count(recorded.queued_requests), spoken_duration(recorded.longest_s)
        ) as summary,
        sentences([
            format(
                'They waited {:.2f} s each on average, {:.0f} % of their whole latency.',
                ratio(recorded.queued_s, recorded.queued_requests), 100 * ratio(recorded.queued_s, recorded.e2e_s)
            ),
            format('{} of them waited a tenth of a second or more.', spoken_count(recorded.felt_waits)),
        ]) as evidence,
        sentences([
            case when counted.count_best is null and paused.engine is null then 'Whether anybody who ran was interrupted, no input tells.' end,
        ]) as evidence_against,
        ['For what they waited: the engine''s log, or /metrics, of the same time; they show how many ran and how full the pool was.'] as missing,
    from recorded
    left join marts.preemptions as counted using (engine)
    left join paused using (engine)
    where recorded.felt_waits > 0
        and recorded.engine not in (select engine from loaded)
        and recorded.engine not in (select engine from core.spells where verdict like 'queue%')
)

select engine, verdict, window_start, window_end, peak_at, severity, confidence, summary, evidence, evidence_against, missing,
from (
    from told_by_events
    union all by name from told_by_refills
    union all by name from told_by_pages
    union all by name from told_by_streams
    union all by name from told_by_waits
)
order by engine, verdict, window_start
