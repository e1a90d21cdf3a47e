"""What-if: clients told apart, a known engine foretold under other settings, and what is refused."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import duckdb
import polars as pl
import pytest

from pipelines import cli, cli_whatif
from pipelines.replay import recorded, sglang
from pipelines.replay.effects import _too_much
from pipelines.replay.engine import Request, StepTime
from pipelines.replay.engines import LEVERS, MODELS
from pipelines.replay.levers import FIGURES, OF_LOAD, LeverError
from pipelines.replay.load import Record
from pipelines.replay.recorded import Measured, NotReplayableError, _require_modelled, client_of, episodes
from pipelines.replay.traces import by_trace
from pipelines.replay.vllm import Replay
from pipelines.replay.whatif import Model, WhatIf, _check, meets, replays, smallest_change, swept, why_not
from pipelines.replay.window import part_of
from pipelines.sqlshell import open_read_only
from tests.conftest import PROJECT
from tests.whatif_runs import STEP_TIME, engine, recording, records, requests, serve


@pytest.fixture(scope="module")
def pressed() -> WhatIf:
    """A closed client whose requests need more than the pool: it preempts."""
    return WhatIf.of(recording(requests(150), engine(), 28))


# clients


def test_a_client_that_waits_for_its_answers_is_recognised():
    load = requests(80)
    client = client_of(records(load, serve(load, engine(), 12)))
    assert client.concurrency == 12


def test_a_client_that_sends_by_the_clock_is_open():
    load = requests(80, rate=5.0)
    assert client_of(records(load, serve(load, engine()))).concurrency is None


def test_clients_after_one_another_are_episodes():
    first = [Record(0, 0.1, 2, 10, 20), Record(1, 1.1, 3, 10, 20)]
    clients = [
        client_of([replace(each, arrived_s=each.arrived_s + at, finished_s=each.finished_s + at) for each in first])
        for at in (0, 2, 9)
    ]
    assert [len(each) for each in episodes(clients)] == [2, 1]


# the scheduler's replay, as far as only this uses it


def test_gaps_of_tokens_are_all_there_and_add_up_to_the_answers():
    outcome = serve(requests(60), engine(), 28)
    answers = sum(
        end - first
        for first, end in zip(outcome.first_token_at, outcome.finished_at, strict=True)
        if first is not None and end is not None
    )
    assert outcome.preemptions
    assert sum(gap * count for gap, count in outcome.token_gaps) == pytest.approx(answers, rel=2e-4)  # gaps are binned


def test_a_client_that_thinks_sends_later():
    outcome = Replay(engine(), StepTime(base=1.0), [Request(0, 4, 3)] * 2, concurrency={0: 1}, think=0.5).run()
    assert outcome.sent_at == (0.0, 3.5)


def test_waiting_is_told_by_what_is_short():
    slots = serve([Request(0, 10, 20)] * 4, engine(max_num_seqs=2))
    pool = serve([Request(0, 64, 20)] * 4, engine(blocks=6))
    assert [cause for cause, _ in slots.waiting] == ["slots"]
    assert dict(pool.waiting)["pool"] > 0


# predictions


def test_the_run_itself_is_reproduced(pressed):
    assert pressed.before.mean("preemptions") > 20
    assert {each.name: each.miss < 0.15 for each in pressed.checks} == dict.fromkeys((each.name for each in pressed.checks), True)


@pytest.mark.parametrize(
    ("changes", "settings", "concurrency"),
    [
        ({"max_num_seqs": "9"}, engine(max_num_seqs=9), 28),
        ({"num_gpu_blocks": "251"}, engine(blocks=250), 28),
        ({"watermark": "0.1"}, engine(watermark_blocks=14), 28),
        ({"concurrency": "14"}, engine(), 14),
    ],
)
def test_another_setting_is_foretold(pressed, changes, settings, concurrency):
    outcome = serve(requests(150), settings, concurrency)
    told, _ = pressed.predict(changes)
    assert told.figures["duration_s"].best == pytest.approx(outcome.ended_at, rel=0.1)
    for name, truth in (
        ("preemptions", len(outcome.preemptions)),
        ("recomputed_tokens", outcome.recomputed_tokens),
        ("duration_s", outcome.ended_at),
    ):
        assert told.figures[name].low <= truth <= told.figures[name].high, name


def test_with_the_cache_on_resumed_requests_find_their_blocks():
    without = WhatIf.of(recording(requests(100), engine(is_caching=False), 28))
    told, notes = without.predict({"enable_prefix_caching": "True"})
    computed_again = told.figures["recomputed_tokens"]
    assert computed_again.low <= serve(requests(100), engine(), 28).recomputed_tokens <= computed_again.high
    assert computed_again.high < without.before.mean("recomputed_tokens")
    assert "only resumed requests find their blocks" in notes[0]


def test_a_step_time_that_is_off_is_scaled_to_the_run():
    what_if = WhatIf.of(recording(requests(100), engine(), 20, fitted=STEP_TIME.times(0.7)))
    assert what_if.model.scale == pytest.approx(1 / 0.7, rel=0.05)
    assert what_if.before.mean("duration_s") == pytest.approx(what_if.model.recording.measured["duration_s"].best, rel=0.05)


def test_the_limit_moves_from_the_pool_to_the_slots(pressed):
    told, _ = pressed.predict({"max_num_seqs": "8"})
    assert (pressed.recorded().limit, told.limit) == ("pool", "slots")


def test_no_preemption_in_a_full_pool_is_not_said_to_be_sure(pressed):
    brim = next(
        told
        for blocks in range(270, 600, 20)
        if (told := pressed.predict({"num_gpu_blocks": str(blocks)})[0]).figures["preemptions"].best == 0
    )
    assert brim.peak_usage > 0.9
    assert brim.figures["preemptions"].high > 0


def test_of_few_preemptions_one_more_or_less_is_never_excluded(pressed):
    """Where replay after replay has two: that there are two is no more certain than that the next request comes in time."""
    few = [{**each, "preemptions": 2.0, "recomputed_tokens": 300.0} for each in pressed.before.figures]
    told = replace(pressed, before=replace(pressed.before, figures=tuple(few))).recorded().figures
    assert (told["preemptions"].low, told["preemptions"].high) == (1.0, 3.0)
    assert (told["recomputed_tokens"].low, told["recomputed_tokens"].high) == (150.0, 450.0)


def test_replicas_share_the_load(pressed):
    told, notes = pressed.predict({"replicas": "3"})
    assert told.figures["preemptions"].best == 0
    assert "dealt" in notes[0]


def test_shorter_answers_take_less(pressed):
    told, _ = pressed.predict({"max_tokens": "100", "max_prompt_tokens": "100"})
    assert told.figures["duration_s"].best < 0.6 * pressed.before.mean("duration_s")


def test_more_arrivals_press_an_open_load_harder():
    what_if = WhatIf.of(recording(requests(120, rate=6.0), engine()))
    more, _ = what_if.predict({"arrival_rate": "3"})
    assert more.figures["preemptions"].low > what_if.before.mean("preemptions")


def test_the_same_question_gets_the_same_answer(pressed):
    assert pressed.predict({"max_num_seqs": "12"}) == pressed.predict({"max_num_seqs": "12"})


def test_the_smallest_change_is_found_between_the_values_tried(pressed):
    def ask(value):
        return pressed.predict({"max_num_seqs": str(value)})[0]

    tried = {value: ask(value) for value in swept(4, 32, 32)}
    found = smallest_change(ask, tried, 32, "preemptions", 0)
    assert found is not None
    assert meets(ask(found), "preemptions", 0)
    assert not meets(ask(found + 1), "preemptions", 0)
    assert smallest_change(ask, tried, 32, "duration_s", 0.001) is None


# SGLang, by its own settings


SGLANG = sglang.Settings(1_600, page_size=1, max_running_requests=32, chunked_prefill_size=512, schedule_conservativeness=0.05)


def bursts() -> list[Request]:
    """Twelve requests at once, and time to rest: an idle SGLang forgets how long answers were, and takes too many of the next."""
    load = requests(300, prompt=80, output=200)
    return [replace(each, arrived=30.0 * (i // 12) + 0.02 * (i % 12)) for i, each in enumerate(load)]


@pytest.fixture(scope="module")
def retracting() -> WhatIf:
    """Bursts of requests before an SGLang that retracts."""
    return WhatIf.of(recording(bursts(), SGLANG, engine_kind="sglang"))


def test_a_run_of_sglang_is_reproduced(retracting):
    assert retracting.before.mean("preemptions") > 50
    assert max(each.miss for each in retracting.checks) < 0.1


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({"max_running_requests": "5"}, {"max_running_requests": 5}),
        ({"max_total_tokens": "2400"}, {"max_total_num_tokens": 2_400}),
        ({"schedule_conservativeness": "1.0"}, {"schedule_conservativeness": 1.0}),
        ({"chunked_prefill_size": "128"}, {"chunked_prefill_size": 128}),
        ({"kv_cache_dtype": "fp8_e5m2"}, {"max_total_num_tokens": 3_200}),
        ({"disable_radix_cache": "true"}, {"is_caching": False}),
        ({"schedule_policy": "lof"}, {"schedule_policy": "lof"}),
    ],
)
def test_another_setting_of_sglang_is_foretold(retracting, changes, changed):
    outcome = serve(bursts(), replace(SGLANG, **changed), engine_kind="sglang")
    told, _ = retracting.predict(changes)
    for name, truth in (
        ("preemptions", len(outcome.preemptions)),
        ("recomputed_tokens", outcome.recomputed_tokens),
        ("duration_s", outcome.ended_at),
    ):
        assert told.figures[name].low <= truth <= told.figures[name].high, name


@pytest.mark.parametrize("name", [*MODELS["sglang"].own, *OF_LOAD])
def test_every_lever_of_sglang_says_where_it_stands_and_what_it_takes(retracting, name):
    run = retracting.model.recording
    assert name in run.model.values(run.scenario, run.facts)
    with pytest.raises(LeverError, match=name):
        run.model.applied(run.scenario, {name: "much"}, run.facts)


def test_a_setting_of_another_engine_names_those_of_this_one(retracting, pressed):
    with pytest.raises(LeverError, match="max_num_seqs: not a setting a replay of SGLang knows; one of max_running_requests"):
        retracting.predict({"max_num_seqs": "9"})
    with pytest.raises(LeverError, match="schedule_policy: not a setting a replay of vLLM knows; one of max_num_seqs"):
        pressed.predict({"schedule_policy": "lof"})


@pytest.fixture(scope="module")
def retraction_tables(analyze_sample):
    """Of a real SGLang, its log and metrics."""
    with open_read_only(analyze_sample(PROJECT / "sample_traces" / "sglang-0.5.23-retraction").analysis.out) as con:
        return recorded.of_analysis(con)


def test_a_recorded_sglang_is_reproduced_and_asked(retraction_tables):
    what_if = WhatIf.of(recorded.read(retraction_tables))
    misses = {each.name: each.miss for each in what_if.checks}
    assert max(misses[name] for name in ("preemptions", "recomputed_tokens", "queue_s", "duration_s")) < 0.25
    found = {each.name: (each.recorded, each.replayed) for each in what_if.checks}
    told = "; ".join(
        (
            "has {:.0f} preemptions, replayed {:.1f}".format(*found["preemptions"]),
            "{:.0f} tokens computed again, replayed {:.0f}".format(*found["recomputed_tokens"]),
            "{:.1f} s with a queue, replayed {:.1f}".format(*found["queue_s"]),
            "and takes {:.1f} s, replayed {:.1f}.".format(*found["duration_s"]),
        )
    )
    assert told in " ".join((PROJECT / "docs" / "whatif.md").read_text().split())
    careful, _ = what_if.predict({"schedule_conservativeness": "1.0"})
    assert careful.figures["preemptions"].best < what_if.before.mean("preemptions")
    roomy, _ = what_if.predict({"max_total_tokens": "3000"})
    assert roomy.figures["preemptions"].high == 0
    assert any("ignore_eos" in each for each in what_if.model.recording.assumed)


def test_without_the_limits_it_admits_by_there_is_a_reason(retraction_tables):
    untold = retraction_tables["core.requests"].with_columns(max_tokens=pl.lit(None, pl.Int64))
    with pytest.raises(NotReplayableError, match="30 of 30 do not say; record them with --log-requests"):
        recorded.read({**retraction_tables, "core.requests": untold})


def test_a_guess_that_may_be_wrong_is_named_where_the_run_is_not_reproduced(retraction_tables):
    run = recorded.read(retraction_tables)
    tampered = {**run.measured, "preemptions": Measured(90.0, 90.0, 90.0)}
    with pytest.raises(NotReplayableError, match="or else it is not so that requests end where their text ends"):
        WhatIf.of(replace(run, measured=tampered))


# what is refused


VLLM = {
    "engine_kind": "vllm",
    "engine_generation": "v1",
    "has_speculative_decoding": False,
    "kv_connector": None,
    "was_set_up_anew": False,
}
SIZES = {"num_gpu_blocks": 144, "kv_capacity_tokens": 4608}


@pytest.mark.parametrize(
    ("engine_says", "said", "reason"),
    [
        ({"has_speculative_decoding": True}, {}, "speculative decoding"),
        ({}, {"num_speculative_tokens": "3"}, "speculative decoding"),
        ({"kv_connector": "LMCacheConnectorV1"}, {}, "LMCacheConnectorV1"),
        ({}, {"kv_offloading_size": "4.0"}, "offload"),
        ({}, {"enable_lora": "True"}, "LoRA"),
        ({}, {"scheduling_policy": "priority"}, "priority"),
        ({}, {"pipeline_parallel_size": "2"}, "pipeline"),
        ({}, {"mamba_cache_mode": "align"}, "hybrid"),
        ({"engine_generation": "v0"}, {}, "vLLM V0"),
        ({"engine_kind": "tensorrt_llm"}, {}, "tensorrt_llm"),
        ({"num_gpu_blocks": None, "kv_capacity_tokens": None}, {}, "KV pool"),
    ],
)
def test_what_is_not_modelled_gets_a_reason(engine_says, said, reason):
    with pytest.raises(NotReplayableError, match=reason):
        _require_modelled([VLLM | SIZES | engine_says], said)


SAID_BY_SGLANG = {"engine_kind": "sglang", "max_num_batched_tokens": 256}


@pytest.mark.parametrize(
    ("engine_says", "said", "reason"),
    [
        ({"has_speculative_decoding": True}, {}, "speculative decoding"),
        ({"kv_connector": "hicache"}, {}, "hicache"),
        ({"kv_capacity_tokens": None}, {}, "KV pool"),
        ({"max_num_batched_tokens": None}, {}, "chunked_prefill_size is not known"),
        ({}, {"disaggregation_mode": "decode"}, "disaggregated"),
        ({}, {"enable_priority_scheduling": "True"}, "priority"),
        ({}, {"retraction_policy": "priority"}, "priority"),
        ({}, {"scheduling_policy": "dfs-weight"}, "other than fcfs, lpm, lof"),
        ({}, {"enable_mixed_chunk": "True"}, "enable_mixed_chunk"),
        ({}, {"pipeline_parallel_size": "2"}, "pipeline"),
        ({}, {"swa_layer_tokens": "122880"}, "hybrid"),
        ({}, {"max_mamba_cache_size": "160"}, "hybrid"),
    ],
)
def test_what_is_not_modelled_of_sglang_gets_a_reason(engine_says, said, reason):
    with pytest.raises(NotReplayableError, match=reason):
        _require_modelled([VLLM | SIZES | SAID_BY_SGLANG | engine_says], said)


def test_an_sglang_with_nothing_special_is_replayed():
    said = {"disaggregation_mode": "null", "enable_priority_scheduling": "False", "scheduling_policy": "lpm"}
    assert _require_modelled([VLLM | SIZES | SAID_BY_SGLANG], said).name == "SGLang"


@pytest.mark.parametrize(
    ("moved", "reason"),
    [
        (("spec_draft_tokens", ""), "speculative decoding"),
        (("external_prefix_hits", ""), "external cache"),
        (("prompt_tokens_by_source", "model=m,source=external_kv_transfer"), "external cache"),
    ],
)
def test_a_counter_gives_away_what_the_settings_do_not_say(moved, reason):
    with pytest.raises(NotReplayableError, match=reason):
        _require_modelled([VLLM | SIZES], {}, {("prompt_tokens", ""), moved})


def test_an_engine_with_nothing_special_is_replayed():
    _require_modelled([VLLM | SIZES], {"kv_offloading_backend": "native", "mamba_cache_mode": "none", "enable_lora": "False"})


def test_what_is_known_only_within_a_range_is_missed_only_beyond_it():
    run = recording(requests(150), engine(), 28)
    for high, is_missed in ((1e6, False), (900.0, True)):
        told = {**run.measured, "recomputed_tokens": Measured(800.0, 850.0, high)}
        checks = {each.name: each for each in WhatIf.of(run).checks} | {
            "recomputed_tokens": _check("recomputed_tokens", told["recomputed_tokens"], 9_000.0)
        }
        assert (why_not(list(checks.values()), 1.0) is not None) is is_missed


def test_a_run_that_is_not_reproduced_gets_a_reason():
    run = recording(requests(150), engine(), 28)
    tampered = {**run.measured, "preemptions": Measured(900.0, 900.0, 900.0)}
    with pytest.raises(
        NotReplayableError, match=r"does not reproduce the run \(preemptions 900 recorded and \d+(\.\d)? replayed"
    ):
        WhatIf.of(replace(run, measured=tampered))


# levers and the words of a question


def test_memory_becomes_blocks_by_shown_arithmetic(pressed):
    run = pressed.model.recording
    changed, (note,) = run.model.applied(run.scenario, {"gpu_memory_utilization": "0.6"}, run.facts)
    # 10 GiB are half of the GPU: a tenth more of it is 2 GiB, half as much again
    assert changed.settings.blocks + 1 == 144 * 1.5
    assert "2.00 GiB more" in note
    changed, _ = run.model.applied(run.scenario, {"kv_cache_dtype": "fp8"}, run.facts)
    assert changed.settings.blocks + 1 == 288
    # half the weights leave 3 GiB more to the cache of each of two GPUs
    changed, _ = run.model.applied(run.scenario, {"tensor_parallel_size": "2"}, run.facts)
    assert changed.settings.blocks + 1 == 144 * 2 * 7 / 4


def test_memory_becomes_tokens_by_shown_arithmetic(retracting):
    run = retracting.model.recording
    facts = replace(run.facts, gpu_memory_utilization=0.85, free_before_load_gib=80.0)  # beside 6 GiB of weights, 4 of cache
    changed, (note,) = run.model.applied(run.scenario, {"mem_fraction_static": "0.875"}, facts)
    assert changed.settings.max_total_num_tokens == 1_600 * 1.5  # a fortieth of 80 GiB is half as much as the cache has
    assert "2.00 GiB more of the 80.00 GiB" in note
    changed, _ = run.model.applied(run.scenario, {"tp_size": "2"}, facts)
    assert changed.settings.max_total_num_tokens == 1_600 * 2 * 7 / 4
    paged = replace(run.scenario, settings=replace(SGLANG, page_size=64))
    changed, _ = run.model.applied(paged, {"mem_fraction_static": "0.86"}, facts)
    assert changed.settings.max_total_num_tokens == 1_920 - 1_920 % 64
    with pytest.raises(LeverError, match="mem_fraction_static: leaves no room"):
        run.model.applied(run.scenario, {"mem_fraction_static": "0.5"}, facts)
    with pytest.raises(LeverError, match="mem_fraction_static: the inputs do not say"):
        run.model.applied(run.scenario, {"mem_fraction_static": "0.9"}, run.facts)


OF_MEMORY = {
    "vllm": {"gpu_memory_utilization": "0.6", "kv_cache_dtype": "fp8", "tensor_parallel_size": "2"},
    "sglang": {"mem_fraction_static": "0.6", "kv_cache_dtype": "fp8_e5m2", "tp_size": "2"},
}


@pytest.mark.parametrize(
    ("engine_kind", "said", "not_asked"),
    [
        ("vllm", {"num_gpu_blocks_override": "144"}, {"gpu_memory_utilization", "kv_cache_dtype", "tensor_parallel_size"}),
        ("vllm", {"kv_cache_memory_bytes": "1073741824"}, {"gpu_memory_utilization", "tensor_parallel_size"}),
        ("vllm", {}, set()),
        ("sglang", {"max_total_tokens": "1600"}, {"mem_fraction_static", "kv_cache_dtype", "tp_size"}),
        ("sglang", {"max_total_tokens": "1601"}, set()),  # a limit that does not bind
    ],
)
def test_memory_is_not_asked_about_where_a_setting_is_the_pools_size(pressed, retracting, engine_kind, said, not_asked):
    run = (pressed if engine_kind == "vllm" else retracting).model.recording
    facts = replace(run.facts, free_before_load_gib=20.0, pool_set_by=recorded.pool_set_by(said, 1_600))
    for name, value in OF_MEMORY[engine_kind].items():
        fixed = pytest.raises(LeverError, match=f"{name}: {next(iter(said), None)} fixes the size of this pool")
        with fixed if name in not_asked else nullcontext():
            run.model.applied(run.scenario, {name: value}, facts)


@pytest.mark.parametrize("name", [*MODELS["vllm"].own, *OF_LOAD])
def test_every_lever_says_where_it_stands_and_what_it_takes(pressed, name):
    run = pressed.model.recording
    assert name in run.model.values(run.scenario, run.facts)
    with pytest.raises(LeverError, match=name):
        run.model.applied(run.scenario, {name: "much"}, run.facts)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("whatif {dir}", "nothing asked"),
        ("whatif {dir} --target itl_p99_ms=100", "such as --sweep max_num_seqs=4..64"),
        ("whatif {dir} --set max_num_seqs", "NAME=VALUE"),
        ("whatif {dir} --set max_num_seq=16", "max_num_seq: not known; did you mean `max_num_seqs`?\n"),
        ("whatif {dir} --sweep max-num-seq=4..8", "max_num_seq: not known; did you mean `max_num_seqs`?\n"),
        ("whatif {dir} --set max_num_seqs=9 --target itl_p9_ms=1", "did you mean `itl_p99_ms`?\n"),
        ("whatif {dir} --set temperature=1", "temperature: not known; one of max_num_seqs"),
        ("whatif {dir} --sweep max_num_seqs=64..4", "write it as max_num_seqs=4..64"),
        ("whatif {dir} --sweep kv_cache_dtype=1..2", "kv_cache_dtype: not known; one of max_num_seqs"),
        ("whatif {dir} --set max_num_seqs=9 --target joy=1", "joy: not known; one of preemptions"),
        ("whatif {dir} --set max_num_seqs=9 --target itl_p99_ms=low", "not a number"),
    ],
)
def test_a_question_that_is_none_is_one_line_and_status_2(capsys, words, wrong):
    assert cli.main(words.format(dir=PROJECT).split()) == 2
    error = capsys.readouterr().err
    assert wrong in error
    assert error.count("\n") == 1


def test_two_analyses_are_one_too_many(capsys, analyzed):
    both = [str(analyzed.analysis.out)] * 2
    assert cli.main(["whatif", *both, "--set", "max_num_seqs=9"]) == 2
    assert "2 paths are given: whatif replays one run" in capsys.readouterr().err


def test_an_analysis_without_a_column_of_today_is_of_another_version(capsys, analyzed, tmp_path):
    database = tmp_path / "analysis.duckdb"
    shutil.copy(analyzed.analysis.database, database)
    with duckdb.connect(str(database)) as con:
        con.execute("alter table core.requests drop column max_tokens")
    assert cli.main(["whatif", str(tmp_path), "--set", "max_num_seqs=9"]) == 2
    assert "made by another version of kvpressure; analyze its inputs again" in capsys.readouterr().err


def test_help_names_every_setting_and_figure(capsys):
    with pytest.raises(SystemExit):
        cli.main(["whatif", "--help"])
    told = "".join(capsys.readouterr().out.split())
    assert [name for name in (*LEVERS, *FIGURES) if name not in told] == []


# what is printed


def test_text_has_80_columns_and_json_every_figure(pressed):
    asked = cli_whatif.question(["max_num_seqs=9"], "max_num_seqs=8..10", "preemptions=0")
    after, notes = pressed.predict(asked.changes)
    curve = {value: pressed.predict({"max_num_seqs": str(value)})[0] for value in (8, 9, 10)}
    told = cli_whatif.Answer(pressed, pressed.recorded(), after, notes, curve, 9)
    page = cli_whatif.text(asked, told)
    assert max(map(len, page.splitlines())) <= 80
    assert "smallest change that meets it is max_num_seqs=9" in " ".join(page.split())
    object_ = json.loads(cli_whatif.as_json(asked, told))
    assert set(object_["after"]["figures"]) == set(FIGURES)
    assert [each["value"] for each in object_["curve"]] == [8, 9, 10]


@pytest.mark.parametrize(("of_target", "is_doubted"), [(0.9, False), (1.1, True)])
def test_a_target_that_the_run_meets_as_it_is_replayed_names_no_change(pressed, of_target, is_doubted):
    asked = cli_whatif.question([], "max_num_seqs=32..33", "itl_p99_ms=200")
    checks = (replace(pressed.checks[0], name="itl_p99_ms", recorded=of_target * 200),)
    as_it_is = pressed.recorded()
    told = cli_whatif.Answer(replace(pressed, checks=checks), as_it_is, None, (), {32: as_it_is}, 32)
    page = " ".join(cli_whatif.text(asked, told).split())
    assert "Target itl_p99_ms <= 200: met as it is, replayed, with itl_p99_ms" in page
    assert "smallest change" not in page
    assert ("As recorded it was not, with 220.0:" in page) == is_doubted


def test_what_a_replay_told_is_not_recorded(analyzed, pressed):
    with open_read_only(analyzed.analysis.database) as con:
        tables = recorded.of_analysis(con)
    counted = recorded.read(tables).measured
    by_replay = tables["marts.preemptions"].with_columns(method=pl.lit("replay"))
    replayed = recorded.read({**tables, "marts.preemptions": by_replay}).measured
    assert set(counted) - set(replayed) == {"preemptions"}
    what_if = replace(pressed, checks=tuple(each for each in pressed.checks if each.name != "preemptions"))
    asked = cli_whatif.question(["max_num_seqs=32"], None, None)
    page = cli_whatif.text(asked, cli_whatif.Answer(what_if, what_if.recorded(), None, (), {}, None))
    [row] = [line for line in page.splitlines() if line.startswith("preemptions")]
    assert row.split()[:3] == ["preemptions", "not", "told"]


def test_no_change_at_all_changes_nothing(pressed):
    asked = cli_whatif.question(["max_num_seqs=32"], None, None)
    after, notes = pressed.predict(asked.changes)
    told = cli_whatif.Answer(pressed, pressed.recorded(), after, notes, {}, None)
    page = cli_whatif.text(asked, told)
    rows = [line.split() for line in page[page.index("With max_num_seqs=32") :].splitlines() if line.startswith(FIGURES)]
    assert len(rows) == len(FIGURES)
    assert [name for name, before, then, *_ in rows if before != then] == []
    object_ = json.loads(cli_whatif.as_json(asked, told))
    assert object_["before"] == object_["after"]
    assert "before is the run as replayed" in " ".join(page.split())


def test_an_analysis_is_asked_on_the_command_line(capsys, analyzed):
    assert cli.main(["whatif", str(analyzed.analysis.out), "--set", "max_num_seqs=4", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["after"]["figures"]["preemptions"]["best"] < told["before"]["figures"]["preemptions"]["best"]


# long runs


def test_of_a_long_run_the_part_around_its_main_verdict_is_replayed():
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    sent = [noon + timedelta(seconds=i) for i in range(10_000)]
    start, end = sent[7_000], sent[7_500]
    part = part_of(sent, "preemption", start, end, most=1_000)
    assert part is not None
    assert part.since < start < end < part.until  # with time before it for the pool to fill
    assert sum(part.since <= at <= part.until for at in sent) == part.requests == 1_000
    assert "990 of the 10,000 requests" in part.told(990)
    assert part_of(sent, "preemption", start, end, most=10_000) is None


def test_a_part_of_a_long_verdict_is_no_longer_than_can_be_replayed():
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    sent = [noon + timedelta(seconds=i) for i in range(10_000)]
    part = part_of(sent, "preemption", sent[0], sent[-1], most=1_000)
    assert part is not None
    assert (part.since, part.until) == (sent[0], sent[999])


# what an analysis keeps of KV events


def test_an_analysis_keeps_which_requests_begin_alike(analyzed):
    with open_read_only(analyzed.analysis.out) as con:
        tables = recorded.of_analysis(con)
    told = recorded.read(tables)
    assert any("told by KV events" in each for each in told.assumed)
    assert told.scenario.hit_share == 0
    too_few = tables["core.request_blocks"].head(tables["core.requests"].height // 2)
    drawn = recorded.read({**tables, "core.request_blocks": too_few})
    assert any("they are drawn" in each for each in drawn.assumed)
    assert drawn.scenario.hit_share > 0
    assert not any(each.content for episode in drawn.episodes for client in episode for each in client.records)


def test_a_request_trace_tells_it_as_well_as_kv_events(analyzed):
    """The traces that the two clients' loads could have been made from: of each request its prompt's length, and its blocks."""
    with open_read_only(analyzed.analysis.out) as con:
        tables = recorded.of_analysis(con)
    told = recorded.read(tables)
    stored = dict(tables["core.request_blocks"].select("request_key", "blocks").iter_rows())
    columns = ("request_key", "source", "request_index", "input_tokens")
    rows = []
    for key, source, index, tokens in tables["core.requests"].select(columns).iter_rows():
        named = [*stored.get(key, ())[: tokens // 32], 10**6 + len(rows)][: -(-tokens // 32)]  # the last block may not be full
        rows.append((f"of {source}", index, tokens, 32, named))
    trace = pl.DataFrame(rows, ["source", "line", "input_tokens", "block_size", "block_hashes"], orient="row")
    blocks = pl.DataFrame(list(by_trace(tables["core.requests"], trace)), tables["core.request_blocks"].schema, orient="row")
    curve = trace.select("source", "block_size").unique()
    again = recorded.read({**tables, "core.request_blocks": blocks, "marts.hit_rate_curve": curve})
    assert any("told by the request trace of client-calm.json, of client-storm.json, for " in each for each in again.assumed)
    hits = [_first_hits(each) for each in (told, again)]
    assert hits[1] == pytest.approx(hits[0], rel=0.02)
    assert (told.told_by, again.told_by) == ("kv_events", "request_trace")
    untold = recorded.read({**tables, "core.request_blocks": blocks.clear(), "marts.hit_rate_curve": curve})
    assert sum("and is not used: that the recorded requests were made from it" in each for each in untold.assumed) == 2
    unsized = curve.with_columns(block_size=pl.lit(None, pl.Int64))
    untold = recorded.read({**tables, "core.request_blocks": blocks.clear(), "marts.hit_rate_curve": unsized})
    assert sum("and is not used: how many tokens its blocks have is not known" in each for each in untold.assumed) == 2


def _first_hits(run: recorded.Recording) -> int:
    """Prompt tokens found in the cache in a replay of the run."""
    return sum(outcome.first_hit_tokens for episode in replays(Model(run), run.scenario, 0) for outcome in episode)


# the same figures as advice


def test_advice_tells_the_figures_of_whatif(analyzed):
    with open_read_only(analyzed.analysis.out) as con:
        effects = con.sql("from replayed_effects where rank = 1").pl().to_dicts()
        words = "select told_by, expected_effect, trade_off from recommendations where rank = 1"
        told_by, effect, price = con.sql(words).fetchall()[0]
        what_if = WhatIf.of(recorded.read(recorded.of_analysis(con)))
    figures = what_if.predict({effects[0]["setting"]: effects[0]["to_value"]})[0].figures
    assert {row["figure"]: (row["low"], row["best"], row["high"]) for row in effects} == {
        name: (told.low, told.best, told.high) for name, told in figures.items()
    }
    assert told_by == "replay"
    assert {row["figure"]: row["before"] for row in effects} == {name: what_if.before.mean(name) for name in figures}
    own = f"{what_if.before.mean('preemptions'):.0f}"
    then = f"{figures['preemptions'].best:.0f}"
    assert f"Replayed: preemptions from {own} (152 recorded) to {then} (" in effect
    was = what_if.before.mean("output_tokens_per_s")
    assert (
        f"output tokens per second from {was:,.{0 if was >= 1000 else 1}f} to {figures['output_tokens_per_s'].best:.1f} ("
        in price
    )
    assert "Tokens per second fall by about" not in price


def test_a_replay_is_of_one_setting():
    with pytest.raises(NotReplayableError, match="a restart changed the engine's settings in between"):
        _require_modelled([VLLM | SIZES | {"was_set_up_anew": True}], {})


@pytest.mark.parametrize(("engines", "requests", "reason"), [(2, 10, "2 engines"), (1, 2_000, "2,000 requests"), (1, 200, None)])
def test_an_analysis_replays_only_what_is_quick(engines, requests, reason):
    tables = {
        "core.engines": pl.DataFrame({"engine": [str(i) for i in range(engines)]}),
        "core.requests": pl.DataFrame({"output_tokens": [300] * requests}),
    }
    told = _too_much(tables)
    assert told is None if reason is None else reason in told
