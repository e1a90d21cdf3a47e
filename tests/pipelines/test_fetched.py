"""Metrics fetched for a day: asked for once, kept in the lake, and read as the day's."""

from __future__ import annotations

import gzip
import shutil
from datetime import date
from pathlib import Path

import pytest

from parsers import InputError
from pipelines import day_inputs, fetched
from pipelines.contents import Contents
from pipelines.http_source import HttpError
from pipelines.prometheus import Fetched, PrometheusError, Question
from tests.pipelines.engine_days import at, configured, scrapes

DAY = date(2026, 11, 27)


@pytest.fixture
def config(tmp_path):
    engine = '[[engines]]\nname = "metered"\nprometheus = "http://127.0.0.1:9"\nselector = \'pod="{engine}"\'\n'
    return configured(tmp_path, (), extra=engine)


def answering(monkeypatch, answer) -> list[Question]:
    """Let `fetch` answer so, and return what it was asked."""
    asked = []

    def fetch(question: Question, into: Path, **_: object) -> Fetched:
        asked.append(question)
        if isinstance(answer, Exception):
            raise answer
        into.mkdir()
        plain = scrapes(into.parent / "plain.json", at("2026-11-27 10:00"), 5)
        (into / "prometheus-1.json.gz").write_bytes(gzip.compress(plain.read_bytes()))
        return Fetched(into, 6, 30)

    monkeypatch.setattr(fetched, "fetch", fetch)
    return asked


def test_a_day_is_asked_for_once_and_read_from_what_was_kept(config, monkeypatch):
    asked, engine = answering(monkeypatch, None), config.engine("metered")
    fetched.bring(config, engine, DAY)
    fetched.bring(config, engine, DAY)
    assert asked == [Question("http://127.0.0.1:9", 'pod="metered"', *config.window(DAY))]
    contents = Contents(config.store, "metered")
    [digest] = day_inputs.choose(config, engine, DAY, contents)
    assert contents.kept(digest).rows["metric_samples"] == 30


def test_a_server_that_does_not_answer_is_a_fault_and_one_without_series_is_not(config, monkeypatch):
    engine = config.engine("metered")
    answering(monkeypatch, PrometheusError("no series"))
    told = []
    fetched.bring(config, engine, DAY, tell=told.append)
    assert told == ["no series"]
    answering(monkeypatch, HttpError("http://127.0.0.1:9: refused; is it running?"))
    with pytest.raises(InputError, match="refused"):
        fetched.bring(config, engine, DAY)
    assert not config.store.names("fetched/**/*")
    shutil.rmtree(config.store.folder, ignore_errors=True)
