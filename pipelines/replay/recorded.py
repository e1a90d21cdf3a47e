"""What a what-if starts from: one analyzed run as a scenario to replay, the clients that sent it, and what was measured of it.

Clients differ in what another setting does to them. An open one sends when it sends. A closed one keeps a number of requests in
flight and sends the next when one ends, so a slower engine is sent fewer; it is recognised by exactly that, in the requests
themselves, whatever tool it was. Clients that were never there at the same time are an episode each: the next benchmark starts
when the one before is done, however long that takes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import duckdb
import polars as pl

from pipelines.replay.calibration import Calibration, Evidence, calibrate
from pipelines.replay.levers import Facts, Scenario
from pipelines.replay.load import Record
from pipelines.replay.requests import DEFAULT_BATCHED_TOKENS, NO_SLOT_LIMIT, Seen, settings_of
from pipelines.replay.scheduler import Settings

CLOSED_SHARE = 0.6  # of the requests after the first ones that were sent as soon as another had ended; a client stumbles at times
AT_ONCE = 0.05  # of a usual answer's time: what "as soon as" allows; an open client of the same rate is off by whole answers
MOST_UNRECORDED = 0.10  # of the generated tokens: beyond, somebody else was there
MOSTLY_TOLD = 0.8  # of the prompts with a full block: below, KV events were lost, or are another engine's
MOST_FAILED = 0.05  # of the requests: what a failed one did to the engine nobody wrote down


@dataclass(frozen=True)
class Client:
    """One client's requests in the order sent; `concurrency` is None for an open one."""

    records: tuple[Record, ...]
    concurrency: int | None
    think_s: float

    @property
    def started_s(self) -> float:
        """When it sent its first request."""
        return self.records[0].arrived_s

    @property
    def ended_s(self) -> float:
        """When its last answer ended."""
        return max(each.finished_s for each in self.records)


Episode = tuple[Client, ...]


@dataclass(frozen=True)
class Measured:
    """A recorded figure and its range."""

    low: float
    best: float
    high: float


@dataclass(frozen=True)
class Recording:
    """One run, ready to be replayed. `assumed` says which settings are the engine's defaults, for want of recorded ones."""

    scenario: Scenario
    facts: Facts
    episodes: tuple[Episode, ...]
    calibration: Calibration
    measured: dict[str, Measured]
    assumed: tuple[str, ...]

    @property
    def requests(self) -> int:
        """Requests in the load."""
        return sum(len(client.records) for episode in self.episodes for client in episode)


class NotReplayableError(Exception):
    """There is no prediction for this run; the message says why, and where it can be helped, how."""


READS = (
    "core.engines",
    "core.engine_settings",
    "core.engine_states",
    "core.counter_intervals",
    "core.requests",
    "core.request_blocks",
    "core.gap_streams",
    "core.gap_chunks",
    "core.stall_causes",
    "marts.preemptions",
    "marts.waste",
    "marts.queue_time",
)


def of_analysis(con: duckdb.DuckDBPyConnection) -> dict[str, pl.DataFrame]:
    """The tables a recording is made of, from an analysis; there, those of marts stand without a schema."""
    return {name: con.sql(f"from {name.removeprefix('marts.')}").pl() for name in READS}


def read(tables: Mapping[str, pl.DataFrame], steps: pl.DataFrame | None = None) -> Recording:
    """The recording of a run from its tables; `steps`: its iteration lines, where there are any.

    NotReplayableError where no replay would hold.
    """
    engines = tables["core.engines"].sort("engine").to_dicts()
    counters, states = tables["core.counter_intervals"], tables["core.engine_states"]
    seen = Seen.of(counters, states)
    settings_said = tables["core.engine_settings"].drop_nulls("value_text").sort("engine", "key")
    said = dict(settings_said.unique("key", keep="first", maintain_order=True).select("key", "value_text").iter_rows())
    _require_modelled(engines, said, _active(counters))
    requests = tables["core.requests"]
    clients = _clients(requests, tables["core.request_blocks"])
    _require_whole(requests, clients, seen)
    engine = engines[0]
    settings = settings_of(engine)
    if (watermark := _number(said.get("watermark"))) is not None:
        settings = _with_watermark(settings, watermark)
    if not _are_blocks_told(clients, tables["core.request_blocks"], settings):
        clients = _without_blocks(clients)
    chunks, pauses = _chunks(tables), _pauses(tables)
    measured = _measured(tables, clients, chunks)
    records = [each for client in clients for each in client.records]
    told = sum(bool(each.blocks) for each in records)
    calibration = calibrate(
        Evidence(
            records,
            chunks,
            pauses,
            steps if steps is not None else pl.DataFrame(),
            computed_share=1 - seen.hit_share,
            resumed_share=_resumed_share(chunks, pauses, measured),
        )
    )
    if calibration is None:
        raise NotReplayableError(f"{len(records)} requests say too little of how long a step takes; record more of the load")
    closed = [client.concurrency for client in clients if client.concurrency]
    return Recording(
        scenario=Scenario(settings, 0.0 if told else seen.hit_share, replicas=len(engines)),
        facts=Facts(
            gpu_memory_utilization=engine["gpu_memory_utilization"],
            kv_cache_dtype=engine["kv_cache_dtype"],
            tensor_parallel_size=engine["tensor_parallel_size"],
            kv_cache_gib=_number(said.get("kv_cache_memory_gib")),
            weights_gib=_number(said.get("weights_gib")),
            closed_concurrency=max(closed, default=None),
        ),
        episodes=episodes(clients),
        calibration=calibration,
        measured=measured,
        assumed=tuple(_assumed(engine, seen.hit_share if settings.is_caching else 0.0, told, len(records))),
    )


def _active(counters: pl.DataFrame) -> frozenset[str]:
    """Names, with labels, of the counters that moved."""
    moved = counters.filter(pl.col("delta") > 0).select(pl.concat_str("name", "labels", separator="|", ignore_nulls=True))
    return frozenset(moved.to_series())


def _require_modelled(engines: Sequence[dict[str, Any]], said: dict[str, str], active: AbstractSet[str] = frozenset()) -> None:
    """Refuse what the engine does and the replay does not, whether its settings say so or a counter that moved (`active`)."""
    if not engines:
        raise NotReplayableError("no engine was observed: a log or metrics of it are needed beside the requests")
    reasons = [reason for engine in engines for reason in _not_modelled(engine, said)] + [
        reason for is_so, reason in NOT_MODELLED if is_so(said)
    ]
    reasons += [reason for name, reason in NOT_MODELLED_COUNTERS.items() if any(name in each for each in active)]
    if reasons:
        raise NotReplayableError("; ".join(dict.fromkeys(reasons)))


def _not_modelled(engine: dict[str, Any], said: dict[str, str]) -> Iterator[str]:
    if engine["engine_kind"] != "vllm" or engine["engine_generation"] == "v0":
        kind = "vLLM V0" if engine["engine_kind"] == "vllm" else engine["engine_kind"] or "an unknown engine"
        yield f"the scheduler of {kind} is not modelled, only that of vLLM V1"
    if engine["has_speculative_decoding"]:
        yield SPECULATIVE
    if offload := engine["kv_connector"] or next((said[key] for key in OFFLOAD_SETTINGS if key in said), None):
        yield f"KV connector or offload ({offload}): {RESTORED}"
    if not engine["num_gpu_blocks"] and not engine["kv_capacity_tokens"]:
        yield "the size of the KV pool is not known: add the engine's log from its start, or its metrics"


RESTORED = "blocks come back by another way than recomputation"
SPECULATIVE = "speculative decoding: a step's tokens depend on what is accepted, and that is not modelled"
NOT_MODELLED_COUNTERS = {
    "spec_decode_num_draft": SPECULATIVE,
    "external_prefix_cache_hits": f"prompt tokens came from an external cache: {RESTORED}",
    "external_kv_transfer": f"prompt tokens came from an external cache: {RESTORED}",
}
OFFLOAD_SETTINGS = ("kv_offloading_size", "kv_offloading_spec", "kv_offloading_cpu_blocks", "kv_connector", "kv_role")
NOT_MODELLED: tuple[tuple[Callable[[dict[str, str]], bool], str], ...] = (
    (lambda said: bool({"speculative_model", "num_speculative_tokens"} & set(said)), SPECULATIVE),
    (
        lambda said: said.get("enable_lora", "True" if "max_loras" in said else "False") == "True",
        "LoRA: adapter slots hold requests back, and that is not modelled",
    ),
    (
        lambda said: said.get("scheduling_policy") == "priority",
        "priority scheduling: which request is more urgent is not recorded",
    ),
    (
        lambda said: (_number(said.get("pipeline_parallel_size")) or 1) > 1,
        "pipeline parallelism: several batches are under way at once, and that is not modelled",
    ),
    (
        lambda said: said.get("mamba_cache_mode", "none") != "none" or said.get("is_hybrid") == "True",
        "hybrid KV pools: groups of layers fill at different rates, and that is not modelled",
    ),
)


def _require_whole(requests: pl.DataFrame, clients: Sequence[Client], seen: Seen) -> None:
    """Refuse where the recorded requests are not the load."""
    records = [each for client in clients for each in client.records]
    if not records:
        raise NotReplayableError(
            "no requests were recorded with their times and lengths: give the load generator's per-request results "
            "(vllm bench serve --save-detailed) or the engine's spans"
        )
    share = 1 - len(records) / requests.height
    if share > MOST_FAILED:
        raise NotReplayableError(f"{share:.0%} of the requests failed or have no times: what they did to the engine is not known")
    generated = sum(each.output_tokens for each in records)
    if seen.generated and generated < (1 - MOST_UNRECORDED) * seen.generated:
        raise NotReplayableError(
            f"the engine generated {seen.generated:,.0f} tokens and the recorded requests account for {generated:,}: others were "
            "there; give their results too, or --until and --since to analyze"
        )


def _with_watermark(settings: Settings, share: float) -> Settings:
    return Settings(**{**vars(settings), "watermark_blocks": int(share * (settings.blocks + 1))})


def _assumed(engine: dict[str, Any], hit_share: float, told: int, requests: int) -> list[str]:
    found = []
    if not engine["max_num_batched_tokens"]:
        found.append(f"max_num_batched_tokens taken for vLLM's {DEFAULT_BATCHED_TOKENS}: no input says it")
    if not engine["max_num_seqs"]:
        found.append(f"max_num_seqs taken for vLLM's {NO_SLOT_LIMIT}: no input says it, and it did not bind")
    elif engine["max_num_seqs_source"] == "inferred":
        found.append(f"max_num_seqs {engine['max_num_seqs']} inferred from the running count")
    if told:
        found.append(f"which prompts begin alike is told by KV events, for {told:,} of {requests:,} requests")
    elif hit_share > 0:
        found.append(f"which prompts begin alike is not recorded; they are drawn so that the cache finds {hit_share:.0%} of them")
    return found


# clients


def _clients(requests: pl.DataFrame, blocks: pl.DataFrame) -> list[Client]:
    """The clients of a run by the time they began."""
    complete = requests.filter(
        pl.all_horizontal(pl.col("arrived_at", "first_token_at", "finished_at", "input_tokens", "output_tokens").is_not_null())
        & ~pl.col("is_failed").fill_null(value=False)
        & (pl.col("output_tokens") > 0)
        & (pl.col("input_tokens") > 0)
    ).sort("arrived_at", "request_key")
    complete = complete.join(blocks.select("request_key", "blocks"), on="request_key", how="left", maintain_order="left")
    by_client: dict[tuple[Any, Any], list[Record]] = {}
    for row in complete.iter_rows(named=True):
        by_client.setdefault((row["source"], row["run_index"]), []).append(
            Record(
                arrived_s=row["arrived_at"].timestamp(),
                first_token_s=row["first_token_at"].timestamp(),
                finished_s=row["finished_at"].timestamp(),
                prompt_tokens=row["input_tokens"],
                output_tokens=row["output_tokens"],
                blocks=tuple(row["blocks"] or ()),
            )
        )
    return sorted((client_of(records) for records in by_client.values()), key=lambda each: each.started_s)


def _are_blocks_told(clients: Sequence[Client], blocks: pl.DataFrame, settings: Settings) -> bool:
    """Whether of enough requests it is known what their blocks hold, and of blocks of this size."""
    long_enough = [each for client in clients for each in client.records if each.prompt_tokens >= settings.block_size]
    told = sum(bool(each.blocks) for each in long_enough)
    is_of_size = set(blocks["block_size"]) == {settings.block_size}
    return settings.is_caching and is_of_size and told >= MOSTLY_TOLD * len(long_enough)


def _without_blocks(clients: Sequence[Client]) -> list[Client]:
    return [replace(client, records=tuple(replace(each, blocks=()) for each in client.records)) for client in clients]


def client_of(records: Sequence[Record]) -> Client:
    """Tell whether these requests, in the order sent, come from a closed client, and how many it kept in flight.

    A closed client with N in flight sends its request i as soon as i - N of its requests have ended. So it is held against that,
    with N the most that ever were in flight. One that never has more requests than it may send at once cannot be told from an
    open one; nor need it be.
    """
    most = most_in_flight(records)
    ended = sorted(each.finished_s for each in records)
    waits = [each.arrived_s - ended[i] for i, each in enumerate(records[most:])]
    answer_s = median(each.finished_s - each.arrived_s for each in records)
    prompt = sum(abs(wait) <= AT_ONCE * answer_s for wait in waits)
    if len(waits) < len(records) / 4 or prompt < CLOSED_SHARE * len(waits):
        return Client(tuple(records), None, 0.0)
    return Client(tuple(records), most, max(0.0, median(waits)))


def most_in_flight(records: Sequence[Record]) -> int:
    """Of the requests, in the order sent."""
    in_flight: list[float] = []
    most = 0
    for each in records:
        while in_flight and in_flight[0] <= each.arrived_s:
            heapq.heappop(in_flight)
        heapq.heappush(in_flight, each.finished_s)
        most = max(most, len(in_flight))
    return most


def episodes(clients: Sequence[Client]) -> tuple[Episode, ...]:
    """Clients, by the time they began, in groups that were there together."""
    groups: list[list[Client]] = []
    until = float("-inf")
    for client in clients:
        if client.started_s > until:
            groups.append([])
        groups[-1].append(client)
        until = max(until, client.ended_s)
    return tuple(tuple(group) for group in groups)


# what was measured


def _chunks(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    return (
        tables["core.gap_chunks"]
        .join(tables["core.gap_streams"].select("stream", "chunks"), on="stream")
        .join(tables["core.requests"].select("request_key", "input_tokens", "output_tokens"), on="request_key")
        .filter((pl.col("input_tokens") > 0) & (pl.col("output_tokens") > 0))
        .select(
            "stream",
            "chunk_index",
            "gap_s",
            at_s=pl.col("received_at").dt.epoch("us") / 1e6,
            prompt_tokens=pl.col("input_tokens").cast(pl.Float64),
            tokens_per_chunk=pl.col("output_tokens") / pl.col("chunks"),
        )
        .sort("stream", "chunk_index")
    )


def _pauses(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Gaps in which a step's time does not show. Those of somebody's long prefill stay: that is what a step with one takes."""
    return (
        tables["core.stall_causes"]
        .filter(pl.col("cause") != "prefill_interference")
        .select("stream", chunk_index=pl.col("gap_index") + 1, is_resume=pl.col("cause") == "preemption")
        .sort("stream", "chunk_index")
    )


def _resumed_share(chunks: pl.DataFrame, pauses: pl.DataFrame, measured: dict[str, Measured]) -> float:
    """Of the tokens that paused answers held, those computed again."""
    if not chunks.height or "recomputed_tokens" not in measured:
        return 1.0
    held = chunks.join(pauses.filter("is_resume"), on=("stream", "chunk_index"), how="semi").select(
        (pl.col("prompt_tokens") + pl.col("chunk_index") * pl.col("tokens_per_chunk")).sum()
    )
    tokens = held.item() or 0.0
    return min(1.0, measured["recomputed_tokens"].best / tokens) if tokens else 1.0


def _measured(tables: Mapping[str, pl.DataFrame], clients: Sequence[Client], chunks: pl.DataFrame) -> dict[str, Measured]:
    """The figures a replay is held against; those that no input tells are left out."""
    found = {}
    preemptions, queued = tables["marts.preemptions"], tables["marts.queue_time"]
    waste = tables["marts.waste"].filter(pl.col("kind") == "preemption_recompute")
    for name, of_engines, columns in (
        ("preemptions", preemptions, ("count_low", "count_best", "count_high")),
        ("recomputed_tokens", waste, ("tokens_low", "tokens_best", "tokens_high")),
        ("queue_s", queued, ("seconds", "seconds", "seconds")),
    ):
        low, best, high = (_sum(of_engines[column]) for column in columns)
        if best is not None:
            found[name] = Measured(low if low is not None else best, best, high if high is not None else best)
    states = tables["core.engine_states"]
    if "queue_s" not in found and (states["waiting"].is_not_null() & (states["scrape_s"] > 0)).any():
        found["queue_s"] = Measured(0.0, 0.0, 0.0)
    records = [each for client in clients for each in client.records]
    ttft = sorted(each.first_token_s - each.arrived_s for each in records)
    seconds = sum(max(each.ended_s for each in group) - min(each.started_s for each in group) for group in episodes(clients))
    exact = {
        "duration_s": seconds,
        "output_tokens_per_s": sum(each.output_tokens for each in records) / seconds if seconds else 0.0,
        "ttft_p50_ms": 1e3 * ttft[int(0.5 * len(ttft))],
        "ttft_p99_ms": 1e3 * ttft[min(int(0.99 * len(ttft)), len(ttft) - 1)],
    }
    gaps = chunks.filter(pl.col("chunk_index") > 0)["gap_s"] if chunks.height else pl.Series([], dtype=pl.Float64)
    if len(gaps):
        exact["itl_p50_ms"] = 1e3 * float(gaps.quantile(0.5) or 0.0)
        exact["itl_p99_ms"] = 1e3 * float(gaps.quantile(0.99) or 0.0)
    return found | {name: Measured(value, value, value) for name, value in exact.items()}


def _sum(values: pl.Series) -> float | None:
    """Of those that are known; None where none is."""
    known = values.drop_nulls()
    return float(known.sum()) if len(known) else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
