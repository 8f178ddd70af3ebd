"""What is occupied, promised and held at every level of the trees while idle room is handed out, and what fits yet."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from koord.quota.filling import Flags, Ints
from koord.quota.runtime import RuntimeTree

Asked = Sequence[tuple[int, int]]
"""Amounts by line of the tree, none of them 0."""


class Room:
    """``own``: what every row itself occupies and was promised; ``least``: what of its min it does not lend."""

    def __init__(self, tree: RuntimeTree, own: Ints, least: Ints) -> None:
        self._tree = tree
        self._least = least
        self._below, self._lifted = tree.up(own, least)
        self._top = np.zeros_like(tree.totals)
        for begin, end, owner, starts in tree.levels():
            self._top[:, -1 - owner] = np.add.reduceat(self._lifted[:, begin:end], starts, axis=1)
            break  # the tops of all trees are the first level

    def all_dominant(self) -> NDArray[np.float64]:
        """:meth:`dominant` of every row."""
        weight = self._tree.weights
        parts = np.full(weight.shape, -1.0)
        np.divide(self._below, weight, out=parts, where=weight > 0)
        largest: NDArray[np.float64] = parts.max(axis=0, initial=-1.0)
        return np.where(largest < 0, np.inf, largest)

    def dominant(self, at: int) -> float:
        """The largest part that row ``at`` has of what it weighs; infinite without any weight."""
        parts = zip(self._below[:, at].tolist(), self._tree.weights[:, at].tolist(), strict=True)
        return max((have / weight for have, weight in parts if weight > 0), default=float("inf"))

    def beyond_max(self, rows: Ints, asked: Ints) -> Flags:
        """Which of ``asked``, a row each for the quota in ``rows``, do not fit into their own quota's max."""
        over = self._below[:, rows].T + asked > self._tree.most[:, rows].T
        return np.asarray((over & (asked > 0)).any(axis=1))

    def take(self, at: int, asked: Asked) -> str | None:
        """Take ``asked`` if it fits on every level; else ``max`` (its quota's own) or ``idle`` tells what it lacks."""
        for line, amount in asked:
            if int(self._below[line, at]) + amount > self._tree.most[line, at]:
                return "max"
        if not all(self._fits(at, line, amount) for line, amount in asked):
            return "idle"
        self.hold(at, asked)
        return None

    def hold(self, at: int, asked: Asked) -> None:
        """Count ``asked`` at every level."""
        parent = self._tree.parent
        for line, amount in asked:
            row, more = at, amount
            while row >= 0 and more:
                self._below[line, row] += more
                lifted = max(int(self._below[line, row]), int(self._least[line, row]))
                more = lifted - int(self._lifted[line, row])
                self._lifted[line, row] = lifted
                row = int(parent[row])
            if row < 0:
                self._top[line, -1 - row] += more

    def possible(self, at: int, asked: Asked) -> bool:
        """Whether ``asked`` could ever fit: it is below the max of every level and the total."""
        tree = self._tree
        for line, amount in asked:
            row = at
            while row >= 0:
                if amount > tree.most[line, row]:
                    return False
                row = int(tree.parent[row])
            if amount > tree.totals[line, -1 - row]:
                return False
        return True

    def _fits(self, at: int, line: int, amount: int) -> bool:
        tree, row, more = self._tree, at, amount
        while row >= 0 and more:
            below = int(self._below[line, row]) + more
            if below > tree.most[line, row]:
                return False
            if below <= tree.runtimes[line, row]:
                return True  # within the share of this level: those above stay as they are
            more = max(below, int(self._least[line, row])) - int(self._lifted[line, row])
            row = int(tree.parent[row])
        return row >= 0 or int(self._top[line, -1 - row]) + more <= int(tree.totals[line, -1 - row])
