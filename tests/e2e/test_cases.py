"""Public bug reports, each written as the engine would have: what is told, against what was true and what must not be said.

The reports themselves are facts beside the project (`../shared/cases.jsonl`); without them the test is skipped. `ANSWERS`
translates each report's cause into the verdicts of this product: any of `right` may be primary, none of `wrong` may be told at
all, and no recommendation may match `not_advised`. Where the inputs do not carry the cause, `insufficient_evidence`, or a queue
of unknown cause that says what to record, is right too; where it is the accounting that is at fault, `healthy` is.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import read_into
from tests.e2e.case_inputs import builders
from tests.typed_tables import Sql

CASES = Path(__file__).parents[3] / "shared" / "cases.jsonl"
UNTOLD = {"insufficient_evidence", "queue_unknown"}
KV = {"queue_kv_capacity", "preemption", "prefix_eviction"}


@dataclass(frozen=True)
class Answer:
    right: set[str]
    wrong: set[str] = frozenset()
    not_advised: str = ""


ANSWERS = {
    "vllm-18115-v1-kv-full-silent-thrash": Answer({"queue_kv_capacity"} | UNTOLD, {"prefix_eviction"}),
    "vllm-37307-queue-is-prefill-budget-then-thrash": Answer({"queue_token_budget"}, {"queue_kv_capacity"}),
    "vllm-546-swap-deadlock": Answer({"preemption"} | UNTOLD),
    "vllm-6102-first-preemption-crash": Answer({"preemption"}),
    "inference-sim-963-healthy-preemption": Answer({"preemption"}),
    "sglang-study-retract-wait-not-recompute": Answer({"preemption"}),
    "sglang-7133-queue-with-free-kv": Answer({"queue_kv_capacity"} | UNTOLD, {"preemption"}, r"mem.fraction"),
    "sglang-33483-cuda-graph-cliff": Answer({"decode_slow", "healthy"} | UNTOLD, KV, r"replica|mem.fraction"),
    "sglang-30047-mamba-pool-binds": Answer({"queue_token_budget"} | UNTOLD, {"queue_kv_capacity", "preemption"}),
    "sglang-6778-usage-not-leak": Answer({"healthy"}, KV),
    "vllm-11517-running1-pending3": Answer(
        {"queue_deferred"} | UNTOLD, KV | {"queue_max_num_seqs"}, r"gpu_memory_utilization|kv_cache_dtype"
    ),
    "vllm-3561-36-running-78-pending-99pct": Answer({"queue_kv_capacity"}, {"preemption"}),
    "vllm-8719-uneven": Answer({"queue_token_budget", "queue_kv_capacity"} | UNTOLD),
    "public-18b-runaway-no-max-tokens": Answer({"runaway_generation", "queue_deferred"}, KV | {"engine_stalled"}),
    "vllm-25780-hit-rate-inflated-by-preemption": Answer({"queue_kv_capacity", "preemption"} | UNTOLD, {"prefix_eviction"}),
    "sendnn-1030-overcount-lines": Answer({"healthy", "queue_token_budget"} | UNTOLD, KV),
    "vllm-40691-size-log-wrong": Answer({"healthy"} | UNTOLD, KV),
    "kaito-2319-mamba-slots": Answer({"never_served"}, KV),
    "vllm-48808-dp-long-context": Answer({"imbalance"}),
    "vllm-nixl-0924-expired": Answer({"healthy"} | UNTOLD, KV),
    "public-offload-lookup-livelock": Answer({"engine_stalled"}, {"healthy", "queue_kv_capacity"}),
    "public-packed-kv-stall-98pct": Answer({"engine_stalled"}),
    "lmcache-1547-decoder-recompute": Answer({"healthy"} | UNTOLD, {"prefix_eviction"}),
    "vllm-39963-client-readbuf": Answer({"healthy", "client_limited"}, KV | {"queue_max_num_seqs", "queue_token_budget"}),
    "vllm-18674-cpu-device": Answer({"healthy"}, {"offload_pressure"}),
    "vllm-14412-2-requests-100pct": Answer(
        {"queue_kv_capacity", "preemption"} | UNTOLD, {"queue_max_num_seqs"}, r"^Raise max_num_seqs"
    ),
    "vllm-15422-lora-head-of-line": Answer({"queue_deferred"}, {"queue_kv_capacity", "queue_max_num_seqs"}),
    "lil-541-prefill-starves-decode": Answer({"prefill_interference"}, KV),
    "vllm-43736-double-counting-retries": Answer({"queue_kv_capacity"}, {"prefix_eviction", "preemption"}),
    "vllm-1cat-90-window-1000": Answer({"healthy"} | UNTOLD, KV),
    "vllm-11072-second-turn-miss": Answer({"healthy"} | UNTOLD, {"prefix_eviction"}),
    "vllm-20302-usage-metric": Answer({"healthy"} | UNTOLD, KV),
    "aiconfigurator-1380-staging-kv": Answer({"queue_deferred", "queue_kv_capacity"}),
    "vllm-45388-offload-deadlock": Answer({"engine_stalled"}, {"healthy"} & set(), r"gpu_memory_utilization|kv_cache_dtype"),
    "vllm-52530-request-never-fits": Answer({"engine_stalled"}, {"healthy"}, r"balanc|replica"),
    "lmcache-1061-offload-no-benefit": Answer({"healthy"} | UNTOLD, KV, r"offload"),
    "gpustack-2324-connector-limit": Answer({"healthy", "client_limited"} | UNTOLD, {"queue_max_num_seqs"}, r"max_num_seqs"),
    "tt-4179-measurement-boundary": Answer({"cold_start", "healthy"} | UNTOLD, KV),
    "vllm-12122-grammar-ttft": Answer({"queue_deferred"}, KV),
    "vllm-omni-6365-queue-at-2rps": Answer({"queue_token_budget"} | UNTOLD, {"queue_kv_capacity", "queue_max_num_seqs"}),
    "vllm-ascend-10820-decode-recompute": Answer({"preemption"}),
    "sglang-22726-token-usage-excludes-evictable": Answer({"healthy"} | UNTOLD, {"queue_kv_capacity", "preemption"}),
    "sglang-21396-transfer-req-misread": Answer({"healthy"} | UNTOLD, KV),
    "trtllm-2866-big-max-tokens": Answer(UNTOLD, {"queue_kv_capacity", "queue_max_num_seqs"}, r"batch.size"),
    "trtllm-9412-sequential-without-max-tokens": Answer(UNTOLD, {"queue_kv_capacity", "queue_max_num_seqs"}, r"batch.size"),
    "trtllm-16827-max-util": Answer({"preemption"}, {"healthy"}),
    "trtllm-backend-609-active8-scheduled1": Answer({"queue_kv_capacity"} | UNTOLD, {"queue_max_num_seqs"}, r"batch.size"),
    "llamacpp-20153-swa-hybrid-full-reprocess": Answer({"healthy"} | UNTOLD, KV),
    "llamacpp-unified-kv-oversubscribed": Answer({"queue_kv_capacity"}, {"preemption"}),
}

# Nothing an engine wrote: a simulator's output, and a wish.
NO_INPUT = {"inference-sim-1167-prefix-reduces-preempt", "vllm-5051-thrash-metric-request"}

pytestmark = pytest.mark.skipif(not CASES.exists(), reason="the bug reports are not beside the project")


def reports() -> dict[str, dict]:
    return {case["id"]: case for case in map(json.loads, CASES.read_text().splitlines())} if CASES.exists() else {}


@pytest.mark.parametrize("case", [case for case in builders() if case in ANSWERS])
def test_a_reported_case_is_told_right_or_said_to_be_untold(case, tmp_path, record_property):
    report, answer = reports()[case], ANSWERS[case]
    for name, text in builders()[case](report["lines"]).items():
        (tmp_path / name).write_text(text)
    sql = read_into(Sql(), tmp_path)
    told = [(row["verdict"], row["severity"], row["is_primary"], row["summary"]) for row in sql.rows("advice.verdicts").dicts()]
    advised = []
    if answer.not_advised:
        advised = [f"{row['title']} {row['setting'] or ''}" for row in sql.rows("advice.recommendations").dicts()]
    primary = {
        verdict for verdict, severity, is_primary, _ in told if is_primary and severity == max(row[1] for row in told if row[2])
    }
    record_property("told", f"{case}: expected {report['expected_verdict']}; told {sorted(primary)}")
    assert primary, told
    assert primary <= answer.right, told
    assert not {verdict for verdict, severity, _, _ in told if severity >= 20} & answer.wrong, told
    assert not primary & answer.wrong, told
    assert not [title for title in advised if re.search(answer.not_advised, title, re.IGNORECASE)], advised


def test_every_report_has_its_input_and_its_answer():
    assert set(reports()) - NO_INPUT == set(ANSWERS) == set(builders())


def test_mild_preemption_is_said_to_be_mild(tmp_path):
    (tmp_path / "metrics.txt").write_text(builders()["inference-sim-963-healthy-preemption"]([])["metrics.txt"])
    [main] = [row for row in read_into(Sql(), tmp_path).rows("advice.verdicts").dicts() if row["is_primary"]]
    assert main["severity"] < 20
    assert any("mild" in sentence for sentence in main["evidence_against"])
