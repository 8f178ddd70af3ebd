"""Unschedulable units, parked in lots that would be judged alike: of one class, rejected by the same plugins."""

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator

from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.queueing.unit import Order, Unit

EventsOf = Callable[[str], frozenset[ClusterEvent]]


class Lot:
    """Parked units of one signature, best first."""

    __slots__ = ("burst", "events", "heap", "pending", "rejecters", "size")

    def __init__(
        self, rejecters: frozenset[str], events: frozenset[ClusterEvent], pending: frozenset[str] = frozenset()
    ) -> None:
        self.rejecters = rejecters
        self.pending = pending
        self.events = events
        self.heap: list[tuple[Order, int, Unit]] = []
        self.size = 0
        self.burst = 1

    def first(self) -> Unit | None:
        """The best unit; entries of units that left are dropped on the way."""
        heap = self.heap
        while heap and heap[0][2].ticket != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][2] if heap else None

    def take(self, count: int) -> list[Unit]:
        """The best units, at most ``count``; they are parked no longer."""
        taken: list[Unit] = []
        while len(taken) < count and self.first() is not None:
            taken.append(heapq.heappop(self.heap)[2])
        self.size -= len(taken)
        return taken

    def take_older(self, limit: float) -> list[Unit]:
        """Those parked at ``limit`` or before; they are parked no longer."""
        parked = [entry for entry in self.heap if entry[2].ticket == entry[1]]
        self.heap = [entry for entry in parked if entry[2].parked_at > limit]
        heapq.heapify(self.heap)
        self.size = len(self.heap)
        return [entry[2] for entry in parked if entry[2].parked_at <= limit]


class Lots:
    """All lots, by signature and by the events they wait for. ``order`` sorts the best unit of a lot first."""

    def __init__(self, events_of: EventsOf, order: Callable[[Unit], Order]) -> None:
        self._events_of = events_of
        self._order = order
        self._by_signature: dict[Hashable, Lot] = {}
        self._waiting: dict[ClusterEvent, dict[Hashable, Lot]] = {}

    def park(self, unit: Unit, ticket: int) -> None:
        """Put a rejected unit into its lot. Its ``ticket`` is what tells the entry from void ones."""
        signature = unit.signature = (unit.classes(), unit.rejecters, unit.pending)
        lot = self._by_signature.get(signature)
        if lot is None:
            events = frozenset().union(*(self._events_of(name) for name in unit.rejecters))
            lot = self._by_signature[signature] = Lot(unit.rejecters, events, unit.pending)
            for event in events:
                self._waiting.setdefault(event, {})[signature] = lot
        lot.burst = 1
        unit.ticket = ticket
        heapq.heappush(lot.heap, (self._order(unit), ticket, unit))
        lot.size += 1

    def left(self, unit: Unit) -> None:
        """A parked unit went by itself; its entry is void."""
        lot = self._by_signature.get(unit.signature)
        if lot is not None:
            lot.size -= 1
            self.tidy(unit.signature, lot)

    def like(self, unit: Unit) -> Lot | None:
        """The lot of those that are like a unit that was parked once."""
        return None if unit.signature is None else self._by_signature.get(unit.signature)

    def concerned(self, events: Iterable[ClusterEvent]) -> dict[Hashable, Lot]:
        """Lots that wait for any of the events."""
        found: dict[Hashable, Lot] = {}
        for event in events:
            found.update(self._waiting.get(event, {}))
        return found

    def tidy(self, signature: Hashable, lot: Lot) -> None:
        """Forget the lot if nobody is in it any more."""
        if lot.size or self._by_signature.get(signature) is not lot:
            return
        del self._by_signature[signature]
        for event in lot.events:
            of_event = self._waiting[event]
            del of_event[signature]
            if not of_event:
                del self._waiting[event]

    def items(self) -> list[tuple[Hashable, Lot]]:
        """All lots as of now."""
        return list(self._by_signature.items())

    def __iter__(self) -> Iterator[Lot]:
        return iter(self._by_signature.values())
