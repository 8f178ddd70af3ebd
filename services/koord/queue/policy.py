"""Queue policies: in which order the waiting units of a queue are tried, and what a refusal means for those behind.

A policy hands out one walk per cycle. The walk is told about each unit's fate, so it can pass over what cannot fit.
Priority and Block are built; a queue that asks for another policy admits nothing and says so (spec 70, 2.2 and 3.10).

Nothing of a policy outlives its walk: what is known of earlier tries stands in the waiting units (shapes that were
refused and where no room came free since), so a queue changes its policy in place.
"""

import heapq
from typing import Protocol

from koord.queue.ordering import Rank
from koord.queue.waiting import Shape, Waiting, WaitingUnits

NOT_BUILT = ("Intelligent", "FIFO", "Round")


class PolicyError(ValueError):
    """A queue policy that does not exist or is not built; names the field, the value and what is known."""


class Walk(Protocol):
    """One pass over a queue.

    ``blocked``: quotas of which nobody is handed out any more in this pass, because a unit of theirs did not fit.
    """

    blocked: set[str]

    def next(self) -> Waiting | None:
        """The unit to try now; None at the end of the pass."""

    def refused(self, unit: Waiting) -> None:
        """The unit did not fit."""


class Policy(Protocol):
    """Decides the order of tries. ``blocks``: a unit that does not fit holds back the units of its quota behind it."""

    name: str
    blocks: bool

    def walk(self, waiting: WaitingUnits, max_depth: int | None) -> Walk:
        """A pass over ``waiting``, considering at most ``max_depth`` units from the head."""


class PriorityPolicy:
    """The highest priority first; one that does not fit is passed over, so smaller ones behind it get their turn."""

    name = "Priority"
    blocks = False

    def walk(self, waiting: WaitingUnits, max_depth: int | None) -> Walk:
        """A pass that touches each shape once, or the first ``max_depth`` units where the queue sets a depth."""
        return _ShapeWalk(waiting) if max_depth is None else _DepthWalk(waiting, max_depth)


class _ShapeWalk:
    """Merges the shapes' ordered lists lazily: a refused shape costs one try however many units it has."""

    def __init__(self, waiting: WaitingUnits) -> None:
        self.blocked: set[str] = set()
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
        self.blocked: set[str] = set()
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


class BlockPolicy:
    """As Priority, but a unit that does not fit blocks its quota; the other quotas of the queue go on.

    The quota is free again when the unit at its head may fit: it is gone or asks for something else, a unit came that
    goes before it, room came free where it was short, or a quota was edited. What comes free while a cycle runs leads
    to another cycle from the head, so a refusal that was out of date blocks nobody for longer than that.
    """

    name = "Block"
    blocks = True

    def walk(self, waiting: WaitingUnits, max_depth: int | None) -> Walk:
        """A pass that meets, of each quota, no unit behind the first one that does not fit."""
        return _BlockShapeWalk(waiting) if max_depth is None else _BlockDepthWalk(waiting, max_depth)


class _BlockShapeWalk:
    """Merges all shapes' ordered lists, known refusals included: such a unit blocks without being tried."""

    def __init__(self, waiting: WaitingUnits) -> None:
        self.blocked: set[str] = set()
        self._waiting = waiting
        self._buckets = list(waiting.heads(skip_refused=False))
        self._heap: list[tuple[Rank, int, int]] = [(bucket[0][0], i, 0) for i, bucket in enumerate(self._buckets)]
        heapq.heapify(self._heap)

    def next(self) -> Waiting | None:
        while self._heap:
            _, bucket_index, at = heapq.heappop(self._heap)
            bucket = self._buckets[bucket_index]
            unit = bucket[at][1]
            if unit.quota in self.blocked:
                continue
            if self._waiting.refusal(unit.shape) is not None:
                self.blocked.add(unit.quota)
                continue
            if at + 1 < len(bucket):
                heapq.heappush(self._heap, (bucket[at + 1][0], bucket_index, at + 1))
            return unit
        return None

    def refused(self, unit: Waiting) -> None:
        self.blocked.add(unit.quota)


class _BlockDepthWalk:
    """The first units in order, those of blocked quotas passed over but counted."""

    def __init__(self, waiting: WaitingUnits, depth: int) -> None:
        self.blocked: set[str] = set()
        self._units = waiting.ordered(depth)
        self._waiting = waiting

    def next(self) -> Waiting | None:
        for unit in self._units:
            if unit.quota in self.blocked:
                continue
            if self._waiting.refusal(unit.shape) is None:
                return unit
            self.blocked.add(unit.quota)
        return None

    def refused(self, unit: Waiting) -> None:
        self.blocked.add(unit.quota)


BUILT: dict[str, type[PriorityPolicy] | type[BlockPolicy]] = {
    PriorityPolicy.name: PriorityPolicy,
    BlockPolicy.name: BlockPolicy,
}


def make_policy(name: str) -> Policy:
    """The policy called ``name``; PolicyError for one that is unknown or not built yet."""
    built = BUILT.get(name)
    if built is not None:
        return built()
    what = "is not built yet" if name in NOT_BUILT else "is unknown"
    raise PolicyError(f"spec.queuePolicy: {name!r} {what}; built: {', '.join(BUILT)}")
