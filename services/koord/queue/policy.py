"""Queue policies: in which order the waiting units of a queue are tried, and what a refusal means for those behind.

A policy hands out one walk per cycle. The walk is told about each unit's fate, so it can pass over what cannot fit.
Priority and Block are built; a queue that asks for another policy admits nothing and says so (spec 70, 2.2 and 3.10).

Nothing of a policy outlives its walk: what is known of earlier tries stands in the waiting units (shapes that were
refused and where no room came free since), so a queue changes its policy in place.
"""

import heapq
from collections.abc import Iterator
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

    @property
    def blocked(self) -> set[str]:
        """See above."""

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
        return _walk(_PassOver(waiting), waiting, max_depth)


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
        return _walk(_HoldQuota(waiting), waiting, max_depth)


class _PassOver:
    """What a refusal means under Priority: units of that shape are passed over."""

    def __init__(self, waiting: WaitingUnits) -> None:
        self.blocked: set[str] = set()
        self._waiting = waiting
        self._refused: set[Shape] = set()

    def skips(self, unit: Waiting) -> bool:
        return unit.shape in self._refused or self._waiting.refusal(unit.shape) is not None

    def refused(self, unit: Waiting) -> None:
        self._refused.add(unit.shape)


class _HoldQuota:
    """What a refusal means under Block, one known from earlier included: nothing more of that quota is handed out."""

    def __init__(self, waiting: WaitingUnits) -> None:
        self.blocked: set[str] = set()
        self._waiting = waiting

    def skips(self, unit: Waiting) -> bool:
        if unit.quota not in self.blocked and self._waiting.refusal(unit.shape) is not None:
            self.blocked.add(unit.quota)
        return unit.quota in self.blocked

    def refused(self, unit: Waiting) -> None:
        self.blocked.add(unit.quota)


_Rule = _PassOver | _HoldQuota


class _OrderedWalk:
    """A walk over units in their order, less those that the rule skips."""

    def __init__(self, units: Iterator[Waiting], rule: _Rule) -> None:
        self._units = units
        self._rule = rule

    @property
    def blocked(self) -> set[str]:
        return self._rule.blocked

    def next(self) -> Waiting | None:
        return next((unit for unit in self._units if not self._rule.skips(unit)), None)

    def refused(self, unit: Waiting) -> None:
        self._rule.refused(unit)


def _walk(rule: _Rule, waiting: WaitingUnits, max_depth: int | None) -> Walk:
    """By shapes, or by units where only the first ``max_depth`` count, the skipped ones included."""
    return _OrderedWalk(_by_shape(waiting, rule) if max_depth is None else waiting.ordered(max_depth), rule)


def _by_shape(waiting: WaitingUnits, rule: _Rule) -> Iterator[Waiting]:
    """Merges the shapes' ordered lists lazily: a skipped shape costs one look however many units it has.

    A shape is of one quota, so what makes its first unit be skipped holds for those behind it.
    """
    # A copy of each list's reference and a position: units leave the buckets only after the cycle.
    buckets = list(waiting.heads())
    heap: list[tuple[Rank, int, int]] = [(bucket[0][0], i, 0) for i, bucket in enumerate(buckets)]
    heapq.heapify(heap)
    while heap:
        _, bucket_index, at = heapq.heappop(heap)
        bucket = buckets[bucket_index]
        unit = bucket[at][1]
        if rule.skips(unit):
            continue
        if at + 1 < len(bucket):
            heapq.heappush(heap, (bucket[at + 1][0], bucket_index, at + 1))
        yield unit


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
