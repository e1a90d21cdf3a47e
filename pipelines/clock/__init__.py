"""One time axis: how each source's own clock is laid on UTC, from what the sources themselves show. Makes `staging.clocks`.

    INFO 11-29 13:12:06 … Received request cmpl-bench-fda5f269-0-0      a log: no year, no zone, whole seconds
    "date": "20261129-131213", "start_times": [1300.740443677, …]       a result: a monotonic clock of unknown origin
    [1795957926.275, "3"]                                               a metric: absolute

Two clocks are compared through what both saw of the same requests, the surest way first. A client sends before the server
receives and reads the last token after the server wrote it, so each request bounds the distance of their clocks from both
sides; the bounds of all requests together leave milliseconds. Where no request is seen by both, the curves they draw (requests
finished, requests running) are laid over each other; where that decides nothing, the method says what was assumed and the
error is null.

Not here: applying a clock (that is one line of SQL in each staging table) and reading bytes. Days are compared by UTC offset;
a zone is returned under a name that DuckDB knows.
"""
