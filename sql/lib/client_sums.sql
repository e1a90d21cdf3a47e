-- What load generators call their sums. A factor turns them into our units; of several keys for one quantity the lowest preferred is used.
-- A name that only one engine has for what it exports says which it is.
create or replace macro client_sum_names() as table
select key, quantity, factor, preferred, case when key in ('max_token_usage', 'retractions') then 'sglang' end as engine_kind,
from (values
    -- vllm bench serve and sglang bench_serving
    ('median_ttft_ms', 'ttft_p50_s', 0.001, 1),
    ('p99_ttft_ms', 'ttft_p99_s', 0.001, 1),
    ('median_itl_ms', 'itl_p50_s', 0.001, 1),
    ('p99_itl_ms', 'itl_p99_s', 0.001, 1),
    ('max_itl_ms', 'longest_gap_s', 0.001, 1),
    ('output_throughput', 'output_tokens_per_s', 1.0, 1),
    ('request_throughput', 'requests_per_s', 1.0, 1),
    ('request_goodput', 'goodput_per_s', 1.0, 1),
    -- InferenceX, which writes seconds and no unit
    ('median_ttft', 'ttft_p50_s', 1.0, 3),
    ('p99_ttft', 'ttft_p99_s', 1.0, 3),
    ('median_tpot', 'itl_p50_s', 1.0, 3),
    ('p99_tpot', 'itl_p99_s', 1.0, 3),
    -- benchmark reports of llm-d
    ('latency.time_to_first_token.p50', 'ttft_p50_s', 1.0, 2),
    ('latency.inter_token_latency.p50', 'itl_p50_s', 1.0, 2),
    ('throughput.output_token_rate.mean', 'output_tokens_per_s', 1.0, 2),
    ('throughput.request_rate.mean', 'requests_per_s', 1.0, 2),
    ('engine.kv_cache_usage.max', 'kv_usage_ratio', 0.01, 1),
    ('engine.running_requests.max', 'most_running', 1.0, 1),
    ('engine.waiting_requests.max', 'most_waiting', 1.0, 1),
    -- GuideLLM
    ('time_to_first_token_ms.successful.median', 'ttft_p50_s', 0.001, 1),
    ('time_to_first_token_ms.successful.percentiles.p99', 'ttft_p99_s', 0.001, 1),
    ('inter_token_latency_ms.successful.median', 'itl_p50_s', 0.001, 1),
    ('inter_token_latency_ms.successful.percentiles.p99', 'itl_p99_s', 0.001, 1),
    ('output_tokens_per_second.successful.mean', 'output_tokens_per_s', 1.0, 1),
    ('requests_per_second.successful.mean', 'requests_per_s', 1.0, 1),
    -- tables with one line a level; a median of tokens per request stands for the time between them where there is nothing better
    ('ttft_p50_s', 'ttft_p50_s', 1.0, 1),
    ('ttft_p99_s', 'ttft_p99_s', 1.0, 1),
    ('tpot_p50_ms', 'itl_p50_s', 0.001, 2),
    ('tpot_p99_ms', 'itl_p99_s', 0.001, 2),
    ('maxitl_p99_s', 'longest_gap_s', 1.0, 1),
    ('out_tok_s', 'output_tokens_per_s', 1.0, 1),
    ('goodput_rps', 'goodput_per_s', 1.0, 1),
    ('max_token_usage', 'kv_usage_ratio', 1.0, 1),
    ('retractions', 'preemptions', 1.0, 1),
    -- inference-perf: the life of its requests, and beside it what it asked Prometheus for
    ('latency.time_to_first_token.median', 'ttft_p50_s', 1.0, 1),
    ('latency.time_to_first_token.p99', 'ttft_p99_s', 1.0, 1),
    ('latency.inter_token_latency.median', 'itl_p50_s', 1.0, 1),
    ('latency.inter_token_latency.p99', 'itl_p99_s', 1.0, 1),
    ('latency.inter_token_latency.max', 'longest_gap_s', 1.0, 1),
    ('throughput.output_tokens_per_sec', 'output_tokens_per_s', 1.0, 1),
    ('throughput.requests_per_sec', 'requests_per_s', 1.0, 1),
    ('load_summary.requested_rate', 'offered_rate', 1.0, 1),
    ('load_summary.achieved_rate', 'sent_rate', 1.0, 1),
    ('kv_cache_usage_percentage.p99', 'kv_usage_ratio', 1.0, 1),
    ('num_preemptions_total.mean', 'preemptions', 1.0, 1),
    ('queue_len.mean', 'waiting', 1.0, 1)
) as catalogue(key, quantity, factor, preferred);
