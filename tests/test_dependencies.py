"""Each dependency has a reason, and the page that lists them is the lock file's."""

from __future__ import annotations

from tests import dependencies


def test_each_dependency_says_what_it_is_for():
    assert [name for name, why in dependencies.direct().items() if not why] == []


def test_the_page_lists_what_the_lock_file_has():
    page = dependencies.PAGE.read_text()
    missing = [name for name, version in dependencies.locked().items() if f"| {name} | {version} |" not in page]
    assert missing == []
    assert page.count("\n| ") - 2 == len(dependencies.locked())  # nothing that has gone; two lines are headings
