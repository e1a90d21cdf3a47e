-- What to record next time, by engine and version: the one place that knows which flag or scrape settles what the inputs left open.
--
-- Only what the version has; where no input states the version, what current ones have, with the version that brought it.
create or replace macro what_to_record(engine_kind, engine_version) as list_filter(
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
            when coalesce(engine_kind, 'vllm') = 'vllm' and coalesce(version_number(engine_version) >= version_number('0.14.1'), true)
                then '--enable-logging-iteration-details (0.14.1 and later) makes the log tell recomputed tokens.'
        end,
        case
            when coalesce(engine_kind, 'vllm') = 'vllm' and coalesce(version_number(engine_version) >= version_number('0.9.0'), true)
                then '--kv-events-config with a recorder (0.9.0 and later) tells which blocks were stored again, and for whom.'
            when engine_kind = 'sglang' then '--export-metrics-to-file tells of each request how often it was retracted and how long it waited again.'
        end,
    ],
    lambda sentence: sentence is not null
);

-- What one sample alone (a /metrics page, a statistics line) cannot show, and what would.
create or replace macro only_an_instant() as
    'One sample is one instant: how long it was so, and how often anybody was interrupted, it does not show.';
create or replace macro a_second_look() as
    'Two samples at least (a second /metrics page, a longer log): counts, rates and durations are what changes from one to the next.';
