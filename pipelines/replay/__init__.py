"""The model of the engine's scheduler and block pool, and what it tells: recomputed tokens, and what another setting would do.

`pool` is the block pool, `scheduler` the engine's step loop over it, by version where versions differ. `kv_events` follows the
pool that was recorded, `prefixes` finds in it which requests begin alike. `requests` re-enacts the requests that were recorded,
or that counters and histograms describe; `whatif` asks them of another setting. Nothing here reads a file or knows Dagster.
"""
