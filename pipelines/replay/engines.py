"""Which model replays which engine.

A model is a scheduler (`vllm`, `sglang`) and what is to be known around it: its settings as a run says them, those that may be
asked about, and why a run of it is not replayed. Whatever is asked of a run goes through here; nothing else tells engines apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pipelines.replay import sglang, sglang_settings, vllm, vllm_settings
from pipelines.replay.engine import EngineSettings, Replay
from pipelines.replay.levers import COUNTED_OF_LOAD, OF_LOAD, Facts, Lever, LeverError, Scenario

Row = Mapping[str, object]
Said = Mapping[str, str]


@dataclass(frozen=True)
class EngineModel:
    """What is known of an engine's scheduler. `own` are its levers, `counted` those whose values are whole numbers, `quick` those
    under which a step takes as long as before. `limits` are the words for what requests wait for.
    """

    name: str
    replay: Callable[..., Replay]  # of settings of its own, a step time, requests, and how clients send them
    settings_of: Callable[[Row, Said], EngineSettings]
    assumed: Callable[[Row, Said], Iterator[str]]
    not_modelled: Callable[[Row, Said], Iterator[str]]
    not_modelled_counters: Mapping[tuple[str, str], str]  # by signal, and what its labels have in them
    own: Mapping[str, Lever]
    counted: tuple[str, ...]
    quick: tuple[str, ...]
    values: Callable[[Scenario, Facts], dict[str, object]]
    limits: Mapping[str, str]
    is_admission_by_max_tokens: bool = False

    def applied(self, scenario: Scenario, changes: Mapping[str, str], facts: Facts) -> tuple[Scenario, tuple[str, ...]]:
        """The scenario with the changes made, in order, and the sentences they leave. LeverError where one makes no sense."""
        levers = {**self.own, **OF_LOAD}
        notes = []
        for name, value in changes.items():
            if name not in levers:
                raise LeverError(f"--set {name}: not a setting a replay of {self.name} knows; one of {', '.join(levers)}")
            scenario, note = levers[name](scenario, value, facts)
            notes += [note] if note else []
        return scenario, tuple(notes)

    def value_of(self, scenario: Scenario, name: str, facts: Facts) -> str | None:
        """What the lever stands at; None where that is not known, or the engine has none of that name."""
        value = self.values(scenario, facts).get(name)
        return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


MODELS = {
    "vllm": EngineModel(
        name="vLLM",
        replay=vllm.Replay,
        settings_of=vllm_settings.settings_of,
        assumed=vllm_settings.assumed,
        not_modelled=vllm_settings.not_modelled,
        not_modelled_counters=vllm_settings.NOT_MODELLED_COUNTERS,
        own=vllm_settings.LEVERS,
        counted=vllm_settings.COUNTED,
        quick=("max_num_seqs", "max_num_batched_tokens", "watermark", "gpu_memory_utilization", "enable_prefix_caching"),
        values=vllm_settings.values,
        limits={
            "slots": "slots (max_num_seqs)",
            "pool": "the KV pool",
            "budget": "token budget (max_num_batched_tokens)",
        },
    ),
    "sglang": EngineModel(
        name="SGLang",
        replay=sglang.Replay,
        settings_of=sglang_settings.settings_of,
        assumed=sglang_settings.assumed,
        not_modelled=sglang_settings.not_modelled,
        not_modelled_counters=sglang_settings.NOT_MODELLED_COUNTERS,
        own=sglang_settings.LEVERS,
        counted=sglang_settings.COUNTED,
        quick=("max_running_requests", "chunked_prefill_size", "schedule_conservativeness", "disable_radix_cache"),
        values=sglang_settings.values,
        limits={
            "slots": "slots (max_running_requests)",
            "pool": "the KV pool, or what admission sets aside of it",
            "budget": "token budget (chunked_prefill_size)",
        },
        is_admission_by_max_tokens=True,
    ),
}
LEVERS = tuple(dict.fromkeys([name for model in MODELS.values() for name in model.own] + list(OF_LOAD)))  # of any engine
COUNTED = tuple(dict.fromkeys([name for model in MODELS.values() for name in model.counted] + list(COUNTED_OF_LOAD)))


def _by_engine(names: Callable[[EngineModel], Iterable[str]], of_load: Iterable[str]) -> str:
    own = (f"of {model.name} {', '.join(names(model))}" for model in MODELS.values())
    return "; ".join([*own, f"of the load {', '.join(of_load)}"])


LEVERS_BY_ENGINE = _by_engine(lambda model: model.own, OF_LOAD)
COUNTED_BY_ENGINE = _by_engine(lambda model: model.counted, COUNTED_OF_LOAD)


def model_of(kind: object) -> EngineModel:
    """The model of an engine of this kind. LookupError where there is none, in words."""
    model = MODELS.get(str(kind))
    if model is None:
        named = " and ".join(each.name for each in MODELS.values())
        raise LookupError(f"the scheduler of {kind or 'an unknown engine'} is not modelled, only those of {named}")
    return model
