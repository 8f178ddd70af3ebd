"""What each quota's pods use and ask for, as columns: one row per quota, one column per resource.

A pod event touches a few cells; the way up the tree is one vectorised pass per tree level, at most once a second. The
rules are spec 20 section 3.7: used counts assigned pods that have not ended; the request of a leaf counts its pods that
belong to no QueueUnit, and per unit the larger of its total and what its live pods ask for, so that a suspended job can
be seen to ask for room. A parent asks for what its children ask for, each capped at its max.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Amounts = tuple[tuple[str, int], ...]
Matrix = NDArray[np.int64]

NO_LIMIT = 2**62
LARGEST = 2**53
"""Amounts are capped here: the ledger counts no further, and 512 of them still fit in an int64."""


class Level(msgspec.Struct, frozen=True):
    """One quota as the sums need it. ``parent`` is empty at the top of its tree; ``lends`` False lifts its request."""

    name: str
    parent: str
    min: dict[str, int]
    max: dict[str, int]
    lends: bool = True


class Sums(msgspec.Struct, frozen=True):
    """What a quota's subtree uses and asks for, by resource."""

    used: dict[str, int]
    request: dict[str, int]


class _Pod(msgspec.Struct):
    quota: str
    request: Amounts
    assigned: bool
    unit: str
    origin: tuple[str, str]


class _Unit(msgspec.Struct):
    quota: str
    total: Amounts
    origin: tuple[str, str]
    pods: dict[str, int]


class Usage:
    """Pods and QueueUnits by quota. Quotas are named, so they may come later than what uses them.

    ``origin`` of a pod or unit is (quota label, namespace): enough to find its quota again when the tree changes.
    """

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        self._units: dict[str, _Unit] = {}
        self._by_unit: dict[str, set[str]] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._asked: dict[str, dict[str, int]] = {}
        self.changed = True

    def __len__(self) -> int:
        return len(self._pods)

    # What the API shows -------------------------------------------------------------------------------------------

    def put_pod(
        self, key: str, quota: str, request: Amounts, *, assigned: bool, unit: str, origin: tuple[str, str]
    ) -> None:
        """A live pod; ``unit`` is the key of its QueueUnit or empty."""
        old = self._pods.get(key)
        if old is not None:
            if (
                old.assigned == assigned
                and old.quota == quota
                and old.unit == unit
                and old.origin == origin
                and old.request == request
            ):
                return
            self._count_pod(old, -1)
            if old.unit and old.unit != unit:
                self._forget(old.unit, key)
        pod = _Pod(quota, request, assigned, unit, origin)
        self._pods[key] = pod
        if unit:
            self._by_unit.setdefault(unit, set()).add(key)
        self._count_pod(pod, 1)

    def drop_pod(self, key: str) -> None:
        """The pod ended or is gone."""
        old = self._pods.pop(key, None)
        if old is not None:
            self._count_pod(old, -1)
            if old.unit:
                self._forget(old.unit, key)

    def put_unit(self, key: str, quota: str, total: Amounts, origin: tuple[str, str]) -> None:
        """A QueueUnit that waits or holds room."""
        unit = self._units.get(key)
        if unit is not None and unit.quota == quota and unit.total == total and unit.origin == origin:
            return
        self.changed = True
        if unit is not None:
            unit.quota, unit.total, unit.origin = quota, total, origin
            return
        unit = self._units[key] = _Unit(quota, total, origin, {})
        for pod in self._pods_of(key):  # they came before their unit and counted for themselves so far
            _add(self._asked[pod.quota], pod.request, -1)
            _add(unit.pods, pod.request, 1)

    def drop_unit(self, key: str) -> None:
        """The unit finished or is gone; its pods, if any live on, count for themselves."""
        if self._units.pop(key, None) is not None:
            self.changed = True
            for pod in self._pods_of(key):
                _add(self._asked.setdefault(pod.quota, {}), pod.request, 1)

    def remap(self, quota_of: Callable[[str, str], str]) -> int:
        """Find every pod's and unit's quota again (the tree changed); answers how many moved."""
        moved = 0
        for pod in self._pods.values():
            quota = quota_of(*pod.origin)
            if quota != pod.quota:
                self._count_pod(pod, -1)
                pod.quota = quota
                self._count_pod(pod, 1)
                moved += 1
        for unit in self._units.values():
            quota = quota_of(*unit.origin)
            if quota != unit.quota:
                unit.quota = quota
                self.changed = True
                moved += 1
        return moved

    # Sums ---------------------------------------------------------------------------------------------------------

    def asked(self) -> dict[str, dict[str, int]]:
        """What each quota's own pods and units ask for, not summed up the tree."""
        asked = {quota: dict(amounts) for quota, amounts in self._asked.items()}
        for unit in self._units.values():
            into = asked.setdefault(unit.quota, {})
            for name, amount in _larger(unit.total, unit.pods):
                into[name] = into.get(name, 0) + amount
        return asked

    def sums(self, levels: Sequence[Level]) -> dict[str, Sums]:
        """Used and request of every quota's subtree. A level whose parent is unknown is taken as a top."""
        asked = self.asked()
        names = sorted(_keys(self._used.values()) | _keys(asked.values()) | _keys(level.min for level in levels))
        if not levels or not names:
            return {level.name: Sums(dict.fromkeys(level.max, 0), dict.fromkeys(level.max, 0)) for level in levels}
        row = {level.name: at for at, level in enumerate(levels)}
        used = _matrix(names, [self._used.get(level.name, {}) for level in levels])
        request = _matrix(names, [asked.get(level.name, {}) for level in levels])
        least = _matrix(names, [{} if level.lends else level.min for level in levels])
        most = _matrix(names, [level.max for level in levels], missing=NO_LIMIT)
        parents = np.array([row.get(level.parent, -1) for level in levels], dtype=np.int64)
        for rows in _deepest_first(parents):
            request[rows] = np.maximum(request[rows], least[rows])
            inner = rows[parents[rows] >= 0]
            np.add.at(used, parents[inner], used[inner])
            np.add.at(request, parents[inner], np.minimum(request[inner], most[inner]))
        np.maximum(used, 0, out=used)
        return {
            level.name: Sums(_row(names, used[at], level.max), _row(names, request[at], level.max))
            for at, level in enumerate(levels)
        }

    # Inside -------------------------------------------------------------------------------------------------------

    def _count_pod(self, pod: _Pod, sign: int) -> None:
        if pod.assigned:
            _add(self._used.setdefault(pod.quota, {}), pod.request, sign)
        unit = self._units.get(pod.unit) if pod.unit else None
        into = unit.pods if unit is not None else self._asked.setdefault(pod.quota, {})
        _add(into, pod.request, sign)
        self.changed = True

    def _pods_of(self, unit: str) -> list[_Pod]:
        return [self._pods[key] for key in self._by_unit.get(unit, ())]

    def _forget(self, unit: str, key: str) -> None:
        keys = self._by_unit[unit]
        keys.discard(key)
        if not keys:
            del self._by_unit[unit]


def _add(into: dict[str, int], amounts: Amounts, sign: int) -> None:
    for name, amount in amounts:
        into[name] = into.get(name, 0) + sign * amount


def _larger(total: Amounts, pods: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    both = dict(total)
    for name, amount in pods.items():
        if amount > both.get(name, 0):
            both[name] = amount
    return both.items()


def _keys(maps: Iterable[Mapping[str, int]]) -> set[str]:
    return {name for amounts in maps for name in amounts}


def _matrix(names: Sequence[str], rows: Sequence[Mapping[str, int]], missing: int = 0) -> Matrix:
    return np.array(
        [[min(amounts[name], LARGEST) if name in amounts else missing for name in names] for amounts in rows], np.int64
    )


def _row(names: Sequence[str], row: Matrix, maximum: Mapping[str, int]) -> dict[str, int]:
    """Back to a map: every key of the quota's max, or, where it has none, whatever is not zero."""
    values = dict(zip(names, row.tolist(), strict=True))
    if maximum:
        return {name: values.get(name, 0) for name in maximum}
    return {name: value for name, value in values.items() if value}


def _deepest_first(parents: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Rows by depth, the deepest level first. A parent cycle (never in force) counts as depth 0."""
    depth = np.zeros(len(parents), dtype=np.int64)
    at = parents.copy()
    for _ in range(len(parents)):
        alive = at >= 0
        if not alive.any():
            break
        depth[alive] += 1
        at[alive] = parents[at[alive]]
    return [np.flatnonzero(depth == level) for level in range(int(depth.max()), -1, -1)]
