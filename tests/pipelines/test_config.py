"""kvpressure.toml: what it says, and errors that name the key and the line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import pytest

from pipelines import patterns
from pipelines.config import ConfigError, load

ENGINE = '[[engines]]\nname = "chat"\npaths = ["*.log"]\n'
LAKE = '[lake]\nurl = "lake"\n'


def config(tmp_path: Path, text: str):
    (tmp_path / "k.toml").write_text(text)
    return load(tmp_path / "k.toml")


WRONG = {
    LAKE + ENGINE + "gpu_csot = 3\n": r"line 6: engines\[0\]\.gpu_csot is no key; did you mean `gpu_cost`\?",
    LAKE + ENGINE + '[[engines]]\nname = "b"\npaths = "x"\n': r"line 8: engines\[1\]\.paths is 'x'; it should be a list of texts",
    LAKE + '[[engines]]\npaths = ["x"]\n': r"line 4: engines\[0\] has no name; give it one, or put \{engine\} into each",
    LAKE + '[[engines]]\nname = "x"\n': r"line 3: engines\[0\] has neither paths nor prometheus",
    LAKE + ENGINE + 'timezone = "Mars"\n': r"line 6: engines\[0\]\.timezone: `Mars` is not a time zone; use a name",
    LAKE + 'timezone = "CEST"\n' + ENGINE: r"line 3: lake\.timezone: `CEST` is an abbreviation, no time zone; use the name",
    LAKE + ENGINE + 'group = "a b"\n': r"line 6: engines\[0\]\.group is `a b`; use letters, digits and _ only",
    LAKE + ENGINE + "gpu_cost = 0\n": r"line 6: engines\[0\]\.gpu_cost is 0\.0; a price per hour is above 0",
    LAKE
    + ENGINE
    + 'retired = ["chat"]\n': r"line 6: engines\[0\]\.retired is for engines that paths name; take `chat` out instead",
    LAKE + "retention_days = 0\n" + ENGINE: r"line 3: lake\.retention_days is at least 1",
    LAKE + "retention_days = true\n" + ENGINE: r"line 3: lake\.retention_days is True; it should be a whole number",
    LAKE + 'nightly = "00:30"\n' + ENGINE: r"line 3: lake\.nightly is '00:30'; it should be a time without quotes",
    LAKE + ENGINE + "[thresholds]\nrecompute_share = -1\n": r"line 7: thresholds\.recompute_share is -1\.0; a limit is 0 or more",
    LAKE + ENGINE + "[threshold]\n": r"line 6: `threshold` is no section; did you mean `thresholds`\?",
    'timezone = "UTC"\n'
    + LAKE
    + ENGINE: r"line 1: `timezone` stands outside of the sections; put it below \[lake\] or \[\[engines\]\]",
    LAKE + "gpu_cost = 3\n" + ENGINE: r"line 3: lake\.gpu_cost is no key; it belongs below \[\[engines\]\]",
    ENGINE: r"lake\.url is missing; add `url = \"lake\"` below \[lake\]",
    LAKE: r"no \[\[engines\]\]; add one",
    "[lake\n": r"not TOML",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_an_error_names_the_key_and_the_line(tmp_path, text):
    with pytest.raises(ConfigError) as error:
        config(tmp_path, text)
    assert re.search(WRONG[text], str(error.value))
    assert "\n" not in str(error.value)


def test_a_configuration_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "nothing.toml")


def test_one_entry_covers_a_fleet_and_takes_labels_from_its_paths(tmp_path):
    for name in (
        "west/chat-0/vllm.log",
        "west/chat-0/vllm.log.1",
        "east/chat-1/vllm.log",
        "east/.hidden/vllm.log",
        "east/x/other",
    ):
        (tmp_path / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "logs" / name).touch()
    told = config(tmp_path, LAKE + '[[engines]]\npaths = ["logs/{cluster}/{engine}/vllm.log*"]\nlabels = { model = "m" }\n')
    assert [(engine.name, dict(engine.labels)) for engine in told.fleet()] == [
        ("chat-0", {"cluster": "west", "model": "m"}),
        ("chat-1", {"cluster": "east", "model": "m"}),
    ]
    assert [Path(found.uri).name for found in told.engine("chat-0").files()] == ["vllm.log", "vllm.log.1"]
    with pytest.raises(ConfigError, match="did you mean `chat-0`"):
        told.engine("chat-00")


def test_a_path_that_names_the_day_gives_the_files_of_the_days_asked_for(tmp_path):
    for name in ("2026/11/26/a.prom", "2026/11/27/a.prom", "2026/11/27/b.prom", "2026/11/xx/a.prom"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    told = config(tmp_path, LAKE + '[[engines]]\npaths = ["{day:%Y/%m/%d}/{engine}.prom"]\n').engine("a")
    assert [found.day for found in told.files()] == [date(2026, 11, 26), date(2026, 11, 27)]
    [found] = told.files((date(2026, 11, 27), date(2026, 11, 28)))
    assert (found.day, Path(found.uri).name) == (date(2026, 11, 27), "a.prom")


def test_a_folder_stands_for_everything_below_it_and_brackets_in_a_name_for_themselves(tmp_path):
    for name in ("in/x/[pod] 1/a.log", "in/x/[pod] 1/deep/b.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    told = config(tmp_path, LAKE + '[[engines]]\npaths = ["in/x/{engine}/"]\n').engine("[pod] 1")
    assert [Path(found.uri).name for found in told.files()] == ["a.log", "b.log"]


@pytest.fixture
def somebody() -> Iterator[Path]:
    """A folder of somebody who is not root, and the test is them: root may look into everything."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        with TemporaryDirectory() as folder:
            yield Path(folder)
            for each in Path(folder).glob("*/logs"):
                each.chmod(0o700)
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize("path", ["chat/logs/*", "chat/logs/vllm.log", "*/logs/{day}.log", "{engine}/logs/", "**/*.log"])
def test_folders_on_the_way_of_a_path_that_may_not_be_looked_into_are_known(somebody, path):
    for name, rights in (("chat", 0o000), ("listed", 0o400), ("open", 0o700)):
        (somebody / name / "logs").mkdir(parents=True)
        (somebody / name / "logs" / "vllm.log").touch()
        (somebody / name / "logs").chmod(rights)
    closed = [str(somebody / name / "logs") for name in ("chat", "listed")]
    assert patterns.closed(path, somebody) == closed[: 1 if path.startswith("chat") else 2]
    assert {found.uri for found, _ in patterns.matches(path, somebody)} <= {str(somebody / "open/logs/vllm.log")}
    assert patterns.closed("open/logs/*", somebody) == patterns.closed("none/*", somebody) == []


def test_a_day_begins_at_midnight_of_the_lakes_zone_and_may_have_23_hours(tmp_path):
    told = config(tmp_path, '[lake]\nurl = "lake"\ntimezone = "Europe/Berlin"\nnightly = 04:00:00\n' + ENGINE)
    begin, end = told.window(date(2026, 3, 29))
    assert (end - begin).total_seconds() == 23 * 3600
    assert told.day_of(datetime(2026, 3, 28, 23, 30, tzinfo=ZoneInfo("UTC"))) == date(2026, 3, 29)
    assert told.lake.nightly == time(4)


def test_a_zone_may_be_an_offset(tmp_path):
    told = config(tmp_path, LAKE + 'timezone = "-03:00"\n' + ENGINE + 'timezone = "+05:30"\n')
    assert (told.lake.timezone, told.engine("chat").settings.timezone) == ("Etc/GMT+3", "Asia/Kolkata")


def test_an_engine_that_is_not_there_is_told_with_those_that_are(tmp_path):
    with pytest.raises(ConfigError, match=r"no engine `nope` and no file that names it; there is chat$"):
        config(tmp_path, LAKE + ENGINE).engine("nope")


def test_two_entries_with_one_name_are_told(tmp_path):
    with pytest.raises(ConfigError, match=r"two \[\[engines\]\] both have an engine `chat`"):
        config(tmp_path, LAKE + ENGINE + ENGINE).fleet()


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("{day:%Y%m%d}/{engine}.json", "20260102/chat.json"),
        ("{day}/{engine}*.log", "2026-01-02/chat.1.log"),
        ("{day}/{zone}{engine}.log", "2026-01-02/bchat.log"),
        ("**/{engine}-{day:%y%m%d}*", "a/b/chat-260102.gz"),
    ],
)
def test_words_and_stars_may_stand_beside_each_other(tmp_path, pattern, name):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    for engine, days in ((None, ()), ("chat", ()), ("chat", (date(2026, 1, 2),))):
        [(found, _)] = patterns.matches(pattern, tmp_path, engine=engine, days=days)
        assert (found.uri, found.day) == (str(tmp_path / name), date(2026, 1, 2))
    assert patterns.closed(pattern, tmp_path) == []
