"""The catalogue of remedies: every row is whole, and no version is ever told a setting it does not have."""

import re

import pytest

from pipelines.charts.language import VERDICTS
from pipelines.duck import connect
from tests.conftest import PROJECT
from tests.sql.engine_flags import VERSIONS, settings_of

PRESSURE = {
    "preemption", "queue_max_num_seqs", "queue_kv_capacity", "queue_token_budget", "queue_deferred", "prefix_eviction",
    "offload_pressure", "prefill_interference", "runaway_generation", "imbalance", "client_limited", "cold_start", "never_served",
}  # fmt: skip


def table(name: str) -> list[dict]:
    with connect(threads=1) as con:
        return con.sql(f"from {name}()").to_arrow_table().to_pylist()


@pytest.mark.parametrize(("engine", "version"), [(engine, version) for engine, read in VERSIONS.items() for version in read])
def test_a_version_is_told_only_settings_it_has(engine, version):
    with connect(threads=1) as con:
        told = con.sql(
            """
            select setting from engine_settings_known()
            where engine_kind = $engine
                and coalesce(version_number(first_version), 0) <= version_number($version)
                and coalesce(version_number(last_version) // 1000, 1e9) >= version_number($version) // 1000
            """,
            params={"engine": engine, "version": version},
        ).fetchall()
    assert {setting for (setting,) in told} <= settings_of(engine, version)


@pytest.mark.parametrize(
    "gone", ["swap_space", "preemption_mode", "num_scheduler_steps", "scheduler_delay_factor", "max_model_len"]
)
def test_settings_that_went_or_never_helped_are_not_in_it(gone):
    assert gone not in {row["setting"] for row in table("engine_settings_known")}


def test_a_flag_is_its_setting():
    for row in table("engine_settings_known"):
        assert row["setting"].replace("_", "-") in row["flag"].replace("_", "-"), row


def test_every_row_is_whole():
    for row in table("remedies"):
        assert all(row.values()), row
        assert all(row[text].endswith((".", "!")) for text in ("trade_off", "next_limit", "verify_by")), row


def test_every_lever_of_an_engine_answers_some_verdict():
    assert {row["lever"] for row in table("engine_settings_known")} <= {row["lever"] for row in table("remedies")}


def test_every_kind_of_pressure_has_a_lever_and_calm_has_none():
    assert {row["verdict"] for row in table("remedies")} == PRESSURE


def test_every_verdict_has_a_word_and_a_colour():
    signs = (PROJECT / "sql/core/signs.sql").read_text()
    shown = set(re.findall(r"'(\w+)'(?= (?:[^,\n]*end )?as verdict)", signs))
    assert {"preemption", "prefill_interference", "decode_slow"} <= shown
    assert shown | PRESSURE <= VERDICTS.keys()


def test_a_verdict_names_a_lever_once():
    pairs = [(row["verdict"], row["lever"]) for row in table("remedies")]
    assert len(pairs) == len(set(pairs))


def test_a_queue_for_slots_is_not_told_of_memory():
    words = " ".join(str(row) for row in table("remedies") if row["verdict"] == "queue_max_num_seqs" and row["preference"] == 1)
    assert not re.search(r"gpu_memory|more memory|replica", words, re.IGNORECASE)


def test_prefix_eviction_does_not_begin_with_concurrency():
    levers = {row["lever"] for row in table("remedies") if row["verdict"] == "prefix_eviction"}
    assert not levers & {"fewer_sequences", "more_sequences", "admission_headroom"}


@pytest.mark.parametrize(
    ("version", "number"),
    [("0.19.1", 19_001), ("0.32.0+cpu", 32_000), ("v0.6.3.post1", 6_003), ("0.11", 11_000), ("dev", None)],
)
def test_versions_sort(version, number):
    with connect(threads=1) as con:
        assert con.sql("select version_number($version)", params={"version": version}).fetchall() == [(number,)]
