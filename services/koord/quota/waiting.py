"""Who waits for room in which quota, in the order of the queues: QueueUnits, and pods that belong to none.

The order inside a quota is the queues' (spec 70 section 3.8): priority, then age, then name.
"""

import bisect
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

Amounts = tuple[tuple[str, int], ...]


class Rank(NamedTuple):
    """Smaller goes first. ``created`` is RFC 3339 text, which sorts as time does."""

    minus_priority: int = 0
    created: str = ""


class Waiting(NamedTuple):
    """One unit or pod that waits; ``queue`` is empty for a pod."""

    rank: Rank
    key: str
    amounts: Amounts
    queue: str = ""


class Lines:
    """One ordered line per quota. A key stands in one line at most."""

    def __init__(self) -> None:
        self._lines: dict[str, list[Waiting]] = {}
        self._where: dict[str, tuple[str, Waiting]] = {}
        self._served: dict[str, int] = {}
        self._turns = 0
        self._changed: set[str] = set()

    def take_changed(self) -> set[str]:
        """The quotas whose line or turn changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def serve(self, quota: str) -> None:
        """Somebody who waited for room in ``quota`` got it."""
        self._turns += 1
        self._served[quota] = self._turns
        self._changed.add(quota)

    def keep(self, quotas: Container[str]) -> None:
        """Forget the turns of all other quotas."""
        for quota in [quota for quota in self._served if quota not in quotas]:
            del self._served[quota]

    def turn_of(self, quota: str) -> int:
        """Smaller the longer ago somebody of ``quota`` was served; 0: never."""
        return self._served.get(quota, 0)

    def __contains__(self, key: object) -> bool:
        return key in self._where

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def of(self, quota: str) -> Sequence[Waiting]:
        """Who waits for room in ``quota``, the first in line first."""
        return self._lines.get(quota, ())

    def put(self, quota: str, one: Waiting) -> None:
        """Stand in the line of ``quota``, and in no other."""
        if self._where.get(one.key) == (quota, one):
            return
        self.drop(one.key)
        self._where[one.key] = (quota, one)
        self._changed.add(quota)
        bisect.insort(self._lines.setdefault(quota, []), one)

    def drop(self, key: str) -> None:
        """Wait no more."""
        quota, one = self._where.pop(key, ("", None))
        if one is None:
            return
        self._changed.add(quota)
        line = self._lines[quota]
        del line[bisect.bisect_left(line, one)]
        if not line:
            del self._lines[quota]
