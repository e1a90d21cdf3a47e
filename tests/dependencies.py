"""What an installation brings with it: docs/dependencies.md, from the lock file and the installed packages' own metadata.

python -m tests.dependencies        # writes the page anew
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

PROJECT = Path(__file__).parent.parent
PAGE = PROJECT / "docs" / "dependencies.md"
MODULES = {"pyyaml": "yaml", "vl-convert-python": "vl_convert"}  # where the module is not named as the package
HEAD = """\
# Dependencies

What `pip install .` brings, by what it is for. Sizes are installed; an import is timed alone, beyond Python's own start, on two
cores of a server. The command line loads none of them before it needs it: `kvpressure --help` answers without any.

"""


def direct() -> dict[str, str]:
    """Direct runtime dependencies and what each is for, as pyproject.toml says beside it."""
    text = (PROJECT / "pyproject.toml").read_text()
    names = [re.match(r"[\w.-]+", each)[0] for each in tomllib.loads(text)["project"]["dependencies"]]
    return {name: found[1] if (found := re.search(rf'"{name}[^"]*",? *# (.+)', text)) else "" for name in names}


def locked() -> dict[str, str]:
    """Every runtime package and its version."""
    return dict(line.split("==") for line in (PROJECT / "requirements.lock").read_text().split())


def licence(package: Distribution) -> str:
    """In as few words as the package itself has."""
    told = package.metadata
    classified = [each.rsplit(" :: ", 1)[1] for each in told.get_all("Classifier", []) if each.startswith("License :: ")]
    short = next((each for each in (told["License-Expression"], told["License"]) if each and len(each) < 40), None)
    return (short or ", ".join(classified) or "see its files").replace("\n", " ")


def megabytes(package: Distribution) -> float:
    """What its files take."""
    files = (Path(str(package.locate_file(file))) for file in package.files or ())
    return sum(file.stat().st_size for file in files if file.exists()) / 1e6


def import_s(name: str) -> float:
    """Fastest of three imports in a new process, beyond an empty one."""

    def took(code: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - started

    module = MODULES.get(name, name)
    return max(0.0, min(took(f"import {module}") for _ in range(3)) - min(took("pass") for _ in range(3)))


def page() -> str:
    """The page, of the packages installed here."""
    packages = {name.lower(): distribution(name) for name in locked()}
    sizes = {name: megabytes(package) for name, package in packages.items()}

    def row(name: str, *more: str) -> str:
        return f"| {' | '.join((packages[name].name, packages[name].version, licence(packages[name]), *more))} |"

    asked_for = [row(name, f"{sizes[name]:.0f} MB", f"{import_s(name):.2f} s", why) for name, why in direct().items()]
    brought = [row(name) for name in packages if name not in direct()]
    together = f"Together with what these bring: {len(packages)} packages, {sum(sizes.values()):.0f} MB. What they bring:"
    tables = (
        "| package | version | licence | size | import | what for |\n|---|---|---|---|---|---|",
        *asked_for,
        f"\n{together}\n\n| package | version | licence |\n|---|---|---|",
        *brought,
    )
    return HEAD + "\n".join(tables) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
