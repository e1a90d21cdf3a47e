-- Benchmark results, one row per result object, on absolute time; those that meet the window asked for, where one is.
--
-- grain: source, run_index
-- needs: raw.bench_runs
-- column: source              VARCHAR     | Input it was read from.
-- column: source_file         VARCHAR     | Its file name alone.
-- column: run_index           BIGINT      | Result object within the file, from 0.
-- column: client              VARCHAR     | Load generator.
-- column: model               VARCHAR     | Model name the client asked for.
-- column: started_at          TIMESTAMPTZ | First request sent; NULL where the result has no times and its date says too little.
-- column: ended_at            TIMESTAMPTZ | started_at + duration.
-- column: duration_s          DOUBLE      | Duration the client measured.
-- column: completed           BIGINT      | Requests completed.
-- column: failed              BIGINT      | Requests failed; NULL where not said.
-- column: num_prompts         BIGINT      | Requests asked for.
-- column: request_rate        DOUBLE      | Offered rate; NULL where unlimited.
-- column: max_concurrency     BIGINT      | Client-side limit of requests in flight; NULL where unlimited.
-- column: has_details         BOOLEAN     | Whether there is one entry per request.
-- column: total_input_tokens  BIGINT      | Prompt tokens.
-- column: total_output_tokens BIGINT      | Generated tokens.
-- column: aggregates          VARCHAR     | The client's own summary numbers, as JSON.
-- column: clock_error_s       DOUBLE      | Remaining error of its times.
with first_sent as (
    select source, run_index, min(start_mono_s) as first_mono_s, min(start_at) as first_at
    from raw.bench_requests
    group by all
)

select
    runs.source,
    parse_filename(runs.source) as source_file,
    runs.run_index,
    runs.client,
    runs.model,
    coalesce(
        first_sent.first_at,
        runs.start_at,
        make_timestamptz(try_cast((clocks.mono_epoch_s + first_sent.first_mono_s) * 1e6 as bigint)),
        plus_seconds(absolute_time(null, runs.date_local, clocks.zone, clocks.base_year, clocks.mono_epoch_s), -runs.duration_s)
    ) as started_at,
    plus_seconds(started_at, runs.duration_s) as ended_at,
    runs.duration_s,
    runs.completed,
    runs.failed,
    runs.num_prompts,
    runs.request_rate,
    runs.max_concurrency,
    runs.has_details,
    runs.total_input_tokens,
    runs.total_output_tokens,
    runs.aggregates,
    clocks.error_s as clock_error_s,
from raw.bench_runs as runs
left join first_sent using (source, run_index)
left join staging.clocks using (source)
where (getvariable('since') is null or ended_at >= getvariable('since'))
    and (getvariable('until') is null or started_at <= getvariable('until'))
order by runs.source, runs.run_index
