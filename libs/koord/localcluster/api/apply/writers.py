"""Who wrote an object, as the store keeps it of objects that are not tracked, and who makes a request."""

from typing import Any, NamedTuple

import msgspec


class Writer(NamedTuple):
    """Who makes a write, and in which version of the resource (`apps/v1`).

    through: the sub-resource when the write itself is one of the whole object (`scale`).
    """

    manager: str
    version: str
    through: str = ""


class Applied(NamedTuple):
    """A write that is the result of an apply: it says itself who owns what (entries of managedFields)."""

    entries: list[dict[str, Any]]


By = Writer | Applied | None
"""Whose a write is; None: the server's own, which owns nothing."""


class Writers(msgspec.Struct, frozen=True, gc=False, array_like=True, omit_defaults=True):
    """Who wrote an object that is not tracked. Equal ones are shared between objects.

    main: the manager that created it; since: when it last wrote, empty for the time of creation. status: the manager of
    its status, empty when nobody has written that. Times are RFC 3339.
    """

    main: str
    version: str
    since: str = ""
    status: str = ""
    status_version: str = ""
    status_since: str = ""


_MOST_KNOWN = 4_096
_known: dict[Writers, Writers] = {}
_born: dict[Writer, Writers] = {}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Writers).decode


def shared(writers: Writers) -> Writers:
    """The same value, held once."""
    found = _known.get(writers)
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[writers] = writers
    return found


def born(by: Writer) -> Writers:
    """The writers of an object that somebody has just created."""
    found = _born.get(by)
    if found is None:
        if len(_born) >= _MOST_KNOWN:
            _born.clear()
        found = _born[by] = shared(Writers(by.manager, by.version))
    return found


def packed(writers: Writers | None) -> bytes:
    """The bytes that the write-ahead file keeps; none for nobody."""
    return b"" if writers is None else _encode(writers)


def unpacked(data: bytes) -> Writers | None:
    """The writers that bytes of the write-ahead file mean."""
    return shared(_decode(data)) if data else None
