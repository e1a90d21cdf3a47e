-- What an analysis says its engines were set to, one row per setting: the unit by which two analyses are compared.
--
-- What the engines printed of themselves goes first; sizes that only gauges tell, and a ceiling that was inferred from load, stand in
-- where nothing was printed. Engines that differ have their values side by side, and so has one that a restart changed in between.
with printed as (
    select engine, key, string_agg(value_text, ' then ' order by setup) as value_text, 'stated' as origin,
    from (
        select settings.engine, settings.key, settings.value_text, min(setups.setup) as setup
        from core.life_settings as settings
        inner join core.engine_setups as setups using (engine, life)
        where setups.has_served or setups.engine not in (select engine from core.engine_setups where has_served)
        group by all
    )
    group by engine, key
),

engines as (
    unpivot (
        select
            engine,
            engine_kind,
            engine_version,
            model,
            kv_capacity_tokens::varchar as kv_capacity_tokens,
            block_size::varchar as block_size,
            num_gpu_blocks::varchar as num_gpu_blocks,
            max_num_seqs::varchar as max_num_seqs,
            max_model_len::varchar as max_model_len,
            prefix_caching::varchar as enable_prefix_caching,
            kv_connector,
        from core.engines
    )
    on columns(* exclude engine)
    into name key value value_text
),

known as (
    from printed
    union all by name
    select
        engines.engine,
        engines.key,
        engines.value_text,
        if(engines.key = 'max_num_seqs' and (select bool_or(max_num_seqs_source = 'inferred') from core.engines), 'inferred', 'stated')
            as origin,
    from engines
    anti join printed using (engine, key)
    union all by name
    select '*' as engine, 'engines' as key, count(*)::varchar as value_text, 'stated' as origin from core.engines having count(*) > 0
)

select
    key,
    string_agg(distinct value, ', ' order by value) as value,
    coalesce(any_value(roles.role), any_value(named_role(key))) as role,
    bool_or(origin = 'inferred') as is_inferred,
from (
    -- where a model lies is not which model it is; true and True are one word
    select
        key,
        origin,
        case
            when key = 'model' then regexp_extract(value_text, '[^/]+/?$')
            when lower(value_text) in ('true', 'false') then lower(value_text)
            else value_text
        end as value,
    from known
)
left join setting_roles() as roles using (key)
group by key
order by key
