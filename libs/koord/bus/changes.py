"""What a state cache tells: one difference between what it held and what the stream, or a live copy, says."""

from typing import Generic, Literal, TypeVar

import msgspec

T = TypeVar("T")
Kind = Literal["ADDED", "MODIFIED", "DELETED"]

LIVE = -1
"""The sequence of a change that so far only a live copy has shown."""
# The gateway's marker that a resource is listed is the object "_" in namespace "_", which no Kubernetes object can be.
MARKER = "_"


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One difference between what the cache held and what the stream says.

    ``key`` is ``namespace/name`` or ``name``. ``old`` is None for ADDED, ``new`` for DELETED. ``sequence`` is the
    message's number in the stream (0 for a swept object, LIVE for a live copy). ``replay``: seen while catching up.
    ``swept``: DELETED because the stream does not hold it any more, no tombstone was seen.
    """

    kind: Kind
    key: str
    old: T | None
    new: T | None
    resource_version: str
    sequence: int
    epoch: str
    replay: bool
    swept: bool = False


class _Marker(msgspec.Struct):
    mark: str = ""


def mark_of(body: bytes) -> str:
    """The word of a marker (:meth:`koord.bus.statecache.StateCache.marked`), "" without one."""
    try:
        return msgspec.json.decode(body, type=_Marker).mark
    except msgspec.MsgspecError:
        return ""


def key_of(subject: str) -> str:
    """The object's key from the tail of its subject (``<namespace or _>.<name>``, dots of the name as ``_``)."""
    namespace, _, name = subject.partition(".")
    if "_" in name and name != MARKER:
        name = name.replace("_", ".")
    return name if namespace == "_" else f"{namespace}/{name}"
