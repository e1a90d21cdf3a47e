-- What to know of the engines' settings before trusting the answer: those that a restart changed, and those that cannot be so.
--
-- grain: source, flag
-- needs: core.engine_setups or raw.sources
-- column: source   VARCHAR | Engine, or input, it is about.
-- column: flag     VARCHAR | Short name of the condition.
-- column: severity VARCHAR | info, warning or error.
-- column: count    BIGINT  | How many settings or starts it concerns.
-- column: detail   VARCHAR | One sentence with the numbers.
with known as (
    select setups.engine, setups.setup, setups.setup_start, lives.is_stated, settings.key, settings.value_text
    from core.engine_setups as setups
    inner join core.engine_lives as lives using (engine, life)
    inner join core.life_settings as settings using (engine, life)
    left join setting_roles() as roles using (key)
    where coalesce(roles.role, named_role(settings.key)) in ('pool', 'admission', 'other')
    union all
    select engine, setup, setup_start, true, 'kv_capacity_tokens', kv_capacity_tokens::varchar
    from core.engine_setups
    where kv_capacity_tokens is not null
),

pairs as (
    select
        later.engine,
        later.setup,
        later.setup_start,
        later.key,
        earlier.value_text as value_before,
        later.value_text as value_after,
    from known as later
    inner join known as earlier on earlier.engine = later.engine and earlier.key = later.key and earlier.setup = later.setup - 1
    where later.value_text <> earlier.value_text
    union all
    select earlier.engine, earlier.setup + 1, setups.setup_start, earlier.key, earlier.value_text, null
    from known as earlier
    inner join core.engine_setups as setups on setups.engine = earlier.engine and setups.setup = earlier.setup + 1
    anti join known as later on later.engine = earlier.engine and later.key = earlier.key and later.setup = earlier.setup + 1
    union all
    select later.engine, later.setup, later.setup_start, later.key, null, later.value_text
    from known as later
    anti join known as earlier on earlier.engine = later.engine and earlier.key = later.key and earlier.setup = later.setup - 1
    where later.setup > 1
),

-- what bears on the verdicts first
told as (
    select
        engine,
        setup,
        setup_start,
        count(*) as settings,
        list(
            format('{} from {} to {}', key, coalesce(value_before, 'what is not said'), coalesce(value_after, 'what is not said'))
            order by
                value_before is null or value_after is null,
                list_position(['max_num_seqs', 'kv_capacity_tokens', 'max_num_batched_tokens', 'gpu_memory_utilization'], key) nulls last,
                key
        ) as changes,
    from pairs
    group by engine, setup, setup_start
),

-- parts of a rotated log have one stem; logs called otherwise may be of two servers
files as (
    select
        told.engine,
        list_sort(list(distinct settings.source)) as sources,
        count(distinct log_stem(settings.source)) as logs,
    from (select distinct engine from told) as told
    inner join staging.settings on settings.engine in (told.engine, '*')
    group by told.engine
),

changed as (
    select
        numbered.engine as source,
        'settings_changed' as flag,
        'warning' as severity,
        sum(settings) as count,
        concat(
            case
                when any_value(files.logs) > 1 then format(
                    '{} and {} are taken for one server, started anew; if they are of two, analyze each alone. ',
                    any_value(files.sources[1]), any_value(files.sources[2])
                )
            end,
            string_agg(
                format(
                    'The restart of {} changed {}{}.',
                    strftime(setup_start, '%Y-%m-%d %H:%M:%S UTC'),
                    array_to_string(changes[:3], ', '),
                    case when len(changes) > 3 then format(' and {} more', len(changes) - 3) else '' end
                ),
                ' ' order by setup
            ) filter (where nth <= 3),
            case when max(nth) > 3 then format(' So did {} later ones.', max(nth) - 3) else '' end,
            ' Each time is judged by its own settings; what needs one of them for the whole run is not told (--since or --until '
            'analyzes one time alone).'
        ) as detail,
    from (select *, row_number() over (partition by engine order by setup) as nth from told) as numbered
    left join files on files.engine = numbered.engine
    group by numbered.engine
),

outrun as (
    select
        setups.engine as source,
        'setting_outrun' as flag,
        'warning' as severity,
        count(distinct setups.setup) as count,
        format(
            'max_num_seqs {} was said, and {} requests ran at once: another start of the engine said it, so it is not used.',
            arg_min(settings.value_text, setups.setup), max(states.running)
        ) as detail,
    from core.engine_setups as setups
    inner join core.life_settings as settings on settings.engine = setups.engine and settings.life = setups.life
    inner join core.engine_states as states
        on states.engine = setups.engine and is_within(states.sampled_at, setups.setup_start, setups.setup_end)
    where settings.key = 'max_num_seqs' and setups.max_num_seqs_source is distinct from 'argument'
    group by setups.engine
),

without_settings as (
    select
        source,
        'settings_not_scraped' as flag,
        'info' as severity,
        1 as count,
        'AIPerf leaves out the series that carry settings: the size of the KV pool must come from the engine''s log.' as detail,
    from raw.sources
    where format in ('aiperf_server_metrics', 'aiperf_server_parquet')
)

select source, flag, severity, count::bigint as count, detail
from (
    from changed
    union all by name
    from outrun
    union all by name
    from without_settings
)
order by source, flag
