"""Runs whose engine is known, because it is a replay: what a client and the engine would have recorded of them."""

from __future__ import annotations

from random import Random

from pipelines.replay.calibration import Calibration
from pipelines.replay.engine import EngineSettings, Outcome, Request, StepTime
from pipelines.replay.engines import MODELS
from pipelines.replay.levers import Facts, Scenario
from pipelines.replay.load import Record
from pipelines.replay.recorded import Measured, Recording, client_of, episodes
from pipelines.replay.vllm import Settings

STEP_TIME = StepTime(base=0.005, computed=0.00003, generated=0.0002)


def engine(**changed: int) -> Settings:
    return Settings(
        **{"blocks": 143, "block_size": 32, "max_num_seqs": 32, "max_num_batched_tokens": 2048, **changed}  # type: ignore[arg-type]
    )


def requests(count: int, *, rate: float | None = None, prompt: int = 180, output: int = 260, seed: int = 1) -> list[Request]:
    """Requests of lengths around the given ones, all at once or at a rate."""
    rng = Random(seed)
    at = 0.0
    made = []
    for _ in range(count):
        at += rng.expovariate(rate) if rate else 1e-6
        made.append(Request(at, int(prompt * rng.uniform(0.3, 1.7)), int(output * rng.uniform(0.3, 1.7))))
    return made


def serve(
    load: list[Request],
    settings: EngineSettings,
    concurrency: int | None = None,
    *,
    step_time: StepTime = STEP_TIME,
    engine_kind: str = "vllm",
) -> Outcome:
    return MODELS[engine_kind].replay(settings, step_time, load, concurrency={0: concurrency} if concurrency else None).run()


def records(load: list[Request], outcome: Outcome) -> list[Record]:
    """What the client writes down, in the order sent."""
    made = [
        Record(sent, first, end, each.prompt_tokens, each.output_tokens, max_tokens=each.max_tokens)
        for each, sent, first, end in zip(load, outcome.sent_at, outcome.first_token_at, outcome.finished_at, strict=True)
        if sent is not None and first is not None and end is not None
    ]
    return sorted(made, key=lambda each: each.arrived_s)


def recording(
    load: list[Request],
    settings: EngineSettings,
    concurrency: int | None = None,
    *,
    fitted: StepTime = STEP_TIME,
    engine_kind: str = "vllm",
) -> Recording:
    """The run of this load on this engine, as far as a what-if needs it. `fitted` is what a calibration made of it."""
    outcome = serve(load, settings, concurrency, engine_kind=engine_kind)
    written = records(load, outcome)
    client = client_of(written)
    waits = sorted(each.first_token_s - each.arrived_s for each in written)
    exact = {
        "preemptions": len(outcome.preemptions),
        "recomputed_tokens": outcome.recomputed_tokens,
        "queue_s": sum(seconds for _, seconds in outcome.waiting),
        "duration_s": outcome.ended_at - written[0].arrived_s,
        "ttft_p50_ms": 1e3 * waits[len(waits) // 2],
    }
    return Recording(
        model=MODELS[engine_kind],
        scenario=Scenario(settings, hit_share=0.0),
        facts=Facts(gpu_memory_utilization=0.5, kv_cache_gib=4.0, weights_gib=6.0, closed_concurrency=client.concurrency),
        episodes=episodes([client]),
        calibration=Calibration(fitted, (fitted,), 0.0, ((1.0, 1.0),), "given", len(written)),
        measured={name: Measured(value, value, value) for name, value in exact.items()},
        assumed=(),
    )
