"""What each quota's own pods and units ask for, use and occupy, and who waits. Fed with changes, no I/O.

A leaf's request counts a QueueUnit as the larger of its total and what its live pods ask for, and its pods not again
(spec 20 section 3.7); without that a suspended job would have no request, and so no runtime, ever. Every change
touches only the cells of the quotas that it concerns, ``touched`` says which those were.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import msgspec

from koord.kube.protocol.gang import GangRef
from koord.quota.gangs import Gangs
from koord.quota.sums import LARGEST, NO_LIMIT, Level, Sums, sums_of
from koord.quota.waiting import Amounts, Lines, Rank, Waiting

__all__ = ("LARGEST", "NO_LIMIT", "Amounts", "Level", "Sums", "Usage")

QuotaOf = Callable[[str, str], str]
"""From an origin, see :class:`Usage`, to the quota."""

_FIRST = Rank()


class _Pod(msgspec.Struct):
    quota: str
    request: Amounts
    assigned: bool
    unit: str
    origin: tuple[str, str]
    preemptible: bool
    rank: Rank
    gang: GangRef | None


class _Unit(msgspec.Struct):
    quota: str
    total: Amounts
    origin: tuple[str, str]
    admitted: bool
    waits: bool
    queue: str
    rank: Rank
    pods: dict[str, int]
    counted: Amounts = ()


class Usage:
    """Pods and QueueUnits by quota. Quotas are named, so they may come later than what uses them.

    ``origin`` of a pod or unit is (quota label, namespace): enough to find its quota again when the tree changes.

    By quota, not summed up the tree, not to be written to by others, and without quotas that have nothing: ``asked``,
    what its own pods and units ask for; ``used``, what its pods with a node use; ``occupied``, what its admitted units,
    and its pods with a node that belong to none, occupy.
    """

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        self._units: dict[str, _Unit] = {}
        self._by_unit: dict[str, set[str]] = {}
        self.used: dict[str, dict[str, int]] = {}
        self.asked: dict[str, dict[str, int]] = {}
        self.occupied: dict[str, dict[str, int]] = {}
        self._kept_used: dict[str, dict[str, int]] = {}
        self._kept: dict[str, dict[str, int]] = {}
        self.lines = Lines()
        self.gangs = Gangs(self.lines)
        self.touched: set[str] = set()
        self.changed = True

    def __len__(self) -> int:
        return len(self._pods)

    # What the API shows -------------------------------------------------------------------------------------------

    def put_pod(
        self,
        key: str,
        quota: str,
        request: Amounts,
        *,
        assigned: bool,
        unit: str,
        origin: tuple[str, str],
        preemptible: bool = True,
        rank: Rank = _FIRST,
        gang: GangRef | None = None,
    ) -> None:
        """A live pod; ``unit`` is the key of its QueueUnit or empty."""
        if gang is not None:
            gang = self.gangs.shared(gang)
        pod = _Pod(quota, request, assigned, unit, origin, preemptible, rank, gang)
        old = self._pods.get(key)
        if old is not None:
            if old == pod:
                return
            self._count_pod(key, old, -1)
            if assigned and not old.assigned and unit not in self._units:
                self.lines.serve(quota)
            if old.unit and old.unit != unit:
                self._forget(old.unit, key)
        self._pods[key] = pod
        if unit:
            self._by_unit.setdefault(unit, set()).add(key)
        self._count_pod(key, pod, 1)

    def drop_pod(self, key: str) -> None:
        """The pod ended or is gone."""
        old = self._pods.pop(key, None)
        if old is not None:
            self._count_pod(key, old, -1)
            if old.unit:
                self._forget(old.unit, key)

    def put_unit(
        self,
        key: str,
        quota: str,
        total: Amounts,
        origin: tuple[str, str],
        *,
        admitted: bool = False,
        waits: bool = False,
        queue: str = "",
        rank: Rank = _FIRST,
    ) -> None:
        """A QueueUnit that is not over: ``admitted`` if it holds room, ``waits`` if it would take some now."""
        old = self._units.get(key)
        if old is None:
            unit = _Unit(quota, total, origin, admitted, waits, queue, rank, {})
            mine = self._pods_of(key)  # they came before their unit and counted for themselves so far
            for name, pod in mine:
                self._count_own(name, pod, -1)
            self._units[key] = unit
            for _, pod in mine:
                _add(unit.pods, pod.request, 1)
        else:
            unit = _Unit(quota, total, origin, admitted, waits, queue, rank, old.pods, old.counted)
            if unit == old:
                return
            self._count_unit(key, old, -1)
            self._units[key] = unit
            if admitted and not old.admitted:
                self.lines.serve(quota)
        self._count_unit(key, unit, 1)

    def drop_unit(self, key: str) -> None:
        """The unit finished or is gone; its pods, if any live on, count for themselves."""
        unit = self._units.get(key)
        if unit is None:
            return
        self._count_unit(key, unit, -1)
        del self._units[key]
        for name, pod in self._pods_of(key):
            self._count_own(name, pod, 1)

    def remap(self, quota_of_pod: QuotaOf, quota_of_unit: QuotaOf) -> int:
        """Find every pod's and unit's quota again (the tree changed); answers how many moved."""
        moved = 0
        quota_of_pod, quota_of_unit = functools.cache(quota_of_pod), functools.cache(quota_of_unit)  # few origins
        for key, pod in self._pods.items():
            quota = quota_of_pod(*pod.origin)
            if quota != pod.quota:
                self._count_pod(key, pod, -1)
                pod.quota = quota
                self._count_pod(key, pod, 1)
                moved += 1
        for key, unit in self._units.items():
            quota = quota_of_unit(*unit.origin)
            if quota != unit.quota:
                self._count_unit(key, unit, -1)
                unit.quota = quota
                self._count_unit(key, unit, 1)
                moved += 1
        return moved

    # Answers ------------------------------------------------------------------------------------------------------

    def revocable(self, quota: str) -> list[tuple[str, Amounts]]:
        """A quota's own pods with a node that may be evicted, by key, and what each uses."""
        return [
            (key, pod.request)
            for key, pod in self._pods.items()
            if pod.quota == quota and pod.assigned and pod.preemptible
        ]

    def sums(self, levels: Sequence[Level]) -> dict[str, Sums]:
        """Used and request of every quota's subtree. A level whose parent is unknown is taken as a top."""
        return sums_of(levels, self.used, self.asked, self._kept_used, self._kept)

    # Inside -------------------------------------------------------------------------------------------------------

    def _count_pod(self, key: str, pod: _Pod, sign: int) -> None:
        quota = pod.quota
        self._touch(quota)
        if pod.assigned:
            _count(self.used, quota, pod.request, sign)
        if not pod.preemptible:
            _count(self._kept, quota, pod.request, sign)
            if pod.assigned:
                _count(self._kept_used, quota, pod.request, sign)
        unit = self._units.get(pod.unit) if pod.unit else None
        if unit is None:
            self._count_own(key, pod, sign)
            return
        self._count_unit(pod.unit, unit, -1)
        _add(unit.pods, pod.request, sign)
        self._count_unit(pod.unit, unit, 1)

    def _count_own(self, key: str, pod: _Pod, sign: int) -> None:
        """A pod that belongs to no unit stands for itself."""
        self._touch(pod.quota)
        _count(self.asked, pod.quota, pod.request, sign)
        if pod.assigned:
            _count(self.occupied, pod.quota, pod.request, sign)
        if pod.gang is not None:
            if sign > 0:
                self.gangs.put(pod.gang, key, pod.quota, pod.rank, pod.request, assigned=pod.assigned)
            else:
                self.gangs.drop(pod.gang, key)
        elif pod.assigned:
            return
        elif sign > 0:
            self.lines.put(pod.quota, Waiting(pod.rank, f"pod {key}", pod.request))
        else:
            self.lines.drop(f"pod {key}")

    def _count_unit(self, key: str, unit: _Unit, sign: int) -> None:
        """``counted`` is what was added, so that exactly that is taken off again."""
        self._touch(unit.quota)
        if sign > 0:
            unit.counted = _larger(unit.total, unit.pods)
        _count(self.asked, unit.quota, unit.counted, sign)
        if unit.admitted:
            _count(self.occupied, unit.quota, unit.counted, sign)
        if sign > 0 and unit.waits and unit.counted:
            self.lines.put(unit.quota, Waiting(unit.rank, f"unit {key}", unit.counted, unit.queue))
        elif sign < 0:
            self.lines.drop(f"unit {key}")

    def _touch(self, quota: str) -> None:
        self.touched.add(quota)
        self.changed = True

    def _pods_of(self, unit: str) -> list[tuple[str, _Pod]]:
        return [(key, self._pods[key]) for key in self._by_unit.get(unit, ())]

    def _forget(self, unit: str, key: str) -> None:
        keys = self._by_unit[unit]
        keys.discard(key)
        if not keys:
            del self._by_unit[unit]


def _count(of: dict[str, dict[str, int]], quota: str, amounts: Amounts, sign: int) -> None:
    """Add to a quota's cells. Those that come down to nothing are freed: quotas are created and deleted for ever."""
    cells = of.setdefault(quota, {})
    for name, amount in amounts:
        left = cells.get(name, 0) + sign * amount
        if left:
            cells[name] = left
        else:
            cells.pop(name, None)
    if not cells:
        del of[quota]


def _add(into: dict[str, int], amounts: Amounts, sign: int) -> None:
    for name, amount in amounts:
        into[name] = into.get(name, 0) + sign * amount


def _larger(total: Amounts, pods: Mapping[str, int]) -> Amounts:
    both = dict(total)
    for name, amount in pods.items():
        if amount > both.get(name, 0):
            both[name] = amount
    return tuple(sorted((name, amount) for name, amount in both.items() if amount))
