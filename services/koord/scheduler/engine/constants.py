"""Rows of one number. NumPy compares two arrays three times as fast as an array and a number, where rows are many."""

import numpy as np

from koord.columns.matrix import Floats

_FEW = 1024
_kept: dict[float, Floats] = {}


def same(number: float, rows: int) -> Floats | float:
    """``number`` in two rows of ``rows`` columns, as for cpu and memory at once, or as it is where that is as fast. Do
    not write, do not keep."""
    if rows < _FEW:
        return number
    found = _kept.get(number)
    if found is None or found.shape[1] < rows:
        found = _kept[number] = np.full((2, 2 * rows), number)
    return found[:, :rows]
