-- Which server an input is of, where it does not say so itself: told by its name, or by the inputs beside it.
--
-- A file or folder called as a server that another input names is of that server: `vllm-0.log` of the pod `vllm-0`. Other logs are of
-- one server, which rotated its log or was started again. That cannot be where two of them show different loads at the same time, where
-- one starts while the other goes on to serve, or where they are of different engines: then each is of a server of its own, called as
-- its file. So it is where each begins with a start of its own, their names differ by an ordinal only, `vllm-0.log` and `vllm-1.log`, and
-- they were there at one time or were set up otherwise: replicas. One after the other and set up alike, they are runs of one server; a
-- rotated log goes on without a start, and its parts are `.1` and `.2`.
--
-- grain: source
-- needs: raw.sources
-- column: source   VARCHAR | Input.
-- column: instance VARCHAR | The server, as the inputs call it that name it, or as the file is called.
-- column: told_by  VARCHAR | name, others: the logs beside it, or ordinal: it is called as one of several replicas.
with labelled as (
    -- their own lines name their servers
    select distinct source from raw.engine_samples where instance is not null
),

samples as (
    select
        samples.source,
        samples.engine as label,
        absolute_time(samples.at_utc, samples.at_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s) as sampled_at,
        coalesce(samples.running, -1) as running,
        coalesce(samples.waiting, -1) as waiting,
        coalesce(samples.kv_usage_ratio, -1) as kv_usage_ratio,
    from raw.engine_samples as samples
    left join staging.clocks using (source)
    where samples.source not in (select source from labelled)
),

-- a log lives from its first line with a stamp to its last, whatever they say
lines as (
    select source, line, at_utc, at_local, process, null as event from raw.engine_samples
    union all
    select source, line, at_utc, at_local, process, null as event from raw.iteration_steps
    union all
    select source, line, at_utc, at_local, process, event from raw.engine_events
    union all
    select source, line, at_utc, at_local, process, null as event from raw.request_lines
    union all
    select source, line, at_utc, at_local, null as process, null as event from raw.engine_config
),

stamped as (
    select
        lines.source,
        lines.line,
        lines.process,
        lines.event,
        absolute_time(lines.at_utc, lines.at_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s) as said_at,
    from lines
    left join staging.clocks using (source)
    where lines.source in (select source from samples)
),

lives as (
    select source, min(said_at) as first_at, max(said_at) as last_at
    from stamped
    group by source
),

starts as (
    select source, line, process, said_at as started_at from stamped where event = 'engine_start'
),

logs as (
    select distinct samples.source, samples.label, lives.first_at, lives.last_at
    from samples
    inner join lives using (source)
),

pairs as (
    select
        one.source,
        other.source as beside,
        one.label,
        greatest(one.first_at, other.first_at) as from_at,
        least(one.last_at, other.last_at) as to_at,
    from logs as one
    inner join logs as other
        on other.source <> one.source
        and other.label is not distinct from one.label
        and other.first_at < one.last_at
        and one.first_at < other.last_at
),

-- a copy says the same within two seconds of it: lines are stamped to the second, by the engine or by who collected them
copies as (
    select distinct source, label, epoch(sampled_at)::bigint + unnest([-2, -1, 0, 1, 2]) as second, running, waiting, kv_usage_ratio
    from samples
    where source in (select source from pairs)
),

-- what one of a pair showed in their common time and the other did not
own as (
    select pairs.source, pairs.beside, max(samples.sampled_at) as last_at
    from pairs
    inner join samples
        on samples.source = pairs.source
        and samples.label is not distinct from pairs.label
        and samples.sampled_at between pairs.from_at and pairs.to_at
    left join copies
        on copies.source = pairs.beside
        and copies.label is not distinct from samples.label
        and copies.second = epoch(samples.sampled_at)::bigint
        and copies.running = samples.running
        and copies.waiting = samples.waiting
        and copies.kv_usage_ratio = samples.kv_usage_ratio
    where copies.source is null
    group by pairs.source, pairs.beside
    having count(*) >= 2 -- a line may be cut
),

-- the other started while this one was there, which goes on to show loads that the other does not, without a start of its own
outlived as (
    select distinct own.source, own.beside
    from own
    inner join lives using (source)
    inner join starts as others
        on others.source = own.beside
        and others.started_at > lives.first_at + interval 2 seconds
        and others.started_at < own.last_at
    where not exists (
        from starts
        where starts.source = own.source
            and starts.started_at between others.started_at - interval 2 seconds and own.last_at
    )
),

apart as (
    select
        exists (from own as one inner join own as other on other.source = one.beside and other.beside = one.source)
        or exists (from outlived)
        or (
            select count(distinct sources.engine_kind) > 1
            from raw.sources as sources
            where sources.source in (select source from logs)
        ) as is_so,
),

-- rotated parts have one stem: server.log, server.log.1, server.log.2026-11-29.gz
stems as (
    select
        sources.source,
        regexp_extract(sources.source, '[^/]+$') as file,
        log_stem(file) as stem,
        replace(regexp_replace(sources.source, '/?[^/]+$', ''), '/', '.') as folder,
        count(distinct folder) over (partition by stem) > 1 as is_in_several,
    from raw.sources as sources
    where sources.source in (select source from logs)
),

-- what a server was started with: of what it says of itself, that which somebody set
told as (
    select config.source, config.key, config.value_text
    from raw.engine_config as config
    left join setting_roles() as roles using (key)
    where coalesce(roles.role, named_role(config.key)) in ('pool', 'admission', 'other')
),

-- names that an ordinal alone sets apart, and whether each begins with its start
openings as (
    select
        stems.folder,
        stems.stem,
        regexp_extract(stems.stem, '^(.*[A-Za-z].*[-_])(\d{1,3})$', ['name', 'ordinal']) as called,
        coalesce(min(starts.started_at) <= min(seen.first_sample_at), false) as has_start,
        min(lives.first_at) as first_at,
        max(lives.last_at) as last_at,
        list_sort(list(distinct concat(told.key, '=', told.value_text)) filter (where told.key is not null)) as settings,
    from stems
    inner join lives using (source)
    inner join (select source, min(sampled_at) as first_sample_at from samples group by source) as seen using (source)
    left join starts using (source)
    left join told using (source)
    group by stems.folder, stems.stem
),

-- replicas are there at one time, or differ; else the server was started again, with a log for each run
replicas as (
    select one.folder, one.stem
    from openings as one
    inner join openings as other
        on other.folder = one.folder and other.called.name = one.called.name and other.stem <> one.stem
    where one.called.ordinal <> ''
    group by one.folder, one.stem
    having bool_and(one.has_start and other.has_start)
        and bool_or(other.first_at < one.last_at and one.first_at < other.last_at or other.settings is distinct from one.settings)
),

servers as (
    select distinct instance, regexp_replace(instance, ':\d+$', '') as host from staging.metric_servers where instance is not null
    union
    select distinct instance, instance as host from raw.engine_samples where instance is not null
),

named as (
    select pieces.source, servers.instance
    from (
        select source, unnest(string_split(source, '/')) as piece
        from raw.sources
        where source not in (select source from labelled)
    ) as pieces
    inner join servers
        on pieces.piece = servers.host
        or starts_with(pieces.piece, concat(servers.host, '.'))
        or starts_with(pieces.piece, concat(servers.host, '-'))
        or starts_with(pieces.piece, concat(servers.host, '_'))
    qualify row_number() over (partition by pieces.source order by length(servers.host) desc, servers.instance) = 1
)

select source, instance, 'name' as told_by from named
union all
select
    stems.source,
    if(stems.is_in_several and stems.folder <> '', concat(stems.folder, '.', stems.stem), stems.stem) as instance,
    if(apart.is_so, 'others', 'ordinal') as told_by,
from stems
cross join apart
where (apart.is_so or exists (from replicas)) and stems.source not in (select source from named)
order by source
