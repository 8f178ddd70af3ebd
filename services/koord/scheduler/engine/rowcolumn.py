"""Columns that plugins keep beside those of the cluster."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class RowColumn:
    """One value per row that a plugin keeps, made by :meth:`Cluster.column`.

    ``data`` is at least as long as there are rows. It is replaced when the cluster grows: read it anew each time, never
    keep it. A row is set back to ``default`` when its node goes.
    """

    __slots__ = ("data", "default")

    def __init__(self, rows: int, dtype: DTypeLike, default: float) -> None:
        self.data: NDArray[Any] = np.full(rows, default, dtype=dtype)
        self.default = default

    def widen(self, rows: int) -> None:
        """Make room for ``rows``."""
        data = np.full(rows, self.default, dtype=self.data.dtype)
        data[: len(self.data)] = self.data
        self.data = data
