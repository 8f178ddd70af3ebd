"""A growing matrix laid out [field][row]: one field of all rows is contiguous, so a pass over all rows streams memory.

Amounts are float64. Sums of whole numbers below 2^53 are exact in it (the ledger has the same bound), and divisions
need no conversion; float32 cannot hold bytes of memory.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

EXACT = 2**53
"""Whole amounts up to this add up exactly."""


def grown(old: int, needed: int) -> int:
    """The capacity to move to when ``needed`` no longer fits ``old``: doubled, at least 8."""
    capacity = max(old, 8)
    while capacity < needed:
        capacity *= 2
    return capacity


class Matrix:
    """float64 amounts, [field][row]. ``data`` is replaced on growth: never keep a reference over a ``reserve``."""

    __slots__ = ("data",)

    def __init__(self, fields: int = 8, rows: int = 8) -> None:
        self.data: Floats = np.zeros((max(fields, 1), max(rows, 1)), dtype=np.float64)

    def reserve(self, fields: int, rows: int) -> bool:
        """Make room for ``fields`` × ``rows``, new cells 0; True if ``data`` was replaced."""
        have_fields, have_rows = self.data.shape
        if fields <= have_fields and rows <= have_rows:
            return False
        new_fields = have_fields if fields <= have_fields else grown(have_fields, fields)
        new_rows = have_rows if rows <= have_rows else grown(have_rows, rows)
        data = np.zeros((new_fields, new_rows), dtype=np.float64)
        data[:have_fields, :have_rows] = self.data
        self.data = data
        return True

    def clear_row(self, row: int) -> None:
        """Set every field of ``row`` to 0: the row changes hands."""
        self.data[:, row] = 0.0
