"""Node labels as columns: one integer per node and label key, so that a selector is a comparison of a column.

A column exists only for keys that some selector asked for. Number 0 means that the node has no such label.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from koord.columns.names import Names

Codes = NDArray[np.int32]
ABSENT = 0


class LabelColumn:
    """One label key over all rows: ``codes[row]`` is the number of the node's value in ``values``."""

    __slots__ = ("codes", "values")

    def __init__(self, rows: int) -> None:
        self.codes: Codes = np.zeros(rows, dtype=np.int32)
        self.values = Names(("\0absent",))

    def code(self, value: str) -> int:
        """The number of ``value``, interned even if no node has it yet, so that a later node is recognised."""
        return self.values.intern(value)


class LabelColumns:
    """The columns of every label key asked for; ``read`` gives the labels of a row, None for a row without a node."""

    __slots__ = ("_columns", "_read", "_rows")

    def __init__(self, read: Callable[[], Sequence[Mapping[str, str] | None]], rows: int) -> None:
        self._columns: dict[str, LabelColumn] = {}
        self._read = read
        self._rows = rows

    def column(self, key: str) -> LabelColumn:
        """The column of ``key``, built now from all nodes if nobody asked before."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = LabelColumn(self._rows)
            for row, labels in enumerate(self._read()):
                if labels is not None and key in labels:
                    column.codes[row] = column.code(labels[key])
        return column

    def set_row(self, row: int, labels: Mapping[str, str]) -> None:
        """The node on ``row`` has these labels now (empty: the node is gone)."""
        for key, column in self._columns.items():
            value = labels.get(key)
            column.codes[row] = ABSENT if value is None else column.code(value)

    def reserve(self, rows: int) -> None:
        """Make room for ``rows``."""
        if rows <= self._rows:
            return
        for column in self._columns.values():
            codes = np.zeros(rows, dtype=np.int32)
            codes[: self._rows] = column.codes
            column.codes = codes
        self._rows = rows
