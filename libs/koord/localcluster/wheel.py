"""One timer for everything: due times rounded up to ticks, so that a tick's work is done as one batch."""

import heapq
import math
from typing import Generic, TypeVar

T = TypeVar("T")


class TimerWheel(Generic[T]):
    """Items by due time. Adding costs a dict look-up; items are never cancelled, their owner ignores stale ones."""

    def __init__(self, tick_s: float = 0.02) -> None:
        self._tick_s = tick_s
        self._slots: dict[int, list[T]] = {}
        self._order: list[int] = []

    def add(self, due_s: float, item: T) -> None:
        """Make `item` due at `due_s` (any clock, in seconds; never early, at most one tick late)."""
        tick = math.ceil(due_s / self._tick_s)
        slot = self._slots.get(tick)
        if slot is None:
            self._slots[tick] = [item]
            heapq.heappush(self._order, tick)
        else:
            slot.append(item)

    def next_due(self) -> float | None:
        """When the next items are due; None if there are none."""
        return self._order[0] * self._tick_s if self._order else None

    def pop_due(self, now_s: float) -> list[T]:
        """Take all items due by now, oldest first."""
        due: list[T] = []
        # The same expression as next_due, so that a sleeper who wakes exactly then finds its items.
        while self._order and self._order[0] * self._tick_s <= now_s:
            due.extend(self._slots.pop(heapq.heappop(self._order)))
        return due
