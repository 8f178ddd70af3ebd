"""How many pods of one sort each row has, with a log of changes from which readers keep sums of their own."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

KEPT = 256
"""Changes a reader may be behind; beyond that it counts anew."""


class Tally:
    """``rows[row]`` pods; ``end`` moves with every change. An entry of the log is one pod: ``row`` came, ``~row`` went.

    What nodes coming and going change is not in the log: readers count anew then (``PodIndex.node_epoch``).
    """

    __slots__ = ("__weakref__", "_base", "_log", "end", "rows")

    def __init__(self, rows: int) -> None:
        self.rows: NDArray[np.int32] = np.zeros(rows, dtype=np.int32)
        self._log: list[int] = []
        self._base = 0
        self.end = 0

    def came(self, row: int) -> None:
        """One pod more on ``row``."""
        self.rows[row] += 1
        self._note(row)

    def went(self, row: int) -> None:
        """One pod less on ``row``."""
        self.rows[row] -= 1
        self._note(~row)

    def since(self, position: int) -> Sequence[int] | None:
        """What happened after ``position``; None: too long ago."""
        if position < self._base:
            return None
        return self._log[position - self._base :]

    def recounted(self) -> None:
        """``rows`` was written to: every reader counts anew."""
        self.end += 1
        self._base = self.end
        self._log.clear()

    def widen(self, rows: int) -> None:
        """Make room for ``rows``."""
        wider = np.zeros(rows, dtype=np.int32)
        wider[: len(self.rows)] = self.rows
        self.rows = wider

    def _note(self, entry: int) -> None:
        if len(self._log) == KEPT:
            del self._log[: KEPT // 2]
            self._base += KEPT // 2
        self._log.append(entry)
        self.end += 1
