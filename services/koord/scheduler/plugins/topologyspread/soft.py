"""ScheduleAnyway: the emptier a domain, the better. Spec 10 section 3.15.

raw = round(Σ over constraints of (count·ln(domains + 2) + maxSkew − 1)), final = floor(100·(max + min − raw)/max). How
many domains there are, and the extremes, depend on which rows are feasible. Hosts are counted row by row.
"""

import math

import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.scheduler.engine.domains import Domains, DomainSum, Eligible
from koord.scheduler.engine.podindex import Group
from koord.scheduler.engine.tally import Tally
from koord.scheduler.engine.window import Window
from koord.scheduler.plugins.topologyspread.constraints import Constraint


class SoftConstraint:
    """One constraint: over the domains of ``total``, or over hosts as ``tally`` has them."""

    __slots__ = ("_domains", "_end", "_extra", "_sum", "_tally")

    def __init__(self, constraint: Constraint, domains: Domains, total: DomainSum | None, tally: Tally | None) -> None:
        self._extra = float(constraint.max_skew - 1)
        self._domains = domains
        self._sum = total
        self._tally = tally
        self._end: tuple[int, int] | None = None

    def sync(self) -> bool:
        """Bring the counts up to date; True if any is another one."""
        if self._sum is not None:
            changes = self._sum.changes()
            return changes is None or bool(changes)
        self._domains.sync()
        end = (-1 if self._tally is None else self._tally.end, self._domains.version)
        moved = end != self._end
        self._end = end
        return moved

    def term(self, window: Window, among: Bools, number: int) -> Floats:
        """What the constraint adds to each row, 0 without the key. ``among`` are the rows that are rated, of which
        there are ``number``."""
        codes = self._domains.codes[window.rows]
        if self._sum is None:
            counts: Floats = np.zeros(window.size)
            if self._tally is not None:
                rows = self._tally.counts(window.cluster.high)[window.rows]
                np.multiply(rows, math.log(number + 2), out=counts)
            counts += self._extra
            counts *= codes != 0
            return counts
        seen = np.zeros(len(self._sum.values), dtype=np.bool_)
        seen[codes[among]] = True
        seen[0] = False
        worth = self._sum.values * math.log(int(np.count_nonzero(seen)) + 2)
        worth += self._extra
        worth[0] = 0.0
        return worth.take(codes)


class Soft:
    """Terms of the score. Equal classes share one; compared by identity. ``rated``: rows with all keys, if only those
    are rated; the others get 0 and do not count for the extremes."""

    __slots__ = ("__weakref__", "_constraints", "_groups", "_rated", "version")

    def __init__(
        self, constraints: tuple[SoftConstraint, ...], groups: tuple[Group, ...], rated: Eligible | None
    ) -> None:
        self._constraints = constraints
        self._groups = groups  # held, so that they are counted
        self._rated = rated
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
        number = int(np.count_nonzero(among))
        if not number:
            return np.zeros(window.size)
        raw = self.raw(window, among, number)
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

    def raw(self, window: Window, among: Bools, number: int) -> Floats:
        """The rounded sums; ``among`` are the rows that are rated, of which there are ``number``."""
        total = self._constraints[0].term(window, among, number)
        for constraint in self._constraints[1:]:
            total += constraint.term(window, among, number)
        total += 0.5
        return np.floor(total, out=total)
