"""The function library as one text, as it is loaded into Redis.

Redis keeps one library per name and one function per name; both carry a version, so that a later library lives beside
this one until the last client of it is gone. Within a version functions only learn more: the revision counts that, and
a client never replaces a later one by its own. The sources are package data, put together in the order of their layers.
"""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

NAME: Final = "koord_ledger_1"
REVISION: Final = 5
"""Raised when functions learn something that clients of this revision rely on."""
PARTS: Final = (
    "store",
    "guards",
    "nominated",
    "strangers",
    "placements",
    "moves",
    "judging",
    "wound",
    "claims",
    "gateway",
    "observe",
    "nominate",
    "checking",
    "admin",
    "reading",
    "register",
)


@cache
def source() -> tuple[bytes, str]:
    """The library's text and its build: the revision and a hash, by which a client sees that other code is loaded."""
    folder = files("koord.ledger") / "functions"
    body = "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in PARTS)
    build = f"{REVISION}-{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    return f"#!lua name={NAME}\nlocal BUILD = '{build}'\n{body}".encode(), build


def replaces(build: str, loaded: str) -> bool:
    """Whether the library of ``build`` is to be loaded where ``loaded`` is: other code, and of no later revision."""
    ours, theirs = (int(of.partition("-")[0]) if "-" in of else 1 for of in (build, loaded))
    return build != loaded and ours >= theirs
