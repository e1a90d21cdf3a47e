"""What a prefix cache of each size could have found again of a workload: its hit-rate curve, and the ceiling it ends at.

Only a trace that names the blocks of its prompts tells that. The cache replayed here is an ideal one: it drops the blocks used
least recently, holds nothing but prompts, is shared by all requests, and has the whole prompt the moment it arrives. An engine
does worse: running requests hold blocks, answers take room, requests overlap, several servers share the load, and its blocks are
of another size. So a point of the curve is an upper bound of the hit ratio, and the step to the next size is the most that so
much more memory could buy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import polars as pl

from pipelines.models import Run, python_model

SMALLEST = 64  # blocks

SCHEMA = {
    "run": pl.String,
    "source": pl.String,
    "block_size": pl.Int64,
    "cache_blocks": pl.Int64,
    "cache_tokens": pl.Int64,
    "hit_ratio": pl.Float64,
    "ceiling_hit_ratio": pl.Float64,
    "requests": pl.Int64,
    "is_ideal": pl.Boolean,
}


@python_model("marts.hit_rate_curve", reads=("raw.workload_requests",))
def hit_rate_curve(tables: Mapping[str, pl.DataFrame], run: Run) -> pl.DataFrame:
    """How much of a workload's prompts an ideal prefix cache of each size finds again: bounds, not predictions.

    One least-recently-used cache of prompt blocks, for all requests in the order of their arrival, with nothing else in it. An
    engine finds less. Traces whose blocks have no ids are not here.

    grain: run, source, cache_blocks
    column: run               VARCHAR | The analyzed run.
    column: source            VARCHAR | The trace.
    column: block_size        BIGINT  | Tokens in a block of the trace, not of the engine; NULL where its lengths do not tell.
    column: cache_blocks      BIGINT  | Size of the cache, in blocks of the trace.
    column: cache_tokens      BIGINT  | The same in tokens; NULL where the size of a block is not known.
    column: hit_ratio         DOUBLE  | Share of the prompts' blocks found, each with all blocks before it.
    column: ceiling_hit_ratio DOUBLE  | The share that a cache without a limit finds: no memory buys more.
    column: requests          BIGINT  | Requests of the trace that name blocks.
    column: is_ideal          BOOLEAN | Always true: an upper bound.
    check:  hit_ratio between 0 and ceiling_hit_ratio + 1e-9 | More memory never finds less than none, nor more than all there is.
    """
    workload = tables["raw.workload_requests"].filter(pl.col("block_hashes").is_not_null())
    rows = []
    for (source,), requests in workload.sort("source", "arrival_s", "line").group_by("source", maintain_order=True):
        prompts = requests["block_hashes"].to_list()
        block_size = requests["block_size"].drop_nulls().max()
        different = len({block for prompt in prompts for block in prompt})
        ceiling = hit_ratio(prompts, different)
        rows += [
            {
                "run": run.name,
                "source": source,
                "block_size": block_size,
                "cache_blocks": size,
                "cache_tokens": size * int(block_size) if isinstance(block_size, int) else None,
                "hit_ratio": hit_ratio(prompts, size) if size < different else ceiling,
                "ceiling_hit_ratio": ceiling,
                "requests": len(prompts),
                "is_ideal": True,
            }
            for size in sizes(different)
        ]
    return pl.DataFrame(rows, schema=SCHEMA)


def sizes(different: int) -> list[int]:
    """Sizes of a cache that are worth a point: doubling up to all the blocks there are."""
    doubling = [SMALLEST]
    while doubling[-1] * 2 < different:
        doubling.append(doubling[-1] * 2)
    return [*(size for size in doubling if size < different), different]


def hit_ratio(prompts: Sequence[Sequence[int]], capacity: int) -> float:
    """Share of all blocks that a cache of so many blocks holds when they are asked for, each with all before it."""
    cache: OrderedDict[int, None] = OrderedDict()
    found = asked = 0
    for prompt in prompts:
        asked += len(prompt)
        for block in prompt:
            if block not in cache:
                break
            found += 1
        for block in reversed(prompt):  # the end of a prompt is the first to go
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return found / asked if asked else 0.0
