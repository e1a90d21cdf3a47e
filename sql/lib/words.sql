-- Numbers as people read them, for the sentences of verdicts, and names as people read them.

-- A log's name without what its rotation and its kind add: server of server.log, server.log.1 and server.log.2026-11-29.gz.
create or replace macro log_stem(name) as
    regexp_replace(name, '(\.\d{1,3}|[._-]\d{4}-?\d\d-?\d\d[^/]*|\.[A-Za-z][A-Za-z0-9]{0,8})+$', '');

-- 0.34 s, 12 s, 3 min 20 s, 2 h 5 min.
create or replace macro spoken_duration(seconds) as
    case
        when seconds is null then null
        when seconds < 10 then format('{:.1f} s', seconds)
        when seconds < 120 then format('{:.0f} s', seconds)
        when seconds < 7200 then format('{:.0f} min {:.0f} s', floor(seconds / 60), seconds % 60)
        else format('{:.0f} h {:.0f} min', floor(seconds / 3600), floor((seconds % 3600) / 60))
    end;

-- 1,234,567.
create or replace macro spoken_count(number) as
    case when number is null then null else format('{:,}', round(number)::bigint) end;

-- 134,000 of 133,963, for what stands behind an "about": three digits are as many as it means.
create or replace macro spoken_roughly(number) as
    spoken_count(round(number, -greatest(0, length(abs(round(number))::bigint::varchar) - 3)::integer));

-- once, 2 times, 1,234 times.
create or replace macro spoken_times(number) as
    case when number = 1 then 'once' else spoken_count(number) || ' times' end;

-- A figure as `kvpressure whatif` prints it: 1,234 and, below a thousand, 18.3 where it is no count.
create or replace macro told_figure(figure, is_count) as
    case when is_count or figure >= 1000 then spoken_count(figure) else format('{:.1f}', figure) end;

-- The sentences that apply: one whose figures are not known is NULL, and left out.
create or replace macro sentences(candidates) as
    list_filter(candidates, lambda sentence: sentence is not null);

-- What told a number, in words: the methods of `preemptions`, `waste` and `core.recompute_estimates`. A test holds them together.
create or replace macro told_by(method) as
    case method
        when 'preemption_counter' then 'the preemption counter of /metrics'
        when 'iteration_lines_with_counters' then 'the log''s iteration lines, less what the counters call new'
        when 'kv_events' then 'KV events'
        when 'replay' then 'a replay of the recorded requests'
        when 'v0_log' then 'warnings in the log, one for up to 50'
        when 'retraction_counters_exact' then 'counters of tokens computed and of new ones'
        when 'retracted_tokens_counter' then 'the counter of retracted tokens, an upper bound'
        when 'retraction_log' then 'retraction lines in the log'
        when 'client_counts' then 'what the client''s table counts at each level'
        when 'request_records' then 'the log''s record of each request'
        when 'no_preemption' then 'what the engine is: it preempts nothing'
        when 'caching_off' then 'the engine''s settings: prefix caching is off, nothing is kept for reuse'
        when 'pool_never_full' then 'all that was computed: the pool held it'
        when 'capacity_bound' then 'the amount computed beyond the pool''s size, which only bounds it'
        when 'counters_beside_tier' then 'counters of what the external tier gave back'
        when 'external_hit_counter' then 'the counter of hits in an external tier'
        when 'tier_counter' then 'the external tier''s own counter'
        when 'tier_log' then 'the external tier''s log lines'
        when 'not_told' then 'no input'
        else replace(method, '_', ' ')
    end;

-- A verdict within a sentence, as the page calls it.
create or replace macro spoken_verdict(verdict) as
    case verdict
        when 'queue_max_num_seqs' then 'the queue for a slot'
        when 'queue_kv_capacity' then 'the queue for KV room'
        when 'queue_token_budget' then 'the queue for token budget'
        when 'queue_deferred' then 'the queue of deferred requests'
        when 'queue_unknown' then 'the queue of unknown cause'
        else replace(verdict, '_', ' ')
    end;

-- Of an engine that was looked at once, and at peace: that it has not been so all the time, where its counters say so. NULL where not.
create or replace macro but_it_has_preempted(preemptions, finished) as
    case
        when preemptions >= 0.02 * finished and preemptions > 0 then format(
            'but {} {} counted since the engine started, and when, no input tells.',
            if(preemptions = 1, 'one preemption', spoken_count(preemptions) || ' preemptions'),
            if(preemptions = 1, 'was', 'were')
        )
    end;

-- What an engine's counters say that was looked at once: how far they had come, since whenever it started.
create or replace macro counted_since_start(preemptions, finished, queued_s, queued_requests, started_at) as sentences([
    format(
        'The engine has counted {} since it started{}{}.',
        case preemptions when 0 then 'no preemption' when 1 then 'one preemption' else spoken_count(preemptions) || ' preemptions' end,
        coalesce(strftime(started_at, ' (%Y-%m-%d %H:%M:%S UTC)'), ''),
        case when finished > 0 then format(', while {} requests finished', spoken_count(finished)) else '' end
    ),
    case
        when queued_requests > 0 then format(
            'Since it started{} requests waited {} each before their first run, on average.',
            if(preemptions is null, coalesce(strftime(started_at, ' (%Y-%m-%d %H:%M:%S UTC)'), ''), ''), spoken_duration(queued_s / queued_requests)
        )
    end,
]);

-- what the counters leave out of the load that a log shows; empty where they count all of it
create or replace macro left_out(uncounted_to, uncounted_from) as concat(
    case when uncounted_to is not null then ', which begins after the load does' end,
    case when uncounted_from is not null then ', which ends before the load does' end
);
