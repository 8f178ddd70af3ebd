"""What a standby saw lately: when it takes over, the stream lacks only what its predecessor did not publish any more.

That is a few seconds of changes at most, so these are kept with their bodies and everything older without. Should
something older be missing in the stream after all, the resource is listed again.
"""

from collections import OrderedDict
from collections.abc import Mapping

from koord.contracts.state import ChangeType
from koord.gateway.objects import Brief

KEEP_S = 10.0
MOST_BYTES = 32 << 20


class Recent:
    """The last change of each object, by key, for ``keep_s`` seconds and up to ``most`` bytes of bodies.

    Times are monotonic seconds, passed in.
    """

    def __init__(self, keep_s: float = KEEP_S, most: int = MOST_BYTES) -> None:
        self._keep_s = keep_s
        self._most = most
        self._changes: OrderedDict[str, tuple[float, ChangeType, Brief]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._changes)

    def put(self, key: str, type_: ChangeType, brief: Brief, now: float) -> None:
        """One change; it replaces an earlier one of the same object."""
        before = self._changes.pop(key, None)
        if before is not None:
            self._bytes -= len(before[2].body)
        self._changes[key] = (now, type_, brief)
        self._bytes += len(brief.body)
        self.trim(now)

    def get(self, key: str) -> tuple[ChangeType, Brief] | None:
        """The last change of an object, if it is recent."""
        found = self._changes.get(key)
        return None if found is None else (found[1], found[2])

    def trim(self, now: float) -> None:
        """Forget what is too old or too much."""
        while self._changes:
            key, (at, _, brief) = next(iter(self._changes.items()))
            if now - at <= self._keep_s and self._bytes <= self._most:
                return
            del self._changes[key]
            self._bytes -= len(brief.body)

    def clear(self) -> None:
        """Forget all."""
        self._changes.clear()
        self._bytes = 0


def missing(known: Mapping[str, str], held: Mapping[str, str], recent: Recent) -> list[tuple[ChangeType, Brief]] | None:
    """What a stream that holds ``held`` lacks of ``known``, both key to version; None if one of it is not recent."""
    lacking: list[tuple[ChangeType, Brief]] = []
    for key, version in known.items():
        if held.get(key) != version:
            change = recent.get(key)
            if change is None or change[0] == "DELETED":
                return None
            lacking.append(("MODIFIED" if key in held else "ADDED", change[1]))
    for key in held:
        if key not in known:
            change = recent.get(key)
            if change is None or change[0] != "DELETED":
                return None
            lacking.append(change)
    return lacking
