"""Which server a log is of: its own name for it, its file's, or that of another than the log beside it."""

import pytest

SERVERS = "staging.input_servers"


def sources(sql, *names, kinds=("vllm",)):
    rows = "\n".join(f"{name}  {kinds[i % len(kinds)]}  vllm_engine_log" for i, name in enumerate(names))
    sql.given("raw.sources", f"source  engine_kind  format\n{rows}")


def samples(sql, **running):
    """Load samples ten seconds apart: `a_log=(first second, counts)`."""
    rows = []
    for name, (start, counts) in running.items():
        source = name.replace("__", "/").replace("_", ".")
        rows += [
            f"{source}  {i + 1}  12:{(start + 10 * i) // 60:02}:{(start + 10 * i) % 60:02}  {each}  0"
            for i, each in enumerate(counts)
        ]
    sql.given("raw.engine_samples", "source  line  at_utc  running  waiting\n" + "\n".join(rows))


def pods(sql, *names):
    rows = "\n".join(f"metrics.txt  12:00:00  {name}  vllm:num_requests_running  1" for name in names)
    sql.given("raw.metric_samples", f"source  at_utc  instance  name  value\n{rows}")


def test_a_file_called_as_a_server_is_of_it(sql):
    sources(sql, "in/vllm-1.log", "in/vllm-10.previous.log", "in/other.log", "in/vllm-1/server.log")
    pods(sql, "vllm-1", "vllm-10:8000")
    assert (
        sql.rows(SERVERS)
        == """
        source                   instance
        in/vllm-1.log            vllm-1
        in/vllm-1/server.log     vllm-1
        in/vllm-10.previous.log  vllm-10:8000
    """
    )


def test_logs_of_different_loads_at_one_time_are_of_two_servers(sql):
    sources(sql, "a.log", "b.log")
    samples(sql, a_log=(0, [1, 2, 3]), b_log=(5, [7, 8, 9]))
    assert (
        sql.rows(SERVERS)
        == """
        source  instance
        a.log   a
        b.log   b
    """
    )
    assert [row["engine"] for row in sql.rows("staging.engine_samples").dicts()] == ["a/0"] * 3 + ["b/0"] * 3
    told = [row["detail"] for row in sql.rows("marts.data_quality").dicts() if row["flag"] == "server_told"]
    assert told[0].endswith("so it is taken for the log of a server of its own, a.")


@pytest.mark.parametrize(
    "other",
    [
        (30, [7, 8, 9]),  # one after the other: rotated, or started again
        (1, [1, 2, 3]),  # the same, stamped by who collected it
        (10, [2, 3]),  # a part of it
        (20, [3, 9]),  # the last line is cut
    ],
)
def test_a_log_in_parts_or_in_copies_is_of_one_server(sql, other):
    sources(sql, "a.log", "b.log")
    samples(sql, a_log=(0, [1, 2, 3]), b_log=other)
    assert sql.rows(SERVERS).dicts() == []
    assert {row["engine"] for row in sql.rows("staging.engine_samples").dicts()} == {"0"}


def starts(sql, **at):
    """The starts that logs tell, and what the engine says of itself with it: `a_log=("12:00:00", 40)`."""
    files = {name.replace("__", "/").replace("_", "."): said for name, said in at.items()}
    rows = "\n".join(f"{source}  0  {time}  engine_start" for source, (time, _) in files.items())
    sql.given("raw.engine_events", f"source  line  at_utc  event\n{rows}")
    rows = "\n".join(f"{source}  0  {time}  max_num_seqs  {value}" for source, (time, value) in files.items())
    sql.given("raw.engine_config", f"source  line  at_utc  key  value_text\n{rows}")


def test_a_start_while_another_log_goes_on_is_that_of_another_server(sql):
    """Their loads are shown one after the other, for the second was idle at first; each is judged by its own setting."""
    sources(sql, "a.log", "b.log")
    samples(sql, a_log=(60, [1, 2, 3]), b_log=(200, [7, 8]))
    starts(sql, a_log=("12:00:00", 40), b_log=("12:00:30", 48))
    assert [row["instance"] for row in sql.rows(SERVERS).dicts()] == ["a", "b"]
    assert {row["engine"]: row["max_num_seqs"] for row in sql.rows("core.engines").dicts()} == {"a/0": 40, "b/0": 48}


def test_a_start_after_the_last_load_of_a_log_is_a_restart(sql):
    """The end of the first process is logged while the next one starts."""
    sources(sql, "a.log", "b.log")
    samples(sql, a_log=(60, [1, 2, 3]), b_log=(200, [7, 8]))
    starts(sql, a_log=("12:00:00", 40), b_log=("12:01:30", 48))
    sql.given("raw.request_lines", "source  line  at_utc  event  request_id\na.log  99  12:01:40  aborted  r1")
    assert sql.rows(SERVERS).dicts() == []


def test_a_start_beside_the_same_loads_is_of_the_same_server(sql):
    """A log beside what was filtered from it: the statistics lines alone."""
    sources(sql, "all.log", "filtered.log")
    samples(sql, all_log=(60, [1, 2, 3, 4]), filtered_log=(60, [1, 2, 3, 4]))
    starts(sql, all_log=("12:01:15", 40))
    assert sql.rows(SERVERS).dicts() == []


def test_names_that_an_ordinal_sets_apart_are_replicas_if_set_up_otherwise_though_their_lives_do_not_touch(sql):
    sources(sql, "vllm-0.log", "vllm-1.log")
    samples(sql, **{"vllm-0_log": (60, [1, 2]), "vllm-1_log": (900, [7, 8])})
    starts(sql, **{"vllm-0_log": ("12:00:00", 40), "vllm-1_log": ("12:14:00", 48)})
    assert (
        sql.rows(SERVERS)
        == """
        source      instance  told_by
        vllm-0.log  vllm-0    ordinal
        vllm-1.log  vllm-1    ordinal
    """
    )
    told = [row["detail"] for row in sql.rows("marts.data_quality").dicts() if row["flag"] == "server_told"]
    assert told[0].startswith("It names no server; it begins with a start of its own and is called as one of several replicas")


@pytest.mark.parametrize(
    ("second", "instances"),
    [
        (("12:14:00", 40), []),  # runs of one server, a log for each
        (("12:01:15", 40), ["run-1", "run-2"]),  # the other was still there
        (("12:14:00", 48), ["run-1", "run-2"]),
    ],
)
def test_names_that_an_ordinal_sets_apart_are_one_server_where_it_was_started_again_as_before(sql, second, instances):
    sources(sql, "run-1.log", "run-2.log")
    samples(sql, **{"run-1_log": (60, [1, 2, 3]), "run-2_log": (900, [7, 8])})
    starts(sql, **{"run-1_log": ("12:00:00", 40), "run-2_log": second})
    assert [row["instance"] for row in sql.rows(SERVERS).dicts()] == instances


@pytest.mark.parametrize(
    ("second", "has_start"),
    [
        ("vllm-1_log", False),  # a log that goes on where the other ends
        ("vllm_log_1", True),  # a part of a rotated log, whatever it begins with
        ("vllm-b_log", True),
        ("vllm-20261129_log", True),  # a day
    ],
)
def test_names_of_parts_and_of_other_words_are_no_replicas(sql, second, has_start):
    first = "vllm_log" if second == "vllm_log_1" else "vllm-0_log"
    sources(sql, first.replace("_", "."), second.replace("_", "."))
    samples(sql, **{first: (60, [1, 2]), second: (900, [7, 8])})
    starts(sql, **{first: ("12:00:00", 40)} | ({second: ("12:14:00", 48)} if has_start else {}))
    assert sql.rows(SERVERS).dicts() == []


def test_two_kinds_of_engine_are_two_servers_whenever_they_ran(sql):
    sources(sql, "one.log", "two.log", kinds=("vllm", "sglang"))
    samples(sql, one_log=(0, [1]), two_log=(900, [1]))
    assert [row["instance"] for row in sql.rows(SERVERS).dicts()] == ["one", "two"]


def test_parts_of_a_server_keep_its_name_beside_another_server(sql):
    sources(sql, "p/server.log", "p/server.log.1", "q/server.log")
    samples(sql, p__server_log=(0, [1, 2, 3]), p__server_log_1=(100, [1, 2]), q__server_log=(0, [7, 8, 9]))
    assert (
        sql.rows(SERVERS)
        == """
        source          instance
        p/server.log    p.server
        p/server.log.1  p.server
        q/server.log    q.server
    """
    )


def test_a_limit_that_was_outrun_was_said_by_another_start(sql):
    sources(sql, "a.log")
    samples(sql, a_log=(0, [1, 12, 7]))
    sql.given("raw.engine_config", "source  line  at_utc  key  value_text\na.log  9  12:01:00  max_num_seqs  4")
    assert [(row["max_num_seqs"], row["max_num_seqs_source"]) for row in sql.rows("core.engines").dicts()] == [(None, None)]
    told = [row["detail"] for row in sql.rows("marts.data_quality").dicts() if row["flag"] == "setting_outrun"]
    assert told == [
        "max_num_seqs 4 was said, and 12 requests ran at once: another start of the engine said it, so it is not used."
    ]
