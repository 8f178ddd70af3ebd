"""Resources that have no column, because too many names are offered: by name and row, as few nodes offer each.

Such a name costs nothing per node. It counts in what a node has room for, not in scores.
"""

from collections.abc import Mapping

import numpy as np

from koord.columns.matrix import Floats, Ints
from koord.scheduler.engine.resources import LIMIT

_NOWHERE: Mapping[int, float] = {}


class Rare:
    """What rows offer of names without a column, and what is free of it."""

    def __init__(self) -> None:
        self._offered: dict[str, dict[int, float]] = {}
        self._free: dict[str, dict[int, float]] = {}
        self._names: dict[int, tuple[str, ...]] = {}

    def set_row(self, row: int, amounts: Mapping[str, int], taken: Mapping[str, int]) -> None:
        """A row offers these, of which pods on it took that much."""
        self.clear_row(row)
        for name, amount in amounts.items():
            self._offered.setdefault(name, {})[row] = float(min(amount, LIMIT))
            self._free.setdefault(name, {})[row] = float(min(amount, LIMIT) - taken.get(name, 0))
        if amounts:
            self._names[row] = tuple(amounts)

    def clear_row(self, row: int) -> None:
        """The row offers none any more."""
        for name in self._names.pop(row, ()):
            rows = self._offered.get(name)
            if rows is not None:
                del rows[row]
                del self._free[name][row]
                if not rows:
                    self.forget(name)

    def forget(self, name: str) -> None:
        """The name has a column now, or nobody offers it."""
        for row in self._offered.pop(name, _NOWHERE):
            self._names[row] = tuple(other for other in self._names.get(row, ()) if other != name)
        self._free.pop(name, None)

    def take(self, row: int, amounts: Mapping[str, int], times: int = 1) -> None:
        """Pods came to the row that take ``amounts`` each; negative ``times``: they left."""
        for name, amount in amounts.items():
            free = self._free.get(name)
            if free is not None and row in free:
                free[row] -= min(amount, LIMIT) * times

    def columns(self, name: str, rows: slice | Ints, size: int) -> tuple[Floats, Floats]:
        """Free and offered amounts on ``rows``, as if the name had a column."""
        return _column(self._free.get(name, _NOWHERE), rows, size), _column(
            self._offered.get(name, _NOWHERE), rows, size
        )

    def __contains__(self, name: str) -> bool:
        return name in self._offered


def _column(amounts: Mapping[int, float], rows: slice | Ints, size: int) -> Floats:
    column: Floats = np.zeros(size)
    if not isinstance(rows, slice):
        if amounts:
            column[:] = [amounts.get(row, 0.0) for row in rows.tolist()]
    else:
        for row, amount in amounts.items():
            column[row] = amount
    return column
