"""The units that wait in one queue, kept in order and bucketed by shape.

Two units of one shape (same quota, same totals) fare the same: once one is refused, the others are, until room comes
free where it was short. So a queue of 10,000 equal units costs one check, not 10,000 (spec 70 section 3.10).
"""

import bisect
import heapq
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from koord.queue.headroom import EXCEEDS_MAX, Refusal
from koord.queue.ordering import Rank

Shape = tuple[str, tuple[tuple[str, int], ...]]


def shape_of(quota: str, total: Mapping[str, int]) -> Shape:
    """What decides whether a unit fits: its quota and its totals, zeros left out."""
    return quota, tuple(sorted((name, amount) for name, amount in total.items() if amount))


class Waiting(msgspec.Struct, frozen=True, eq=False):
    """One waiting unit as the policies see it. ``total`` in the ledger's integers."""

    uid: str
    key: str
    rank: Rank
    quota: str
    total: dict[str, int]
    shape: Shape


class WaitingUnits:
    """All waiting units of one queue and the shapes known not to fit for now."""

    def __init__(self) -> None:
        self._units: dict[str, Waiting] = {}
        self._buckets: dict[Shape, list[tuple[Rank, Waiting]]] = {}
        self._refused: dict[Shape, Refusal] = {}
        self._told: dict[Shape, tuple[str, str]] = {}
        self.blocked: set[str] = set()
        """Quotas that the last walk found blocked (only policies that block find some)."""

    def __len__(self) -> int:
        return len(self._units)

    def __contains__(self, uid: object) -> bool:
        return uid in self._units

    def get(self, uid: str) -> Waiting | None:
        """The unit, if it waits here."""
        return self._units.get(uid)

    def put(self, unit: Waiting) -> bool:
        """Add or replace; True if something the policies look at changed."""
        old = self._units.get(unit.uid)
        if old is not None:
            if old.rank == unit.rank and old.shape == unit.shape:
                return False
            self.drop(unit.uid)
        self._units[unit.uid] = unit
        bisect.insort(self._buckets.setdefault(unit.shape, []), (unit.rank, unit), key=_rank)
        return True

    def drop(self, uid: str) -> bool:
        """Take the unit out; False if it was not here."""
        unit = self._units.pop(uid, None)
        if unit is None:
            return False
        bucket = self._buckets[unit.shape]
        at = bisect.bisect_left(bucket, unit.rank, key=_rank)
        del bucket[at]
        if not bucket:
            del self._buckets[unit.shape]
            self._refused.pop(unit.shape, None)
            self._told.pop(unit.shape, None)
        return True

    def refuse(self, shape: Shape, refusal: Refusal) -> bool:
        """Units of ``shape`` do not fit until room comes free at ``refusal.quota`` (or the quota is edited).

        True if the reason differs from the one before, so that the units' texts have to be looked at.
        """
        if shape not in self._buckets:
            return False
        self._refused[shape] = refusal
        text = (refusal.message, refusal.reason)
        anew = self._told.get(shape) != text
        self._told[shape] = text
        return anew

    def refusal(self, shape: Shape) -> Refusal | None:
        """Why units of this shape do not fit at the moment, as far as known."""
        return self._refused.get(shape)

    def keys_of(self, shape: Shape) -> list[str]:
        """The units of one shape."""
        return [unit.key for _, unit in self._buckets.get(shape, ())]

    def keys_of_quotas(self, quotas: set[str]) -> list[str]:
        """The units of some quotas."""
        return [unit.key for shape, bucket in self._buckets.items() if shape[0] in quotas for _, unit in bucket]

    def room_at(self, quotas: frozenset[str] | None) -> bool:
        """Room came free in ``quotas`` (None: unknown where); True if a shape became worth another check."""
        freed = [
            shape
            for shape, refusal in self._refused.items()
            if refusal.reason != EXCEEDS_MAX and (quotas is None or not refusal.quota or refusal.quota in quotas)
        ]
        for shape in freed:
            del self._refused[shape]
        return bool(freed)

    def quotas_edited(self) -> bool:
        """A quota was added, edited or removed: every refusal is void, also those no release could cure."""
        had = bool(self._refused)
        self._refused.clear()
        return had

    def hopeful(self) -> bool:
        """Is there a unit whose shape is not known to be refused?"""
        return len(self._refused) < len(self._buckets)

    def hopeful_quotas(self) -> set[str]:
        """The quotas of the units whose shape is not known to be refused."""
        return {shape[0] for shape in self._buckets if shape not in self._refused}

    def heads(self) -> Iterator[list[tuple[Rank, Waiting]]]:
        """The ordered units of each shape, one list per shape."""
        return iter(self._buckets.values())

    def ordered(self, limit: int | None = None) -> Iterator[Waiting]:
        """All units in their order, at most ``limit``; positions are published from this."""
        merged = heapq.merge(*self._buckets.values(), key=_rank)
        return (unit for _, unit in islice(merged, limit))


def _rank(entry: tuple[Rank, Waiting]) -> Rank:
    return entry[0]
