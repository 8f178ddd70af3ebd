"""Queue policies: in which order the waiting units of a queue are tried, and what a refusal means for those behind.

A policy hands out one walk per cycle. The walk is told about each unit's fate, so it can pass over what cannot fit.
Only Priority is built; a queue that asks for another policy admits nothing and says so (spec 70 sections 2.2, 3.10).
"""

import heapq
from typing import Protocol

from koord.queue.ordering import Rank
from koord.queue.waiting import Shape, Waiting, WaitingUnits

NOT_BUILT = ("Block", "Intelligent", "FIFO", "Round")


class PolicyError(ValueError):
    """A queue policy that does not exist or is not built; names the field, the value and what is known."""


class Walk(Protocol):
    """One pass over a queue."""

    def next(self) -> Waiting | None:
        """The unit to try now; None at the end of the pass."""

    def refused(self, unit: Waiting) -> None:
        """The unit did not fit."""


class Policy(Protocol):
    """Decides the order of tries."""

    name: str

    def walk(self, waiting: WaitingUnits, max_depth: int | None) -> Walk:
        """A pass over ``waiting``, considering at most ``max_depth`` units from the head."""


class PriorityPolicy:
    """The highest priority first; one that does not fit is passed over, so smaller ones behind it get their turn."""

    name = "Priority"

    def walk(self, waiting: WaitingUnits, max_depth: int | None) -> Walk:
        """A pass that touches each shape once, or the first ``max_depth`` units where the queue sets a depth."""
        return _ShapeWalk(waiting) if max_depth is None else _DepthWalk(waiting, max_depth)


class _ShapeWalk:
    """Merges the shapes' ordered lists lazily: a refused shape costs one try however many units it has."""

    def __init__(self, waiting: WaitingUnits) -> None:
        # A copy of each list's reference and a position: units leave the buckets only after the cycle.
        self._buckets = list(waiting.heads())
        self._heap: list[tuple[Rank, int, int]] = [(bucket[0][0], i, 0) for i, bucket in enumerate(self._buckets)]
        heapq.heapify(self._heap)
        self._refused: set[Shape] = set()

    def next(self) -> Waiting | None:
        while self._heap:
            _, bucket_index, at = heapq.heappop(self._heap)
            bucket = self._buckets[bucket_index]
            unit = bucket[at][1]
            if unit.shape in self._refused:
                continue
            if at + 1 < len(bucket):
                heapq.heappush(self._heap, (bucket[at + 1][0], bucket_index, at + 1))
            return unit
        return None

    def refused(self, unit: Waiting) -> None:
        self._refused.add(unit.shape)


class _DepthWalk:
    """The first units in order, those of refused shapes passed over but counted."""

    def __init__(self, waiting: WaitingUnits, depth: int) -> None:
        self._units = waiting.ordered(depth)
        self._waiting = waiting
        self._refused: set[Shape] = set()

    def next(self) -> Waiting | None:
        for unit in self._units:
            if unit.shape not in self._refused and self._waiting.refusal(unit.shape) is None:
                return unit
        return None

    def refused(self, unit: Waiting) -> None:
        self._refused.add(unit.shape)


def make_policy(name: str) -> Policy:
    """The policy called ``name``; PolicyError for one that is unknown or not built yet."""
    if name == PriorityPolicy.name:
        return PriorityPolicy()
    if name in NOT_BUILT:
        raise PolicyError(f"spec.queuePolicy: {name!r} is not built yet; built: {PriorityPolicy.name}")
    raise PolicyError(f"spec.queuePolicy: {name!r} is unknown; built: {PriorityPolicy.name}")
