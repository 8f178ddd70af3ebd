"""The function library as one text, as it is loaded into Redis.

Redis keeps one library per name and one function per name; both carry a version, so that a later library lives beside
this one until the last client of it is gone. The sources are package data, put together in the order of their layers.
"""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

NAME: Final = "koord_ledger_1"
PARTS: Final = (
    "store",
    "guards",
    "nominated",
    "moves",
    "judging",
    "wound",
    "claims",
    "gateway",
    "observe",
    "nominate",
    "admin",
)


@cache
def source() -> tuple[bytes, str]:
    """The library's text and its build, a hash by which a client sees that other code of this version is loaded."""
    folder = files("koord.ledger") / "functions"
    body = "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in PARTS)
    build = hashlib.sha256(body.encode()).hexdigest()[:16]
    return f"#!lua name={NAME}\nlocal BUILD = '{build}'\n{body}".encode(), build
