"""The documents' tables of how well each kind of evidence does are what the recordings give today."""

from __future__ import annotations

import pytest

from tests.e2e import accuracy, left_out
from tests.e2e.test_waste_truth import TRUTH


@pytest.mark.drill
@pytest.mark.skipif(not TRUTH.exists(), reason="the recordings with their truth are not here")
def test_the_accuracy_table_is_as_measured():
    found = accuracy.measures()
    assert all(each.held for each in found)
    assert accuracy.table(found) == accuracy.written()


@pytest.mark.drill
@pytest.mark.skipif(not TRUTH.exists(), reason="the recordings with their truth are not here")
def test_no_recording_needs_more_than_the_stated_model_error():
    found = left_out.needs()
    assert all(each.needed <= left_out.MODEL_ERROR[each.method] for each in found)
    assert left_out.table(found) == left_out.written()
