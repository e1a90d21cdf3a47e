-- What was given that shows no engine's load, by why it does not: for the verdict of a run in which nothing else can be said.
--
-- The reasons are asked in this order, so that an input has one: a benchmark that sent nothing, times outside the window asked for,
-- clients' results alone, a recorder that did not reach the engine, no time at all, and anything else that says nothing of load.
--
-- grain: reason
-- needs: raw.sources
-- column: reason   VARCHAR     | no_requests, outside_window, not_reached, no_time, clients_only or says_nothing.
-- column: sources  BIGINT      | Inputs it holds for.
-- column: names    VARCHAR     | Their names, the first three.
-- column: lines    BIGINT      | Lines of them that were used.
-- column: requests BIGINT      | Requests of clients in them; what several results hold counts once.
-- column: failed   BIGINT      | Those of them that failed.
-- column: detail   VARCHAR     | Of what was not reached: how often each address was asked in vain, and why the last time.
-- column: first_at TIMESTAMPTZ | Earliest time in them; NULL where they have none.
-- column: last_at  TIMESTAMPTZ | Latest time in them.
-- check:  sources > 0 | A reason holds for something.
with clients as (
    select
        runs.source,
        coalesce(max(asked.requests), sum(runs.completed + coalesce(runs.failed, 0))) as requests,
        coalesce(max(asked.failed), sum(runs.failed)) as failed,
        min(asked.first_mono_s) as first_mono_s,
        max(asked.last_mono_s) as last_mono_s,
    from raw.bench_runs as runs
    left join (
        select
            source,
            count(*) as requests,
            count(*) filter (where is_failed) as failed,
            min(start_mono_s) as first_mono_s,
            max(start_mono_s) as last_mono_s,
        from raw.bench_requests
        group by source
    ) as asked using (source)
    group by runs.source
),

-- a recorder's own account has its times, and says why nothing else is there
recorders as (
    select
        source,
        string_agg(format('{} scrapes of {} failed ({})', scrapes, subject, why), '; ' order by subject) filter (where scrapes > 0) as missed,
    from (
        select
            source,
            subject,
            sum(count) filter (where event = 'scrapes_missed') as scrapes,
            max_by(rtrim(detail, '?.'), at_utc) filter (where event = 'scrapes_missed') as why,
        from raw.recordings
        group by source, subject
    )
    group by source
),

described as (
    select
        sources.source,
        sources.lines_used,
        recorders.missed,
        clients.requests,
        clients.failed,
        sources.source in (select source from staging.repeated_results) as is_repeated,
        coalesce(
            times.first_utc,
            make_timestamptz(try_cast((clocks.mono_epoch_s + clients.first_mono_s) * 1e6 as bigint)),
            make_timestamptz(try_cast((clocks.mono_epoch_s + times.first_counted_s) * 1e6 as bigint)),
            absolute_time(null, times.first_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s),
            clocks.placed_at
        ) as first_at,
        coalesce(
            times.last_utc,
            make_timestamptz(try_cast((clocks.mono_epoch_s + clients.last_mono_s) * 1e6 as bigint)),
            make_timestamptz(try_cast((clocks.mono_epoch_s + times.last_counted_s) * 1e6 as bigint)),
            absolute_time(null, times.last_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s),
            clocks.placed_at
        ) as last_at,
        case
            when clients.requests = 0 then 'no_requests'
            when last_at < getvariable('since')::timestamptz or first_at >= getvariable('until')::timestamptz then 'outside_window'
            when clients.source is not null then 'clients_only'
            when recorders.missed is not null then 'not_reached'
            when first_at is null and recorders.source is null then 'no_time'
            else 'says_nothing'
        end as reason,
    from raw.sources as sources
    left join staging.clock_sources as times using (source)
    left join staging.clocks as clocks using (source)
    left join clients using (source)
    left join recorders using (source)
    where sources.format is not null
)

select
    reason,
    count(*) as sources,
    concat(
        array_to_string(list(source order by source)[:3], ', '),
        case when count(*) > 3 then format(' and {} more', count(*) - 3) end
    ) as names,
    sum(lines_used)::bigint as lines,
    sum(requests) filter (where not is_repeated)::bigint as requests,
    sum(failed) filter (where not is_repeated)::bigint as failed,
    string_agg(missed, '; ' order by source) as detail,
    min(first_at) as first_at,
    max(last_at) as last_at,
from described
group by reason
order by reason
