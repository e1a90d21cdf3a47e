"""What the data quality says of a file: of another kind, not read, or read in part."""


def test_a_log_that_could_not_be_opened_is_no_file_of_another_kind(sql):
    sql.given(
        "raw.sources",
        """
        source     format           is_other  error
        photo.png  -                true      photo.png: binary
        copy.log   -                true      copy.log: the same content
        shut.log   -                false     shut.log: cannot be opened
        cut.gz     vllm_engine_log  false     cut.gz: ends early
        good.log   vllm_engine_log  false     -
        """,
    )
    told = {
        row["source"]: (row["flag"], row["severity"])
        for row in sql.rows("marts.data_quality").dicts()
        if row["flag"] != "no_clock"
    }
    assert told == {
        "photo.png": ("not_recognised", "info"),
        "copy.log": ("not_recognised", "info"),
        "shut.log": ("not_read", "error"),
        "cut.gz": ("read_in_part", "error"),
    }
