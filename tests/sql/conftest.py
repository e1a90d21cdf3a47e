"""The `sql` fixture: a model is asked with a few rows typed into the test, and answers in the same form."""

from __future__ import annotations

import pytest

from tests.typed_tables import Sql


@pytest.fixture
def sql() -> Sql:
    return Sql()


@pytest.fixture
def alone() -> Sql:
    """The same, for one model at a time: what a test does not give is empty, whatever could be made of what it gives."""
    return Sql(is_made=lambda _: False)
