"""What the proposed settings would have done, for the advice: the same replay that `kvpressure whatif` makes.

An analysis is to be quick, so only levers of the scheduler and of the pool's size are replayed, and only where the load is small
enough (MOST_BLOCKS). Where there is no replay, the reason stands in its place, and the advice keeps its rule of thumb.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from pipelines.models import Run, python_model
from pipelines.replay import recorded
from pipelines.replay.engines import MODELS
from pipelines.replay.levers import FIGURES, LeverError
from pipelines.replay.whatif import WhatIf

REPLAYED = frozenset(name for model in MODELS.values() for name in model.quick)
BLOCK_TOKENS = 16  # work goes with blocks begun; this is vLLM's usual size
MOST_BLOCKS = 20_000  # in the answers of a load: about ten seconds for two settings
NOT_FORETOLD = "none"

SCHEMA = {
    "engine": pl.String,
    "rank": pl.Int64,
    "figure": pl.String,
    "setting": pl.String,
    "to_value": pl.String,
    "recorded": pl.Float64,
    "before": pl.Float64,
    "low": pl.Float64,
    "best": pl.Float64,
    "high": pl.Float64,
    "reason": pl.String,
}


@python_model("advice.replayed_effects", reads=(*recorded.READS, "advice.proposals"), only=recorded.ONLY)
def replayed_effects(tables: Mapping[str, pl.DataFrame], run: Run) -> pl.DataFrame:  # noqa: ARG001
    """What a replay of the recorded requests foretells of each proposed setting: the figures of `kvpressure whatif`.

    A setting that is not replayed has one row, with the reason.

    grain: engine, rank, figure
    column: engine   VARCHAR | Engine.
    column: rank     BIGINT  | The proposal's rank.
    column: figure   VARCHAR | Figure foretold; `none` where there was no replay.
    column: setting  VARCHAR | The setting proposed.
    column: to_value VARCHAR | Its value.
    column: recorded DOUBLE  | The figure in the run, as measured; NULL where no input tells it.
    column: before   DOUBLE  | The figure of the run itself as replayed: what the others are to be compared with.
    column: low      DOUBLE  | Least under the setting.
    column: best     DOUBLE  | Expected under the setting.
    column: high     DOUBLE  | Most under the setting.
    column: reason   VARCHAR | Why nothing is foretold; NULL where it is.
    check:  low <= best and best <= high | An interval holds its best estimate.
    check:  (best is null) = (reason is not null) | A figure, or a reason for none.
    """
    proposals = tables["advice.proposals"].filter(pl.col("setting").is_in(REPLAYED) & pl.col("to_value").is_not_null())
    rows = list(_rows(tables, proposals.sort("engine", "rank").to_dicts())) if proposals.height else []
    return pl.DataFrame(rows, schema=SCHEMA)


def _rows(tables: Mapping[str, pl.DataFrame], proposals: Sequence[dict[str, object]]) -> Iterator[dict[str, object]]:
    reason = _too_much(tables)
    what_if = None
    if reason is None:
        try:
            what_if = WhatIf.of(recorded.read(tables))
        except recorded.NotReplayableError as error:
            reason = str(error)
    for proposal in proposals:
        row = {name: proposal[name] for name in ("engine", "rank", "setting", "to_value")}
        if what_if is None:
            yield row | {"figure": NOT_FORETOLD, "reason": reason}
            continue
        try:
            told, _ = what_if.predict({str(proposal["setting"]): str(proposal["to_value"])})
        except LeverError as error:
            yield row | {"figure": NOT_FORETOLD, "reason": str(error)}
            continue
        measured = what_if.model.recording.measured
        for name in FIGURES:
            was = measured[name].best if name in measured else None
            yield row | {"figure": name, "recorded": was, "before": what_if.before.mean(name)} | vars(told.figures[name])


def _too_much(tables: Mapping[str, pl.DataFrame]) -> str | None:
    """Why this run is not replayed while it is analyzed; None where it is small enough."""
    engines = tables["core.engines"].height
    if engines != 1:
        return f"{engines} engines: `kvpressure whatif` replays them together"
    requests = tables["core.requests"]
    blocks = (requests["output_tokens"].cast(pl.Float64) / BLOCK_TOKENS).sum() + 2 * requests.height
    if blocks > MOST_BLOCKS:
        return f"{requests.height:,} requests take longer to replay than an analysis should: ask `kvpressure whatif`"
    return None
