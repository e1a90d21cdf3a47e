"""Recording a running engine into a folder that `analyze` takes: its metrics, its KV-cache events, its log.

`parts` is the only way to the disk: append-only, bounded, safe against being killed. `scrapes`, `kv_stream` and `log_tail` each
follow one thing of the engine, `scrub` takes out what users wrote, `journal` says what was not recorded, and `recorder` runs
them until told to stop. Nothing here knows DuckDB or Dagster.
"""
