"""What somebody who mistyped a name meant: one of the names there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def meant(name: str, known: Iterable[str], otherwise: str) -> str:
    """The end of a sentence about an unknown name: the known one that is nearly it, else what to say instead."""
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean `{near[0]}`?" if near else otherwise
