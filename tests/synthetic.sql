-- The tables of `synthetic.analysis()`: one engine's calm, storm of preemptions and calm again, for each engine named.
create table runs as select $run as run, timestamptz '2026-11-29 13:08:00+00' as started_at,
    timestamptz '2026-11-29 13:13:00+00' as ended_at, 5 as sources, 0.04::double as clock_error_s;

create table names as select unnest($engines::varchar[]) as engine;

create table engines as select $run as run, engine, 'vllm' as engine_kind, '0.32.0' as engine_version, 'v1' as engine_generation,
    $model as model, 4096 as kv_capacity_tokens, 32 as block_size, 128 as num_gpu_blocks, 32 as max_num_seqs,
    'argument' as max_num_seqs_source, 2048 as max_num_batched_tokens, true as prefix_caching from names;

create table timeline as
with ticks as (
    select engine, second, second between 70 and 190 as storm, 0.5 + 0.5 * sin(second / 9.0) as wave,
    from names, range(0, 300, 5) as ticks(second)
)
select $run as run, engine, timestamptz '2026-11-29 13:08:00+00' + to_seconds(second) as bucket_at, 5.0::double as bucket_s,
    if(storm, 18 + 6 * wave, 4 + 3 * wave) as running, if(storm, 9 + 14 * wave, 0.0) as waiting, 0.0 as deferred,
    if(storm, 0.93 + 0.07 * wave, 0.2 + 0.15 * wave) as kv_usage_ratio, if(storm, floor(3.5 * wave), 0.0) as preemptions,
    if(storm, 400 + 300 * wave, 150 * wave) as prompt_tokens_per_s, if(storm, 350 - 80 * wave, 120.0 + 20 * wave) as generation_tokens_per_s,
    if(storm, 160 * wave, 0.0) as recomputed_tokens_per_s, if(storm, 0.1, 0.62) + 0.1 * wave as prefix_hit_ratio,
    if(storm, 2.1 + wave, 0.11) as ttft_p50_s, if(storm, 6.2 + 3 * wave, 0.3) as ttft_p99_s,
    if(second > 240, null, if(storm, 0.05, 0.03)) as itl_p50_s, if(second > 240, null, if(storm, 0.4 + 1.4 * wave, 0.06)) as itl_p99_s,
    0.2 as queue_p50_s, 1.4 as queue_p99_s, null::double as gpu_util_ratio, null::double as useful_token_ratio,
from ticks;

create table verdicts as
select $run as run, engine, timestamptz '2026-11-29 13:09:10+00' as window_start, timestamptz '2026-11-29 13:11:10+00' as window_end,
    'preemption' as verdict, 63.0 as severity, 0.95 as confidence, true as is_primary,
    '51 running requests were preempted: their answers stopped for 4.2 s on average because the KV pool was full. ' || $hostile as summary,
    ['num_preemptions_total rose by 51 while KV usage was 93 to 100 %.', '38 streams paused, together for 214 s. ' || $hostile] as evidence,
    []::varchar[] as evidence_against, ['KV events (--kv-events-config) would narrow the recomputed tokens.'] as missing,
    timestamptz '2026-11-29 13:09:50+00' as peak_at, null::varchar as title,
from names
union all by name
select $run, engine, timestamptz '2026-11-29 13:09:15+00' as window_start, timestamptz '2026-11-29 13:11:00+00' as window_end,
    'queue_kv_capacity' as verdict, 48.0 as severity, 0.9 as confidence, false as is_primary,
    '84 requests waited for KV room.' as summary, ['23 waited at most.'] as evidence, []::varchar[] as evidence_against,
    []::varchar[] as missing, null::timestamptz as peak_at from names
union all by name
select $run, engine, timestamptz '2026-11-29 13:12:00+00' as window_start, timestamptz '2026-11-29 13:12:30+00' as window_end,
    'prefill_interference' as verdict, 24.0 as severity, 0.6 as confidence, false as is_primary, 'Long prefills slowed every stream.' as summary,
    null::varchar[] as evidence, null::varchar[] as evidence_against, null::varchar[] as missing, null::timestamptz as peak_at from names
union all by name
select $run, engine, timestamptz '2026-11-29 13:08:00+00' as window_start, timestamptz '2026-11-29 13:09:10+00' as window_end,
    'healthy' as verdict, 0.0 as severity, 0.9 as confidence, false as is_primary, 'No pressure for 70 s.' as summary,
    ['KV usage at most 35 %.'] as evidence, []::varchar[] as evidence_against, []::varchar[] as missing, null::timestamptz as peak_at from names;

create table preemptions as select $run as run, engine, 49.0::double as count_low, 51.0::double as count_best, 53.0::double as count_high,
    'preemption_counter' as method, 'the preemption counter of /metrics' as told_by from names;

create table waste as
select $run as run, engine, 'preemption_recompute' as kind, 30120::bigint as tokens_low, 38412::bigint as tokens_best, 45800::bigint as tokens_high,
    0.095::double as share_low, 0.121::double as share_best, 0.144::double as share_high, 11.0::double as gpu_seconds_low,
    14.2::double as gpu_seconds_best, 17.0::double as gpu_seconds_high, 0.008::double as cost_low, 0.0104::double as cost_best,
    0.0125::double as cost_high, 'replay' as method, 'a replay of the recorded requests' as told_by, 'counters and requests' as evidence, null::varchar as contradiction, null::varchar[] as missing_series from names
union all by name
select $run, engine, 'prefix_refill' as kind, 0::bigint as tokens_low, 5200::bigint as tokens_best, 21000::bigint as tokens_high, 'capacity_bound' as method, 'the amount computed beyond the pool''s size, which only bounds it' as told_by from names
union all by name
select $run, engine, 'offload_restore' as kind, 'not_told' as method, 'no input' as told_by from names;

create table queue_time as from (
    select $run as run, engine, unnest(['kv_capacity', 'max_num_seqs', 'unknown', 'deferred']) as cause,
        unnest([83.0, 12.5, 4.0, 0.0]) as seconds, unnest([584.9, 40.2, null, 0.0]) as request_seconds from names
);

create table requests as
select 'bench.json/' || number as request_key, engine, $file as source_file, 0 as run_index, number::bigint as request_index,
    case when number % 2 = 0 then $hostile || 'cmpl-' || number end as request_id,
    if(number between 25 and 70, 2.0 + number % 5, 0.02)::double as queue_s, 0.3::double as prefill_s, queue_s + prefill_s as ttft_s,
    (5.0 + number % 7 + if(number between 25 and 70 and number % 3 = 0, 6, 0))::double as decode_s, 0.0 as client_queue_s,
    timestamptz '2026-11-29 13:08:05+00' + to_seconds(number * 2.6) as arrived_at, arrived_at + to_seconds(ttft_s) as first_token_at,
    first_token_at + to_seconds(decode_s) as finished_at, 200 + number as input_tokens, 180 as output_tokens, false as is_failed,
from range(0, 110) as numbers(number), (select first(engine) as engine from names);

create table stalls as
select $run as run, engine, request_id, source_file, request_index, first_token_at + to_seconds(2.0) as started_at,
    1.5 + (number * 7919 % 50) / 10.0 as duration_s,
    case when number % 11 = 0 then 'unknown' when number % 7 = 0 then 'prefill_interference' else 'preemption' end as cause, 40::bigint as tokens_before,
    if(cause = 'preemption', 0.4::double, null) as rebuild_s, if(cause = 'preemption', duration_s - 0.5, null) as waited_s,
from (select *, request_index as number from requests) where number between 25 and 70 and (number % 3 = 0 or number % 7 = 0);

create table evictions as
select $run as run, engine, bucket_at, if(preemptions > 0, 12.0, 0.0) as evicted_blocks, if(preemptions > 0, 384.0, 0.0) as evicted_tokens,
    if(preemptions > 1, 128.0, 0.0) as refilled_tokens from timeline;

create table pool_use as
select $run as run, engine, bucket_at, bucket_s, kv_usage_ratio as active_ratio, 0.5 * (1 - kv_usage_ratio) as reusable_ratio,
    0.5 * (1 - kv_usage_ratio) as free_ratio from timeline;

create table recommendations as
select $run as run, engine, 1 as rank, 'Run fewer requests at once' as title, 'max_num_seqs' as setting, '32' as from_value, '16' as to_value,
    'No preemption at this load: 38 answers would not have stopped; about 12 % more useful tokens.' as expected_effect,
    'Requests wait before their first token instead: median TTFT rises by about 1 s.' as trade_off,
    'A replay of the 110 recorded requests. ' || $hostile as evidence, 'vllm:num_preemptions_total stays flat over the same load.' as verify_by from names
union all by name
select $run, engine, 2 as rank, 'Give the pool more room' as title, 'gpu_memory_utilization' as setting, null::varchar as from_value, '0.92' as to_value,
    'The pool grows by a third.' as expected_effect, null::varchar as trade_off, null::varchar as evidence, null::varchar as verify_by from names;

create table data_quality as from (values
    ($run, $file, 'truncated', 'warning', 3::bigint, 'The last 3 lines are cut off. ' || $hostile),
    ($run, 'server.log', 'year_assumed', 'info', 1::bigint, 'The log has no year: 2026 was taken from the metrics.')
) as rows(run, source, flag, severity, count, detail);

create table sweep_levels as
select $run as run, $file as sweep, 'concurrency' as dimension, level::double as level, 20::bigint * level as requests,
    least(1.0, level / 20.0) as kv_usage_max, least(level, 20)::double as running, greatest(0, level - 20)::double as waiting,
    greatest(0, 9 * (level - 16))::double as preemptions, 0.01 * greatest(0, level - 16) as recomputed_share, 0.05 * level as ttft_p50_s,
    0.1 * level as ttft_p99_s, 0.01 * level as itl_p99_s, 0.2 * level as longest_gap_s, 0.2 * level as tail_s,
    100.0 * least(level, 18) as useful_tokens_per_s, 0.5 * level as goodput_per_s
from (values (4), (8), (16), (24), (32)) as levels(level);

create table sweep_knee as
select $run as run, $file as sweep, 'concurrency' as dimension, 16.0::double as knee_level, 16.0::double as cache_limit_low,
    24.0::double as cache_limit_high, 'The knee lies between concurrency 16 and 24. ' || $hostile as summary,
    ['The sweep stopped too early. ' || $hostile] as remarks;

create table sources as from (values
    ($file, '/home/alice/' || $file, 'vllm_bench_json', 'vllm', 120000::bigint, 1::bigint, 1::bigint, 0::bigint, 0::bigint, null::bigint, null::varchar),
    ('server.log', '/home/alice/server.log', 'vllm_log', 'vllm', 90000::bigint, 1200::bigint, 900::bigint, 298::bigint, 2::bigint, 17::bigint, null::varchar)
) as rows(source, path, format, engine_kind, bytes, lines, lines_used, lines_ignored, lines_not_understood, first_not_understood, error);

create schema core;
create table core.requests as from requests;
create table core.client_latencies as from (values
    ($file, $file, 0::bigint, null::timestamptz, 640::bigint, 3::bigint, 109.8::double, 121.6::double, 0.2112::double, 0.2586::double, true)
) as rows(source, source_file, run_index, started_at, completed, failed, ttft_p50_s, ttft_p99_s, itl_p50_s, itl_p99_s, is_alone);
create table core.sequence_lengths as from (
    select engine, unnest(['calm', 'pressure']) as scope, 55::bigint as requests, unnest([150.0, 210.0])::double as prompt_p50,
        300.0::double as prompt_p90, 330.0::double as prompt_p99, unnest([120.0, 180.0])::double as output_p50,
        240.0::double as output_p90, 260.0::double as output_p99, 'requests' as method from names
);
drop table requests;
drop table names;
