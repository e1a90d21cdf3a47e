-- The catalogue of remedies: which lever helps against what, which setting it is on which engine and version, and what it costs.
--
-- Two tables, each the only place of its knowledge. `remedies` knows causes and consequences and no engine;
-- `engine_settings_known` knows engines and versions and no cause. What a lever's value should be is worked out in
-- advice.recommendations, from the run. Not in here, on purpose: a longer or shorter max_model_len (a paged pool reserves nothing
-- for it), swap_space and preemption_mode (gone from vLLM), another replica (that is buying, not setting).

-- verdict: what happened. lever: what to do. preference: the order in which levers are offered, lowest first. title, trade_off,
-- next_limit and verify_by: texts that hold for every run; the numbers of the run come beside them.
create or replace macro remedies() as table
select verdict, lever, preference, title, trade_off, next_limit, verify_by
from (values
    -- running requests lose their blocks: admit less, or admit later
    ('preemption', 'reserve_whole_prompt', 1,
        'Admit a request only when its whole prompt fits',
        'Long prompts start a little later.',
        'Growth of the answers: they can still fill the pool.',
        'Change this setting alone, replay the same load: preemptions during prefill should be gone.'),
    ('preemption', 'fewer_sequences', 2,
        'Run fewer sequences at once',
        'Requests wait before they start instead of in mid-answer.',
        'Slots: the queue then waits for max_num_seqs, and the pool has a little room.',
        'Change this setting alone and replay the same load: preemptions should all but stop; judge by tokens/s and the median '
        'time to first token whether that was worth it.'),
    ('preemption', 'no_evict_policy', 2,
        'Reserve the worst case at admission',
        'Requests queue while blocks lie free: throughput falls where answers are shorter than their limit.',
        'Admission: requests that state no realistic output limit run one by one.',
        'Change this setting alone and replay the same load: paused requests should be 0.'),
    ('preemption', 'admission_headroom', 3,
        'Keep part of the pool free at admission, for running answers to grow into',
        'That part of the pool is idle at the moment of each admission; it lowers preemptions and does not rule them out.',
        'Growth: where all running answers are long, they outgrow any headroom.',
        'Change this setting alone and replay the same load: compare preemptions, tokens/s and the longest gap between tokens.'),
    ('preemption', 'leave_it', 3,
        'Leave it as it is',
        'A few requests are paused now and then.',
        'The same pool, once load grows.',
        'Watch preemptions per finished request: act when it passes a few in a hundred.'),
    ('preemption', 'shorter_outputs', 4,
        'Ask for realistic answer lengths, or route long generations to an engine of their own',
        'Answers that really need the length are cut, or need another place to run.',
        'Prompts: they hold the rest of the pool.',
        'Set max_tokens near the 90th percentile for one class of callers alone: its share of the pool should fall, and '
        'preemptions with it.'),
    ('preemption', 'shorter_prompts', 4,
        'Send less context: tighter retrieval, shorter history',
        'Answers may lose material they needed: check their quality too.',
        'Answers: their growth holds the rest of the pool.',
        'Cut the context for one class of callers alone and replay the load: the mean tokens held by a running sequence should '
        'fall as much.'),
    ('preemption', 'more_memory', 5,
        'Give the pool the GPU memory that was measured free',
        'Less is left for activation peaks: an out-of-memory error stops the engine.',
        'Compute: more sequences in a step make every step longer.',
        'Change this setting alone: the capacity line at start-up shows the larger pool; then replay the same load.'),
    ('preemption', 'smaller_kv_entries', 6,
        'Store KV entries in 8 bits',
        'A small loss of accuracy, larger for long contexts: check answers. Not every attention backend supports it.',
        'Compute: more sequences in a step make every step longer.',
        'Change this setting alone: the capacity line at start-up should show about twice the tokens; then replay the same '
        'load.'),
    ('preemption', 'split_weights', 7,
        'Split the weights over more GPUs, so that each keeps more memory for cache',
        'Twice the GPUs for one copy of the model, and an exchange between them in every layer.',
        'The exchange between GPUs, then compute.',
        'Change this setting alone: compare the capacity line at start-up and tokens/s per GPU.'),

    -- requests wait for room and nobody is interrupted: what a request takes is the lever, slots are not
    ('queue_kv_capacity', 'larger_context', 1,
        'Give the slots a larger KV cache to share',
        'The cache takes that much more memory, on the GPU or beside it.',
        'Memory; then compute: more tokens held make every step longer.',
        'Change this setting alone and replay the same load: no request should fail.'),
    ('queue_kv_capacity', 'fewer_slots', 1,
        'Serve fewer requests at once from the shared KV cache',
        'Requests wait for a slot instead of failing.',
        'Slots: the queue then waits for them.',
        'Change this setting alone and replay the same load: no request should fail; if some still do, take one slot less.'),
    ('queue_kv_capacity', 'more_memory', 1,
        'Give the pool the GPU memory that was measured free',
        'Less is left for activation peaks: an out-of-memory error stops the engine.',
        'Compute: more sequences in a step make every step longer.',
        'Change this setting alone: the capacity line at start-up shows the larger pool; then replay the same load.'),
    ('queue_kv_capacity', 'shorter_prompts', 2,
        'Send less context: tighter retrieval, shorter history',
        'Answers may lose material they needed: check their quality too.',
        'Answers: their growth holds the rest of the pool.',
        'Cut the context for one class of callers alone and replay the load: more should run at once, and the wait should fall.'),
    ('queue_kv_capacity', 'shorter_outputs', 2,
        'Ask for realistic answer lengths, or route long generations to an engine of their own',
        'Answers that really need the length are cut, or need another place to run.',
        'Prompts: they hold the rest of the pool.',
        'Set max_tokens near the 90th percentile for one class of callers alone: more should run at once, and the wait should '
        'fall.'),
    ('queue_kv_capacity', 'smaller_kv_entries', 3,
        'Store KV entries in 8 bits',
        'A small loss of accuracy, larger for long contexts: check answers. Not every attention backend supports it.',
        'Compute: more sequences in a step make every step longer.',
        'Change this setting alone: the capacity line at start-up should show about twice the tokens; then replay the same '
        'load.'),
    ('queue_kv_capacity', 'split_weights', 4,
        'Split the weights over more GPUs, so that each keeps more memory for cache',
        'Twice the GPUs for one copy of the model, and an exchange between them in every layer.',
        'The exchange between GPUs, then compute.',
        'Change this setting alone: compare the capacity line at start-up and tokens/s per GPU.'),

    -- reusable prefixes are reclaimed before they are asked for again: keep them longer, or ask sooner
    ('prefix_eviction', 'host_tier', 1,
        'Keep reclaimed prefixes in host memory',
        'Host memory of that size, and the time to copy blocks back: worth it where copying is faster than computing them.',
        'The link to host memory, then the size of the tier.',
        'Change this setting alone and replay the same load: prompt tokens computed should fall, tokens from the external tier '
        'rise.'),
    ('prefix_eviction', 'host_tier_connector', 1,
        'Keep reclaimed prefixes in host memory, through a KV connector',
        'Another component to run, host memory, and the time to copy blocks back.',
        'The link to host memory, then the size of the tier.',
        'Configure it alone and replay the same load: prompt tokens computed should fall, external hits rise.'),
    ('prefix_eviction', 'locality', 2,
        'Bring requests with the same prefix together: in time, or on the same engine',
        'Load spreads less evenly; requests may wait for their group.',
        'The pool: more different prefixes in use at once than it holds are still reclaimed.',
        'Send one group of prefixes to one engine alone: its hit ratio should come back to what it was.'),
    ('prefix_eviction', 'smaller_kv_entries', 3,
        'Store KV entries in 8 bits, so that more prefixes stay',
        'A small loss of accuracy, larger for long contexts: check answers. Not every attention backend supports it.',
        'The number of different prefixes: twice the pool helps only where the reused ones then fit.',
        'Change this setting alone and replay the same load: the hit ratio should rise.'),
    ('offload_pressure', 'locality', 1,
        'Bring requests with the same prefix together: in time, or on the same engine',
        'Load spreads less evenly; requests may wait for their group.',
        'The pool: more different prefixes in use at once than it holds still move to the external tier and back.',
        'Send one group of prefixes to one engine alone: tokens restored should fall.'),

    -- slots are full and the pool is not
    ('queue_max_num_seqs', 'more_sequences', 1,
        'Let more sequences run at once',
        'Every step gets longer: each answer comes a little slower, and starts much sooner.',
        'The KV pool, at the number given above; before that, the time of a step.',
        'Change this setting alone and replay the same load: the wait before the first token should fall; watch KV usage and '
        'preemptions.'),
    ('queue_max_num_seqs', 'shorter_outputs', 2,
        'Ask for realistic answer lengths: a slot is free when its answer ends',
        'Answers that really need the length are cut.',
        'Slots, at a higher rate of requests.',
        'Set max_tokens near the 90th percentile for one class of callers alone: the wait should fall.'),

    -- prompts wait for their share of a step
    ('queue_token_budget', 'larger_steps', 1,
        'Let a step work off more prompt tokens',
        'Gaps between tokens of running answers grow with the step.',
        'Compute: where a step already takes as long as its tokens need, a larger one gains nothing.',
        'Change this setting alone and replay the same load: prompt tokens/s should rise; if it does not, compute was the '
        'limit: change it back.'),
    ('queue_token_budget', 'shorter_prompts', 2,
        'Send less context, or begin prompts alike so that the prefix cache serves them',
        'Answers may lose material they needed: check their quality too.',
        'Compute for the answers.',
        'Cut the context for one class of callers alone and replay the load: the wait should fall in proportion.'),

    -- something other than capacity holds requests back
    ('queue_deferred', 'more_adapters', 1,
        'Let more LoRA adapters be active at once',
        'GPU memory for each further adapter, taken from the KV pool.',
        'The number of different adapters in use at once.',
        'Change this setting alone and replay the same load: deferred requests should fall.'),
    ('queue_deferred', 'tell_deferrals_apart', 1,
        'Find out what the deferred requests wait for: a LoRA slot, a KV transfer or a grammar',
        'None: it is a measurement. Capacity settings change nothing for them.',
        'What the measurement shows.',
        'Hold back one kind of request (adapters, transfers, structured output) at a time: the kind whose absence empties the '
        'deferred queue is the cause.'),

    -- a long prefill slows every running answer
    ('prefill_interference', 'smaller_chunks', 1,
        'Give a step fewer tokens, so that a long prompt is worked off in smaller pieces',
        'Long prompts get their first token later: their work is spread over more steps.',
        'The steps'' fixed cost: pieces too small waste it, and prompts then queue for the token budget.',
        'Change this setting alone and replay the same load: the 99th percentile of inter-token latency should fall as '
        'computed, the time to first token of long prompts rise.'),
    ('prefill_interference', 'long_prompt_cap', 2,
        'Cap the piece of one long prompt in a step, and leave the rest to others',
        'Long prompts get their first token later; short ones are not slowed.',
        'Several long prompts at once still fill a step.',
        'Change this setting alone and replay the same load: the 99th percentile of inter-token latency should fall.'),
    ('prefill_interference', 'shorter_prompts', 3,
        'Send less context, begin prompts alike so that the prefix cache serves them, or compute long prompts on an engine of '
        'their own',
        'Answers may lose material they needed; a second engine for prompts must hand over its KV state.',
        'The step time of decoding alone.',
        'Leave the long prompts out of a replay of the same load: the slow gaps should be gone.'),

    -- neither the pool nor the scheduler
    ('runaway_generation', 'output_limit', 1,
        'Set an output limit on every request',
        'Answers longer than that are cut.',
        'Ordinary load.',
        'Set max_tokens for the callers of the runaway answers alone: their longest answer should be the limit.'),
    ('runaway_generation', 'default_output_limit', 2,
        'Give the server a default output limit, for callers that set none',
        'Answers longer than that are cut, for every caller that sets no limit.',
        'Ordinary load.',
        'Change this setting alone: no answer should be longer.'),
    ('imbalance', 'spread_load', 1,
        'Route by the load of each engine instead of in turn',
        'Prefix locality may fall: a router should weigh both.',
        'The capacity of all engines together.',
        'Route one engine''s surplus alone to the idlest: its queue should empty.'),
    ('client_limited', 'client_concurrency', 1,
        'Let the client send more at once',
        'More load on the server: its own queue begins to show.',
        'The server''s slots or pool.',
        'Raise the client''s limit alone and repeat: the server''s running count should rise.'),
    ('cold_start', 'warm_up', 1,
        'Send warm-up requests of usual lengths before the engine takes traffic',
        'A longer start.',
        'None: it is over once the engine is warm.',
        'Restart once with the warm-up alone: the first requests should be as fast as later ones.')
) as catalogue(verdict, lever, preference, title, trade_off, next_limit, verify_by);

-- Which setting a lever is: by engine, with its flag, the way it goes, the versions that have it (NULL: no known bound), and the
-- engine generation it works on (vLLM had two side by side from 0.8 to 0.10; NULL: any).
-- A lever that is not in here is no setting of an engine: callers, routers and clients do it.
create or replace macro engine_settings_known() as table
select lever, engine_kind, setting, flag, direction, first_version, last_version, generation
from (values
    ('fewer_sequences', 'vllm', 'max_num_seqs', '--max-num-seqs', 'lower', null, null, null),
    ('more_sequences', 'vllm', 'max_num_seqs', '--max-num-seqs', 'raise', null, null, null),
    ('admission_headroom', 'vllm', 'watermark', '--watermark', 'raise', '0.24.0', null, 'v1'),
    ('reserve_whole_prompt', 'vllm', 'scheduler_reserve_full_isl', '--scheduler-reserve-full-isl', 'set', '0.19.1', null, 'v1'),
    ('smaller_kv_entries', 'vllm', 'kv_cache_dtype', '--kv-cache-dtype', 'set', '0.4.0', null, null),
    ('split_weights', 'vllm', 'tensor_parallel_size', '--tensor-parallel-size', 'raise', null, null, null),
    ('more_memory', 'vllm', 'gpu_memory_utilization', '--gpu-memory-utilization', 'raise', null, null, null),
    ('host_tier', 'vllm', 'kv_offloading_size', '--kv-offloading-size', 'set', '0.11.1', null, 'v1'),
    ('host_tier_connector', 'vllm', 'kv_transfer_config', '--kv-transfer-config', 'set', '0.8.0', '0.11.0', 'v1'),
    ('smaller_chunks', 'vllm', 'max_num_batched_tokens', '--max-num-batched-tokens', 'lower', '0.8.0', null, 'v1'),
    ('larger_steps', 'vllm', 'max_num_batched_tokens', '--max-num-batched-tokens', 'raise', null, null, null),
    ('long_prompt_cap', 'vllm', 'long_prefill_token_threshold', '--long-prefill-token-threshold', 'lower', '0.8.3', null, 'v1'),
    ('more_adapters', 'vllm', 'max_loras', '--max-loras', 'raise', '0.4.0', null, null),
    ('default_output_limit', 'vllm', 'override_generation_config', '--override-generation-config', 'set', '0.8.0', null, null),
    ('fewer_sequences', 'sglang', 'max_running_requests', '--max-running-requests', 'lower', null, null, null),
    ('more_sequences', 'sglang', 'max_running_requests', '--max-running-requests', 'raise', null, null, null),
    ('admission_headroom', 'sglang', 'schedule_conservativeness', '--schedule-conservativeness', 'raise', null, null, null),
    ('smaller_kv_entries', 'sglang', 'kv_cache_dtype', '--kv-cache-dtype', 'set', '0.4.0', null, null),
    ('more_memory', 'sglang', 'mem_fraction_static', '--mem-fraction-static', 'raise', null, null, null),
    ('host_tier', 'sglang', 'hicache_size', '--enable-hierarchical-cache --hicache-size', 'set', '0.4.10', null, null),
    ('smaller_chunks', 'sglang', 'chunked_prefill_size', '--chunked-prefill-size', 'lower', '0.4.0', null, null),
    ('more_adapters', 'sglang', 'max_loras_per_batch', '--max-loras-per-batch', 'raise', '0.4.0', null, null),
    ('no_evict_policy', 'tensorrt_llm', 'capacity_scheduler_policy', 'capacity_scheduler_policy', 'set', null, null, null),
    ('fewer_sequences', 'tensorrt_llm', 'max_batch_size', '--max_batch_size', 'lower', null, null, null),
    ('more_sequences', 'tensorrt_llm', 'max_batch_size', '--max_batch_size', 'raise', null, null, null),
    ('fewer_sequences', 'llamacpp', 'parallel', '--parallel', 'lower', null, null, null),
    ('fewer_slots', 'llamacpp', 'parallel', '--parallel', 'lower', null, null, null),
    ('larger_context', 'llamacpp', 'ctx_size', '--ctx-size', 'raise', null, null, null),
    ('more_sequences', 'llamacpp', 'parallel', '--parallel', 'raise', null, null, null)
) as catalogue(lever, engine_kind, setting, flag, direction, first_version, last_version, generation);

-- A version as one number that sorts: 0.19.1 -> 19001. Post-releases and builds of a version count as it; NULL where it is none.
create or replace macro version_number(version) as
    try_cast(regexp_extract(version, '^v?(\d+)\.(\d+)', 1) as bigint) * 1000000
    + try_cast(regexp_extract(version, '^v?(\d+)\.(\d+)', 2) as bigint) * 1000
    + coalesce(try_cast(regexp_extract(version, '^v?\d+\.\d+\.(\d+)', 1) as bigint), 0);
