-- What each start that came to nothing amounts to: an engine that was never seen to serve.
--
-- step:  verdicts
-- grain: engine, verdict, window_start
-- needs: core.failed_starts
-- column: engine           VARCHAR      | Engine.
-- column: verdict          VARCHAR      | never_served.
-- column: window_start     TIMESTAMPTZ  | First line of the start.
-- column: window_end       TIMESTAMPTZ  | Last line of the log.
-- column: peak_at          TIMESTAMPTZ  | The same as its end.
-- column: severity         DECIMAL(4,1) | As felt or paid, on the scale of all verdicts; not rounded, and not held to its ends.
-- column: confidence       DECIMAL(3,2) | 0 to 1.
-- column: summary          VARCHAR      | One sentence.
-- column: evidence         VARCHAR[]    | Sentences that speak for it.
-- column: evidence_against VARCHAR[]    | Sentences that speak against it, or bound it.
-- column: missing          VARCHAR[]    | What would settle it next time.
with facts as (
    select
        starts.*,
        coalesce(starts.ended_at, starts.started_at) as last_at,
        setups.max_model_len,
        setups.gpu_memory_utilization,
        setups.kv_capacity_tokens,
        settings.weights_gib,
        settings.kv_cache_memory_gib,
    from core.failed_starts as starts
    left join core.engine_setups as setups on setups.engine = starts.engine and setups.setup_end is null
    left join (
        select
            engine,
            life,
            max(try_cast(value_text as double)) filter (where key = 'weights_gib') as weights_gib,
            max(try_cast(value_text as double)) filter (where key = 'kv_cache_memory_gib') as kv_cache_memory_gib,
        from core.life_settings
        group by engine, life
    ) as settings on settings.engine = starts.engine and settings.life = setups.life
)

select
    engine,
    'never_served' as verdict,
    started_at as window_start,
    last_at as window_end,
    last_at as peak_at,
    -- nobody gets an answer from it; a log that only ends may have been taken while it still started
    case when cause is not null then 100.0 else 60.0 end as severity,
    case when cause is not null then 0.97 else 0.5 end as confidence,
    case cause
        when 'kv_too_small' then concat(
            'The server did not come up: the memory left for its KV pool does not hold one request of the longest length',
            format(' ({} tokens)', spoken_count(max_model_len)),
            format('; {} would fit', spoken_count(fits)),
            '.'
        )
        when 'slots_beyond_pool' then concat(
            'The server did not come up: max_num_seqs asks for more requests at once than its pool of recurrent state has blocks for',
            format('; at most {} would fit', spoken_count(fits)),
            '.'
        )
        when 'no_kv_memory' then 'The server did not come up: no memory was left for its KV pool.'
        when 'memory_taken' then 'The server did not come up: less GPU memory was free than it was told to use.'
        when 'out_of_memory' then 'The server did not come up: it ran out of GPU memory while it started.'
        when 'failed' then 'The server did not come up: its engine failed while it started.'
        else concat(
            'The server was not seen to come up: its log ends',
            format(' {} after it began to start', spoken_duration(nullif(seconds_between(started_at, ended_at), 0))),
            ', before anything was served, and none of its lines is an error that is known here.'
        )
    end as summary,
    sentences([
        format('{}, line {}{}.', source, line, case when cause is null then ', is the last with a time' else ' says so' end),
        format('The weights took {:.1f} GiB.', weights_gib),
        case
            when cause is distinct from 'memory_taken'
                then format('{:.1f} GiB were left for the KV pool, at {:.0f} % of GPU memory for the engine.', kv_cache_memory_gib, 100 * gpu_memory_utilization)
        end,
        format('The pool was to hold {} tokens.', spoken_count(kv_capacity_tokens)),
    ]) as evidence,
    sentences([
        case when cause is null then 'A log that was taken while the server still started looks the same.' end,
    ]) as evidence_against,
    sentences([
        case
            when cause is null
                then 'How the process ended: its exit status (137: killed, as for want of host memory), the kernel''s log (dmesg), or a log taken later.'
            when cause = 'failed' then format('The cause itself: the lines of {} before line {}.', source, line)
            when cause in ('memory_taken', 'out_of_memory') then 'Who else held GPU memory then: nvidia-smi.'
        end,
    ]) as missing,
from facts
order by engine
