-- Periodic statistics lines of the engines' logs, on absolute time.
--
-- grain: source, line, engine
-- needs: raw.engine_samples
-- column: engine                    VARCHAR     | Engine that printed the line.
-- column: sampled_at                TIMESTAMPTZ | Instant of the line; running, waiting and usage are as of the last step before it.
-- column: source                    VARCHAR     | Input it was read from.
-- column: line                      BIGINT      | Line number in that input.
-- column: prompt_tokens_per_s       DOUBLE      | As printed; what it counts differs by version.
-- column: generation_tokens_per_s   DOUBLE      | As printed.
-- column: running                   BIGINT      | Requests in the running batch.
-- column: waiting                   BIGINT      | Requests waiting; preempted and deferred ones are among them.
-- column: deferred                  BIGINT      | Waiting requests that capacity alone would not admit; NULL where the version has no such field, 0 where it prints it only above 0.
-- column: swapped                   BIGINT      | V0: requests swapped to host memory.
-- column: preemptions               BIGINT      | Preemptions in the interval, where printed.
-- column: kv_usage_ratio            DOUBLE      | Share of the KV pool held by active requests.
-- column: swa_usage_ratio           DOUBLE      | SGLang hybrid models: share of the sliding-window pool.
-- column: mamba_usage_ratio         DOUBLE      | SGLang hybrid models: share of the recurrent-state pool.
-- column: kv_used_tokens            BIGINT      | Tokens of the pool held by active requests.
-- column: waiting_tokens            BIGINT      | Prompt tokens of the waiting requests that are in no cache.
-- column: prefix_hit_ratio          DOUBLE      | As printed, over the engine's own window.
-- column: external_prefix_hit_ratio DOUBLE      | As printed.
-- check:  kv_usage_ratio between 0 and 1.005 | A usage above the whole pool is a misread line.
-- check:  running >= 0 and waiting >= 0 | Counts of requests.
with clocks as (
    from staging.clocks
),

samples as (
    from raw.engine_samples
)

select
    engine_names.engine,
    absolute_time(samples.at_utc, samples.at_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s) as sampled_at,
    samples.source,
    samples.line,
    samples.prompt_tokens_per_s,
    samples.generation_tokens_per_s,
    samples.running,
    samples.waiting,
    samples.deferred,
    samples.swapped,
    samples.preemptions,
    samples.kv_usage_ratio,
    samples.swa_usage_ratio,
    samples.mamba_usage_ratio,
    samples.kv_used_tokens,
    samples.waiting_tokens,
    samples.prefix_hit_ratio,
    samples.external_prefix_hit_ratio,
from samples
left join clocks using (source)
left join staging.input_servers using (source)
left join staging.engine_names
    on engine_names.instance is not distinct from coalesce(samples.instance, input_servers.instance)
    and engine_names.label is not distinct from samples.engine
anti join staging.repeated_lines as copies
    on copies.source = samples.source
    and samples.line between copies.first_line and copies.last_line
where within_window(absolute_time(samples.at_utc, samples.at_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s))
order by engine, sampled_at, source, line
