"""The words of the command line, before anything is done."""

from pathlib import Path

import pytest

from pipelines.cli_arguments import build_parser


@pytest.mark.parametrize(
    "words",
    [
        ["sql", "DIR", "select -1", "--format", "csv"],
        ["sql", "DIR", "--format", "csv", "select -1"],
        ["sql", "--format=csv", "DIR", "select -1"],
    ],
)
def test_options_of_sql_may_stand_anywhere(words):
    told = build_parser().parse_args(words)
    assert (told.dir, told.query, told.format) == ("DIR", "select -1", "csv")


def test_inputs_may_stand_on_both_sides_of_an_option():
    told = build_parser().parse_args(["analyze", "server.log", "--out", "DIR", "metrics.txt", "--no-report", "client.json"])
    assert [path.name for path in told.paths] == ["server.log", "metrics.txt", "client.json"]
    assert told.out == Path("DIR")


def test_what_is_missing_or_too_much_is_named(capsys):
    for words, named in ((["compare", "one", "--out", "DIR"], "AFTER"), (["sql", "DIR", "select 1", "select 2"], "select 2")):
        with pytest.raises(SystemExit):
            build_parser().parse_args(words)
        assert named in capsys.readouterr().err
