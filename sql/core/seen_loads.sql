-- When, and by what, each engine's load was seen, and how far it went.
--
-- grain: engine
-- needs: core.engines
-- column: engine              VARCHAR     | Engine.
-- column: first_at            TIMESTAMPTZ | First sample of its load; where there is none, first observation of any kind.
-- column: last_at             TIMESTAMPTZ | Until when the last one speaks; where there is none, last observation of any kind.
-- column: samples             BIGINT      | Samples that say how many ran or waited.
-- column: origin              VARCHAR     | metrics or log: what most of them are of; NULL without samples.
-- column: max_kv_usage_ratio  DOUBLE      | Share of the KV pool held at most; NULL where never told.
-- column: max_waiting         BIGINT      | Most requests waiting.
-- column: max_running         BIGINT      | Most requests running.
-- column: step_s              DOUBLE      | Usual time from one sample to the next; 10 where there are none.
-- column: uncounted_to        TIMESTAMPTZ | Until when nothing counted, where a log shows requests running before the metrics begin; else NULL.
-- column: uncounted_from      TIMESTAMPTZ | Until when the metrics counted, where a log goes on to show requests running; NULL where they count to the end.
-- column: untold_tokens_per_s DOUBLE      | Of a log whose only line finds the engine idle: what its rates say was generated before, in a time of which nothing is known.
-- check:  first_at <= last_at | Windows.
with loads as (
    select
        engines.engine,
        coalesce(min(states.sampled_at), engines.first_seen_at) as first_at,
        coalesce(max(plus_seconds(states.sampled_at, states.scrape_s)), engines.last_seen_at) as last_at,
        count(states.sampled_at) filter (where states.running is not null or states.waiting is not null) as samples,
        mode(states.origin) as origin,
        max(states.kv_usage_ratio) as max_kv_usage_ratio,
        max(states.waiting) as max_waiting,
        max(states.running) as max_running,
        coalesce(median(states.scrape_s), 10) as step_s,
        min(states.sampled_at) filter (where states.origin = 'metrics') as scraped_from,
        min(states.sampled_at) filter (where states.origin = 'log' and states.running > 0) as logged_from,
        max(states.sampled_at) filter (where states.origin = 'metrics') as scraped_to,
        max(states.sampled_at) filter (where states.origin = 'log' and states.running > 0) as logged_to,
    from core.engines
    left join core.engine_states as states using (engine)
    group by engines.engine, engines.first_seen_at, engines.last_seen_at
),

-- a log's only line may find an engine idle and tell in its rates that it had worked: of that time nothing is known
worked as (
    select samples.engine, max(samples.generation_tokens_per_s) as tokens_per_s
    from staging.engine_samples as samples
    inner join loads using (engine)
    where loads.samples = 1 and loads.origin = 'log' and loads.max_running = 0
    group by samples.engine
)

select
    loads.* exclude (scraped_from, logged_from, scraped_to, logged_to),
    -- two scrapes: what runs before the first is in its counters soon enough, as at the begin of a window
    if(loads.logged_from < plus_seconds(loads.scraped_from, -2 * loads.step_s), loads.scraped_from, null) as uncounted_to,
    if(loads.logged_to > loads.scraped_to, loads.scraped_to, null) as uncounted_from,
    worked.tokens_per_s as untold_tokens_per_s,
from loads
left join worked using (engine)
order by loads.engine
