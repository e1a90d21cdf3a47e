-- Memory the GPUs had free at their fullest moment, where the GPU exporter was scraped too.
--
-- Advice to use more GPU memory needs this measurement. Which GPU serves which engine the exporter does not say, so the fullest
-- GPU of the run speaks for all.
--
-- grain: engine
-- needs: core.engines
-- column: engine            VARCHAR | Engine.
-- column: free_memory_ratio DOUBLE  | Lowest share of GPU memory that was free.
-- column: samples           BIGINT  | Samples it is the lowest of.
-- check:  free_memory_ratio between 0 and 1 | A share.
with memory as (
    select
        engine,
        labels,
        sampled_at,
        max(value) filter (where signal = 'gpu_free_mib') as free_mib,
        max(value) filter (where signal = 'gpu_used_mib') as used_mib,
    from staging.metric_samples
    inner join signals() as signals using (name)
    where signal in ('gpu_free_mib', 'gpu_used_mib') and within_window(sampled_at)
    group by all
),

lowest as (
    select min(ratio(free_mib, free_mib + used_mib)) as free_memory_ratio, count(*) as samples
    from memory
    where free_mib is not null and used_mib is not null
)

select engines.engine, lowest.free_memory_ratio, lowest.samples,
from core.engines
cross join lowest
where lowest.samples > 0
order by engines.engine
