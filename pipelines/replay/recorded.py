"""What a what-if starts from: one analyzed run as a scenario to replay, the clients that sent it, and what was measured of it.

Clients differ in what another setting does to them. An open one sends when it sends. A closed one keeps a number of requests in
flight and sends the next when one ends, so a slower engine is sent fewer; it is recognised by exactly that, in the requests
themselves, whatever tool it was. Clients that were never there at the same time are an episode each: the next benchmark starts
when the one before is done, however long that takes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from statistics import median
from typing import Any

import duckdb
import polars as pl

from pipelines.replay.calibration import Calibration, Evidence, calibrate
from pipelines.replay.engine import Content, EngineSettings
from pipelines.replay.engines import MODELS, EngineModel, model_of
from pipelines.replay.levers import Facts, Scenario
from pipelines.replay.load import Record
from pipelines.replay.requests import SEEN, Seen, whole_requests
from pipelines.replay.said import real

CLOSED_SHARE = 0.6  # of the requests after the first ones that were sent as soon as another had ended; a client stumbles at times
AT_ONCE = 0.05  # of a usual answer's time: what "as soon as" allows; an open client of the same rate is off by whole answers
MOST_UNRECORDED = 0.10  # of the generated tokens: beyond, somebody else was there
MOSTLY_TOLD = 0.8  # of the prompts with a full block: below, KV events were lost, or are another engine's
TOLD_BY = {"kv_events": "KV events", "request_trace": "the request trace"}  # the engine's own word first
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
    """One run, ready to be replayed by the model of its engine. `assumed` says which settings are the engine's defaults, for want
    of recorded ones, and what told which prompts begin alike; `guesses` are those of it that may well be wrong. `told_by` is that
    teller: kv_events, request_trace, hit_ratio, or nobody.
    """

    model: EngineModel
    scenario: Scenario
    facts: Facts
    episodes: tuple[Episode, ...]
    calibration: Calibration
    measured: dict[str, Measured]
    assumed: tuple[str, ...]
    guesses: tuple[str, ...] = ()
    told_by: str | None = None

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
    "marts.hit_rate_curve",
    "core.gap_streams",
    "core.gap_chunks",
    "core.stall_causes",
    "marts.preemptions",
    "marts.waste",
    "marts.queue_time",
)
_REFUSED = sorted({signal for model in MODELS.values() for signal, _ in model.not_modelled_counters})
ONLY = {"core.counter_intervals": f"signal in {(*SEEN, *_REFUSED)}"}  # of the counters, which are most of the rows


def of_analysis(con: duckdb.DuckDBPyConnection) -> dict[str, pl.DataFrame]:
    """The tables a recording is made of, from an analysis; there, those of marts stand without a schema."""
    return {name: con.sql(f"from {name.removeprefix('marts.')} where {ONLY.get(name, 'true')}").pl() for name in READS}


def read(tables: Mapping[str, pl.DataFrame], steps: pl.DataFrame | None = None) -> Recording:
    """The recording of a run from its tables; `steps`: its iteration lines, where there are any.

    NotReplayableError where no replay would hold.
    """
    engines = tables["core.engines"].sort("engine").to_dicts()
    counters, states = tables["core.counter_intervals"], tables["core.engine_states"]
    seen = Seen.of(counters, states)
    settings_said = tables["core.engine_settings"].drop_nulls("value_text").sort("engine", "key")
    said = dict(settings_said.unique("key", keep="first", maintain_order=True).select("key", "value_text").iter_rows())
    model = _require_modelled(engines, said, _moved(counters))
    requests = tables["core.requests"]
    engine = engines[0]
    settings = model.settings_of(engine, said)
    told_by, teller, contents = _told(requests, tables["core.request_blocks"], settings)
    clients = _clients(requests, contents)
    _require_whole(requests, clients, seen, model)
    chunks, pauses = _chunks(tables), _pauses(tables)
    measured = _measured(tables, clients, chunks)
    records = [each for client in clients for each in client.records]
    told = sum(each.content is not None for each in records)
    calibration = calibrate(
        Evidence(
            records,
            chunks,
            pauses,
            steps if steps is not None else pl.DataFrame(),
            computed_share=1 - seen.hit_share,
            resumed_share=_resumed_share(chunks, pauses, _sum(_recomputed(tables)["tokens_best"])),
        )
    )
    if calibration is None:
        raise NotReplayableError(f"{len(records)} requests say too little of how long a step takes; record more of the load")
    closed = [client.concurrency for client in clients if client.concurrency]
    guesses = tuple(_untold_ends(records, model))
    hit_share = seen.hit_share if settings.is_caching else 0.0
    return Recording(
        model=model,
        scenario=Scenario(settings, 0.0 if told else seen.hit_share, replicas=len(engines)),
        facts=Facts(
            gpu_memory_utilization=engine["gpu_memory_utilization"],
            kv_cache_dtype=engine["kv_cache_dtype"],
            tensor_parallel_size=engine["tensor_parallel_size"],
            kv_cache_gib=real(said.get("kv_cache_memory_gib")),
            weights_gib=real(said.get("weights_gib")),
            free_before_load_gib=real(said.get("free_before_load_gib")),
            pool_set_by=pool_set_by(said, engine["kv_capacity_tokens"]),
            closed_concurrency=max(closed, default=None),
        ),
        episodes=episodes(clients),
        calibration=calibration,
        measured=measured,
        assumed=(
            *model.assumed(engine, said),
            *guesses,
            *_alike(teller, told, len(records), hit_share, tables["marts.hit_rate_curve"]),
        ),
        guesses=guesses,
        told_by=told_by or ("hit_ratio" if hit_share else None),
    )


def pool_set_by(said: Mapping[str, str], capacity_tokens: int | None) -> str | None:
    """The setting that the size of the KV pool is; None where it is what memory was left."""
    most = real(said.get("max_total_tokens"))  # SGLang takes it for a limit
    binds = most is not None and capacity_tokens is not None and most <= capacity_tokens
    found = (name for name in ("num_gpu_blocks_override", "kv_cache_memory_bytes") if name in said)
    return "max_total_tokens" if binds else next(found, None)


def _moved(counters: pl.DataFrame) -> frozenset[tuple[str, str]]:
    """Signals, with labels, of the counters that moved."""
    return frozenset(counters.filter(pl.col("delta") > 0).select("signal", pl.col("labels").fill_null("")).iter_rows())


def _require_modelled(
    engines: Sequence[dict[str, Any]], said: dict[str, str], moved: AbstractSet[tuple[str, str]] = frozenset()
) -> EngineModel:
    """The model of the run's engines. Refuse what they do and it does not, whether their settings say so or a counter that moved
    (`moved`).
    """
    if not engines:
        raise NotReplayableError("no engine was observed: a log or metrics of it are needed beside the requests")
    try:
        models = [model_of(engine["engine_kind"]) for engine in engines]
    except LookupError as error:
        raise NotReplayableError(str(error)) from error
    model = models[0]
    if any(each is not model for each in models):
        raise NotReplayableError("engines of several kinds are in this run: give the inputs of one")
    if any(engine["was_set_up_anew"] for engine in engines):
        raise NotReplayableError(
            "a restart changed the engine's settings in between, and a replay is of one setting: give the inputs, and the part "
            "around the main verdict is replayed, or analyze one part alone (--until or --since; data_quality says when it was)"
        )
    reasons = [reason for engine in engines for reason in model.not_modelled(engine, said)]
    reasons += [
        reason
        for (signal, label), reason in model.not_modelled_counters.items()
        if any(each == signal and label in labels for each, labels in moved)
    ]
    if reasons:
        raise NotReplayableError("; ".join(dict.fromkeys(reasons)))
    return model


def _require_whole(requests: pl.DataFrame, clients: Sequence[Client], seen: Seen, model: EngineModel) -> None:
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
    unlimited = sum(each.max_tokens is None for each in records) if model.is_admission_by_max_tokens else 0
    if unlimited:
        raise NotReplayableError(
            f"{model.name} admits a request by how long an answer it allows (max_new_tokens), and {unlimited:,} of "
            f"{len(records):,} do not say; record them with --log-requests --log-requests-level 1 --log-requests-format json"
        )


def _untold_ends(records: Sequence[Record], model: EngineModel) -> Iterator[str]:
    if model.is_admission_by_max_tokens and any(each.ignores_eos is None for each in records):
        yield "requests end where their text ends (no input says whether they ignore it: ignore_eos)"


# which prompts begin alike


def _told(
    requests: pl.DataFrame, blocks: pl.DataFrame, settings: EngineSettings
) -> tuple[str | None, str | None, dict[str, Content]]:
    """Who tells of enough requests what they begin with, in words too, and what it is: by request, where it is told."""
    long_enough = set(requests.filter(pl.col("input_tokens") >= settings.block_size)["request_key"])
    for told_by in TOLD_BY if settings.is_caching else ():
        of_teller = blocks.filter(pl.col("told_by") == told_by)
        # the engine's events are of its own blocks, or of another engine; a trace has blocks of its own
        is_of_size = told_by != "kv_events" or set(of_teller["block_size"]) == {settings.block_size}
        told = len(long_enough & set(of_teller["request_key"]))
        if is_of_size and told and told >= MOSTLY_TOLD * len(long_enough):
            rows = of_teller.select("request_key", "blocks", "block_size", "tokens").iter_rows()
            names = of_teller["source"].drop_nulls().unique().sort().to_list()
            teller = " ".join((TOLD_BY[told_by], ", ".join(names))).rstrip()
            return told_by, teller, {key: Content(tuple(each), *size) for key, each, *size in rows}
    return None, None, {}


def _alike(teller: str | None, told: int, requests: int, hit_share: float, traced: pl.DataFrame) -> Iterator[str]:
    """What was taken for known of prompts that begin alike."""
    if teller:
        yield f"which prompts begin alike is told by {teller}, for {told:,} of {requests:,} requests"
        return
    if hit_share > 0:
        yield f"which prompts begin alike is not recorded; they are drawn so that the cache finds {hit_share:.0%} of them"
    for source, size in traced.select("source", "block_size").unique().sort("source").iter_rows():
        reason = (
            "how many tokens its blocks have is not known"
            if size is None
            else "that the recorded requests were made from it, in its order, their prompt lengths do not show beyond doubt"
        )
        yield f"the request trace {source} says which of its prompts begin alike, and is not used: {reason}"


# clients


def _clients(requests: pl.DataFrame, contents: Mapping[str, Content]) -> list[Client]:
    """The clients of a run by the time they began."""
    by_client: dict[tuple[Any, Any], list[Record]] = {}
    for row, record in whole_requests(requests, contents):
        by_client.setdefault((row["source"], row["run_index"]), []).append(record)
    return sorted((client_of(records) for records in by_client.values()), key=lambda each: each.started_s)


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


def _resumed_share(chunks: pl.DataFrame, pauses: pl.DataFrame, recomputed_tokens: float | None) -> float:
    """Of the tokens that paused answers held, those computed again."""
    if not chunks.height or recomputed_tokens is None:
        return 1.0
    held = chunks.join(pauses.filter("is_resume"), on=("stream", "chunk_index"), how="semi").select(
        (pl.col("prompt_tokens") + pl.col("chunk_index") * pl.col("tokens_per_chunk")).sum()
    )
    tokens = held.item() or 0.0
    return min(1.0, recomputed_tokens / tokens) if tokens else 1.0


def _recomputed(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Tokens computed again after preemptions, by engine, whatever told them."""
    return tables["marts.waste"].filter(pl.col("kind") == "preemption_recompute")


def _measured(tables: Mapping[str, pl.DataFrame], clients: Sequence[Client], chunks: pl.DataFrame) -> dict[str, Measured]:
    """The figures a replay is held against; those that no input tells are left out, and so is what a replay told."""
    found = {}
    preemptions, queued = tables["marts.preemptions"], tables["marts.queue_time"]
    for name, of_engines, columns in (
        ("preemptions", preemptions, ("count_low", "count_best", "count_high")),
        ("recomputed_tokens", _recomputed(tables), ("tokens_low", "tokens_best", "tokens_high")),
        ("queue_s", queued, ("seconds", "seconds", "seconds")),
    ):
        low, best, high = (_sum(of_engines[column]) for column in columns)
        is_replayed = "method" in of_engines.columns and "replay" in of_engines["method"]
        if best is not None and not is_replayed:
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
