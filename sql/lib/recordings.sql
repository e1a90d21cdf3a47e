-- What to record next time, by engine and version: the one place that knows which flag or scrape settles what the inputs left open.

-- vLLM publishes KV events of the blocks that it keeps for reuse: without prefix caching none.
create or replace macro publishes_kv_events(engine_kind, prefix_caching) as
    coalesce(engine_kind, 'vllm') = 'vllm' and coalesce(prefix_caching, true);

-- Only what the version has; where no input states the version, what current ones have, with the version that brought it; and nothing that
-- was given.
create or replace macro what_to_record(
    engine_kind, engine_version, prefix_caching, has_iteration_lines := false, has_kv_events := false
) as list_filter(
    [
        case
            when coalesce(engine_kind, 'vllm') = 'vllm' then
                'Scrape /metrics every 15 s or less: vllm:num_preemptions_total, vllm:num_requests_waiting and '
                || case when version_number(engine_version) < version_number('0.9.2') then 'vllm:gpu_cache_usage_perc.' else 'vllm:kv_cache_usage_perc.' end
            when engine_kind = 'sglang' then 'Start it with --enable-metrics and scrape /metrics every 15 s or less: sglang:num_retracted_requests_total, sglang:token_usage, sglang:num_queue_reqs.'
            when engine_kind = 'tensorrt_llm' then 'Drain GET /metrics of trtllm-serve to a file every few seconds (enable_iter_perf_stats: true): numPausedRequests, numQueuedRequests, kvCacheStats.'
            when engine_kind = 'llamacpp' then 'Keep the server''s log at its default verbosity: requests that fail for lack of KV are said there and in no metric.'
        end,
        case
            when has_iteration_lines then null
            when coalesce(engine_kind, 'vllm') = 'vllm' and coalesce(version_number(engine_version) >= version_number('0.14.1'), true)
                then '--enable-logging-iteration-details (0.14.1 and later) makes the log tell recomputed tokens.'
        end,
        case
            when has_kv_events then null
            when publishes_kv_events(engine_kind, prefix_caching) and coalesce(version_number(engine_version) >= version_number('0.9.0'), true)
                then '--kv-events-config with a recorder (0.9.0 and later) tells which blocks were stored again, and for whom.'
            when engine_kind = 'sglang' then '--export-metrics-to-file tells of each request how often it was retracted and how long it waited again.'
        end,
    ],
    lambda sentence: sentence is not null
);

-- What would tell one thing more of a verdict, by the flags of the engine at hand; where it has none, what anybody can keep. An engine that
-- no input names is taken for vLLM. V0 of vLLM has neither KV events nor iteration lines.
create or replace macro is_vllm_v1(engine_kind, engine_generation) as
    coalesce(engine_kind, 'vllm') = 'vllm' and coalesce(engine_generation, 'v1') <> 'v0';

create or replace macro to_tell_repeated_tokens(engine_kind, engine_generation, prefix_caching) as 'How many tokens were repeated: ' || case
    when is_vllm_v1(engine_kind, engine_generation) and not publishes_kv_events(engine_kind, prefix_caching)
        then 'record iteration lines (--enable-logging-iteration-details).'
    when is_vllm_v1(engine_kind, engine_generation)
        then 'record KV events (--kv-events-config) or iteration lines (--enable-logging-iteration-details).'
    when engine_kind = 'sglang'
        then 'scrape /metrics (--enable-metrics; 0.5.18 and later count tokens computed and new ones apart), or record KV events (--kv-events-config).'
    else 'scrape /metrics, and keep the clients'' per-request results: a replay of them tells.'
end;

create or replace macro to_tell_whose_answers_paused(engine_kind) as 'Whose answers paused: keep the clients'' per-request results' || case
    when coalesce(engine_kind, 'vllm') = 'vllm' then ' or OpenTelemetry spans (--otlp-traces-endpoint).'
    when engine_kind = 'sglang' then ', or the engine''s own record of each request (--export-metrics-to-file).'
    else '.'
end;

create or replace macro to_tell_evicted_from_new(engine_kind, engine_generation) as case
    when is_vllm_v1(engine_kind, engine_generation)
        then 'KV events (--kv-events-config) tell an evicted prefix from a new one; --kv-cache-metrics shows how long idle blocks lived.'
    when engine_kind = 'sglang' then 'KV events (--kv-events-config) tell an evicted prefix from a new one.'
    else 'Send the same requests again when little else runs: prefixes that are found then had been evicted.'
end;

create or replace macro to_tell_whether_it_stepped(engine_kind, engine_generation) as 'Whether the engine stepped meanwhile: ' || case
    when is_vllm_v1(engine_kind, engine_generation)
        then 'iteration lines (--enable-logging-iteration-details), and '
    when engine_kind = 'sglang' then 'a batch line for every step (--decode-log-interval 1), and '
    when engine_kind = 'tensorrt_llm' then 'iteration lines (print_iter_log: true), and '
    else ''
end || 'the host''s CPU and network then.';

create or replace macro to_tell_output_limits(engine_kind) as 'The requests'' own max_tokens: ' || case
    when coalesce(engine_kind, 'vllm') = 'vllm' then '--enable-log-requests, or OpenTelemetry spans.'
    when engine_kind = 'sglang' then '--log-requests --log-requests-level 1.'
    else 'what the callers send.'
end;

-- What one sample alone (a /metrics page, a statistics line) cannot show, and what would.
create or replace macro only_an_instant() as
    'One sample is one instant: how long it was so, and how often anybody was interrupted, it does not show.';
create or replace macro a_second_look() as
    'Two samples at least (a second /metrics page, a longer log): counts, rates and durations are what changes from one to the next.';
-- The same where the time of the first look is not known.
create or replace macro a_dated_look() as
    'Scrape /metrics again in a minute and give both pages, each with its time above it (`echo "# scrape_unix_ms $(date +%s%3N)"`), or let '
    || '`kvpressure record --metrics URL --out DIR` do both.';
