"""The README's table of how well each kind of evidence does is what the recordings give today."""

from __future__ import annotations

import pytest

from tests.e2e import accuracy
from tests.e2e.test_waste_truth import TRUTH


@pytest.mark.drill
@pytest.mark.skipif(not TRUTH.exists(), reason="the recordings with their truth are not here")
def test_the_accuracy_table_is_as_measured():
    found = accuracy.measures()
    assert all(each.held for each in found)
    assert accuracy.table(found) == accuracy.written()
