"""Which requests begin alike, from the trace that a run was made from: Mooncake's and its like name the blocks of each prompt.

A trace names no request of the run. That it is the run's own is told by the lengths: request after request of a client's result
has a prompt of just as many tokens as line after line of the trace, from some line on. Lengths that are all alike would fit any
run, so what counts is how unlikely it is that they fit by chance. Where that is not beyond doubt, where they fit in two places,
or where a single one does not fit, nothing is told.

What a client makes of a block's number is its own affair, and another process may make another text of it. So the same number is
the same text within one client's result, and not across two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import log2

import polars as pl

SURE_BITS = 40.0  # lengths that fit by chance once in 2**40 are no chance
FIRST_TOKENS = (0, 1)  # that the tokenizer puts before every prompt


def by_trace(requests: pl.DataFrame, workload: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    """Rows of core.request_blocks: each request with the blocks of its line in the trace."""
    named = workload.filter(pl.col("block_hashes").is_not_null() & pl.col("block_size").is_not_null())
    traces = [
        (str(source), workload.filter(pl.col("source") == source).sort("line"))
        for (source,), _ in named.group_by(["source"], maintain_order=True)
    ]
    numbers: dict[tuple[object, ...], int] = {}
    for client, of_client in requests.group_by(["source", "run_index"], maintain_order=True) if traces else ():
        found = [
            (source, trace, lines)
            for source, trace in sorted(traces, key=lambda each: each[0])
            if (lines := _lines_of(of_client, trace["input_tokens"].to_list())) is not None
        ]
        if len(found) != 1:
            continue
        source, trace, lines = found[0]
        lengths, hashes, sizes = (trace[name].to_list() for name in ("input_tokens", "block_hashes", "block_size"))
        for key, tokens, line in zip(of_client["request_key"], of_client["input_tokens"], lines, strict=True):
            if tokens and hashes[line] and -(-lengths[line] // sizes[line]) == len(hashes[line]):
                told = min(tokens, len(hashes[line]) * sizes[line])
                numbered = [numbers.setdefault((*client, each), len(numbers)) for each in hashes[line]]
                yield key, "request_trace", source, sizes[line], told, numbered


def _lines_of(client: pl.DataFrame, trace: Sequence[int | None]) -> list[int] | None:
    """The line of the trace that each request was made from, counted from 0; None where that is not sure."""
    by_index = client["request_index"].to_list() if client["request_index"].null_count() == 0 else None
    by_time = client["arrived_at"].rank("ordinal").cast(pl.Int64) - 1 if client["arrived_at"].null_count() == 0 else None
    tokens = client["input_tokens"].to_list()
    for places in (by_index, None if by_time is None else by_time.to_list()):
        for before in FIRST_TOKENS if places is not None else ():
            lengths = [None if each is None else each - before for each in tokens]
            start = start_of(places or [], lengths, trace)
            if start is not None:
                return [start + place for place in places or []]
    return None


def start_of(places: Sequence[int], lengths: Sequence[int | None], trace: Sequence[int | None]) -> int | None:
    """The line from which on the trace has these lengths at these places: the only one, and beyond chance; else None."""
    known = [(place, length) for place, length in zip(places, lengths, strict=True) if length is not None]
    counted = Counter(trace)
    if not known or sum(log2(len(trace) / counted[length]) for _, length in known if counted[length]) < SURE_BITS:
        return None
    last, (first, length) = max(places), known[0]
    starts = [
        line - first
        for line in range(first, len(trace) - last + first)
        if trace[line] == length and all(trace[line - first + place] == each for place, each in known)
    ]
    return starts[0] if len(starts) == 1 else None
