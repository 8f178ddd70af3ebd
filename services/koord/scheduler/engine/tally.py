"""How many pods of one sort each row has, with a log of changes from which readers keep sums of their own.

There are as many of these as there are selectors and terms in use, and most are about a handful of pods: so rows are
kept in a mapping until a good part of them has pods, and in a column then.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from koord.columns.matrix import Floats

KEPT = 256
"""Changes a reader may be behind; beyond that it counts anew."""
SPARSE = 16
"""A mapping costs about as much as this many cells of a column for each row that has pods."""

Counts = NDArray[np.int32]


class Tally:
    """``end`` moves with every change. An entry of the log is one pod: ``row`` came, ``~row`` went.

    What nodes coming and going change is not in the log: readers count anew then (``PodIndex.node_epoch``).
    """

    __slots__ = ("__weakref__", "_base", "_column", "_few", "_log", "_width", "end")

    def __init__(self, width: int = 0) -> None:
        self._width = width
        self._few: dict[int, int] = {}
        self._column: Counts | None = None
        self._log: list[int] = []
        self._base = 0
        self.end = 0

    # Counting -------------------------------------------------------------------------------------------------------

    def came(self, row: int) -> None:
        """One pod more on ``row``."""
        self.add(row, 1)
        self._note(row)

    def went(self, row: int) -> None:
        """One pod less on ``row``."""
        self.add(row, -1)
        self._note(~row)

    def add(self, row: int, count: int) -> None:
        """``count`` pods more on ``row``, without a word in the log."""
        if self._column is not None:
            self._column[row] += count
            return
        few = self._few
        left = few.get(row, 0) + count
        if left:
            few[row] = left
            if len(few) * SPARSE > self._width:
                self._column = self.counts(self._width)
                self._few = {}
        else:
            few.pop(row, None)

    def clear_row(self, row: int) -> None:
        """No pod on ``row``, without a word in the log."""
        if self._column is not None:
            self._column[row] = 0
        else:
            self._few.pop(row, None)

    def clear(self) -> None:
        """No pods at all; every reader counts anew."""
        self._few = {}
        self._column = None
        self.recounted()

    def recounted(self) -> None:
        """Counts changed beside the log: every reader counts anew."""
        self.end += 1
        self._base = self.end
        self._log.clear()

    def widen(self, width: int) -> None:
        """Make room for ``width`` rows."""
        self._width = width
        if self._column is not None:
            wider = np.zeros(width, dtype=np.int32)
            wider[: len(self._column)] = self._column
            self._column = wider

    # Reading --------------------------------------------------------------------------------------------------------

    def since(self, position: int) -> Sequence[int] | None:
        """What happened after ``position``; None: too long ago."""
        if position < self._base:
            return None
        return self._log[position - self._base :]

    def counts(self, high: int) -> Counts:
        """Pods on each of the rows 0..high-1. Do not write, do not keep."""
        if self._column is not None:
            return self._column[:high]
        counts = np.zeros(high, dtype=np.int32)
        if self._few:
            counts[list(self._few)] = list(self._few.values())
        return counts

    def by_code(self, codes: NDArray[np.intp], size: int) -> Floats:
        """Sums of the rows that have the same code; codes are below ``size``."""
        if self._column is not None:
            sums = np.bincount(codes, weights=self._column[: len(codes)], minlength=size)
        elif self._few:
            sums = np.bincount(codes[list(self._few)], weights=list(self._few.values()), minlength=size)
        else:
            return np.zeros(size)
        return sums.astype(np.float64, copy=False)

    def _note(self, entry: int) -> None:
        if len(self._log) == KEPT:
            del self._log[: KEPT // 2]
            self._base += KEPT // 2
        self._log.append(entry)
        self.end += 1
