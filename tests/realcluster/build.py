"""Where the binaries that `make realcluster` builds lie."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def cache() -> Path:
    """The folder of all builds."""
    named = os.environ.get("KOORD_REALCLUSTER_CACHE")
    return Path(named) if named else ROOT / ".realcluster"


def folder() -> Path:
    """The binaries of the present module files."""
    return cache() / "bin"
