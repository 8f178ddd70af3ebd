"""ScheduleAnyway: the emptier a domain, the better. Spec 10 section 3.15.

raw = round(Σ over constraints of (count·ln(domains + 2) + maxSkew − 1)), final = floor(100·(max + min − raw)/max). How
many domains there are, and the extremes, depend on which rows are feasible. Hosts are counted row by row.
"""

import abc
import math

import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.scheduler.engine.domains import Domains, DomainSum, Eligible, RowCounts
from koord.scheduler.engine.podindex import Group
from koord.scheduler.engine.window import Window


class SoftConstraint(abc.ABC):
    """One constraint; ``extra`` is its maxSkew − 1."""

    __slots__ = ("domains", "extra")

    def __init__(self, max_skew: int, domains: Domains) -> None:
        self.extra = float(max_skew - 1)
        self.domains = domains

    @abc.abstractmethod
    def sync(self) -> bool:
        """Bring the counts up to date; True if any is another one."""

    @abc.abstractmethod
    def weigh(self, window: Window, among: Bools, number: int) -> None:
        """``among`` are the rows of the window that are rated now, of which there are ``number``."""

    @abc.abstractmethod
    def term(self, window: Window) -> Floats:
        """What the constraint adds to each row, 0 without the key; a new array."""


class SoftDomains(SoftConstraint):
    """Over the values of a label: all pods of a domain count on each of its rows."""

    __slots__ = ("_sum", "_weight")

    def __init__(self, max_skew: int, total: DomainSum) -> None:
        super().__init__(max_skew, total.domains)
        self._sum = total
        self._weight = 0.0

    def sync(self) -> bool:
        """As said."""
        changes = self._sum.changes()
        return changes is None or bool(changes)

    def weigh(self, window: Window, among: Bools, number: int) -> None:
        """By how many domains there are among the rows."""
        seen = np.zeros(self.domains.size, dtype=np.bool_)
        seen[self.domains.codes[window.rows][among]] = True
        seen[0] = False
        self._weight = math.log(int(np.count_nonzero(seen)) + 2)

    def term(self, window: Window) -> Floats:
        """One value per domain."""
        worth = self._sum.values * self._weight
        worth += self.extra
        worth[0] = 0.0
        return worth.take(self.domains.codes[window.rows])


class SoftHosts(SoftConstraint):
    """Over hosts: the pods of the row itself count, whatever nodes the policies let in; no pods without ``counts``."""

    __slots__ = ("_counts", "_known", "_version", "_weight", "_worth")

    def __init__(self, max_skew: int, domains: Domains, counts: RowCounts | None) -> None:
        super().__init__(max_skew, domains)
        self._counts = counts
        self._version = -1
        self._weight = 0.0
        self._known: Floats = np.zeros(0)
        self._worth: Floats = np.zeros(0)

    def sync(self) -> bool:
        """As said."""
        self.domains.sync()
        moved = self.domains.version != self._version
        if moved:
            self._version = self.domains.version
            self._known = (self.domains.codes != 0).astype(np.float64)
        changes = [] if self._counts is None else self._counts.changes()
        if moved or changes is None:
            self._fill()
            return True
        if self._counts is not None:
            for row in changes:
                self._worth[row] = (self._counts.values[row] * self._weight + self.extra) * self._known[row]
        return bool(changes)

    def weigh(self, window: Window, among: Bools, number: int) -> None:
        """By how many hosts there are."""
        weight = math.log(number + 2)
        if weight != self._weight:
            self._weight = weight
            self._fill()

    def term(self, window: Window) -> Floats:
        """One value per row."""
        return self._worth[window.rows].copy()

    def _fill(self) -> None:
        """Count and weight to worth, all rows."""
        worth: Floats = np.zeros(len(self._known)) if self._counts is None else self._counts.values * self._weight
        worth += self.extra
        worth *= self._known
        self._worth = worth


class Soft:
    """Terms of the score. Equal classes share one; compared by identity. ``rated``: rows with all keys, if only those
    are rated; the others get 0 and do not count for the extremes."""

    __slots__ = ("__weakref__", "_among", "_constraints", "_groups", "_number", "_rated", "_versions", "version")

    def __init__(
        self, constraints: tuple[SoftConstraint, ...], groups: tuple[Group, ...], rated: Eligible | None
    ) -> None:
        self._constraints = constraints
        self._groups = groups  # held, so that they are counted
        self._rated = rated
        self._among: Bools | None = None
        self._number = 0
        self._versions: list[int] = []
        self.version = 0

    def sync(self) -> int:
        """Bring everything up to date; the version."""
        moved = False
        for constraint in self._constraints:
            moved |= constraint.sync()
        if self._rated is not None:
            self._rated.sync()
        if moved:
            self.version += 1
        return self.version

    def final(self, window: Window, feasible: Bools) -> Floats:
        """Final scores of all rows of the window."""
        self.sync()
        among = feasible if self._rated is None else feasible & self._rated.rows[window.rows]
        number = self._weigh(window, among)
        if not number:
            return np.zeros(window.size)
        raw = self._constraints[0].term(window)
        for constraint in self._constraints[1:]:
            raw += constraint.term(window)
        raw += 0.5
        np.floor(raw, out=raw)
        rated = raw if number == window.size else raw[among]
        low, high = float(rated.min()), float(rated.max())
        if high <= 0.0:
            final: Floats = np.full(window.size, 100.0)
        else:
            final = np.subtract(high + low, raw, out=raw)
            final *= 100.0
            final /= high
            np.floor(final, out=final)
        if self._rated is not None:
            final *= among
        return final

    def _weigh(self, window: Window, among: Bools) -> int:
        """Tell the constraints which rows are rated, if they are others than last time; how many there are."""
        versions = [constraint.domains.version for constraint in self._constraints]
        whole = isinstance(window.rows, slice)
        if not (
            whole and self._among is not None and versions == self._versions and np.array_equal(among, self._among)
        ):
            self._number = int(np.count_nonzero(among))
            for constraint in self._constraints:
                constraint.weigh(window, among, self._number)
            self._among = among.copy() if whole else None
            self._versions = versions
        return self._number
