"""A journal of rows that changed: every reader keeps its own position and asks what changed since.

One array with a moving base instead of a set per reader: appending costs the same for one reader as for a thousand. A
reader that fell further behind than the journal remembers is told so and does a full pass.
"""

import numpy as np

from koord.columns.matrix import Ints


class Journal:
    """Rows in the order they changed; positions count from the start of time."""

    __slots__ = ("_base", "_data", "_used", "end")

    def __init__(self, capacity: int = 1 << 14) -> None:
        self._data: Ints = np.zeros(max(capacity, 16), dtype=np.int64)
        self._used = 0
        self._base = 0
        self.end = 0

    def add(self, row: int) -> None:
        """``row`` changed."""
        if self._used == len(self._data):
            self._forget(1)
        self._data[self._used] = row
        self._used += 1
        self.end += 1

    def extend(self, rows: Ints) -> None:
        """All of ``rows`` changed."""
        count = len(rows)
        if count > len(self._data) // 2:
            self.reset()
            return
        if self._used + count > len(self._data):
            self._forget(count)
        self._data[self._used : self._used + count] = rows
        self._used += count
        self.end += count

    def reset(self) -> None:
        """Everything changed: every reader falls behind."""
        self.end += 1
        self._base = self.end
        self._used = 0

    def since(self, position: int) -> Ints | None:
        """Rows that changed after ``position`` (a view, with repeats, maybe empty); None: too far behind."""
        if position < self._base:
            return None
        return self._data[position - self._base : self._used]

    def _forget(self, room: int) -> None:
        keep = max(0, min(self._used // 2, len(self._data) - room))
        drop = self._used - keep
        self._data[:keep] = self._data[drop : self._used].copy()
        self._base += drop
        self._used = keep
