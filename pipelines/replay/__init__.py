"""Models of the engines' schedulers and pools, and what they tell: recomputed tokens, and what another setting would do.

`engine` is what all replays share: the load, the clock, the clients. `vllm` is vLLM's step loop over its block pool (`pool`),
`sglang` SGLang's over its radix cache (`radix`) with its admission (`sglang_admission`), each by version where versions differ,
each to be read beside the engine's own.
`vllm_settings` and `sglang_settings` say what a run tells of them and what may be asked; `engines` is the choice between them.

`kv_events` follows the pool that was recorded; `prefixes` finds in it which requests begin alike, `traces` in the trace that a
run was made from. `requests` re-enacts the requests that were recorded, or that counters and histograms describe; `whatif` asks
them of another setting. Nothing here reads a file or knows Dagster.
"""
