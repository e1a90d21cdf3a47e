"""What the data quality says of a file: of another kind, not read, or read in part."""


def test_a_log_that_could_not_be_opened_is_no_file_of_another_kind(sql):
    sql.given(
        "raw.sources",
        """
        source     format           is_other  copy_of   error
        photo.png  -                true      -         photo.png: binary
        copy.log   -                true      good.log  copy.log: the same content
        shut.log   -                false     -         shut.log: cannot be opened
        cut.gz     vllm_engine_log  false     -         cut.gz: ends early
        good.log   vllm_engine_log  false     -         -
        """,
    )
    told = {
        row["source"]: (row["flag"], row["severity"])
        for row in sql.rows("marts.data_quality").dicts()
        if row["flag"] != "no_clock"
    }
    assert told == {
        "photo.png": ("not_recognised", "info"),
        "copy.log": ("copy", "info"),
        "shut.log": ("not_read", "error"),
        "cut.gz": ("read_in_part", "error"),
    }


def test_processes_that_alternate_in_a_log_are_of_several_servers(sql):
    """One that takes the place of another is a restart, whatever else writes beside them."""

    def told(*order):
        lines = [f"a.log  {line}  {process}" for line, process in enumerate(order)]
        sql.given("raw.engine_samples", "\n".join(["source  line  process", *lines]))
        return [row["detail"][:42] for row in sql.rows("core.faults_of_inputs").dicts() if row["flag"] == "servers_mixed"]

    first, second, other = "APIServer pid=1", "APIServer pid=2", "EngineCore pid=3"
    assert told(first, second, first, second) == ["Lines of 2 servers (APIServer pid=1, APISe"]
    assert told(first, other, first, other, second, other, second) == []
    assert told(first, second, first) == []  # a last word of the one that was replaced
